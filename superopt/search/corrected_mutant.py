"""Corrected mutants and their JSON form, and the programs that corrected mutants replace.

A program is an operator applied to variables. A mutant is a term that equals the program at some output positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from superopt.algebra.linearity import degrees
from superopt.algebra.operators import apply, operator, replace_subterms
from superopt.algebra.terms import Term, subterms, variable
from superopt.rules.work import work
from superopt.runtime.cache import Json, json_integer, json_list, json_number, json_object, json_text
from superopt.search.apply import State, Step
from superopt.search.gate import Gate
from superopt.search.record import record_terms_as_json, steps_recorded, steps_restored, terms_from_nodes


class Memory(Protocol):
    """A store that maps keys to JSON values."""

    def get(self, key: Sequence[Json]) -> Json: ...

    def put(self, key: Sequence[Json], value: Json) -> None: ...


@dataclass(frozen=True)
class CorrectedMutant:
    """A term that replaces a program: a mutant with its wrong elements corrected.

    A program is an operator applied to variables. A mutant is a term that equals the program at some output positions.

    Attributes:
        term: The term, after the `steps`.
        name: The origin of the mutant and the kind of its correction.
        seconds: The seconds of one run of the term in isolation.
        mutant: The term before the `steps`: the mutant with its wrong elements corrected.
        steps: Steps that replace operators by alternative algorithms. May be empty.
    """

    term: Term
    name: str
    seconds: float
    mutant: Term
    steps: tuple[Step, ...] = ()


def mutants_to_json(repairs: Sequence[CorrectedMutant]) -> Json:
    """Return the corrected mutants as a JSON value, which `mutants_from_json` reads."""
    nodes, place = record_terms_as_json([term for r in repairs for term in (r.term, r.mutant)])
    return {
        "nodes": nodes,
        "repairs": [[place(r.term), r.name, r.seconds, place(r.mutant), steps_recorded(r.steps)] for r in repairs],
    }


def mutants_from_json(record: Json) -> list[CorrectedMutant]:
    """Return the corrected mutants in a JSON value that `mutants_to_json` returned."""
    fields = json_object(record)
    terms = terms_from_nodes(fields["nodes"])

    def restored(repair: Json) -> CorrectedMutant:
        term, name, seconds, mutant, steps = json_list(repair)
        found, start = (terms[json_integer(place)] for place in (term, mutant))
        return CorrectedMutant(found, json_text(name), json_number(seconds), start, steps_restored(steps))

    return [*map(restored, json_list(fields["repairs"]))]


def mutant_search_program(term: Term) -> Term | None:
    """Return the term's operator applied to variables, or None if mutants cannot replace the operator.

    A mutant is a cheaper term that equals the operator at some output positions. The operator must be a polynomial in its
    operands, and must do more than two arithmetic operations for each output element. All extents must be fixed, and the term
    must not be a scalar.
    """
    if not term.rank or not all(isinstance(n, int) for t in (term, *term.args) for n in t.shape):
        return None
    if operator(term.op).commutative or work(term).flops <= 2 * math.prod(term.sizes):
        return None
    names = (f"{'w' if arg.constant else 'x'}{place}" for place, arg in enumerate(term.args))
    operands = [variable(name, arg.shape, constant=arg.constant) for name, arg in zip(names, term.args, strict=True)]
    program = apply(term.op, *operands, **dict(term.attributes))
    return program if all(math.isfinite(d) for monomial in degrees(program) for d in monomial) else None


def exchange_program(
    state: State, program: Term, repair: CorrectedMutant, gate: Gate | None = None
) -> tuple[State, list[Step]]:
    """Replace the program by the corrected mutant wherever the gate permits. Return the new state and the steps.

    The program is an operator applied to variables. The gate is the filter for the floating-point mode. The steps for one
    occurrence of the program are consecutive.
    """
    done: dict[Term, Term] = {}
    steps: list[Step] = []
    for one in subterms(*state):
        args = tuple(done[a] for a in one.args)
        done[one] = one if args == one.args else apply(one.op, *args, **dict(one.attributes))
        if not one.is_variable and not one.constant and mutant_search_program(one) is program and _is_admitted(gate, args):
            operands = dict(zip(program.args, args, strict=True))

            def placed(terms: Sequence[Term], operands: dict[Term, Term] = operands) -> State:
                return tuple(replace_subterms(term, operands) for term in terms)

            steps.append(Step(repair.name, (done[one],), placed([repair.mutant])))
            steps += [Step(step.rule, placed(step.roots), placed(step.replacements)) for step in repair.steps]
            (done[one],) = placed([repair.term])
    return tuple(done[root] for root in state), steps


def _is_admitted(gate: Gate | None, operands: Sequence[Term]) -> bool:
    """Return whether the gate (filter for the floating-point mode) permits a mutant of an operator on these operands."""
    return gate is None or gate.permits_polynomial(operands)
