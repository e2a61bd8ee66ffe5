"""Definitions of composites, and other algorithms for operators, as rules.

A search may always fold a term into a composite, and may sometimes write a composite out. An algorithm is an operator too: a
search may replace an operator by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from superopt.algebra.linearity import degrees
from superopt.algebra.terms import Term, subterms
from superopt.rules.rule import Rule, axioms

FAMILY = "definitions"
DEFINITION = "definition"
ALGORITHMS = "algorithms"
ALGORITHM = "algorithm"


def definitions() -> dict[str, Rule]:
    """Return the axioms that define the composites, by the composite's name."""
    parts = ((name.partition("."), law) for name, law in axioms().items())
    return {operator: law for (operator, _, axiom), law in parts if axiom == DEFINITION}


def algorithms() -> dict[str, Rule]:
    """Return the axioms that give an algorithm, `operator.algorithm-...`, by their full names."""
    return {name: law for name, law in axioms().items() if name.partition(".")[2].partition("-")[0] == ALGORITHM}


def readings(stated: str) -> Iterator[Rule]:
    """Yield a definition or an algorithm, given by its key, as nameless rules.

    The rule from the axiom's right side to its left side is always given. The opposite rule is given for a composite that is
    defined by moves, sums and products only. Writing such a composite out loses no accuracy and lets other rules apply to its
    parts.
    """
    known = definitions().get(stated)
    law = known or algorithms()[stated]
    old = law.statement
    yield Rule("", replace(old, name="", left=old.right, arrow="=>", right=old.left))
    if known and all(map(_multilinear, subterms(*law.equations[0].right))):
        yield Rule("", replace(old, name="", arrow="=>"))


def _multilinear(term: Term) -> bool:
    return not term.args or all(degree in (0, 1) for monomial in degrees(term) for degree in monomial)
