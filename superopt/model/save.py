"""Writing files: all of one or nothing of it, with large or formerly external tensors in one file beside the model."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx.external_data_helper import load_external_data_for_model

from superopt.errors import InvalidModelError, ModelNotFoundError, TargetError
from superopt.model.load import Model, ModelProto, as_proto, first_line, tensors
from superopt.model.maps import has_maps, with_maps
from superopt.model.messages import graphs
from superopt.model.placed import Placed, Scratch, placed
from superopt.model.session import Loadable

INLINE_LIMIT = 2**31 - 2**26
"""Bytes of tensors above which a model does not fit into one protobuf message (2 GiB at most)."""
_MESSAGE = 2**27
"""Bytes of tensors up to which a model is handed to ONNX Runtime as a message, of which several copies are made."""


def save(model: Model, path: str | os.PathLike[str], *, external: bool = False) -> None:
    """The file at `path` holds the model, unchanged by this.

    Tensors are in `<file name>.data` beside it where `external`, or if some are in other files already, or if they are too
    large for one file.

    Raises:
        TargetError: it cannot be written; files that were there are as they were.
    """
    target = writable(path)
    data = f"{target.name}.data"
    with _staging(target) as folder:
        ir.save(model, folder / target.name, external_data=data if external or _apart(model) else None)
        if has_maps(model):
            proto = with_maps(onnx.load(folder / target.name, load_external_data=False))
            (folder / target.name).write_bytes(proto.SerializeToString())
        _publish([folder / data, folder / target.name] if (folder / data).exists() else [folder / target.name], target.parent)


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
    for graph in graphs(model):
        yield from ({e.key: e.value for e in tensor.external_data} for tensor in graph.initializer if tensor.external_data)


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
    target = writable(path)
    if target.exists() and target.samefile(source):
        return
    with _staging(target) as folder:
        shutil.copyfile(source, folder / target.name)
        _publish([folder / target.name], target.parent)


def save_text(text: str, path: str | os.PathLike[str]) -> None:
    """The file at `path` holds `text`.

    Raises:
        TargetError: it cannot be written; a file that was there is as it was.
    """
    save_bytes(text.encode(), path)


def save_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """The file at `path` holds `data`.

    Raises:
        TargetError: it cannot be written; a file that was there is as it was.
    """
    target = writable(path)
    with _staging(target) as folder:
        (folder / target.name).write_bytes(data)
        _publish([folder / target.name], target.parent)


def writable(path: str | os.PathLike[str]) -> Path:
    """The file to write for `path`, links followed; its folder exists and takes new files.

    Raises:
        TargetError: there is no such folder, it is not writable, or `path` is not a file.
    """
    target = Path(path)
    if target.is_symlink():
        target = target.resolve()
    folder = target.parent
    if target.is_dir():
        raise TargetError(f"{path}: cannot write: it is a folder")
    if not folder.is_dir():
        raise TargetError(f"{path}: cannot write: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise TargetError(f"{path}: cannot write: permission denied")
    return target


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A temporary folder on the target's file system, gone afterwards; failures to write become `TargetError`."""
    try:
        with tempfile.TemporaryDirectory(prefix=".superopt-", dir=target.parent) as folder:
            yield Path(folder)
    except TargetError:
        raise
    except OSError as error:
        raise TargetError(f"{target}: cannot write: {error.strerror or first_line(error)}") from error
    except Exception as error:
        raise TargetError(f"{target}: cannot write: {first_line(error)}") from error


def _publish(files: Sequence[Path], folder: Path) -> None:
    """Every file is in `folder` under its name, each replaced in one step; after an error all are what they were before."""
    done: list[tuple[Path, Path | None]] = []
    try:
        for file in files:
            final, previous = folder / file.name, file.with_name(f"{file.name}.previous")
            if final.exists():
                shutil.copymode(final, file)
            if final.exists() and file is not files[-1]:
                os.link(final, previous)
                done.append((final, previous))
            else:
                done.append((final, None))
            file.replace(final)
    except OSError:
        for final, kept in done[: len(files) - 1]:
            if kept is not None:
                kept.replace(final)
            else:
                final.unlink(missing_ok=True)
        raise
