"""The axiomatic prover: proves a rule from the axioms, at every choice of the rule's ranks and for all sizes.

Search and checking are separate. `saturate.derive` collects ground instances of axioms, until these instances imply that the
two sides of the rule are equal. `derive` returns the instances as texts. `replay.check_instances` does not trust the search.
Instead, `check_instances` parses the texts again, proves the conditions of the instances, and shows with Z3 that the instances
imply the rule.
"""

from __future__ import annotations

import time
from dataclasses import replace

from superopt.errors import ShapeError
from superopt.notation.parsing import Equation
from superopt.proof.axioms.replay import check_instances, minimal_instances, shorten_proof, type_objection
from superopt.proof.axioms.saturate import SaturationLimits, derive
from superopt.proof.definitions.assumptions import Assumptions
from superopt.rules.rule import Rule
from superopt.rules.verdict import Unknown, Verdict

LIMITS = SaturationLimits()


def prove_from_axioms(rule: Rule, limits: SaturationLimits = LIMITS) -> Verdict:
    """Prove a rule from the axioms at all of its ranks.

    Return `Proved` with the instances of axioms that the proof uses, or `Unknown`. This prover never returns `Refuted`.
    """
    started = time.perf_counter()
    instances: dict[str, None] = {}
    for equation in rule.equations:
        found = _prove_at(equation, list(instances), limits)
        if isinstance(found, str):
            where = ", ".join(f"{name}[{rank}]" for name, rank in equation.ranks)
            return Unknown(f"at {where}: {found}" if where else found, _since(started))
        instances.update(dict.fromkeys(found))
    return replace(shorten_proof(rule, list(instances)), milliseconds=_since(started))


def _prove_at(equation: Equation, known: list[str], limits: SaturationLimits) -> list[str] | str:
    """Return the texts of axiom instances that prove the equation. If no proof was found, return the reason.

    Return an empty list if the axiom instances in `known` already prove the equation.
    """
    try:
        assumptions = Assumptions(equation)
    except ShapeError as error:
        return str(error)
    objection = type_objection(assumptions)
    if objection:
        return objection
    if known and not isinstance(check_instances(assumptions, known), str):
        return []
    derived = derive(assumptions, limits)
    if derived is None:
        return "the axioms do not derive one side from the other within the limits of the search"
    grounds = check_instances(assumptions, derived)
    return grounds if isinstance(grounds, str) else [g.text for g in minimal_instances(assumptions, grounds)]


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
