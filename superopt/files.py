"""Atomic file writes, and temporary folders that the next run removes if a run was killed.

A file is written in a staging folder beside its target and renamed in one step. The name of a data file (a model's external
data) contains a digest of the content. An old model and the new model that replaces it therefore have data files with different
names. The renaming of the model file switches from the old model with its data to the new model with its data. Every temporary
folder is locked while it is in use. The lock ends with the process, so the next run can distinguish a leftover folder from a
folder that is in use.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import shutil
import stat
import tempfile
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from superopt.errors import ModelNotFoundError, TargetError
from superopt.policy import PROCESS

SAVING, SCRATCH = ".superopt-saving-", "superopt-scratch-"
"""The prefixes of the names of temporary folders: staging folders, and folders for work files."""
_RANDOM = re.compile(r"[a-z0-9_]{8}")
"""The random part of a temporary folder's name, as the module `tempfile` makes it."""
_DATA = re.compile(r".*-[0-9a-f]{16}\.data", re.DOTALL)
"""The form of the names that `output_data_file_name` gives to data files."""
_JOURNAL, _NEW = "data-files", "new"
"""Names inside a staging folder: a list of data files, and the folder of staged files.

If a save is killed, the listed data files may be left without a model.
"""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}

published = 0
"""The number of output files that this process has replaced or begun to replace. A later signal does not undo a replacement."""


# ---------------------------------------------------------------- targets


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Return the file to write for `path`, after a check that the file's folder accepts new files.

    A symbolic link is followed. The check makes a temporary folder, and removes temporary folders that killed runs left behind.

    Raises:
        TargetError: The folder does not exist or accepts no files, or `path` exists and is not a regular file.
    """
    target = target_of(path)
    with staging(target):
        return target


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the file to write for `path`. If `path` is a symbolic link, the file that the link leads to is returned.

    Raises:
        TargetError: The folder does not exist or is not writable, or `path` exists and is not a regular file.
    """
    target = Path(path)
    try:
        if target.is_symlink():
            target = target.resolve()
        try:
            kind = stat.S_IFMT(target.stat().st_mode)
        except FileNotFoundError:
            kind = stat.S_IFREG
        found = target.parent.is_dir()
        allowed = os.access(target.parent, os.W_OK | os.X_OK) and (os.access(target, os.W_OK) or not target.exists())
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(f"{path}: cannot write: {cause(error)}") from error
    if kind != stat.S_IFREG:
        raise TargetError(f"{path}: cannot write: the path is {_KINDS.get(kind, 'not a regular file')}")
    if not found:
        raise TargetError(f"{path}: cannot write: there is no folder {target.parent}")
    if not allowed:
        raise TargetError(f"{path}: cannot write: permission denied")
    return target


def require_model_file(path: Path) -> None:
    """Check that the path of a model exists.

    Raises:
        ModelNotFoundError: `path` does not exist.
    """
    if not path.exists():
        raise ModelNotFoundError(f"{path}: no such file")


def require_folder(path: Path) -> None:
    """Check that `path` is a folder that accepts new files, or that a folder can be made at this path.

    Raises:
        TargetError: `path` is not a folder, is not writable, or cannot be made.
    """
    there = path
    while not (there.exists() or there.is_symlink()) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise TargetError(f"{path}: cannot write: {there} is not a folder")
    require_writable(there / _NEW)


def require_distinct(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Check that no output is the same file as another output or an input.

    The keys of `outputs` and `inputs` are the names that the error message uses for the paths.

    Raises:
        TargetError: Two paths lead to the same file, even if the paths differ in links, spelling, or upper and lower case.
    """
    written = [(label, path) for label, path in outputs.items() if path is not None]
    read = [(label, path) for label, path in inputs.items() if path is not None]
    for place, (label, path) in enumerate(written):
        for other, known in (*written[:place], *read):
            if same_file(path, known):
                raise TargetError(f"{path}: cannot write: {label} is the same file as {other}")


def same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file.

    If neither file exists, the result states whether writes to both paths would make the same file.
    """
    try:
        if one.exists() or other.exists():
            return one.exists() and other.exists() and one.samefile(other)
        first, second = one.resolve(), other.resolve()
        if not (first.parent.exists() and second.parent.exists() and first.parent.samefile(second.parent)):
            return False
    except (OSError, RuntimeError, ValueError):
        return False
    if first.name == second.name:
        return True
    alike = _folded(first.name) == _folded(second.name)
    return alike and _ignores_case(first.parent)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def _ignores_case(folder: Path) -> bool:
    """Return whether file names in the folder are case-insensitive. The test makes a temporary folder."""
    try:
        with _temporary(folder, SAVING) as probe:
            return probe.with_name(probe.name.upper()).exists()
    except OSError:
        return False


# ---------------------------------------------------------------- writing


def write_text_atomically(text: str, path: str | os.PathLike[str]) -> None:
    """Write `text` to the file at `path` as UTF-8.

    Characters that UTF-8 cannot encode, such as surrogates from file names, are written as backslash escapes.

    Raises:
        TargetError: The file cannot be written; an existing file is unchanged.
    """
    write_bytes_atomically(text.encode("utf-8", "backslashreplace"), path)


def write_bytes_atomically(content: bytes, path: str | os.PathLike[str]) -> None:
    """Write `content` to the file at `path`.

    Raises:
        TargetError: The file cannot be written; an existing file is unchanged.
    """
    target = target_of(path)
    with staging(target) as folder:
        (folder / target.name).write_bytes(content)
        publish(folder / target.name, target)


@contextlib.contextmanager
def staging(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the target, for files that `publish` moves to their places.

    Raises:
        TargetError: The folder cannot be made, or any exception was raised inside the context.
    """
    try:
        remove_leftovers(target.parent, SAVING)
        with _temporary(target.parent, SAVING) as folder:
            (folder / _NEW).mkdir()
            yield folder / _NEW
    except TargetError:
        raise
    except Exception as error:
        raise TargetError(f"{target}: cannot write: {cause(error)}") from error


def output_data_file_name(target: Path, data: Path) -> str:
    """Return a file name for `data`, the external data of the model that is saved as `target`.

    The name consists of the model's name and a digest of the content of `data`.
    """
    with data.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()[:16]
    stem = re.sub(r"[^\w .+-]", "_", target.stem).encode()[: PROCESS.max_stem_bytes].decode("utf-8", "ignore")
    return f"{stem}-{digest}.data"


def is_output_data_file_name(target: Path, path: Path) -> bool:
    """Return whether `path` may be the data file of the model `target`.

    `path` must be in the folder of the model, and its name must have the form that `output_data_file_name` gives.
    """
    beside = path.name.startswith(f"{target.stem}-") and _DATA.fullmatch(path.name) is not None
    return beside and path.parent.exists() and target.parent.exists() and path.parent.samefile(target.parent)


def publish(staged: Path, target: Path, data: Path | None = None) -> None:
    """Replace the file `target` with the file `staged` atomically, and sync the file to disk.

    `staged` and `data` are complete files in a temporary folder. `data` is the external data of the new model. The file `data`
    already has its final name, and is moved first. Afterwards, data files of the replaced model are removed if their names have
    the form that `output_data_file_name` gives. A data file is kept if a different file in the folder contains the name of the
    data file.

    Raises:
        OSError: The replacement failed; the target and its data files are unchanged.
    """
    global published  # noqa: PLW0603
    folder, journal = target.parent, staged.parent.parent / _JOURNAL
    for file in filter(None, (data, staged)):
        if target.exists():
            shutil.copymode(target, file)
        _sync(file)
    with _alone(folder):
        replaced = _data_files(folder) if target.exists() else []
        replaced = [name for name in replaced if _mentions(target, name)]
        if data is not None or replaced:
            listed = dict.fromkeys([*replaced, *([data.name] if data is not None else [])])
            journal.write_text("\0".join(listed), encoding="utf-8", errors="surrogateescape")
        published += 1
        final = folder / data.name if data is not None else None
        placed = final is not None and not final.exists()
        try:
            if data is not None and final is not None:
                data.replace(final)
                _sync(folder)
            staged.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                if placed and final is not None:
                    final.unlink(missing_ok=True)
                journal.unlink(missing_ok=True)
            raise
        with contextlib.suppress(OSError):
            _sync(folder)
        with contextlib.suppress(OSError):
            _remove_unnamed(folder, [name for name in replaced if final is None or name != final.name])
            journal.unlink(missing_ok=True)


def _remove_unnamed(folder: Path, names: Collection[str]) -> None:
    """Remove each data file in `names` whose name does not occur in any other file of the folder.

    Raises:
        OSError: A file cannot be read or removed.
    """
    for name in names:
        others = [Path(entry.path) for entry in os.scandir(folder) if entry.is_file() and not _DATA.fullmatch(entry.name)]
        if not any(_mentions(other, name) for other in others):
            (folder / name).unlink(missing_ok=True)


def _data_files(folder: Path) -> list[str]:
    """Return the file names in the folder that have the form of names from `output_data_file_name`."""
    return [entry.name for entry in os.scandir(folder) if _DATA.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]


def _mentions(file: Path, name: str) -> bool:
    """Return whether the file contains the bytes of the name. A model contains the names of its data files."""
    wanted, tail = os.fsencode(name), b""
    with file.open("rb") as content:
        while chunk := content.read(PROCESS.file_chunk_bytes):
            if wanted in tail + chunk:
                return True
            tail = (tail + chunk)[-len(wanted) :]
    return False


def _sync(path: Path) -> None:
    """Sync the content of a file, or the renames in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cause(error: BaseException) -> str:
    """Return the cause of an error in one line: the operating system's message, or the first line of the error's text."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    line = str(text).splitlines()[0].strip()
    return line if len(line) <= 160 else f"{line[:159]}…"


# ---------------------------------------------------------------- folders


def cache_folder() -> Path:
    """Return superopt's folder in the user's cache folder, according to the XDG base directory specification.

    For a user without a home folder, the result is a path at which no folder can be made.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "superopt"
    except RuntimeError:
        return Path(os.devnull) / "superopt"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for work files among the system's temporary files, and remove it afterwards.

    Raises:
        TargetError: The folder cannot be made.
    """
    try:
        holder = contextlib.ExitStack()
        folder = holder.enter_context(_temporary(Path(tempfile.gettempdir()), SCRATCH))
    except OSError as error:
        raise TargetError(
            f"temporary files cannot be written: {cause(error)} "
            "(the environment variable TMPDIR sets the folder for temporary files)"
        ) from error
    with holder:
        yield folder


def remove_scratch() -> None:
    """Remove the temporary folders for work files that killed runs left behind."""
    with contextlib.suppress(OSError):
        remove_leftovers(Path(tempfile.gettempdir()), SCRATCH)


def remove_leftovers(parent: Path, prefix: str) -> None:
    """Remove the temporary folders in `parent` that killed runs left behind and that have names with the prefix `prefix`.

    A killed run holds no lock on its folder. If a run was killed while it saved a model, it may also have left data files that
    no model uses. These data files are removed too.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(parent)):
            named = entry.name.startswith(prefix) and _RANDOM.fullmatch(entry.name[len(prefix) :])
            if named and entry.is_dir(follow_symlinks=False):
                _remove_leftover(Path(entry.path))


def _remove_leftover(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(handle).st_uid == os.geteuid() and _lock(handle):
                if (folder / _JOURNAL).exists():
                    listed = (folder / _JOURNAL).read_text(encoding="utf-8", errors="surrogateescape").split("\0")
                    names = [name for name in listed if _DATA.fullmatch(name) and name == Path(name).name]
                    with _alone(folder.parent):
                        _remove_unnamed(folder.parent, names)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _temporary(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new locked folder in `parent` and remove the folder afterwards.

    The folder stays if the folder contains a list of data files that could not be removed.
    """
    folder, handle = _locked(parent, prefix)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder / _NEW if (folder / _JOURNAL).exists() else folder, ignore_errors=True)
        _close(handle)


def _locked(parent: Path, prefix: str) -> tuple[Path, int]:
    """Make a folder in `parent`, lock it, and return the folder and the open handle that holds the lock.

    Another process may remove the folder as a leftover before the folder is locked. In this case, another folder is made.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                if _lock(handle) is not False and folder.exists():
                    return folder, handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock an open folder, and return whether the folder is locked by this call.

    Returns False if another process has locked the folder, and None if the system or the file system does not support locks.
    """
    try:
        locks: Any = importlib.import_module("fcntl")
        locks.flock(handle, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        return False
    except (OSError, ImportError):
        return None
    return True


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock inside the context, so that no other save changes the folder.

    The context starts without the lock if the file system does not support locks, or if another process still holds the lock
    after `PROCESS.save_lock_seconds`.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        end = time.monotonic() + PROCESS.save_lock_seconds
        while _lock(handle) is False and time.monotonic() < end:
            time.sleep(0.02)
        yield
    finally:
        _close(handle)


def _close(handle: int) -> None:
    """Close a folder's handle. Nothing was written through the handle, so errors are ignored."""
    with contextlib.suppress(OSError):
        os.close(handle)
