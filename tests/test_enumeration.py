"""Enumeration: batches compared with single terms, columns compared with brute force, and terms that are left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superopt.algebra.evaluate import evaluate_terms
from superopt.algebra.exact import Fields
from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Compare, Term, subterms, variable, variables
from superopt.discovery.enumerate import Candidate, Enumeration, candidate_order, enumerate_universe, enumerated_term_size
from superopt.discovery.fingerprint import Environment, Fingerprints, comparison_domain, draw_environment, environments
from superopt.discovery.join import joins
from superopt.discovery.universe import Constant, Template, Universe, binary, split_parts, unary
from superopt.discovery.universes import convolution, matrix
from superopt.discovery.universes.families import UNIVERSES
from superopt.errors import InstantiationError, ShapeError
from superopt.notation.parsing import parse

pytestmark = pytest.mark.slow

N, K = matrix.N, matrix.K
X, Y, Z = matrix.X, matrix.Y, matrix.Z
SIZES = {"n": (2, 3, 4), "k": (2, 3, 4)}
ONES, ZEROS = apply("ones", shape=(N, K)), apply("zeros", shape=(N, K))

SUMS = Universe(
    family="matrix",
    name="sums",
    variables=((X, Y),),
    constants=(Constant(ZEROS, ("add", "relu")),),
    templates=(unary("relu"), unary("scale", factor=-1), binary("add"), binary("sub")),
    ranges=SIZES,
    limit=4,
    repeats=True,
)
MOVED = Universe(
    family="matrix",
    name="moved",
    variables=((X,), (variable("w", (K, matrix.M)),)),
    constants=(),
    templates=(unary("relu"), split_parts(-2), binary("matmul"), binary("concat", axis=-2)),
    ranges={**SIZES, "m": (2, 3, 4)},
    limit=4,
)
EXPONENTIALS = Universe(
    family="matrix",
    name="exponentials",
    variables=((X, Y),),
    constants=(Constant(ONES, ("add",)),),
    templates=(unary("exp"), unary("log"), unary("reciprocal"), unary("scale", factor=-1), binary("mul"), binary("add")),
    ranges=SIZES,
    limit=3,
)
ROOTS = replace(
    EXPONENTIALS,
    name="roots",
    templates=(unary("sqrt"), unary("abs"), unary("reciprocal"), binary("mul"), binary("add")),
    repeats=True,
)
CHOICES = Universe(
    family="matrix",
    name="choices",
    variables=((X, Y), (variable("c", (N, K)), variable("d", (N, K)))),
    constants=(),
    templates=(
        Template("where", 3, takes=(("c", "d", "logical_not"), (), ())),
        unary("logical_not"),
        unary("relu"),
        binary("less"),
    ),
    ranges=SIZES,
    conditions=("c", "d"),
    limit=3,
)
SOME = 400
SMALL = (
    matrix.LOW_RANK,
    replace(convolution.ENLARGED, limit=3),
    convolution.RESIDUAL,
    SUMS,
    MOVED,
    EXPONENTIALS,
    ROOTS,
    CHOICES,
)


@pytest.fixture(scope="module")
def enumerations() -> dict[str, Enumeration]:
    return {u.name: enumerate_universe(u, 0, every=True) for u in SMALL}


def values(universe: Universe, drawn: Environment, *terms: Term) -> list[np.ndarray[Any, Any]]:
    """Return the values that distinguish the terms in an environment, evaluated without batches."""
    domain = comparison_domain(universe)
    arrays = {name: a[..., None] for name, a in drawn.arrays.items()}
    with np.errstate(all="ignore"):
        found = evaluate_terms(terms, arrays, drawn.value, domain)
    return [(domain.identities(a) if isinstance(domain, Fields) else a)[..., 0] for a in found]


def texts(universe: Universe, found: Enumeration) -> set[tuple[str, str]]:
    return {(repr(c.left[0]), repr(c.right[0])) for c in found.candidates}


def of(universe: Universe, text: str) -> Term:
    return parse(text, {v.name: v for row in universe.variables for v in row})[0]


# ---------------------------------------------------------------- fingerprints


@pytest.mark.parametrize("universe", UNIVERSES, ids=lambda u: u.name)
def test_a_batch_has_the_values_that_terms_have_one_by_one(universe: Universe) -> None:
    rng = np.random.default_rng(2)
    (drawn,) = [draw_environment(universe, lambda _: True, rng)]
    fingerprints = Fingerprints(universe, [drawn])
    leaves = [v for row in universe.variables for v in row]
    compared = 0
    for template in universe.templates:
        for operands in itertools.product(leaves, repeat=template.operands):
            try:
                term = apply(template.op, *operands, **template.attributes)
                (alone,) = values(universe, drawn, term)
            except ShapeError:
                continue
            stacks = [np.concatenate([fingerprints.leaf(a, 0)] * 3, axis=-1) for a in operands]
            batch = fingerprints.applied(template.op, template.attributes, stacks, 0)
            assert batch is not None
            own = fingerprints.domain.identities(batch) if isinstance(fingerprints.domain, Fields) else batch
            np.testing.assert_array_equal(own, np.repeat(alone[..., None], 3, axis=-1))
            compared += 1
    assert compared


def test_numbers_that_no_symbols_meet_are_reported() -> None:
    with pytest.raises(InstantiationError):
        draw_environment(matrix.MATRIX, lambda _: False, np.random.default_rng(0))


def test_variables_are_what_the_universe_says() -> None:
    drawn = draw_environment(replace(CHOICES, positive=("x",)), lambda _: True, np.random.default_rng(0))
    assert set(np.unique(drawn.arrays["c"])) <= {0.0, 1.0}
    assert (drawn.arrays["x"] > 0).all()
    assert len({tuple(e.arrays["y"].shape) for e in environments(SUMS, lambda _: True, np.random.default_rng(0))}) > 1


# ---------------------------------------------------------------- comparison with brute force


def brute(universe: Universe) -> tuple[dict[Term, object], dict[object, Term]]:
    """Return the value of every term up to the size limit, and the first term of each value.

    Each term applies an operator to such first terms.
    """
    first: dict[object, Term] = {}
    value_of: dict[Term, object] = {}
    below = [v for row in universe.variables for v in row] + [c.term for c in universe.constants]
    for level in range(universe.limit + 1):
        for term in dict.fromkeys(built(universe, list(first.values()), level) if level else below):
            value = value_in(universe, term)
            if value is not None:
                value_of[term] = value
                first.setdefault(value, term)
    return value_of, first


ENVIRONMENTS = {
    u.name: [draw_environment(u, lambda _: True, np.random.default_rng(n)) for n in range(4)] for u in (SUMS, MOVED)
}


def value_in(universe: Universe, term: Term) -> object:
    try:
        found = [values(universe, drawn, term)[0] + 0.0 for drawn in ENVIRONMENTS[universe.name]]
    except ShapeError:
        return None
    return (term.shape, *(v.tobytes() for v in found))


def built(universe: Universe, below: list[Term], level: int) -> Iterator[Term]:
    for template in universe.templates:
        for operands in itertools.product(below, repeat=template.operands):
            if sum(enumerated_term_size(a) for a in operands) + 1 < level or (
                not universe.repeats and len(set(operands)) < len(operands)
            ):
                continue
            if any(t.op == template.op for t in operands[:1]) and template.op in ("relu", "scale") and not universe.repeats:
                continue
            if operator(template.op).commutative and len(operands) == 2 and operands[0].key > operands[1].key:
                continue
            if any(not t.args and not t.is_variable and template.op not in under(universe, t) for t in operands):
                continue
            yield from typed(universe, template, operands, level)


def under(universe: Universe, term: Term) -> tuple[str, ...]:
    return next(c.under for c in universe.constants if c.term is term)


def typed(universe: Universe, template: Template, operands: tuple[Term, ...], level: int) -> Iterator[Term]:
    choices = [template.attributes]
    if template.cut:
        x = operands[0]
        if x.op == "concat" and x["axis"] == template.cut:
            bounds = [x.args[0].shape[template.cut]]
        else:
            sizes = {n for row in universe.variables for v in row for n in v.shape}
            bounds = [n for n in sizes if x.shape[template.cut] - n in sizes]
        whole = x.shape[template.cut]
        choices = [{"axis": template.cut, "start": a, "stop": b} for n in bounds for a, b in ((0, n), (n, whole))]
    for attributes in choices:
        try:
            term = apply(template.op, *operands, **attributes)
        except ShapeError:
            continue
        distinct = universe.repeats or len(set(term.args)) == len(term.args)
        if (
            all(isinstance(c, Compare) and c.relation == ">=" for c in term.requires)
            and enumerated_term_size(term) == level
            and distinct
        ):
            yield term


@pytest.mark.parametrize("universe", [replace(SUMS, limit=3), MOVED], ids=lambda u: f"{u.name}-{u.limit}")
def test_columns_find_what_brute_force_finds(universe: Universe) -> None:
    value_of, _ = brute(universe)
    found = enumerate_universe(universe, 0, every=True)
    below = {value for term, value in value_of.items() if enumerated_term_size(term) < universe.limit}
    assert {value_in(universe, t) for t in found.representatives} == below
    assert len(found.representatives) == len(below)
    last = {v for t, v in value_of.items() if enumerated_term_size(t) == universe.limit and prefixed(universe, t)}
    assert found.classes == len(below | last)


def prefixed(universe: Universe, *terms: Term) -> bool:
    used = set(variables(*terms))
    return all(not (b in used and a not in used) for row in universe.variables for a, b in itertools.pairwise(row))


@pytest.mark.parametrize("universe", SMALL, ids=lambda u: u.name)
def test_both_sides_of_a_candidate_agree_where_nothing_was_fitted(universe: Universe, enumerations: Any) -> None:
    rng = np.random.default_rng(99)
    drawn = draw_environment(universe, lambda _: True, rng, positive=universe is ROOTS or universe is EXPONENTIALS)
    compared = differ = 0
    every = enumerations[universe.name].candidates
    for found in every[:: 1 + len(every) // SOME]:
        try:
            left, right = values(universe, drawn, *found.left, *found.right)
        except ShapeError:
            continue
        known = ~np.isnan(left) & ~np.isnan(right)
        differ += not np.array_equal(left[known], right[known])
        compared += bool(known.any())
    assert compared
    assert differ <= (0.02 * compared if universe.conditions else 0)


@pytest.mark.parametrize("universe", SMALL, ids=lambda u: u.name)
def test_terms_are_over_representatives_within_the_limit(universe: Universe, enumerations: Any) -> None:
    found = enumerations[universe.name]
    representatives = set(found.representatives)
    assert len(representatives) == len(found.representatives)
    for candidate in found.candidates:
        assert enumerated_term_size(*candidate.right) <= enumerated_term_size(*candidate.left) <= universe.limit
        assert all(a in representatives for a in candidate.left[0].args)
    assert found.graphs >= found.built >= found.classes > len(representatives)


def test_the_same_seed_enumerates_the_same(enumerations: Any) -> None:
    again = enumerate_universe(convolution.RESIDUAL, 0, every=True)
    first = enumerations["residual"]
    assert [t.key for t in again.representatives] == [t.key for t in first.representatives]
    assert again.candidates == first.candidates


def test_small_and_general_candidates_come_first() -> None:
    sides = [("relu(relu(x))", "relu(x)"), ("x @ w + x @ v", "x @ (w + v)"), ("relu(relu(x @ w))", "relu(x @ w)")]
    small, general, special = [Candidate(matrix.MATRIX, (of(matrix.MATRIX, a),), (of(matrix.MATRIX, b),)) for a, b in sides]
    assert sorted([special, general, small], key=candidate_order) == [small, general, special]


@pytest.mark.parametrize(
    ("universe", "left", "right"),
    [
        (EXPONENTIALS, "exp(x) * exp(y)", "exp(x + y)"),
        (EXPONENTIALS, "exp(scale(x, factor=-1))", "reciprocal(exp(x))"),
        (EXPONENTIALS, "log(exp(x))", "x"),
        (EXPONENTIALS, "exp(log(x))", "x"),
        (EXPONENTIALS, "log(reciprocal(x))", "scale(log(x), factor=-1)"),
        (ROOTS, "sqrt(x) * sqrt(x)", "x"),
        (ROOTS, "sqrt(x * x)", "abs(x)"),
        (ROOTS, "abs(x) * abs(y)", "abs(x * y)"),
        (CHOICES, "where(logical_not(c), x, y)", "where(c, y, x)"),
        (CHOICES, "relu(where(c, x, y))", "where(c, relu(x), relu(y))"),
    ],
)
def test_laws_of_functions_are_candidates(universe: Universe, left: str, right: str, enumerations: Any) -> None:
    pair = {of(universe, left), of(universe, right)}
    assert any({*c.left, *c.right} == pair for c in enumerations[universe.name].candidates)


def test_partial_functions_do_not_make_signs_vanish(enumerations: Any) -> None:
    found = enumerations["roots"]
    assert of(ROOTS, "abs(x)") in found.representatives
    assert not any(c.left == (of(ROOTS, "abs(x)"),) for c in found.candidates)


# ---------------------------------------------------------------- terms that are left out


@pytest.mark.parametrize("universe", [SUMS, MOVED, convolution.RESIDUAL], ids=lambda u: u.name)
def test_what_is_left_out_is_an_instance_or_a_renaming(universe: Universe, enumerations: Any) -> None:
    few = enumerate_universe(universe, 0)
    every = enumerations[universe.name]
    assert texts(universe, few) < texts(universe, every)
    assert few.instances == len(every.candidates) - len(few.candidates)
    assert (few.built, few.graphs, few.classes) == (every.built, every.graphs, every.classes)


def test_an_instance_is_left_out_and_news_is_not(enumerations: Any) -> None:
    few, every = (texts(SUMS, e) for e in (enumerate_universe(SUMS, 0), enumerations["sums"]))
    twice = repr(of(SUMS, "relu(relu(x))")), repr(of(SUMS, "relu(x)"))
    deeper = repr(of(SUMS, "relu(relu(x + y))")), repr(of(SUMS, "relu(x + y)"))
    assert twice in few
    assert deeper in every - few


# ---------------------------------------------------------------- weights


def test_operators_on_weights_alone_need_not_count() -> None:
    universe = matrix.LOW_RANK
    small = [enumerate_universe(replace(universe, limit=2, weighing=w), 0) for w in (0, 2)]
    assert of(universe, "x @ (w + v @ u)") not in small[0].representatives
    assert of(universe, "w + v @ u") in small[1].representatives


def test_renamings_are_left_out_where_weights_do_not_count_too() -> None:
    universe = replace(convolution.RESIDUAL, limit=2, weighing=1)
    few, every = (enumerate_universe(universe, 0, every=e) for e in (False, True))
    assert texts(universe, few) < texts(universe, every)
    assert few.built == every.built > enumerate_universe(replace(universe, weighing=0), 0).built


# ---------------------------------------------------------------- joins


def test_products_that_share_an_operand_are_joined() -> None:
    templates = tuple(t for t in convolution.DENSE.templates if t.op in ("conv", "concat", "slice"))
    found = list(joins(enumerate_universe(replace(convolution.DENSE, templates=templates, limit=3), 0)))
    shared = [j for j in found if all(t.op == "conv" for t in j.left) and j.left[0].args[0] is j.left[1].args[0]]
    assert {len(j.left) for j in shared} == {2, 3}
    for join in shared:
        assert len({t.args[0] for t in join.right}) == 1
        assert join.right[0].args[0] not in subterms(*join.left)
        assert all(t.op == "slice" for t in join.right)


@pytest.fixture(scope="module")
def shared_matrices() -> list[Candidate]:
    """Return the candidates that joins find among products of two pairs of matrices."""
    matrices = ((matrix.X, matrix.Y), (matrix.W, matrix.V))
    templates = (split_parts(-1), split_parts(-2), binary("matmul"), binary("concat", axis=-1), binary("concat", axis=-2))
    return list(
        joins(enumerate_universe(replace(matrix.MATRIX, variables=matrices, constants=(), templates=templates, limit=3), 0))
    )


def test_three_products_have_extents_of_their_own(shared_matrices: list[Candidate]) -> None:
    three = [j for j in shared_matrices if len(j.left) == 3]
    shared = next(j for j in three if len({t.args[0] for t in j.left}) == 1)
    assert len({t.shape[-1] for t in shared.left}) == 3
    assert next(t["start"] for t in shared.right) == 0


def test_products_of_different_operands_are_batched(shared_matrices: list[Candidate]) -> None:
    found = [j for j in shared_matrices if j.right[0].op == "reshape"]
    assert [[t.op for t in j.left] for j in found] == [["matmul", "matmul"]]
    whole = {t for j in found for r in j.right for t in subterms(r) if t.op == "matmul"}
    assert {t.rank for t in whole} == {3}
