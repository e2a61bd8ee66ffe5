"""A cache of models that a complete search left unchanged.

The report of an unchanged model is stored in the time cache, so that the search is not repeated.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from superopt.algebra.operators import specs_folder, substitutions_folder
from superopt.model.coverage import OperatorShare, UncoveredNodes
from superopt.protobuf.stored import Loadable, model_digest
from superopt.report.number_texts import date
from superopt.report.optimization import (
    AppliedRule,
    Arithmetic,
    OutputRounding,
    Report,
    Rounding,
    RunEnvironment,
    SegmentGain,
    Timing,
)
from superopt.runtime.cache import Cache, Json, json_list, json_number, json_object
from superopt.runtime.result_cache import cache_code_digest, from_fields


@dataclass(frozen=True)
class UnimprovedModelCache:
    """The cache entry for one model. The entry contains a report if a complete search left the model unchanged.

    Attributes:
        cache: The path of the cache.
        about: All settings on which the result of the search depends. The code and the model are not part of `about`.
        model: The model.
    """

    cache: Path
    about: Sequence[Json]
    model: Loadable

    def before(self) -> Report | None:
        """Return the stored report of an earlier search that left the model unchanged. Return None if there is no report.

        The earlier search must have used the same code and settings.
        """
        with closing(Cache(self.cache)) as known:
            record = known.get(self._key)
        return None if record is None else _report(json_object(record))

    def remember(self, report: Report) -> None:
        """Store the report of a model that the search left unchanged, with the current date."""
        with closing(Cache(self.cache)) as known:
            known.put(self._key, asdict(replace(report, searched=date(time.time()))))

    @functools.cached_property
    def _key(self) -> Sequence[Json]:
        package = Path(__file__).resolve().parents[1]
        files = [*package.rglob("*.py"), *specs_folder().glob("*.py"), *substitutions_folder().rglob("*.*")]
        return ["kept", *self.about, cache_code_digest(files), model_digest(self.model)]


def _report(record: Mapping[str, Json]) -> Report:
    """Return the report that a JSON record describes. Reports with predicted times or with tuning are never stored."""
    return replace(
        from_fields(Report, record),
        rules=tuple(from_fields(AppliedRule, rule) for rule in json_list(record["rules"])),
        segments=tuple(from_fields(SegmentGain, segment) for segment in json_list(record["segments"])),
        uncovered=tuple(from_fields(UncoveredNodes, nodes) for nodes in json_list(record["uncovered"])),
        operators=tuple(from_fields(OperatorShare, share) for share in json_list(record["operators"])),
        progress=tuple((json_number(at), json_number(saved)) for at, saved in map(json_list, json_list(record["progress"]))),
        timing=from_fields(Timing, record["timing"]) if record["timing"] else None,
        one_thread=from_fields(Timing, record["one_thread"]) if record["one_thread"] else None,
        rounding=_rounding(record["rounding"]) if record["rounding"] else None,
        arithmetic=from_fields(Arithmetic, record["arithmetic"]),
        environment=from_fields(RunEnvironment, record["environment"]),
        shapes={shape: from_fields(Timing, timing) for shape, timing in json_object(record["shapes"]).items()},
    )


def _rounding(record: Json) -> Rounding:
    outputs = json_list(json_object(record)["outputs"])
    return replace(from_fields(Rounding, record), outputs=tuple(from_fields(OutputRounding, output) for output in outputs))
