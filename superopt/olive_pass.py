"""superopt as a pass of Olive (the package `olive-ai`), a pipeline that prepares models for deployment.

Olive finds passes in a package configuration. `package_config()` returns a configuration with Olive's own passes and the pass
`Superopt`. The configuration can be passed to `olive.workflows.run`, or be written to the file for `olive run
--package-config`. docs/library.md has an example.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from olive.hardware import AcceleratorSpec
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.package_config import OlivePackageConfig
from olive.passes import Pass
from olive.passes.pass_config import BasePassConfig, PassConfigParam

from superopt.flows.optimize import optimize

PROVIDERS = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda"}
"""The execution providers of ONNX Runtime for which superopt optimizes, each with superopt's name for the provider."""
OPTIONS: dict[str, tuple[type, str]] = {
    "budget": (str, "The time for the search, such as 60s."),
    "seed": (int, "The seed of the search."),
    "threads": (int, "The number of threads of the sessions that are timed."),
    "fp": (str, "The floating-point mode: precise, relaxed or fast."),
    "shapes": (dict, "Sizes of dynamic dimensions, by name."),
    "fix": (dict, "Values of inputs and sizes of dimensions that never change, by name."),
    "allow_contrib": (bool, "Whether the result may have operators of com.microsoft."),
    "opset": (int, "The opset of the result."),
}
"""The options of `superopt.optimize` that a configuration of Olive may set, each with its type and its description."""


class SuperoptPass(Pass):  # type: ignore[misc]
    """A pass that replaces an ONNX model by an equivalent model that is faster in a measured comparison."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:  # noqa: ARG003
        return {
            name: PassConfigParam(type_=kind, default_value=None, description=description)
            for name, (kind, description) in OPTIONS.items()
        }

    def _run_for_config(self, model: ONNXModelHandler, config: BasePassConfig, output_model_path: str) -> ONNXModelHandler:
        options: dict[str, Any] = {n: getattr(config, n) for n in OPTIONS if getattr(config, n) is not None}
        target = resolve_onnx_path(output_model_path, Path(model.model_path).name)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        provider = PROVIDERS[str(self.accelerator_spec.execution_provider)]
        optimize(model.model_path, provider=provider, **options).save(target)
        return ONNXModelHandler(target)


def package_config() -> dict[str, Any]:
    """Return Olive's package configuration with the additional pass `Superopt`, for `olive.workflows.run`."""
    found: dict[str, Any] = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text(encoding="utf-8"))
    found["passes"]["Superopt"] = {
        "module_path": "superopt.olive_pass.SuperoptPass",
        "supported_providers": list(PROVIDERS),
        "supported_accelerators": ["cpu", "gpu"],
        "supported_precisions": ["*"],
    }
    return found
