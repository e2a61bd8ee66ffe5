"""Models that are held as a message while their tensors lie in files, and where those files are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from superopt.model.load import Model


@dataclass(frozen=True)
class Placed:
    """A model as ONNX writes it, whose external data lies in a folder."""

    content: bytes
    folder: Path


def placed(model: Model) -> Placed:
    """The model as a message, the tensors that it keeps in other files left there; `folder` is above all of these."""
    copy = model.clone()
    found = [
        (value, tensor)
        for graph in copy.graphs()
        for value in graph.initializers.values()
        if isinstance(tensor := value.const_value, ir.ExternalTensor)
    ]
    files = [Path(tensor.path).resolve() for _, tensor in found]
    folder = Path(os.path.commonpath([file.parent for file in files]))
    for (value, tensor), file in zip(found, files, strict=True):
        value.const_value = ir.ExternalTensor(
            file.relative_to(folder),
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=value.name or "",
            base_dir=folder,
        )
    return Placed(ir.to_proto(copy).SerializeToString(), folder)
