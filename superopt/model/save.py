"""Writing files: all of one or nothing of it, with large or formerly external tensors in one file beside the model."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from superopt.errors import TargetError
from superopt.model.load import Model, ModelProto, first_line, tensors
from superopt.model.session import Loadable

INLINE_LIMIT = 2**31 - 2**26
"""Bytes of tensors above which a model does not fit into one protobuf message (2 GiB at most)."""


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
        _publish([folder / data, folder / target.name] if (folder / data).exists() else [folder / target.name], target.parent)


def loadable(model: Model, folder: Path) -> ModelProto | Path:
    """The model in a form that ONNX Runtime loads: one message, or files in `folder` where one message does not hold it."""
    if not _apart(model):
        return ir.to_proto(model)
    path = folder / f"{len(list(folder.iterdir()))}.onnx"
    save(model, path)
    return path


def identity(model: Loadable) -> str:
    """A digest of a model that is held as a message; empty where it lies in files."""
    if not isinstance(model, ModelProto | bytes):
        return ""
    content = model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    return hashlib.blake2b(content, digest_size=16).hexdigest()


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
