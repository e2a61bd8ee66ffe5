"""The time cache: measured times that are kept between runs, in one SQLite file that several processes may use at once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias, TypeVar

from superopt.budget import is_stop_requested
from superopt.errors import CacheError, first_line
from superopt.files import cache_folder, scratch_folder
from superopt.policy import PROCESS
from superopt.runtime.hardware import is_busy

T = TypeVar("T")

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value that can be written as JSON, or that was read from JSON. Tuples are written as lists."""

TABLE = "CREATE TABLE IF NOT EXISTS measured (key TEXT PRIMARY KEY, description TEXT, value TEXT, stored REAL)"
INSERT = "INSERT OR IGNORE INTO measured VALUES (?, ?, ?, ?)"
_locked: dict[Path, float] = {}
"""For each cache file, the monotonic time at which the file was last found to be locked."""


def default_path() -> Path:
    """Return the default path of the time cache: in the user's cache folder, as defined by the XDG base directories."""
    return cache_folder() / "times.sqlite"


class Cache:
    """A mapping from JSON keys to JSON values, in memory and in the SQLite file at `path`.

    An entry is found by the digest of its key. Entries in the file never change. If several processes store a value for one
    key, the first value stays. If the file is not a database, or if the folder cannot be written, the cache exists only in
    memory, and `error` contains the reason. While the machine is busy, new values are stored only in memory, because times that
    are measured on a busy machine would mislead later searches. After a request to stop the search, new values are also stored
    only in memory, because their computation may be incomplete. `was_busy` is True if a value has been stored while the machine
    was busy.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._known: dict[str, Json] = {}
        self._unsaved: dict[str, Json] = {}
        self._file: sqlite3.Connection | None = None
        self.error = ""
        self.was_busy = False
        if path is not None:
            try:
                self._file = _connected(path)
            except (OSError, sqlite3.Error) as error:
                self.error = f"{path}: {error}"

    def get(self, key: Sequence[Json]) -> Json:
        """Return the value stored for the key, or None."""
        digest = json_digest(key)
        if digest not in self._known and self._file is not None:
            with contextlib.suppress(sqlite3.Error, ValueError, TypeError):
                row = self._file.execute("SELECT value FROM measured WHERE key = ?", (digest,)).fetchone()
                if row is not None:
                    self._known[digest] = json.loads(row[0])
        return self._known.get(digest)

    def put(self, key: Sequence[Json], value: Json) -> None:
        """Store the value for the key.

        The value is only in memory if the file cannot be written, the machine is busy, or the search was asked to stop. In all
        other cases, the value is on disk when this method returns.
        """
        digest = json_digest(key)
        self._known[digest] = value
        busy = is_busy()
        self.was_busy |= busy
        if self._file is None or busy or is_stop_requested():
            self._unsaved.setdefault(text_of(key), value)
            return
        try:
            self._file.execute(INSERT, (digest, text_of(key), text_of(value), time.time()))
        except sqlite3.Error as error:
            self._unsaved.setdefault(text_of(key), value)
            self.error = str(error)

    def kept(self, key: Sequence[Json], find: Callable[[], Json]) -> Json:
        """Return the value stored for the key. If no value is stored, store and return the result of `find`."""
        known = self.get(key)
        if known is None:
            known = find()
            self.put(key, known)
        return known

    def entries(self, kind: str) -> Iterator[tuple[Sequence[Json], Json]]:
        """Yield each key whose first element is `kind`, with its value. The entries are sorted by the JSON text of the key."""
        begins = text_of([kind])[:-1] + ","
        found = {key: value for key, value in self._unsaved.items() if key.startswith(begins)}
        if self._file is not None:
            rows = "SELECT description, value FROM measured WHERE substr(description, 1, ?) = ?"
            with contextlib.suppress(sqlite3.Error):
                stored = self._file.execute(rows, (len(begins), begins)).fetchall()
                found |= {key: json.loads(value) for key, value in stored}
        for key in sorted(found):
            yield json_list(json.loads(key)), found[key]

    def close(self) -> None:
        """Close the file. Values that were read or stored stay in memory."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class Part:
    """A view of a cache that appends fixed settings to every key."""

    cache: Cache
    settings: Sequence[Json]

    def get(self, key: Sequence[Json]) -> Json:
        """Return the value that is stored for the key and the settings, or None."""
        return self.cache.get([*key, *self.settings])

    def put(self, key: Sequence[Json], value: Json) -> None:
        """Store the value for the key and the settings, as `Cache.put` does."""
        self.cache.put([*key, *self.settings], value)


@dataclass(frozen=True)
class CacheContent:
    """The content of a time cache.

    Attributes:
        path: The file.
        bytes: The total size of the file and its journal in bytes.
        counts: The number of entries of each kind, the most frequent kind first.
        first: The time at which the oldest entry was stored, in seconds since 1970, or None if no entry has a time.
        last: The time at which the newest entry was stored, or None.
    """

    path: Path
    bytes: int
    counts: Mapping[str, int]
    first: float | None
    last: float | None


@contextlib.contextmanager
def replacing_entries(path: Path, *, keep: bool) -> Iterator[Path]:
    """Yield the path of an empty cache.

    If `keep` is True, the new entries of this cache are added to the cache at `path` when the context ends. An added entry
    replaces an entry with the same key. If the context raises an exception, no entry is added.
    """
    with scratch_folder() as folder:
        empty = folder / path.name
        yield empty
        if keep and empty.is_file():
            with contextlib.suppress(OSError, sqlite3.Error), contextlib.closing(_connected(path)) as connection:
                connection.execute("ATTACH ? AS fresh", (str(empty),))
                connection.execute("INSERT OR REPLACE INTO measured SELECT * FROM fresh.measured")


def cache_content(path: Path) -> CacheContent:
    """Return the content of the cache at `path`. A missing file counts as an empty cache.

    Raises:
        CacheError: The file is not a time cache, or cannot be read.
    """
    files = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]
    with _existing_cache(path) as connection:
        counts: dict[str, int] = {}
        times: list[float] = []
        if connection is not None:
            for description, stored in connection.execute("SELECT description, stored FROM measured"):
                kind = str(json_list(json.loads(description))[0])
                counts[kind] = counts.get(kind, 0) + 1
                times += [] if stored is None else [datetime.fromtimestamp(stored, tz=UTC).timestamp()]
        size = sum(file.stat().st_size for file in files if file.is_file())
    ordered = dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
    return CacheContent(path, size, ordered, min(times, default=None), max(times, default=None))


def clear_cache(path: Path) -> int:
    """Remove all entries of the cache at `path`, and return the count of the removed entries.

    Raises:
        CacheError: The file is not a time cache, or cannot be written.
    """
    with _existing_cache(path) as connection:
        if connection is None:
            return 0
        removed = connection.execute("DELETE FROM measured").rowcount
        connection.execute("VACUUM")
        return removed


@contextlib.contextmanager
def _existing_cache(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Yield a connection to the cache at `path`. If the file does not exist, yield None.

    Raises:
        CacheError: The file is not a time cache, or an operation inside the context fails.
    """
    try:
        if not path.exists():
            yield None
            return
        address = f"{path.resolve().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            if not [*connection.execute("PRAGMA table_info(measured)")]:
                raise CacheError(f"{path}: not a time cache")
            _prepare(connection)
            yield connection
    except (OSError, OverflowError, TypeError, ValueError, sqlite3.Error) as error:
        raise CacheError(f"{path}: not a usable time cache ({first_line(error)})") from error


def text_of(value: Json) -> str:
    """Return the value as JSON without spaces. Equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def json_digest(key: Json) -> str:
    """Return a digest of a JSON value."""
    return hashlib.blake2b(text_of(key).encode(), digest_size=16).hexdigest()


def _of_kind(value: Json, kind: type[T] | tuple[type[T], ...], name: str) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not {name}")
    return value


def json_list(value: Json) -> Sequence[Json]:
    """Return the JSON value (such as a cached value) if it is a list.

    Raises:
        TypeError: the value is not a list.
    """
    return _of_kind(value, (list, tuple), "a list")


def json_object(value: Json) -> Mapping[str, Json]:
    """Return the JSON value (such as a cached value) if it is an object.

    Raises:
        TypeError: the value is not an object.
    """
    return _of_kind(value, dict, "an object")


def json_number(value: Json) -> float:
    """Return the JSON value (such as a cached value) if it is a number.

    Raises:
        TypeError: the value is not a number.
    """
    return _of_kind(value, (int, float), "a number")


def json_integer(value: Json) -> int:
    """Return the JSON value (such as a cached value) if it is an integer.

    Raises:
        TypeError: the value is not an integer.
    """
    return _of_kind(value, int, "an integer")


def json_text(value: Json) -> str:
    """Return the JSON value (such as a cached value) if it is a text.

    Raises:
        TypeError: the value is not a text.
    """
    return _of_kind(value, str, "a text")


def _connected(path: Path) -> sqlite3.Connection:
    """Open the cache file at `path`. If a recent attempt failed because of a lock, raise an error without a new attempt.

    Raises:
        sqlite3.Error, OSError: the file cannot be opened, or another process has locked the file.
    """
    if time.monotonic() < _locked.get(path, -math.inf) + PROCESS.cache_retry_seconds:
        raise sqlite3.OperationalError("database is locked")
    try:
        return _opened(path)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            _locked[path] = time.monotonic()
        raise


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=PROCESS.cache_lock_seconds, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        _prepare(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the table, or add the column that files of earlier versions lack."""
    connection.execute(TABLE)
    if not any(column[1] == "stored" for column in connection.execute("PRAGMA table_info(measured)")):
        with contextlib.suppress(sqlite3.OperationalError):  # another process has just added the column
            connection.execute("ALTER TABLE measured ADD COLUMN stored REAL")
