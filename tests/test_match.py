"""Matching and rewriting: the matches of a rule, refused matches, and rules of several outputs, which never make a cycle."""

import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Dim, Term, size, subterms, variable
from superopt.errors import NotationError
from superopt.notation.parsing import equation_at_ranks, parse_statement
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule, parse_rule, parse_rules
from superopt.rules.signature import Outline, outlines
from superopt.search.apply import neighbourhood, siblings, successors
from superopt.search.backtracking import SearchLimits, search
from superopt.search.lookahead import Horizon, chains
from superopt.search.meeting import added_term_count, rejoins_slices
from superopt.search.partition import windows
from superopt.search.ruleset import RuleSet, ruleset_outline_may_match, ruleset_term_view

SHARE = parse_rule(
    "share: (x @ y, x @ z) => (slice(m := x @ concat(y, z, axis=-1), axis=-1, start=0, stop=y.shape[-1]), "
    "slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1])) for x[2, 3], y[2], z[2]"
)
FACTOR = parse_rule("factor: x @ y + x @ z => x @ (y + z) for x[2, 3, 4], y[2], z[2]")
RIGHT = parse_rule("right: (x @ y) @ z => x @ (y @ z) for x[2, 3], y[2], z[2]")
CONV = "strides=(s0, s1), pads=({0}), dilations=(d0, d1), group=g"
PADS = "p0, p1, p2, p3"
GROWN = "p0 + d0 * a0, p1 + d1 * a1, p2 + d0 * a2, p3 + d1 * a3"
ENLARGE = parse_rule(
    f"enlarge: conv(x, u, {CONV.format(PADS)}) + conv(x, w, {CONV.format(GROWN)}) => "
    f"conv(x, w + pad(u, before=(0, 0, a0, a1), after=(0, 0, a2, a3)), {CONV.format(GROWN)}) for x[4], u[4], w[4]"
)


def weight(name: str, *shape: int) -> Term:
    return variable(name, shape, constant=True)


def after(state: tuple[Term, ...], *rules: object) -> list[tuple[Term, ...]]:
    return [result for result, _ in successors(state, RuleSet(rules))]  # type: ignore[arg-type]


def test_a_pattern_covers_part_of_a_longer_sum() -> None:
    x, y, z, rest = variable("x", (3, 4)), weight("y", 4, 5), weight("z", 4, 5), variable("rest", (3, 5))
    start = apply("add", apply("matmul", x, y), rest, apply("matmul", x, z))
    wanted = apply("add", apply("matmul", x, apply("add", y, z)), rest)
    assert (wanted,) in after((start,), FACTOR)


def test_a_variable_below_the_root_takes_the_rest_of_a_sum() -> None:
    rule = parse_rule("push: relu(x + y) => relu(y + x) + zeros(shape=x.shape) for x[2], y[2]")
    a, b, c = (variable(n, (2, 2)) for n in "abc")
    term = apply("relu", apply("add", a, b, c))
    found = Pattern.of(rule.equations[0]).matches(term, lambda _: ())
    bound = {frozenset(match.binding.tensors.values()) for match in found}
    assert bound == {frozenset({a, apply("add", b, c)}), frozenset({b, apply("add", a, c)}), frozenset({c, apply("add", a, b)})}


@pytest.mark.parametrize("rank", [2, 3])
def test_a_shared_input_is_merged_at_every_rank_the_rule_states(rank: int) -> None:
    x = variable("x", (2, 3, 4)[-rank:])
    first, second = apply("matmul", x, weight("y", 4, 5)), apply("matmul", x, weight("z", 4, 7))
    results = after((first, second), SHARE)
    assert len(results) == 2
    for result in results:
        assert [t.shape[-1] for t in result] == [5, 7]
        assert {t.op for t in result} == {"slice"}
        assert result[0].args == result[1].args


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        ("x @ (y + z)", ("matmul", "", ("add", "", ""))),
        ("x + relu(y) + z", ("add", "", ("relu", ""), "")),
        ("slice(m := x @ y, axis=-1, start=0, stop=m.shape[-1])", ("slice", ("matmul", "", ""))),
        ("conv(x, reshape(w, shape=(x @ y).shape), group=g)", ("conv", "", ("reshape", ""))),
        ("relu(m := x @ y) - m", ("sub", ("relu", ("matmul", "", "")), ("matmul", "", ""))),
    ],
)
def test_an_outline_is_the_term_without_its_attributes(text: str, outline: object) -> None:
    def shown(found: Outline) -> object:
        return (found.op, *map(shown, found.args)) if found.op else ""

    assert [shown(found) for found in outlines(text)] == [outline]


def test_a_rule_whose_outline_does_not_fit_is_never_read() -> None:
    unreadable = Rule("unreadable", parse_statement("unreadable: relu(x @ conv(y, z)) => x for x[2]"))
    twofold = Rule("twofold", parse_statement("twofold: (relu(x), exp(x @ y)) => (x, y) for x[7]"))
    x, y = variable("x", (3, 4)), weight("y", 4, 5)
    term = apply("relu", apply("matmul", x, y))
    assert after((term,), unreadable, twofold) == []
    with pytest.raises(NotationError):
        _ = unreadable.equations


def test_what_fits_depends_on_the_operators_near_the_root() -> None:
    x, y, z = variable("x", (3, 4)), weight("y", 4, 5), weight("z", 4, 5)
    product = apply("matmul", x, y)
    (factor,) = outlines(FACTOR.statement.left)
    assert ruleset_outline_may_match(
        factor, ruleset_term_view(apply("add", product, apply("matmul", x, z), variable("r", (3, 5))))
    )
    assert ruleset_outline_may_match(factor, ruleset_term_view(apply("add", product, product)))
    assert not ruleset_outline_may_match(factor, ruleset_term_view(apply("add", apply("relu", product), variable("r", (3, 5)))))
    assert not ruleset_outline_may_match(factor, ruleset_term_view(product))
    (shared,) = outlines("matmul(x, relu(y)) - exp(z)")
    assert ruleset_outline_may_match(
        shared, ruleset_term_view(apply("sub", apply("matmul", x, apply("relu", y)), apply("exp", product)))
    )
    assert not ruleset_outline_may_match(shared, ruleset_term_view(apply("sub", apply("matmul", x, y), apply("exp", product))))


def test_siblings_are_as_far_from_the_inputs_along_the_longest_path() -> None:
    x, y = variable("x", (4, 4)), weight("y", 4, 4)
    product = apply("matmul", x, y)
    turned = apply("transpose", product, perm=(-1, -2))
    first, other = apply("relu", product), apply("exp", x)
    total = apply("add", x, first)
    assert siblings([product, turned, other, first, total]) == [[], [product, turned, other], [first], [total]]


def test_rules_that_leave_one_operand_are_those_whose_right_side_is_a_variable() -> None:
    rules = parse_rules(
        """
        zero: x + zeros(shape=x.shape) => x for x[2]
        halves: scale(x, factor=2) => x + x for x[2]
        parts: (relu(x), exp(x + zeros(shape=x.shape))) => (relu(x), exp(x)) for x[2]
        both: (x + zeros(shape=x.shape), exp(y)) => (x, exp(y)) for x[2], y[2]
        """
    )
    assert RuleSet(rules).vanishing.names == ("zero",)


def test_outputs_that_feed_each_other_are_not_merged() -> None:
    x, y = variable("x", (4, 4)), weight("y", 4, 4)
    first = apply("matmul", x, y)
    second = apply("matmul", x, first)
    assert after((first, second), SHARE) == []


def test_enlargement_solves_for_the_border_and_refuses_a_smaller_kernel() -> None:
    x, u, w = variable("x", (1, 8, 9, 9)), weight("u", 8, 1, 1, 2), weight("w", 8, 1, 3, 4)
    small = apply("conv", x, u, pads=(0, 0, 0, 0), dilations=(2, 2), group=8)
    large = apply("conv", x, w, pads=(2, 2, 2, 2), dilations=(2, 2), group=8)
    (result,) = after((apply("add", small, large),), ENLARGE)
    (padded,) = (t for t in subterms(*result) if t.op == "pad")
    assert (padded["before"], padded["after"]) == ((0, 0, 1, 1), (0, 0, 1, 1))
    shifted = apply("conv", x, w, pads=(1, 2, 3, 2), dilations=(2, 2), group=8)
    assert after((apply("add", small, shifted),), ENLARGE) == []


def test_the_neighbourhood_of_a_step_is_its_new_terms_and_two_levels_of_users() -> None:
    def chain(first: str) -> list[Term]:
        terms = [variable("x", (2, 3))]
        for op in (first, "exp", "tanh", "sigmoid", "relu"):
            terms.append(apply(op, terms[-1]))
        return terms

    before, after_step, other = chain("abs"), chain("sqrt"), apply("log", variable("y", (2, 3)))
    assert neighbourhood((after_step[-1], other), (before[-1], other)) == {*after_step[1:4]}
    assert neighbourhood((before[-1], other), (before[-1], other)) == set()


def test_search_crosses_a_hill_and_reports_the_steps() -> None:
    x, w = variable("x", (8, 64)), weight("w", 64, 64)
    a, b = weight("a", 64, 2), weight("b", 2, 64)
    start = apply("add", apply("matmul", x, w), apply("matmul", apply("matmul", x, a), b))

    def cost(state: tuple[Term, ...]) -> float:
        live = [t for t in subterms(*state) if t.op == "matmul" and not t.constant]
        return float(sum(8 * rows * columns for rows, columns in (t.args[1].shape for t in live)))  # type: ignore[arg-type]

    found = search((start,), RuleSet([FACTOR, RIGHT]), estimate=cost, measure=cost, limits=SearchLimits(alpha=3.0))
    assert found.outputs == (apply("matmul", x, apply("add", w, apply("matmul", a, b))),)
    assert [s.rule for s in found.steps] == ["right", "factor"]
    assert found.after < found.before
    greedy = search((start,), RuleSet([FACTOR, RIGHT]), estimate=cost, measure=cost, limits=SearchLimits(alpha=1.0))
    assert greedy.outputs == (start,)


def test_a_chain_is_offered_only_where_it_ends_cheaper() -> None:
    x, w, a, b = variable("x", (8, 64)), weight("w", 64, 64), weight("a", 64, 2), weight("b", 2, 64)
    start = (apply("add", apply("matmul", x, w), apply("matmul", apply("matmul", x, a), b)),)
    folded = (apply("matmul", x, apply("add", w, apply("matmul", a, b))),)

    def size(state: tuple[Term, ...]) -> float:
        products = [t for t in subterms(*state) if t.op == "matmul" and not t.constant]
        return float(sum(t.args[1].sizes[0] * t.args[1].sizes[1] for t in products))

    rules = RuleSet([FACTOR, RIGHT])
    found = list(chains(start, rules, estimate=size, ceiling=3 * size(start), horizon=Horizon()))
    assert [(c.state, [s.rule for s in c.steps]) for c in found] == [(folded, ["right", "factor"])]
    assert not list(chains(start, rules, estimate=size, ceiling=1.2 * size(start), horizon=Horizon()))
    assert not list(chains(folded, rules, estimate=size, ceiling=9 * size(start), horizon=Horizon()))


def test_layers_are_cut_alike_whatever_stands_before_them() -> None:
    layer = [*"abcdefghijk"]
    for before in range(9):
        nodes = [*range(before + 4 * len(layer) + 3)]
        kinds = [*map(str, range(before)), *(4 * layer), "x", "y", "z"]
        reads = {node: [node - 1, *([0] if kinds[node] == "e" else [])] for node in nodes[1:]}
        found = windows(nodes, reads, kinds, least=3, most=5)
        assert [n for w in found for n in w] == nodes
        assert all(len(w) <= 5 for w in found)
        cut = ["".join(kinds[n] for n in w) for w in found]
        assert max(map(cut.count, cut)) >= 3, "repetitions of a layer are the same windows"
        assert len({w for w in cut if not any(kind in w for kind in "xyz0")}) <= 3 + before


def test_the_shortest_layer_that_repeats_is_found() -> None:
    nodes = [*range(24)]
    found = windows(nodes, {node: [node - 1] for node in nodes[1:]}, [*("pqr" * 8)], least=2, most=9)
    assert [len(w) for w in found] == [3] * 8


def test_windows_cut_where_one_value_crosses_and_cover_every_node() -> None:
    nodes = [f"{stage}{part}" for stage in "abcd" for part in "123"]
    reads = {}
    for before, stage in zip("_abc", "abcd", strict=True):
        reads[f"{stage}1"] = [f"{before}3"] if before != "_" else []
        reads[f"{stage}2"] = list(reads[f"{stage}1"])
        reads[f"{stage}3"] = [f"{stage}1", f"{stage}2"]
    found = windows(nodes, reads, least=2, most=5)
    assert [n for w in found for n in w] == nodes
    assert all(w[-1].endswith("3") for w in found)
    shifted = windows(nodes, reads, least=6, most=9, between=True)
    assert [n for w in shifted for n in w] == nodes
    assert [(w[0], w[-1]) for w in shifted] == [("a1", "a3"), ("b1", "c3"), ("d1", "d3")]
    assert all(len(w) <= 9 for w in windows(nodes, reads, least=9, most=9, between=True))


def test_windows_are_cut_where_the_fewest_values_cross_if_several_cross_everywhere() -> None:
    nodes = [*range(12)]
    reads = {node: ["a", "b", *([node - 1] if node not in (0, 4) else [])] for node in nodes}
    assert windows(nodes, reads, least=2, most=6) == [(0, 1, 2, 3), (4, 5, 6, 7, 8, 9), (10, 11)]


def test_a_rule_does_not_match_where_an_attribute_would_divide_by_zero() -> None:
    statement = parse_statement("reciprocal(scale(x, factor=a)) => scale(reciprocal(x), factor=1 / a)  for x[2]")
    pattern = Pattern.of(equation_at_ranks(statement, {"x": 2}))
    x = variable("x", (2, 3))
    for factor, matches in ((4, 1), (0, 0), (0.0, 0)):
        term = apply("reciprocal", apply("scale", x, factor=factor))
        assert len(list(pattern.matches(term, lambda _: ()))) == matches


@pytest.mark.parametrize(("before", "matches"), [(-1, 0), (0, 1), (3, 1)])
def test_a_dynamic_extent_that_may_be_zero_is_not_introduced(before: int, matches: int) -> None:
    filled = parse_rule(
        "filled: slice(x, axis=-1, start=a, stop=x.shape[-1]) => slice(concat(zeros(shape=(a,)), "
        "slice(x, axis=-1, start=a, stop=x.shape[-1]), axis=-1), axis=-1, start=a, stop=x.shape[-1]) for x[1]"
    )
    n = size(Dim("n", 0))
    x = variable("x", (n + 4,))
    term = apply("slice", x, axis=-1, start=n + before, stop=n + 4)
    assert len(list(Pattern.of(filled.equations[0]).matches(term, lambda _: ()))) == matches


def test_only_slices_that_are_concatenated_along_their_axis_are_rejoined() -> None:
    x = variable("x", (4, 6))
    first, last = (apply("slice", x, axis=-1, start=start, stop=start + 3) for start in (0, 3))
    assert rejoins_slices(apply("concat", first, last, axis=-1))
    assert not rejoins_slices(apply("concat", last, first, axis=-1))
    assert not rejoins_slices(apply("concat", first, last, axis=-2))
    rows = (apply("reshape", part, shape=(1, 4, 3)) for part in (first, last))
    assert rejoins_slices(apply("concat", *rows, axis=-3))


def test_terms_that_a_match_adds_are_counted_once_and_not_if_they_are_live() -> None:
    x, y, z = (variable(name, (4, 4)) for name in "xyz")
    ((_, match),) = RuleSet([FACTOR]).matches(apply("add", apply("matmul", x, y), apply("matmul", x, z)))
    assert added_term_count(match, ()) == 2
    assert added_term_count(match, {apply("add", y, z)}) == 1
