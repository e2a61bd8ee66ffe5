"""What a prover may answer: proved, refuted by a counterexample, or unknown for a stated reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Counterexample:
    """Sizes, attributes and inputs at which two sides differ, and where.

    `shapes` holds every variable's shape, `attributes` the value of every attribute variable. The inputs are the arrays
    that `superopt.prove.sample.inputs` draws for these shapes from `seed`. At `position` of output `output` the left side
    is `left` and the right side is `right`; for outputs of different shapes, `position` is empty and both are the shapes.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    attributes: tuple[tuple[str, str], ...]
    seed: int
    output: int
    position: tuple[int, ...]
    left: str
    right: str

    def __str__(self) -> str:
        at = [f"{name}{list(shape)}" for name, shape in self.shapes]
        at += [f"{name}={value}" for name, value in self.attributes]
        where = f"output {self.output} at {list(self.position)}" if self.position else f"the shape of output {self.output}"
        return f"{', '.join(at)}, seed {self.seed}: {where} is {self.left} on the left and {self.right} on the right"


@dataclass(frozen=True)
class Proved:
    """Both sides are equal for all sizes and attributes that the conditions allow.

    `bounded` names what was not left symbolic, one entry each, as in "g in 1, 2, 3, 4"; it is empty for a proof about all
    sizes. `axioms` are the full names of the axioms a proof rests on, none where it rests on the definitions; `instances` are
    the ground instances of them that prove it, as `superopt.prove.ground` writes them. `kind` says what was reasoned from:
    "axioms" or "index" (the definitions). `unasked` names questions of arithmetic that checking the proof can do without.
    """

    milliseconds: float
    bounded: tuple[str, ...] = ()
    axioms: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    kind: str = "index"
    unasked: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"proved ({', '.join(self.bounded)})" if self.bounded else "proved"


@dataclass(frozen=True)
class Refuted:
    """The sides differ at `counterexample`."""

    counterexample: Counterexample
    milliseconds: float = 0.0

    def __str__(self) -> str:
        return f"refuted: {self.counterexample}"


@dataclass(frozen=True)
class Unknown:
    """Neither proved nor refuted."""

    reason: str
    milliseconds: float = 0.0

    def __str__(self) -> str:
        return f"unknown: {self.reason}"


Verdict: TypeAlias = Proved | Refuted | Unknown


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict for all parts of a claim: refuted if any is, else unknown if any is, else proved; milliseconds add up."""
    parts = list(verdicts)
    spent = sum(v.milliseconds for v in parts)
    for part in parts:
        if isinstance(part, Refuted):
            return Refuted(part.counterexample, spent)
    for part in parts:
        if isinstance(part, Unknown):
            return Unknown(part.reason, spent)
    proofs = [p for p in parts if isinstance(p, Proved)]
    bounded = tuple(dict.fromkeys(b for p in proofs for b in p.bounded))
    return Proved(spent, bounded, tuple(sorted({a for p in proofs for a in p.axioms})))
