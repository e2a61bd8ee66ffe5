"""What was found of models is kept beside the times, and not looked for again in models of the same bytes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

from superopt.active import active_time
from superopt.model.cache import Cache, Json
from superopt.model.stored import Loadable, identity


def once(cache: Path, about: Sequence[Json], models: Sequence[Loadable], find: Callable[[], Json]) -> tuple[Json, float]:
    """What `find` says of the models, and the seconds of `active_time` that this took; or had taken, where the cache has what
    the same code said of the same models. `about` names what is looked for, and all that it depends on but for the models.
    """

    def found() -> Json:
        start = active_time()
        return [find(), active_time() - start]

    with closing(Cache(cache)) as known:
        record, seconds = known.kept([*about, code_version(), *map(identity, models)], found)
        return record, seconds


@functools.cache
def code_version() -> str:
    """A digest of the code that loads, runs, checks and compares models."""
    return digest_of_files(Path(__file__).parent.glob("*.py"))


def digest_of_files(paths: Iterable[Path]) -> str:
    """A digest of what the files hold, in whatever order they are given."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()
