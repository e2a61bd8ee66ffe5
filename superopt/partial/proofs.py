"""Proofs that partial rules, which were found by mutants and judged at some sizes, hold at all sizes."""

from __future__ import annotations

from dataclasses import replace

from superopt.floating_point.flags import flags_of
from superopt.partial import library
from superopt.partial.library import PartialRule, exact
from superopt.proof.definitions.arithmetic import version
from superopt.proof.recheck import prove_and_record, recheck_proof
from superopt.rules.store import entry_of
from superopt.rules.verdict import Proved

ORIGIN = "mutants"


def attach_proof(partial: PartialRule) -> PartialRule:
    """Return the rule with a proof for all sizes, or without a proof if none is found."""
    rule = exact(partial.rule)
    verdict = prove_and_record(rule, seed=partial.certificate.seed)
    if not isinstance(verdict, Proved) or verdict.bounded:
        return replace(partial, proof=None)
    entry = entry_of(rule, verdict, solver=version(), origin=ORIGIN)
    flagged = flags_of(rule)
    return replace(partial, proof=replace(entry, flags=flagged.names, flags_basis=flagged.basis))


def recheck_objection(partial: PartialRule) -> str | None:
    """Judge the certificate and check the stored proof again. Return why one of them does not hold, or None if both hold."""
    why = library.certificate_objection(partial)
    if why is not None or partial.proof is None:
        return why
    verdict = recheck_proof(exact(partial.rule), partial.proof.proof)
    return None if isinstance(verdict, Proved) and not verdict.bounded else f"its proof does not hold: {verdict}"
