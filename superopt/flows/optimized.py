"""The result of `superopt.optimize`: a model with its report and its certificate."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from superopt.files import require_writable, write_bytes_atomically, write_text_atomically
from superopt.flows.certificate import Evidence
from superopt.flows.report_fields import version_of
from superopt.kernels.library import LibrarySource
from superopt.model.load import ExportedProgram, Loaded, Model, ModelProto, as_model, as_proto
from superopt.model.provenance import Provenance, with_provenance
from superopt.model.save import copy, save
from superopt.model.session_metadata import with_settings
from superopt.protobuf.kernels import library_files
from superopt.report.optimization import KernelUse, Report
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.settings import Settings

AnyModel: TypeAlias = "Model | ModelProto | bytes | ExportedProgram"
InMemory = TypeVar("InMemory", ModelProto, bytes, ExportedProgram)
M_co = TypeVar("M_co", covariant=True, bound=Model | ModelProto | bytes | ExportedProgram)


@dataclass(frozen=True, eq=False)
class KernelLibrary:
    """A library of kernels for an optimized model.

    Attributes:
        source: The C source.
        content: The bytes of the compiled library.
        use: The report's entry about the library.
    """

    source: str
    content: bytes
    use: KernelUse

    @property
    def described(self) -> dict[str, str]:
        """The description of the library and its source in a certificate (`Certificate.kernels`)."""
        return {"library": sha256(self.content).hexdigest(), **LibrarySource.of(self.source).described}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the library to the folder of the model at `path`, and write the C source of the library to the same folder.

        Raises:
            TargetError: A file cannot be written.
        """
        file, text = library_files(path)
        write_text_atomically(self.source, text)
        write_bytes_atomically(self.content, file)


@dataclass(frozen=True, eq=False)
class Optimized(Generic[M_co]):
    """The result of an optimization: the optimized model, or the original if no better model was found, and the report.

    If tuning was requested, the model was measured in ONNX Runtime sessions with the settings `session_entries`,
    `session_options` and `provider_options`.

    Attributes:
        model: The model.
        report: The report of the optimization.
        evidence: The facts about the optimization that go into the certificate.
        source: A file that contains exactly this model, if there is such a file.
        external: Whether the given model had tensors in external data files.
        inputs: The source of the inputs on which the models were measured.
        library: The library of kernels, or None if the model has no kernels.
    """

    model: M_co
    report: Report
    evidence: Evidence
    source: Path | None = None
    external: bool = False
    inputs: InputSource = DRAWN
    library: KernelLibrary | None = None

    def __repr__(self) -> str:
        """Describe the result in one line, without the model."""
        return f"<Optimized {self.report.model}: {self.report.reason}>"

    @property
    def session_entries(self) -> dict[str, str]:
        """Entries for `onnxruntime.SessionOptions.add_session_config_entry`, or an empty mapping if the defaults are best."""
        return dict(optimized_session_settings(self.report).entries)

    @property
    def session_options(self) -> dict[str, int]:
        """Attributes of `onnxruntime.SessionOptions`, with levels as numbers, or an empty mapping if the defaults are best."""
        return dict(optimized_session_settings(self.report).options)

    @property
    def provider_options(self) -> dict[str, str]:
        """Options of the CUDA execution provider, or an empty mapping if the defaults are best."""
        return dict(optimized_session_settings(self.report).provider_options)

    @functools.cached_property
    def certificate(self) -> str:
        """The rewrite steps of the optimization as a JSON object. `superopt verify` checks the model against the certificate.

        The certificate describes the model at the time of the first access to this property.
        """
        return self.evidence.certificate(as_model(self.model), self.library.described if self.library is not None else None)

    def html(self) -> str:
        """Return a page about the optimization: the gain, the checks, the rewritten parts as graphs, and their rules.

        The page is one HTML document that needs no network. On a CPU, both models are run a few times for the page, to show the
        time of each operator.
        """
        from superopt.flows.report_page import page_content
        from superopt.report.html.rendering import page_html

        return page_html(page_content(self))

    def svg(self) -> str:
        """Return one picture of the result as an SVG document: the gain, and the largest rewritten part before and after."""
        from superopt.flows.report_page import page_content
        from superopt.report.html.rendering import card_svg

        return card_svg(page_content(self, profiled=False))

    def _repr_html_(self) -> str:
        """Return the page about the optimization as HTML in a frame, for notebooks. The models are not run for this page."""
        from superopt.flows.report_page import page_content
        from superopt.report.html.rendering import framed_html

        return framed_html(page_content(self, profiled=False))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to `path`.

        Tensors go into the data file `<stem>-<digest>.data` beside `path` if some tensors were external, or if all tensors
        together are too large for one file. A library of kernels goes into `<stem>.kernels.so`, and its source into
        `<stem>.kernels.c` (docs/kernels.md). A program that reads the files finds either the old model with its data or the new
        model with its data (docs/files.md).

        Raises:
            TargetError: A file cannot be written. If a path is not writable, existing files are not changed.
        """
        if self.library is not None:
            for file in library_files(path):
                require_writable(file)
        if self.source is not None:
            copy(self.source, path)
        else:
            save(as_model(self.model), path, external=self.external)
        if self.library is not None:
            self.library.save(path)


def result(
    given: object,
    loaded: Loaded,
    model: Model,
    report: Report,
    evidence: Evidence,
    inputs: InputSource,
    *,
    embed: bool,
    metadata: bool = False,
    library: KernelLibrary | None = None,
) -> Optimized[Model | ModelProto | bytes | ExportedProgram]:
    """Return the result of an optimization. Its model has the type of `given`, which is the model that the caller passed.

    If `given` is a path or an open file, the model is an `onnx_ir.Model`. If `embed` is True, the session settings from tuning
    are written to the model's metadata. If `metadata` is True and the model was rewritten, its provenance is written to the
    metadata too.

    `inputs` is the source of the inputs on which the models were measured.

    Raises:
        InvalidModelError: ONNX Runtime cannot read the session settings in the model's metadata.
    """
    if evidence.rewritten:
        model = with_provenance(model, provenance_of(report, evidence) if metadata else None)
    settled = with_settings(model, optimized_session_settings(report), report.environment.threads) if embed else model
    converted, unchanged = model_in_given_form(given, loaded, settled)
    return Optimized(converted, report, evidence, unchanged, loaded.external, inputs, library)


def model_in_given_form(
    given: object, loaded: Loaded, model: Model
) -> tuple[Model | ModelProto | bytes | ExportedProgram, Path | None]:
    """Return the model in the type of `given`, and a file that contains exactly this model.

    `given` is the model that the caller passed. If `given` is a path or an open file, the returned model is an `onnx_ir.Model`.
    The returned file is None if no file contains exactly this model.
    """
    changed = model is not loaded.model
    if isinstance(given, ModelProto | bytes):
        proto = as_proto(model) if changed else given
        return (proto.SerializeToString() if isinstance(given, bytes) and isinstance(proto, ModelProto) else proto), None
    if isinstance(given, ExportedProgram):
        return (type(given)(model, given.exported_program) if changed else given), None
    return model, None if changed or loaded.external else loaded.path


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
    """Return the session settings that tuning found. If no tuning was requested, return empty settings."""
    tuning = report.tuning
    return Settings() if tuning is None else Settings(tuning.entries, tuning.options, tuning.provider_options)
