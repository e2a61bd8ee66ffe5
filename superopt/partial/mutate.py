"""Mutants: programs of the same inputs and output shape that are equal to a program at some positions, most of them often.

A mutant is not written from a list. The data is put in another layout, then an operator is looked for that reads there, off the
borders, what the program reads (`forms`, `contraction`), and its weight is solved for (`arrange`). Other mutants come from an
operator's own attributes and from rules whose conditions are not met (`alter`), and from blocks that are zero (`blocks`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from superopt.errors import ShapeError, Undecidable
from superopt.graph import Term, subterms, variable
from superopt.partial.arrange import NOTHING, Elements, arranged
from superopt.partial.contraction import products
from superopt.partial.forms import Form, Sample, consistent, convolutions
from superopt.partial.layout import Layout
from superopt.partial.moves import layouts
from superopt.partial.places import Place, places
from superopt.partial.source import Source
from superopt.rule import Rule
from superopt.work import work

Program: TypeAlias = "Term | tuple[Term, ...]"
MOST_ARITHMETIC = 4.5
"""How many times the program's arithmetic a mutant may take: unrolled windows of two by two take 4 and some more at borders."""
MOST_STEPS = 2
SEED = 0


@dataclass(frozen=True)
class Mutant:
    """A program equal to another at some positions, and how it was made, in words.

    `term` is a tuple where the program was.
    """

    term: Program
    made: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """An operator in a layout whose weight is not solved for yet, with a stand-in for it in `draft`."""

    source: Source
    before: Layout
    after: Layout
    form: Form
    draft: tuple[Term, ...]
    made: tuple[str, ...]

    def built(self, weight: Term) -> tuple[Term, ...]:
        """The outputs, with this weight."""
        result = self.form.term(self.before.term(self.source.x), weight)
        return self.source.cut(self.after.undone(result))


# ---------------------------------------------------------------- one operator in other layouts


def recognized(source: Source, factors: Collection[int], steps: int, most: float) -> Iterator[Candidate]:
    """Every operator in a layout that reads what the source reads where the most is read, and takes not too much arithmetic."""
    try:
        probe = source.probe(SEED)
    except Undecidable:
        return
    for before, after, chosen in layouts(source.x.sizes, source.shape, factors, steps):
        seen = probe.through(before, after)
        x_shape, y_shape = before.after, after.after
        forms = itertools.chain(
            convolutions(seen, x_shape, y_shape), products(seen, x_shape, y_shape) if len(chosen) < 2 else ()
        )
        for form in forms:
            if form.flops <= most and consistent(form, seen):
                candidate = _candidate(source, before, after, form)
                if candidate is not None:
                    yield candidate


def _candidate(source: Source, before: Layout, after: Layout, form: Form) -> Candidate | None:
    names = AXES.get(len(before.before), ()) or tuple(f"axis {a}" for a in range(len(before.before)))
    made = (*source.made, *(step.said(names) for step in before.steps), form.said())
    stand_in = variable("weight", form.weight_shape, constant=all(w.constant for w in source.weights))
    candidate = Candidate(source, before, after, form, (), made)
    try:
        return Candidate(source, before, after, form, candidate.built(stand_in), made)
    except ShapeError:
        return None


AXES = {4: ("images", "channels", "rows", "columns")}


def solved(candidate: Candidate) -> tuple[Term, ...] | None:
    """The candidate's outputs with the weight that makes them right where the most is read; None where no term is that weight."""
    form, shape = candidate.form, candidate.after.after
    probe = candidate.source.probe(SEED).through(candidate.before, candidate.after)
    own = np.indices([shape[a] for a in form.own]).reshape(len(form.own), -1)
    of = np.full(math.prod(form.weight_shape), NOTHING)
    factor = np.ones(of.shape)
    for chosen in _apart(probe):
        y = [np.full(own.shape[1], c[chosen]) for c in probe.y]
        for axis, values in zip(form.own, own, strict=True):
            y[axis] = values
        sample = candidate.source.sample(candidate.after.back(tuple(y))).through(candidate.before, candidate.after)
        if not consistent(form, sample):
            return None
        places = form.places(sample)[sample.seen]
        if len(places) and not 0 <= places.min() <= places.max() < len(of):
            return None
        of[places], factor[places] = sample.of[sample.seen], sample.factor[sample.seen]
    elements = Elements(candidate.source.weights, of.reshape(form.weight_shape), factor.reshape(form.weight_shape))
    weight = arranged(elements)
    return None if weight is None else candidate.built(weight)


def _apart(probe: Sample) -> list[int]:
    """Two of the probe's positions: from each output axis along which the weight may differ, all positions are taken."""
    return sorted({0, len(probe.y[0]) // 2})


# ---------------------------------------------------------------- programs


def mutants(
    program: Program,
    *,
    cost: Callable[[Program], float] | None = None,
    depth: int = 4,
    rules: Sequence[Rule] = (),
) -> Iterator[Mutant]:
    """Mutants of the program, those of the lowest cost first, none twice; the same ones in the same order every time.

    `cost` is of a whole program; without one it is the arithmetic and traffic of its operators. Mutants that cost more than
    the program come last. `depth` says how many moves are composed, `rules` which laws are tried with their conditions left
    out. A mutant may be equal everywhere.
    """
    outputs = program if isinstance(program, tuple) else (program,)
    price = cost or _work
    drafts: list[Draft] = []
    for place in places(outputs):
        for source, alone in place.sources():
            steps = min(MOST_STEPS, depth - len(source.made)) if alone else 0
            for candidate in recognized(source, place.factors, steps, MOST_ARITHMETIC * place.flops):
                whole = place.put(outputs, candidate.draft)
                drafts.append(Draft(price(_like(program, whole)), place, candidate))
    drafts.sort(key=lambda d: d.cost)
    yield from _solved(program, outputs, drafts)


@dataclass(frozen=True)
class Draft:
    """A candidate at its place, and what the program would cost with it."""

    cost: float
    place: Place
    candidate: Candidate


def _solved(program: Program, outputs: tuple[Term, ...], drafts: Sequence[Draft]) -> Iterator[Mutant]:
    """The mutants that drafts become, none twice."""
    known: set[tuple[Term, ...]] = {outputs}
    for draft in drafts:
        built = solved(draft.candidate)
        whole = outputs if built is None else draft.place.put(outputs, built)
        if whole not in known:
            known.add(whole)
            yield Mutant(_like(program, whole), draft.candidate.made)


def _like(program: Program, outputs: tuple[Term, ...]) -> Program:
    return outputs if isinstance(program, tuple) else outputs[0]


def _work(program: Program) -> float:
    """Bytes and operations of everything that is computed at run time: an operation counts as little as on a wide machine."""
    outputs = program if isinstance(program, tuple) else (program,)
    total = 0.0
    for term in subterms(*outputs):
        if not term.is_variable and not term.constant and term.op != "reshape":
            counted = work(term)
            total += counted.flops + 2.5 * counted.bytes
    return total
