"""What `superopt.optimize` returns: a model, the report on it, and how it is saved."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from superopt.certificate import Evidence
from superopt.model.load import Model, ModelProto, as_model
from superopt.model.save import copy, save
from superopt.report.optimization import Report

M = TypeVar("M", Model, ModelProto)


@dataclass(frozen=True, eq=False)
class Optimized(Generic[M]):
    """A model and the report on it.

    `session_entries` are configuration entries with which ONNX Runtime's sessions of it should be made, where that was asked
    for: the model was measured in such sessions. `source` is the file that already holds exactly this model, if one does;
    `external` whether the model that was given kept tensors in other files. `evidence` is what its certificate is made of.
    """

    model: M
    report: Report
    evidence: Evidence
    source: Path | None = None
    external: bool = False

    @property
    def session_entries(self) -> dict[str, str]:
        """For `onnxruntime.SessionOptions.add_session_config_entry`; empty where nothing beats the defaults."""
        return dict(self.report.tuning.entries) if self.report.tuning is not None else {}

    @functools.cached_property
    def certificate(self) -> str:
        """What was done, step by step, as a JSON object with which `superopt verify` checks the model; it is of the model as it
        is when this is first asked for.
        """
        return self.evidence.certificate(as_model(self.model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """The file at `path` holds the model; tensors that are too large for it, or were external, in `<file name>.data`.

        Raises:
            TargetError: it cannot be written; files that were there are as they were.
        """
        if self.source is not None:
            copy(self.source, path)
        else:
            save(as_model(self.model), path, external=self.external)
