"""Arithmetic of sizes and indices: whether a condition follows from others, decided by Z3.

Extents of variables are at least 1, attribute variables and indices are integers (real where marked so), and of a quotient
nothing is known unless its denominator is at least 1. A product of unknowns is first taken as one more unknown, about
which only the order of products is known, so that most questions are linear ones; what that cannot settle goes to Z3's
nonlinear arithmetic, limited by a count of steps and never by a clock, so that answers are the same everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import z3

from superopt.graph import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Inverse,
    Size,
    Sym,
    at_least,
    atoms,
    negation,
    same,
    size,
)

Monomial = tuple[Atom, ...]
LINEAR_STEPS = 2_000_000
NONLINEAR_STEPS = 400_000
CONDITIONS_KEPT = 400


def version() -> str:
    """The solver's version."""
    return f"z3 {z3.get_version_string()}"


def valid(assumptions: Iterable[Cond], claim: Cond, *, nonlinear: bool = True) -> bool:
    """Whether `claim` holds wherever all assumptions do; False also where that was not found out.

    Without `nonlinear`, products stay unknowns that only conditions multiplied by each other relate: faster, and still
    never wrong when it says yes.
    """
    match claim:
        case bool():
            return claim or contradictory(assumptions, nonlinear=nonlinear)
        case AllOf(parts):
            known = tuple(assumptions)
            return all(valid(known, part, nonlinear=nonlinear) for part in parts)
        case _:
            known = tuple(assumptions)
            return claim in known or _stronger(known, claim) or _decided(frozenset(known), claim=claim, nonlinear=nonlinear)


def contradictory(assumptions: Iterable[Cond], *, nonlinear: bool = False) -> bool:
    """Whether the assumptions cannot hold together; False also where that was not found out."""
    known = frozenset(assumptions)
    return False in known or any(negation(c) in known for c in known) or _decided(known, claim=False, nonlinear=nonlinear)


def _stronger(assumptions: Sequence[Cond], claim: Cond) -> bool:
    """Whether an assumption is the claim with a smaller constant, or every term of the claim is positive by itself."""
    if not isinstance(claim, Compare) or claim.relation != ">=":
        return False
    terms, constant = _apart(claim.left)
    lowest = constant
    for monomial, coefficient in terms:
        if coefficient < 0 or not all(isinstance(a, Dim) for a in monomial):
            break
        lowest += coefficient
    else:
        if lowest >= 0:
            return True
    for fact in assumptions:
        if isinstance(fact, Compare) and fact.relation == ">=" and len(fact.left.terms) <= len(claim.left.terms) + 1:
            same_terms, other = _apart(fact.left)
            if same_terms == terms and other <= constant:
                return True
    return False


def _apart(extent: Size) -> tuple[tuple[tuple[Monomial, int | float | Fraction], ...], int | float | Fraction]:
    if extent.terms[0][0]:
        return extent.terms, 0
    return extent.terms[1:], extent.terms[0][1]


@functools.lru_cache(maxsize=200_000)
def _decided(assumptions: frozenset[Cond], *, claim: Cond, nonlinear: bool) -> bool:
    known: list[Cond] = [c for c in assumptions if c is not True]
    if claim is not False:
        known.append(negation(claim))
    known.sort(key=str)
    return _linear().refutes(known) or _refuted_with_products(known) or (nonlinear and _refuted_nonlinear(known))


# ---------------------------------------------------------------- linear, products taken as unknowns

_session: list[_Linear] = []


def _linear() -> _Linear:
    if not _session or len(_session[0].literals) > CONDITIONS_KEPT:
        _session[:] = [_Linear()]
    return _session[0]


class _Linear:
    """A solver in which each condition is switched on by a literal, so that what it has learned serves the next question."""

    def __init__(self) -> None:
        self.solver = z3.Solver()
        self.solver.set("rlimit", LINEAR_STEPS)
        self.unknowns: dict[Monomial, z3.ArithRef] = {}
        self.literals: dict[Cond, z3.BoolRef] = {}

    def refutes(self, conditions: Sequence[Cond]) -> bool:
        """Whether the conditions contradict each other."""
        return bool(self.solver.check(*[self.literal(c) for c in conditions]) == z3.unsat)

    def literal(self, condition: Cond) -> z3.BoolRef:
        known = self.literals.get(condition)
        if known is None:
            known = self.literals[condition] = z3.Bool(f"c{len(self.literals)}")
            self.solver.add(z3.Implies(known, self.formula(condition)))
        return known

    def formula(self, condition: Cond) -> z3.BoolRef:
        match condition:
            case bool():
                return z3.BoolVal(condition)
            case Compare(relation, left):
                value = self.extent(left)
                return value >= 0 if relation == ">=" else value == 0 if relation == "==" else value != 0
            case AllOf(parts):
                return z3.And(*map(self.formula, parts))
            case AnyOf(parts):
                return z3.Or(*map(self.formula, parts))

    def extent(self, extent: Extent) -> z3.ArithRef:
        if not isinstance(extent, Size):
            return _constant(extent)
        parts = [self.unknown(m) * _constant(c) if m else _constant(c) for m, c in _whole(extent).terms]
        return z3.Sum(*parts) if len(parts) > 1 else parts[0]

    def unknown(self, monomial: Monomial) -> z3.ArithRef:
        known = self.unknowns.get(monomial)
        if known is None:
            name = f"m{len(self.unknowns)}"
            known = self.unknowns[monomial] = z3.Int(name) if _integral(monomial) else z3.Real(name)
            for fact in self.about(monomial):
                self.solver.add(fact)
        return known

    def about(self, monomial: Monomial) -> Iterator[z3.BoolRef]:
        """What is true of an unknown by its making."""
        if len(monomial) > 1:
            yield from self.order_of_product(monomial)
            return
        match monomial[0]:
            case Dim():
                yield self.unknown(monomial) >= 1
            case Floor() as quotient:
                defined = self.formula(at_least(quotient.denominator, 1))
                yield from (z3.Implies(defined, self.formula(bound)) for bound in _bounds(quotient))
            case Inverse(of) as inverse:
                value = self.unknown(monomial)
                one = self.formula(same(_times(of, size(inverse)), 1))
                yield z3.Implies(self.formula(at_least(of, 1)), z3.And(value > 0, value <= 1, one))
            case _:
                pass

    def order_of_product(self, monomial: Monomial) -> Iterator[z3.BoolRef]:
        product = self.unknown(monomial)
        for position, atom in enumerate(monomial):
            if atom in monomial[:position]:
                continue
            rest = monomial[:position] + monomial[position + 1 :]
            if not _integral((atom,)) or not _integral(rest):
                continue
            a, b = self.unknown((atom,)), self.unknown(rest)
            yield z3.Implies(z3.And(a >= 1, b >= 1), product >= a + b - 1)
            yield z3.Implies(z3.And(a >= 1, b >= 0), product >= b)
            yield z3.Implies(z3.And(a >= 1, b <= -1), product <= b - a + 1)
            yield z3.Implies(z3.And(b >= 1, a <= -1), product <= a - b + 1)
            yield z3.Implies(a == 0, product == 0)
            yield z3.Implies(a == 1, product == b)


def _constant(number: Extent) -> z3.ArithRef:
    assert not isinstance(number, Size)
    if isinstance(number, int):
        return z3.IntVal(number)
    fraction = Fraction(number)
    return z3.RatVal(fraction.numerator, fraction.denominator)


def _integral(monomial: Monomial) -> bool:
    return not any(isinstance(a, Inverse) or (isinstance(a, Sym) and a.real) for a in monomial)


def _whole(extent: Size) -> Size:
    """The extent times the least number that makes all coefficients integers; no condition minds."""
    scale = 1
    for _, coefficient in extent.terms:
        scale *= Fraction(coefficient).denominator
    grown = extent * scale
    return grown if isinstance(grown, Size) else extent


def _times(a: Extent, b: Extent) -> Extent:
    return a * b


def _bounds(quotient: Floor) -> tuple[Cond, Cond]:
    """What makes a quotient the rounded one: 0 <= numerator - denominator * quotient < denominator."""
    rest = quotient.numerator - _times(quotient.denominator, size(quotient))
    return at_least(rest, 0), at_least(quotient.denominator - 1, rest)


# ---------------------------------------------------------------- products of conditions


def _refuted_with_products(conditions: Sequence[Cond]) -> bool:
    """Linear again, with conditions multiplied by positive sizes, and by each other, into products the conditions speak of."""
    plain = [c for c in conditions if isinstance(c, Compare) and c.relation in (">=", "==")]
    spoken = {m for c in plain for m, _ in c.left.terms if len(m) > 1}
    if not spoken:
        return False
    factors = {a for m in spoken for a in m}
    small = [c for c in plain if len(c.left.terms) <= 4 and factors & set(c.left.atoms())]
    derived = dict.fromkeys([*_scaled(small, spoken), *_multiplied(small, spoken), *_divided(plain)])
    return bool(derived) and _linear().refutes([*conditions, *derived])


def _scaled(conditions: Sequence[Compare], spoken: set[Monomial]) -> Iterator[Cond]:
    """Conditions times products of extents, which are positive."""
    for condition in conditions:
        scales = {
            rest
            for monomial, _ in condition.left.terms
            for product in spoken
            if (rest := _without(product, monomial)) and all(isinstance(a, Dim) for a in rest)
        }
        for scale in sorted(scales):
            grown = _times(condition.left, Size(((scale, 1),)))
            if isinstance(grown, Size) and all(m in spoken or all(isinstance(a, Dim) for a in m) for m in _products(grown)):
                yield Compare(condition.relation, grown)


def _multiplied(conditions: Sequence[Compare], spoken: set[Monomial]) -> Iterator[Cond]:
    for position, one in enumerate(conditions):
        for other in conditions[position:]:
            product = _times(one.left, other.left)
            if isinstance(product, Size) and _products(product) <= spoken:
                yield Compare("==" if "==" in (one.relation, other.relation) else ">=", product)


def _divided(conditions: Sequence[Compare]) -> Iterator[Cond]:
    """a >= 1 from p * a + b >= 0 where b < 0, and a >= 0 where b < p."""
    for condition in conditions:
        for factor in sorted({a for m in _products(condition.left) for a in m}, key=str):
            whole: Extent = 0
            rest: Extent = 0
            for monomial, coefficient in condition.left.terms:
                left = _without(monomial, (factor,))
                if left:
                    whole = whole + Size(((left, coefficient),))
                else:
                    rest = rest + (coefficient if not monomial else Size(((monomial, coefficient),)))
            about = {factor, *atoms(rest)}
            bounds = tuple(c for c in conditions if c != condition and set(c.left.atoms()) <= about)
            least = _least_quotient(factor, rest, bounds)
            if least is not None and condition.relation == ">=":
                yield at_least(whole, least)


@functools.lru_cache(maxsize=50_000)
def _least_quotient(factor: Atom, rest: Extent, bounds: tuple[Cond, ...]) -> int | None:
    """The least a with factor * a + rest >= 0, if the bounds settle that."""
    if not _follows(at_least(size(factor), 1), bounds):
        return None
    return 1 if _follows(at_least(-1, rest), bounds) else 0 if _follows(at_least(size(factor) - 1, rest), bounds) else None


def _follows(claim: Cond, bounds: Sequence[Cond]) -> bool:
    return claim if isinstance(claim, bool) else _linear().refutes([*bounds, negation(claim)])


def _products(extent: Size) -> set[Monomial]:
    return {m for m, _ in extent.terms if len(m) > 1}


def _without(product: Monomial, factor: Monomial) -> Monomial:
    """The product divided by the factor; empty where it does not divide it."""
    left = list(product)
    for atom in factor:
        if atom not in left:
            return ()
        left.remove(atom)
    return tuple(left)


# ---------------------------------------------------------------- nonlinear


def _refuted_nonlinear(conditions: Sequence[Cond]) -> bool:
    nonlinear = _Nonlinear()
    if not any(len(m) > 1 for c in conditions for m in _monomials(c)):
        return False
    nonlinear.solver.add(*[nonlinear.formula(c) for c in conditions])
    return bool(nonlinear.solver.check() == z3.unsat)


def _monomials(condition: Cond) -> Iterator[Monomial]:
    match condition:
        case Compare(_, left):
            yield from (m for m, _ in left.terms)
            for atom in left.atoms():
                if isinstance(atom, Floor) and set(atoms(atom.denominator)):
                    yield (atom, atom)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _monomials(part)
        case _:
            pass


class _Nonlinear(_Linear):
    """A solver for one question, in which products are products."""

    def __init__(self) -> None:
        super().__init__()
        self.solver.set("rlimit", NONLINEAR_STEPS)

    def unknown(self, monomial: Monomial) -> z3.ArithRef:
        if len(monomial) == 1:
            return super().unknown(monomial)
        return z3.Product(*[self.unknown((atom,)) for atom in monomial])
