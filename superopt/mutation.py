"""Mutants in the search: operators of an island exchanged for cheaper programs that are right nearly everywhere, corrected.

Each operator application that is a polynomial in its operands is a program, looked at once however often it occurs. Mutants
that measure cheaper before anything is corrected are judged, corrected, and measured again with the correction included.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from superopt.errors import Undecidable
from superopt.graph import Term, subterms, variable
from superopt.linearity import degrees
from superopt.op import apply, operator, rebuild
from superopt.partial.correct import corrections
from superopt.partial.judge import judge
from superopt.partial.mutate import Mutant, Program, mutants
from superopt.rewrite.apply import PARTLY, State, Step, computed
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import NOISE, OUT_OF_TIME, Cost, Found, Limits
from superopt.work import work

SHARE = 0.01
"""The part of an island's estimated time below which an operator is not looked at."""
MOST_MUTANTS = 24
"""Mutants of one operator that are measured, those of the lowest estimate first."""
MOST_DEARER = 3.0
"""How many times what the operator costs by estimate a mutant may, for it to be measured."""
MOST_CORRECTIONS = 3


class _OutOfTimeError(Exception):
    """The deadline is reached while mutants are being priced."""


@dataclass(frozen=True)
class Repaired:
    """A term that equals a program, what it was made of, and what the island costs with it, in seconds."""

    term: Term
    name: str
    cost: float


def search_mutants(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: Limits | None = None) -> Found:
    """The state with each program exchanged for the cheapest corrected mutant met, where that is cheaper; `start` if none is.

    Programs come first that take the most times what arithmetic and traffic alone would take: where a kernel is near that, no
    other form gains much. Each may take a share of the time that is left: half of it by that ratio, half equally. `rules` are
    left to the other passes.
    """
    del rules
    deadline = (limits or Limits()).deadline
    state, steps, looked = start, list[Step](), 0
    before = cost = measure(start)
    ratios = _programs(start, estimate, measure)
    waiting = sorted(ratios, key=lambda p: -ratios[p])
    while waiting and time.monotonic() < deadline:
        now = time.monotonic()
        share = (ratios[waiting[0]] / sum(ratios[p] for p in waiting) + 1 / len(waiting)) / 2
        program = waiting.pop(0)
        looked += 1
        repaired = _repaired(program, state, cost, estimate, measure, now + share * (deadline - now))
        if repaired is not None:
            state, more = _exchanged(state, program, repaired.term, repaired.name)
            steps += more
            cost = repaired.cost
    stopped = OUT_OF_TIME if waiting else "every operator was looked at"
    return Found(state, tuple(steps), before, cost, looked, stopped)


def _programs(state: State, estimate: Cost, measure: Cost) -> dict[Term, float]:
    """The distinct programs of the state that take some of its time, and how many times as long they take as by estimate."""
    places = Counter(program for term in computed(state) if (program := _program(term)) is not None)
    least = SHARE * estimate(state)
    ratios = {p: measure((p,)) / estimate((p,)) for p, count in places.items() if estimate((p,)) * count >= least}
    return {p: ratio for p, ratio in ratios.items() if ratio < math.inf}


def _program(term: Term) -> Term | None:
    """The term's operator on variables; None where it is no polynomial in them, adds up too little to be worth a look, or is of
    open extents.
    """
    if not all(isinstance(n, int) for t in (term, *term.args) for n in t.shape):
        return None
    if operator(term.op).commutative or work(term).flops <= 2 * math.prod(term.sizes):
        return None
    names = (f"{'w' if arg.constant else 'x'}{place}" for place, arg in enumerate(term.args))
    operands = [variable(name, arg.shape, constant=arg.constant) for name, arg in zip(names, term.args, strict=True)]
    program = apply(term.op, *operands, **dict(term.attributes))
    return program if all(math.isfinite(d) for monomial in degrees(program) for d in monomial) else None


def _repaired(program: Term, state: State, cost: float, estimate: Cost, measure: Cost, deadline: float) -> Repaired | None:
    """The cheapest corrected mutant met with which the state costs less than it does; None where there is none."""
    best: Repaired | None = None

    def cheaper(term: Term) -> float | None:
        least = cost if best is None else best.cost
        seconds = measure(_exchanged(state, program, term, "")[0])
        return seconds if seconds < least * (1 - NOISE) else None

    for mutant in _mutants(program, estimate, deadline):
        term = mutant.term
        if not isinstance(term, Term) or cheaper(term) is None:
            continue
        for corrected, kind in _corrected(program, term, lambda t: estimate((t,))):
            seconds = cheaper(corrected)
            if seconds is not None:
                best = Repaired(corrected, f"{PARTLY} {', '.join(mutant.made)}; {kind}", seconds)
    return best


def _mutants(program: Term, estimate: Cost, deadline: float) -> Iterator[Mutant]:
    """The mutants of the lowest estimates, until the deadline."""

    def price(term: Program) -> float:
        if time.monotonic() >= deadline:
            raise _OutOfTimeError
        return estimate(term if isinstance(term, tuple) else (term,))

    try:
        most = MOST_DEARER * price(program)
        for mutant in islice(mutants(program, cost=price), MOST_MUTANTS):
            if price(mutant.term) > most:
                return
            yield mutant
    except (Undecidable, _OutOfTimeError):
        return


def _corrected(program: Term, mutant: Term, cost: Callable[[Term], float]) -> Iterator[tuple[Term, str]]:
    """The cheapest corrections by estimate, each with its kind."""
    try:
        judgement = judge(program, mutant)
        for corrected in islice(corrections(program, mutant, judgement, cost=cost), MOST_CORRECTIONS):
            yield corrected.term, corrected.kind
    except Undecidable:
        return


def _exchanged(state: State, program: Term, term: Term, name: str) -> tuple[State, list[Step]]:
    """The state with the term in all the program's places, and the steps that lead there, one for each place."""
    done: dict[Term, Term] = {}
    steps: list[Step] = []
    for one in subterms(*state):
        args = tuple(done[a] for a in one.args)
        done[one] = one if args == one.args else apply(one.op, *args, **dict(one.attributes))
        if not one.is_variable and not one.constant and _program(one) is program:
            placed = rebuild(term, dict(zip(program.args, args, strict=True)))
            steps.append(Step(name, (done[one],), (placed,)))
            done[one] = placed
    return tuple(done[root] for root in state), steps
