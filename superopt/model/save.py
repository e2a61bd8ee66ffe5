"""Write models to files atomically. Large tensors, and tensors that were in external data, go into one data file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import onnx
import onnx_ir as ir

from superopt.errors import TargetError
from superopt.files import output_data_file_name, publish, same_file, staging, target_of
from superopt.model.external_data import Scratch, externalize_tensors
from superopt.model.load import Model, as_proto, model_tensors
from superopt.policy import MODEL
from superopt.protobuf.map_types import has_maps, with_maps
from superopt.protobuf.stored import INLINE_LIMIT, Loadable, external_initializers


def save(model: Model, path: str | os.PathLike[str], *, external: bool = False) -> None:
    """Write the model to the file at `path`. The model itself does not change.

    The tensors are written to the data file `<stem>-<digest>.data` in the same folder in three cases: `external` is True, some
    tensors are external already, or the tensors together are too large for the model file. Programs that read the model see
    either the old model or the new model (see `files.publish`).

    Raises:
        TargetError: the file cannot be written, or the model's external tensors are in this file. Existing files are not
            changed.
    """
    target = target_of(path)
    kept = {os.path.realpath(t.path) for t in model_tensors(model) if isinstance(t, ir.ExternalTensor)}
    if any(same_file(target, Path(file)) for file in kept):
        raise TargetError(f"{path}: cannot write: the model keeps tensors in this file")
    with staging(target) as folder:
        file, unnamed = folder / target.name, folder / ("data" if target.name != "data" else "tensors")
        ir.save(model, file, external_data=unnamed.name if external or _apart(model) else None)
        data = folder / output_data_file_name(target, unnamed) if unnamed.exists() else None
        if data is not None:
            unnamed.rename(data)
        if data is not None or has_maps(model):
            proto = with_maps(onnx.load(file, load_external_data=False))
            places = [
                entry for tensor in external_initializers(proto) for entry in tensor.external_data if entry.key == "location"
            ]
            for place in places:
                place.value = data.name if data is not None else place.value
            onnx.save(proto, file)
        publish(file, target, data)


def loadable(model: Model, scratch: Scratch, path: Path | None = None) -> Loadable:
    """Return the model in a form that ONNX Runtime can load without parsing a large ModelProto.

    If the tensors in memory have at most `MODEL.max_message_bytes` bytes in total, the result contains them, and external
    tensors stay in their files. If the tensors in memory have more bytes, the result is either the model's own file `path`, or
    a model whose large tensors are written to files of the temporary folder `scratch`. The result is `path` if this argument is
    given, if the model has external tensors, and if no external tensor has an absolute path.

    Raises:
        TargetError: a file for tensors cannot be written.
    """
    stored = list(model_tensors(model))
    elsewhere = [t for t in stored if isinstance(t, ir.ExternalTensor)]
    inside = sum(t.nbytes for t in stored if not isinstance(t, ir.ExternalTensor))
    if inside <= MODEL.max_message_bytes:
        return externalize_tensors(model) if elsewhere else as_proto(model)
    if elsewhere and path is not None and not any(Path(t.location).is_absolute() for t in elsewhere):
        return path
    return externalize_tensors(model, scratch)


def _apart(model: Model) -> bool:
    """Return whether `save` must write a data file: some tensors are external, or the tensors together are too large for one
    file.
    """
    stored = list(model_tensors(model))
    return any(isinstance(t, ir.ExternalTensor) for t in stored) or sum(t.nbytes for t in stored) > INLINE_LIMIT


def copy(source: Path, path: str | os.PathLike[str]) -> None:
    """Copy the bytes of `source` to the file at `path`.

    Raises:
        TargetError: the file cannot be written. An existing file is not changed.
    """
    target = target_of(path)
    if target.exists() and target.samefile(source):
        return
    with staging(target) as folder:
        shutil.copyfile(source, folder / target.name)
        publish(folder / target.name, target)
