"""Static quantization by ONNX Runtime's own tool."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.zoo.recipes import Quantized

CALIBRATION_BATCHES = 4


class RandomBatches(CalibrationDataReader):
    """Batches of normally distributed random numbers for a model with one input."""

    def __init__(self, model: Path, seed: int) -> None:
        (image,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()
        random = np.random.default_rng(seed)
        self.batches = iter([{image.name: random.standard_normal(image.shape, np.float32)} for _ in range(CALIBRATION_BATCHES)])

    def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
        return next(self.batches, None)


def quantize(recipe: Quantized, seed: int, target: Path) -> None:
    """Write the quantized model to the target. QuantizeLinear and DequantizeLinear nodes surround its operators."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        original, prepared = Path(folder) / "original.onnx", Path(folder) / "prepared.onnx"
        recipe.original.write(recipe.name, original)
        quant_pre_process(original, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            target,
            RandomBatches(original, seed),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
