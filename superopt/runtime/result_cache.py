"""A cache of results that are computed from models, such as searches and checks. Models are identified by their bytes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from superopt import policy
from superopt.budget import active_time
from superopt.errors import CacheError, first_line
from superopt.protobuf.stored import Loadable, model_digest
from superopt.runtime.cache import Cache, Json, json_list, json_number, json_object

T = TypeVar("T")

RUNNING = ("model", "protobuf", "runtime")
"""The packages on whose code cached results depend."""


def cached_result(
    cache: Path, about: Sequence[Json], models: Sequence[Loadable], find: Callable[[], Json]
) -> tuple[Json, float]:
    """Return the result and the active time of `find` in seconds (see `active_time`), from the cache if possible.

    A cached result is valid for the same code, the same `about` and the same models.

    Args:
        cache: the file of the cache.
        about: a name for the kind of result, and all settings on which the result depends.
        models: the models on which the result depends.
        find: a function that computes the result if the cache does not contain it.

    Raises:
        CacheError: the cached result is damaged.
    """

    def found() -> Json:
        start = active_time()
        return [find(), active_time() - start]

    with closing(Cache(cache)) as known:
        kept = known.kept([*about, runtime_code_version(), *map(model_digest, models)], found)
    try:
        record, seconds = json_list(kept)
        return record, json_number(seconds)
    except (TypeError, ValueError) as error:
        raise CacheError(
            f"{cache}: an entry is damaged ({first_line(error)}); `superopt cache clear` removes the cache"
        ) from error


def from_fields(kind: Callable[..., T], record: Json) -> T:
    """Return the dataclass instance of type `kind` whose fields are in a cached result. Lists become tuples."""
    fields = json_object(record)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


@functools.cache
def runtime_code_version() -> str:
    """Return a digest of the code that loads, runs, checks and compares models, and of `superopt/policy.py`."""
    return digest_of_packages(RUNNING)


def digest_of_packages(names: Iterable[str]) -> str:
    """Return a digest of `superopt/policy.py` and of the code of these packages of superopt."""
    package = Path(__file__).resolve().parents[1]
    return cache_code_digest(path for name in names for path in package.glob(f"{name}/*.py"))


def cache_code_digest(paths: Iterable[Path]) -> str:
    """Return a digest of `superopt/policy.py` and of the contents of the files. The order of the paths does not matter."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted({*paths, Path(policy.__file__).resolve()}):
        digest.update(path.read_bytes())
    return digest.hexdigest()
