"""The result of `superopt.optimize`: a model, its report and its certificate, and saving the model."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from superopt.flows.certificate import Evidence
from superopt.model.load import Loaded, Model, ModelProto, as_model, as_proto
from superopt.model.save import copy, save
from superopt.model.session_metadata import with_settings
from superopt.report.optimization import Report
from superopt.runtime.settings import Settings

M = TypeVar("M", Model, ModelProto)


@dataclass(frozen=True, eq=False)
class Optimized(Generic[M]):
    """An optimized model and its report.

    Attributes:
        model: The model.
        report: The report of the optimization.
        evidence: The evidence that the certificate is made of.
        source: A file that already holds exactly this model, if there is one.
        external: Whether the given model kept tensors in other files.

    `session_entries`, `session_options` and `provider_options` are the settings for ONNX Runtime sessions of the model, if
    tuning was requested: the model was measured in such sessions.
    """

    model: M
    report: Report
    evidence: Evidence
    source: Path | None = None
    external: bool = False

    @property
    def session_entries(self) -> dict[str, str]:
        """Entries for `onnxruntime.SessionOptions.add_session_config_entry`; empty if nothing beats the defaults."""
        return dict(session_settings(self.report).entries)

    @property
    def session_options(self) -> dict[str, int]:
        """Attributes of `onnxruntime.SessionOptions`, levels as numbers; empty if the defaults are best."""
        return dict(session_settings(self.report).options)

    @property
    def provider_options(self) -> dict[str, str]:
        """Options of the CUDA provider; empty if the defaults are best."""
        return dict(session_settings(self.report).provider_options)

    @functools.cached_property
    def certificate(self) -> str:
        """The steps of the optimization as a JSON object, with which `superopt verify` checks the model.

        The certificate describes the model at the time of the first access.
        """
        return self.evidence.certificate(as_model(self.model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to `path`; tensors that were external or are too large for `path` go into `<stem>-<digest>.data`.

        For a reader, both files change in one step (docs/files.md).

        Raises:
            TargetError: The model cannot be written; existing files are unchanged.
        """
        if self.source is not None:
            copy(self.source, path)
        else:
            save(as_model(self.model), path, external=self.external)


def result(
    given: object, loaded: Loaded, model: Model, report: Report, evidence: Evidence, *, embed: bool
) -> Optimized[Model] | Optimized[ModelProto]:
    """Return the model to return for the `given` one: a ModelProto for a ModelProto.

    With `embed`, the metadata holds the settings for sessions.

    Raises:
        InvalidModelError: ONNX Runtime cannot read the session settings in the model's metadata.
    """
    settled = with_settings(model, session_settings(report), report.environment.threads) if embed else model
    changed = settled is not loaded.model
    if isinstance(given, ModelProto):
        return Optimized(as_proto(settled) if changed else given, report, evidence, external=loaded.external)
    unchanged = None if changed or loaded.external else loaded.path
    return Optimized(settled, report, evidence, unchanged, loaded.external)


def session_settings(report: Report) -> Settings:
    """Return the session settings that tuning found."""
    tuning = report.tuning
    return Settings() if tuning is None else Settings(tuning.entries, tuning.options, tuning.provider_options)
