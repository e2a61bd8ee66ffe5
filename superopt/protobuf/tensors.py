"""The content of a tensor as bytes."""

from __future__ import annotations

import onnx_ir as ir


def tensor_content(tensor: ir.TensorProtocol) -> bytes:
    """Return the content of a tensor as bytes. The bytes, the type and the shape together determine the tensor's elements. The
    length of each string is included.
    """
    if isinstance(tensor, ir.StringTensor):
        return b"".join(len(text).to_bytes(8, "little") + text for text in tensor.string_data())
    return tensor.tobytes()
