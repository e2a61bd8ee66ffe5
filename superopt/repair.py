"""What takes a program's place: a mutant that was corrected, and how it is kept between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from superopt.graph import Term
from superopt.rewrite.apply import Step
from superopt.rewrite.record import nodes_of, steps_recorded, steps_restored, terms_of

Json: TypeAlias = "Any"


class Memory(Protocol):
    """Where JSON values are kept under keys."""

    def get(self, key: Sequence[Json]) -> Json | None: ...

    def put(self, key: Sequence[Json], value: Json) -> None: ...


@dataclass(frozen=True)
class Repair:
    """A term that equals a program, what it was made of, and the seconds that it takes by itself.

    It is the `mutant`, corrected, with operators computed by algorithms as the `steps` say, which may be none.
    """

    term: Term
    name: str
    seconds: float
    mutant: Term
    steps: tuple[Step, ...] = ()


def recorded(repairs: Sequence[Repair]) -> Json:
    """The repairs as JSON, of which `restored` makes them again."""
    nodes, place = nodes_of([term for r in repairs for term in (r.term, r.mutant)])
    return {
        "nodes": nodes,
        "repairs": [[place(r.term), r.name, r.seconds, place(r.mutant), steps_recorded(r.steps)] for r in repairs],
    }


def restored(record: Json) -> list[Repair]:
    """The repairs of which `recorded` made this."""
    terms = terms_of(record["nodes"])
    return [
        Repair(terms[term], name, seconds, terms[mutant], steps_restored(steps))
        for term, name, seconds, mutant, steps in record["repairs"]
    ]
