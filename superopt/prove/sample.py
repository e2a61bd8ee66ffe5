"""Exact sampling: both sides of an equation on random shape-legal instantiations, compared without rounding error.

Sides built from ring operations are compared modulo a prime, on uniformly random residues: an identity of polynomials that
fails is missed with probability at most its degree over the prime. Sides with an order operator (relu, maxima, roots) are
compared in float64 on halves of small integers, where only quotients round: 1e-9 relative covers that and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from superopt.evaluate import PRIME, Array, Floats, Modular, evaluate
from superopt.graph import Extent, Term, subterms
from superopt.op import POSITIVE, operator
from superopt.prove.instance import Instance, instantiations
from superopt.text import Equation
from superopt.verdict import Counterexample

__all__ = ["Instance", "inputs", "instantiations", "mismatch", "mismatch_at", "replay"]

TOLERANCE = 1e-9


def domain_of(*roots: Term) -> Floats | Modular:
    """The arithmetic in which these terms are compared: modulo a prime unless an operator depends on order."""
    names = {t.op for t in subterms(*roots) if not t.is_variable}
    return Modular() if all(operator(name).exact == "ring" for name in names) else Floats()


def inputs(equation: Equation, instance: Instance, seed: int) -> dict[str, Array]:
    """An array for every variable: residues, or halves of small integers of both signs; positive ones for every other seed
    where an operator is defined on positive numbers alone.

    Halves, because on integers alone x * x + x is never negative, and other laws hold that do not.
    """
    roots = equation.left + equation.right
    rng = np.random.default_rng(seed)
    if isinstance(domain_of(*roots), Modular):
        return {name: rng.integers(0, PRIME, shape) for name, shape in sorted(instance.shapes.items())}
    positive = any(not t.is_variable and operator(t.op).domain == POSITIVE for t in subterms(*roots))
    low = 1 if positive and seed % 2 == 0 else -8
    return {name: rng.integers(low, 9, shape) / 2 for name, shape in sorted(instance.shapes.items())}


def mismatch(equation: Equation, *, instances: int, seed: int) -> Counterexample | None:
    """A counterexample among that many random instantiations, or None where all of them agree.

    Raises:
        InstantiationError: the conditions leave no small sizes to try.
    """
    found = itertools.islice(instantiations(equation, np.random.default_rng(seed)), instances)
    for number, instance in enumerate(found):
        counterexample = mismatch_at(equation, instance, seed + number)
        if counterexample is not None:
            return counterexample
    return None


def mismatch_at(equation: Equation, instance: Instance, seed: int) -> Counterexample | None:
    """Where the sides differ at this instance, on inputs drawn from `seed`; None where they agree."""
    roots = equation.left + equation.right
    arrays: Mapping[str, Array] = inputs(equation, instance, seed)
    with np.errstate(all="ignore"):
        values = evaluate(roots, arrays, instance.value(), domain_of(*roots))
    half = len(equation.left)
    for output, (left, right) in enumerate(zip(values[:half], values[half:], strict=True)):
        if left.shape != right.shape:
            return _counterexample(instance, seed, output, (), str(left.shape), str(right.shape))
        wrong = _differ(left, right)
        if wrong.any():
            position = tuple(int(i) for i in np.argwhere(wrong)[0])
            return _counterexample(instance, seed, output, position, f"{left[position]}", f"{right[position]}")
    return None


def replay(equation: Equation, counterexample: Counterexample) -> Counterexample | None:
    """The counterexample found again at its own sizes, attributes and seed; None where the sides agree there."""
    numbers = {name: Fraction(text.replace(" ", "")) for name, text in counterexample.attributes}
    attributes: dict[str, Extent] = {name: int(n) if n.denominator == 1 else n for name, n in numbers.items()}
    return mismatch_at(equation, Instance(dict(counterexample.shapes), attributes), counterexample.seed)


def _differ(left: Array, right: Array) -> Array:
    """Where the arrays differ; positions at which the left side is not a number are outside its domain."""
    if left.dtype.kind == "i":
        return np.asarray(left != right)
    close = np.isclose(left, right, rtol=TOLERANCE, atol=TOLERANCE)
    return np.asarray(np.isfinite(left) & ~close)


def _counterexample(
    instance: Instance, seed: int, output: int, position: tuple[int, ...], left: str, right: str
) -> Counterexample:
    return Counterexample(tuple(sorted(instance.shapes.items())), instance.shown(), seed, output, position, left, right)
