"""Measured cost: the timing of nodes and segments, cached times, and the comparison of two models."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.algebra.dim_binding import DimBinding
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.cost.measure import Clock, clock_structure_digest
from superopt.cost.measure import _boundary as boundary
from superopt.cost.segment_cost import Measured
from superopt.errors import InvalidModelError
from superopt.runtime.cache import Cache, default_path
from superopt.runtime.compare import DECIDED, TOLD, Comparison, StoppingRule, compare, compare_in_turns
from superopt.runtime.compare import _median_interval as median_interval
from superopt.runtime.kernel import Kernel, KernelTiming, random_values
from superopt.runtime.multi_shape import ComparisonSettings, SizeComparisons, compare_at_all_sizes
from superopt.runtime.session import Bound, Device, Session

pytestmark = pytest.mark.slow

CPU = Device()


def image(channels: int = 16, extent: int = 20) -> Term:
    return variable("x", (1, channels, extent, extent))


def weight(name: str, *shape: int) -> Term:
    return variable(name, shape, constant=True)


def convolution(x: Term, name: str, kernel: int = 3) -> Term:
    channels = x.sizes[1]
    pad = kernel // 2
    return apply("conv", x, weight(name, channels, channels, kernel, kernel), pads=(pad, pad, pad, pad))


def plus_row(x: Term, name: str) -> Term:
    return apply("add", x, apply("expand", weight(name, x.sizes[-3]), shape=x.shape, axes=(-3,)))


def measured(cache: Cache | None = None) -> Measured:
    return Measured(Clock(CPU, cache), 18)


def names(segment: Measured, *outputs: Term) -> list[str]:
    return [piece.op_type for piece in segment.clock.pieces(segment.model(outputs))]


# ---------------------------------------------------------------- the cost of a segment


def test_wholes_are_timed_in_turns_with_a_reference(tmp_path: Path) -> None:
    clock = Clock(CPU, Cache(tmp_path / "times.sqlite"), together=True)
    segment = Measured(clock, 18)
    x = variable("x", (64, 256))
    one = apply("matmul", x, weight("w", 256, 256))
    two = apply("matmul", apply("relu", one), weight("v", 256, 256))
    alone = segment.seconds((one,))
    assert segment.seconds((one,), (one,)) == alone
    assert 1.3 * alone < segment.seconds((two,), (one,)) < 4 * alone
    assert segment.seconds((two,), (one,)) == Measured(clock, 18).seconds((two,), (one,))


def test_a_form_that_reads_fewer_inputs_is_compared_on_those_that_it_has() -> None:
    x, y = variable("x", (64, 256)), variable("y", (64, 256))
    segment = measured()
    both, one = (segment.model((apply("tanh", term),)) for term in (apply("sub", apply("add", x, y), y), x))
    assert 0.2 < segment.clock.ratio(both, one) < 50


@pytest.mark.parametrize(
    ("predicted", "interval", "believed"),
    [
        (1.05, (1.03, 1.04, 1.05), True),
        (1.05, (0.94, 0.99, 1.06), True),
        (1.05, (0.985, 0.99, 0.995), False),
        (1.5, (0.96, 0.98, 1.0), False),
        (1.005, (0.92, 1.0, 1.08), False),
    ],
)
def test_a_gain_is_believed_as_far_as_sums_and_wholes_are_to_be_trusted(
    monkeypatch: pytest.MonkeyPatch, predicted: float, interval: tuple[float, float, float], believed: bool
) -> None:
    low, ratio, high = interval
    found = Comparison(1.0, 1.0 / ratio, ratio, low, high, 1.0, 0.0, 6)
    monkeypatch.setattr("superopt.cost.measure.compare", lambda *_, **__: found)
    one, two = (measured().model((convolution(image(), name),)) for name in "vw")
    assert Clock(CPU).stands(one, two, predicted, 0.008) is believed


@pytest.mark.parametrize(
    ("ratio", "spread", "decided", "told"),
    [
        (1.0, 0.005, True, False),
        (1.0, 0.04, False, False),
        (1.035, 0.004, True, True),
        (1.025, 0.002, False, False),
        (1.2, 0.03, True, False),
        (0.9, 0.03, True, False),
    ],
)
def test_a_verdict_is_decided_before_the_ratio_is_told(ratio: float, spread: float, decided: bool, told: bool) -> None:
    found = Comparison(ratio, 1.0, ratio, ratio - spread, ratio + spread, 1.0, 0.0, 30)
    assert DECIDED.clear(found) is decided
    assert TOLD.clear(found) is told


def test_what_onnx_runtime_fuses_is_timed_as_one_node() -> None:
    fused = apply("relu", plus_row(convolution(image(), "w"), "b"))
    assert names(measured(), fused) == ["Conv"]


def test_what_three_loads_decide_together_is_not_measured_on() -> None:
    class Slow:
        def __init__(self, share: float) -> None:
            self.share = share

        def alone(self) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

        def run(self) -> None:
            time.sleep(0.01)

        def seconds(self, runs: int) -> float:
            time.sleep(0.01 * runs)
            return 0.01 * self.share

    loads: list[int] = []

    @contextlib.contextmanager
    def opened(load: int) -> Iterator[list[list[Slow]]]:
        loads.append(load)
        yield [[Slow(2.0), Slow(1.0), Slow(2.0)]]

    ((found,),) = compare_in_turns(opened, seconds=60.0, loads=600, until=StoppingRule(9, Comparison.faster))
    assert loads == [0, 1, 2]
    assert (found.ratio, found.rounds) == (2.0, 9)


@pytest.mark.parametrize(("disturbed", "faster"), [(3, True), (9, False)])
def test_few_disturbed_rounds_do_not_hide_a_gain(disturbed: int, faster: bool) -> None:
    class Told:
        def __init__(self, *times: float) -> None:
            self.times = itertools.cycle(times)

        def alone(self) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

        def run(self) -> None:
            time.sleep(0.06)

        def seconds(self, _: int) -> float:
            return next(self.times)

    original = [1.03 * (1 + 0.15 * (n < disturbed) * (1 + n / 9)) for n in range(12)]

    @contextlib.contextmanager
    def opened(_: int) -> Iterator[list[list[Told]]]:
        yield [[Told(*original), Told(1.0), Told(1.03)]]

    ((found,),) = compare_in_turns(opened, seconds=60.0, loads=1, until=StoppingRule(12, lambda _: True))
    assert found.rounds == 12
    assert found.faster() is faster


def test_another_shape_for_the_same_elements_costs_a_node_and_no_copy() -> None:
    clock = Clock(CPU)
    x = variable("x", (4, 512, 1024))
    flat = apply("reshape", apply("relu", x), shape=(2048, 1024))
    relu, reshape, _ = clock.pieces(Measured(clock, 18).model((apply("tanh", flat),)))
    assert (relu.op_type, reshape.op_type) == ("Relu", "Reshape")
    assert reshape.seconds == clock.overhead[1] < relu.seconds / 10


def test_weights_alone_cost_nothing() -> None:
    merged = apply(
        "add", weight("v", 16, 16, 3, 3), apply("pad", weight("u", 16, 16, 1, 1), before=(0, 0, 1, 1), after=(0, 0, 1, 1))
    )
    one = apply("conv", image(), merged, pads=(1, 1, 1, 1))
    segment = measured()
    assert names(segment, one) == ["Conv"]
    assert [node.op_type for node in segment.model((one,)).graph.node] == ["Conv"]
    assert segment.seconds((merged, image())) == 0.0


def test_more_work_costs_more() -> None:
    segment = measured()
    x = image(32, 40)
    small, large = convolution(x, "u", 1), convolution(x, "w", 5)
    assert 2 * segment.seconds((small,)) < segment.seconds((large,))
    assert segment.seconds((large,)) < segment.seconds((large, apply("relu", small)))


def test_branches_cost_more_than_one_convolution() -> None:
    x = image(32, 28)
    segment = measured()
    branches = apply("add", convolution(x, "w"), convolution(x, "u", 1), convolution(x, "v", 1))
    assert segment.seconds((branches,)) > 1.1 * segment.seconds((convolution(x, "w"),))


def test_equal_outputs_are_measured_once() -> None:
    y = convolution(image(), "w")
    assert len(measured().model((y, y)).graph.output) == 1


def test_a_node_that_cannot_run_is_an_error() -> None:
    broken = chain("Relu", "Relu")
    broken.graph.node[1].op_type = "NoSuchOperator"
    with pytest.raises(InvalidModelError):
        Clock(CPU).seconds(broken)


# ---------------------------------------------------------------- cached times


def test_a_known_state_is_not_timed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "times.sqlite"
    state = (apply("relu", convolution(image(), "w")),)
    first = measured(Cache(path)).seconds(state)

    def timed(*_: object, **__: object) -> KernelTiming:
        raise AssertionError("timed again")

    monkeypatch.setattr(Kernel, "timed", timed)
    monkeypatch.setattr(Clock, "_optimized", timed)
    assert measured(Cache(path)).seconds(state) == first
    renamed = (apply("relu", convolution(image(), "another")),)
    assert measured(Cache(path)).seconds(renamed) == first


def test_equal_nodes_share_their_time() -> None:
    clock = Clock(CPU)
    twice = convolution(convolution(image(), "w"), "v")
    pieces = clock.pieces(Measured(clock, 18).model((twice,)))
    assert len(pieces) >= 2
    assert pieces[0].seconds == pieces[1].seconds


def test_the_cache_is_read_by_another_one(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "times.sqlite"
    Cache(path).put(["a", 1], {"seconds": 0.5})
    again = Cache(path)
    assert again.get(["a", 1]) == {"seconds": 0.5}
    assert again.get(["a", 2]) is None
    again.put(["a", 1], "later")
    assert Cache(path).get(["a", 1]) == {"seconds": 0.5}


def _store(path: Path, which: int) -> None:
    cache = Cache(path)
    for i in range(100):
        cache.put(["entry", i % 50, which % 2], i % 50)
    assert not cache.error


def test_processes_share_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "times.sqlite"
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_store, args=(path, i)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    cache = Cache(path)
    assert [cache.get(["entry", i, 1]) for i in range(50)] == list(range(50))


def test_a_file_that_is_no_cache_leaves_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "times.sqlite"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    cache = Cache(path)
    assert str(path) in cache.error
    cache.put(["a"], 1)
    assert cache.get(["a"]) == 1
    assert path.read_bytes().startswith(b"not a database")
    assert Cache(path / "below").error


def test_the_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path().is_relative_to(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert default_path().is_relative_to(Path.home() / ".cache")


# ---------------------------------------------------------------- keys of cached times


def chain(*operators: str, names: str = "abcdef", size: int = 4) -> ModelProto:
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(operators)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size]) for n in (names[0], names[len(operators)])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_structure_ignores_names_and_nothing_else() -> None:
    plain = clock_structure_digest(chain("Relu", "Neg"))
    assert clock_structure_digest(chain("Relu", "Neg", names="uvwxyz")) == plain
    others = [chain("Neg", "Relu"), chain("Relu", "Neg", size=5), chain("Relu", "Neg", "Neg")]
    rewired = chain("Relu", "Neg")
    rewired.graph.node[1].input[0] = "a"
    opset = chain("Relu", "Neg")
    opset.opset_import[0].version = 17
    assert len({plain, *map(clock_structure_digest, [*others, rewired, opset])}) == 6


def with_constant(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> ModelProto:
    proto = chain("Relu", "Neg")
    proto.graph.node[1].op_type = "Mul"
    proto.graph.node[1].input.append("k")
    proto.graph.initializer.append(numpy_helper.from_array(values, "k"))
    return proto


def test_structure_sees_the_values_of_small_constants_and_of_those_that_are_all_the_same() -> None:
    for shape in ((4,), (100, 4)):
        one, two = np.full(shape, 1, np.float32), np.full(shape, 2, np.float32)
        assert clock_structure_digest(with_constant(one)) != clock_structure_digest(with_constant(two))
    wide = [np.random.default_rng(seed).standard_normal((100, 4)).astype(np.float32) for seed in (1, 2)]
    assert clock_structure_digest(with_constant(wide[0])) == clock_structure_digest(with_constant(wide[1]))


def test_numbers_that_are_known_are_seen_by_the_optimizations() -> None:
    clock = Clock(Device())
    rectified = apply("relu", variable("x", (4, 512)))

    def made(addend: Term) -> list[str]:
        model = Measured(clock, 18).model((apply("tanh", apply("add", rectified, addend)),))
        return [piece.op_type for piece in clock.pieces(model)]

    assert made(apply("zeros", shape=(4, 512))) == ["Relu", "Tanh"]
    assert made(variable("b", (4, 512), constant=True)) == ["Relu", "Add", "Tanh"]


def test_layout_conversions_at_the_ends_are_artefacts() -> None:
    blocked = "com.microsoft.nchwc"

    def node(op: str, source: str, result: str) -> NodeProto:
        return helper.make_node(op, [source], [result], domain=blocked if op.startswith("Reorder") else "")

    nodes = [
        node("ReorderInput", "x", "a"),
        node("Relu", "a", "b"),
        node("ReorderOutput", "b", "c"),
        node("Transpose", "c", "d"),
        node("ReorderInput", "d", "e"),
        node("ReorderOutput", "e", "y"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
    graph = helper.make_graph(nodes, "blocked", ends[:1], ends[1:])
    assert boundary(graph) == [True, False, False, False, False, True]


def test_random_values_are_the_same_again_and_never_tiny() -> None:
    values = random_values(TensorProto.FLOAT, (3, 700_000), 5)
    assert values.dtype == np.float32
    assert np.abs(values).min() >= 0.5
    assert np.array_equal(values, random_values(TensorProto.FLOAT, (3, 700_000), 5))
    assert not np.array_equal(values[0, :10], random_values(TensorProto.FLOAT, (10,), 6))
    assert not random_values(TensorProto.INT64, (5,)).any()


# ---------------------------------------------------------------- end to end


def product(times: int) -> ModelProto:
    nodes = [helper.make_node("MatMul", [f"v{i}", "w"], [f"v{i + 1}"]) for i in range(times)]
    w = numpy_helper.from_array(np.eye(96, dtype=np.float32) * np.float32(0.9), "w")
    ends = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [96, 96]) for i in (0, times)]
    ends[1].name = nodes[-1].output[0] = "y"
    graph = helper.make_graph(nodes, "product", ends[:1], ends[1:], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_less_work_is_faster() -> None:
    shares: list[float] = []
    found = compare(product(12), product(2), CPU, seconds=0.5, progress=shares.append)
    assert found.faster()
    assert not found.slower()
    assert found.ratio > 2
    assert found.low <= found.ratio <= found.high
    assert found.original > found.candidate
    assert shares == sorted(shares)
    assert compare(product(2), product(12), CPU, seconds=0.3).slower()


def test_what_seems_the_fastest_so_far_is_timed_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    told, turns = iter([1.1, 0.8, 0.95, 0.96, 0.7, 0.9]), list[int]()

    def ratio(_one: Bound, _other: Bound, more: int = 1) -> float:
        turns.append(more)
        return next(told)

    monkeypatch.setattr("superopt.cost.measure._ratio", ratio)
    clock = Clock(CPU, together=True)
    whole = clock.seconds(product(1))
    found = [clock.beside(product(n), product(1)) / whole for n in (2, 3, 4, 5)]
    assert found == pytest.approx([1.1, 0.95, 0.96, 0.9])
    assert [more > 1 for more in turns] == [False, False, True, False, False, True]


def test_faster_means_beyond_margin_and_noise() -> None:
    def found(ratio: float, low: float, high: float, noise: float) -> Comparison:
        return Comparison(1.0, 1.0 / ratio, ratio, low, high, 1.0, noise, 9)

    assert found(1.05, 1.04, 1.06, 0.01).faster()
    assert not found(1.05, 1.04, 1.06, 0.05).faster()
    assert not found(1.015, 1.012, 1.018, 0.001).faster()
    assert not found(1.05, 0.99, 1.06, 0.001).faster()
    assert SizeComparisons(
        ((DimBinding({"n": 1}), found(0.995, 0.98, 1.0, 0.03)), (DimBinding({"n": 8}), found(1.05, 1.04, 1.06, 0.01)))
    ).faster
    assert not SizeComparisons(
        ((DimBinding({"n": 1}), found(0.985, 0.98, 1.0, 0.03)), (DimBinding({"n": 8}), found(1.5, 1.4, 1.6, 0.01)))
    ).faster
    assert found(0.9, 0.88, 0.92, 0.01).slower()
    assert not found(0.9, 0.88, 0.92, 0.2).slower()


def test_median_interval_holds_the_median() -> None:
    assert median_interval([3.0]) == (3.0, 3.0, 3.0)
    middle, low, high = median_interval([float(i) for i in range(101)])
    assert middle == 50
    assert 38 <= low < 50 < high <= 62


def test_a_run_that_fails_while_it_is_timed_is_told() -> None:
    """About half of the runs read past the end of a tensor, but the first run does not."""
    nodes = [
        helper.make_node("RandomUniform", [], ["random"], shape=[1], low=0.0, high=2.0, seed=2.0),
        helper.make_node("Cast", ["random"], ["place"], to=TensorProto.INT64),
        helper.make_node("Gather", ["x", "place"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    proto = helper.make_model(
        helper.make_graph(nodes, "random", [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    bound = Session(proto, CPU).ready({"x": np.ones(1, np.float32)})
    with pytest.raises(InvalidModelError, match="cannot run"):
        bound.seconds(64)


def test_a_model_whose_output_is_not_as_declared_is_timed() -> None:
    """The size of the output depends on the value of an input."""
    graph = helper.make_graph(
        [helper.make_node("ConstantOfShape", ["shape"], ["y"])],
        "filled",
        [helper.make_tensor_value_info("shape", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 9])],
    )
    session = Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), CPU)
    bound = session.bind({"shape": np.array([2, 3], np.int64)})
    assert bound.seconds(2) > 0
    assert bound.outputs()[0].shape == (2, 3)


def test_whole_models_are_compared_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([Comparison(1.0, 0.5, 2.0, 1.9, 2.1, 1.0, 0.01, 40), Comparison(1.0, 0.4, 2.5, 2.4, 2.6, 1.0, 0.01, 40)])

    def compared(*_: object, **__: object) -> list[list[Comparison]]:
        time.sleep(0.2)
        return [[next(found)]]

    monkeypatch.setattr("superopt.runtime.multi_shape.compare_settings", compared)
    one, other, sizings = chain("Relu"), chain("Relu", "Relu"), [DimBinding({})]
    results = [compare_at_all_sizes(one, other, CPU, sizings, ComparisonSettings(1.0)) for _ in range(2)]
    assert [comparisons.least.ratio for comparisons, _ in results] == [2.0, 2.5]
    assert all(seconds >= 0.2 for _, seconds in results)
