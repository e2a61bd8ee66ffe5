"""Explain a stored rule to readers: its statement, preconditions, proof and origin, and an example."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.operators import typing_conditions
from superopt.algebra.terms import Term
from superopt.errors import InstantiationError
from superopt.notation.parsing import Equation, render_condition, render_terms
from superopt.policy import REPORT
from superopt.rules.instances import Instance, instantiations, term_at
from superopt.rules.rule import axiom_laws
from superopt.rules.store import StoredRule
from superopt.rules.work import total_work

SEED = 0


@dataclass(frozen=True)
class ProofStep:
    """The use of an axiom in a proof: the axiom's name, its statement, and the values of its variables as text."""

    axiom: str
    statement: str
    values: str


@dataclass(frozen=True)
class Example:
    """A rule at concrete sizes, attributes and values.

    `left` and `right` are the sides of the rule as text. `flops` contains the number of floating-point operations of each side.
    `difference` is the largest difference between the float64 values of the two sides.
    """

    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, str]
    left: str
    right: str
    flops: tuple[int, int]
    difference: float


@dataclass(frozen=True)
class Explanation:
    """A stored rule with the conditions on its sizes and attributes, the steps of its proof, and an example.

    `typing` contains the conditions under which the left side is well typed. `conditions` contains the rule's own
    preconditions.
    """

    stored: StoredRule
    typing: tuple[str, ...]
    conditions: tuple[str, ...]
    steps: tuple[ProofStep, ...]
    example: Example | None


def explain_rule(stored: StoredRule) -> Explanation:
    """Return the explanation of a stored rule.

    If the rule is stated for several combinations of its variables' ranks, the example uses the first combination.
    """
    equation = stored.rule.equations[0]
    typing = tuple(render_condition(c) for c in typing_conditions(*equation.left) if c is not True)
    return Explanation(
        stored, typing, stored.rule.statement.where, tuple(map(_step, stored.entry.instances)), example(equation)
    )


def _step(instance: str) -> ProofStep:
    axiom, _, inside = instance.partition("(")
    stated = axiom_laws().get(axiom)
    return ProofStep(axiom, str(stated.statement) if stated else "", re.sub(r"\)$", "", inside))


def example(equation: Equation) -> Example | None:
    """Return the equation at concrete sizes and values. If no small sizes satisfy the equation's conditions, return None.

    The returned instance has the fewest floating-point operations among `REPORT.example_instance_count` random instances.
    """
    rng = np.random.default_rng(SEED)
    try:
        drawn = [
            instance for instance, _ in zip(instantiations(equation, rng), range(REPORT.example_instance_count), strict=False)
        ]
    except InstantiationError:
        return None
    return min((_at(equation, instance) for instance in drawn), key=lambda e: (e.flops[0] == 0, sum(e.flops)))


def _at(equation: Equation, instance: Instance) -> Example:
    cache: dict[Term, Term] = {}
    left, right = (tuple(term_at(t, instance, cache) for t in side) for side in (equation.left, equation.right))
    rng = np.random.default_rng(SEED)
    arrays = {name: rng.integers(1, 9, shape) / 2.0 for name, shape in sorted(instance.shapes.items())}
    with np.errstate(all="ignore"):
        values = evaluate_terms(equation.left + equation.right, arrays, instance.value(), Floats())
    half = len(left)
    gaps = [float(np.nan_to_num(np.abs(a - b)).max(initial=0.0)) for a, b in zip(values[:half], values[half:], strict=True)]
    flops = total_work(left).flops, total_work(right).flops
    return Example(instance.shapes, dict(instance.shown()), render_terms(*left), render_terms(*right), flops, max(gaps))
