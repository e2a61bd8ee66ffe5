"""What a program is, what takes its place: a mutant that was corrected, and how that is kept between runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from superopt.graph import Term, subterms, variable
from superopt.linearity import degrees
from superopt.op import apply, operator, rebuild
from superopt.rewrite.apply import State, Step
from superopt.rewrite.gate import Gate
from superopt.rewrite.record import nodes_of, steps_recorded, steps_restored, terms_of
from superopt.work import work

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


def program_of(term: Term) -> Term | None:
    """The term's operator on variables; None where it is no polynomial in them, adds up too little to be worth a look, is of
    open extents, or is a number: it has no layout.
    """
    if not term.rank or not all(isinstance(n, int) for t in (term, *term.args) for n in t.shape):
        return None
    if operator(term.op).commutative or work(term).flops <= 2 * math.prod(term.sizes):
        return None
    names = (f"{'w' if arg.constant else 'x'}{place}" for place, arg in enumerate(term.args))
    operands = [variable(name, arg.shape, constant=arg.constant) for name, arg in zip(names, term.args, strict=True)]
    program = apply(term.op, *operands, **dict(term.attributes))
    return program if all(math.isfinite(d) for monomial in degrees(program) for d in monomial) else None


def exchanged(state: State, program: Term, repair: Repair, gate: Gate | None = None) -> tuple[State, list[Step]]:
    """The state with the repair in the program's places that the gate admits, and the steps that lead there, those of each
    place together.
    """
    done: dict[Term, Term] = {}
    steps: list[Step] = []
    for one in subterms(*state):
        args = tuple(done[a] for a in one.args)
        done[one] = one if args == one.args else apply(one.op, *args, **dict(one.attributes))
        if not one.is_variable and not one.constant and program_of(one) is program and _is_admitted(gate, args):
            operands = dict(zip(program.args, args, strict=True))

            def placed(terms: Sequence[Term], operands: dict[Term, Term] = operands) -> State:
                return tuple(rebuild(term, operands) for term in terms)

            steps.append(Step(repair.name, (done[one],), placed([repair.mutant])))
            steps += [Step(step.rule, placed(step.roots), placed(step.replacements)) for step in repair.steps]
            (done[one],) = placed([repair.term])
    return tuple(done[root] for root in state), steps


def _is_admitted(gate: Gate | None, operands: Sequence[Term]) -> bool:
    """Whether a mutant may stand in the place of a program of these operands."""
    return gate is None or gate.permits_polynomial(operands)
