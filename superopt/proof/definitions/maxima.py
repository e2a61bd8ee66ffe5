"""Simplification of maxima.

Nested maxima are flattened, operands that are never the largest operand are dropped, and common parts are moved out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from superopt.algebra.terms import Extent, at_least, atoms
from superopt.policy import PROOF
from superopt.proof.definitions.alpha import collect_summands, factor_key, shape, sort_summands
from superopt.proof.definitions.arithmetic import is_valid
from superopt.proof.definitions.content import common_content, divided
from superopt.proof.definitions.functions import apply_function, raise_to_power
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.signs import Sign
from superopt.proof.definitions.sums import (
    ZERO,
    Call,
    Factor,
    Guard,
    GuardedValue,
    Largest,
    Power,
    Sum,
    Summand,
    extents_in,
    single,
    substitute_guard,
    times,
)

INCREASING = ("exp", "log", "erf", "positive")


def largest(facts: Guard, candidates: Sequence[GuardedValue], notation: Normal) -> Sum:
    """Return the maximum of the candidates, simplified. The values of the candidates must be simplified already.

    A candidate is an operand of the maximum. A candidate has one value for each choice of its bound indices at which its guard
    holds.

    The absolute value of x is written as the maximum of x and -x. This maximum is simplified further only if the sign of x is
    known.
    """
    given = list(candidates)
    if len(given) == 2 and all(_plain(c) for c in given) and not collect_summands(given[0].value + given[1].value):
        if (left := _undominated(facts, given, notation)) == given:
            return _magnitude(facts, given, notation)
        given = left
    candidates = [_unbound(facts, c) for c in given]
    flat = [inner for c in candidates for inner in _flattened((*facts, *c.guard), c, notation)]
    flat = _undominated(facts, list({factor_key(Largest((c,))): c for c in flat}.values()), notation)
    if len(flat) == 1 and not flat[0].bound and not flat[0].guard:
        return flat[0].value
    shared = _shared(flat)
    if shared:
        less = [replace(c, value=collect_summands(c.value + times(shared, -1))) for c in flat]
        return shared + largest(facts, less, notation)
    common = common_content(facts, [s for c in flat for s in c.value], Sign.NOT_NEGATIVE, notation.signs)
    common = replace(common, factors=tuple(f for f in common.factors if all(_free(f, c) for c in flat)))
    if common != Summand(1) and all(_free_of(common.coefficient, c) for c in flat):
        less = [replace(c, value=divided(c.value, common)) for c in flat]
        return notation.product((common,), largest(facts, less, notation))
    outside = _outermost(facts, flat, notation) or _smallest_of_largest(facts, flat, notation)
    return single(Largest(tuple(flat))) if outside is None else outside


def _plain(candidate: GuardedValue) -> bool:
    return not candidate.bound and not candidate.guard


def _unbound(facts: Guard, candidate: GuardedValue) -> GuardedValue:
    """Remove the guard and the bound indices of a maximum's operand if the operand's value does not depend on these indices.

    The guard must be shown to hold where all bound indices are 0.
    """
    if not candidate.bound or set(candidate.bound) & {a for s in candidate.value for e in extents_in(s) for a in atoms(e)}:
        return candidate
    first = substitute_guard(candidate.guard, lambda a: 0 if a in candidate.bound else None)
    return GuardedValue((), (), candidate.value) if all(is_valid(facts, c) for c in first) else candidate


def _magnitude(facts: Guard, candidates: Sequence[GuardedValue], notation: Normal) -> Sum:
    """Return the maximum of a value and its negative, with non-negative common factors moved out."""
    common = common_content(facts, [s for c in candidates for s in c.value], Sign.NOT_NEGATIVE, notation.signs)
    if common == Summand(1):
        return single(Largest(tuple(candidates)))
    less = [replace(c, value=divided(c.value, common)) for c in candidates]
    return notation.product((common,), single(Largest(tuple(less))))


def _flattened(facts: Guard, candidate: GuardedValue, notation: Normal) -> list[GuardedValue]:
    """Flatten an operand that contains an inner maximum. Return one operand for each operand of the inner maximum.

    One summand of the operand must be the inner maximum or its product with a non-negative value. An operand of any other form
    is returned unchanged.
    """
    for position, summand in enumerate(candidate.value):
        match summand:
            case Summand(coefficient, (), (), factors) if sum(isinstance(f, Largest) for f in factors) == 1:
                others = tuple(f for f in factors if not isinstance(f, Largest))
                (inner,) = (f for f in factors if isinstance(f, Largest))
                if not _not_negative(facts, Summand(coefficient, factors=others), notation):
                    continue
                rest = candidate.value[:position] + candidate.value[position + 1 :]
                found = []
                for renamed in map(notation.renamed_candidate, inner.candidates):
                    multiple = notation.product((Summand(coefficient, factors=others),), renamed.value)
                    value = collect_summands(multiple + rest)
                    both = GuardedValue((*candidate.bound, *renamed.bound), (*candidate.guard, *renamed.guard), value)
                    found += _flattened((*facts, *renamed.guard), both, notation)
                return found
            case _:
                pass
    return [candidate]


def _not_negative(facts: Guard, summand: Summand, notation: Normal) -> bool:
    if not summand.factors:
        return is_valid(facts, at_least(summand.coefficient, 0))
    return notation.signs.of_summand(facts, summand) >= Sign.NOT_NEGATIVE


def _undominated(facts: Guard, candidates: list[GuardedValue], notation: Normal) -> list[GuardedValue]:
    """Remove the operands that are shown never to exceed a second operand of the maximum.

    The second operand must have no guard and no bound indices.
    """
    plain = [c for c in candidates if not c.bound and not c.guard]
    if len(plain) > PROOF.max_compared_candidates:
        return candidates
    dropped: list[GuardedValue] = []
    for low in candidates:
        for high in plain:
            if high is low or any(high is d for d in dropped):
                continue
            if set(low.bound) & {a for s in high.value for e in extents_in(s) for a in atoms(e)}:
                continue
            difference = collect_summands(high.value + times(low.value, -1))
            if notation.signs.of((*facts, *low.guard), difference):
                dropped.append(low)
                break
    return [c for c in candidates if not any(c is d for d in dropped)]


def _shared(candidates: Sequence[GuardedValue]) -> Sum:
    """Return the summands that all operands of a maximum share, except summands with a guard or a bound index."""
    if len(candidates) < 2 and not (candidates and candidates[0].bound):
        return ZERO
    found = list(candidates[0].value)
    for other in candidates[1:]:
        present = {shape(s) for s in other.value}
        found = [s for s in found if shape(s) in present]
    bound = {k for c in candidates for k in c.bound}
    free = [s for s in found if not bound & {a for e in extents_in(s) for a in atoms(e)} and not s.guard]
    return tuple(free)


def _free(factor: Factor, candidate: GuardedValue) -> bool:
    return not set(candidate.bound) & {a for e in extents_in(Summand(1, factors=(factor,))) for a in atoms(e)}


def _free_of(coefficient: Extent, candidate: GuardedValue) -> bool:
    return not set(candidate.bound) & set(atoms(coefficient))


def _smallest_of_largest(facts: Guard, candidates: Sequence[GuardedValue], notation: Normal) -> Sum | None:
    """Rewrite the maximum of min(a(k), b) over k as min(m, b), where m is the maximum of a(k) over k.

    Return None for maxima of any other form.
    """
    if len(candidates) != 1 or len(candidates[0].value) != 1 or not candidates[0].bound:
        return None
    (candidate,) = candidates
    match candidate.value[0]:
        case Summand(-1, (), (), (Largest(inner),)) if all(map(_plain, inner)):
            inside = set(candidate.bound)
            free = [c for c in inner if not inside & {a for s in c.value for e in extents_in(s) for a in atoms(e)}]
            rest = [c for c in inner if c not in free]
            if len(rest) != 1 or not free:
                return None
            most = largest(facts, [replace(candidate, value=times(rest[0].value, -1))], notation)
            return times(largest(facts, [*free, GuardedValue((), (), times(most, -1))], notation), -1)
        case _:
            return None


# ---------------------------------------------------------------- monotone functions


def _outermost(facts: Guard, candidates: Sequence[GuardedValue], notation: Normal) -> Sum | None:
    """Move a monotone function out of a maximum: max(exp(a), exp(b)) becomes exp(max(a, b)).

    Return None unless every operand is an application of the same monotone function.
    """
    if not candidates or any(len(c.value) != 1 for c in candidates):
        return None
    summands = [c.value[0] for c in candidates]
    if any(s.bound or s.guard or len(s.factors) != 1 or s.coefficient not in (1, -1) for s in summands):
        return None
    signs = {s.coefficient for s in summands}
    heads = {_head(s.factors[0]) for s in summands}
    if len(signs) != 1 or len(heads) != 1:
        return None
    (sign,) = signs
    rises = _rises(facts, candidates, notation)
    if rises is None:
        return None
    inner = [_inside(s.factors[0]) for s in summands]
    upwards = rises == (sign == 1)
    given = [replace(c, value=value if upwards else times(value, -1)) for c, value in zip(candidates, inner, strict=True)]
    found = largest(facts, given, notation)
    argument = sort_summands(collect_summands(found if upwards else times(found, -1)))
    return times(_around(facts, summands[0].factors[0], argument, notation), sign)


def _head(factor: Factor) -> tuple[object, ...]:
    match factor:
        case Call(function, _):
            return "call", function
        case Power(_, exponent):
            return "power", exponent
        case _:
            return ("other", factor_key(factor))


def _rises(facts: Guard, candidates: Sequence[GuardedValue], notation: Normal) -> bool | None:
    """Return True if the outermost function of all operands is increasing, and False if the function is decreasing.

    Return None if the function is not known to be increasing or decreasing.
    """
    match candidates[0].value[0].factors[0]:
        case Call(function, (_,)) if function in INCREASING:
            return True
        case Power(_, exponent) if isinstance(exponent, Fraction):
            return exponent > 0
        case Power(_, exponent) if isinstance(exponent, int) and exponent < 0:
            bases = [(c, c.value[0].factors[0]) for c in candidates]
            positive = all(
                isinstance(f, Power) and notation.signs.of((*facts, *c.guard), f.base) is Sign.POSITIVE for c, f in bases
            )
            return False if positive else None
        case _:
            return None


def _inside(factor: Factor) -> Sum:
    assert isinstance(factor, Call | Power)
    return factor.arguments[0] if isinstance(factor, Call) else factor.base


def _around(facts: Guard, factor: Factor, value: Sum, notation: Normal) -> Sum:
    assert isinstance(factor, Call | Power)
    if isinstance(factor, Call):
        return apply_function(facts, factor.function, (value,), notation)
    return raise_to_power(facts, value, factor.exponent, notation)
