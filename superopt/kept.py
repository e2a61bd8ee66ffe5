"""Models that a whole search leaves as they are: what it said of them is stored beside the times, and not found out again."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from superopt.model.cache import Cache, Json
from superopt.model.once import digest_of_files
from superopt.model.stored import Loadable, identity
from superopt.op import specs_folder, substitutions_folder
from superopt.report.optimization import AppliedRule, Arithmetic, Environment, Report, Rounding, SegmentGain, Timing


@dataclass(frozen=True)
class Kept:
    """A model of which it may be known that it is kept; `about` is all that this depends on but for it and for the code."""

    cache: Path
    about: Sequence[Json]
    model: Loadable

    def before(self) -> Report | None:
        """What was reported when the same code kept the same model, if it did."""
        with closing(Cache(self.cache)) as known:
            record = known.get(self._key)
        return None if record is None else _report(record)

    def remember(self, report: Report) -> None:
        """From now on, it is known what to say of the model."""
        with closing(Cache(self.cache)) as known:
            known.put(self._key, asdict(report))

    @functools.cached_property
    def _key(self) -> Sequence[Json]:
        here = Path(__file__).parent
        files = [*here.rglob("*.py"), *specs_folder().glob("*.py"), *substitutions_folder().rglob("*.*")]
        return ["kept", *self.about, digest_of_files(files), identity(self.model)]


def _report(record: Mapping[str, Any]) -> Report:
    """The report that the record is of; it has neither a prediction nor tuned sessions."""
    return Report(
        **{
            **record,
            "rules": tuple(AppliedRule(**rule) for rule in record["rules"]),
            "segments": tuple(SegmentGain(**_with_tuples(segment)) for segment in record["segments"]),
            "timing": Timing(**record["timing"]) if record["timing"] else None,
            "rounding": Rounding(**_with_tuples(record["rounding"])) if record["rounding"] else None,
            "arithmetic": Arithmetic(**_with_tuples(record["arithmetic"])),
            "environment": Environment(**record["environment"]),
            "assumptions": tuple(record["assumptions"]),
            "shapes": {shape: Timing(**timing) for shape, timing in record["shapes"].items()},
        }
    )


def _with_tuples(record: Mapping[str, Any]) -> dict[str, Any]:
    """JSON's lists as the tuples that they were."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
