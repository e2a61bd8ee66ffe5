"""What composite operators are, as rules: a search may always fold a term into a composite, and sometimes write one out.

And by what algorithms operators can be computed, which are operators too: a search may put one in an operator's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from superopt.graph import Term, subterms
from superopt.linearity import degrees
from superopt.rule import Rule, axioms

FAMILY = "definitions"
DEFINITION = "definition"
ALGORITHMS = "algorithms"
ALGORITHM = "algorithm"


def definitions() -> dict[str, Rule]:
    """The axiom that says what a composite operator is, by the operator's name."""
    parts = ((name.partition("."), law) for name, law in axioms().items())
    return {operator: law for (operator, _, axiom), law in parts if axiom == DEFINITION}


def algorithms() -> dict[str, Rule]:
    """The axioms that say what is computed by an algorithm, `operator.algorithm-...`, by their full names."""
    return {name: law for name, law in axioms().items() if name.partition(".")[2].partition("-")[0] == ALGORITHM}


def readings(stated: str) -> Iterator[Rule]:
    """A definition or an algorithm, by its key, as nameless rules: from what the operator is made of or computes to it, always.

    The other way too where what a composite is made of is moves, sums and products alone: then writing it out loses no
    accuracy, and what other rules say about its parts is at hand.
    """
    known = definitions().get(stated)
    law = known or algorithms()[stated]
    old = law.statement
    yield Rule("", replace(old, name="", left=old.right, arrow="=>", right=old.left))
    if known and all(map(_multilinear, subterms(*law.equations[0].right))):
        yield Rule("", replace(old, name="", arrow="=>"))


def _multilinear(term: Term) -> bool:
    return not term.args or all(degree in (0, 1) for monomial in degrees(term) for degree in monomial)
