"""Conversion of generalised mutants to rules in the rule notation.

A generalised mutant is a term over symbolic sizes that equals a program at all tested sizes at which its conditions hold.
"""

from __future__ import annotations

import re

from superopt.algebra.terms import show_extent
from superopt.notation.parsing import parse_statement, render_terms
from superopt.partial.discover import GeneralisedMutant
from superopt.partial.sizes import ProgramFamily
from superopt.rules.rule import Rule


def rule_of(found: GeneralisedMutant) -> Rule:
    """Return an unnamed rule that replaces the family's program by the term of the generalised mutant.

    In the rule, a tuple of an attribute's variables, such as `(s0, s1)`, is written as `s`. A `shape` attribute that equals the
    shape of the rule's left side `left` is written as `(left).shape`.
    """
    family = found.family
    left, right = (_tuples(text, family) for text in (render_terms(family.program), render_terms(found.term)))
    shape = ", ".join(map(show_extent, family.program.shape))
    right = right.replace(f"shape=({shape})", f"shape=({left}).shape")
    where = f" where {', '.join(c.text for c in found.where)}" if found.where else ""
    return Rule("", parse_statement(f"{left} => {right} for {family.ranks}{where}"))


def _tuples(text: str, family: ProgramFamily) -> str:
    """Replace each tuple of an attribute's variables in the text by the name of the attribute: `(s0, s1)` becomes `s`."""
    tensors: set[str] = {t.name for t in family.tensors}
    for name, count in re.findall(r"(\w+)\[(\d+)\]", family.ranks):
        if name not in tensors:
            text = text.replace(f"=({', '.join(f'{name}{i}' for i in range(int(count)))})", f"={name}")
    return text
