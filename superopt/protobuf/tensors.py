"""The content of a tensor as bytes."""

from __future__ import annotations

import onnx_ir as ir


def tensor_content(tensor: ir.TensorProtocol) -> bytes:
    """Return bytes that determine the elements of a tensor of known type and shape. For strings, each length is included."""
    if isinstance(tensor, ir.StringTensor):
        return b"".join(len(text).to_bytes(8, "little") + text for text in tensor.string_data())
    return tensor.tobytes()
