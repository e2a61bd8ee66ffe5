"""Values that are provably never NaN: guards against NaN are removed, and so are operators without effect."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.algebra.value_analysis import UNBOUNDED, UNKNOWN, Facts, facts_of
from superopt.model.islands import Chart
from superopt.model.load import as_proto, load
from superopt.rules.store import load_rules
from superopt.search.apply import State, Step
from superopt.search.backtracking import Cost, SearchLimits, SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.segments import relower, whole_islands
from superopt.search.selection import splice_passes
from superopt.search.vanish import remove_vanishing, search_cleaned
from tests.models import run

X, Y = variable("x", (3, 4)), variable("y", (3, 4))
ONES = apply("ones", shape=(3, 4))
POSITIVE = Facts(0.0, zero=False)


@pytest.mark.parametrize(
    ("term", "least"),
    [
        (apply("relu", X), Facts(0.0)),
        (apply("exp", X), POSITIVE),
        (apply("mul", X, X), Facts(0.0)),
        (apply("power", X, exponent=2), Facts(0.0)),
        (apply("add", apply("power", X, exponent=2), apply("scale", ONES, factor=2)), Facts(2.0, zero=False)),
        (apply("reduce_sum", apply("exp", X), axes=(-1,)), POSITIVE),
        (apply("reduce_mean", apply("mul", X, X), axes=(-1,)), Facts(0.0)),
        (apply("softmax", X, axis=-1), POSITIVE),
        (apply("sub", apply("scale", ONES, factor=3), ONES), Facts(2.0, 2.0, zero=False)),
        (apply("layer_norm", X, epsilon=1e-5), Facts(-1024.0)),
        (apply("reciprocal", apply("sqrt", apply("add", apply("relu", X), ONES))), POSITIVE),
        (apply("matmul", X, apply("transpose", Y, perm=(-1, -2))), UNBOUNDED),
        (apply("where", apply("less", X, Y), apply("relu", X), ONES), Facts(0.0)),
    ],
    ids=str,
)
def test_where_the_values_of_a_term_lie(term: Term, least: Facts) -> None:
    found = facts_of(term, {"x": UNBOUNDED, "y": UNBOUNDED})
    assert found.defined
    assert (found.low, found.zero) == (least.low, least.zero)
    assert found.high >= least.high or least.high == np.inf


@pytest.mark.parametrize(
    "term",
    [
        apply("reciprocal", X),
        apply("mul", X, apply("reciprocal", Y)),
        apply("sqrt", X),
        apply("log", apply("relu", X)),
        apply("power", X, exponent=-1),
        apply("reciprocal", apply("mul", X, X)),
        apply("reciprocal", apply("sub", apply("exp", X), ONES)),
    ],
    ids=str,
)
def test_what_may_be_no_number(term: Term) -> None:
    assert not facts_of(term, {"x": UNBOUNDED, "y": UNBOUNDED}).defined


def test_what_is_not_known_of_a_variable_is_not_known_of_the_term() -> None:
    assert facts_of(apply("relu", X), {}) == UNKNOWN


def test_ranges_hold_what_evaluation_gives() -> None:
    numbers = np.random.default_rng(0).standard_normal((3, 4))
    squares = facts_of(apply("power", X, exponent=2), {"x": Facts(float(numbers.min()), float(numbers.max()))})
    assert squares.low <= (numbers**2).min()
    assert (numbers**2).max() <= squares.high


def guarded(mask: str, weights: str = "", *, before: str = "") -> ModelProto:
    """Return a model with a softmax of masked values that is guarded as in exported models, times further values."""
    text = f"""
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (float[2, 3] x, float[3, 4] v, bool[2, 3] c) => (float[2, 4] out)
        <float zero = {{0.0}}, float low = {{-3.4e38}}, float[3, 3] e = {{1, 2, 0, 0, 1, 0, 0, 3, 1}} {weights}>
        {{
            {before}
            m = {mask}
            h = Gemm(x, e)
            s = Add(h, m)
            p = Softmax<axis = -1>(s)
            n = IsNaN(p)
            q = Where(n, zero, p)
            out = MatMul(q, v)
        }}
    """
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    "mask", ["Where(c, zero, low)", "Where(w, zero, low)", "Sigmoid(x)", "Cos(x)", "Cast<to = 1>(c)"], ids=str
)
def test_a_guard_against_nothing_is_none(mask: str) -> None:
    model = guarded(mask, ", bool[2, 3] w = {1, 1, 0, 1, 0, 0}")
    found = Chart(load(model).model).islands()
    assert any({"Softmax", "Where", "MatMul"} <= {n.op_type for n in island.nodes} for island in found)
    assert not any("p" in island.outputs for island in found)


@pytest.mark.parametrize(
    ("mask", "weights", "before"),
    [
        ("Where(c, zero, inf)", ", float inf = {-inf}", ""),
        ("Identity(x)", "", ""),
        ("Identity(w)", ", float[2, 3] w = {0, 0, 0, -inf, -inf, -inf}", ""),
        ("Div(zero, x)", "", ""),
        ("Log(x)", "", ""),
        ("Sqrt(x)", "", ""),
        ("Mul(r, x)", "", "r = Reciprocal(x)"),
    ],
)
def test_a_guard_that_may_be_needed_stays(mask: str, weights: str, before: str) -> None:
    model = guarded(mask, weights, before=before)
    islands = Chart(load(model).model).islands()
    assert not any({"Softmax", "MatMul"} <= {n.op_type for n in island.nodes} for island in islands)


@pytest.mark.parametrize(("weights", "number"), [("3, -4, 0", True), ("0, 0, 0", False)])
def test_what_comes_of_weights_is_computed_where_nothing_shows_that_it_is_a_number(weights: str, number: bool) -> None:
    before = "l = ReduceL2<keepdims = 1>(w) r = Reciprocal(l) t = Tanh(x)"
    model = guarded("Mul(r, t)", f", float[3] w = {{{weights}}}", before=before)
    islands = Chart(load(model).model).islands()
    assert any({"Softmax", "MatMul"} <= {n.op_type for n in island.nodes} for island in islands) == number


def test_a_guard_that_somebody_else_asks_keeps_what_it_is_of() -> None:
    model = guarded("Where(c, zero, low)")
    model.graph.output.append(onnx.helper.make_tensor_value_info("n", onnx.TensorProto.BOOL, [2, 3]))
    (island,) = Chart(load(model).model).islands()
    assert "p" in island.outputs


@pytest.mark.parametrize("infinite", [False, True])
def test_what_is_written_without_guards_computes_the_same(infinite: bool) -> None:
    low = ", float inf = {-inf}" if infinite else ""
    proto = guarded(f"Where(c, zero, {'inf' if infinite else 'low'})", low)
    model = load(proto).model
    after = splice_passes(model, (relower(whole_islands(Chart(model), {}), load_rules()),))
    assert ("IsNaN" in {node.op_type for node in after.graph}) == infinite
    np.testing.assert_allclose(run(as_proto(after))[0], run(proto)[0], rtol=1e-6)


def test_what_a_guard_reads_is_there_as_long_as_somebody_asks_the_guard() -> None:
    model = guarded("Where(c, zero, low)")
    chart = Chart(load(model).model)
    (island,) = chart.islands()
    before = [node for node in island.nodes if node.op_type not in ("Where", "MatMul") or node.outputs[0].name == "m"]
    assert "p" in chart.island(before).outputs
    assert "p" not in island.outputs


def test_where_a_condition_is_known_one_operand_is_taken() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (float[3] x, float[2, 3] y) => (float[2, 3] out)
        <bool[2, 3] never = {0, 0, 0, 0, 0, 0}, bool[1, 3] always = {1, 1, 1}>
        {
            a = Where(never, x, y)
            b = Where(always, a, x)
            out = Relu(b)
        }
    """)
    (island,) = Chart(load(model).model).islands()
    assert island.outputs["out"] is apply("relu", variable("y", (2, 3)))


@pytest.mark.slow
def test_what_computes_nothing_vanishes_step_by_step() -> None:
    zeros = apply("zeros", shape=(3, 4))
    start = (apply("relu", apply("add", apply("add", X, zeros), zeros)),)
    state, steps = remove_vanishing(start, RuleSet(load_rules()))
    assert state == (apply("relu", X),)
    assert {step.rule for step in steps} == {"add-zeros-to-x"}
    assert remove_vanishing(state, RuleSet(load_rules())) == (state, ())


@pytest.mark.parametrize(("after", "taken"), [(3.0, 2), (2.0, 1), (1.0, 0)])
def test_a_search_begins_where_nothing_vanishes(after: float, taken: int) -> None:
    """`after` is the cost without the zeros. The search lowers a cost above 2 to 2."""
    start, clean, better = (apply("add", X, apply("zeros", shape=(3, 4))),), (X,), (apply("relu", X),)
    seen: list[State] = []

    def find(state: State, _: RuleSet, /, *, estimate: Cost, measure: Cost, limits: SearchLimits | None) -> SearchResult:
        seen.append(state)
        steps = (Step("r", clean, better),) if after > 2 else ()
        return SearchResult(better if steps else clean, steps, after, min(after, 2.0), 1, "")

    before = 2.5 if taken else 1.0
    rules = RuleSet(load_rules())
    found = search_cleaned(find, start, rules, estimate=lambda _: 0.0, measure=lambda _: before, limits=None)
    assert seen == [clean]
    assert found.before == before
    assert len(found.steps) == taken
    assert found.outputs == (start if not taken else better if taken == 2 else clean)
