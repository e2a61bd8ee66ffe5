"""The definitions of composite operators, and algorithms for operators, as rules.

A search may always replace a term by a composite that is defined as this term, and may sometimes replace a composite by its
definition. An algorithm is also an operator, by which a search may replace another operator.
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


def composite_definitions() -> dict[str, Rule]:
    """Return the axioms that define composites, by the composite's name."""
    parts = ((name.partition("."), law) for name, law in axioms().items())
    return {operator: law for (operator, _, axiom), law in parts if axiom == DEFINITION}


def algorithms() -> dict[str, Rule]:
    """Return the axioms that state an algorithm, by their full names `operator.algorithm-...`."""
    return {name: law for name, law in axioms().items() if name.partition(".")[2].partition("-")[0] == ALGORITHM}


def definition_rules(stated: str) -> Iterator[Rule]:
    """Yield the rules of a definition or an algorithm, given by its key. The rules have no names.

    The rule from the axiom's right side to its left side is always yielded. The opposite rule is yielded for a composite whose
    definition has moves, sums and products only. Replacing such a composite by its definition loses no accuracy, and other
    rules can then apply to its parts.
    """
    known = composite_definitions().get(stated)
    law = known or algorithms()[stated]
    old = law.statement
    yield Rule("", replace(old, name="", left=old.right, arrow="=>", right=old.left))
    if known and all(map(_multilinear, subterms(*law.equations[0].right))):
        yield Rule("", replace(old, name="", arrow="=>"))


def _multilinear(term: Term) -> bool:
    return not term.args or all(degree in (0, 1) for monomial in degrees(term) for degree in monomial)
