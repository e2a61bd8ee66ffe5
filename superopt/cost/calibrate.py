"""Calibration of a device's roofline. The device's rates are found within seconds, by timing models of one operator each."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto, TensorProto, helper

from superopt.cost.demand import CONVOLUTION, DEPTHWISE, ELEMENT, FUNCTION, KINDS, PRODUCT, REDUCTION, WINDOW, Demand, demand
from superopt.cost.measure import Clock
from superopt.cost.roofline import Roofline, fit_curve
from superopt.protobuf.nodes import Hollow, hollow_tensor
from superopt.runtime.hardware import cache_sizes
from superopt.runtime.kernel import last_level_cache

OPSET = 17
_SIDES = {
    PRODUCT: (4, 8, 16, 32, 64, 128, 256, 512, 1024),
    CONVOLUTION: (4, 7, 14, 28, 56),
    DEPTHWISE: (4, 7, 14, 28, 56),
    WINDOW: (4, 7, 14, 28, 56),
    FUNCTION: (4, 16, 64, 256, 1024),
    REDUCTION: (4, 16, 64, 256, 1024),
    ELEMENT: (4, 16, 64, 256, 1024, 2048, 4096),
}
"""For each kind of operation, the side lengths of the operands, which are square matrices or images with 64 channels."""
_CHANNELS = 64
_UNBOUNDED = 1 << 62
"""The cache size in bytes that is assumed for a GPU.

The size exceeds the weights of any model. So on a GPU, nodes are never timed cold (with weights in no cache).
"""


def calibrate_roofline(clock: Clock) -> Roofline:
    """Return the roofline (rates of arithmetic and memory traffic) of the clock's device, from the clock's cache if possible.

    The times of the calibration models are not cached, because the roofline's error is estimated from cached times. The
    roofline is fitted to the calibration models, so their times would make the error seem too small.

    Raises:
        InvalidModelError: ONNX Runtime cannot run one of the models on the device.
    """
    known = clock.roofline
    if known is None:
        apart = Clock(clock.device)
        apart.cache.put(["overhead", clock.device.identity], [*clock.overhead])
        known = _measured(apart)
        clock.cache.put(["roofline", clock.device.identity], known.as_json())
    return known


def _measured(clock: Clock) -> Roofline:
    points: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    traffic: list[tuple[float, float]] = []
    for kind, sides in _SIDES.items():
        for side in sides:
            for model in _models(kind, side):
                operations, moved, seconds = _point(clock, model)
                points[kind].append((operations, seconds))
                if kind == ELEMENT:
                    traffic.append((moved, seconds))
    call, node = clock.overhead
    rates = {kind: fit_curve(measured) for kind, measured in points.items()}
    curve = fit_curve(traffic)
    last_level, caches = (last_level_cache(), cache_sizes()) if clock.device.provider == "cpu" else (_UNBOUNDED, ())
    return Roofline(rates, curve, curve[-1][1], call, node, last_level, caches)


def _point(clock: Clock, model: ModelProto) -> tuple[float, float, float]:
    """Time a model with one operator. Return the number of operations, the number of bytes, and the seconds of the operator.

    The seconds are the sum of the nodes' times. The time of a node with one element is subtracted from the time of each node.
    """
    wanted: list[Demand] = []
    seconds = 0.0
    for kernel in clock.kernels(model):
        timing = clock.timing(kernel)
        net = clock.net(timing.seconds)
        seconds += max(net - clock.overhead[1], net / 10)
        wanted.append(demand(kernel.signature(), timing.outputs))
    most = max(wanted, key=lambda each: each.operations)
    return most.operations, most.moved, seconds


def _models(kind: str, side: int) -> Iterator[ModelProto]:
    square, image = (side, side), (1, _CHANNELS, side, side)
    match kind:
        case "product":
            yield _model("MatMul", square, square)
        case "convolution":
            yield _model("Conv", image, (_CHANNELS, _CHANNELS, 3, 3), pads=[1, 1, 1, 1])
        case "depthwise":
            yield _model("Conv", image, (_CHANNELS, 1, 3, 3), pads=[1, 1, 1, 1], group=_CHANNELS)
        case "window":
            yield _model("MaxPool", image, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        case "function":
            yield _model("Softmax", square)
        case "reduction":
            yield _model("LayerNormalization", square, (side,))
        case _:
            yield _model("Add", square, square)


def _model(op_type: str, shape: tuple[int, ...], *weights: tuple[int, ...], **attributes: int | list[int]) -> ModelProto:
    """Return a model of one node with an input of shape `shape` and weights of the given shapes."""
    names = [f"w{position}" for position in range(len(weights))]
    node = helper.make_node(op_type, ["x", *names], ["y"])
    node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(attributes.items()))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_empty_tensor_value_info("y")]
    constants = [hollow_tensor(Hollow.of("float32", w), name) for name, w in zip(names, weights, strict=True)]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
