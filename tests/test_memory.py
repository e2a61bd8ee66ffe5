"""Memory that a large model takes: one session at a time, and tensors that are mapped from files."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import superopt.model.splice as splicing
from superopt.algebra.dim_binding import DimBinding
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variables
from superopt.child.program import resident_bytes
from superopt.cost.first_run import first_run
from superopt.cost.measure import Clock
from superopt.model.external_data import externalize_tensors, temporary_scratch
from superopt.model.fold import fold as fold_now
from superopt.model.islands import Chart
from superopt.model.load import load
from superopt.model.save import save
from superopt.model.splice import Replacement, splice
from superopt.policy import COMPARISON, COST, MODEL
from superopt.protobuf.nodes import Hollow, hollow_tensor
from superopt.protobuf.stored import parse_model
from superopt.runtime.compare import compare, compare_all, compare_in_blocks
from superopt.runtime.kernel import Kernel, Operand
from superopt.runtime.reference import Reference
from superopt.runtime.session import Device, Session
from superopt.runtime.tuning import tune
from tests.models import model, weight

CPU = Device()


class Counted:
    """A model with a known time that counts the models of its kind that exist at the same time."""

    alive = 0
    most = 0
    loads: ClassVar[Counter[float]] = Counter()

    def __init__(self, time: float) -> None:
        self.time = time
        Counted.loads[time] += 1
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1

    def alone(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def run(self) -> None:
        pass

    def seconds(self, runs: int) -> float:
        return self.time * runs


def test_one_model_is_in_memory_at_a_time_where_they_are_compared_in_blocks() -> None:
    shares: list[float] = []
    found = compare_in_blocks([functools.partial(Counted, t) for t in (0.3, 0.28, 0.4)], seconds=0.0, progress=shares.append)
    assert Counted.most == 1
    assert Counted.loads == {0.3: 5, 0.28: 4, 0.4: 4}
    assert [round(c.ratio, 3) for c in found] == [1.071, 0.75]
    assert [c.control for c in found] == [1.0, 1.0]
    assert found[0].faster()
    assert found[1].slower()
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_what_gains_in_no_round_is_not_loaded_for_two_more() -> None:
    (found,) = compare_in_blocks([functools.partial(Counted, t) for t in (0.5, 0.6)], seconds=100.0)
    assert found.rounds == 2
    assert not found.faster()


def test_what_gains_much_in_both_of_two_rounds_is_not_loaded_for_two_more() -> None:
    (found,) = compare_in_blocks([functools.partial(Counted, t) for t in (0.6, 0.5)], seconds=100.0)
    assert found.rounds == 2
    assert found.faster()


def test_what_cannot_come_out_as_faster_is_not_loaded_for_two_more_where_that_takes_long() -> None:
    def loaded(*times: float) -> functools.partial[Counted]:
        return functools.partial(lambda left: Counted(next(left)), iter(times))

    (lost,) = compare_in_blocks([loaded(*[0.5] * 9), loaded(0.49, 0.51, 0.49, 0.49)], seconds=0.0)
    assert lost.rounds == 2
    assert not lost.faster()
    (gained,) = compare_in_blocks([loaded(*[0.5] * 9), loaded(0.45, 0.49, 0.45, 0.45)], seconds=0.0)
    assert gained.rounds == 4
    assert gained.faster()


def test_hidden_gain_adds_rounds_in_blocks() -> None:
    def loaded(*times: float) -> functools.partial[Counted]:
        return functools.partial(lambda left: Counted(next(left)), iter(times))

    (disturbed,) = compare_in_blocks([loaded(*[0.5] * 9), loaded(0.4, 0.51, *[0.4] * 6)], seconds=0.0)
    assert disturbed.rounds == 8
    assert disturbed.faster()
    noisy = [0.5, 0.52] * 4 + [0.5]
    (hidden,) = compare_in_blocks([loaded(*noisy), loaded(*[0.48] * 8)], seconds=0.0)
    assert 4 < hidden.rounds <= 8
    assert hidden.faster()
    (small,) = compare_in_blocks([loaded(*noisy), loaded(*[0.505] * 8)], seconds=0.0)
    assert small.rounds == 2
    assert not small.faster()


def test_comparison_in_blocks_ends_after_a_stop_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.runtime.compare.is_stop_requested", lambda: True)
    monkeypatch.setattr("superopt.runtime.compare.COMPARISON", replace(COMPARISON, hurried_loading_seconds=0.0))
    (stopped,) = compare_in_blocks([functools.partial(Counted, t) for t in (0.5, 0.49)], seconds=100.0)
    assert stopped.rounds == 1


def product(columns: int) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return model(nodes, {"x": [64, 256]}, {"y": [64, columns]}, [weight("w", 256, columns)])


def test_models_too_large_to_be_there_together_are_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(COMPARISON, max_resident_bytes=0, min_block_seconds=0.005)
    monkeypatch.setattr("superopt.runtime.compare.COMPARISON", limits)
    found = compare(product(512), product(16), CPU, seconds=0.0)
    assert found.rounds == 2
    assert found.ratio > 2
    assert not tune(product(16), CPU, seconds=0.0).tried


def test_models_whose_runs_need_much_memory_are_loaded_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []

    def in_blocks(models: Sequence[object], **_: object) -> list[None]:
        together.append(len(models))
        return []

    monkeypatch.setattr("superopt.runtime.compare.compare_in_blocks", in_blocks)
    share = COMPARISON.max_run_bytes // 3
    compare(product(512), product(16), CPU, seconds=0.0, run_bytes=share)
    assert not together
    compare_all(product(512), [product(16)], CPU, seconds=0.0, run_bytes=share + 1)
    assert together == [2]


def test_models_whose_runs_turn_out_to_need_much_memory_are_loaded_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []

    def in_blocks(models: Sequence[object], **_: object) -> list[None]:
        together.append(len(models))
        return []

    monkeypatch.setattr("superopt.runtime.compare.compare_in_blocks", in_blocks)
    for share, expected in ((0.33, []), (0.34, [2])):
        resident = itertools.count(1, int(share * COMPARISON.max_run_bytes))
        monkeypatch.setattr("superopt.runtime.compare.resident_bytes", lambda _, counted=resident: next(counted))
        compare_all(product(512), [product(16)], CPU, seconds=0.0)
        assert together == expected


def test_the_memory_of_the_first_run_of_a_timed_session_is_freed() -> None:
    rows = 1 << 15
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("ReduceMax", ["c"], ["y"], keepdims=0, axes=[1]),
    ]
    proto = model(nodes, {"x": [rows, 8]}, {"y": [rows]}, [weight("w", 8, 256), weight("v", 256, 256)])
    growth: list[int] = []
    for _ in range(3):  # other parts of the process may allocate memory in between
        session = Session(proto, CPU)
        start = resident_bytes("VmRSS")
        bound = session.bind({"x": np.ones((rows, 8), np.float32)})
        growth.append(resident_bytes("VmRSS") - start)
        bound.run()
    assert min(growth) < 1.5 * rows * 256 * 4  # a and c are in memory together, and one of them stays


@pytest.mark.slow
def test_the_first_run_tells_how_much_memory_a_run_needs(tmp_path: Path) -> None:
    onnx.save(product(1 << 16), tmp_path / "m.onnx")
    found = first_run(tmp_path / "m.onnx", load(tmp_path / "m.onnx"), CPU, [DimBinding({})])
    assert 64 * 2**16 * 4 <= found.run_bytes < 20 * 64 * 2**16 * 4


def test_a_large_weight_without_values_is_mapped_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    hollow = hollow_tensor(Hollow.of(np.float32, (64, 32)), "w")
    operands = {"x": Operand(1, (4, 64)), "w": Operand(1, (64, 32), hollow)}
    kernel = Kernel(node, operands, (("", 18),), 8)
    filled = kernel.timed(CPU)
    assert not kernel.model().graph.initializer[0].external_data
    monkeypatch.setattr("superopt.runtime.kernel.COST", replace(COST, min_mapped_constant_bytes=0))
    assert kernel.model().graph.initializer[0].external_data
    mapped = kernel.timed(CPU, cold=True)
    assert mapped.outputs == filled.outputs
    assert mapped.seconds > 0


def test_the_optimized_graph_is_written_without_the_weights(tmp_path: Path) -> None:
    onnx.save(product(64), tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    saved = tmp_path / "optimized.onnx"
    Session(tmp_path / "m.onnx", CPU, saved=saved)
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", "w", "optimized.onnx"}
    assert saved.stat().st_size < 4096
    assert Clock(CPU).seconds(product(64)) > 0


@pytest.mark.parametrize(("kept", "reads"), [(64 * 48 * 4, 0), (64 * 48 * 4 - 1, 1)])
def test_a_large_weight_that_is_computed_is_so_when_it_is_read(
    kept: int, reads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At most `kept` bytes of such computed weights stay in memory. A second save computes `reads` weights again."""
    folded = list[Term]()

    def fold(terms: Sequence[Term], *how: Any) -> dict[Term, npt.NDArray[Any]]:
        folded.extend(terms)
        return fold_now(terms, *how)

    monkeypatch.setattr(splicing, "fold", fold)
    limits = replace(MODEL, min_deferred_weight_bytes=64 * 48 * 4, max_cached_weight_bytes=kept)
    monkeypatch.setattr(splicing, "MODEL", limits)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Mul", ["h", "s"], ["y"])]
    onnx.save(
        model(nodes, {"x": [4, 64]}, {"y": [4, 48]}, [weight("w", 64, 48), weight("s", 48)]),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w",
        size_threshold=0,
    )
    before = load(tmp_path / "m.onnx").model
    (island,) = Chart(before).islands()
    x, w, s = (next(t for t in variables(*island.outputs.values()) if t.name == name) for name in "xws")
    scaled = apply("mul", w, apply("expand", s, shape=(64, 48), axes=(-1,)))
    after = splice(before, [Replacement({"y": apply("matmul", x, scaled)}, island.dtype)])
    assert not folded
    assert isinstance(before.graph.initializers["w"].const_value, ir.ExternalTensor)
    assert before.graph.initializers["w"].const_value.raw is None
    assert [node.op_type for node in after.graph] == ["MatMul"]
    save(after, tmp_path / "after.onnx")
    assert len(folded) == 1
    save(after, tmp_path / "again.onnx")
    assert len(folded) == 1 + reads
    assert before.graph.initializers["w"].const_value.raw is None
    one, other = (Session(tmp_path / name, CPU).run({"x": np.ones((4, 64), np.float32)}) for name in ("m.onnx", "after.onnx"))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-4, atol=1e-5)


def test_large_constants_are_in_files_when_onnx_runtime_loads_a_model() -> None:
    """The constants are floats and integers, in the main graph and in a branch. A constant that is an output stays in the
    model.
    """
    rng = np.random.default_rng(0)
    tables: dict[str, npt.NDArray[Any]] = {
        "ints": rng.integers(0, 9, (512, 512)),
        "floats": rng.standard_normal((512, 512)).astype(np.float32),
        "inner": rng.standard_normal((512, 512)).astype(np.float32),
        "shown": rng.standard_normal((512, 64)).astype(np.float32),
    }
    constants = {
        name: helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(t, name))
        for name, t in tables.items()
    }
    inner = [constants.pop("inner"), helper.make_node("MatMul", ["p", "inner"], ["z"])]
    given = [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)]
    branch = helper.make_graph(inner, "branch", [], given)
    other = helper.make_graph([helper.make_node("Identity", ["p"], ["z"])], "other", [], given)
    nodes = [
        *constants.values(),
        helper.make_node("Cast", ["ints"], ["cast"], to=onnx.TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "cast"], ["m"]),
        helper.make_node("MatMul", ["m", "floats"], ["p"]),
        helper.make_node("Constant", [], ["c"], value_ints=[1]),
        helper.make_node("Cast", ["c"], ["yes"], to=onnx.TensorProto.BOOL),
        helper.make_node("Squeeze", ["yes"], ["one"]),
        helper.make_node("If", ["one"], ["y"], then_branch=branch, else_branch=other),
    ]
    original = model(nodes, {"x": [2, 512]}, {"y": [2, 512], "shown": [512, 64]})
    with temporary_scratch() as scratch:
        stored = externalize_tensors(load(original).model, scratch)
        assert len(stored.content) < tables["shown"].nbytes + 10_000
        feeds = {"x": rng.standard_normal((2, 512)).astype(np.float32)}
        before, after = (Session(one, Device("cpu", 1)).run(feeds) for one in (original, stored))
        exact = Reference(parse_model(stored, external=False), stored.folder).run(feeds)
    assert all(map(np.array_equal, before, after))
    assert all(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-2) for a, b in zip(before, exact, strict=True))
