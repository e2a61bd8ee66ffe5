"""The content of a tensor as bytes."""

from __future__ import annotations

import onnx_ir as ir


def tensor_content(tensor: ir.TensorProtocol) -> bytes:
    """Return bytes that determine the elements of a tensor if its type and shape are known. The length of each string is
    included.
    """
    if isinstance(tensor, ir.StringTensor):
        return b"".join(len(text).to_bytes(8, "little") + text for text in tensor.string_data())
    return tensor.tobytes()
