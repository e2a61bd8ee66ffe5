"""Generate mutants. A mutant of a program is a term with the inputs and the output shape of the program. The mutant equals the
program at some output positions, often at nearly all positions.

Most mutants are generated in three steps. First, the layout of the data is changed (`moves`). Second, a search looks for an
operator that reads the same elements as the program, at least away from the borders (`forms`, `contraction`). Third, the weight
of this operator is computed (`arrange`). Further mutants come from changed attributes, from rules that are applied without
their conditions (`alter`), and from omitting zero blocks (`blocks`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from superopt.algebra.terms import Term, subterms, variable
from superopt.errors import ShapeError, Undecidable
from superopt.partial.alter import alter_attributes, unconditional
from superopt.partial.arrange import NOTHING, Elements, arrange_weight, concat_parts
from superopt.partial.blocks import skip_zero_blocks
from superopt.partial.contraction import products
from superopt.partial.forms import Form, Sample, convolutions, is_consistent
from superopt.partial.layout import Layout
from superopt.partial.moves import layouts
from superopt.partial.places import Place, operator_places, place
from superopt.partial.source import StackedSource, part
from superopt.policy import MUTANT
from superopt.rules.rule import Rule
from superopt.rules.work import work

Program: TypeAlias = "Term | tuple[Term, ...]"
NAMES = ("images", "channels", "rows", "columns")
SEED = 0


@dataclass(frozen=True)
class Mutant:
    """A term that equals a program at some output positions, and a description of how the term was made.

    `term` is a tuple of terms if the program is a tuple. If `proved` is True, the term is proved to equal the program
    everywhere.
    """

    term: Program
    made: tuple[str, ...]
    proved: bool = False


class MutantProposal(Protocol):
    """A term that may equal one or more operators at some output positions. The weights of the term are not computed yet."""

    @property
    def drafted(self) -> tuple[Term, ...]:
        """The terms that replace the operators, with variables in place of the weights. Shapes and costs do not depend on the
        values of weights.
        """

    @property
    def made(self) -> tuple[str, ...]: ...

    def solved(self) -> tuple[Term, ...] | None:
        """Return the terms that replace the operators, with their weights. If no weights are found, return None.

        The weights are computed from the elements that the operators read at some output positions.
        """


@dataclass(frozen=True)
class Recognized:
    """An operator that reads the same elements as a program (the source), after a change of layout.

    Attributes:
        source: The program.
        probe: The elements that the program reads at some output positions.
        before: The layout of the data for the operator.
        after: The layout of the operator's result.
        form: The operator. Its weight is not computed yet.
    """

    source: StackedSource
    probe: Sample
    before: Layout
    after: Layout
    form: Form

    @property
    def made(self) -> tuple[str, ...]:
        rank = len(self.before.before)
        names = NAMES if rank == len(NAMES) else tuple(f"axis {a}" for a in range(rank))
        return (*self.source.made, *(step.said(names) for step in self.before.steps), self.form.said())

    @property
    def drafted(self) -> tuple[Term, ...]:
        constant = all(w.constant for w in self.source.weights)
        name = "x".join(("weight", *map(str, self.form.weight_shape)))
        return self._built(variable(name, self.form.weight_shape, constant=constant))

    def _built(self, weight: Term) -> tuple[Term, ...]:
        result = self.form.term(self.before.term(self.source.x), weight)
        return self.source.cut(self.after.undone(result))

    def solved(self) -> tuple[Term, ...] | None:
        """Compute the program's outputs with the operator. Return None if no weight is found.

        The weight is computed from the program's reads. Along the output axes `Form.own`, different positions use different
        elements of the weight, so reads at all positions along these axes are used. Along all other axes, one or two positions
        are enough.
        """
        shape = self.form.weight_shape
        of, factor = np.full(math.prod(shape), NOTHING), np.ones(math.prod(shape))
        probed = self.after.to(self.probe.y)
        for chosen in sorted({0, len(probed[0]) // 2}):
            sample = self._everywhere(tuple(c[chosen] for c in probed))
            if not is_consistent(self.form, sample):
                return None
            places = self.form.places(sample)[sample.seen]
            of[places], factor[places] = sample.of[sample.seen], sample.factor[sample.seen]
            if len(np.unique(sample.seen.sum(axis=0))) == 1:
                break
        weight = arrange_weight(Elements(self.source.weights, of.reshape(shape), factor.reshape(shape)))
        return None if weight is None else self._built(weight)

    def _everywhere(self, position: tuple[int, ...]) -> Sample:
        """Return the program's reads at a set of output positions. Along the axes in `Form.own`, the set contains every index,
        because different positions along these axes use different elements of the weight. Along all other axes, the set
        contains only the index in `position`.
        """
        extents = [self.after.after[a] for a in self.form.own]
        own = np.indices(extents).reshape(len(extents), math.prod(extents))
        y = [np.full(own.shape[1], c) for c in position]
        for axis, values in zip(self.form.own, own, strict=True):
            y[axis] = values
        return self.source.sample(self.after.back(tuple(y))).through(self.before, self.after)


@dataclass(frozen=True)
class Changed:
    """A proposal that needs no new weights, such as an operator with changed attributes or the result of a rule."""

    drafted: tuple[Term, ...]
    made: tuple[str, ...]

    def solved(self) -> tuple[Term, ...]:
        """Return the terms that replace the operators. The terms have no new weights whose values must be computed."""
        return self.drafted


@dataclass(frozen=True)
class SplitOperator:
    """An operator split into several operators, each of which computes a part of the output along an axis."""

    parts: tuple[Recognized, ...]
    axis: int

    @property
    def made(self) -> tuple[str, ...]:
        return (f"{len(self.parts)} parts of the output", self.parts[0].form.said())

    @property
    def drafted(self) -> tuple[Term, ...]:
        return (concat_parts([part.drafted[0] for part in self.parts], self.axis),)

    def solved(self) -> tuple[Term, ...] | None:
        """Return the concatenated results of the operators. If no weight is found for one of the operators, return None."""
        found = [part.solved() for part in self.parts]
        terms = [part[0] for part in found if part is not None]
        return (concat_parts(terms, self.axis),) if len(terms) == len(found) else None


def recognize_operators(source: StackedSource, factors: Collection[int], steps: int, most: float) -> Iterator[Recognized]:
    """Yield every operator that reads the same elements as the program `source`, after a change of layout.

    A change of layout regroups the axes of the operator's data and result. The reads of an operator and the program are
    compared only at sampled output positions at which the program reads the most elements. Operators with more than `most`
    arithmetic operations are left out. `factors` and `steps` limit the layouts (see `moves.layouts`).
    """
    try:
        probe = source.probe(SEED).thinned(MUTANT.max_products)
    except Undecidable:
        return
    few = probe.thinned(MUTANT.trial_product_count)
    for before, after, chosen in layouts(source.x.sizes, source.shape, factors, steps):
        plain = len(chosen) < 2
        if few is not probe and not any(True for _ in _forms(few, before, after, plain, most)):
            continue
        for form in _forms(probe, before, after, plain, most):
            found = Recognized(source, probe, before, after, form)
            try:
                _ = found.drafted
            except ShapeError:
                continue
            yield found


def _forms(sample: Sample, before: Layout, after: Layout, plain: bool, most: float) -> Iterator[Form]:
    seen, shapes = sample.through(before, after), (before.after, after.after)
    for form in itertools.chain(convolutions(seen, *shapes), products(seen, *shapes) if plain else ()):
        if form.flops <= most and is_consistent(form, seen):
            yield form


def splits(source: StackedSource, most: float) -> Iterator[SplitOperator]:
    """Split the operator in `source` into several operators along an output axis, and yield the versions. Each of the new
    operators must need only a part of the data.

    No operator of a split may need more than `most` arithmetic operations.
    """
    for axis, n in enumerate(source.shape):
        for times in (t for t in MUTANT.copy_counts if n % t == 0 and n > 1):
            rows = n // times
            parts = [part(source, axis, k * rows, (k + 1) * rows) for k in range(times)]
            if any(p.x is source.x for p in parts):
                continue
            forms = [next(recognize_operators(p, (), 0, most), None) for p in parts]
            if None not in forms:
                yield SplitOperator(tuple(f for f in forms if f is not None), axis - len(source.shape))


# ---------------------------------------------------------------- programs


@dataclass(frozen=True)
class Sketch:
    """A mutant whose weights are not computed yet. A mutant is a term that may equal a program at some output positions.

    `term` has variables in place of the weights. `cost` is the cost of `term` according to the cost function that was given to
    `sketches`.
    """

    term: Program
    cost: float
    place: Place
    draft: MutantProposal
    outputs: tuple[Term, ...]

    def solved(self) -> Mutant | None:
        """Return the mutant with its weights. If no weights are found, or if the mutant is identical to the program, return
        None.
        """
        built = self.draft.solved()
        whole = self.outputs if built is None else self.place.put(self.outputs, built)
        return None if whole == self.outputs else Mutant(_like(self.term, whole), self.draft.made)


def mutants(
    program: Program,
    *,
    cost: Callable[[Program], float] | None = None,
    depth: int = MUTANT.max_layout_depth,
    rules: Sequence[Rule] = (),
) -> Iterator[Mutant]:
    """Yield distinct mutants of the program, cheapest first, in a deterministic order.

    A mutant has the program's inputs and output shape, and may equal the program at some output positions or everywhere.

    Args:
        program: The program.
        cost: A function that returns the cost of a program. The default counts the arithmetic and the memory traffic of the
            program's operators.
        depth: The largest number of layout steps (moves of an axis or of a factor of an axis) in one change of layout.
        rules: Rules that are also applied where their conditions do not hold.
    """
    known: set[Program] = set()
    for sketch in sketches(program, cost=cost, depth=depth, rules=rules):
        mutant = sketch.solved()
        if mutant is not None and mutant.term not in known:
            known.add(mutant.term)
            yield mutant


def sketches(
    program: Program,
    *,
    cost: Callable[[Program], float] | None = None,
    depth: int = MUTANT.max_layout_depth,
    rules: Sequence[Rule] = (),
) -> list[Sketch]:
    """Return the mutants of the program, cheapest first. The weights of the mutants are not computed yet.

    A mutant is a term that equals the program at some positions. The arguments are those of `mutants`. Each cost is the cost of
    the term with variables in place of the weights.
    """
    outputs = program if isinstance(program, tuple) else (program,)
    price = cost or _work
    found: list[Sketch] = []
    for here, draft in _every_draft(outputs, depth, rules):
        term = _like(program, here.put(outputs, draft.drafted))
        found.append(Sketch(term, price(term), here, draft, outputs))
    return sorted(found, key=lambda sketch: sketch.cost)


def _every_draft(outputs: tuple[Term, ...], depth: int, rules: Sequence[Rule]) -> Iterator[tuple[Place, MutantProposal]]:
    for found in operator_places(outputs):
        yield from ((found, draft) for draft in _drafts(found, depth))
    for term, changed, made in itertools.chain(skip_zero_blocks(outputs), unconditional(outputs, rules)):
        yield place((term,)).uncut(), Changed((changed,), made)


def _drafts(here: Place, depth: int) -> Iterator[MutantProposal]:
    """Yield proposals: terms that may equal the operators of the place `here` at some positions. The weights of the terms are
    not computed yet.
    """
    most = MUTANT.max_arithmetic_factor * here.flops
    if len(here.cuts) > 1:
        for source in here.stacked():
            yield from recognize_operators(source, (), 0, most)
        return
    for source in here.singles():
        yield from recognize_operators(source, here.factors, min(depth, MUTANT.max_layout_steps), most)
        for term, made in alter_attributes(here.cuts[0]):
            yield Changed((term,), made)
        for several in here.copied(source):
            yield from recognize_operators(several, (), 0, here.flops)
        try:
            yield from splits(source, most)
        except Undecidable:
            continue


def _like(program: Program, outputs: tuple[Term, ...]) -> Program:
    return outputs if isinstance(program, tuple) else outputs[0]


def _work(program: Program) -> float:
    """Return the cost of the operators that are executed at run time. The cost is the number of arithmetic operations, plus 2.5
    times the bytes of memory traffic.

    On a machine with wide vector units, an operation costs little compared with memory traffic.
    """
    outputs = program if isinstance(program, tuple) else (program,)
    total = 0.0
    for term in subterms(*outputs):
        if not term.is_variable and not term.constant and term.op != "reshape":
            counted = work(term)
            total += counted.flops + 2.5 * counted.bytes
    return total
