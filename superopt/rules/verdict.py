"""The verdicts of a prover: proved, refuted by a counterexample, or unknown for a stated reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Counterexample:
    """Sizes, attributes and inputs at which the two sides of a rule differ, and the position of the difference.

    `shapes` contains every variable's shape, and `attributes` contains the value of every attribute variable. The inputs are
    the arrays that `superopt.proof.sample.refutation_inputs` draws for these shapes from `seed`. At the position `position` of
    the output with the index `output`, the left side is `left` and the right side is `right`. If the outputs have different
    shapes, `position` is empty, and `left` and `right` are the shapes.
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
    """A proof that both sides are equal for all sizes and attributes that the conditions allow.

    Attributes:
        bounded: The unknowns for which the proof covers only some values, each as a text such as "g in 1, 2, 3, 4". The tuple
            is empty if the proof covers all values of all unknowns.
        axioms: The full names of the axioms that the proof uses. The tuple is empty if the proof uses the definitions of the
            operators instead of axioms.
        instances: The ground instances of the axioms that prove the statement, as `superopt.proof.axioms.ground` writes them.
        kind: "axioms" for a proof from axioms, or "index" for a proof from the definitions.
        unasked: The digests of arithmetic questions (whether conditions imply a condition) that a check of the proof can skip.
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
    """The statement is false: the sides differ at `counterexample`."""

    counterexample: Counterexample
    milliseconds: float = 0.0

    def __str__(self) -> str:
        return f"refuted: {self.counterexample}"


@dataclass(frozen=True)
class Unknown:
    """The statement is neither proved nor refuted, for the stated reason."""

    reason: str
    milliseconds: float = 0.0

    def __str__(self) -> str:
        return f"unknown: {self.reason}"


Verdict: TypeAlias = Proved | Refuted | Unknown


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Combine the verdicts on the parts of a claim: return the worst verdict, with the total time of all verdicts.

    Refuted is worse than unknown, and unknown is worse than proved.
    """
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
