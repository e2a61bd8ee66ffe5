"""Session tuning: which of ONNX Runtime's own optimizers make a model slower on a device, so that a session should do without.

An optimizer that fuses operators into one of ONNX Runtime's own is not always faster on every device: the fused kernel may be
the slower one. Those that have an effect on a model are read off the graph that a session makes of it; each is then left out in
turn, measured beside the session that has them all.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from superopt.model.compare import Comparison, compare_settings
from superopt.model.save import parsed
from superopt.model.session import WITHOUT, Device, Loadable, Session

LEAVES: Mapping[str, tuple[str, ...]] = {
    "Attention": ("AttentionFusion",),
    "BiasGelu": ("BiasGeluFusion",),
    "BiasSoftmax": ("BiasSoftmaxFusion",),
    "EmbedLayerNormalization": ("EmbedLayerNormFusion",),
    "FastGelu": ("FastGeluFusion",),
    "FusedConv": ("ConvActivationFusion", "ConvAddActivationFusion"),
    "FusedGemm": ("GemmActivationFusion",),
    "FusedMatMul": ("MatMulScaleFusion", "MatmulTransposeFusion"),
    "Gelu": ("GeluFusionL1", "GeluFusionL2"),
    "Gemm": ("MatMulAddFusion",),
    "LayerNormalization": ("LayerNormFusionL1", "LayerNormFusionL2"),
    "QuickGelu": ("QuickGeluFusion",),
    "ReorderOutput": ("NchwcTransformer",),
    "SimplifiedLayerNormalization": ("SimplifiedLayerNormFusion",),
    "SkipLayerNormalization": ("SkipLayerNormFusion",),
}
"""The operators that ONNX Runtime's optimizers put into a graph, each with the names of those that do."""


@dataclass(frozen=True)
class Tuning:
    """What leaving out optimizers does for a model: `tried` has a comparison with the plain session for each one alone.

    `disabled` are those that a session should do without, and `comparison` measures it beside the plain one; where it should
    have all of them, there are none, and no comparison.
    """

    tried: Mapping[str, Comparison]
    disabled: tuple[str, ...] = ()
    comparison: Comparison | None = None

    @property
    def entries(self) -> dict[str, str]:
        """Session configuration entries, as `onnxruntime.SessionOptions.add_session_config_entry` takes them."""
        return {WITHOUT: ";".join(self.disabled)} if self.disabled else {}


def tune(
    model: Loadable,
    device: Device,
    *,
    seconds: float = 10.0,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    high: Mapping[str, int] | None = None,
) -> Tuning:
    """Which optimizers a session of the model should do without on the device, measured for about `seconds`.

    `sizes` and `high` are as in `random_inputs`.

    Raises:
        InvalidModelError: ONNX Runtime cannot load or run the model.
        ProviderError: a session fell back to another provider.
    """
    names = acting(model, device)
    if not names:
        return Tuning({})

    def compared(choices: Sequence[tuple[str, ...]], share: float) -> list[Comparison]:
        others = [(model, replace(device, without=choice)) for choice in choices]
        (found,) = compare_settings((model, device), others, at=[sizes], seconds=seconds * share, seed=seed, high=high)
        return found

    tried = dict(zip(names, compared([(name,) for name in names], 0.6), strict=True))
    helpful = tuple(sorted((name for name in names if tried[name].faster()), key=lambda name: -tried[name].ratio))
    choices = [helpful[:count] for count in range(1, len(helpful) + 1)]
    found = list(zip(choices, compared(choices, 0.4), strict=True)) if choices else []
    best, comparison = max(found, key=lambda one: one[1].ratio, default=((), None))
    if comparison is None or not comparison.faster():
        return Tuning(tried)
    return Tuning(tried, best, comparison)


def acting(model: Loadable, device: Device) -> list[str]:
    """The optimizers that leave operators in the session's graph which the model has not, or has fewer of.

    Raises:
        InvalidModelError, ProviderError: as `tune`.
    """
    with tempfile.TemporaryDirectory(prefix="superopt-") as folder:
        saved = Path(folder) / "optimized.onnx"
        Session(model, device, saved=saved)
        after = _operators(onnx.load(saved, load_external_data=False))
    more = after - _operators(parsed(model, external=False))
    return [name for operator, names in LEAVES.items() if more[operator] for name in names]


def _operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)
