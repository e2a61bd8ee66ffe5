"""Files: saves that a reader sees as one step, refused targets, and leftovers of killed runs."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from superopt import files
from superopt.errors import TargetError
from superopt.files import (
    SAVING,
    SCRATCH,
    remove_scratch,
    require_distinct,
    require_writable,
    same_file,
    scratch_folder,
    write_text_atomically,
)
from superopt.model.load import as_model, load
from superopt.model.save import save
from superopt.protobuf.stored import data_files
from tests.models import model, run, weight

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["data", "new", "m", "m.data", "m-0123456789abcdef.data", ".onnx", f"{'long' * 62}.onnx", "ü n.onnx"]


def layers(*names: str) -> onnx.ModelProto:
    """Return a chain of products whose weights depend on the names."""
    nodes = [
        onnx.helper.make_node("MatMul", [f"t{i}" if i else "x", name], ["y" if name == names[-1] else f"t{i + 1}"])
        for i, name in enumerate(names)
    ]
    return model(nodes, {"x": [4, 16]}, {"y": [4, 16]}, [weight(name, 16, 16) for name in names])


def saved(path: Path, *names: str) -> None:
    """Save the model of these layers at `path`, with its tensors in a data file."""
    save(as_model(layers(*names)), path, external=True)


def holds(path: Path, *names: str) -> bool:
    """Return whether the model at `path`, with its data file, computes the same as the model of these layers."""
    (expected,), (found,) = run(layers(*names)), run(onnx.load(path))
    return np.array_equal(expected, found)


def listed(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def data(path: Path) -> Path:
    """Return the only data file of the model at `path`."""
    (file,) = data_files(path)
    return file


# ---------------------------------------------------------------- saves


def test_a_data_file_is_called_after_the_model_and_its_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one.onnx", tmp_path / "other.onnx"
    saved(one, "a", "b")
    saved(other, "a", "b")
    assert listed(tmp_path) == {"one.onnx", "other.onnx", data(one).name, data(other).name}
    assert data(one).name.removeprefix("one-") == data(other).name.removeprefix("other-")
    saved(other, "a", "c")
    assert data(one).name.removeprefix("one-") != data(other).name.removeprefix("other-")
    assert holds(one, "a", "b")
    assert holds(other, "a", "c")


@pytest.mark.parametrize(
    "name", ["data", "new", "m", "m.data", "m-0123456789abcdef.data", ".onnx", f"{'long' * 62}.onnx", "ü n.onnx"]
)
def test_a_model_may_have_any_name(tmp_path: Path, name: str) -> None:
    for layer in "bc":
        saved(tmp_path / name, "a", layer)
        assert holds(tmp_path / name, "a", layer)
        assert len(listed(tmp_path)) == 2


def test_the_data_file_of_the_model_that_is_replaced_goes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    saved(path, "a")
    saved(path, "a", "b")
    assert listed(tmp_path) == {"m.onnx", data(path).name}
    save(as_model(layers("a")), path)
    assert listed(tmp_path) == {"m.onnx"}


@pytest.mark.parametrize("name", ["copy.onnx", "copy.backup", "list.txt"])
def test_a_data_file_that_another_file_names_stays(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.onnx"
    saved(path, "a")
    old = data(path)
    (tmp_path / name).write_bytes(path.read_bytes())
    saved(path, "a", "b")
    assert listed(tmp_path) == {"m.onnx", name, old.name, data(path).name}


def test_files_that_superopt_did_not_make_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(layers("a"), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    stray = tmp_path / "m-0123456789abcdef.data"
    stray.write_bytes(b"nobody names this, and the model that is replaced does not")
    save(load(path).model, path)
    assert listed(tmp_path) == {"m.onnx", "weights.bin", stray.name, data(path).name}
    assert holds(path, "a")


def test_a_model_with_a_data_file_can_be_saved_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    saved(path, "a", "b")
    was = listed(tmp_path)
    loaded = load(path).model
    save(loaded, path)
    assert listed(tmp_path) == was, "the same bytes have the same names"
    next(iter(loaded.graph)).name = "renamed"
    save(loaded, path)
    save(loaded, tmp_path / "again.onnx")
    assert holds(path, "a", "b")
    assert holds(tmp_path / "again.onnx", "a", "b")


def test_a_model_is_not_saved_over_its_own_data_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    saved(path, "a")
    link = tmp_path / "link"
    link.symlink_to(data(path))
    for target in (data(path), link):
        with pytest.raises(TargetError, match="keeps tensors in this file"):
            save(load(path).model, target)
    assert holds(path, "a")


@pytest.mark.parametrize("name", ["m.onnx", "data"])
def test_a_failure_between_the_two_files_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "m.onnx"
    saved(path, "a")
    was = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if self.name == name or (name == "data" and self.suffix == ".data"):
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(TargetError, match="Input/output error"):
        saved(path, "a", "b")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == was


def test_a_failed_save_with_the_same_weights_keeps_the_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    saved(path, "a", "b")
    was = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert all(was.values())
    changed = layers("a", "b")
    changed.graph.node[0].name = "renamed"
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if target == path:
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(TargetError, match="Input/output error"):
        save(as_model(changed), path, external=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == was
    assert holds(path, "a", "b")


def test_both_files_have_the_mode_of_the_model_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")
    path.chmod(0o640)
    saved(path, "a")
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    real, link = tmp_path / "real.onnx", tmp_path / "link.onnx"
    link.symlink_to(real)
    save(as_model(layers("a")), link)
    assert link.is_symlink()
    assert holds(real, "a")


def test_text_is_written_whole_whatever_is_in_it(tmp_path: Path) -> None:
    write_text_atomically("{}\n", tmp_path / "r.json")
    assert (tmp_path / "r.json").read_text() == "{}\n"
    write_text_atomically('{"model": "\udcff.onnx"}', tmp_path / "r.json")
    assert (tmp_path / "r.json").read_text() == '{"model": "\\udcff.onnx"}'


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "m.onnx"
    target.write_bytes(b"before")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ir, "save", full)
    with pytest.raises(TargetError, match="No space left"):
        save(as_model(layers("a")), target)
    assert target.read_bytes() == b"before"
    assert listed(tmp_path) == {"m.onnx"}


# ---------------------------------------------------------------- targets


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


KINDS: Mapping[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a socket": a_socket,
    "a device": lambda path: path.symlink_to("/dev/null"),
    "there is no folder": lambda path: path.symlink_to(path.parent / "absent" / "file"),
    "symbolic link|Symlink loop": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("target")
    KINDS[kind](path)
    was = path.lstat()
    for write in (require_writable, lambda p: write_text_atomically("", p), lambda p: save(as_model(layers("a")), p)):
        with pytest.raises(TargetError, match=kind):
            write(path)
    assert path.lstat() == was


@pytest.mark.parametrize("name", ["x" * 256, "absent/m.onnx", "file/m.onnx", "nul\0"])
def test_a_path_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TargetError, match="cannot write"):
        require_writable(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(TargetError, match="permission"):
            require_writable(tmp_path / "m.onnx")
    finally:
        tmp_path.chmod(0o700)


def test_one_file_by_several_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to("folder")
    file, hard, soft = tmp_path / "file", tmp_path / "hard", tmp_path / "soft"
    file.write_bytes(b"")
    hard.hardlink_to(file)
    soft.symlink_to("file")
    (tmp_path / "later").symlink_to("folder/new")
    for other in (Path("file"), hard, soft, Path("folder/../file")):
        assert same_file(file, other)
    for first, second in (("folder/new", "linked/new"), ("folder/new", "later"), ("new", "./new")):
        assert same_file(Path(first), Path(second))
    for first, second in (("file", "folder/file"), ("new", "newer"), ("file", "File"), ("new", "New"), ("no/new", "none/new")):
        assert not same_file(Path(first), Path(second))
    monkeypatch.setattr(files, "_ignores_case", lambda folder: True)
    assert same_file(Path("new"), Path("New"))
    with pytest.raises(TargetError, match="soft: cannot write: --json is the same file as the model"):
        require_distinct({"--json": soft, "--svg": None}, {"the model": file})
    require_distinct({"--json": tmp_path / "new"}, {"the model": file})


# ---------------------------------------------------------------- leftovers


KILLED = """
import os, signal, sys, tempfile
from pathlib import Path
from superopt import files
from superopt.model.load import load
from superopt.model.save import save

replace, last = Path.replace, int(sys.argv[3])

def counted(self, target):
    global last
    last -= 1
    if last < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

tempfile.gettempdir()  # tried by writing and removing a file
Path.replace = counted
os.unlink = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
with files.scratch_folder():
    save(load(sys.argv[1]).model, sys.argv[2], external=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("renames", [0, 1, 2])
def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    folder, scratch = tmp_path / "models", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    path, source = folder / "m.onnx", tmp_path / "source.onnx"
    saved(path, "a")
    onnx.save(layers("a", "b"), source)
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED, str(source), str(path), str(renames)]
    assert subprocess.run(command, env=environment, check=False).returncode < 0
    assert len(listed(folder)) == (3 if renames == 0 else 4)
    assert holds(path, *(("a", "b") if renames == 2 else ("a",)))
    assert len(listed(scratch)) == 1
    with scratch_folder() as mine:
        remove_scratch()
        assert listed(scratch) == {mine.name}, "what is in use is no leftover"
    require_writable(path)
    assert listed(folder) == {"m.onnx", data(path).name}
    assert holds(path, *(("a", "b") if renames == 2 else ("a",)))


def test_folders_of_others_are_no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in (f"{SCRATCH}mine", f"{SCRATCH}0123456789", f"x{SCRATCH}01234567", "01234567"):
        (tmp_path / name).mkdir()
    (tmp_path / f"{SCRATCH}01234567").write_bytes(b"a file")
    (tmp_path / f"{SAVING}01234567").symlink_to(tmp_path / "01234567")
    was = listed(tmp_path)
    remove_scratch()
    require_writable(tmp_path / "m.onnx")
    assert listed(tmp_path) == was


def test_without_a_place_for_temporary_files_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(TargetError, match="temporary files cannot be written"), scratch_folder():
        pass
