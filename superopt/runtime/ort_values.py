"""Conversions between numpy arrays and ONNX Runtime's `OrtValue`.

numpy has no bfloat16, so bfloat16 values are exchanged as raw memory.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from onnx import TensorProto

Array = npt.NDArray[Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def ort_value_of(array: Array, memory: str, runtime: Any) -> Any:
    """Convert a numpy array to an `OrtValue` in `memory`, which is `cpu` or `cuda`.

    `runtime` is the onnxruntime module. A bfloat16 value is not copied to `memory`, but shares the memory of the array.
    """
    whole = np.ascontiguousarray(array).reshape(array.shape)
    if whole.dtype == BFLOAT16:
        return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(whole.view(np.uint16), TensorProto.BFLOAT16)
    return runtime.OrtValue.ortvalue_from_numpy(whole, memory, 0)


def array_of(value: Any) -> Any:
    """Return the content of an `OrtValue`. The content of a tensor is returned as an array."""
    if not value.is_tensor() or value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    shape = tuple(value.shape())
    memory = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    return np.array(memory, np.uint16).view(BFLOAT16).reshape(shape)
