"""Generalise the mutants of a program at several sizes to one term over symbolic sizes.

A mutant is a term that equals a program at some output positions. A draw is a family's program at random numeric sizes
(`superopt.partial.sizes`). Mutants of two draws have the same form if the mutants differ only in numbers, and if the same steps
were applied to the same operators. If a number differs between mutants of the same form, the number is replaced by an
expression. The expression is over the extents and attributes of the program, or over the extents of the operator's operands.
The result is a guess, which is tested at other sizes (`superopt.partial.discover`).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Attribute, Dim, Extent, Term, floor_divide, size, subterms, variable
from superopt.errors import ShapeError
from superopt.partial.fitting import Expressions, NamedNumber, reals
from superopt.partial.mutate import Mutant
from superopt.partial.sizes import FamilyDraw
from superopt.policy import MUTANT

Form: TypeAlias = "tuple[object, ...]"
NUMERIC = ("extent", "extents", "real")


def forms(draw: FamilyDraw, mutant: Mutant) -> Iterator[Form]:
    """Yield the mutant's keys. Mutants at different sizes are grouped if they have a common key.

    A mutant is a term that equals a program at some positions. A key consists of the mutant's operators and the steps that made
    the mutant. For each number in a step, a key contains the number itself, or the name of an extent or attribute that has this
    value in the program. Each combination of replacements gives one key.
    """
    if isinstance(mutant.term, tuple):
        return
    *steps, last = mutant.made
    structure = mutant_skeleton(mutant.term)
    numbers = [int(n) for step in steps for n in re.findall(r"\d+", step)]
    words = tuple(re.sub(r"\d+", "#", step) for step in (*steps, last))
    named = [[n, *(a for a, value in draw.values.items() if value == n)] for n in numbers]
    for labels in itertools.islice(itertools.product(*named), MUTANT.max_label_choices):
        yield structure, words, labels


@functools.lru_cache(maxsize=1 << 14)
def mutant_skeleton(term: Term) -> Form:
    """Return the structure of the term as nested tuples, without extents and real numbers. Axes are part of the structure."""
    if term.is_variable:
        return (term.name,)
    kinds = {p.name: p.kind for p in operator(term.op).parameters}
    kept = tuple((k, v if kinds[k] not in NUMERIC else _count(v)) for k, v in term.attributes)
    parts = [mutant_skeleton(a) for a in term.args]
    return term.op, kept, *(sorted(parts, key=repr) if operator(term.op).commutative else parts)


def _count(value: Attribute) -> int:
    return len(value) if isinstance(value, tuple) else -1


def generalise_terms(drawn: Sequence[FamilyDraw], terms: Sequence[Term]) -> Iterator[Term]:
    """Yield a few terms over the family's symbolic sizes, simplest first. At the sizes of `drawn[i]`, each yielded term becomes
    `terms[i]`.

    A draw is the family's program at random numeric sizes.
    """
    found: set[Term] = set()
    for choice in range(MUTANT.max_terms_per_form):
        try:
            term = split_merged_mutant_axes(_Writer(drawn, choice).written(tuple(terms)))
        except (_UnfitError, ShapeError):
            return
        if term not in found:
            found.add(term)
            yield term


class _UnfitError(Exception):
    """Raised if terms cannot be generalised, because no tried expression fits a number that varies with the sizes."""


class _Writer:
    """Merges terms at different numeric sizes into one term over symbolic sizes. The merged terms differ only in numbers.

    Several expressions may fit a number that varies with the sizes. `choice` is the index of the expression that is used. If
    there are fewer expressions, the last expression is used.
    """

    def __init__(self, drawn: Sequence[FamilyDraw], choice: int) -> None:
        self.family = drawn[0].family
        self.count = len(drawn)
        self.choice = choice
        attributes_first = sorted(self.family.atoms, key=lambda atom: isinstance(atom, Dim))
        own = [NamedNumber(size(a), tuple(d.values[a] for d in drawn)) for a in attributes_first]
        outputs = zip(self.family.program.shape, zip(*(d.program.sizes for d in drawn), strict=True), strict=True)
        every = dict.fromkeys([*own, *itertools.starmap(NamedNumber, outputs)])
        self.known = [k for k in every if len(set(k.column)) > 1]
        self.expressions = Expressions(self.known, MUTANT.max_fit_operations)
        self.done: dict[tuple[Term, ...], Term] = {}

    def written(self, terms: tuple[Term, ...]) -> Term:
        """Return one term over symbolic sizes. At the numeric sizes of draw i, this term becomes `terms[i]`.

        Raises:
            _UnfitError: There is no such term.
        """
        if terms not in self.done:
            self.done[terms] = self._variable(terms[0]) if terms[0].is_variable else self._applied(terms)
        return self.done[terms]

    def _variable(self, term: Term) -> Term:
        return variable(term.name, term.rank)

    def _applied(self, terms: tuple[Term, ...]) -> Term:
        columns = list(zip(*map(_operands, terms), strict=True))
        args = [self.written(column) for column in columns]
        extents = [
            NamedNumber(extent, numbers)
            for arg, column in zip(args, columns, strict=True)
            for extent, numbers in zip(arg.shape, zip(*(t.sizes for t in column), strict=True), strict=True)
            if not isinstance(extent, int)
        ]
        near = Expressions([*self.known, *(k for k in extents if k not in self.known)], 1)
        attributes = {
            name: self._attribute(terms[0].op, name, [t[name] for t in terms], near) for name, _ in terms[0].attributes
        }
        try:
            return apply(terms[0].op, *args, **attributes)
        except ShapeError:
            raise _UnfitError from None

    def _attribute(self, op: str, name: str, values: Sequence[Attribute], near: Expressions) -> Attribute:
        kind = next(p.kind for p in operator(op).parameters if p.name == name)
        if kind not in NUMERIC:
            return values[0]
        if isinstance(values[0], tuple):
            rows = [v for v in values if isinstance(v, tuple)]
            return tuple(self._number(column, near) for column in zip(*rows, strict=True))
        return self._number(values, near)

    def _number(self, column: Sequence[object], near: Expressions) -> Extent:
        numbers = [n for n in column if isinstance(n, int | Fraction)]
        if len(numbers) < self.count:
            raise _UnfitError
        fits = dict.fromkeys(itertools.chain(reals(near, numbers), reals(self.expressions, numbers)))
        if not fits:
            raise _UnfitError
        return list(fits)[min(self.choice, len(fits) - 1)]


def _operands(term: Term) -> tuple[Term, ...]:
    """Return the term's operands, sorted by structure if the operator is commutative.

    Terms that differ only in numbers therefore have their operands in the same order.
    """
    if operator(term.op).commutative:
        return tuple(sorted(term.args, key=lambda t: repr(mutant_skeleton(t))))
    return term.args


def split_merged_mutant_axes(term: Term) -> Term:
    """Replace each transpose of merged axes by a transpose of the separate axes, and return the equal term."""
    done: dict[Term, Term] = {}
    for each in subterms(term):
        args = tuple(done[a] for a in each.args)
        done[each] = each if args == each.args else apply(each.op, *args, **dict(each.attributes))
        if each.op == "reshape" and each.args[0].op == "transpose" and each.args[0].args[0].op == "reshape":
            done[each] = _unmerged(done[each])
    return done[term]


def _unmerged(outer: Term) -> Term:
    turned = outer.args[0]
    inner = turned.args[0] if turned.args else turned
    if turned.op != "transpose" or inner.op != "reshape":
        return outer
    x = inner.args[0]
    groups = _finer(inner.shape, x.shape)
    order = [a + inner.rank for a in turned.integers("perm")]
    starts = list(itertools.accumulate(map(len, groups), initial=0))
    shape = tuple(itertools.chain.from_iterable(groups))
    perm = tuple(starts[a] + k - len(shape) for a in order for k in range(len(groups[a])))
    inside = x if shape == x.shape else apply("reshape", x, shape=shape)
    moved = apply("transpose", inside, perm=perm)
    return moved if moved.shape == outer.shape else apply("reshape", moved, shape=outer.shape)


def _finer(coarse: Sequence[Extent], axes: Sequence[Extent]) -> list[list[Extent]]:
    """Split each extent in `coarse` into factors: some consecutive extents of `axes`, and the remaining quotient."""
    found: list[list[Extent]] = []
    left = list(axes)
    for axis in coarse:
        whole, group = axis, list[Extent]()
        while left and (rest := _divided(whole, left[0])) is not None and rest != 1:
            group.append(left.pop(0))
            whole = rest
        if left and (rest := _divided(left[0], whole)) is not None:
            left[0:1] = [] if rest == 1 else [rest]
        found.append([*group, whole])
    return found


def _divided(whole: Extent, by: Extent) -> Extent | None:
    """If the division is exact for all values of the symbols, return the quotient. Otherwise, return None."""
    if isinstance(whole, int) and isinstance(by, int):
        return whole // by if whole % by == 0 else None
    quotient = floor_divide(whole, by)
    return quotient if quotient * by == whole else None
