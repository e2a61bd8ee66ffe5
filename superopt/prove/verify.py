"""The one way in: the verdict on a rule, from the axioms, or else from the definitions, or else from sampling."""

from __future__ import annotations

import time
from dataclasses import replace

from superopt.errors import InstantiationError, ShapeError
from superopt.prove.arithmetic import afresh
from superopt.prove.assumptions import Assumptions
from superopt.prove.axiomatic import prove_rule
from superopt.prove.index import prove_axiom
from superopt.prove.replay import well_typed
from superopt.prove.sample import mismatch
from superopt.prove.standing import resting_on_axioms
from superopt.rule import Rule
from superopt.text import Equation
from superopt.verdict import Proved, Refuted, Unknown, Verdict

INSTANCES = 60


@afresh()
def prove(rule: Rule, *, seed: int = 0) -> Verdict:
    """The verdict on: wherever the left side is well typed and `where` holds, the right side is, and equals it.

    A proof from the axioms is as bounded as they are. What no prover settles is sampled, and `Unknown` if that finds nothing.
    """
    started = time.perf_counter()
    verdict = _prove(rule, seed)
    return replace(verdict, milliseconds=(time.perf_counter() - started) * 1e3)


def _prove(rule: Rule, seed: int) -> Verdict:
    from_axioms = prove_rule(rule)
    if isinstance(from_axioms, Proved):
        from_axioms = resting_on_axioms(from_axioms)
        if isinstance(from_axioms, Proved):
            return from_axioms
    for equation in rule.equations:
        why = objection_to(equation)
        if why is not None:
            return _sampled(rule, why, seed)
    from_definitions = prove_axiom(rule, seed=seed)
    if isinstance(from_definitions, Unknown) and isinstance(from_axioms, Unknown):
        return Unknown(f"{from_axioms.reason}; {from_definitions.reason}")
    return from_definitions


def objection_to(equation: Equation) -> str | None:
    """Why the right side does not follow the left side's typing; None if it does."""
    try:
        return well_typed(Assumptions(equation))
    except ShapeError as error:
        return str(error)


def _sampled(rule: Rule, why: str, seed: int) -> Verdict:
    """Refuted if random instantiations find a difference, otherwise unknown for the reason given."""
    for equation in rule.equations:
        try:
            counterexample = mismatch(equation, instances=INSTANCES, seed=seed)
        except InstantiationError:
            continue
        if counterexample is not None:
            return Refuted(counterexample)
    return Unknown(why)
