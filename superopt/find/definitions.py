"""What composite operators are, as rules: a search may always fold a term into a composite, and sometimes write one out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from superopt.graph import Term, subterms
from superopt.linearity import degrees
from superopt.rule import Rule, axioms

FAMILY = "definitions"
DEFINITION = "definition"


def definitions() -> dict[str, Rule]:
    """The axiom that says what a composite operator is, by the operator's name."""
    parts = ((name.partition("."), law) for name, law in axioms().items())
    return {operator: law for (operator, _, axiom), law in parts if axiom == DEFINITION}


def readings(operator: str) -> Iterator[Rule]:
    """The definition as nameless rules: from what the composite is made of to the composite, always.

    The other way too where it is made of moves, sums and products alone: then writing it out loses no accuracy, and what other
    rules say about its parts is at hand.
    """
    stated = definitions()[operator]
    old = stated.statement
    yield Rule("", replace(old, name="", left=old.right, arrow="=>", right=old.left))
    if all(map(_multilinear, subterms(*stated.equations[0].right))):
        yield Rule("", replace(old, name="", arrow="=>"))


def _multilinear(term: Term) -> bool:
    return not term.args or all(degree in (0, 1) for monomial in degrees(term) for degree in monomial)
