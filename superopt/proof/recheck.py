"""Checks of stored proofs, without a search and without trust in the ledger.

For a proof from axioms, the ledger lists ground instances of the axioms. Each instance is checked again. For a proof from the
definitions, the ledger lists the sizes to which the proof is limited. For both kinds of proof, the ledger also lists the
arithmetic questions that Z3 could not decide when the proof was recorded. The check skips these questions to save time. A
skipped question counts as undecided, so no false rule passes because a question is skipped.

Two rules are converses if each rule, read from right to left, is the other rule. A proof that the sides of a rule are equal
also proves that the sides of the converse are equal. If two converses have the same proof, the proof is therefore checked only
once. For the second rule, only one more check is needed: its right side must be well typed and defined wherever its left side
is well typed and defined.
"""

from __future__ import annotations

import time
from dataclasses import replace

from superopt.algebra.terms import at_least, subterms
from superopt.notation.parsing import Equation
from superopt.proof.axioms.replay import replay_proof, shorten_proof
from superopt.proof.axioms.standing import resting_on_axioms
from superopt.proof.definedness import undefined_somewhere
from superopt.proof.definitions.arithmetic import skip_questions
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.definitions.batching import representatives
from superopt.proof.definitions.index import reprove_equations
from superopt.proof.verify import objection_to, prove_rule
from superopt.rules.rule import Rule
from superopt.rules.verdict import Proved, Unknown, Verdict


def prove_and_record(rule: Rule, *, seed: int = 0) -> Verdict:
    """Search for a proof of the rule. Return a proof that the ledger can store, or another verdict.

    A proof for all sizes is checked and shortened (see `record_proof`). A proof that covers only some sizes gives the verdict
    `Unknown`.
    """
    verdict = prove_rule(rule, seed=seed)
    if isinstance(verdict, Proved) and verdict.bounded:
        return Unknown(f"the rule is proved only for {'; '.join(verdict.bounded)}", verdict.milliseconds)
    return record_proof(rule, verdict) if isinstance(verdict, Proved) else verdict


def recheck_proof(rule: Rule, proof: Proved) -> Verdict:
    """Check a stored proof of the rule at all choices of the rule's ranks. Return `Proved` or `Unknown`."""
    return _rechecked(rule, proof, both_ways=False)


def is_converse_proof_pair(rule: Rule, other: Rule) -> bool:
    """Return whether each rule is the other rule read from right to left, under the same conditions."""
    one, two = rule.statement, other.statement
    turned_round = one.left == two.right and one.right == two.left and one.arrow == two.arrow
    return turned_round and one.where == two.where


def recheck_converses(known: tuple[Rule, Proved], converse: tuple[Rule, Proved]) -> list[Verdict]:
    """Check the stored proofs of two converse rules and return a verdict for each rule.

    Each rule must be the other rule read from right to left. If the rules have the same proof and the same choices of ranks,
    the proof is checked only once, for the first rule. For the second rule, it is sufficient to check that its right side is
    well typed and defined wherever its left side is well typed and defined. If one of these checks fails, each proof is checked
    separately.
    """
    (rule, proof), (other, its_proof) = known, converse
    if rule.choices == other.choices and _are_alike(proof, its_proof):
        verdict = _rechecked(rule, proof, both_ways=True)
        turned = _turned(other, its_proof) if isinstance(verdict, Proved) else verdict
        if isinstance(turned, Proved):
            return [verdict, turned]
    return [recheck_proof(rule, proof), recheck_proof(other, its_proof)]


def _are_alike(proof: Proved, other: Proved) -> bool:
    same_limits = proof.kind == other.kind and proof.bounded == other.bounded
    return same_limits and set(proof.instances) == set(other.instances)


def _rechecked(rule: Rule, proof: Proved, *, both_ways: bool) -> Verdict:
    started = time.perf_counter()
    with skip_questions(frozenset(proof.unasked)):
        found = (
            _from_definitions(rule, proof, both_ways=both_ways)
            if proof.kind == "index"
            else replay_proof(rule, proof.instances)
        )
    return _resting(found, started)


def _turned(rule: Rule, proof: Proved) -> Verdict:
    """Return `Proved` if the rule follows from its converse. Otherwise, return `Unknown`.

    The converse is the rule read from right to left. The converse must already be proved.
    """
    started = time.perf_counter()
    with skip_questions(frozenset(proof.unasked)):
        turned = all(_gives_its_converse(equation, from_axioms=proof.kind != "index") for equation in rule.equations)
    return _resting(
        replace(proof, unasked=()) if turned else Unknown("the rule does not follow from the converse rule"), started
    )


def _gives_its_converse(equation: Equation, *, from_axioms: bool) -> bool:
    """Return whether the right side is well typed and non-empty wherever the left side is well typed and non-empty.

    If `from_axioms` is True, the right side must also be defined wherever the left side is defined.
    """
    if objection_to(equation) is not None:
        return False
    assumptions = Assumptions(equation)
    extents = dict.fromkeys(e for t in subterms(*assumptions.right) for e in t.shape)
    positive = all(assumptions.holds(at_least(e, 1)) for e in extents)
    return positive and not (from_axioms and undefined_somewhere(assumptions))


def record_proof(rule: Rule, proof: Proved) -> Verdict:
    """Check a new proof. Return the proof in the form that the ledger stores, or `Unknown` if the check fails.

    The stored form contains no unused axiom instances, and lists the arithmetic questions that later checks can skip.
    """
    started = time.perf_counter()
    with skip_questions() as unsettled:
        verdict = (
            _from_definitions(rule, proof, both_ways=False) if proof.kind == "index" else shorten_proof(rule, proof.instances)
        )
    return _resting(replace(verdict, unasked=tuple(unsettled)) if isinstance(verdict, Proved) else verdict, started)


def _from_definitions(rule: Rule, proof: Proved, *, both_ways: bool) -> Verdict:
    equations = representatives(rule.equations)
    why = next((why for equation in equations if (why := objection_to(equation)) is not None), None)
    both_ways = both_ways or rule.statement.arrow == "=="
    return reprove_equations(equations, proof.bounded, both_ways=both_ways) if why is None else Unknown(why)


def _resting(verdict: Verdict, started: float) -> Verdict:
    settled = resting_on_axioms(verdict) if isinstance(verdict, Proved) else verdict
    return replace(settled, milliseconds=(time.perf_counter() - started) * 1e3)
