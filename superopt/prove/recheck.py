"""A stored proof checked again, without a search: what it takes from the ledger either holds or does not support it.

From the ledger come the ground instances of axioms, what a proof from the definitions is bounded by, and questions of
arithmetic that it can do without. Each instance is shown to hold, and to pass a question over proves nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace

from superopt.prove.arithmetic import passing_over
from superopt.prove.batching import representatives
from superopt.prove.index import prove_again
from superopt.prove.replay import replay, shortened
from superopt.prove.standing import resting_on_axioms
from superopt.prove.verify import objection_to, prove
from superopt.rule import Rule
from superopt.verdict import Proved, Unknown, Verdict


def established(rule: Rule, *, seed: int = 0) -> Verdict:
    """The verdict on a rule of which nothing is known; a proof is checked again, and recorded for the ledger."""
    verdict = prove(rule, seed=seed)
    return recorded(rule, verdict) if isinstance(verdict, Proved) else verdict


def rechecked(rule: Rule, proof: Proved) -> Verdict:
    """Whether the proof is one of the rule: all its instances hold where they are looked at, and prove it at all its ranks."""
    started = time.perf_counter()
    with passing_over(frozenset(proof.unasked)):
        verdict = _from_definitions(rule, proof) if proof.kind == "index" else replay(rule, proof.instances)
    return _resting(verdict, started)


def recorded(rule: Rule, proof: Proved) -> Verdict:
    """`Proved` by those of its instances that are needed, with the questions that checking it again need not ask."""
    started = time.perf_counter()
    with passing_over() as unsettled:
        verdict = _from_definitions(rule, proof) if proof.kind == "index" else shortened(rule, proof.instances)
    return _resting(replace(verdict, unasked=tuple(unsettled)) if isinstance(verdict, Proved) else verdict, started)


def _from_definitions(rule: Rule, proof: Proved) -> Verdict:
    equations = representatives(rule.equations)
    why = next((why for equation in equations if (why := objection_to(equation)) is not None), None)
    both_ways = rule.statement.arrow == "=="
    return prove_again(equations, proof.bounded, both_ways=both_ways) if why is None else Unknown(why)


def _resting(verdict: Verdict, started: float) -> Verdict:
    settled = resting_on_axioms(verdict) if isinstance(verdict, Proved) else verdict
    return replace(settled, milliseconds=(time.perf_counter() - started) * 1e3)
