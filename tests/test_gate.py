"""The matches that the floating-point modes allow: each kind of refused match, and a similar match whose condition is
provable.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable, variables
from superopt.algebra.value_analysis import ANYTHING, ORDINARY_INPUT, UNBOUNDED, Facts
from superopt.model.islands import Chart, Charts
from superopt.model.load import as_proto, load
from superopt.rules.fp_flags import FpFlag, FpMode
from superopt.rules.rule import Rule, parse_rule
from superopt.rules.store import load_rules
from superopt.search.absorption import absorption
from superopt.search.apply import run_time_terms
from superopt.search.gate import SPECIAL_VALUES, Gate, sum_cancels_in_state
from superopt.search.ruleset import RuleSet
from superopt.search.segments import relower, whole_islands
from superopt.search.selection import splice_passes
from tests.models import run

NONE: frozenset[FpFlag] = frozenset()
SPECIAL = frozenset({FpFlag.NNAN, FpFlag.NINF})
RANKS = "for x[1, 2, 3, 4], y[1, 2, 3, 4]"
OUT_OF_WHERE = parse_rule(
    "out-of-where: where(c, x * y, zeros(shape=c.shape)) => where(c, x, zeros(shape=c.shape)) * y "
    "for x[1, 2, 3, 4], y[1, 2, 3, 4], c[1, 2, 3, 4]"
)
OF_LOGARITHMS = parse_rule(f"of-logarithms: log(x) + log(y) => log(x * y) {RANKS}")
OF_RECIPROCALS = parse_rule(f"of-reciprocals: reciprocal(x) * reciprocal(y) => reciprocal(x * y) {RANKS}")
ROUNDED = parse_rule(f"rounded: (x + y) - y => x {RANKS}")
CLIPPED = parse_rule(f"clipped: relu(x - y) => x - minimum(x, y) {RANKS}")
DISTRIBUTED = parse_rule("distributed: x @ v + x @ w => x @ (v + w) for x[2], v[2], w[2]")
DIAGONAL = parse_rule(
    "diagonal: x * expand(t, shape=x.shape, axes=(-1,)) => x @ (expand(t, shape=(t.shape[-1], t.shape[-1]), axes=(-1,)) * "
    "eye(n=t.shape[-1])) for x[2], t[1]"
)
X, Y, C = (variable(name, (3, 4)) for name in "xyc")
ONES, ZEROS = (apply(name, shape=(3, 4)) for name in ("ones", "zeros"))


def flagged(rule: Rule, *flags: FpFlag) -> Rule:
    return replace(rule, flags=frozenset(flags))


def admitted(rule: Rule, term: Term, mode: FpMode, result: Term | None = None, *, strict: bool = False, **facts: Facts) -> bool:
    """Return whether the mode allows a match of the rule at the term that gives `result`, or any match if `result` is None."""
    known = dict.fromkeys("xyzc", ORDINARY_INPUT) | facts
    gated = RuleSet([rule]).gated(Gate(mode, known, absorption, strict=strict))
    every, some = ([match.replacements[0] for _, match in rules.matches(term)] for rules in (RuleSet([rule]), gated))
    assert every, "the rule matches where nothing is asked"
    assert result is None or result in every
    return result in some if result is not None else len(some) > 0


def guarded(value: Term) -> tuple[Term, Term]:
    """Return where(C, X * value, 0) and where(C, X, 0) * value."""
    return apply("where", C, apply("mul", X, value), ZEROS), apply("mul", apply("where", C, X, ZEROS), value)


def sum_of_ones(least: float) -> Term:
    """Return a count that is at least `least`."""
    count = apply("relu", Y)
    return apply("maximum", count, apply("scale", ONES, factor=least)) if least else count


@pytest.mark.parametrize("mode", [FpMode.FAST, FpMode.RELAXED])
@pytest.mark.parametrize(
    ("divisor", "expected"),
    [
        (sum_of_ones(0), False),
        (sum_of_ones(1), True),
        (apply("add", apply("relu", Y), apply("scale", ONES, factor=0.001)), True),
        (apply("add", ONES, apply("sigmoid", Y)), True),
        (apply("exp", apply("tanh", Y)), True),
    ],
    ids=["count", "count of at least 1", "count and epsilon", "1 and a sigmoid", "exponential of a bounded value"],
)
def test_a_quotient_leaves_a_where_only_if_it_exists_everywhere(divisor: Term, expected: bool, mode: FpMode) -> None:
    term, outside = guarded(apply("reciprocal", divisor))
    rule = flagged(OUT_OF_WHERE, *SPECIAL)
    assert admitted(rule, term, mode, outside) == expected
    inside = apply("mul", apply("where", C, apply("reciprocal", divisor), ZEROS), X)
    assert admitted(rule, term, mode, inside)


@pytest.mark.parametrize(
    ("partial", "total"),
    [
        (apply("log", apply("relu", Y)), apply("log", apply("add", apply("relu", Y), ONES))),
        (apply("sqrt", Y), apply("sqrt", apply("abs", Y))),
        (apply("power", Y, exponent=-1), apply("power", apply("add", apply("relu", Y), ONES), exponent=-1)),
        (apply("rsqrt", apply("relu", Y)), apply("rsqrt", apply("add", apply("mul", Y, Y), ONES))),
    ],
    ids=["log", "sqrt", "power", "rsqrt"],
)
def test_other_partial_operators_are_treated_alike(partial: Term, total: Term) -> None:
    term, outside = guarded(partial)
    assert not admitted(OUT_OF_WHERE, term, FpMode.FAST, outside)
    term, outside = guarded(total)
    assert admitted(OUT_OF_WHERE, term, FpMode.FAST, outside)


def test_absorption_is_found_by_evaluation() -> None:
    found = absorption(OUT_OF_WHERE)
    assert {name for name, _ in found.exposed} == {"y"}
    assert not found.partial
    merged = absorption(DISTRIBUTED)
    assert not merged.exposed
    assert absorption(DIAGONAL).exposed == {("x", value) for value in SPECIAL_VALUES}
    assert absorption(parse_rule(f"split: log(x * y) => log(x) + log(y) {RANKS}")).partial


@pytest.mark.parametrize(
    ("rule", "term"),
    [
        (OF_LOGARITHMS, apply("add", apply("log", apply("add", X, ONES)), apply("log", apply("add", Y, ONES)))),
        (
            OF_RECIPROCALS,
            apply("mul", *(apply("reciprocal", apply("add", ONES, x)) for x in (X, Y))),
        ),
    ],
    ids=str,
)
def test_products_of_unbounded_values_are_not_formed(rule: Rule, term: Term) -> None:
    ranged = flagged(rule, FpFlag.RANGE, FpFlag.REASSOC)
    positive = Facts(0.0)
    assert not admitted(ranged, term, FpMode.RELAXED, x=positive, y=positive)
    assert admitted(ranged, term, FpMode.RELAXED, x=Facts(0.0, 1.0), y=Facts(0.0, 1.0))
    assert admitted(ranged, term, FpMode.FAST, x=positive, y=positive)


@pytest.mark.parametrize(("constant", "expected"), [(12582912, False), (3, True)])
def test_a_large_constant_that_rounds_is_kept(constant: float, expected: bool) -> None:
    moved = parse_rule(f"moved: (x + y) - y => x + (y - y) {RANKS}")
    term = apply("sub", apply("add", X, apply("scale", ONES, factor=constant)), apply("scale", ONES, factor=constant))
    assert admitted(flagged(moved, FpFlag.CANCEL), term, FpMode.RELAXED) == expected
    assert admitted(flagged(ROUNDED, FpFlag.CANCEL), term, FpMode.RELAXED) == expected
    unknown = apply("sub", apply("add", X, Y), Y)
    assert not admitted(flagged(ROUNDED, FpFlag.CANCEL), unknown, FpMode.RELAXED)
    assert admitted(ROUNDED, term, FpMode.FAST)


def test_what_is_added_and_subtracted_to_round_stays() -> None:
    inner = parse_rule(
        "inner: (x - y) @ transpose(x - z - x, perm=(-1, -2)) => (y - x) @ transpose(z, perm=(-1, -2)) for x[2], y[2], z[2]"
    )
    z = variable("z", (3, 4))
    turned = apply("transpose", apply("sub", apply("sub", X, z), X), perm=(-1, -2))
    term = apply("matmul", apply("sub", X, Y), turned)
    assert not admitted(flagged(inner, FpFlag.CANCEL), term, FpMode.RELAXED)
    assert not admitted(flagged(inner, FpFlag.REASSOC), term, FpMode.RELAXED)
    other = apply("matmul", apply("sub", X, Y), apply("transpose", apply("sub", apply("sub", C, z), X), perm=(-1, -2)))
    regrouped = parse_rule("regrouped: (x - y) - z => x - (y + z) for x[1, 2], y[1, 2], z[1, 2]")
    assert admitted(flagged(regrouped, FpFlag.REASSOC), other.args[1].args[0], FpMode.RELAXED)
    assert not admitted(flagged(regrouped, FpFlag.REASSOC), turned.args[0], FpMode.RELAXED)


def test_a_quotient_that_may_be_nan_is_not_made_a_number() -> None:
    rule = flagged(parse_rule("whole: x * reciprocal(x) => ones(shape=x.shape) for x[1, 2]"), *SPECIAL)
    assert absorption(rule).changes
    total = apply("add", apply("sigmoid", X), ONES)
    assert not admitted(rule, apply("mul", X, apply("reciprocal", X)), FpMode.RELAXED)
    assert admitted(rule, apply("mul", total, apply("reciprocal", total)), FpMode.RELAXED)


def test_nan_does_not_become_an_infinity_that_a_comparison_absorbs() -> None:
    rule = flagged(parse_rule("inner: sqrt(rsqrt(x)) => rsqrt(sqrt(x)) for x[1, 2]"), FpFlag.NNAN)
    assert absorption(rule).changes
    total = apply("add", apply("sigmoid", X), ONES)
    assert not admitted(rule, apply("sqrt", apply("rsqrt", X)), FpMode.RELAXED)
    assert admitted(rule, apply("sqrt", apply("rsqrt", total)), FpMode.RELAXED)


def test_infinities_are_those_of_kernels() -> None:
    total = "expand(reciprocal(reduce_sum(t, axes=(-1,))), shape=x.shape, axes=(-2,))"
    shifted = "exp(x - expand(reduce_max(x, axes=(-1,)), shape=x.shape, axes=(-2,)))"
    same, other = (
        absorption(parse_rule(f"softmax: (t := {inner}) * {total} => softmax(x, axis=-1) for x[2]"))
        for inner in (shifted, "exp(x)")
    )
    assert not same.different
    assert other.exposed == {("x", "inf")}


def test_masks_are_not_subtracted_from_each_other() -> None:
    term = apply("relu", apply("sub", X, Y))
    rule = flagged(CLIPPED, FpFlag.CANCEL)
    assert admitted(rule, term, FpMode.RELAXED)
    assert not admitted(rule, term, FpMode.RELAXED, x=UNBOUNDED)
    assert not admitted(rule, term, FpMode.RELAXED, y=Facts(-1e9, 0.0))
    assert admitted(rule, apply("relu", apply("sub", apply("sigmoid", X), Y)), FpMode.RELAXED, x=UNBOUNDED)


@pytest.mark.parametrize("known", [UNBOUNDED, Facts(nan=True)], ids=["infinite", "NaN"])
def test_a_product_by_a_vector_is_no_product_by_a_diagonal_matrix_of_what_may_be_infinite(known: Facts) -> None:
    term = apply("mul", X, apply("expand", variable("z", (4,)), shape=(3, 4), axes=(-1,)))
    rule = flagged(DIAGONAL, *SPECIAL)
    assert admitted(rule, term, FpMode.RELAXED)
    assert not admitted(rule, term, FpMode.RELAXED, x=known)
    assert not admitted(rule, term, FpMode.RELAXED, strict=True)
    assert admitted(rule, term, FpMode.RELAXED, strict=True, x=Facts(-1.0, 1.0))
    softmax = apply("mul", apply("sigmoid", X), term.args[0] if term.args[0].op == "expand" else term.args[1])
    assert admitted(rule, softmax, FpMode.RELAXED, x=UNBOUNDED)


def test_a_rule_that_absorbs_nothing_is_admitted_where_values_may_be_infinite() -> None:
    weights = [variable(name, (4, 5), constant=True) for name in "vw"]
    term = apply("add", *(apply("matmul", X, w) for w in weights))
    rule = flagged(DISTRIBUTED, FpFlag.REASSOC, *SPECIAL)
    assert admitted(rule, term, FpMode.RELAXED, x=UNBOUNDED, v=ORDINARY_INPUT, w=ORDINARY_INPUT)
    of_three = apply("add", *term.args, apply("matmul", X, variable("u", (4, 5), constant=True)))
    assert admitted(rule, of_three, FpMode.RELAXED, x=UNBOUNDED, u=ORDINARY_INPUT, v=ORDINARY_INPUT, w=ORDINARY_INPUT)
    ranged = flagged(DISTRIBUTED, FpFlag.RANGE)
    assert not admitted(ranged, term, FpMode.RELAXED, x=UNBOUNDED, v=ORDINARY_INPUT, w=ORDINARY_INPUT)
    assert admitted(ranged, term, FpMode.RELAXED, v=ORDINARY_INPUT, w=ORDINARY_INPUT)


@pytest.mark.parametrize(
    ("flags", "modes"),
    [
        ((), "precise relaxed fast"),
        ((FpFlag.NSZ,), "precise relaxed fast"),
        ((FpFlag.REASSOC, FpFlag.CONTRACT, FpFlag.ARCP), "relaxed fast"),
        ((FpFlag.NINF,), "fast"),
        ((FpFlag.RANGE,), "fast"),
        ((FpFlag.CANCEL,), "fast"),
    ],
    ids=str,
)
def test_modes_admit_flags(flags: tuple[FpFlag, ...], modes: str) -> None:
    """The match reads a value that may be infinite. On the left side, a `where` absorbs this value."""
    term, outside = guarded(Y)
    found = [mode for mode in FpMode if admitted(flagged(OUT_OF_WHERE, *flags), term, mode, outside, y=UNBOUNDED)]
    assert " ".join(found) == modes


def test_a_second_rule_with_the_same_result_is_tried_where_the_first_is_refused() -> None:
    first, second = flagged(OUT_OF_WHERE, FpFlag.CANCEL), replace(flagged(OUT_OF_WHERE), name="second")
    rules = RuleSet([first, second])
    term = apply("where", C, apply("mul", X, Y), ZEROS)
    assert {name for name, _ in rules.matches(term)} == {"out-of-where"}
    gated = rules.gated(Gate(FpMode.PRECISE, dict.fromkeys("xyc", ORDINARY_INPUT), absorption))
    assert {name for name, _ in gated.matches(term)} == {"second"}
    assert not list(gated.alone(term, "out-of-where"))


def test_sums_that_lose_rounding() -> None:
    large = Facts(12582912.0, 12582912.0, zero=False)
    three = apply("add", X, Y, C)
    assert sum_cancels_in_state(three, (ORDINARY_INPUT, large, -large))
    assert not sum_cancels_in_state(three, (ORDINARY_INPUT, large, large))
    assert sum_cancels_in_state(apply("add", X, Y, apply("scale", X, factor=-1)), (ORDINARY_INPUT,) * 3)
    assert not sum_cancels_in_state(apply("add", X, apply("scale", X, factor=-1)), (ORDINARY_INPUT,) * 2)
    first, second = (variable(name, (3, 4), constant=True) for name in "vw")
    partly, mostly = Facts(-1.0, 12582912.0), Facts(-12582912.0, 1.0)
    assert sum_cancels_in_state(apply("add", X, first, second), (partly, mostly, ORDINARY_INPUT))
    assert not sum_cancels_in_state(three, (ORDINARY_INPUT, partly, mostly))
    shift = apply("scale", first, factor=-1)
    assert not sum_cancels_in_state(apply("add", X, first, shift), (ORDINARY_INPUT,) * 3)


LARGE = (
    "float[1] m = {12582912}, float[1] n = {-12582912}, float h = {1.5}, int64[1] all = {-1}, int64[2] sides = {8, 8}, "
    "float[8] some = {12582912, 0, 0, 0, 0, 0, 0, 0}, int64[1] two = {2}, float split = {4097}"
)


def parsed(body: str, constants: str = LARGE) -> onnx.ModelProto:
    text = f"""
        <ir_version: 9, opset_import: ["" : 17]>
        agraph (float[8, 8] x, float[8, 8] y, float[8, 1] mask, float[8, 8] scores) => (float[8, 8] out) <{constants}>
        {{ {body} }}
    """
    return onnx.parser.parse_model(text)


ROOT = apply("sqrt", apply("reduce_sum_square", X, axes=(-1,)))
DEKKER = """
    p = Mul(x, y)
    t = Mul(x, split) a = Sub(t, x) b = Sub(t, a) c = Sub(x, b)
    u = Mul(y, split) f = Sub(u, y) g = Sub(u, f) d = Sub(y, g)
    i = Mul(b, g) j = Sub(p, i) k = Mul(c, g) l = Sub(j, k) q = Mul(b, d) r = Sub(l, q) o = Mul(c, d) e = Sub(o, r)
"""
"""The rounding error of a product, by Dekker's splitting of the factors."""
ROUNDING = [
    "t = Add(x, m) u = Add(t, n) out = Mul(u, y)",
    "t = Add(m, x) u = Sum(n, t) out = Mul(u, y)",
    "a = Neg(x) t = Add(x, y) u = Add(t, a) out = Mul(u, y)",
    "t = Add(x, m) a = Neg(t) u = Add(a, m) out = Mul(u, y)",
    "t = Add(x, m) a = Identity(t) u = Sub(a, m) out = Mul(u, y)",
    "t = Add(x, m) a = Expand(t, sides) u = Add(a, n) out = Mul(u, y)",
    "t = Add(x, m) a = Reshape(t, all) b = Add(a, n) u = Reshape(b, sides) out = Mul(u, y)",
    "a = Add(x, m) b = Add(a, h) c = Sub(b, h) u = Sub(c, m) out = Mul(u, y)",
    "a = Add(x, m) b = Add(a, h) c = Sub(b, h) d = Reshape(c, all) e = Sub(d, m) u = Reshape(e, sides) out = Mul(u, y)",
    "a = Gemm(x, y, m) u = Add(a, n) out = Mul(u, y)",
    "b = Add(m, m) a = Neg(b) t = Add(x, b) u = Add(t, a) out = Mul(u, y)",
    "s = Add(x, y) a = Sub(s, x) b = Sub(s, a) c = Sub(x, b) d = Sub(y, a) e = Add(c, d) out = Mul(e, m)",
    "t = Add(x, some) u = Sub(t, some) out = Mul(u, y)",
    f"{DEKKER} out = Mul(e, m)",
    "t = Add(x, m) a = Sub(t, m) b = Transpose(a) c = Mul(b, y) d = Add(c, x) e = Sub(d, y) out = Mul(e, y)",
    f"t0 = Add(x, m) {' '.join(f't{n} = Add(t{n - 1}, y)' for n in range(1, 72))} out = Add(t71, n)",
]
"""Sums that round on purpose: by a large constant, by Knuth's TwoSum, and sums of products of such results."""
REGROUPED = [
    "t = Add(x, v) a = Identity(t) u = Add(a, w) out = Mul(u, y)",
    "t = Add(x, v) a = Reshape(t, all) b = Add(a, w8) u = Reshape(b, sides) out = Mul(u, y)",
    "t = Mul(x, v) a = Identity(t) u = Mul(a, w) out = Add(u, y)",
    "t = Add(x, v) u = Sum(t, w) out = Mul(u, y)",
    "t = Gemm(x, y, v) u = Add(t, w) out = Mul(u, y)",
]
"""Sums and products of three operands that have no large constant."""
VECTORS = "float[8] v = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}, float[8] w = {0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.9}"
SUMMED = f"{LARGE}, {VECTORS}, float[64] w8 = {{{', '.join(['0.7'] * 64)}}}"


@pytest.mark.parametrize(
    ("mode", "body"),
    [
        *((mode, body) for mode in (FpMode.RELAXED, FpMode.PRECISE) for body in ROUNDING),
        *((FpMode.PRECISE, b) for b in REGROUPED),
    ],
)
def test_sums_that_must_keep_their_rounding_are_computed_as_they_are(mode: FpMode, body: str) -> None:
    proto = parsed(body, SUMMED)
    model = load(proto).model
    after = splice_passes(model, (relower(whole_islands(Charts(mode).of(model), {}), [], mode),))
    np.testing.assert_array_equal(run(as_proto(after))[0], run(proto)[0])


@pytest.mark.parametrize("body", [f"{DEKKER} out = Mul(e, m)", *ROUNDING[-3:]])
def test_sums_of_products_of_rounded_values_are_in_no_island(body: str) -> None:
    islands = Charts(FpMode.RELAXED).of(load(parsed(body, SUMMED)).model).islands()
    assert {node.op_type for island in islands for node in island.nodes} <= {"Mul", "Transpose"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("t = Mul(x, h) u = Div(t, h) f = Floor(u) out = Add(f, y)", 0),
        (
            "t = Mul(x, h) u = Reshape(t, all) q = Add(u, h) i = Cast<to = 7>(q) f = Cast<to = 1>(i) out = Reshape(f, sides)",
            0,
        ),
        ("t = Mul(x, h) u = Div(t, h) b = Less(y, u) out = Cast <to = 1> (b)", 0),
        ("e = Tanh(x) t = Mul(e, h) u = Div(t, h) f = Floor(u) out = Add(f, y)", 2),
        ("t = Mul(x, y) u = Mul(t, h) q = Mul(u, h) f = Round(q) out = Add(f, y)", 0),
        ("t = Mul(x, h) f = Floor(t) out = Add(f, y)", 1),
    ],
)
def test_chains_from_exact_numbers_to_steps_are_in_no_island(body: str, expected: int) -> None:
    islands = Charts(FpMode.RELAXED).of(load(parsed(body, SUMMED)).model).islands()
    assert sum(node.op_type in ("Mul", "Div") for island in islands for node in island.nodes) == expected


@pytest.mark.parametrize(("constant", "expected"), [(1536, 0), (16, 2)])
def test_a_smaller_constant_rounds_in_float16(constant: float, expected: int) -> None:
    text = onnx.printer.to_text(parsed("t = Add(x, m) u = Sub(t, m) out = Mul(u, y)", "float[1] m = {0}"))
    half = onnx.parser.parse_model(text.replace("float[", "float16["))
    half.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([constant], np.float16), "m"))
    nodes = {node.op_type for island in Charts(FpMode.RELAXED).of(load(half).model).islands() for node in island.nodes}
    assert len(nodes & {"Add", "Sub"}) == expected


def test_a_difference_of_two_products_does_not_round_on_purpose() -> None:
    proto = parsed("t = Gemm(x, y, v) u = Gemm(y, x, w) out = Sub(t, u)", VECTORS)
    (island,) = Charts(FpMode.RELAXED).of(load(proto).model).islands()
    assert {node.op_type for node in island.nodes} == {"Gemm", "Sub"}


@pytest.mark.parametrize("mode", [FpMode.RELAXED, FpMode.PRECISE])
@pytest.mark.parametrize(
    "middle",
    [
        "b = Unsqueeze(t, two) a = ReduceSum<keepdims = 0>(b, two)",
        "b = Abs(t) a = Min(t, b)",
        "c = Less(x, y) b = Where(c, y, t) a = Where(c, t, b)",
    ],
)
def test_removed_terms_merge_no_sums_that_must_keep_their_rounding(middle: str, mode: FpMode) -> None:
    constants = "m", "n" if mode is FpMode.RELAXED else "w"
    proto = parsed(f"t = Add(x, {constants[0]}) {middle} u = Add(a, {constants[1]}) out = Mul(u, y)", f"{LARGE}, {VECTORS}")
    model = load(proto).model
    parts = whole_islands(Charts(mode).of(model), {})
    after = splice_passes(model, (relower(parts, load_rules(), mode),))
    np.testing.assert_array_equal(run(as_proto(after))[0], run(proto)[0])


def test_constants_are_only_moved_in_the_precise_mode() -> None:
    proto = parsed("t = Sigmoid(v) u = Transpose(x) out = Mul(u, t)", VECTORS)
    chart = Charts(FpMode.PRECISE).of(load(proto).model)
    assert {node.op_type for island in chart.islands() for node in island.nodes} == {"Transpose", "Mul"}
    assert not any(x.name == "v" for island in chart.islands() for x in variables(*island.outputs.values()))


@pytest.mark.parametrize("mode", [FpMode.RELAXED, FpMode.PRECISE])
@pytest.mark.parametrize("body", ["r = Reciprocal(y) out = Mul(x, r)", "r = Reciprocal(x) u = Abs(r) out = Mul(u, y)"])
def test_a_product_with_a_reciprocal_is_no_quotient_in_the_precise_mode(mode: FpMode, body: str) -> None:
    chart = Charts(mode).of(load(parsed(body, VECTORS)).model)
    found = {node.op_type for island in chart.islands() for node in island.nodes}
    assert ("Reciprocal" in found) == (mode is FpMode.RELAXED)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("r = Elu(x) u = Elu(y) out = Add(r, u)", {"Add"}),
        ("r = Log(x) u = Log(y) out = Add(r, u)", {"Add"}),
        ("r = Tanh(x) u = Tanh(y) out = Add(r, u)", {"Tanh", "Add"}),
    ],
)
def test_functions_that_round_by_position_stay_in_the_precise_mode(body: str, expected: set[str]) -> None:
    model = load(parsed(body, VECTORS)).model
    for mode, found in ((FpMode.PRECISE, expected), (FpMode.RELAXED, {node.op_type for node in model.graph})):
        assert {node.op_type for island in Charts(mode).of(model).islands() for node in island.nodes} == found


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5])
def test_powers_stay_in_the_precise_mode(exponent: float) -> None:
    model = load(parsed("r = Pow(x, e) out = Transpose(r)", f"{VECTORS}, float e = {{{exponent}}}")).model
    assert not any(node.op_type == "Pow" for island in Charts(FpMode.PRECISE).of(model).islands() for node in island.nodes)
    assert any(node.op_type == "Pow" for island in Charts(FpMode.RELAXED).of(model).islands() for node in island.nodes)


@pytest.mark.parametrize(("constant", "expected"), [(12582912, False), (3, True)])
def test_a_product_takes_no_large_constant_out_of_a_sum(constant: int, expected: bool) -> None:
    rule = flagged(parse_rule(f"taken-out: (x - y) * z => x * z - y * z {RANKS}, z[1, 2, 3, 4]"), FpFlag.REASSOC)
    term = apply("mul", apply("sub", X, apply("scale", ONES, factor=constant)), Y)
    assert admitted(rule, term, FpMode.RELAXED) == expected


def test_comparisons_with_nan_tell_the_sides_of_a_rule_apart() -> None:
    known = {rule.name: absorption(rule) for rule in load_rules() if "equal" in rule.name}
    assert ("x", "nan") in known["equal-to-ones"].exposed
    assert {("x", "nan"), ("y", "nan")} <= known["logical-not-less-to-less-equal"].exposed


@pytest.mark.parametrize(
    ("mode", "known", "expected"),
    [
        (FpMode.RELAXED, ORDINARY_INPUT, True),
        (FpMode.RELAXED, ANYTHING, False),
        (FpMode.PRECISE, ORDINARY_INPUT, False),
        (FpMode.PRECISE, Facts(0.0, 1.0), True),
        (FpMode.FAST, ANYTHING, True),
    ],
)
def test_operators_that_drop_nan_are_rewritten_only_without_nan(mode: FpMode, known: Facts, expected: bool) -> None:
    rule = next(rule for rule in load_rules() if rule.name == "reduce-max-maximum-to-maximum-reduce-max")
    term = apply("reduce_max", apply("maximum", X, Y), axes=(-1,))
    assert admitted(rule, term, mode, x=known, y=known) == expected


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("l2: sqrt(reduce_sum_square(x, axes=(-1,))) => reduce_l2(x, axes=(-1,))", ROOT, False),
        ("silu: mul(x, sigmoid(x)) => silu(x)", apply("mul", X, apply("sigmoid", X)), False),
        ("twice: scale(x, factor=2) => x + x", apply("scale", X, factor=2), True),
        ("moved: relu(sigmoid(x)) => sigmoid(x)", apply("relu", apply("sigmoid", X)), True),
    ],
)
def test_the_precise_mode_brings_in_no_kernel_that_may_round_otherwise(text: str, term: Term, expected: bool) -> None:
    rule = flagged(parse_rule(f"{text}  for x[{X.rank}]"))
    assert admitted(rule, term, FpMode.PRECISE, x=Facts(-1.0, 1.0)) == expected
    assert admitted(rule, term, FpMode.RELAXED, x=Facts(-1.0, 1.0))


@pytest.mark.parametrize(("native", "expected"), [(False, 0), (True, 3)])
def test_float16_values_stay_in_the_precise_mode_unless_kernels_compute_in_float16(native: bool, expected: int) -> None:
    text = onnx.printer.to_text(parsed("t = Transpose(x) u = Transpose(y) out = Add(t, u)", "float h = {1}"))
    model = load(onnx.parser.parse_model(text.replace("float[", "float16["))).model
    islands = Charts(FpMode.PRECISE, native_half=native).of(model).islands()
    assert sum(len(island.nodes) for island in islands) == expected


@pytest.mark.parametrize("body", REGROUPED)
def test_sums_that_do_not_round_on_purpose_are_regrouped_in_the_relaxed_mode(body: str) -> None:
    model = load(parsed(body, SUMMED)).model
    (island,) = Charts(FpMode.RELAXED).of(model).islands()
    assert len(island.nodes) == len(list(model.graph))


@pytest.mark.parametrize(("mode", "expected"), [(FpMode.RELAXED, False), (FpMode.PRECISE, True), (FpMode.FAST, False)])
def test_the_precise_mode_forms_no_sum_of_three_operands(mode: FpMode, expected: bool) -> None:
    gate = Gate(mode, dict.fromkeys("xyc", ORDINARY_INPUT), absorption)
    assert gate.rounds_otherwise((apply("relu", apply("add", X, Y, C)),)) == expected
    assert not gate.rounds_otherwise((apply("relu", apply("add", X, Y)),))


def test_sums_that_do_not_round_on_purpose_are_in_islands() -> None:
    model = load(parsed("t = Add(x, y) u = Add(t, m) out = Mul(u, y)")).model
    (island,) = Charts(FpMode.RELAXED).of(model).islands()
    assert len(island.nodes) == 3
    assert not Charts(FpMode.PRECISE).of(model).islands() or all(
        sum(t.op == "add" for t in run_time_terms((term,))) <= 1
        for island in Charts(FpMode.PRECISE).of(model).islands()
        for term in island.outputs.values()
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("out = Softmax(scores)", "scores"),
        ("a = Add(x, mask) b = Mul(scores, y) c = Add(a, b) out = Softmax(c)", "mask scores x y"),
        ("a = MatMul(x, y) b = Add(a, mask) out = Softmax(b)", "mask"),
        ("a = Min(x, y) b = MatMul(a, scores) out = Relu(b)", "x y"),
        ("a = Transpose(x) b = Log(a) c = Sigmoid(y) out = Div(b, c)", "x"),
        ("a = Mul(x, y) out = Div(a, scores)", "scores"),
        ("a = Pow(x, two) out = Add(a, y)", ""),
        ("a = Sigmoid(x) out = Max(a, half)", ""),
    ],
)
def test_inputs_that_may_be_masks(body: str, expected: str) -> None:
    model = load(parsed(body, "float two = {2}, float half = {0.5}")).model
    facts = Chart(model).facts
    assert [name for name in ("mask", "scores", "x", "y") if not facts.named(name).ordinary] == expected.split()


@pytest.mark.parametrize("exponent", [np.inf, np.nan])
def test_a_base_with_an_exponent_that_is_not_finite_may_be_a_mask(exponent: float) -> None:
    proto = parsed("a = Pow(x, e) out = Add(a, y)")
    proto.graph.initializer.append(numpy_helper.from_array(np.array(exponent, np.float32), "e"))
    facts = Chart(load(proto).model).facts
    assert [name for name in ("x", "y") if not facts.named(name).ordinary] == ["x"]


IF = """
    c = ReduceSum<keepdims = 0>(y) d = Greater(c, one)
    out = If(d) <then_branch = yes () => (float[8, 8] a) { t = Sinh(x) a = Div(t, y) },
                 else_branch = no () => (float[8, 8] b) { t = Sigmoid(x) b = Mul(t, y) }>
"""


def test_facts_are_those_of_the_graph_that_computes_the_value() -> None:
    chart = Chart(load(parsed(IF, "float one = {1}")).model)
    then, other = (
        graph
        for graph in (
            n.attributes[a].as_graph() for n in chart.model.graph if n.op_type == "If" for a in ("then_branch", "else_branch")
        )
    )
    assert not chart.facts.named("t", then).finite
    assert chart.facts.named("t", other).high <= 1
    assert chart.facts.named("x", other).ordinary
    assert not chart.facts.named("out").defined


@pytest.mark.parametrize(("attribute", "expected"), [("<value = float[1] {-3.4e38}>", -3.4e38), ("", 0)])
def test_the_fill_of_a_shape_is_known(attribute: str, expected: float) -> None:
    model = load(parsed(f"r = Identity(sides) out = ConstantOfShape{attribute}(r)")).model
    facts = Chart(model).facts.named("out")
    assert [facts.low, facts.high] == pytest.approx([expected, expected])


def test_an_input_that_where_may_replace_may_hold_nan() -> None:
    model = load(parsed("c = Less(scores, y) a = Where(c, x, half) out = Mul(a, y)", "float half = {0.5}")).model
    facts = Chart(model).facts
    assert facts.named("x").nan
    assert not facts.named("scores").nan


MATRICES = "for x[2], y[2], z[2]"


@pytest.mark.parametrize(
    ("op", "known", "expected"),
    [
        ("sub", ORDINARY_INPUT, False),
        ("sub", Facts(0.0, 1.0), False),
        ("add", ORDINARY_INPUT, False),
        ("add", Facts(0.0, 1.0), True),
    ],
)
def test_products_of_a_sum_that_may_cancel_are_not_distributed(op: str, known: Facts, expected: bool) -> None:
    sign = "-" if op == "sub" else "+"
    away = flagged(parse_rule(f"away: (x {sign} y) @ z => x @ z {sign} y @ z {MATRICES}"), FpFlag.REASSOC)
    back = flagged(parse_rule(f"back: x @ z {sign} y @ z => (x {sign} y) @ z {MATRICES}"), FpFlag.REASSOC)
    x, y, z = (variable(name, (4, 4)) for name in "xyz")
    assert admitted(away, apply("matmul", apply(op, x, y), z), FpMode.RELAXED, x=known, y=known) == expected
    assert admitted(away, apply("matmul", apply(op, x, y), z), FpMode.FAST, x=known, y=known)
    assert admitted(back, apply(op, apply("matmul", x, z), apply("matmul", y, z)), FpMode.RELAXED, x=known, y=known)


def test_moves_and_constants_are_distributed() -> None:
    flip = "transpose(x - y, perm=(-1, -2)) => transpose(x, perm=(-1, -2)) - transpose(y, perm=(-1, -2)) for x[2], y[2]"
    rule = flagged(parse_rule(f"flip: {flip}"), FpFlag.REASSOC)
    assert admitted(rule, apply("transpose", apply("sub", X, Y), perm=(-1, -2)), FpMode.RELAXED)
    away = flagged(parse_rule(f"away: (x - y) @ z => x @ z - y @ z {MATRICES}"), FpFlag.REASSOC)
    x, z = variable("x", (4, 4)), variable("z", (4, 4))
    shift = apply("ones", shape=(4, 4))
    assert admitted(away, apply("matmul", apply("sub", x, shift), z), FpMode.RELAXED)


@pytest.mark.parametrize(
    ("divisor", "expected"),
    [
        ("k = Neg(d) q = Div(y, k) out = Atan(q)", True),
        ("k = Neg(d) r = Reshape(k, sides) q = Reciprocal(r) out = Atan(q)", True),
        ("k = Neg(d) s = Abs(k) e = Add(s, h) q = Div(y, e) out = Atan(q)", False),
        ("k = Neg(d) e = Exp(k) q = Div(y, e) out = Atan(q)", False),
        ("k = Neg(d) out = Atan(k)", False),
    ],
)
def test_signs_of_zeros_matter_if_they_reach_a_divisor(divisor: str, expected: bool) -> None:
    model = load(parsed(f"d = Sub(x, h) {divisor}")).model
    for mode in (FpMode.RELAXED, FpMode.PRECISE):
        islands = [island for island in Charts(mode).of(model).islands() if any(n.op_type == "Neg" for n in island.nodes)]
        assert [island.signed for island in islands] == [expected]
    rule = flagged(parse_rule(f"swap: scale(x - y, factor=-1) => y - x {RANKS}"), FpFlag.NSZ)
    term = apply("scale", apply("sub", X, Y), factor=-1)
    (match,) = (match for _, match in RuleSet([rule]).matches(term))
    for mode, permitted in ((FpMode.RELAXED, False), (FpMode.PRECISE, False), (FpMode.FAST, True)):
        gate = Gate(mode, dict.fromkeys("xy", ORDINARY_INPUT), absorption, signed_zeros=True)
        assert gate.permits(rule, match) == permitted
        assert Gate(mode, dict.fromkeys("xy", ORDINARY_INPUT), absorption).permits(rule, match)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("out = Log(p)", True),
        ("s = ReduceSum<keepdims = 1>(p, last) out = Div(p, s)", True),
        ("k = Mul(p, y) out = Log(k)", True),
        ("a = ArgMax(p) c = Cast<to = 1>(a) out = Add(c, p)", True),
        ("out = Mul(p, y)", False),
        ("out = Mul(p, m)", True),
        ("k = Exp(y) out = Mul(p, k)", True),
        ("k = Exp(y) out = Div(k, d)", True),
        ("t = Tanh(y) k = Exp(t) out = Mul(p, k)", False),
        ("out = Sqrt(p)", True),
        ("k = Div(p, h) out = Mul(k, h)", False),
        ("k = Add(p, h) out = Log(k)", False),
        ("k = Add(p, tiny) out = Log(k)", True),
        ("out = Pow(p, h)", True),
        ("b = Greater(p, tiny) c = Cast<to = 1>(b) out = Add(c, x)", True),
        ("b = Greater(p, h) c = Cast<to = 1>(b) out = Add(c, x)", False),
        ("out = Pow(p, two)", False),
    ],
)
def test_tiny_values_matter_if_a_logarithm_or_a_quotient_is_computed_of_them(end: str, expected: bool) -> None:
    constants = f"{LARGE}, int64[1] last = {{-1}}, float one = {{1.0}}, float tiny = {{1e-12}}"
    model = load(parsed(f"g = Neg(x) e = Exp(g) d = Add(e, one) p = Div(one, d) {end}", constants)).model
    assert any(island.relative for island in Charts(FpMode.RELAXED).of(model).islands()) == expected


@pytest.mark.parametrize(
    ("mode", "relative", "expected"), [("relaxed", True, False), ("relaxed", False, True), ("fast", True, True)]
)
def test_a_kernel_with_an_absolute_error_replaces_no_tiny_values(mode: str, relative: bool, expected: bool) -> None:
    text = "logistic: reciprocal(ones(shape=x.shape) + exp(scale(x, factor=-1))) => sigmoid(x) for x[2]"
    rule = flagged(parse_rule(text), FpFlag.REASSOC)
    term = apply("reciprocal", apply("add", apply("ones", shape=(3, 4)), apply("exp", apply("scale", X, factor=-1))))
    (match,) = (match for _, match in RuleSet([rule]).matches(term))
    gate = Gate(FpMode(mode), {"x": Facts(-1.0, 1.0)}, absorption, relative=relative)
    assert gate.permits(rule, match) == expected
