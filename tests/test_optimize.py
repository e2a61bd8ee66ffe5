"""`optimize` on small models: accepted results, models that are kept, and wrong rewrites, which are refused."""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.algebra.operators import apply
from superopt.algebra.terms import variable
from superopt.cost.first_run import FirstRun, measure_search_pace
from superopt.cost.measure import Clock
from superopt.errors import CheckFailedError, InvalidModelError, ProviderError
from superopt.policy import OPTIMIZATION
from superopt.report.progress import Progress
from superopt.rules.rule import parse_rule, parse_rules
from superopt.runtime.check import check_all
from superopt.runtime.compare import Comparison, Setting
from superopt.runtime.session import Device
from superopt.search.canonical import canonical
from superopt.search.judging import CandidateJudge
from superopt.search.passes import search_budget_seconds
from superopt.search.segments import relower
from tests.models import model, run, weight

pytestmark = pytest.mark.slow

FLOW = importlib.import_module("superopt.flows.optimize")
EVERYWHERE = "superopt.runtime.multi_shape"
FACTOR = "factor: x @ y + x @ z => x @ (y + z) for x[2], y[2], z[2]"
SWAP = "swap: transpose(transpose(x, perm=(-1, -2)), perm=(-1, -2)) => x for x[2]"
WRONG = "wrong: relu(x) => x for x[2]"
BRANCHES = 8


def compare_as(monkeypatch: pytest.MonkeyPatch, found: Callable[[onnx.ModelProto], Comparison]) -> None:
    """Let every comparison of the original with a candidate give the result of `found`, at all sizes."""

    def compare_settings(
        _: Setting, candidates: Sequence[tuple[onnx.ModelProto, Device]], *, at: Sequence[object], **__: object
    ) -> list[list[Comparison]]:
        return [[found(candidate) for candidate, _ in candidates] for _ in at]

    monkeypatch.setattr(f"{EVERYWHERE}.compare_settings", compare_settings)


def branches(blocks: int = 1) -> onnx.ModelProto:
    """Return blocks of eight parallel products each. One product with the sum of the weights can compute a block."""
    nodes, weights = [], []
    x = "x"
    for block in range(blocks):
        total = ""
        for branch in range(BRANCHES):
            name = f"w{block}.{branch}"
            weights.append(weight(name, 192, 192))
            nodes.append(helper.make_node("MatMul", [x, name], [f"p{block}.{branch}"]))
            if total:
                nodes.append(helper.make_node("Add", [total, f"p{block}.{branch}"], [f"s{block}.{branch}"]))
            total = f"s{block}.{branch}" if total else f"p{block}.{branch}"
        x = f"x{block}" if block < blocks - 1 else "y"
        nodes.append(helper.make_node("Sin", [total], [x]))
    return model(nodes, {"x": [96, 192]}, {"y": [96, 192]}, weights)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Skip relowering and the comparison of a pass, and keep no times between tests."""
    monkeypatch.setattr(FLOW, "relower", lambda *_: ())
    monkeypatch.setattr(FLOW, "ratio_in_context", lambda *_: None)
    monkeypatch.setattr(FLOW, "default_path", lambda: tmp_path / "times.sqlite")


def use(monkeypatch: pytest.MonkeyPatch, *rules: str) -> None:
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: parse_rules("\n".join(rules)))


def measured(ratio: float) -> Comparison:
    return Comparison(original=ratio, candidate=1.0, ratio=ratio, low=ratio, high=ratio, control=1.0, noise=0.001, rounds=9)


def test_a_faster_model_is_found_and_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    proto = branches()
    was = proto.SerializeToString()
    told: list[Progress] = []
    optimized = superopt.optimize(proto, budget=60.0, progress=told.append)
    report = optimized.report
    assert proto.SerializeToString() == was
    assert isinstance(optimized.model, onnx.ModelProto)
    assert report.accepted, report.reason
    assert report.speedup > 1.5
    assert [n.op_type for n in optimized.model.graph.node] == ["MatMul", "Sin"]
    assert [(r.name, r.times) for r in report.rules] == [("factor", BRANCHES - 1)]
    assert report.rules[0].gain > 0
    assert report.nodes == 2 * BRANCHES
    assert report.nodes_after == 2
    assert list(report.seconds) == ["load", "prepare", "search", "measure", "check", "explain"]
    assert report.rounding is not None
    assert report.rounding.reference == "float64"
    assert {p.phase for p in told} >= {"load", "search", "check", "measure"}
    for a, b in zip(run(proto), run(optimized.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def looped(times: int) -> onnx.ModelProto:
    """Return a Loop around parallel products. The weights and the last operand are outside of the loop."""
    inner = branches().graph
    info = helper.make_tensor_value_info
    carried = [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [96, 192])]
    made = [info("goes", TensorProto.BOOL, []), info("y", TensorProto.FLOAT, [96, 192])]
    go = helper.make_node("Identity", ["going"], ["goes"])
    add = helper.make_node("Add", ["sum", "given"], ["y"])
    inner.node[-1].output[0] = "sum"
    body = helper.make_graph([go, *inner.node, add], "body", carried, made)
    number = numpy_helper.from_array(np.array(times), "times")
    loop = helper.make_node("Loop", ["times", "", "given"], ["last"], body=body)
    around = [helper.make_node("Tanh", ["start"], ["given"]), loop]
    return model(around, {"start": [96, 192]}, {"last": [96, 192]}, [*inner.initializer, number])


def test_the_body_of_a_loop_is_optimized_and_counts_as_often_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    proto = looped(3)
    optimized = superopt.optimize(proto, budget=60.0)
    report = optimized.report
    assert report.accepted, report.reason
    assert report.speedup > 1.5
    assert [n.op_type for n in optimized.model.graph.node] == ["Tanh", "Loop"]
    assert sorted(n.op_type for n in optimized.model.graph.node[1].attribute[0].g.node) == ["Add", "Identity", "MatMul", "Sin"]
    assert [(r.name, r.times) for r in report.rules] == [("factor", BRANCHES - 1)]
    assert report.rounding is not None
    assert report.rounding.reference == "float64"
    once = superopt.optimize(looped(1), budget=60.0).report
    assert report.rules[0].gain == pytest.approx(3 * once.rules[0].gain, rel=0.5)


def test_the_kind_of_the_result_follows_that_of_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    path = tmp_path / "m.onnx"
    onnx.save(branches(), path)
    for source in (path, str(path), ir.from_proto(branches())):
        optimized = superopt.optimize(source, budget=60.0)
        assert isinstance(optimized.model, ir.Model)
        assert optimized.report.speedup == 2.0
        optimized.save(tmp_path / "out.onnx")
        assert len(onnx.load(tmp_path / "out.onnx").graph.node) == 2


@pytest.mark.parametrize("external", [True, False])
def test_tensors_in_other_files_are_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, external: bool) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    path, target = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(branches(), path, save_as_external_data=external, location="w.bin", size_threshold=0)
    if not external:
        monkeypatch.setattr("superopt.model.save.INLINE_LIMIT", 1000)
    superopt.optimize(path, budget=60.0).save(target)
    assert [p.suffix for p in sorted(tmp_path.glob("out*"))] == [".data", ".onnx"]
    assert not onnx.load(target, load_external_data=False).graph.initializer[0].raw_data
    for a, b in zip(run(branches()), run(onnx.load(target)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    onnx.checker.check_model(str(target), full_check=True)


def test_repeated_blocks_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    optimized = superopt.optimize(branches(3), budget=60.0)
    assert len(optimized.model.graph.node) == 6
    assert {s.copies for s in optimized.report.segments} == {3}
    assert [r.times for r in optimized.report.rules] == [3 * (BRANCHES - 1)]


def test_where_no_rule_applies_the_original_is_returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, SWAP)
    proto = branches()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    optimized = superopt.optimize(path, budget=60.0)
    assert not optimized.report.accepted
    assert "nothing faster" in optimized.report.reason
    assert optimized.report.speedup == 1.0
    optimized.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()
    assert superopt.optimize(proto, budget=60.0).model is proto


@pytest.mark.parametrize("ratio", [2.0, 1.0])
def test_nodes_that_lowering_writes_are_kept_where_they_measure_faster(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    use(monkeypatch, SWAP)
    monkeypatch.setattr(FLOW, "relower", relower)
    nodes = itertools.cycle([(16, 1.1), (15, 1.0)])
    monkeypatch.setattr(Clock, "nodes", lambda *_: next(nodes))
    compare_as(monkeypatch, lambda _: measured(ratio))
    proto = branches()
    optimized = superopt.optimize(proto, budget=60.0)
    assert optimized.report.accepted == (ratio > 1)
    assert not optimized.report.rules
    if optimized.report.accepted:
        assert {name for node in optimized.model.graph.node for name in node.output}.isdisjoint({"p0.0", "s0.1"})
        for a, b in zip(run(proto), run(optimized.model), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    else:
        assert optimized.model is proto


def never(*_: object, **__: object) -> Comparison:
    raise AssertionError("nothing was to be compared, or checked")


def test_nodes_of_which_onnxruntime_makes_the_same_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SWAP)
    monkeypatch.setattr(FLOW, "relower", relower)
    compare_as(monkeypatch, never)
    proto = branches()
    assert superopt.optimize(proto, budget=60.0).model is proto


def test_what_is_to_save_too_little_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    monkeypatch.setattr(FLOW, "OPTIMIZATION", replace(OPTIMIZATION, min_saved_time_share=10.0))
    compare_as(monkeypatch, never)
    proto = branches()
    optimized = superopt.optimize(proto, budget=60.0)
    assert optimized.model is proto
    assert "nothing faster was found (the improvements that were found would save " in optimized.report.reason


def test_a_candidate_that_does_not_measure_faster_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(1.01))
    proto = branches()
    optimized = superopt.optimize(proto, budget=60.0)
    assert optimized.model is proto
    assert not optimized.report.accepted
    assert optimized.report.timing is not None
    assert optimized.report.timing.speedup == 1.01
    assert optimized.report.speedup == 1.0
    assert "the original is kept" in optimized.report.reason


def test_what_is_not_faster_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(1.01))
    monkeypatch.setattr(f"{EVERYWHERE}.check_all", never)
    report = superopt.optimize(branches(), budget=60.0).report
    assert report.timing is not None
    assert report.rounding is None
    assert "check" not in report.seconds


def two_sizes() -> onnx.ModelProto:
    """Return two separate groups of parallel products of different sizes: two segments, both with something to gain."""
    nodes, weights, x = [], [], "x"
    for size, branches_here in ((192, BRANCHES), (128, 4)):
        names = [f"w{size}.{branch}" for branch in range(branches_here)]
        weights += [weight(name, 192, size) if size == 128 else weight(name, size, size) for name in names]
        nodes += [helper.make_node("MatMul", [x, name], [f"p{name}"]) for name in names]
        nodes.append(helper.make_node("Sum", [f"p{name}" for name in names], [f"s{size}"]))
        x = f"x{size}"
        nodes.append(helper.make_node("Sin", [f"s{size}"], [x]))
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    return model(nodes, {"x": [96, 192]}, {"y": [96, 128]}, weights)


def test_where_all_rewrites_together_are_not_faster_fewer_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    tried: list[int] = []

    def by_size(candidate: onnx.ModelProto) -> Comparison:
        tried.append(len(candidate.graph.node))
        return measured(1.5 if len(tried) > 1 else 0.9)

    compare_as(monkeypatch, by_size)
    optimized = superopt.optimize(two_sizes(), budget=60.0)
    assert optimized.report.accepted
    assert tried[1] > tried[0]
    assert len(optimized.model.graph.node) == tried[1]
    assert "1 of 2 improved segments" in optimized.report.reason
    assert [rule.times for rule in optimized.report.rules] == [BRANCHES - 1]


def test_where_no_choice_of_rewrites_is_faster_the_first_comparison_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    ratios = iter([1.01, 0.9, 0.8])
    compare_as(monkeypatch, lambda _: measured(next(ratios)))
    optimized = superopt.optimize(two_sizes(), budget=60.0)
    assert not optimized.report.accepted
    assert optimized.report.timing is not None
    assert optimized.report.timing.speedup == 1.01


def test_a_second_run_tries_no_more_choices_than_the_first_had_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    tried: list[int] = []

    def slowly(candidate: onnx.ModelProto) -> Comparison:
        tried.append(len(candidate.graph.node))
        time.sleep(1.0)
        return measured(0.9)

    compare_as(monkeypatch, slowly)
    monkeypatch.setattr(FLOW, "OPTIMIZATION", replace(OPTIMIZATION, retry_seconds=1.0))
    first = superopt.optimize(two_sizes(), budget=60.0).report
    again = superopt.optimize(two_sizes(), budget=60.0).report
    assert len(tried) == 1
    assert first.timing == again.timing


@pytest.mark.parametrize("fails", [False, True])
def test_a_second_run_checks_nothing_again(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    checked: list[object] = []

    def judged(*args: Any, **how: Any) -> object:
        checked.append(args)
        if fails:
            raise CheckFailedError("output 'y' strays")
        return check_all(*args, **how)

    monkeypatch.setattr(f"{EVERYWHERE}.check_all", judged)
    counts: list[int] = []
    for _ in range(2):
        report = superopt.optimize(branches(), budget=60.0).report
        assert report.accepted == (not fails)
        assert report.failed == ("output 'y' strays" if fails else "")
        assert (report.rounding is None) == fails
        counts.append(len(checked))
    assert counts[0] == counts[1] > 0


def test_where_the_result_cannot_be_run_the_model_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite may turn a position into NaN (infinity times zero), which is outside of every table.

    A proof over real numbers does not cover infinities.
    """
    use(monkeypatch, FACTOR)

    def stops(_: onnx.ModelProto) -> Comparison:
        raise InvalidModelError("ONNX Runtime cannot run the model: a position is out of bounds")

    compare_as(monkeypatch, stops)
    model = branches()
    optimized = superopt.optimize(model, budget=60.0)
    assert not optimized.report.accepted
    assert "out of bounds" in optimized.report.reason
    assert optimized.model == model


def test_the_time_for_the_search_is_that_of_the_first_run_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    seconds = iter([0.11, 0.12])
    monkeypatch.setattr("superopt.cost.first_run.first_run", lambda *_, **__: FirstRun(seconds=next(seconds)))
    monkeypatch.setattr("superopt.cost.first_run.measure_search_pace", lambda: 1.0)
    first, again = (superopt.optimize(branches()).report.budget for _ in range(2))
    assert first == again == search_budget_seconds(0, 0.11, 1, 0)
    assert next(seconds) == 0.12


@pytest.mark.parametrize(("opening", "tried"), [(0.1, True), (9.0, False)])
def test_nodes_as_they_are_written_are_tried_where_sessions_are_soon_made(
    monkeypatch: pytest.MonkeyPatch, opening: float, tried: bool
) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    monkeypatch.setattr("superopt.cost.first_run.first_run", lambda *_, **__: FirstRun(opening=opening))
    monkeypatch.setattr(FLOW, "relower", relower)
    asked: list[CandidateJudge] = []

    def is_promising(judge: CandidateJudge, *_: object) -> bool:
        asked.append(judge)
        return False

    monkeypatch.setattr(CandidateJudge, "is_promising", is_promising)
    superopt.optimize(branches(), budget=60.0)
    assert bool(asked) == tried


@pytest.mark.parametrize(("patience", "low"), [(15.0, 1.1), (0.0, 1.01)])
def test_what_the_noise_hides_is_measured_once_more(monkeypatch: pytest.MonkeyPatch, patience: float, low: float) -> None:
    use(monkeypatch, FACTOR)
    monkeypatch.setattr("superopt.search.judging.OPTIMIZATION", replace(OPTIMIZATION, repeated_comparison_seconds=patience))
    noisy = Comparison(original=1.1, candidate=1.0, ratio=1.1, low=1.01, high=1.2, control=1.0, noise=0.05, rounds=9)
    found = iter([noisy, measured(1.1)])
    compare_as(monkeypatch, lambda _: next(found))
    report = superopt.optimize(branches(), budget=60.0).report
    assert report.accepted == (low > 1.05)
    assert report.timing is not None
    assert report.timing.low == low


def test_rewrites_that_fail_the_check_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    checked: list[int] = []
    passes = check_all

    def strict(original: onnx.ModelProto, candidate: onnx.ModelProto, *rest: Any, **more: Any) -> object:
        checked.append(len(candidate.graph.node))
        if len(checked) == 1:
            raise CheckFailedError("output 'y'")
        return passes(original, candidate, *rest, **more)

    monkeypatch.setattr(f"{EVERYWHERE}.check_all", strict)
    report = superopt.optimize(two_sizes(), budget=60.0).report
    assert report.accepted
    assert report.nodes_after == checked[1]


def test_of_one_segment_whose_steps_fail_the_check_fewer_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    products: list[int] = []

    def strict(original: onnx.ModelProto, candidate: onnx.ModelProto, *rest: Any, **more: Any) -> object:
        products.append(sum(node.op_type in ("MatMul", "Gemm") for node in candidate.graph.node))
        if products[-1] <= BRANCHES // 2:
            raise CheckFailedError("output 'y'")
        return check_all(original, candidate, *rest, **more)

    monkeypatch.setattr(f"{EVERYWHERE}.check_all", strict)
    report = superopt.optimize(branches(), budget=60.0).report
    assert report.accepted
    assert products == [1, BRANCHES - (BRANCHES - 1) // 2]
    assert [rule.times for rule in report.rules] == [(BRANCHES - 1) // 2]


def test_where_nothing_passes_the_check_the_original_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: [replace(parse_rule(WRONG), flags=frozenset())])
    compare_as(monkeypatch, lambda _: measured(2.0))
    nodes = [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Relu", ["s"], ["r"])]
    proto = model([*nodes, helper.make_node("Sin", ["r"], ["y"])], {"x": [512, 512]}, {"y": [512, 512]})
    optimized = superopt.optimize(proto, budget=60.0)
    assert optimized.model is proto
    assert not optimized.report.accepted
    assert "output 'y'" in optimized.report.failed
    assert optimized.report.reason == f"the rewritten model fails the check ({optimized.report.failed}); the original is kept"
    assert not optimized.report.rules


def test_without_time_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    optimized = superopt.optimize(branches(), budget=0.0)
    assert not optimized.report.accepted
    assert optimized.report.stopped == "the budget is spent"


@pytest.mark.parametrize(("moves", "found"), [(("rules",), True), (("mutants",), False), ((), False)])
def test_the_search_makes_the_moves_that_are_chosen(
    monkeypatch: pytest.MonkeyPatch, moves: tuple[str, ...], found: bool
) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(1.0))
    report = superopt.optimize(branches(), budget=60.0, moves=moves).report
    assert any("factor" in segment.rules for segment in report.segments) == found
    assert bool(report.segments) == bool(moves)


def test_the_time_that_is_not_given_is_by_the_size_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    assert 1.0 <= measure_search_pace() <= 3.0
    monkeypatch.setattr("superopt.cost.first_run.measure_search_pace", lambda: 1.2)
    proto = branches()
    assert (
        superopt.optimize(proto, moves=()).report.budget
        == search_budget_seconds(len(proto.graph.node), 0.0, 1, 0, 1.2)
        == 1.2 * OPTIMIZATION.min_search_seconds
    )
    assert search_budget_seconds(170, 0.0, 1, 0) == pytest.approx(22.2, abs=0.1)
    assert search_budget_seconds(10, 0.12, 1, 0) == 24.0
    assert search_budget_seconds(1000, 0.0, 1, 0) == OPTIMIZATION.max_search_seconds
    assert (
        OPTIMIZATION.max_search_seconds
        > search_budget_seconds(1000, 0.1, 1, 0)
        > search_budget_seconds(1000, 0.1, 2, 0)
        > search_budget_seconds(1000, 0.2, 2, 0)
        > OPTIMIZATION.min_search_seconds
    )
    assert (
        OPTIMIZATION.max_search_seconds
        > search_budget_seconds(1000, 0.0, 1, 2**27)
        > search_budget_seconds(1000, 0.0, 1, 2**28)
        > OPTIMIZATION.min_search_seconds
        == search_budget_seconds(1000, 0.0, 1, 2**34)
    )
    assert search_budget_seconds(1000, 10.0, 1, 0) == OPTIMIZATION.min_search_seconds
    assert [search_budget_seconds(0, 0.0, 1, 0, pace) for pace in (1.0, 1.5, 9.0)] == [
        OPTIMIZATION.min_search_seconds,
        1.5 * OPTIMIZATION.min_search_seconds,
        OPTIMIZATION.max_search_seconds,
    ]
    assert search_budget_seconds(10, 0.12, 1, 0, 1.1) == 24.0


def test_a_move_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown move 'luck'"):
        superopt.optimize(branches(), moves=("luck",))


def test_an_unknown_provider_and_a_model_that_does_not_load_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    with pytest.raises(ProviderError, match="unknown provider 'tpu'"):
        superopt.optimize(branches(), provider="tpu")
    broken = branches()
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(InvalidModelError, match="ONNX Runtime cannot load"):
        superopt.optimize(broken)


def test_texts_and_sequences_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    proto = branches()
    proto.graph.node.append(helper.make_node("SplitToSequence", ["y"], ["rows"], axis=0))
    proto.graph.node.append(helper.make_node("Identity", ["text"], ["words"]))
    proto.graph.input.append(helper.make_tensor_value_info("text", onnx.TensorProto.STRING, [2]))
    proto.graph.output.append(helper.make_tensor_value_info("words", onnx.TensorProto.STRING, [2]))
    proto.graph.output.append(helper.make_tensor_sequence_value_info("rows", onnx.TensorProto.FLOAT, None))
    report = superopt.optimize(proto, budget=60.0).report
    assert report.accepted, report.reason


def test_a_model_whose_inputs_cannot_be_made_is_returned_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    proto = branches()
    proto.graph.node.append(helper.make_node("SequenceLength", ["many"], ["length"]))
    proto.graph.input.append(helper.make_tensor_sequence_value_info("many", onnx.TensorProto.FLOAT, None))
    proto.graph.output.append(helper.make_tensor_value_info("length", onnx.TensorProto.INT64, []))
    optimized = superopt.optimize(proto, budget=60.0)
    assert optimized.model is proto
    assert not optimized.report.accepted
    why = "no values of type seq(tensor(float)) can be made for the input 'many'"
    assert optimized.report.reason == f"the model runs on none of the random inputs that were tried ({why})"


def test_the_report_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    compare_as(monkeypatch, lambda _: measured(2.0))
    report = superopt.optimize(branches(), budget=60.0, seed=7, threads=1).report
    read = json.loads(report.json())
    assert read["speedup"] == 2.0
    assert read["seed"] == 7
    assert read["rules"][0]["name"] == "factor"
    assert read["environment"]["provider"] == "cpu"
    assert set(read["environment"]["versions"]) >= {"python", "onnx", "onnxruntime", "superopt"}


def test_optimizing_runs_where_z3_is_not_installed(tmp_path: Path) -> None:
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": [3]}), tmp_path / "m.onnx")
    script = (
        "import sys; sys.modules['z3'] = None; import superopt; "
        f"print(superopt.optimize({str(tmp_path / 'm.onnx')!r}, cache={str(tmp_path / 'c')!r}).report.accepted)"
    )
    root = Path(__file__).resolve().parent.parent
    finished = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert finished.stdout == "False\n", finished.stderr


# ---------------------------------------------------------------- canonical states


def test_states_that_differ_in_names_alone_are_one() -> None:
    def block(names: str) -> tuple[superopt.algebra.terms.Term, ...]:
        x, v, w, b = (
            variable(n, s, constant=n != names[0]) for n, s in zip(names, [(4, 6), (6, 8), (6, 8), (8,)], strict=True)
        )
        bias = apply("expand", b, shape=(4, 8), axes=(-1,))
        left, right = apply("matmul", x, v), apply("matmul", x, w)
        return apply("add", left, right, bias), apply("relu", left)

    forms = {canonical(block(names)).outputs for names in ("xvwb", "pqrs", "zyxw", "bwvx", "kacd")}
    assert len(forms) == 1


def test_a_canonical_state_reads_back() -> None:
    x, w = variable("x", (4, 6)), variable("w", (6, 6), constant=True)
    state = (apply("matmul", apply("matmul", x, w), w), apply("relu", x))
    form = canonical(state)
    assert {t.name for t in form.names.values()} == {"x", "w"}
    assert form.restored(form.outputs) == state


def test_different_wirings_stay_different() -> None:
    x, y = variable("x", (4, 4)), variable("y", (4, 4))
    assert canonical((apply("matmul", x, y),)).outputs != canonical((apply("matmul", x, x),)).outputs
    assert canonical((apply("sub", x, apply("relu", y)),)).outputs != canonical((apply("sub", apply("relu", y), x),)).outputs


def test_rules_are_not_read_where_nothing_can_be_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: pytest.fail("rules are read"))
    report = superopt.optimize(model([helper.make_node("Sin", ["x"], ["y"])], {"x": [4]}, {"y": [4]}), budget=60.0).report
    assert (report.islands, report.accepted) == (0, False)


def test_garbage_is_collected_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    before = gc.get_threshold()
    within: list[tuple[int, int, int]] = []
    superopt.optimize(branches(), budget=60.0, progress=lambda _: within.append(gc.get_threshold()))
    assert gc.get_threshold() == before
    assert min(within) > before


def test_a_search_that_nests_too_deep_leaves_its_segment_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(*_: object, **__: object) -> None:
        raise RecursionError

    use(monkeypatch, FACTOR)
    monkeypatch.setattr("superopt.search.passes.search_island", nested)
    compare_as(monkeypatch, lambda _: measured(1.5))
    report = superopt.optimize(branches(), budget=60.0, moves=("rules",)).report
    assert report.accepted
    assert report.windows_left == {"RecursionError:": 1}
    assert report.segments[0].rules == ()


@pytest.mark.parametrize("name", ["seed", "threads", "tolerance", "budget", "growth"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_numbers_that_are_none_are_refused(name: str, value: float) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} must be"):
        superopt.optimize(branches(), **options)
