"""The time cache for users: `superopt cache`, entries of earlier versions, and caches that are replaced or not used."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from superopt.cli import main as cli
from superopt.errors import CacheError
from superopt.runtime.cache import Cache, cache_content, clear_cache, replacing_entries
from superopt.runtime.hardware import is_busy
from superopt.runtime.result_cache import cached_result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "times.sqlite"
    with closing(Cache(file)) as cache:
        cache.put(["kernel", "cpu", 1], 0.5)
        cache.put(["kernel", "cpu", 2], 0.25)
        cache.put(["pace", "cpu"], 3)
    return file


def test_the_content_of_a_cache_is_counted(path: Path) -> None:
    content = cache_content(path)
    assert content.counts == {"kernel": 2, "pace": 1}
    assert content.bytes > 0
    assert content.first is not None
    assert content.last is not None
    assert time.time() - 60 < content.first <= content.last <= time.time()
    assert cache_content(path.with_name("absent")).counts == {}


def test_a_cache_of_an_earlier_version_is_read_and_gets_times(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE measured (key TEXT PRIMARY KEY, description TEXT, value TEXT)")
        connection.execute("INSERT INTO measured VALUES ('k', '[\"kernel\",1]', '2')")
    content = cache_content(path)
    assert (content.counts, content.first) == ({"kernel": 1}, None)
    with closing(Cache(path)) as cache:
        assert not cache.error
        cache.put(["kernel", 2], 3)
    assert cache_content(path).counts == {"kernel": 2}
    assert cache_content(path).first is not None


def change(path: Path, assignment: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE measured SET {assignment}")
        connection.commit()


@pytest.mark.parametrize("assignment", ["description = NULL", "description = 'x'", "stored = 'x'", "stored = 9e999"])
def test_a_damaged_entry_is_one_line(path: Path, assignment: str) -> None:
    change(path, assignment)
    with pytest.raises(CacheError, match="not a usable time cache"):
        cache_content(path)


def test_a_damaged_result_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "times.sqlite"
    assert cached_result(path, ["answer"], [], lambda: 42)[0] == 42
    change(path, "value = '-1'")
    with pytest.raises(CacheError, match="an entry is damaged"):
        cached_result(path, ["answer"], [], lambda: 42)


def test_a_cleared_cache_is_empty_and_usable(path: Path) -> None:
    assert clear_cache(path) == 3
    assert clear_cache(path) == 0
    assert clear_cache(path.with_name("absent")) == 0
    with closing(Cache(path)) as cache:
        assert cache.get(["pace", "cpu"]) is None
        cache.put(["pace", "cpu"], 4)
        assert cache.get(["pace", "cpu"]) == 4


@pytest.mark.parametrize("content", [b"text", b"SQLite format 3\0 but broken"])
def test_other_files_are_neither_read_nor_cleared(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for used in (cache_content, clear_cache):
        with pytest.raises(CacheError, match="not a usable time cache"):
            used(path)
    assert path.read_bytes() == content


def test_other_databases_are_neither_read_nor_cleared(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    for used in (cache_content, clear_cache):
        with pytest.raises(CacheError, match="not a time cache"):
            used(path)
    assert path.read_bytes() == before


def test_new_entries_replace_entries_of_the_same_key(path: Path) -> None:
    with replacing_entries(path, keep=True) as empty, closing(Cache(empty)) as cache:
        assert cache.get(["pace", "cpu"]) is None
        cache.put(["pace", "cpu"], 7)
    with closing(Cache(path)) as cache:
        assert cache.get(["pace", "cpu"]) == 7
        assert cache.get(["kernel", "cpu", 1]) == 0.5
    assert not empty.exists()


def test_entries_replace_nothing_without_a_cache_or_after_a_failure(path: Path) -> None:
    with replacing_entries(path, keep=False) as empty, closing(Cache(empty)) as cache:
        cache.put(["pace", "cpu"], 7)

    def fail() -> None:
        with replacing_entries(path, keep=True) as empty, closing(Cache(empty)) as cache:
            cache.put(["pace", "cpu"], 8)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with closing(Cache(path)) as cache:
        assert cache.get(["pace", "cpu"]) == 3


def test_the_commands_show_and_clear_the_cache(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "info", "--cache", str(path)]) == 0
    shown = capsys.readouterr().out
    assert f"{path}: 3 entries" in shown
    assert "2 kernel" in shown
    assert "stored from 20" in shown
    assert cli.main(["cache", "clear", "--cache", str(path)]) == 0
    assert f"3 entries removed from {path}" in capsys.readouterr().out
    assert cache_content(path).counts == {}
    path.write_text("text")
    assert cli.main(["cache", "info", "--cache", str(path)]) == CacheError.exit_code
    with pytest.raises(SystemExit):
        cli.main(["optimize", "a.onnx", "b.onnx", "--fresh", "--no-cache"])


def test_times_of_a_busy_machine_are_not_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.runtime.cache.is_busy", lambda: True)
    with closing(Cache(path)) as cache:
        cache.put(["kernel", "cpu", 3], 0.75)
        assert cache.get(["kernel", "cpu", 3]) == 0.75
        assert cache.was_busy
    with closing(Cache(path)) as cache:
        assert cache.get(["kernel", "cpu", 3]) is None
        assert cache.get(["kernel", "cpu", 1]) == 0.5


@pytest.mark.parametrize(("surplus", "expected"), [(0, False), (2, True)])
def test_a_machine_is_busy_if_more_threads_run_than_it_has(
    surplus: int, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: ((os.cpu_count() or 1) + surplus, 0.0, 0.0))
    assert not is_busy(tmp_path / "absent")
    monkeypatch.delenv("SUPEROPT_IGNORE_LOAD")
    assert is_busy(tmp_path / "absent") == expected


@pytest.mark.parametrize(("waiting", "expected"), [("18.05", False), ("97.30", True)])
def test_a_machine_is_busy_if_threads_wait_for_a_processor(
    waiting: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The text has the format of /proc/pressure/cpu in Linux. The load average is used only if this text cannot be read."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0 if expected else 1000.0, 0.0, 0.0))
    monkeypatch.delenv("SUPEROPT_IGNORE_LOAD")
    pressure = tmp_path / "cpu"
    pressure.write_text(
        f"some avg10={waiting} avg60=21.48 avg300=22.67 total=11778546822\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        encoding="ascii",
    )
    assert is_busy(pressure) == expected
