"""Mutants of one term: versions with changed attributes, and results of rules that are applied even if conditions fail.

A mutant is a term that equals the original term at some output positions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Attribute, Term, subterms
from superopt.errors import ShapeError, Undecidable
from superopt.partial.field import PrimeFields, program_field_primes
from superopt.partial.points import Points
from superopt.policy import MUTANT
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule

FIELDS, SEED = 1, 0
Change = tuple[Term, tuple[str, ...]]


def alter_attributes(term: Term) -> Iterator[Change]:
    """Change one or two numbers in the attributes of the root operator, and yield the changed versions of the term.

    Each version has the shape of `term` and equals `term` at a sufficient share of positions (see `is_likely_mutant`). Each
    version comes with a description of the change.
    """
    numbers = [
        (name, position, value)
        for name, attribute in term.attributes
        if name != "shape" and _kind(term.op, name) in ("extent", "extents")
        for position, value in enumerate(attribute if isinstance(attribute, tuple) else (attribute,))
        if isinstance(value, int)
    ]
    one = [((name, position, new),) for name, position, value in numbers for new in _near(value)]
    two = [(a, b) for (a,), (b,) in itertools.combinations(one, 2) if a[:2] != b[:2]]
    for changes in (*one, *two):
        try:
            found = apply(term.op, *term.args, **_changed(term, changes))
        except ShapeError:
            continue
        if found.shape == term.shape and found is not term and is_likely_mutant(term, found):
            yield found, tuple(f"{name} of {term.op} is {found[name]}" for name in dict.fromkeys(c[0] for c in changes))


def _near(value: int) -> list[int]:
    return sorted({value - 1, value + 1, 0, 1} - {value} - {-1})


def _kind(op: str, name: str) -> str:
    return next(p.kind for p in operator(op).parameters if p.name == name)


def _changed(term: Term, changes: Sequence[tuple[str, int, int]]) -> dict[str, Attribute]:
    attributes = dict(term.attributes)
    for name, position, new in changes:
        old = attributes[name]
        attributes[name] = (*old[:position], new, *old[position + 1 :]) if isinstance(old, tuple) else new
    return attributes


def unconditional(outputs: Sequence[Term], rules: Sequence[Rule]) -> Iterator[tuple[Term, Term, tuple[str, ...]]]:
    """Apply rules without checking their conditions, and yield (term, result, description) for each application.

    The term is a subterm of one of `outputs`, the result is the rewritten term, and the description names the rule. Only rules
    with a condition and a single output are applied. A result that equals the term at too few positions is left out (see
    `is_likely_mutant`).
    """
    live = [t for t in subterms(*outputs) if not t.is_variable and not t.constant]
    kinds = {t.op for t in live}
    for rule in rules:
        if not rule.statement.where or not kinds & set(rule.operators):
            continue
        for pattern in _patterns(rule):
            for term in (t for t in live if t.op == pattern.roots[0]):
                for match in pattern.matches(term, lambda _: ()):
                    (found,) = match.replacements
                    if is_likely_mutant(term, found):
                        yield term, found, (f"{rule.name} without its condition",)


@functools.lru_cache(maxsize=1024)
def _patterns(rule: Rule) -> tuple[Pattern, ...]:
    """Return patterns that apply the rule's single-output equations without checking their conditions."""
    found = [Pattern(e.left, e.right, where=True) for e in rule.equations if len(e.left) == 1]
    return tuple(p for p in found if p.usable)


def is_likely_mutant(program: Term, mutant: Term) -> bool:
    """Return whether the terms `mutant` and `program` have equal values at a sufficient share of random output positions. The
    values are residues in a prime field. If one of the terms is not a polynomial, return False.
    """
    rng = np.random.default_rng(SEED)
    at = np.stack([rng.integers(0, n, MUTANT.sampled_position_count) for n in program.sizes], axis=-1)
    points = _points(program)
    try:
        same = (points.values(program, at) == points.values(mutant, at)).all(axis=-1)
    except Undecidable:
        return False
    points.forget()
    return bool(same.mean() >= MUTANT.min_equal_share)


@functools.lru_cache(maxsize=1)
def _points(program: Term) -> Points:
    """Return random inputs, with cached values of the program. Every term that is compared with the program is evaluated on
    these inputs.
    """
    return Points(program, PrimeFields(program_field_primes(FIELDS)), SEED)
