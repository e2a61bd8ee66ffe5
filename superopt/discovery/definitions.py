"""Rules that state the definitions of composite operators, and rules that state algorithms for operators.

A composite is an operator that is defined as a term of smaller operators. A search may always replace such a term by the
composite. Some composites may also be replaced by their definitions. An algorithm is an operator that computes the values of a
given operator in a different way. A search may replace the given operator by the algorithm.
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
    """Return a mapping from the names of composite operators to their defining axioms.

    A defining axiom becomes a rule directly, without an enumeration.

    A composite operator is defined as a term of smaller operators.
    """
    parts = ((name.partition("."), law) for name, law in axioms().items())
    return {operator: law for (operator, _, axiom), law in parts if axiom == DEFINITION}


def algorithm_axioms() -> dict[str, Rule]:
    """Return a mapping from full names `operator.algorithm-...` to axioms. Each axiom states an algorithm for an operator, and
    becomes a rule without an enumeration.
    """
    return {name: law for name, law in axioms().items() if name.partition(".")[2].partition("-")[0] == ALGORITHM}


def definition_rules(stated: str) -> Iterator[Rule]:
    """Yield unnamed rules for the definition of a composite operator, or for an algorithm that computes an operator.

    The definition or algorithm is an axiom of the form `left == right`. The function always yields a rule that replaces the
    right side by the left side. The function yields the opposite rule only for a composite whose definition only moves, adds
    and multiplies elements. The replacement of this composite by its definition loses no accuracy. Further rules can then apply
    to the parts of the definition.

    Args:
        stated: a key of `composite_definitions` or of `algorithm_axioms`.
    """
    known = composite_definitions().get(stated)
    law = known or algorithm_axioms()[stated]
    old = law.statement
    yield Rule("", replace(old, name="", left=old.right, arrow="=>", right=old.left))
    if known and all(map(_multilinear, subterms(*law.equations[0].right))):
        yield Rule("", replace(old, name="", arrow="=>"))


def _multilinear(term: Term) -> bool:
    return not term.args or all(degree in (0, 1) for monomial in degrees(term) for degree in monomial)
