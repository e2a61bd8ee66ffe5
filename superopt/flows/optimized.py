"""The result of `superopt.optimize`: a model with its report and its certificate."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from superopt.flows.certificate import Evidence
from superopt.flows.report_fields import version_of
from superopt.model.load import ExportedProgram, Loaded, Model, ModelProto, as_model, as_proto
from superopt.model.provenance import Provenance, with_provenance
from superopt.model.save import copy, save
from superopt.model.session_metadata import with_settings
from superopt.report.optimization import Report
from superopt.runtime.settings import Settings

M_co = TypeVar("M_co", covariant=True, bound=Model | ModelProto | bytes | ExportedProgram)


@dataclass(frozen=True, eq=False)
class Optimized(Generic[M_co]):
    """The result of an optimization: the optimized model, or the original if no better model was found, and the report.

    If tuning was requested, the model was measured in ONNX Runtime sessions with the settings `session_entries`,
    `session_options` and `provider_options`.

    Attributes:
        model: The model.
        report: The report of the optimization.
        evidence: The facts about the optimization from which the certificate is made.
        source: A file that contains exactly this model, if there is such a file.
        external: Whether the given model had tensors in external data files.
    """

    model: M_co
    report: Report
    evidence: Evidence
    source: Path | None = None
    external: bool = False

    def __repr__(self) -> str:
        """Describe the result in one line, without the model."""
        return f"<Optimized {self.report.model}: {self.report.reason}>"

    @property
    def session_entries(self) -> dict[str, str]:
        """Entries for `onnxruntime.SessionOptions.add_session_config_entry`. They are empty if the defaults are best."""
        return dict(optimized_session_settings(self.report).entries)

    @property
    def session_options(self) -> dict[str, int]:
        """Attributes of `onnxruntime.SessionOptions`, with levels as numbers. They are empty if the defaults are best."""
        return dict(optimized_session_settings(self.report).options)

    @property
    def provider_options(self) -> dict[str, str]:
        """Options of the CUDA execution provider. They are empty if the defaults are best."""
        return dict(optimized_session_settings(self.report).provider_options)

    @functools.cached_property
    def certificate(self) -> str:
        """The rewrite steps of the optimization as a JSON object. `superopt verify` checks the model against the certificate.

        The certificate describes the model at the time of the first access to this property.
        """
        return self.evidence.certificate(as_model(self.model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to `path`.

        Tensors go into the data file `<stem>-<digest>.data` beside `path` if some tensors were external, or if all tensors are
        too large for one file. Readers see both files change in one step (docs/files.md).

        Raises:
            TargetError: The model cannot be written. Existing files are not changed.
        """
        if self.source is not None:
            copy(self.source, path)
        else:
            save(as_model(self.model), path, external=self.external)


def result(
    given: object, loaded: Loaded, model: Model, report: Report, evidence: Evidence, *, embed: bool, metadata: bool = False
) -> Optimized[Model | ModelProto | bytes | ExportedProgram]:
    """Return the result of an optimization. Its model has the type of the model `given` by the caller.

    The model is an `onnx_ir.Model` if `given` is a path or an open file. If `embed` is True, the session settings that tuning
    found are written to the model's metadata. If `metadata` is True and the model was rewritten, its provenance is written to
    the metadata too.

    Raises:
        InvalidModelError: ONNX Runtime cannot read the session settings in the model's metadata.
    """
    if evidence.rewritten:
        model = with_provenance(model, provenance_of(report, evidence) if metadata else None)
    settled = with_settings(model, optimized_session_settings(report), report.environment.threads) if embed else model
    changed = settled is not loaded.model
    if isinstance(given, ModelProto | bytes):
        proto = as_proto(settled) if changed else given
        of_kind = proto.SerializeToString() if isinstance(given, bytes) and isinstance(proto, ModelProto) else proto
        return Optimized(of_kind, report, evidence, external=loaded.external)
    if isinstance(given, ExportedProgram):
        program = type(given)(settled, given.exported_program) if changed else given
        return Optimized(program, report, evidence, external=loaded.external)
    unchanged = None if changed or loaded.external else loaded.path
    return Optimized(settled, report, evidence, unchanged, loaded.external)


def provenance_of(report: Report, evidence: Evidence) -> Provenance:
    """Return the provenance of the rewritten model that the report describes."""
    return Provenance(
        version=version_of("superopt"),
        original=evidence.original_digest,
        mode=report.arithmetic.mode,
        rules=len(report.rules),
        rewrites=sum(rule.times for rule in report.rules),
    )


def optimized_session_settings(report: Report) -> Settings:
    """Return the session settings that tuning found, or empty settings if no tuning was requested."""
    tuning = report.tuning
    return Settings() if tuning is None else Settings(tuning.entries, tuning.options, tuning.provider_options)
