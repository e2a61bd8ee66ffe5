"""A cache of results that are computed from models, so that models with the same bytes are not searched again."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

from superopt import policy
from superopt.budget import active_time
from superopt.protobuf.stored import Loadable, model_digest
from superopt.runtime.cache import Cache, Json

RUNNING = ("model", "protobuf", "runtime")
"""The packages on whose code cached results depend."""


def cached_result(
    cache: Path, about: Sequence[Json], models: Sequence[Loadable], find: Callable[[], Json]
) -> tuple[Json, float]:
    """Return the result of `find` for the models, and the seconds of `active_time` that it took, from the cache if possible.

    Cached results are valid for the same code and the same models. `about` identifies the result, and lists everything except
    the models on which the result depends.
    """

    def found() -> Json:
        start = active_time()
        return [find(), active_time() - start]

    with closing(Cache(cache)) as known:
        record, seconds = known.kept([*about, runtime_code_version(), *map(model_digest, models)], found)
        return record, seconds


@functools.cache
def runtime_code_version() -> str:
    """Return a digest of the code that loads, runs, checks and compares models, and of the policy."""
    return digest_of_packages(RUNNING)


def digest_of_packages(names: Iterable[str]) -> str:
    """Return a digest of the policy and of the code of these packages of superopt."""
    package = Path(__file__).resolve().parents[1]
    return digest_of_files(path for name in names for path in package.glob(f"{name}/*.py"))


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return a digest of the policy and of the contents of files. The order of the paths does not matter."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted({*paths, Path(policy.__file__).resolve()}):
        digest.update(path.read_bytes())
    return digest.hexdigest()
