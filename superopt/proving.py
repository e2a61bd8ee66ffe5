"""Proofs of partial rules: what mutants found and tests at some sizes judged, shown for all sizes."""

from __future__ import annotations

from dataclasses import replace

from superopt.partial import library
from superopt.partial.library import Partial, exact
from superopt.prove.arithmetic import version
from superopt.prove.flags import flags_of
from superopt.prove.recheck import established, rechecked
from superopt.store import entry_of
from superopt.verdict import Proved

ORIGIN = "mutants"


def proved(partial: Partial) -> Partial:
    """The rule with a proof for all sizes, where there is one; without any, else."""
    rule = exact(partial.rule)
    verdict = established(rule, seed=partial.certificate.seed)
    if not isinstance(verdict, Proved) or verdict.bounded:
        return replace(partial, proof=None)
    entry = entry_of(rule, verdict, solver=version(), origin=ORIGIN)
    flagged = flags_of(rule)
    return replace(partial, proof=replace(entry, flags=flagged.names, flags_basis=flagged.basis))


def objection(partial: Partial) -> str | None:
    """Why its certificate, judged again, or its stored proof, checked again, does not hold; None if they do."""
    why = library.objection(partial)
    if why is not None or partial.proof is None:
        return why
    verdict = rechecked(exact(partial.rule), partial.proof.proof)
    return None if isinstance(verdict, Proved) and not verdict.bounded else f"its proof does not hold: {verdict}"
