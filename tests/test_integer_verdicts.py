"""Verdicts on integer expressions (`superopt.algebra.integers`), confirmed by Z3, which the optimizer does not use.

Random expressions are written twice: with the constructors of `superopt.algebra.integers`, and as Z3 terms by the meanings of
the operators. Z3 must agree with every verdict. If Z3 proves that an expression is constant, the normal form must be constant
too in most cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from superopt.algebra.extent import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Indicator,
    Size,
    Sym,
    at_least,
    same,
    size,
    terms_of,
)
from superopt.algebra.integers import (
    absolute,
    choose,
    decide,
    floor_quotient,
    maximum,
    minimum,
    normal,
    normal_condition,
    remainder,
    truncated_quotient,
    truncated_remainder,
    unknown_integer,
    unknown_size,
)
from superopt.algebra.substitution import negation

pytestmark = pytest.mark.slow

STEPS = 400_000
"""Z3's resource limit for one question."""
LEAST = 0
ATOMS: dict[str, Size] = {
    "n": size(Dim("%n", 0)),
    "m": size(Dim("%m", 0)),
    "k": size(Dim("%k", 0)),
    "u": unknown_size(1),
    "z": unknown_integer(1),
}
VARIABLES = {name: z3.Int(name) for name in ATOMS}


@dataclass(frozen=True)
class Both:
    """An expression or condition of the optimizer, and a Z3 term of the intended meaning."""

    ours: Any
    theirs: Any


# ---------------------------------------------------------------- expressions written twice


def drawn(choose_: Callable[[int], int], depth: int) -> Both:
    """Return a random integer expression. `choose_(n)` must return a number below n."""
    if depth == 0 or choose_(6) == 0:
        if choose_(4) == 0:
            number = (0, 1, 2, 3, 4, 7, 8, 16, -1, -5)[choose_(10)]
            return Both(number, z3.IntVal(number))
        name = ("n", "m", "k", "n", "m", "u", "z")[choose_(7)]
        return Both(ATOMS[name], VARIABLES[name])
    a = drawn(choose_, depth - 1)
    kind = choose_(15)
    if kind in (5, 6, 7, 8):
        by = (2, 3, 4, 8, 2, 5, -2, -3)[choose_(8)]
        return divided(kind, a, by)
    if kind == 9:
        return Both(absolute(a.ours, LEAST), z3.If(a.theirs >= 0, a.theirs, -a.theirs))
    if kind == 10:
        by = (2, 3, 4, 8, -1)[choose_(5)]
        return Both(a.ours * by, a.theirs * by)
    if kind == 13:
        b = drawn(choose_, 0)
        return Both(a.ours * b.ours, a.theirs * b.theirs)
    if kind == 14:
        name = ("n", "m")[choose_(2)]
        below = Both(ATOMS[name] + 1, VARIABLES[name] + 1)
        return Both(floor_quotient(a.ours, below.ours), a.theirs / below.theirs)
    b = drawn(choose_, depth - 1 if choose_(2) else 0)
    match kind:
        case 0 | 1:
            return Both(a.ours + b.ours, a.theirs + b.theirs)
        case 2 | 3:
            return Both(a.ours - b.ours, a.theirs - b.theirs)
        case 4:
            return Both(minimum(a.ours, b.ours, LEAST), z3.If(a.theirs <= b.theirs, a.theirs, b.theirs))
        case 11:
            return Both(maximum(a.ours, b.ours, LEAST), z3.If(a.theirs >= b.theirs, a.theirs, b.theirs))
        case _:
            condition = compared(choose_, drawn(choose_, depth - 1), b)
            return Both(choose(condition.ours, a.ours, b.ours, LEAST), z3.If(condition.theirs, a.theirs, b.theirs))


def divided(kind: int, a: Both, by: int) -> Both:
    """Return a quotient or remainder, rounded down or towards zero.

    Z3's `/` rounds down for positive divisors.
    """
    above, below = (a.theirs, by) if by > 0 else (-a.theirs, -by)
    floor = above / below
    truncated = z3.If(above >= 0, above / below, -((-above) / below))
    match kind:
        case 5:
            return Both(floor_quotient(a.ours, by), floor)
        case 6:
            return Both(remainder(a.ours, by, LEAST), a.theirs - by * floor)
        case 7:
            return Both(truncated_quotient(a.ours, by, LEAST), truncated)
        case _:
            return Both(truncated_remainder(a.ours, by, LEAST), a.theirs - by * truncated)


def compared(choose_: Callable[[int], int], a: Both, b: Both) -> Both:
    """Return a comparison of the two expressions."""
    match choose_(4):
        case 0:
            return Both(same(a.ours, b.ours), a.theirs == b.theirs)
        case 1:
            return Both(negation(same(a.ours, b.ours)), a.theirs != b.theirs)
        case 2:
            return Both(at_least(a.ours, b.ours), a.theirs >= b.theirs)
        case _:
            return Both(at_least(a.ours, b.ours + 1), a.theirs > b.theirs)


@st.composite
def expressions(draw: st.DrawFn) -> Both:
    return drawn(lambda n: draw(st.integers(0, n - 1)), draw(st.integers(1, 3)))


@st.composite
def conditions(draw: st.DrawFn) -> Both:
    def number(n: int) -> int:
        return draw(st.integers(0, n - 1))

    return compared(number, drawn(number, draw(st.integers(1, 3))), drawn(number, draw(st.integers(0, 2))))


# ---------------------------------------------------------------- the optimizer's terms as Z3 terms


def term_of(extent: Extent) -> Any:
    """Return the expression as a Z3 term."""
    total: Any = z3.IntVal(0)
    for monomial, coefficient in terms_of(extent):
        product: Any = z3.IntVal(int(coefficient))
        for atom in monomial:
            product = product * atom_of(atom)
        total = total + product
    return total


def atom_of(atom: Atom) -> Any:
    match atom:
        case Floor(numerator, denominator):
            above, below = term_of(numerator), term_of(denominator)
            return z3.If(below > 0, above / below, (-above) / (-below))
        case Indicator(condition):
            return z3.If(formula_of(condition), z3.IntVal(1), z3.IntVal(0))
        case Dim() | Sym():
            (name,) = (name for name, known in ATOMS.items() if known == size(atom))
            return VARIABLES[name]
        case _:
            raise AssertionError(atom)


def formula_of(condition: Cond) -> Any:
    match condition:
        case bool():
            return z3.BoolVal(condition)
        case Compare(relation, left):
            term = term_of(left)
            return term >= 0 if relation == ">=" else term == 0 if relation == "==" else term != 0
        case AllOf(parts):
            return z3.And(*map(formula_of, parts))
        case AnyOf(parts):
            return z3.Or(*map(formula_of, parts))


def assumptions(least: int) -> list[Any]:
    """Return the assumed bounds: dynamic dimensions are at least `least`, and data-dependent sizes are not negative."""
    low = {"n": least, "m": least, "k": least, "u": 0}
    return [VARIABLES[name] >= bound for name, bound in low.items()]


def refuted(formula: Any, least: int = LEAST) -> bool | None:
    """Return whether no sizes satisfy the formula, or None if Z3 does not know."""
    solver = z3.Solver()
    solver.set("rlimit", STEPS)
    solver.add(*assumptions(least), formula)
    answer = solver.check()
    return None if answer == z3.unknown else bool(answer == z3.unsat)


# ---------------------------------------------------------------- verdicts


@settings(max_examples=150)
@given(expressions())
def test_constructors_and_normal_forms_mean_what_they_say(one: Both) -> None:
    assert refuted(term_of(one.ours) != one.theirs) is not False
    assert refuted(term_of(normal(one.ours, LEAST)) != one.theirs) is not False


@settings(max_examples=200)
@given(conditions(), st.integers(0, 1))
def test_z3_confirms_every_verdict(one: Both, least: int) -> None:
    assert refuted(formula_of(one.ours) != one.theirs) is not False
    verdict = decide(one.ours, least)
    if verdict is not None:
        assert refuted(z3.Not(one.theirs) if verdict else one.theirs, least) is not False
    assert refuted(formula_of(normal_condition(one.ours, least)) != one.theirs, least) is not False


def test_what_z3_decides_is_decided() -> None:
    rng = random.Random(5)
    settled = decided = 0
    for _ in range(150):
        one = compared(rng.randrange, drawn(rng.randrange, rng.randint(1, 3)), drawn(rng.randrange, rng.randint(0, 2)))
        holds = True if refuted(z3.Not(one.theirs)) else False if refuted(one.theirs) else None
        if holds is not None:
            settled += 1
            decided += decide(one.ours, LEAST) is holds
    assert settled >= 25
    assert decided >= 0.95 * settled


@pytest.mark.parametrize(
    ("claim", "truth"),
    [
        (same(remainder(ATOMS["n"], 2), 0), remainder(2 * ATOMS["n"], 2)),
        (same(minimum(ATOMS["n"], 16384), ATOMS["n"]), minimum(ATOMS["n"], ATOMS["n"] + 1) - ATOMS["n"]),
        (
            same(ATOMS["n"], ATOMS["m"]),
            minimum(ATOMS["n"], ATOMS["m"]) + maximum(ATOMS["n"], ATOMS["m"]) - ATOMS["n"] - ATOMS["m"],
        ),
        (at_least(ATOMS["n"], 1), remainder(ATOMS["n"] + remainder(8 - remainder(ATOMS["n"], 8), 8), 8)),
        (same(remainder(ATOMS["z"], 1_000_003), 5), remainder(ATOMS["z"] * ATOMS["z"] + ATOMS["z"], 2)),
    ],
)
def test_what_holds_at_most_sizes_is_not_decided_and_what_holds_at_all_is_zero(claim: Cond, truth: Extent) -> None:
    assert decide(claim, LEAST) is None
    assert refuted(formula_of(claim)) is False
    assert refuted(z3.Not(formula_of(claim))) is False
    assert normal(truth, LEAST) == 0
