"""Fusions to contrib operators of ONNX Runtime: recognition, lowering, lifting, and use only if the operators are allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.algebra.dim_binding import dimension
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.cost.segment_cost import Measured
from superopt.errors import CertificateError
from superopt.flows.verify import verify
from superopt.model.available_fusions import contrib_fusions
from superopt.model.islands import Chart
from superopt.model.load import as_proto, load
from superopt.model.lower import lower
from superopt.model.splice import Replacement, splice
from superopt.policy import COMPARISON, SEARCH
from superopt.protobuf.nodes import domains
from superopt.rules.fusion import fusions
from superopt.rules.instances import instantiations, term_at
from superopt.search.apply import State
from superopt.search.backtracking import SearchResult
from superopt.search.fuse import fusion_states, with_fusions
from superopt.search.ruleset import RuleSet
from superopt.verification.certificates import CertifiedStep, Rewrite
from superopt.verification.steps import CheckedStep, StepChecker, StepEvidence
from tests.operator_cases import Array, arrays_for, evaluated, ran

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
RULES = RuleSet(contrib_fusions())
HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE


def operators(state: Sequence[Term]) -> list[str]:
    return [t.op for t in subterms(*state) if not t.is_variable and not t.constant]


def heads_of(x: Term, perm: tuple[int, ...] = (0, 2, 1, 3)) -> Term:
    """Return the heads of x[b, s, h d] along a separate axis."""
    return apply("transpose", apply("reshape", x, shape=(*x.shape[:2], HEADS, SIZE)), perm=perm)


def linear(x: Term, name: str, *, rows: bool = False) -> Term:
    """Return x times a weight, plus a bias. With `rows`, the product is one of matrices."""
    w = variable(f"{name}.weight", (x.shape[-1], WIDTH), constant=True)
    bias = variable(f"{name}.bias", (WIDTH,), constant=True)
    flat = apply("reshape", x, shape=(math.prod(x.sizes[:-1]), x.sizes[-1])) if rows else x
    product = apply("matmul", flat, w)
    product = apply("reshape", product, shape=(*x.shape[:-1], WIDTH)) if rows else product
    return apply("add", product, apply("expand", bias, shape=product.shape, axes=(-1,)))


def attention(x: Term, *, turned: bool = True, scale: float = 0.5, rows: bool = False) -> Term:
    """Return an encoder's attention as models write it.

    With `turned`, one transpose forms the heads of the keys and turns them. Otherwise, two transposes do this.
    """
    q, k, v = (linear(x, name, rows=rows) for name in "qkv")
    keys = heads_of(k, (0, 2, 3, 1)) if turned else apply("transpose", heads_of(k), perm=(0, 1, 3, 2))
    scores = apply("matmul", heads_of(q), keys)
    weights = apply("softmax", apply("scale", scores, factor=scale) if scale != 1 else scores, axis=-1)
    found = apply("transpose", apply("matmul", weights, heads_of(v)), perm=(0, 2, 1, 3))
    return apply("reshape", found, shape=(*x.shape[:2], WIDTH))


def require_same(before: Sequence[Term], after: Sequence[Term]) -> None:
    arrays = arrays_for(*before)
    for one, other in zip(evaluated(arrays, *before), evaluated(arrays, *after), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- definitions applied backwards


@pytest.mark.parametrize("name", fusions())
def test_both_sides_of_a_fusion_are_equal(name: str) -> None:
    for equation in fusions()[name].equations:
        for seed in range(4):
            instance = next(instantiations(equation, np.random.default_rng(seed)))
            left, right = (tuple(term_at(side, instance) for side in sides) for sides in (equation.left, equation.right))
            require_same(left, right)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("scale", [1, 0.5])
def test_attention_becomes_one_operator_without_moves(turned: bool, rows: bool, scale: float) -> None:
    start = (attention(variable("x", (2, 5, 6)), turned=turned, rows=rows, scale=scale),)
    (alone, _), (whole, steps) = fusion_states(start, RULES)
    assert "softmax" not in operators(alone)
    assert operators(whole) == ["self_attention"]
    assert {step.rule.partition(".")[0] for step in steps} == {"multi_head_attention", "self_attention"}
    require_same(start, alone)
    require_same(start, whole)


def test_queries_of_another_sequence_are_no_self_attention() -> None:
    x, y = variable("x", (2, 5, 6)), variable("y", (2, 7, 6))
    scores = apply("matmul", heads_of(linear(x, "q")), heads_of(linear(y, "k"), (0, 2, 3, 1)))
    found = apply("matmul", apply("softmax", scores, axis=-1), heads_of(linear(y, "v")))
    ((after, _),) = fusion_states((found,), RULES)
    assert operators(after).count("multi_head_attention") == 1
    require_same((found,), after)


MASKS = [((2, 1, 1, 5), (-4, -1)), ((1, 1, 5, 5), (-2, -1)), ((2, 1, 5, 5), (-4, -2, -1)), ((1, 2, 5, 5), (-3, -2, -1))]


def masked(x: Term, m: Term, scale: float) -> Term:
    """Return the attention of x[2, 5, ...] to itself, with a mask that is added to the scores."""
    scores = apply("matmul", heads_of(linear(x, "q")), heads_of(linear(x, "k"), (0, 2, 3, 1)))
    scores = apply("add", apply("scale", scores, factor=scale) if scale != 1 else scores, m)
    found = apply("matmul", apply("softmax", scores, axis=-1), heads_of(linear(x, "v")))
    return apply("reshape", apply("transpose", found, perm=(0, 2, 1, 3)), shape=(*x.shape[:2], WIDTH))


@pytest.mark.parametrize("scale", [1, 0.5])
@pytest.mark.parametrize(("shape", "axes"), [*MASKS, ((2, HEADS, 5, 5), None)])
def test_a_mask_goes_into_the_operator_as_narrow_as_it_is(
    shape: tuple[int, ...], axes: tuple[int, ...] | None, scale: float
) -> None:
    scores = (2, HEADS, 5, 5)
    narrow = variable("m", shape if axes is None else tuple(shape[a] for a in axes))
    start = masked(
        variable("x", (2, 5, 6)), narrow if axes is None else apply("expand", narrow, shape=scores, axes=axes), scale
    )
    ((after, _),) = fusion_states((start,), RULES)
    assert operators(after).count("masked_attention") == 1
    assert not {"softmax", "transpose"} & {*operators(after)}
    require_same((start,), after)
    lowered = lower({"y": after[0]}, 17)
    (node,) = (node for node in lowered.nodes if node.op_type == "com.microsoft.MultiHeadAttention")
    assert lowered.shapes.get(node.inputs[5], shape) == (*shape[:2], 5, 5)
    arrays = arrays_for(start)
    np.testing.assert_allclose(ran(lowered, {"y": start}, arrays, 17)[0], evaluated(arrays, start)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [-2, -3])
def test_softmax_along_another_axis_is_no_attention(axis: int) -> None:
    x = variable("x", (1, 5, 6))
    scores = apply("matmul", heads_of(linear(x, "q")), heads_of(linear(x, "k"), (0, 2, 3, 1)))
    found = apply("matmul", apply("softmax", scores, axis=axis), heads_of(linear(x, "v")))
    assert not [*fusion_states((found,), RULES)]


def test_every_layer_is_fused_by_the_same_steps() -> None:
    x = variable("x", (1, 5, WIDTH))
    two = attention(apply("relu", attention(x)))
    *_, (after, steps) = fusion_states((two,), RULES)
    assert operators(after) == ["self_attention", "relu", "self_attention"]
    assert [len(step.roots) for step in steps if step.rule.startswith("self_attention")] == [2]
    require_same((two,), after)


def test_the_fastest_is_taken_and_none_that_is_slower() -> None:
    start = (attention(variable("x", (1, 5, 6))),)
    found = SearchResult(start, (), 1.0, 1.0, 0, "")

    def ratio(of: str) -> SearchResult:
        return with_fusions(found, RULES, faster=lambda _, state: 2.0 if of in operators(state) else 0.5)

    assert "multi_head_attention" in operators(ratio("multi_head_attention").outputs)
    assert ratio("self_attention").after == 0.5
    assert ratio("nothing").outputs == start
    assert with_fusions(found, RuleSet(()), faster=lambda *_: 2.0) is found


def test_what_moves_around_it_goes_where_extents_are_open() -> None:
    x = variable("x", (1, dimension("length"), WIDTH))
    *_, (after, _) = fusion_states((attention(x),), RULES)
    assert operators(after) == ["self_attention"]


# ---------------------------------------------------------------- certificates


def followed(before: tuple[Term, ...], steps: Sequence[CertifiedStep], after: tuple[Term, ...]) -> list[CheckedStep]:
    """Return the steps of a rewrite as `verify` shows them."""
    return StepChecker({}, {}).follow(Rewrite((), before, tuple(steps), after))


def test_a_fusion_of_deep_layers_is_tested() -> None:
    term = variable("x", (1, 5, WIDTH))
    for _ in range(6):
        term = apply("relu", attention(term))
    *_, (after, steps) = fusion_states((term,), RULES)
    shown = followed((term,), [CertifiedStep(s.rule, s.roots, s.replacements) for s in steps], after)
    assert {one.means for one in shown} == {StepEvidence.TESTED}


def test_a_wrong_fusion_is_refused() -> None:
    start = attention(variable("x", (1, 5, 6)))
    *_, (_, steps) = fusion_states((start,), RULES)
    wrong = apply("relu", steps[0].roots[0])
    with pytest.raises(CertificateError, match="is wrong"):
        followed((start,), [CertifiedStep(steps[0].rule, steps[0].roots[:1], (wrong,))], (wrong,))


def test_steps_that_rest_on_each_other_show_nothing() -> None:
    x = variable("x", (3,))
    one, other = apply("relu", x), apply("tanh", apply("relu", x))
    swapped = CertifiedStep("multi_head_attention.plain", (one, other), (apply("tanh", one), one))
    with pytest.raises(CertificateError, match="is wrong"):
        followed((one, other), [swapped], (apply("tanh", one), one))


# ---------------------------------------------------------------- models


def encoder(path: Path, layers: int = 1, width: int = 32, heads: int = 4, length: int = 8) -> Path:
    """Save a model of attention with an output layer, in standard operators at opset 17."""
    nodes, weights = list[onnx.NodeProto](), list[onnx.TensorProto]()

    def stored(name: str, array: Array) -> str:
        weights.append(numpy_helper.from_array(array, name))
        return name

    apart = stored("apart", np.array([1, length, heads, width // heads]))
    together = stored("together", np.array([1, length, width]))
    root = stored("root", np.array(np.sqrt(width // heads), np.float32))
    value = "x"
    for layer in range(layers):
        for part in "qkvo":
            stored(f"{layer}.{part}.w", (RNG.standard_normal((width, width)) / 6).astype(np.float32))
            stored(f"{layer}.{part}.b", RNG.standard_normal(width).astype(np.float32))

        def node(op_type: str, *inputs: str, layer: int = layer, **attributes: Any) -> str:
            nodes.append(helper.make_node(op_type, inputs, [f"{layer}.{len(nodes)}"], **attributes))
            return str(nodes[-1].output[0])

        def dense(part: str, x: str, layer: int = layer) -> str:
            return node("Add", node("MatMul", x, f"{layer}.{part}.w"), f"{layer}.{part}.b")

        split = {part: node("Reshape", dense(part, value), apart) for part in "qkv"}
        q, v = (node("Transpose", split[part], perm=[0, 2, 1, 3]) for part in "qv")
        scores = node("Div", node("MatMul", q, node("Transpose", split["k"], perm=[0, 2, 3, 1])), root)
        mixed = node("Transpose", node("MatMul", node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        value = node("Add", dense("o", node("Reshape", mixed, together)), value)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, length, width]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "encoder", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def fused_model(path: Path, count: int) -> onnx.ModelProto:
    """Return the model after `count` fusions, without regard to measured times."""
    model = load(path).model
    replacements = []
    for island in Chart(model).islands():
        state = [*fusion_states(tuple(island.outputs.values()), RULES)][count - 1][0]
        replacements.append(Replacement(dict(zip(island.outputs, state, strict=True)), island.dtype))
    return as_proto(splice(model, replacements))


@pytest.mark.parametrize(("count", "op_type"), [(1, "MultiHeadAttention"), (2, "Attention")])
def test_a_fused_model_imports_the_domain_and_is_read_again(tmp_path: Path, count: int, op_type: str) -> None:
    original = encoder(tmp_path / "in.onnx", layers=3)
    proto = fused_model(original, count)
    assert sum(n.op_type == op_type and n.domain == "com.microsoft" for n in proto.graph.node) == 3
    assert {o.domain: o.version for o in proto.opset_import} == {"": 17, "com.microsoft": 1}
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path := tmp_path / "fused.onnx")
    (island,) = Chart(load(path).model).islands()
    assert len(island.nodes) == len(proto.graph.node)


def test_what_is_not_allowed_is_not_written_but_told(tmp_path: Path) -> None:
    path = encoder(tmp_path / "in.onnx", layers=2)
    found = superopt.optimize(path, budget=2.0, cache=tmp_path / "cache")
    assert not any(o for o in found.model.opset_imports if o not in ("", "ai.onnx"))
    assert found.report.forgone >= 0


def test_what_would_be_gained_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encoder(tmp_path / "in.onnx", layers=2, width=64, length=16)
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._faster", lambda *_: 1.5)
    first = superopt.optimize(path, budget=10.0, moves=(), cache=tmp_path / "cache").report
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._faster", lambda *_: pytest.fail("measured again"))
    second = superopt.optimize(path, budget=10.0, moves=(), cache=tmp_path / "cache").report
    assert second.forgone == first.forgone > 0


def test_in_a_long_model_fusions_are_weighed_by_their_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encoder(tmp_path / "in.onnx", layers=2, width=64, length=16)
    seconds = Measured.seconds

    def fused_is_free(self: Measured, outputs: State, beside: State | None = None) -> float:
        heads = any(term.op == "multi_head_attention" for term in subterms(*outputs))
        return (0.5 if heads else 1.0) * seconds(self, outputs, beside)

    monkeypatch.setattr("superopt.search.segment_search.COMPARISON", replace(COMPARISON, long_run_seconds=0.0))
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._faster", lambda *_: pytest.fail("a whole was measured"))
    monkeypatch.setattr(Measured, "seconds", fused_is_free)
    found = superopt.optimize(path, budget=10.0, moves=(), cache=tmp_path / "cache").report
    assert found.forgone > 0


def test_state_with_slower_kernels_is_not_timed_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encoder(tmp_path / "in.onnx", layers=2, width=64, length=16)
    seconds = Measured.seconds

    def fused_is_slow(self: Measured, outputs: State, beside: State | None = None) -> float:
        return (1.0 if outputs == beside else 50.0) * seconds(self, outputs, beside)

    monkeypatch.setattr("superopt.search.segment_search.SEARCH", replace(SEARCH, min_summed_seconds=0.0))
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._faster", lambda *_: pytest.fail("a whole was measured"))
    monkeypatch.setattr(Measured, "seconds", fused_is_slow)
    found = superopt.optimize(path, budget=10.0, moves=(), cache=tmp_path / "cache").report
    assert found.forgone == 0


def test_an_allowed_fusion_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encoder(tmp_path / "in.onnx", layers=2, width=64, length=16)
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._faster", lambda *_: 1.5)
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._stands", lambda *_: True)
    monkeypatch.setattr("superopt.runtime.multi_shape.SizeComparisons.faster", property(lambda _: True))
    found = superopt.optimize(path, budget=4.0, moves=("rules",), allow_contrib=True, cache=tmp_path / "cache")
    assert found.report.forgone == 0
    assert any(rule.name.startswith("multi_head_attention.") for rule in found.report.rules)
    found.save(out := tmp_path / "out.onnx")
    assert found.model.opset_imports["com.microsoft"] == 1
    assert "tested" in [kind.how for kind in verify(path, out, found.certificate).kinds]


def test_lowering_says_which_domains_it_needs() -> None:
    q = variable("q", (1, 3, 4))
    term = apply("multi_head_attention", q, q, q, heads=2, scale=1)
    lowered = lower({"y": term}, 17)
    assert domains(lowered) == ["com.microsoft"]
    arrays = arrays_for(term)
    np.testing.assert_allclose(ran(lowered, {"y": term}, arrays, 17)[0], evaluated(arrays, term)[0], rtol=1e-4, atol=1e-5)
