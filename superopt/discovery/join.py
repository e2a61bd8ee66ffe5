"""Find equalities with several outputs: two or three terms become parts (slices) of one larger term.

Two terms of the same form that share an operand become parts of an enumerated term. If the two terms differ in one variable, a
third term is added. The third term has a new variable in place of this variable. If two terms apply one operator to different
variables, the variables are stacked along a new axis. The operator is then applied once to the stacks. Only candidates
(conjectured equalities) whose sides agree on random inputs are yielded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from superopt.algebra.operators import apply, operator, replace_subterms, typing_conditions
from superopt.algebra.terms import Attribute, Compare, Extent, Shape, Size, Sym, Term, size, subterms, variable, variables
from superopt.discovery.enumerate import Candidate, Enumeration, candidate_order, values_agree
from superopt.discovery.universe import Universe
from superopt.errors import ShapeError

MOVES = frozenset({"slice", "concat", "transpose", "reshape", "expand", "pad"})
NAMES = ("xyzq", "wvubctr")
THREE = ", three of "
"""The text that follows the original name of a universe after a third interchangeable variable is added to the universe.

A universe is a vocabulary of operators and variables. A variable's name and an axis follow the text.
"""


def joins(enumeration: Enumeration) -> Iterator[Candidate]:
    """Yield candidates with several outputs. A candidate is a conjecture that its two sides are equal.

    The outputs of the left side are two or three terms. The right side computes these terms together: as parts of one cheaper
    term, or by one batched operator.
    """
    general: list[Candidate] = []
    for pair in sorted(_pairs(enumeration), key=candidate_order):
        if any(_instance(known, pair) for known in general):
            continue
        general.append(pair)
        yield pair
        yield from _triples(pair)
    yield from _batches(enumeration)


def _pairs(enumeration: Enumeration) -> Iterator[Candidate]:
    parts: dict[tuple[Term, int], dict[tuple[Extent, Extent], tuple[Term, Term]]] = {}
    for term, representative in enumeration.parts:
        axis = term["axis"]
        assert isinstance(axis, int)
        parts.setdefault((term.args[0], axis), {})[term["start"], term["stop"]] = term, representative  # type: ignore[index]
    for (whole, axis), pieces in parts.items():
        for (start, stop), (first, one) in pieces.items():
            second, other = pieces.get((stop, whole.shape[axis]), (None, None))
            if start != 0 or second is None or other is None or whole.is_variable or whole.op == "concat":
                continue
            if one is other or one.op != other.op or not _plain(one) or not _plain(other):
                continue
            if _turned(enumeration.universe, one, other):
                continue
            if _saves((one, other), whole):
                yield Candidate(enumeration.universe, (one, other), (first, second))


def _turned(universe: Universe, one: Term, other: Term) -> bool:
    """Return whether the pair of terms repeats another pair in reverse order.

    This is the case if the terms differ in only one variable, and `universe` lists the variable of `other` first.
    """
    (here, there) = ([v for v in variables(a) if v not in variables(b)] for a, b in ((one, other), (other, one)))
    if len(here) != len(there) or len(here) != 1 or not _exchanged((one, other), here[0], there[0]):
        return False
    return any(here[0] in row and there[0] in row and row.index(here[0]) > row.index(there[0]) for row in universe.variables)


def _saves(left: tuple[Term, ...], whole: Term) -> bool:
    """Return whether the term `whole` has fewer arithmetic operators than its parts `left`. The result is False if `whole`
    occurs in `left`.

    All operators are arithmetic operators, except operators that only move elements.
    """
    return _computing(whole) < _computing(*left) and whole not in subterms(*left)


def _computing(*roots: Term) -> int:
    return sum(t.op not in MOVES for t in subterms(*roots) if t.args)


def _exchanged(terms: tuple[Term, ...], here: Term, there: Term) -> bool:
    """Return whether the first term becomes the second term if the variable `here` is replaced by the variable `there`."""
    return here.shape == there.shape and replace_subterms(terms[0], {here: there}) is terms[1]


def _plain(term: Term) -> bool:
    """Return whether the term is small enough to be joined with another term.

    A small term has one arithmetic operator (any operator that does more than move elements), or two arithmetic operators if at
    least one of these operators is a contraction (see `_contracts`). A small term contains no concatenation. Larger terms are
    not joined, because their parts are joined instead.
    """
    count = 0 if any(t.op == "concat" for t in subterms(term)) else _computing(term)
    return count == 1 or (count == 2 and any(_contracts(t) for t in subterms(term)))


def _instance(known: Candidate, pair: Candidate) -> bool:
    """Return whether the candidate `pair` results from the candidate `known` if variables are replaced by terms."""
    patterns, terms = (*known.left, known.right[0].args[0]), (*pair.left, pair.right[0].args[0])
    return next(_stands(list(zip(patterns, terms, strict=True)), {}), None) is not None


def _stands(pairs: list[tuple[Term, Term]], bound: dict[Term, Term]) -> Iterator[dict[Term, Term]]:
    """Yield the bindings of variables under which every pattern equals its term, if sizes are ignored.

    Each element of `pairs` is a pattern with its term. `bound` contains the variables that are already bound.
    """
    if not pairs:
        yield bound
        return
    (pattern, term), rest = pairs[0], pairs[1:]
    if pattern.is_variable:
        if pattern.rank == term.rank and bound.get(pattern, term) is term:
            yield from _stands(rest, {**bound, pattern: term})
    elif pattern.op == term.op and len(pattern.args) == len(term.args) and _kind(pattern) == _kind(term):
        orders = itertools.permutations(term.args) if operator(term.op).commutative else iter((term.args,))
        for order in orders:
            yield from _stands([*zip(pattern.args, order, strict=True), *rest], bound)


def _kind(term: Term) -> list[tuple[str, Attribute]]:
    return [(name, value) for name, value in term.attributes if name not in ("shape", "start", "stop")]


# ---------------------------------------------------------------- three outputs


def _triples(pair: Candidate) -> Iterator[Candidate]:
    """If the two outputs of the candidate `pair` differ in only one variable, yield the candidate with a third output.

    The third output has a new variable in place of this variable. The second output and the third output each contain one
    variable that no other output contains. These two variables get separate extents along one axis if two conditions hold: the
    resulting candidate is well typed, and its sides agree on random inputs.
    """
    if not any(_contracts(t) for t in subterms(pair.left[0])):
        return
    only = [[v for v in variables(a) if v not in variables(b)] for a, b in itertools.permutations(pair.left)]
    if [len(some) for some in only] != [1, 1]:
        return
    (one,), (other,) = only
    name = next((n for row in NAMES if one.name in row for n in row if n not in _names(pair.universe)), None)
    if name is None or not _exchanged(pair.left, one, other):
        return
    for axis in (*range(-one.rank, 0), None):
        universe, shapes = _widened(pair.universe, one, axis)
        second, third = variable(other.name, shapes[0]), variable(name, shapes[1])
        rows = tuple(tuple(second if v is other else v for v in row) for row in pair.universe.variables)
        universe = replace(universe, name=f"{pair.universe.name}{THREE}{one.name} along {axis}", variables=(*rows, (third,)))
        try:
            joined = _joined(pair, one, other, second, third, universe)
        except ShapeError:
            continue
        if joined is not None:
            yield joined
            return


def _joined(pair: Candidate, one: Term, other: Term, second: Term, third: Term, universe: Universe) -> Candidate | None:
    left = (pair.left[0], replace_subterms(pair.left[0], {one: second}), replace_subterms(pair.left[0], {one: third}))
    whole = _lengthened(pair.right[0].args[0], one, other, second, third)
    axis = pair.right[0]["axis"]
    assert isinstance(axis, int)
    ends: list[Extent] = [0]
    for term in left:
        ends.append(ends[-1] + term.shape[axis])
    right = tuple(apply("slice", whole, axis=axis, start=a, stop=b) for a, b in itertools.pairwise(ends))
    good = all(isinstance(c, Compare) and c.relation == ">=" for c in typing_conditions(*left, *right))
    same = all(a.shape == b.shape for a, b in zip(left, right, strict=True))
    return Candidate(universe, left, right) if good and same and values_agree(universe, left, right) else None


def _lengthened(whole: Term, one: Term, other: Term, second: Term, third: Term) -> Term:
    """Return the term `whole` after extending some of its concatenations by a third part.

    A concatenation is extended if its two operands differ only in one variable: the first operand contains the variable `one`
    where the second operand contains the variable `other`. The third part contains the variable `third` at this place. In
    addition, the variable `other` is replaced by the variable `second` everywhere in the term.
    """
    done: dict[Term, Term] = {other: second}
    for term in subterms(whole):
        if term.is_variable:
            done.setdefault(term, term)
            continue
        args = [done[a] for a in term.args]
        attributes = dict(term.attributes)
        if term.op == "concat" and term.args[0] is not term.args[1] and _exchanged(term.args, one, other):
            args[1] = apply("concat", args[1], replace_subterms(term.args[0], {one: third}), axis=attributes["axis"])
        done[term] = apply(term.op, *args, **attributes)
    return done[whole]


def _widened(universe: Universe, like: Term, axis: int | None) -> tuple[Universe, tuple[Shape, Shape]]:
    """Return a universe and the shapes of two new variables. The shapes differ from the shape of `like` only along `axis`.

    Along `axis`, each new variable has its own symbol as extent, and the returned universe has ranges for these symbols. If
    `axis` is None, or the extent along `axis` is a number or a sum, both variables have the shape of `like`.
    """
    if axis is None or not isinstance(like.shape[axis], Size) or len(like.shape[axis].terms) > 1:  # type: ignore[union-attr]
        return universe, (like.shape, like.shape)
    names = [f"{stem}{number}" for stem in "z" for number in (1, 2)]
    atom = next(a for a in like.shape[axis].atoms() if isinstance(a, Sym))  # type: ignore[union-attr]
    ranges = {**universe.ranges, **dict.fromkeys(names, universe.ranges[atom.name])}
    shapes = [tuple(size(Sym(n)) if i - like.rank == axis else e for i, e in enumerate(like.shape)) for n in names]
    return replace(universe, ranges=ranges), (shapes[0], shapes[1])


def _names(universe: Universe) -> set[str]:
    return {v.name for row in universe.variables for v in row}


# ---------------------------------------------------------------- batches


def _batches(enumeration: Enumeration) -> Iterator[Candidate]:
    """Yield candidates that apply a contraction (an operator that sums over an extent) once to stacked operands.

    The left side applies the contraction to two sets of variables. The right side stacks the two sets along a new axis, and its
    outputs are the two parts of the result.
    """
    second = {a: b for row in enumeration.universe.variables for a, b in itertools.pairwise(row[:2])}
    for one in enumeration.representatives:
        if not _contracts(one) or not all(a in second and second[a].shape == a.shape for a in one.args):
            continue
        other = replace_subterms(one, {a: second[a] for a in one.args})
        try:
            whole = apply(one.op, *(_stacked(a, second[a]) for a in one.args), **dict(one.attributes))
            right = tuple(_unstacked(whole, position) for position in range(2))
        except ShapeError:
            continue
        if [enumeration.same(t) for t in right] == [one, other]:
            yield Candidate(enumeration.universe, (one, other), right)


def _contracts(term: Term) -> bool:
    """Return whether the term is a contraction: an operator on several operands that sums over an extent of its operands."""
    several = len(term.args) > 1 and term.op not in MOVES
    return several and not {e for a in term.args for e in a.shape} <= set(term.shape)


def _stacked(one: Term, other: Term) -> Term:
    flat = [apply("reshape", t, shape=(1, *t.shape)) for t in (one, other)]
    return apply("concat", *flat, axis=-one.rank - 1)


def _unstacked(whole: Term, position: int) -> Term:
    part = apply("slice", whole, axis=-whole.rank, start=position, stop=position + 1)
    return apply("reshape", part, shape=whole.shape[1:])
