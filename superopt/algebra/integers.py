"""Integer expressions over the sizes of a model: constructors, a normal form, and a decision procedure for all sizes.

An expression is an `Extent`: a polynomial over dimensions (`Dim`), unknown integers (`Sym`), quotients (`Floor`) and Iverson
brackets (`Indicator`). Minimum, maximum, remainder and choice are expressed with quotients and brackets. A condition is a
`Cond`.

The API:

- `decide(condition, least)` returns True if the condition is proved for all sizes, False if the negation is proved for all
  sizes, and None otherwise.
- `prove(condition, least)` returns whether the condition is proved for all sizes.
- `normal(extent, least)` returns an equal expression in normal form. If the expression is proved to be constant, the normal
  form is a number.
- `minimum`, `maximum`, `choose`, `absolute`, `floor_quotient`, `truncated_quotient`, `remainder`, `truncated_remainder` build
  expressions. `truth` turns a decided condition into a `bool`.
- `evaluate(extent, values)` and `holds_at(condition, values)` compute the value of an expression or condition from numbers for
  its atoms.

"All sizes" means: every `Dim` is an integer of at least `least` (0 or 1). Data-dependent sizes, whose names begin with "?", are
at least 0. A `Sym` may be any integer, including a negative integer. Proofs use linear arithmetic over monomials
(Fourier-Motzkin elimination with integer tightening), and case splits over conditions and residues. Sampled sizes are never
used to prove a condition.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from superopt.algebra.extent import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Condition,
    Dim,
    Extent,
    Floor,
    Indicator,
    Monomial,
    Size,
    Sym,
    at_least,
    atoms,
    collect,
    conjunction,
    disjunction,
    same,
    sides,
    size,
    terms_of,
)
from superopt.algebra.substitution import negation
from superopt.policy import ALGEBRA

UNKNOWN = "?"
"""The prefix of a data-dependent size's name."""
Row = tuple[dict[Monomial, int], int]
"""A linear form: the coefficients of monomials, and a constant. A row states that the form is at least 0, or that it is 0."""


# ---------------------------------------------------------------- constructors


def unknown_size(number: int) -> Size:
    """Return a data-dependent size: an integer of at least 0 with no other known property. `number` is part of the name."""
    return size(Dim(f"{UNKNOWN}{number}", 0))


def unknown_integer(number: int) -> Size:
    """Return a data-dependent integer with no known property. `number` is part of the name."""
    return size(Sym(f"{UNKNOWN}{number}"))


def is_unknown(atom: Atom) -> bool:
    """Return whether the atom stands for an integer that depends on data."""
    return (isinstance(atom, Dim) and atom.tensor.startswith(UNKNOWN)) or (
        isinstance(atom, Sym) and atom.name.startswith(UNKNOWN)
    )


def truth(condition: Cond, least: int = 0) -> Cond:
    """Return True if the condition is proved for all sizes, and False if the condition is refuted for all sizes.

    Otherwise, return the condition unchanged.
    """
    found = decide(condition, least)
    return condition if found is None else found


def indicator(condition: Cond, least: int = 0) -> Extent:
    """Return the expression that is 1 where the condition holds and 0 elsewhere."""
    held = truth(condition, least)
    return int(held) if isinstance(held, bool) else size(Indicator(held))


def choose(condition: Cond, then: Extent, other: Extent, least: int = 0) -> Extent:
    """Return the expression that equals `then` where the condition holds, and `other` elsewhere."""
    return normal(other + indicator(condition, least) * (then - other), least) if then != other else then


def minimum(a: Extent, b: Extent, least: int = 0) -> Extent:
    """Return the smaller of two expressions."""
    return choose(at_least(b, a), a, b, least)


def maximum(a: Extent, b: Extent, least: int = 0) -> Extent:
    """Return the larger of two expressions."""
    return choose(at_least(a, b), a, b, least)


def absolute(a: Extent, least: int = 0) -> Extent:
    """Return the absolute value of the expression `a`."""
    return choose(at_least(a, 0), a, -a, least)


def floor_quotient(a: Extent, b: Extent) -> Extent:
    """Return `a // b`, rounded down. b must not be 0.

    For an integer b, multiples of b are moved out of the quotient: `(3 * n + 5) // 2` becomes `n + 2 + (n + 1) // 2`.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int) and b < 0:
        return floor_quotient(-a, -b)
    if b == 1:
        return a
    if not isinstance(b, int) or any(not isinstance(c, int) for _, c in terms_of(a)):
        return a // b
    whole: Extent = 0
    rest: Extent = 0
    for monomial, coefficient in terms_of(a):
        quotient, left = divmod(int(coefficient), b)
        whole = whole + collect([(monomial, quotient)])
        rest = rest + collect([(monomial, left)])
    if isinstance(rest, int):
        return whole + rest // b
    nested = _nested_quotient(rest, b)
    return whole + (size(Floor(rest, b)) if nested is None else nested)


def _nested_quotient(rest: Extent, b: int) -> Extent | None:
    """Simplify `rest // b` to `(u + k * d) // (b * d)` if `rest` is `u // d + k` for integers d and k.

    Return None if `rest` has a different form.
    """
    varying = [(m, c) for m, c in terms_of(rest) if m]
    if len(varying) != 1 or varying[0][1] != 1 or len(varying[0][0]) != 1:
        return None
    (atom,) = varying[0][0]
    if not isinstance(atom, Floor) or not isinstance(atom.denominator, int):
        return None
    constant = sum(c for m, c in terms_of(rest) if not m)
    return floor_quotient(atom.numerator + constant * atom.denominator, b * atom.denominator)


def truncated_quotient(a: Extent, b: Extent, least: int = 0) -> Extent:
    """Return `a / b`, rounded towards zero as in ONNX Div for integers. b must not be 0."""
    if prove(at_least(b, 1), least):
        return _truncated(a, b, least)
    if prove(at_least(-1, b), least):
        return _truncated(-a, -b, least)
    return choose(at_least(b, 1), _truncated(a, b, least), _truncated(-a, -b, least), least)


def _truncated(a: Extent, b: Extent, least: int) -> Extent:
    """Return `a / b`, rounded towards zero. b must be positive."""
    return choose(at_least(a, 0), floor_quotient(a, b), -floor_quotient(-a, b), least)


def remainder(a: Extent, b: Extent, least: int = 0) -> Extent:
    """Return the remainder of `a / b` that has the sign of b (ONNX Mod with fmod=0)."""
    return normal(a - b * floor_quotient(a, b), least)


def truncated_remainder(a: Extent, b: Extent, least: int = 0) -> Extent:
    """Return the remainder of `a / b` that has the sign of a (ONNX Mod with fmod=1)."""
    return normal(a - b * truncated_quotient(a, b, least), least)


# ---------------------------------------------------------------- numbers for atoms


def evaluate(extent: Extent, values: Mapping[Atom, int]) -> int | Fraction:
    """Return the value of the expression for these values of the dimensions and unknown integers.

    Raises:
        KeyError: A dimension or unknown integer has no number in `values`.
        ZeroDivisionError: A divisor is 0.
    """
    if not isinstance(extent, Size):
        return extent  # type: ignore[return-value]
    total: int | Fraction = 0
    for monomial, coefficient in extent.terms:
        product: int | Fraction = coefficient  # type: ignore[assignment]
        for atom in monomial:
            match atom:
                case Floor(numerator, denominator):
                    product *= evaluate(numerator, values) // evaluate(denominator, values)
                case Indicator(condition):
                    product *= holds_at(condition, values)
                case _:
                    product *= values[atom]
            if not product:
                break
        total += product
    return total


def holds_at(condition: Cond, values: Mapping[Atom, int]) -> bool:
    """Return whether the condition holds for these values of the dimensions and unknown integers."""
    match condition:
        case bool():
            return condition
        case Compare(relation, left):
            number = evaluate(left, values)
            return number >= 0 if relation == ">=" else (number == 0) == (relation == "==")
        case AllOf(parts):
            return all(holds_at(p, values) for p in parts)
        case AnyOf(parts):
            return any(holds_at(p, values) for p in parts)


def base_atoms(*extents: Extent) -> list[Atom]:
    """Return the dimensions and unknown integers in the expressions, in the order of their first occurrence."""
    return list(dict.fromkeys(a for e in extents for a in atoms(e) if not isinstance(a, Floor | Indicator)))


def _is_integral(extents: Iterable[Extent]) -> bool:
    """Return whether the expressions consist only of integers, dimensions, unknown integers, quotients and indicators."""
    for extent in extents:
        if any(not isinstance(c, int) for _, c in terms_of(extent)):
            return False
        for atom in atoms(extent):
            match atom:
                case Dim() | Sym(_, False):
                    continue
                case Floor(numerator, denominator):
                    if any(not isinstance(c, int) for e in (numerator, denominator) for _, c in terms_of(e)):
                        return False
                case Indicator(condition):
                    if any(not isinstance(c, int) for s in sides(condition) for _, c in s.terms):
                        return False
                case _:
                    return False
    return True


def _lower_bound(atom: Atom, least: int) -> int | None:
    if not isinstance(atom, Dim):
        return None
    return 0 if atom.tensor.startswith(UNKNOWN) else least


def _constants(extents: Iterable[Extent]) -> set[int]:
    """Return the coefficients and constants in the expressions, and the quotients of constants by coefficients.

    A piecewise expression, such as a minimum, changes from one formula to another near these numbers.
    """
    found: set[int] = set()
    for extent in extents:
        for part in (extent, *(e for a in atoms(extent) for e in _parts(a))):
            numbers = [abs(c) for _, c in terms_of(part) if isinstance(c, int)]
            found.update(numbers)
            constant = next((abs(c) for m, c in terms_of(part) if not m and isinstance(c, int)), 0)
            found.update(constant // n for n in numbers if n > 1)
    return found


def _parts(atom: Atom) -> Iterator[Extent]:
    match atom:
        case Floor(numerator, denominator):
            yield from (numerator, denominator)
        case Indicator(condition):
            yield from sides(condition)


def points(extents: Sequence[Extent], least: int) -> list[dict[Atom, int]]:
    """Return sample values of the dimensions and unknown integers in the expressions.

    The samples are small numbers, large numbers, and numbers near the constants in the expressions.
    """
    base = base_atoms(*extents)
    if not base:
        return [{}]
    chance = random.Random(len(base))
    near = {c + d for c in _constants(extents) if c < 1 << 40 for d in (-1, 0, 1)}
    pool = sorted(near | set(range(10)) | {16, 31, 32, 33, 60, 97, 1000, 4097, 100_003, 1_000_000, 16_777_259})
    found: list[dict[Atom, int]] = []
    for turn in range(ALGEBRA.refutation_sample_count if len(base) > 1 else len(pool)):
        row: dict[Atom, int] = {}
        for atom in base:
            low = _lower_bound(atom, least)
            number = pool[turn] if len(base) == 1 or turn < 6 else chance.choice(pool if chance.random() < 0.6 else pool[:12])
            row[atom] = max(number, low) if low is not None else number if turn % 3 else -number
        found.append(row)
    return found


# ---------------------------------------------------------------- decisions


def prove(condition: Cond, least: int = 1) -> bool:
    """Return whether the condition is proved to hold at all sizes, where every dimension is at least `least`."""
    return decide(condition, least) is True


def prove_equal(a: Extent, b: Extent, least: int = 1) -> bool:
    """Return whether the expressions are proved equal at all sizes, where every dimension is at least `least`."""
    return a == b or prove(same(a, b), least)


@functools.lru_cache(maxsize=ALGEBRA.integer_cache_count)
def decide(condition: Cond, least: int = 1) -> bool | None:
    """Return True if the condition is proved for all sizes, False if it is refuted for all sizes, and None otherwise.

    Every dimension is at least `least`.
    """
    if isinstance(condition, bool):
        return condition
    parts = list(sides(condition))
    if not _is_integral(parts):
        return None
    seen: set[bool] = set()
    for values in points(parts, least):
        try:
            seen.add(holds_at(condition, values))
        except ZeroDivisionError:
            continue
        if len(seen) > 1:
            return None
    holds = seen != {False}
    return holds if _refuted(negation(condition) if holds else condition, least) else None


Condition.decide = staticmethod(decide)


def _refuted(condition: Cond, least: int) -> bool:
    """Return whether the condition is proved to be false at all sizes."""
    parts = (a for s in sides(condition) for a in base_atoms(s))
    start = {a: size(a) + low for a in parts if (low := _lower_bound(a, least))}
    shifted = _substituted(condition, start.get) if start else condition
    return _Refutation().refute((shifted,), residues=True)


class _Refutation:
    """A search for a contradiction between conditions, with a limit on the number of steps. Every `Dim` is at least 0."""

    def __init__(self) -> None:
        self.left = ALGEBRA.max_eliminations

    def refute(self, given: tuple[Cond, ...], *, residues: bool) -> bool:
        """Return whether a proof is found that no integer values satisfy all conditions in `given`.

        If `residues` is True, case splits over residue classes are tried too.
        """
        self.left -= 1
        if self.left < 0:
            return False
        facts: dict[Compare, None] = {}
        open_: list[Cond] = []
        stack = list(reversed(given))
        while stack:
            condition = stack.pop()
            match condition:
                case True:
                    pass
                case False:
                    return True
                case AllOf(parts):
                    stack.extend(reversed(parts))
                case Compare(">=" | "=="):
                    facts[condition] = None
                case _:
                    open_.append(condition)
        bracket = next((a for f in facts for a in f.left.atoms() if isinstance(a, Indicator) and _is_plain(a)), None)
        if bracket is not None:
            return self._both(bracket, (*facts, *open_), residues=residues)
        if _contradictory(tuple(facts)):
            return True
        if open_:
            first, *others = open_
            branches = first.parts if isinstance(first, AnyOf) else _sides_of_zero(first)
            return all(self.refute((*facts, *others, branch), residues=residues) for branch in branches)
        return residues and self._by_residues(tuple(facts))

    def _both(self, bracket: Indicator, given: tuple[Cond, ...], *, residues: bool) -> bool:
        for value, condition in ((1, bracket.condition), (0, negation(bracket.condition))):
            known: dict[Atom, Extent] = {bracket: value}
            branch = (condition, *(_substituted(c, known.get) for c in given))
            if not self.refute(branch, residues=residues):
                return False
        return True

    def _by_residues(self, facts: tuple[Compare, ...]) -> bool:
        """Return whether the facts are refuted in each residue class of the dimensions and unknown integers (`Sym`). `_moduli`
        chooses the modulus of each residue class.
        """
        moduli: dict[Atom, int] = {}
        for fact in facts:
            _moduli(fact.left, 1, moduli)
        moduli = {a: m for a, m in moduli.items() if m > 1}
        if not moduli or math.prod(moduli.values()) > ALGEBRA.max_residue_classes:
            return False
        for row in itertools.product(*(range(m) for m in moduli.values())):
            value = {a: m * size(a) + r for (a, m), r in zip(moduli.items(), row, strict=True)}
            if not self.refute(tuple(_substituted(f, value.get) for f in facts), residues=False):
                return False
        return True


def _sides_of_zero(condition: Cond) -> tuple[Cond, ...]:
    assert isinstance(condition, Compare)
    return at_least(condition.left, 1), at_least(-1, condition.left)


def _is_plain(bracket: Indicator) -> bool:
    """Return whether the indicator's condition contains no other indicator."""
    return not any(isinstance(a, Indicator) for s in sides(bracket.condition) for a in s.atoms())


def _moduli(extent: Extent, factor: int, found: dict[Atom, int]) -> None:
    """Update `found` with the modulus of each dimension and unknown integer (`Sym`) in the expression.

    For example, if the dimension n occurs in n // 4 and in n // 6, its modulus is 12, the least common multiple of 4 and 6. In
    nested quotients such as (n // 4) // 6, the divisors are multiplied. `factor` is the product of the divisors of all
    quotients around the expression `extent`, or 1 if there are none.
    """
    for monomial, _ in terms_of(extent):
        for atom in monomial:
            if isinstance(atom, Floor):
                if isinstance(atom.denominator, int):
                    _moduli(atom.numerator, factor * atom.denominator, found)
            elif isinstance(atom, Dim | Sym):
                found[atom] = math.lcm(found.get(atom, 1), factor)


def _substituted(condition: Cond, value: Callable[[Atom], Extent | None]) -> Cond:
    """Return the condition with atoms replaced by the extents that `value` returns, and with quotients simplified."""
    match condition:
        case bool():
            return condition
        case Compare(relation, left):
            replaced = replace_atoms(left, value)
            if isinstance(replaced, Size):
                return Compare(relation, replaced)
            return bool(replaced >= 0 if relation == ">=" else (replaced == 0) == (relation == "=="))
        case AllOf(parts):
            return conjunction(*(_substituted(p, value) for p in parts))
        case AnyOf(parts):
            return disjunction(*(_substituted(p, value) for p in parts))


def replace_atoms(extent: Extent, value: Callable[[Atom], Extent | None]) -> Extent:
    """Return the expression with atoms replaced by the extents that `value` returns, and with quotients simplified."""
    if not isinstance(extent, Size):
        return extent
    total: Extent = 0
    for monomial, coefficient in extent.terms:
        product: Extent = coefficient
        for atom in monomial:
            known = value(atom)
            if known is None:
                match atom:
                    case Floor(numerator, denominator):
                        over, under = replace_atoms(numerator, value), replace_atoms(denominator, value)
                        known = size(Floor(over, under)) if under == 0 else floor_quotient(over, under)
                    case Indicator(condition):
                        held = _substituted(condition, value)
                        known = int(held) if isinstance(held, bool) else size(Indicator(held))
                    case _:
                        known = size(atom)
            product = product * known
        total = total + product
    return total


# ---------------------------------------------------------------- linear arithmetic


@functools.lru_cache(maxsize=ALGEBRA.integer_cache_count)
def _contradictory(facts: tuple[Compare, ...]) -> bool:
    """Return whether linear arithmetic proves that the facts contradict each other. Each monomial is treated as a variable."""
    rows: list[Row] = []
    equations: list[Row] = []
    quotients: dict[Floor, None] = {}
    for fact in facts:
        (rows if fact.relation == ">=" else equations).append(_row(fact.left))
        quotients.update((a, None) for a in fact.left.atoms() if isinstance(a, Floor))
    for quotient in quotients:
        over, under = quotient.numerator, quotient.denominator
        if under == 0 or not (isinstance(under, int) or _is_positive(under)):
            continue
        rest = over - under * size(quotient)
        rows += [_row(rest), _row(under - 1 - rest)]
    _bound(rows, equations)
    return _solved(rows, equations)


def _is_positive(extent: Extent) -> bool:
    return decide(at_least(extent, 1), 0) is True


def _row(extent: Extent) -> Row:
    return {m: int(c) for m, c in terms_of(extent) if m}, int(sum(c for m, c in terms_of(extent) if not m))


def _bound(rows: list[Row], equations: list[Row]) -> None:
    """Append true inequalities to `rows`, about the monomials in `rows` and `equations`.

    For example, `a * b >= 0` is true if a and b are at least 0, and `a * b >= b` is true if a is at least 1 and b is at least
    0.
    """
    pending = list(dict.fromkeys(m for row, _ in (*rows, *equations) for m in row))
    seen = set(pending)
    while pending:
        monomial = pending.pop()
        if all(_is_not_negative(atom) for atom in monomial):
            rows.append(({monomial: 1}, 0))
        for atom in dict.fromkeys(monomial if len(monomial) > 1 else ()):
            rest = list(monomial)
            rest.remove(atom)
            others = tuple(rest)
            if not all(map(_is_not_negative, others)):
                continue
            low = 1 if _is_atom_positive(atom) else 0 if _is_not_negative(atom) else None
            if low:
                rows.append(({monomial: 1, others: -1}, 0))
                if others not in seen:
                    seen.add(others)
                    pending.append(others)
        if len(monomial) == 2 and monomial[0] == monomial[1]:  # k * k >= k holds for integers
            rows += [({monomial: 1, monomial[:1]: -1}, 0), ({monomial: 1, monomial[:1]: 1}, 0)]


@functools.lru_cache(maxsize=ALGEBRA.integer_cache_count)
def _is_not_negative(atom: Atom) -> bool:
    match atom:
        case Dim():
            return True
        case Floor(numerator, denominator):
            positive = denominator > 0 if isinstance(denominator, int) else _is_positive(denominator)
            return bool(positive) and decide(at_least(numerator, 0), 0) is True
        case _:
            return False


@functools.lru_cache(maxsize=ALGEBRA.integer_cache_count)
def _is_atom_positive(atom: Atom) -> bool:
    if not isinstance(atom, Floor) or not isinstance(atom.denominator, int) or atom.denominator < 1:
        return False
    return decide(at_least(atom.numerator, atom.denominator), 0) is True


def _solved(rows: list[Row], equations: list[Row]) -> bool:
    """Return whether the inequalities in `rows` and the equations have no common integer solution.

    Each equation is solved for a variable, and the variable is substituted. Then variables are eliminated from the
    inequalities.
    """
    equations = [*equations]
    while equations:
        form, constant = equations.pop()
        if not form:
            if constant:
                return True
            continue
        divisor = math.gcd(*form.values())
        if constant % divisor:
            return True
        form, constant = {m: c // divisor for m, c in form.items()}, constant // divisor
        pivot = next((m for m, c in form.items() if abs(c) == 1), None)
        if pivot is None:
            rows += [(form, constant), ({m: -c for m, c in form.items()}, -constant)]
            continue
        sign = -form.pop(pivot)
        value = {m: c * sign for m, c in form.items()}, constant * sign
        rows[:] = [_inserted(row, pivot, value) for row in rows]
        equations = [_inserted(row, pivot, value) for row in equations]
    return _eliminated(rows)


def _inserted(row: Row, pivot: Monomial, value: Row) -> Row:
    form, constant = row
    if pivot not in form:
        return row
    factor = form[pivot]
    result = {m: c for m, c in form.items() if m != pivot}
    for monomial, coefficient in value[0].items():
        total = result.get(monomial, 0) + factor * coefficient
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result, constant + factor * value[1]


def _eliminated(rows: list[Row]) -> bool:
    """Return whether the inequalities have no integer solution, by Fourier-Motzkin elimination with integer tightening."""
    current: dict[tuple[tuple[Monomial, int], ...], tuple[dict[Monomial, int], int]] = {}
    pending = rows
    while True:
        for form, constant in pending:
            if not form:
                if constant < 0:
                    return True
                continue
            divisor = math.gcd(*form.values())
            tight, bound = {m: c // divisor for m, c in form.items()}, constant // divisor
            key = tuple(sorted(tight.items(), key=lambda item: str(item[0])))
            known = current.get(key)
            if known is None or bound < known[1]:
                current[key] = tight, bound
        for form, bound in current.values():
            opposite = current.get(tuple(sorted(((m, -c) for m, c in form.items()), key=lambda item: str(item[0]))))
            if opposite is not None and bound + opposite[1] < 0:
                return True
        variables = list(dict.fromkeys(m for form, _ in current.values() for m in form))
        if not variables or len(current) > ALGEBRA.max_inequalities:
            return False
        signs = {m: [0, 0] for m in variables}
        for form, _ in current.values():
            for m, c in form.items():
                signs[m][c > 0] += 1
        chosen = min(variables, key=lambda m: signs[m][0] * signs[m][1] - sum(signs[m]))
        above = [r for r in current.values() if r[0].get(chosen, 0) > 0]
        below = [r for r in current.values() if r[0].get(chosen, 0) < 0]
        current = {k: r for k, r in current.items() if chosen not in r[0]}
        if len(above) * len(below) > 4 * ALGEBRA.max_inequalities:
            return False
        pending = [_combined(one, other, chosen) for one in above for other in below]


def _combined(one: Row, other: Row, variable: Monomial) -> Row:
    a, b = one[0][variable], -other[0][variable]
    factor = math.gcd(a, b)
    p, q = b // factor, a // factor
    form = {m: p * c for m, c in one[0].items() if m != variable}
    for m, c in other[0].items():
        if m != variable:
            total = form.get(m, 0) + q * c
            if total:
                form[m] = total
            else:
                form.pop(m, None)
    return form, p * one[1] + q * other[1]


# ---------------------------------------------------------------- normal form


def is_long(*extents: Extent) -> bool:
    """Return whether the expressions together exceed `ALGEBRA.max_terms` or `ALGEBRA.max_atoms`."""
    found = [extent for extent in extents if isinstance(extent, Size)]
    inside = itertools.chain.from_iterable(extent.atoms() for extent in found)
    return sum(len(extent.terms) for extent in found) > ALGEBRA.max_terms or any(
        True for _ in itertools.islice(inside, ALGEBRA.max_atoms, None)
    )


@functools.lru_cache(maxsize=ALGEBRA.integer_cache_count)
def normal(extent: Extent, least: int = 0) -> Extent:
    """Return an equal expression in normal form.

    An indicator (1 where a condition holds, else 0) becomes a number if its condition is proved or refuted for all sizes. If
    the expression is proved to equal an affine function of dimensions and integers, the affine function is returned. A constant
    expression therefore becomes a number. Every dimension is at least `least`. If the expression exceeds the limits in
    `is_long`, the expression is returned unchanged.
    """
    if not isinstance(extent, Size) or not any(isinstance(a, Floor | Indicator) for m, _ in extent.terms for a in m):
        return extent
    if not _is_integral([extent]) or is_long(extent):
        return extent

    def decided(atom: Atom) -> Extent | None:
        found = decide(atom.condition, least) if isinstance(atom, Indicator) else None
        return None if found is None else int(found)

    reduced = replace_atoms(extent, decided)
    if not isinstance(reduced, Size):
        return reduced
    fitted = _affine(reduced, least)
    return reduced if fitted is None or not prove_equal(reduced, fitted, least) else fitted


def _affine(extent: Size, least: int) -> Extent | None:
    """Fit an affine function to the values of the expression at samples (see `points`).

    Return None if the values at the samples are not those of an affine function. No proof is attempted that the function equals
    the expression at other values.
    """
    base = base_atoms(extent)
    start = 27_720 + 2_003  # beyond the small sizes at which expressions change, and not a multiple of small divisors
    try:
        origin = evaluate(extent, dict.fromkeys(base, start))
        fitted: Extent = 0
        for atom in base:
            above = {**dict.fromkeys(base, start), atom: start + 55_440}
            slope = Fraction(evaluate(extent, above) - origin, 55_440)
            if slope.denominator != 1:
                return None
            fitted = fitted + int(slope) * (size(atom) - start)
        fitted = fitted + int(origin)
        return fitted if all(evaluate(extent - fitted, values) == 0 for values in points([extent], least)) else None
    except ZeroDivisionError:
        return None


def normal_condition(condition: Cond, least: int = 0) -> Cond:
    """Return the condition in normal form, or as a bool if the condition is proved or refuted for all sizes."""
    found = decide(condition, least)
    if found is not None or not isinstance(condition, Compare):
        return condition if found is None else found
    left = normal(condition.left, least)
    return Compare(condition.relation, left) if isinstance(left, Size) else truth(condition, least)
