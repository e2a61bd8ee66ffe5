"""Verdicts on axioms.

The verdict is read from the ledger (the file of stored verdicts) if the ledger has a valid entry. Otherwise, the axiom is
proved anew.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from superopt.proof.definitions.index import prove_axiom
from superopt.rules.rule import axiom_laws
from superopt.rules.store import BOUNDED, LedgerEntry, load_axioms
from superopt.rules.verdict import Proved, Refuted, Unknown, Verdict


@functools.cache
def axiom_verdict(axiom: str) -> Verdict:
    """Return the verdict on an axiom or a regrouping law. `axiom` is the full name, such as `matmul.associativity`."""
    entry = axiom_ledger().get(axiom)
    if entry is None:
        return prove_axiom(axiom_laws()[axiom])
    if entry.verdict != "proved":
        return Unknown(f"the ledger has the verdict {entry.verdict!r} for the axiom {axiom}")
    return Proved(0.0, entry.bounded if entry.status == BOUNDED else ())


@functools.cache
def axiom_ledger() -> Mapping[str, LedgerEntry]:
    """Return a mapping from the names of axioms to the stored verdicts. The ledger file is read only once."""
    return load_axioms()


def resting_on_axioms(proof: Proved) -> Verdict:
    """Limit the proof to the sizes for which its axioms are proved. Return `Unknown` if an axiom is not proved."""
    bounded = list(proof.bounded)
    for axiom in proof.axioms:
        match axiom_verdict(axiom):
            case Proved(bounded=limits):
                bounded += [f"{axiom}: {limit}" for limit in limits]
            case Refuted() | Unknown() as verdict:
                return Unknown(f"the proof uses the axiom {axiom}, which is {verdict}", proof.milliseconds)
    return replace(proof, bounded=tuple(bounded))
