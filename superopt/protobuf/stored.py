"""Models in files or in memory, with or without files of external data."""

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
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from superopt.errors import InvalidModelError, ModelNotFoundError, SuperoptError, first_line
from superopt.protobuf.graphs import all_graphs
from superopt.protobuf.sparse import without_sparse

INLINE_LIMIT = 2**31 - 2**26
"""The largest total size in bytes at which all tensors of a model are stored in one protobuf message. Protobuf limits the size
of a message to 2 GiB.
"""


@dataclass(frozen=True)
class StoredModel:
    """A serialized model whose external data is in a folder."""

    content: bytes
    folder: Path


Loadable: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto | StoredModel"
"""A model that ONNX Runtime can load: a path, a serialized model, a ModelProto, or a serialized model with a data folder."""


def stored_bytes(model: Loadable) -> int:
    """Return the size of the model in bytes, including its external data.

    For a `StoredModel`, the count covers only the bytes of the data files that belong to the model's tensors, because other
    models may share these files.
    """
    if isinstance(model, ModelProto):
        return int(model.ByteSize())
    if isinstance(model, bytes):
        return len(model)
    if isinstance(model, StoredModel):
        return len(model.content) + _mapped(parse_model(model, external=False), model.folder)
    return sum(file.stat().st_size for file in _files(model))


def _mapped(model: ModelProto, folder: Path) -> int:
    """Return the number of bytes of the model's external data. Bytes that several tensors share are counted once."""
    parts = {(e["location"], e.get("offset", "0")): e.get("length") for e in _entries(model)}
    return sum(int(length or (folder / location).stat().st_size) for (location, _), length in parts.items())


def _entries(model: ModelProto) -> Iterator[dict[str, str]]:
    """For each initializer with external data, yield a mapping with its data entries (location, offset, length).

    Initializers of nested graphs are included. An initializer is left out if it has no location, or if the location is not
    UTF-8 text (protobuf then returns bytes). `load` rejects models with such initializers.
    """
    for tensor in external_initializers(model):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if isinstance(entries.get("location"), str):
            yield entries


def external_initializers(model: ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the initializers with external data in all graphs of the model."""
    for graph in all_graphs(model):
        yield from filter(uses_external_data, graph.initializer)


def _files(model: str | os.PathLike[str] | StoredModel) -> list[Path]:
    """Return the files of the model: the model file, if the model is in a file, and the files of external data."""
    if isinstance(model, StoredModel):
        return _external(parse_model(model, external=False), model.folder)
    path = Path(model)
    return [path, *_beside(path, *_stamp(path))]


@functools.lru_cache(maxsize=64)
def _beside(path: Path, *_stamped: int) -> list[Path]:
    """Return the files of external data of the model at `path`. A model file of at least `INLINE_LIMIT` bytes is not read, and
    counts as having no such files.

    `_stamped` contains the `_stamp` of the model file. If the file changes, its stamp changes too, and the cached result is not
    used.
    """
    return [] if path.stat().st_size >= INLINE_LIMIT else _external(parse_model(path, external=False), path.parent)


def _external(model: ModelProto, folder: Path) -> list[Path]:
    """Return the files of the model's external data."""
    return [folder / location for location in sorted({entry["location"] for entry in _entries(model)})]


def _stamp(file: Path) -> tuple[int, int]:
    """Return values that change when the bytes of a file change: the size and the modification time of the file."""
    stored = file.stat()
    return stored.st_size, stored.st_mtime_ns


def parse_model(model: Loadable, *, external: bool = True) -> ModelProto:
    """Return the model as a ModelProto. If `external` is True, external data is loaded into the ModelProto.

    If the model is not a ModelProto already, its sparse tensors become dense.

    Raises:
        ModelNotFoundError: A file is missing.
        InvalidModelError: The content is not a model.
    """
    if isinstance(model, ModelProto):
        return model
    try:
        if isinstance(model, bytes):
            return without_sparse(onnx.load_model_from_string(model))
        if not isinstance(model, StoredModel):
            return without_sparse(onnx.load(model, load_external_data=external))
        proto = onnx.load_model_from_string(model.content)
        if external:
            load_external_data_for_model(proto, str(model.folder))
        return without_sparse(proto)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"{error.filename or model!r}: no such file") from error
    except Exception as error:
        raise InvalidModelError(f"not an ONNX model ({first_line(error)})") from error


def folder_of(model: Loadable) -> Path:
    """Return the folder of the model's external data."""
    if isinstance(model, bytes | ModelProto):
        return Path()
    return model.folder if isinstance(model, StoredModel) else Path(model).parent


def model_digest(model: Loadable) -> str:
    """Return a digest of the whole model, including its external data."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(model, ModelProto):
        digest.update(model.SerializeToString(deterministic=True))
    elif isinstance(model, bytes):
        digest.update(model)
    else:
        digest.update(model.content if isinstance(model, StoredModel) else b"")
        for file in _files(model):
            digest.update(_digest(file, *_stamp(file)))
    return digest.hexdigest()


@functools.lru_cache(maxsize=64)
def _digest(file: Path, *_stamped: int) -> bytes:
    """Return a digest of the bytes of a file. `_stamped` contains the file's `_stamp`, so that a cached digest is used only
    while the file does not change.
    """
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def data_files(path: Path) -> list[Path]:
    """Return the files of external data of the model at `path`. If there is no readable model, return an empty list."""
    try:
        return _external(parse_model(path, external=False), path.parent) if path.is_file() else []
    except (SuperoptError, OSError, ValueError):
        return []
