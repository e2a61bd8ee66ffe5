"""Programs, the corrected mutants that replace them, and how these are stored between runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from superopt.algebra.linearity import degrees
from superopt.algebra.operators import apply, operator, rebuild
from superopt.algebra.terms import Term, subterms, variable
from superopt.rules.work import work
from superopt.search.apply import State, Step
from superopt.search.gate import Gate
from superopt.search.record import nodes_of, steps_recorded, steps_restored, terms_of

Json: TypeAlias = "Any"


class Memory(Protocol):
    """A store of JSON values under keys."""

    def get(self, key: Sequence[Json]) -> Json | None: ...

    def put(self, key: Sequence[Json], value: Json) -> None: ...


@dataclass(frozen=True)
class CorrectedMutant:
    """A term that equals a program, with its origin, and the seconds that it takes by itself.

    The term is the `mutant`, corrected, with operators computed by algorithms as the `steps` say (possibly none).
    """

    term: Term
    name: str
    seconds: float
    mutant: Term
    steps: tuple[Step, ...] = ()


def recorded(repairs: Sequence[CorrectedMutant]) -> Json:
    """Return the repairs as JSON, from which `restored` makes the repairs again."""
    nodes, place = nodes_of([term for r in repairs for term in (r.term, r.mutant)])
    return {
        "nodes": nodes,
        "repairs": [[place(r.term), r.name, r.seconds, place(r.mutant), steps_recorded(r.steps)] for r in repairs],
    }


def restored(record: Json) -> list[CorrectedMutant]:
    """Return the repairs from which `recorded` made the record."""
    terms = terms_of(record["nodes"])
    return [
        CorrectedMutant(terms[term], name, seconds, terms[mutant], steps_restored(steps))
        for term, name, seconds, mutant, steps in record["repairs"]
    ]


def program_of(term: Term) -> Term | None:
    """Return the term's operator applied to variables, or None if it is not a program.

    It is not a program if it is not a polynomial in its operands, adds up too little to be worthwhile, has dynamic extents, or
    is a number, which has no layout.
    """
    if not term.rank or not all(isinstance(n, int) for t in (term, *term.args) for n in t.shape):
        return None
    if operator(term.op).commutative or work(term).flops <= 2 * math.prod(term.sizes):
        return None
    names = (f"{'w' if arg.constant else 'x'}{place}" for place, arg in enumerate(term.args))
    operands = [variable(name, arg.shape, constant=arg.constant) for name, arg in zip(names, term.args, strict=True)]
    program = apply(term.op, *operands, **dict(term.attributes))
    return program if all(math.isfinite(d) for monomial in degrees(program) for d in monomial) else None


def exchanged(state: State, program: Term, repair: CorrectedMutant, gate: Gate | None = None) -> tuple[State, list[Step]]:
    """Return the state with the repair at the program's places that the gate admits, and the steps that lead there.

    The steps of each place are consecutive.
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
    """Return whether a mutant may replace a program with these operands."""
    return gate is None or gate.permits_polynomial(operands)
