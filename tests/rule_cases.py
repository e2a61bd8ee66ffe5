"""Rules at random sizes and attributes, with both sides run in ONNX Runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from superopt.algebra.operators import POSITIVE, operator
from superopt.algebra.terms import Term, subterms, variable, variables
from superopt.model.term_pairs import TermPair, largest_differences
from superopt.notation.parsing import Equation
from superopt.rules.instances import instantiations
from superopt.rules.match import Binding, instantiate
from superopt.rules.rule import Rule
from superopt.runtime.session import Array
from tests.operator_cases import positions

TOLERANCE = 2e-5
"""The largest difference that rounding to float32 explains, relative to the largest value."""
BATCH = 40


@dataclass(frozen=True, eq=False)
class Case:
    """A rule at one choice of ranks and one instantiation."""

    rule: Rule
    ranks: str
    seed: int
    pair: TermPair


def cases(rules: Iterable[Rule], *, instances: int, choices: int = 0, seed: int = 0) -> Iterator[Case]:
    """Yield instantiations of each rule at all its choices of ranks, or at `choices` of them.

    The text of the rule decides which choices of ranks are used.
    """
    for rule in rules:
        for equation in chosen(rule, choices):
            drawn = instantiations(equation, np.random.default_rng(seed))
            ranks = " ".join(f"{name}[{rank}]" for name, rank in equation.ranks)
            for number, instance in enumerate(islice(drawn, instances)):
                names = {name: f"{rule.name}|{ranks}|{number}|{name}" for name in instance.shapes}
                tensors = {name: variable(names[name], shape) for name, shape in instance.shapes.items()}
                binding = Binding(tensors, instance.attributes)
                sides = [tuple(instantiate(t, binding) for t in side) for side in (equation.left, equation.right)]
                rng = np.random.default_rng([seed, number])
                arrays = {names[n]: rng.standard_normal(s).astype(np.float32) for n, s in sorted(instance.shapes.items())}
                if _positive(equation):
                    arrays = {name: np.asarray(np.abs(a) + np.float32(0.5)) for name, a in arrays.items()}
                arrays.update(_positions(sides[0] + sides[1], arrays, rng))
                yield Case(rule, ranks, number, TermPair(sides[0], sides[1], arrays))


def _positions(terms: Sequence[Term], arrays: Mapping[str, Array], rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """Yield whole numbers for each variable that holds positions. The positions are valid in every table that they index."""
    rows: dict[str, int] = {}
    for term in subterms(*terms):
        indices, extent = positions(term)
        for v in variables(indices) if indices is not None else ():
            rows[v.name] = min(extent, rows.get(v.name, extent))
    for name, count in sorted(rows.items()):
        yield name, np.asarray(rng.integers(-count, count, arrays[name].shape), dtype=np.float32)


def chosen(rule: Rule, choices: int) -> Sequence[Equation]:
    """Return `choices` of the rule's equations, always the same ones. Return all equations if `choices` is 0."""
    if not choices or choices >= len(rule.equations):
        return rule.equations
    start = int(hashlib.sha256(rule.text.encode()).hexdigest()[:8], 16)
    return [rule.equations[(start + i) % len(rule.equations)] for i in range(choices)]


def measured(found: Iterable[Case]) -> Iterator[tuple[Case, float]]:
    """Yield each case with the largest difference between its sides."""
    rest = iter(found)
    while batch := list(islice(rest, BATCH)):
        yield from zip(batch, largest_differences([case.pair for case in batch]), strict=True)


def rules_digest(rules: Iterable[Rule]) -> str:
    """Return a digest of the rules' texts that does not depend on their order."""
    return hashlib.sha256("\n".join(sorted(rule.text for rule in rules)).encode()).hexdigest()[:16]


def _positive(equation: Equation) -> bool:
    terms = subterms(*equation.left, *equation.right)
    return any(not t.is_variable and operator(t.op).domain == POSITIVE for t in terms)
