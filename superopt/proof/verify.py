"""The entry point of the provers.

The entry point tries a proof from the axioms, then a proof from the definitions, and then random sampling.
"""

from __future__ import annotations

import time
from dataclasses import replace

from superopt.errors import InstantiationError, ShapeError
from superopt.notation.parsing import Equation
from superopt.policy import PROOF
from superopt.proof.axioms.axiomatic import prove_from_axioms
from superopt.proof.axioms.replay import type_objection
from superopt.proof.axioms.standing import resting_on_axioms
from superopt.proof.definitions.arithmetic import isolated_solver
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.definitions.index import prove_axiom
from superopt.proof.sample import mismatch
from superopt.rules.rule import Rule
from superopt.rules.verdict import Proved, Refuted, Unknown, Verdict


@isolated_solver()
def prove_rule(rule: Rule, *, seed: int = 0) -> Verdict:
    """Prove or refute a rule and return the verdict.

    The rule claims that the right side is well typed and equal to the left side, wherever the left side is well typed and the
    rule's `where` clause holds. If an axiom is proved only for some sizes, a proof that uses the axiom covers only these sizes.
    If no prover succeeds, both sides are compared on random inputs. If the comparison gives no counterexample, the verdict is
    `Unknown`.
    """
    started = time.perf_counter()
    verdict = _prove(rule, seed)
    return replace(verdict, milliseconds=(time.perf_counter() - started) * 1e3)


def _prove(rule: Rule, seed: int) -> Verdict:
    from_axioms = prove_from_axioms(rule)
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
    """Check that the right side is well typed wherever the left side is well typed.

    Return None if the check succeeds. Otherwise return the reason for the failure.
    """
    try:
        return type_objection(Assumptions(equation))
    except ShapeError as error:
        return str(error)


def _sampled(rule: Rule, why: str, seed: int) -> Verdict:
    """Return `Refuted` if the sides differ at a random instance. Otherwise, return `Unknown` with the reason `why`."""
    for equation in rule.equations:
        try:
            counterexample = mismatch(equation, instances=PROOF.sampled_instance_count, seed=seed)
        except InstantiationError:
            continue
        if counterexample is not None:
            return Refuted(counterexample)
    return Unknown(why)
