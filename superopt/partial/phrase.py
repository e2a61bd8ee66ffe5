"""Conversion of generalised mutants to rules in the rule notation, with certificates."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from superopt.algebra.terms import show_extent
from superopt.notation.parsing import Statement, parse_statement, render_terms
from superopt.partial.discover import GeneralisedMutant
from superopt.partial.library import PartialCertificate, PartialRule, family_atom_names, specs_of
from superopt.partial.sizes import ProgramFamily
from superopt.rules.rule import Rule, digest

ARROW = "~>"


def statement_of(found: GeneralisedMutant, name: str) -> Statement:
    """Return the rule in the rule notation. Tuples of attribute variables and the left side's shape are written by name."""
    family = found.family
    left, right = (_tuples(text, family) for text in (render_terms(family.program), render_terms(found.term)))
    shape = ", ".join(map(show_extent, family.program.shape))
    right = right.replace(f"shape=({shape})", f"shape=({left}).shape")
    where = f" where {', '.join(c.text for c in found.where)}" if found.where else ""
    return parse_statement(f"{name}: {left} {ARROW} {right} for {family.ranks}{where}")


def _tuples(text: str, family: ProgramFamily) -> str:
    """Replace tuples of attribute variables by their names: `(s0, s1)` becomes `s`."""
    tensors: set[str] = {t.name for t in family.tensors}
    for name, count in re.findall(r"(\w+)\[(\d+)\]", family.ranks):
        if name not in tensors:
            text = text.replace(f"=({', '.join(f'{name}{i}' for i in range(int(count)))})", f"={name}")
    return text


def name_partial_rules(found: Sequence[GeneralisedMutant], seed: int) -> list[PartialRule]:
    """Return the rules with certificates, under distinct names."""
    made: list[PartialRule] = []
    for rule in found:
        stem = f"{rule.family.name}-as-{'-and-'.join(sorted(rule.counted)).replace('_', '-')}"
        count = sum(one.rule.name.startswith(stem) for one in made)
        statement = statement_of(rule, stem if not count else f"{stem}-{count + 1}")
        made.append(_certified(Rule(statement.name, statement), rule, seed))
    return made


def _certified(rule: Rule, found: GeneralisedMutant, seed: int) -> PartialRule:
    judged = [t.judgement for t in found.trials if t.judgement is not None]
    certificate = PartialCertificate(
        key=digest(rule),
        name=rule.name,
        family=found.family.name,
        seed=seed,
        atoms=family_atom_names(found.family),
        sizes=tuple(t.draw.numbers for t in found.trials),
        boxes=tuple(len(j.equal) for j in judged),
        refused=tuple(d.numbers for d in found.refused),
        log2_error=max(math.ceil(j.log2_error) for j in judged),
        tests=min(j.tests for j in judged),
        prime=min(j.prime for j in judged),
        specs=specs_of(rule),
    )
    return PartialRule(rule, certificate)
