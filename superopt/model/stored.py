"""Models as they are stored: in one message, or in a message and files of external data."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx
from onnx import ModelProto
from onnx.external_data_helper import load_external_data_for_model

from superopt.errors import InvalidModelError, ModelNotFoundError, SuperoptError, first_line
from superopt.model.messages import graphs

INLINE_LIMIT = 2**31 - 2**26
"""Bytes of tensors above which a model does not fit into one protobuf message (2 GiB at most)."""


@dataclass(frozen=True)
class Placed:
    """A model as ONNX writes it, whose external data lies in a folder."""

    content: bytes
    folder: Path


Loadable: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto | Placed"
"""A model that ONNX Runtime can load: a path, its bytes, a message, or a message and a folder."""


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
    for tensor in stored_apart(model):
        yield {entry.key: entry.value for entry in tensor.external_data}


def stored_apart(model: ModelProto) -> Iterator[onnx.TensorProto]:
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


def data_files(path: Path) -> list[Path]:
    """Return the files in which the model at `path` keeps tensors; none where there is no model that can be read."""
    try:
        return _external(parsed(path, external=False), path.parent) if path.is_file() else []
    except (SuperoptError, OSError, ValueError):
        return []
