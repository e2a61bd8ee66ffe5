"""Exact sampling: comparison of both sides of an equation on random instances, without rounding error.

An instance is a choice of sizes and attributes at which the left side is well typed. Each value is a real number together with
residues in prime fields (`superopt.algebra.exact`). Two values are compared by their residues. A false polynomial identity of
degree d passes with a probability of at most d / p, where p is the modulus. Some values have no residue, such as the square
root of a sum that is not a square, or the exponential of an exponential. These values are compared as real numbers, with the
tolerance `PROOF.sample_tolerance_share`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from superopt.algebra.evaluate import Array, evaluate_terms
from superopt.algebra.exact import CHAIN, Fields, drawn, fields_for, required_arithmetic
from superopt.algebra.operators import POSITIVE, operator, typing_conditions
from superopt.algebra.terms import Extent, Sym, Term, atoms, substitute_cond, subterms
from superopt.errors import InstantiationError
from superopt.notation.parsing import Equation
from superopt.policy import PROOF
from superopt.proof.denominators import denominators
from superopt.rules.instances import Instance, instantiations
from superopt.rules.rule import Rule
from superopt.rules.verdict import Counterexample

__all__ = ["Instance", "instantiations", "mismatch", "mismatch_at", "refutation_inputs", "refute_rule", "replay_counterexample"]


def refutation_number_domain(*roots: Term) -> Fields:
    """Return the arithmetic for evaluating the terms: each value is a real number together with residues in prime fields."""
    names = {t.op for t in subterms(*roots) if not t.is_variable}
    return fields_for(frozenset().union(*map(required_arithmetic, sorted(names))), strict=True)


def refutation_inputs(equation: Equation, instance: Instance, seed: int) -> dict[str, Array]:
    """Draw random values of all variables.

    The caller compares both sides of the equation on these values, in order to refute the equation. The values are positive and
    negative numbers, some of which are small and occur repeatedly. If the equation contains an operator that is defined only on
    positive numbers and the seed is even, all values are positive.
    """
    roots = equation.left + equation.right
    rng = np.random.default_rng(seed)
    positive = any(not t.is_variable and operator(t.op).domain == POSITIVE for t in subterms(*roots)) and seed % 2 == 0
    recurring = 0.75 if seed % 2 else 0.25
    domain = refutation_number_domain(*roots)
    return {
        name: drawn(domain, shape, rng, recurring=recurring, positive=positive)[..., None]
        for name, shape in sorted(instance.shapes.items())
    }


def mismatch(equation: Equation, *, instances: int, seed: int) -> Counterexample | None:
    """Compare both sides on random instances. Return the first counterexample, or None if the sides always agree.

    An instance is a choice of sizes and attributes. `instances` is the number of random instances. An attribute variable may
    occur in a denominator and be allowed to be zero. Each instance is then also tried with the value zero for this variable.

    Raises:
        InstantiationError: The conditions exclude all small sizes.
    """
    found = itertools.islice(instantiations(equation, np.random.default_rng(seed)), instances)
    for number, instance in enumerate(found):
        for variant in (instance, *_with_zeros(equation, instance)):
            counterexample = mismatch_at(equation, variant, seed + number)
            if counterexample is not None:
                return counterexample
    return None


def refute_rule(rule: Rule, seed: int, samples: int) -> Counterexample | None:
    """Compare the rule's sides on random instances. Return a counterexample, or None if the sides always agree.

    The number of instances is about `samples`. The instances are spread over all choices of ranks. A choice of ranks is left
    out if the conditions exclude all small sizes at these ranks.
    """
    for equation in rule.equations:
        try:
            found = mismatch(equation, instances=-(-samples // len(rule.equations)), seed=seed)
        except InstantiationError:
            continue
        if found is not None:
            return found
    return None


def _with_zeros(equation: Equation, instance: Instance) -> Iterator[Instance]:
    """Yield a variant of the instance for each attribute variable that occurs in a denominator and can be zero.

    In this variant, the attribute variable is set to zero.
    """
    divided = denominators(*equation.left, *equation.right)
    for name in dict.fromkeys(a.name for d in divided for a in atoms(d) if isinstance(a, Sym)):
        zeroed = replace(instance, attributes={**instance.attributes, name: 0})
        try:
            if all(substitute_cond(c, zeroed.value()) is True for c in (equation.where, *typing_conditions(*equation.left))):
                yield zeroed
        except ZeroDivisionError:
            continue


def mismatch_at(equation: Equation, instance: Instance, seed: int) -> Counterexample | None:
    """Compare both sides at one instance, on random inputs. Return a counterexample, or None if the sides agree.

    An instance is a choice of sizes and attributes.
    """
    arrays: Mapping[str, Array] = refutation_inputs(equation, instance, seed)
    domain = refutation_number_domain(*equation.left, *equation.right)
    ours, theirs = (_values(side, arrays, instance, domain) for side in (equation.left, equation.right))
    if ours is None:
        return None
    if theirs is None:
        return _undefined(ours, instance, seed)
    for output, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        if left.shape != right.shape:
            return _counterexample(instance, seed, output, (), str(left.shape[:-1]), str(right.shape[:-1]))
        wrong = _differ(left, right, domain.identity)
        if wrong.any():
            position = tuple(int(i) for i in np.argwhere(wrong)[0])
            return _counterexample(instance, seed, output, position, *_shown(left[position], right[position], domain))
    return None


def _values(roots: tuple[Term, ...], arrays: Mapping[str, Array], instance: Instance, domain: Fields) -> list[Array] | None:
    """Return the values of the terms. Return None if the expression for an attribute divides by zero."""
    with np.errstate(all="ignore"):
        try:
            return [v[..., 0] for v in evaluate_terms(roots, arrays, instance.value(), domain)]
        except ZeroDivisionError:
            return None


def _undefined(values: Sequence[Array], instance: Instance, seed: int) -> Counterexample | None:
    """Return a counterexample for an instance at which the expression for an attribute of the right side divides by zero.

    `values` contains the values of the left side. The counterexample is at the first finite element of `values`. Return None if
    no element is finite.
    """
    for output, left in enumerate(values):
        found = np.argwhere(np.isfinite(left[..., 0]))
        if len(found):
            position = tuple(int(i) for i in found[0])
            return _counterexample(instance, seed, output, position, f"{left[position][0]:.9g}", "a division by zero")
    return None


def replay_counterexample(equation: Equation, counterexample: Counterexample) -> Counterexample | None:
    """Compare both sides again at the sizes, attributes and seed of a counterexample.

    Return a new counterexample, or None if the sides agree.
    """
    numbers = {name: Fraction(text.replace(" ", "")) for name, text in counterexample.attributes}
    attributes: dict[str, Extent] = {name: int(n) if n.denominator == 1 else n for name, n in numbers.items()}
    return mismatch_at(equation, Instance(dict(counterexample.shapes), attributes), counterexample.seed)


def _differ(left: Array, right: Array, identity: int) -> Array:
    """Return a boolean array that is True at each position at which the two values differ.

    Values are compared by their residues in a prime field. If one of the two values has no residue, the values are compared as
    real numbers. Two real numbers count as equal if the left number is not finite.
    """
    one, other = left[..., 1 + identity], right[..., 1 + identity]
    close = np.isclose(left[..., 0], right[..., 0], rtol=PROOF.sample_tolerance_share, atol=PROOF.sample_tolerance_share)
    known = ~np.isnan(one) & ~np.isnan(other)
    return np.asarray(np.where(known, one != other, np.isfinite(left[..., 0]) & ~close))


def _shown(left: Array, right: Array, domain: Fields) -> tuple[str, str]:
    """Return the two values as texts.

    The texts are real numbers. If both real numbers have the same text, the texts are the residues of the values in a prime
    field.
    """
    if f"{left[0]:.9g}" != f"{right[0]:.9g}":
        return f"{left[0]:.9g}", f"{right[0]:.9g}"
    modulus = CHAIN[domain.identity]
    return tuple(f"{side[1 + domain.identity]:.0f} modulo {modulus}" for side in (left, right))  # type: ignore[return-value]


def _counterexample(
    instance: Instance, seed: int, output: int, position: tuple[int, ...], left: str, right: str
) -> Counterexample:
    return Counterexample(tuple(sorted(instance.shapes.items())), instance.shown(), seed, output, position, left, right)
