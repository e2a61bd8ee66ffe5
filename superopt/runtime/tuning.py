"""Session tuning: find the session settings with which a model runs fastest on a device.

An ONNX Runtime optimizer that fuses operators does not make a model faster on every device, because the fused kernel may be
slower. The optimized graph of a session shows which optimizers affect a model. Each of these optimizers is switched off in
turn, and the session is compared with the session that has all optimizers. On a CPU, tuning also tries fewer threads, and
sessions without the layout that the processor prefers. With CUDA, tuning also tries the layout NHWC, CUDA graphs, and
faster ways in which cuDNN chooses the algorithms of convolutions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import onnx

from superopt.errors import InvalidModelError, ProviderError
from superopt.files import scratch_folder
from superopt.policy import COMPARISON
from superopt.protobuf.stored import Loadable, parse_model
from superopt.runtime.compare import Comparison, compare_settings
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.session import Array, Bound, Device, Port, Session
from superopt.runtime.settings import CONV_SEARCH, EXTENDED, GRAPH, LEVEL, NHWC, THREADS, Settings, settings, with_choices

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
"""Operators that ONNX Runtime's optimizers introduce, each with the names of the optimizers that introduce the operator."""
LAST_LEVEL = {"NchwcTransformer", "ConvAddActivationFusion"}
"""The optimizers of the highest optimization level. These optimizers do not run in a session with the level `EXTENDED`."""
_LAYOUT = "NchwcTransformer"


@dataclass(frozen=True)
class Tuning:
    """The result of tuning a model's sessions.

    Attributes:
        tried: for each single choice (a setting to try), the comparison of two sessions. One session has this choice, and the
            other session has default settings.
        choices: the best choices for the session (see `settings`). The tuple is empty if the defaults are best.
        comparison: the comparison of a session with all `choices` and a session with default settings, or None if the defaults
            are best.
    """

    tried: Mapping[str, Comparison]
    choices: tuple[str, ...] = ()
    comparison: Comparison | None = None

    @property
    def settings(self) -> Settings:
        """The session settings that correspond to the tuning choices `choices`."""
        return settings(self.choices)


def tune(
    model: Loadable,
    device: Device,
    *,
    seconds: float = COMPARISON.tuning_seconds,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    source: InputSource = DRAWN,
) -> Tuning:
    """Find the session settings with which the model runs fastest on the device.

    Measurement takes about `seconds` seconds. `seed` and `sizes` are as in `random_inputs`. `source` gives the inputs.

    Raises:
        InvalidModelError: ONNX Runtime cannot load or run the model.
        ProviderError: a session fell back to another provider.
    """
    inputs = partial(source.values, seed=seed, sizes=sizes)

    def possible(several: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return [choices for choices in several if _is_possible(model, device, choices, inputs)]

    def compared(several: Sequence[tuple[str, ...]], share: float) -> list[Comparison]:
        others = [(model, with_choices(device, choices)) for choices in several]
        (found,) = compare_settings((model, device), others, at=[sizes], seconds=seconds * share, seed=seed, source=source)
        return found

    convolves = "Conv" in _operators(parse_model(model, external=False))
    names = possible([(name,) for name in tuning_choices(acting_optimizers(model, device), device, convolves=convolves)])
    if not names:
        return Tuning({})
    tried = {name: found for (name,), found in zip(names, compared(names, 0.6), strict=True)}
    helpful = _joined(sorted((name for name in tried if tried[name].faster()), key=lambda name: -tried[name].ratio))
    several = possible([tuple(helpful[:count]) for count in range(1, len(helpful) + 1)])
    found = list(zip(several, compared(several, 0.4), strict=True)) if several else []
    best, comparison = max(found, key=lambda one: one[1].ratio, default=((), None))
    if comparison is None or not comparison.faster():
        return Tuning(tried)
    return Tuning(tried, best, comparison)


def tuning_choices(optimizers: Sequence[str], device: Device, *, convolves: bool = False) -> list[str]:
    """Return the tuning choices to try on the device for a model that the optimizers in `optimizers` affect.

    `convolves` is True if the model contains convolutions.

    A choice is the name of an ONNX Runtime optimizer to switch off, or `option=value` to set an option.
    """
    names = [*optimizers]
    if device.provider == "cpu":
        names += [f"{LEVEL}={EXTENDED}"] if _LAYOUT in optimizers and not device.portable else []
        names += [f"{THREADS}={device.threads >> halved}" for halved in range(1, device.threads.bit_length())]
    if device.provider == "cuda":
        names += [f"{NHWC}=1"] if not device.nhwc else []
        names += [f"{GRAPH}=1"] if not device.cuda_graph else []
        names += [f"{CONV_SEARCH}={way}" for way in ("HEURISTIC", "DEFAULT")] if convolves and not device.conv_search else []
    return names


def _joined(names: Sequence[str]) -> list[str]:
    """Return the tuning choices in `names` that can be combined. `names` is sorted by gain, the largest gain first.

    Only the best value of each option is included. If a choice switches off the highest optimization level, optimizers of this
    level are left out.
    """
    idle = {*(LAST_LEVEL if f"{LEVEL}={EXTENDED}" in names else ())}
    for option in (THREADS, CONV_SEARCH):
        idle |= {*[name for name in names if name.startswith(f"{option}=")][1:]}
    return [name for name in names if name not in idle]


def _is_possible(
    model: Loadable, device: Device, choices: Sequence[str], inputs: Callable[[Sequence[Port]], dict[str, Array]]
) -> bool:
    """Return whether the model runs in a session with these tuning choices, which are session settings to try.

    Choices that set no option of the execution provider count as possible without a test. Some operators do not support the
    layout NHWC. A CUDA graph supports no nodes on the CPU, no sequences and no dynamic dimensions.
    """
    wanted = settings(choices).provider_options
    if not wanted:
        return True
    try:
        session = Session(model, with_choices(device, choices))
        if GRAPH in wanted and any(isinstance(extent, str) for port in session.inputs for extent in port.shape):
            return False
        return isinstance(session.ready(inputs(session.inputs)), Bound)
    except (InvalidModelError, ProviderError):
        return False


def acting_optimizers(model: Loadable, device: Device) -> list[str]:
    """Return the names of ONNX Runtime's optimizers that affect the model.

    An optimizer affects the model if it introduces an operator, and the optimized graph has more nodes of this operator than
    the model.

    Raises:
        InvalidModelError, ProviderError: see `tune`.
    """
    with scratch_folder() as folder:
        saved = folder / "optimized.onnx"
        Session(model, device, saved=saved)
        after = _operators(onnx.load(saved, load_external_data=False))
    more = after - _operators(parse_model(model, external=False))
    return [name for operator, names in LEAVES.items() if more[operator] for name in names]


def _operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)
