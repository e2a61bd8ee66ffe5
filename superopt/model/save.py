"""Writing models, whole or not at all: large or formerly external tensors are in one data file beside the model."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx.external_data_helper import load_external_data_for_model

from superopt.errors import InvalidModelError, ModelNotFoundError, SuperoptError, TargetError
from superopt.files import data_name, publish, same_file, staging, target_of
from superopt.model.load import Model, ModelProto, as_proto, first_line, tensors
from superopt.model.maps import has_maps, with_maps
from superopt.model.messages import graphs
from superopt.model.placed import Placed, Scratch, placed
from superopt.model.session import Loadable

INLINE_LIMIT = 2**31 - 2**26
"""Bytes of tensors above which a model does not fit into one protobuf message (2 GiB at most)."""
_MESSAGE = 32 << 20
"""Bytes of tensors up to which a model is handed to ONNX Runtime as a message, of which several copies are made."""


def save(model: Model, path: str | os.PathLike[str], *, external: bool = False) -> None:
    """Write the model to the file at `path`; the model itself is left unchanged.

    Tensors are in `<stem>-<digest>.data` beside it where `external`, or if some are in other files already, or if they are too
    large for one file. To a reader, both files change in one step; see `files.publish`.

    Raises:
        TargetError: it cannot be written, or keeps tensors of this very model; files that were there are as they were.
    """
    target = target_of(path)
    kept = {os.path.realpath(t.path) for t in tensors(model) if isinstance(t, ir.ExternalTensor)}
    if any(same_file(target, Path(file)) for file in kept):
        raise TargetError(f"{path}: cannot write: the model keeps tensors in this file")
    with staging(target) as folder:
        file, unnamed = folder / target.name, folder / ("data" if target.name != "data" else "tensors")
        ir.save(model, file, external_data=unnamed.name if external or _apart(model) else None)
        data = folder / data_name(target, unnamed) if unnamed.exists() else None
        if data is not None:
            unnamed.rename(data)
        if data is not None or has_maps(model):
            proto = with_maps(onnx.load(file, load_external_data=False))
            places = [entry for tensor in _stored_apart(proto) for entry in tensor.external_data if entry.key == "location"]
            for place in places:
                place.value = data.name if data is not None else place.value
            onnx.save(proto, file)
        publish(file, target, data)


def loadable(model: Model, scratch: Scratch, path: Path | None = None) -> Loadable:
    """The model in a form that ONNX Runtime loads: a message that leaves tensors in other files there, of at most 128 MiB, or
    with its own tensors laid out in files too; or its own file, which lies at `path`, where it has tensors of both kinds.

    Raises:
        TargetError: these files cannot be written.
    """
    stored = list(tensors(model))
    elsewhere = [t for t in stored if isinstance(t, ir.ExternalTensor)]
    inside = sum(t.nbytes for t in stored if not isinstance(t, ir.ExternalTensor))
    if inside <= _MESSAGE:
        return placed(model) if elsewhere else as_proto(model)
    if elsewhere and path is not None and not any(Path(t.location).is_absolute() for t in elsewhere):
        return path
    return placed(model, scratch)


def stored_bytes(model: Loadable) -> int:
    """How many bytes the model has in its message and its files; of files that other models have tensors in too, its own."""
    if isinstance(model, ModelProto):
        return int(model.ByteSize())
    if isinstance(model, bytes):
        return len(model)
    if isinstance(model, Placed):
        return len(model.content) + _mapped(parsed(model, external=False), model.folder)
    return sum(file.stat().st_size for file in _files(model))


def _mapped(model: ModelProto, folder: Path) -> int:
    """The bytes of the model's external data, each counted once."""
    parts = {(e["location"], e.get("offset", "0")): e.get("length") for e in _entries(model)}
    return sum(int(length or (folder / location).stat().st_size) for (location, _), length in parts.items())


def _entries(model: ModelProto) -> Iterator[dict[str, str]]:
    """Where each tensor lies that lies in another file, those of bodies of control flow too."""
    for tensor in _stored_apart(model):
        yield {entry.key: entry.value for entry in tensor.external_data}


def _stored_apart(model: ModelProto) -> Iterator[onnx.TensorProto]:
    """The initializers that lie in other files."""
    for graph in graphs(model):
        yield from (tensor for tensor in graph.initializer if tensor.external_data)


def _files(model: str | os.PathLike[str] | Placed) -> list[Path]:
    """The files that the model lies in: its own, and those of its external data."""
    if isinstance(model, Placed):
        return _external(parsed(model, external=False), model.folder)
    path = Path(model)
    return [path, *_beside(path, *_stamp(path))]


@functools.lru_cache(maxsize=64)
def _beside(path: Path, *_stamped: int) -> list[Path]:
    """The files of a stored model's external data; none where it is too large for a message: its weights are inside."""
    return [] if path.stat().st_size >= INLINE_LIMIT else _external(parsed(path, external=False), path.parent)


def _external(model: ModelProto, folder: Path) -> list[Path]:
    """The files of the model's external data."""
    return [folder / location for location in sorted({entry["location"] for entry in _entries(model)})]


def _stamp(file: Path) -> tuple[int, int]:
    """What changes with the bytes of a file: its size, and when it was written."""
    stored = file.stat()
    return stored.st_size, stored.st_mtime_ns


def parsed(model: Loadable, *, external: bool = True) -> ModelProto:
    """The model with all its tensors, those in other files included unless `external` is false.

    Raises:
        ModelNotFoundError, InvalidModelError: a file is missing, or holds no model.
    """
    if isinstance(model, ModelProto):
        return model
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model)
        if not isinstance(model, Placed):
            return onnx.load(model, load_external_data=external)
        proto = onnx.load_model_from_string(model.content)
        if external:
            load_external_data_for_model(proto, str(model.folder))
        return proto
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"{error.filename or model!r}: no such file") from error
    except Exception as error:
        raise InvalidModelError(f"not an ONNX model ({first_line(error)})") from error


def folder_of(model: Loadable) -> Path:
    """Where the model's external data lies."""
    if isinstance(model, bytes | ModelProto):
        return Path()
    return model.folder if isinstance(model, Placed) else Path(model).parent


def identity(model: Loadable) -> str:
    """A digest of all that a model consists of, its external data included."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(model, ModelProto):
        digest.update(model.SerializeToString(deterministic=True))
    elif isinstance(model, bytes):
        digest.update(model)
    else:
        digest.update(model.content if isinstance(model, Placed) else b"")
        for file in _files(model):
            digest.update(_digest(file, *_stamp(file)))
    return digest.hexdigest()


@functools.lru_cache(maxsize=64)
def _digest(file: Path, *_stamped: int) -> bytes:
    """A digest of the bytes of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _apart(model: Model) -> bool:
    """Whether tensors of the model belong into a file of their own."""
    stored = list(tensors(model))
    return any(isinstance(t, ir.ExternalTensor) for t in stored) or sum(t.nbytes for t in stored) > INLINE_LIMIT


def copy(source: Path, path: str | os.PathLike[str]) -> None:
    """The file at `path` holds the same bytes as `source`.

    Raises:
        TargetError: it cannot be written; a file that was there is as it was.
    """
    target = target_of(path)
    if target.exists() and target.samefile(source):
        return
    with staging(target) as folder:
        shutil.copyfile(source, folder / target.name)
        publish(folder / target.name, target)


def data_files(path: Path) -> list[Path]:
    """Return the files in which the model at `path` keeps tensors; none where there is no model that can be read."""
    try:
        return _external(parsed(path, external=False), path.parent) if path.is_file() else []
    except (SuperoptError, OSError, ValueError):
        return []
