"""Rule discovery: generalisation, joinability, directions and names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Attribute, Extent, Term, variables
from superopt.discovery.effort import effort
from superopt.discovery.enumerate import Candidate, enumerate_universe
from superopt.discovery.generalise import general_rules
from superopt.discovery.names import name_rules
from superopt.discovery.numbers import Numbered, distinct_numbers
from superopt.discovery.phrase import phrase_converse
from superopt.discovery.prune import KeptEqualities, crosses_hill, is_shortcut, is_useful
from superopt.discovery.rewriter import Classes, Rewriter
from superopt.discovery.universe import FACTOR, Universe
from superopt.discovery.universes import convolution, images, matrix
from superopt.discovery.universes.families import FAMILIES, UNIVERSES
from superopt.errors import InstantiationError
from superopt.notation.parsing import Equation, parse
from superopt.proof.precondition import add_preconditions
from superopt.proof.sample import instantiations, mismatch, mismatch_at
from superopt.rules.rule import Rule, parse_rule

pytestmark = pytest.mark.slow


class Sampling:
    """A sampler that accepts all equations that random instances do not refute."""

    def plausible(self, equations: Sequence[Equation]) -> bool:
        try:
            return all(mismatch(e, instances=8, seed=3) is None for e in equations)
        except InstantiationError:
            return False

    def outcomes(self, equation: Equation) -> list[tuple[Mapping[str, Extent], bool]]:
        found = itertools.islice(instantiations(equation, np.random.default_rng(4)), 48)
        return [(i.attributes, mismatch_at(equation, i, n) is None) for n, i in enumerate(found)]

    def completed(self, rule: Rule) -> Rule | None:
        return add_preconditions(rule)


def of(universe: Universe, text: str) -> Term:
    """Parse a term over the variables of a universe."""
    return parse(text, {v.name: v for row in universe.variables for v in row})[0]


def candidate(universe: Universe, left: str, right: str) -> Candidate:
    return Candidate(universe, (of(universe, left),), (of(universe, right),))


def general(universe: Universe, left: Term, right: Term, *, widen: bool) -> str:
    rule = next(general_rules(((left,), (right,)), Sampling(), widen=widen))
    return str(rule.statement)


# ---------------------------------------------------------------- generalisation


def test_extents_become_independent_and_shapes_are_named() -> None:
    left = of(matrix.MATRIX, "(x @ w) * expand(b, shape=(x @ w).shape, axes=(-1,))")
    right = of(matrix.MATRIX, "x @ (w * expand(b, shape=w.shape, axes=(-1,)))")
    text = general(matrix.MATRIX, left, right, widen=True)
    assert "shape=(x @ w).shape" in text
    assert text.endswith("for x[2, 3, 4], w[2, 3, 4], b[1]")


def test_a_stop_is_read_from_the_variable_that_makes_it_true() -> None:
    whole = of(matrix.MATRIX, "x @ concat(w, v, axis=-1)")
    first = apply("slice", whole, axis=-1, start=0, stop=matrix.M)
    assert "stop=w.shape[-1]" in general(matrix.MATRIX, first, of(matrix.MATRIX, "x @ w"), widen=False)


def test_an_attribute_that_nothing_fixes_becomes_a_variable() -> None:
    x = matrix.HALVES.variables[0][0]
    cut: dict[str, Attribute] = {"axis": -1, "start": 0, "stop": matrix.M}
    left, right = apply("relu", apply("slice", x, **cut)), apply("slice", apply("relu", x), **cut)
    rule = next(general_rules(((left,), (right,)), Sampling(), widen=False))
    assert "stop=m)" in str(rule.statement)


def test_an_axis_becomes_a_variable_where_every_axis_will_do() -> None:
    left, right = of(matrix.PIECES, "relu(concat(x, y, axis=-1))"), of(matrix.PIECES, "concat(relu(x), relu(y), axis=-1)")
    text = general(matrix.PIECES, left, right, widen=True)
    assert "axis=k" in text
    assert "x[1, 2, 3, 4]" in text
    assert "k[-1, -2, -3, -4]" in text


def test_the_axes_that_are_left_are_named_after_the_one_that_is_taken() -> None:
    x = matrix.X
    left = of(matrix.ELEMENTWISE, "exp(x) * expand(reciprocal(reduce_sum(exp(x), axes=(-1,))), shape=x.shape, axes=(-2,))")
    text = general(matrix.ELEMENTWISE, left, apply("softmax", x, axis=-1), widen=True)
    assert "axes=others(x, k)" in text
    assert text.endswith("=> softmax(x, axis=k) for x[1, 2, 3, 4], k[-1, -2, -3, -4]")


def test_what_a_concatenation_asks_is_asked_at_every_rank() -> None:
    x, y, *_ = matrix.PIECES.variables[0]
    whole = apply("tanh", apply("concat", x, y, axis=-1))
    parts = [apply("slice", whole, axis=-1, start=a, stop=b) for a, b in ((0, matrix.K), (matrix.K, 2 * matrix.K))]
    rule = next(general_rules(((apply("tanh", x), apply("tanh", y)), tuple(parts)), Sampling(), widen=True))
    assert str(rule.statement).endswith(
        "for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4] where x.shape[others(x, k)] == y.shape[others(y, k)]"
    )


def test_an_axis_that_only_some_axes_can_stand_for_is_a_variable_of_those() -> None:
    left = of(convolution.POOLING, "max_pool(concat(x, y, axis=-3), kernel=(k0, k1), strides=(s0, s1), pads=(p0, p1, p2, p3))")
    right = of(
        convolution.POOLING,
        "concat(max_pool(x, kernel=(k0, k1), strides=(s0, s1), pads=(p0, p1, p2, p3)),"
        " max_pool(y, kernel=(k0, k1), strides=(s0, s1), pads=(p0, p1, p2, p3)), axis=-3)",
    )
    text = general(convolution.POOLING, left, right, widen=True)
    assert "axis=j" in text
    assert "j[-3, -4]" in text


def test_what_is_one_term_by_chance_becomes_a_variable_of_its_own() -> None:
    left = of(matrix.ELEMENTWISE, "concat(x, concat(relu(x), y, axis=-1), axis=-1)")
    right = of(matrix.ELEMENTWISE, "concat(concat(x, relu(x), axis=-1), y, axis=-1)")
    text = general(matrix.ELEMENTWISE, left, right, widen=False)
    assert text.startswith("concat(x, concat(z, y, axis=-1), axis=-1) => concat(concat(x, z, axis=-1), y, axis=-1) for ")
    left, right = of(matrix.ELEMENTWISE, "relu(relu(x) * x)"), of(matrix.ELEMENTWISE, "relu(x) * x")
    assert general(matrix.ELEMENTWISE, left, right, widen=False).startswith("relu(relu(x) * x)")


def test_a_part_from_the_start_or_to_the_end_stands_for_any_part() -> None:
    for part, kept in (("start=0, stop=n", "start=begin"), ("start=n, stop=n + k", "stop=end")):
        left, right = (of(matrix.HALVES, text) for text in (f"slice(x, axis=-2, {part}) @ w", f"slice(x @ w, axis=-2, {part})"))
        text = general(matrix.HALVES, left, right, widen=True)
        assert text.count(kept) == 2
        assert len(re.findall(r"(start|stop)=[a-z]\w*[,)]", text)) == 4
    nested = "slice(slice(x, axis=-1, start=0, stop=m), axis=-2, start=0, stop=n)"
    turned = "slice(slice(x, axis=-2, start=0, stop=n), axis=-1, start=0, stop=m)"
    text = general(matrix.HALVES, of(matrix.HALVES, nested), of(matrix.HALVES, turned), widen=False)
    assert {"begin", "first"} <= set(re.findall(r"start=(\w+)", text))


def test_sums_that_are_spread_out_are_one_however_they_were_grouped() -> None:
    rewriter = Rewriter()
    left, right = (
        numbered(matrix.ELEMENTWISE, t) for t in ("scale(x + y, factor=2) - z", "scale(x, factor=2) - (z - scale(y, factor=2))")
    )
    assert not rewriter.joins(left, right)
    rewriter.add(parse_rule("r: x - y => x + scale(y, factor=-1) for x[2], y[2]"))
    rewriter.add(parse_rule("r: scale(x + y, factor=a) => scale(x, factor=a) + scale(y, factor=a) for x[2], y[2]"))
    rewriter.add(parse_rule("r: scale(scale(x, factor=a), factor=b) => scale(x, factor=a * b) for x[2]"))
    rewriter.add(parse_rule("r: scale(x, factor=1) => x for x[2]"))
    assert rewriter.joins(left, right)


def test_a_factor_that_must_not_be_negative_is_a_condition() -> None:
    x = matrix.X
    left = apply("relu", apply("scale", x, factor=FACTOR))
    right = apply("scale", apply("relu", x), factor=FACTOR)
    assert "where a >= 0" in general(matrix.MATRIX, left, right, widen=False)


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        ("scale(relu(x), factor=a) - relu(x)", "relu(scale(x, factor=a) - x)", "where a >= 1"),
        ("maximum(scale(x, factor=a), scale(x, factor=e))", "scale(x, factor=a)", ""),
        ("relu(scale(x, factor=a)) + relu(scale(x, factor=e))", "relu(scale(x, factor=a + e))", "where e >= 0, a >= 0"),
        ("clip(clip(x, low=a, high=e), low=0, high=e)", "clip(x, low=0, high=e)", "where 0 >= a"),
    ],
)
def test_the_conditions_on_numbers_are_the_weakest(left: str, right: str, where: str) -> None:
    sides = (of(matrix.ELEMENTWISE, left),), (of(matrix.ELEMENTWISE, right),)
    rules = [str(rule.statement) for rule in general_rules(sides, Sampling(), widen=False)]
    assert [rule.endswith(where) for rule in rules] == [True] * bool(where)


def test_what_is_false_at_independent_extents_is_not_stated() -> None:
    assert not list(general_rules(((matrix.X,), (apply("relu", matrix.X),)), Sampling(), widen=False))


def test_backwards_drops_the_conditions_on_extents() -> None:
    rule = add_preconditions(
        parse_rule("r: reduce_sum(x, axes=(-1,)) + reduce_sum(y, axes=(-1,)) => reduce_sum(x + y, axes=(-1,)) for x[2], y[2]")
    )
    assert rule is not None
    assert rule.statement.where
    turned = phrase_converse(rule)
    assert turned.statement.left == rule.statement.right
    assert not turned.statement.where


# ---------------------------------------------------------------- redundancy and use


FACTOR_WEIGHTS = "r: x @ v + x @ w => x @ (v + w) for x[2], w[2], v[2]"


def numbered(universe: Universe, text: str) -> Term:
    term = Numbered(distinct_numbers(universe)).of(of(universe, text))
    assert term is not None
    return term


def test_what_a_rule_says_is_joined_in_any_context_and_in_sums_of_more() -> None:
    rewriter = Rewriter()
    left, right = numbered(matrix.MATRIX, "relu(y @ w + y @ v)"), numbered(matrix.MATRIX, "relu(y @ (w + v))")
    assert not rewriter.joins(left, right)
    rewriter.add(parse_rule(FACTOR_WEIGHTS))
    assert rewriter.joins(left, right)
    more = "x @ w + x @ v + expand(b, shape=(x @ w).shape, axes=(-1,))"
    fewer = "x @ (w + v) + expand(b, shape=(x @ w).shape, axes=(-1,))"
    assert rewriter.joins(numbered(matrix.MATRIX, more), numbered(matrix.MATRIX, fewer))
    assert not rewriter.joins(left, numbered(matrix.MATRIX, "relu(y @ w)"))


def test_congruence_reaches_into_terms_and_sums() -> None:
    classes = Classes()
    x, y, z = (numbered(matrix.ELEMENTWISE, name) for name in "xyz")
    classes.merge(apply("add", x, y), apply("relu", z))
    around = apply("mul", apply("add", x, y), z)
    assert classes.canonical(around) is apply("mul", apply("relu", z), z)
    assert classes.canonical(apply("add", x, y, z)) is apply("add", apply("relu", z), z)
    assert classes.canonical(apply("add", x, z)) is apply("add", x, z)
    classes.merge(apply("relu", z), x)
    assert classes.canonical(around) is apply("mul", x, z)


def test_what_was_settled_before_is_known_in_larger_terms() -> None:
    kept = KeptEqualities()
    settled = candidate(matrix.ELEMENTWISE, "relu(x + y)", "relu(x - y)")
    larger = candidate(matrix.ELEMENTWISE, "relu(x + y) * z", "relu(x - y) * z")
    assert kept.part(larger) == "core"
    kept.settle(settled)
    assert kept.part(larger) is None


def test_a_rule_added_later_is_found_from_terms_that_were_looked_at_before() -> None:
    rewriter = Rewriter()
    left, right = numbered(matrix.ELEMENTWISE, "relu(relu(x))"), numbered(matrix.ELEMENTWISE, "relu(x)")
    assert rewriter.steps(left) == ()
    assert not rewriter.joins(left, right)
    rewriter.add(parse_rule("r: relu(relu(x)) => relu(x) for x[2]"))
    assert right in rewriter.steps(left)
    assert rewriter.joins(left, right)


@pytest.mark.parametrize("universe", UNIVERSES, ids=lambda u: u.name)
def test_numbers_are_large_where_they_can_be_and_typed(universe: Universe) -> None:
    numbers = Numbered(distinct_numbers(universe))
    built = [t for t in enumerate_universe(replace(universe, limit=2), 0).representatives if t.args]
    assert built
    assert all(numbers.of(t) is not None for t in built)


def test_a_step_up_and_down_joins_around() -> None:
    rewriter = Rewriter()
    rewriter.add(parse_rule("r: x + y - y => x for x[2], y[2]"))
    rewriter.add(parse_rule("r: relu(relu(x)) => relu(x) for x[2]"))
    left, right = numbered(matrix.ELEMENTWISE, "relu(x + y - y)"), numbered(matrix.ELEMENTWISE, "relu(relu(x))")
    assert rewriter.joins_around(left, right)
    assert not rewriter.joins_around(left, numbered(matrix.ELEMENTWISE, "relu(y)"))


def test_an_equality_is_news_once() -> None:
    kept = KeptEqualities()
    found = candidate(matrix.MATRIX, "x @ w + x @ v", "x @ (w + v)")
    assert kept.part(found) == "core"
    assert kept.add(parse_rule(FACTOR_WEIGHTS))
    assert kept.part(found) is None
    assert not kept.add(parse_rule(FACTOR_WEIGHTS))


def test_a_step_over_a_hill_is_for_the_search() -> None:
    kept = KeptEqualities()
    found = candidate(matrix.LOW_RANK, "x @ w + x @ v @ u", "x @ (w + v @ u)")
    kept.add(parse_rule(FACTOR_WEIGHTS))
    kept.add(parse_rule("r: x @ w @ u => x @ (w @ u) for x[2], w[2], u[2]"))
    assert kept.part(found) == "search"
    assert crosses_hill(found, kept.sizings(matrix.LOW_RANK)[0])
    turned = Candidate(found.universe, found.right, found.left)
    assert not crosses_hill(turned, kept.sizings(matrix.LOW_RANK)[0])


def test_a_climb_of_less_than_a_tenth_is_no_hill_whatever_extents_are_larger() -> None:
    kept = KeptEqualities()
    kept.add(parse_rule("r: scale(x, factor=a) @ w => scale(x @ w, factor=a) for x[2], w[2]"))
    kept.add(parse_rule("r: x @ scale(w, factor=a) => scale(x @ w, factor=a) for x[2], w[2]"))
    found = candidate(matrix.MATRIX, "scale(x, factor=a) @ w", "x @ scale(w, factor=a)")
    small, large = (sizing(of(matrix.MATRIX, "x @ w")) for sizing in kept.sizings(matrix.MATRIX))
    assert small is not None
    assert large is not None
    assert (small.args[0].sizes < small.sizes, large.args[0].sizes < large.sizes) == (True, False)
    assert kept.part(found) is None


def test_steps_that_no_search_takes_lead_over_no_hill() -> None:
    kept = KeptEqualities()
    kept.add(parse_rule("r: x - y => scale(y, factor=-1) + x for x[2], y[2]"))
    kept.add(parse_rule("r: scale(x @ w, factor=a) => scale(x, factor=a) @ w for x[2], w[2]"))
    kept.add(parse_rule("r: x @ w + y @ w => (x + y) @ w for x[2], y[2], w[2]"))
    assert kept.part(candidate(matrix.DIFFERENCES, "x @ w - y @ w", "(x - y) @ w")) == "search"


def test_what_another_kind_of_operator_computes_is_kept_though_rules_join_it() -> None:
    weighted, kernel = "x * expand(t, shape=x.shape, axes=(-3,))", "identity_kernel(shape=({0}, {0}, 1, 1), at=(0, 0))"
    convolved = f"conv(x, {kernel} * expand(t, shape=({{0}}, {{0}}, 1, 1), axes=(-4,)))"
    kept = KeptEqualities()
    kept.add(parse_rule(f"r: conv(x, {kernel.format('x.shape[-3]')}) => x for x[4]"))
    kept.add(
        parse_rule(
            "r: conv(x, w * expand(t, shape=w.shape, axes=(-4,))) "
            "=> conv(x, w) * expand(t, shape=conv(x, w).shape, axes=(-3,)) for x[4], w[4], t[1]"
        )
    )
    found = candidate(convolution.DENSE, convolved.format("(d * g)"), weighted)
    assert kept.part(found) == "search"
    kept.add(parse_rule(f"r: {weighted} => {convolved.format('t.shape[-1]')} for x[4], t[1]"))
    assert kept.part(found) is None


def test_a_sum_as_a_difference_is_kept_both_ways_though_rules_join_it() -> None:
    kept = KeptEqualities()
    kept.add(parse_rule("r: y - scale(x, factor=-1) => x + y for x[2], y[2]"))
    kept.add(parse_rule("r: scale(y, factor=-1) + x => x - y for x[2], y[2]"))
    kept.add(parse_rule("r: scale(x @ w, factor=a) => x @ scale(w, factor=a) for x[2], w[2]"))
    suggested = enumerate_universe(matrix.SIGNS, 0).candidates
    assert len(suggested) == 2
    for found in suggested:
        assert kept.part(found) == "search"
        for one in (found, Candidate(found.universe, found.right, found.left)):
            assert all(is_useful(one, sizing) and is_shortcut(one, sizing) for sizing in kept.sizings(matrix.SIGNS))
    kept.add(parse_rule("r: x + y @ w => x - y @ scale(w, factor=-1) for x[2], y[2], w[2]"))
    assert [kept.part(found) for found in suggested].count(None) == 1


def test_a_constant_factor_taken_out_is_kept_though_rules_join_it() -> None:
    scaled, ones = "concat(scale(x, factor=a), y, axis=-1)", "scale(ones(shape=x.shape), factor=a)"
    factored = f"concat({ones}, ones(shape=y.shape), axis=-1) * concat(x, y, axis=-1)"
    known = (
        "r: concat(x * y, q * z, axis=-1) => concat(x, q, axis=-1) * concat(y, z, axis=-1) for x[2], y[2], z[2], q[2]",
        f"r: scale(x, factor=a) => x * {ones} for x[2]",
        "r: ones(shape=x.shape) * x => x for x[2]",
    )
    kept = KeptEqualities()
    for text in known:
        kept.add(parse_rule(text))
    left, right = (parse(t, {v.name: v for row in matrix.FACTORED.variables for v in row}) for t in (scaled, factored))
    found, turned = Candidate(matrix.FACTORED, left, right), Candidate(matrix.FACTORED, right, left)
    assert kept.part(found) == kept.part(turned) == "search"
    for sizing in kept.sizings(matrix.FACTORED):
        assert is_useful(found, sizing)
        assert (is_shortcut(found, sizing), is_shortcut(turned, sizing)) == (True, False)
    kept.add(parse_rule(f"r: {scaled} => {factored} for x[2], y[2]"))
    assert kept.part(found) is None


def test_a_constant_factor_that_steps_take_out_is_nothing_new() -> None:
    kept = KeptEqualities()
    kept.add(parse_rule("r: scale(x, factor=a) => x @ scale(eye(n=x.shape[-1]), factor=a) for x[2]"))
    kept.add(parse_rule("r: relu(relu(x)) => relu(x) for x[2]"))
    assert kept.part(candidate(matrix.SQUARE, "scale(x, factor=a)", "x @ scale(eye(n=x.shape[-1]), factor=a)")) is None


def test_weights_are_left_alone_on_the_way_over_a_hill() -> None:
    kept = KeptEqualities()
    kept.add(
        parse_rule(
            "r: upsample(x, rows=a, columns=b) + upsample(y, rows=a, columns=b) => upsample(x + y, rows=a, columns=b) "
            "for x[4], y[4]"
        )
    )
    kept.add(
        parse_rule(
            "r: upsample(expand(t, shape=n, axes=(k,)), rows=a, columns=b) "
            "=> expand(t, shape=(n0, n1, n2 * a, n3 * b), axes=(k,)) for t[1], n[4], k[-3]"
        )
    )
    enlarged = "upsample(x, rows=r0, columns=r1)"
    bias = "expand(t, shape={0}.shape, axes=(-3,))".format
    found = candidate(
        images.ENLARGED_BIASES, f"{enlarged} + {bias(f'({enlarged})')}", f"upsample(x + {bias('x')}, rows=r0, columns=r1)"
    )
    assert kept.part(found) == "search"


@pytest.mark.parametrize(
    ("left", "right", "serves"),
    [
        ("x @ w + x @ v", "x @ (w + v)", True),
        ("x @ (w + v)", "x @ w + x @ v", False),
        ("x", "relu(x)", False),
        ("relu(x)", "relu(relu(x))", False),
        ("relu(x)", "relu(y)", False),
        ("relu(transpose(x, perm=(-1, -2)))", "transpose(relu(x), perm=(-1, -2))", True),
        ("reduce_mean(concat(x, y, axis=-1), axes=(-1,))", "reduce_mean(concat(y, x, axis=-1), axes=(-1,))", False),
    ],
)
def test_a_direction_serves_a_search_or_not(left: str, right: str, serves: bool) -> None:
    assert is_useful(candidate(matrix.MATRIX, left, right), KeptEqualities().sizings(matrix.MATRIX)[0]) is serves


def test_weights_cost_nothing_once_they_are_known() -> None:
    term = numbered(matrix.MATRIX, "x @ (w + v)")
    known, unknown = (effort([term], weights_known=k) for k in (True, False))
    assert (known.operators, unknown.operators) == (1, 2)
    assert known.work < unknown.work


# ---------------------------------------------------------------- names


def test_names_tell_the_operators_and_are_unique() -> None:
    rules = [parse_rule(FACTOR_WEIGHTS), parse_rule("r: relu(relu(x)) => relu(x) for x[2]"), parse_rule(FACTOR_WEIGHTS)]
    names = [r.name for r in name_rules(rules)]
    assert names == ["add-matmul-to-matmul-add-1", "relu-to-relu", "add-matmul-to-matmul-add-2"]
    assert [r.name for r in name_rules(rules[1:], rules[:1])] == ["relu-to-relu", "add-matmul-to-matmul-add-2"]


def test_the_families_cover_the_operators_that_rules_are_wanted_for() -> None:
    assert {"matrix", "convolution"} <= set(FAMILIES)
    operators = {t.op for u in UNIVERSES for t in u.templates} | {c.term.op for u in UNIVERSES for c in u.constants}
    assert operators >= {
        "matmul", "add", "sub", "mul", "scale", "relu", "concat", "slice", "transpose", "expand", "reshape", "pad", "conv",
        "avg_pool", "max_pool", "reduce_sum", "reduce_mean", "eye", "ones", "zeros", "identity_kernel", "mean_kernel",
    }  # fmt: skip
    assert all(variables(*u.variables[0]) for u in UNIVERSES)
