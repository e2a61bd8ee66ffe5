"""What `superopt.optimize` returns: a model, the report on it, and how it is saved."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from superopt.certificate import Evidence
from superopt.model.embedded import with_settings
from superopt.model.load import Loaded, Model, ModelProto, as_model, as_proto
from superopt.model.save import copy, save
from superopt.model.settings import Settings
from superopt.report.optimization import Report

M = TypeVar("M", Model, ModelProto)


@dataclass(frozen=True, eq=False)
class Optimized(Generic[M]):
    """A model and the report on it.

    `session_entries`, `session_options` and `provider_options` are what ONNX Runtime's sessions of it should be made with,
    where that was asked for: it was measured in such sessions. `source` is the file that already holds exactly this model, if
    one does; `external` whether the model that was given kept tensors in other files. `evidence` is what its certificate is
    made of.
    """

    model: M
    report: Report
    evidence: Evidence
    source: Path | None = None
    external: bool = False

    @property
    def session_entries(self) -> dict[str, str]:
        """For `onnxruntime.SessionOptions.add_session_config_entry`; empty where nothing beats the defaults."""
        return dict(_told(self.report).entries)

    @property
    def session_options(self) -> dict[str, int]:
        """By attribute of `onnxruntime.SessionOptions`, levels by their numbers; empty where the defaults are best."""
        return dict(_told(self.report).options)

    @property
    def provider_options(self) -> dict[str, str]:
        """For the CUDA provider; empty where the defaults are best."""
        return dict(_told(self.report).provider_options)

    @functools.cached_property
    def certificate(self) -> str:
        """What was done, step by step, as a JSON object with which `superopt verify` checks the model; it is of the model as it
        is when this is first asked for.
        """
        return self.evidence.certificate(as_model(self.model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to `path`; tensors that are too large for it, or were external, go into `<stem>-<digest>.data`.

        To a reader, both files change in one step (docs/files.md).

        Raises:
            TargetError: it cannot be written; files that were there are as they were.
        """
        if self.source is not None:
            copy(self.source, path)
        else:
            save(as_model(self.model), path, external=self.external)


def result(
    given: object, loaded: Loaded, candidate: Model, report: Report, evidence: Evidence, *, embed: bool
) -> Optimized[Model] | Optimized[ModelProto]:
    """The candidate where the report accepts it, and else what was given; a message for a message.

    With `embed`, what sessions should be made with is in its metadata.

    Raises:
        InvalidModelError: the model's own settings of sessions are not what ONNX Runtime reads.
    """
    kept = candidate if report.accepted else loaded.model
    settled = with_settings(kept, _told(report), report.environment.threads) if embed else kept
    changed = settled is not loaded.model
    if isinstance(given, ModelProto):
        return Optimized(as_proto(settled) if changed else given, report, evidence, external=loaded.external)
    unchanged = None if changed or loaded.external else loaded.path
    return Optimized(settled, report, evidence, unchanged, loaded.external)


def _told(report: Report) -> Settings:
    """What tuning found that sessions should be told."""
    found = report.tuning
    return Settings() if found is None else Settings(found.entries, found.options, found.provider_options)
