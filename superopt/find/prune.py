"""Redundancy: an equality that rules already kept can join is not kept, and a direction that serves no search is not written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.errors import ShapeError
from superopt.find.families import WEIGHTS, Universe
from superopt.graph import (
    Attribute,
    Extent,
    Sym,
    Term,
    attribute_atoms,
    substitute,
    substitute_attribute,
    subterms,
    variable,
    variables,
)
from superopt.match import Pattern
from superopt.op import apply, rebuild
from superopt.rule import Rule

STEPS = 12


class Numbered:
    """Terms of a universe with numbers for its symbols: what matching works on. No two extents coincide."""

    def __init__(self, symbols: Mapping[str, Extent]) -> None:
        self.symbols = symbols
        self.done: dict[Term, Term | None] = {}

    def of(self, term: Term) -> Term | None:
        """The term with numeric extents and attributes, or None where it is not typed at these numbers."""
        if term not in self.done:
            self.done[term] = self._built(term)
        return self.done[term]

    def _built(self, term: Term) -> Term | None:
        if term.is_variable:
            return variable(term.name, tuple(substitute(n, self._value) for n in term.shape))
        args = [self.of(a) for a in term.args]
        attributes: dict[str, Attribute] = {k: substitute_attribute(v, self._value) for k, v in term.attributes}
        try:
            return None if None in args else apply(term.op, *(a for a in args if a is not None), **attributes)
        except ShapeError:
            return None

    def _value(self, atom: object) -> Extent | None:
        return self.symbols.get(atom.name) if isinstance(atom, Sym) else None


def distinct_numbers(universe: Universe) -> dict[str, Extent]:
    """A number for every symbol of the universe; extents large and different, windows small."""
    numbers: dict[str, Extent] = {}
    for position, (name, values) in enumerate(universe.ranges.items()):
        small = name[0] in "sdpeijgk" and universe.family == "convolution"
        numbers[name] = max(values) if name == "a" else 2 + position % 3 if small else 101 + 13 * position
    return numbers


class Rewriter:
    """Single-output equalities, applied from their left to their right sides until nothing changes, or one step either way."""

    def __init__(self) -> None:
        self._forward: dict[tuple[str, int], list[Pattern]] = {}
        self._backward: dict[tuple[str, int], list[Pattern]] = {}
        self._normal: dict[Term, Term] = {}

    def add(self, rule: Rule) -> None:
        """Uses the rule from now on."""
        for equation in rule.equations:
            if len(equation.left) != 1:
                continue
            for patterns, left, right in (
                (self._forward, equation.left, equation.right),
                (self._backward, equation.right, equation.left),
            ):
                pattern = Pattern(left, right, equation.where)
                if pattern.usable and not left[0].is_variable:
                    patterns.setdefault((left[0].op, left[0].rank), []).append(pattern)
        self._normal.clear()

    def normal(self, term: Term) -> Term:
        """The term after left-to-right steps, as far as `STEPS` of them lead."""
        known = self._normal.get(term)
        if known is not None:
            return known
        current = term
        for _ in range(STEPS):
            below = {a: self.normal(a) for a in current.args}
            if any(a is not b for a, b in below.items()):
                current = rebuild(current, below)
            after = next(self._rewritten(current, self._forward), None)
            if after is None:
                break
            current = after
        self._normal[term] = current
        return current

    def joins(self, left: Term, right: Term) -> bool:
        """Whether both terms have one normal form."""
        return self.normal(left) is self.normal(right)

    def joins_around(self, left: Term, right: Term) -> bool:
        """Whether one step anywhere in either term, in either direction, leads to terms that join."""
        goal_left, goal_right = self.normal(left), self.normal(right)
        if goal_left is goal_right:
            return True
        around_left = {self.normal(t) for t in self.neighbours(left)}
        if goal_right in around_left:
            return True
        around_right = {self.normal(t) for t in self.neighbours(right)}
        return goal_left in around_right or bool(around_left & around_right)

    def neighbours(self, term: Term) -> Iterator[Term]:
        """Terms one step away, in either direction, anywhere in the term."""
        for part in subterms(term):
            for patterns in (self._forward, self._backward):
                for after in self._rewritten(part, patterns):
                    try:
                        yield after if part is term else rebuild(term, {part: after})
                    except ShapeError:
                        continue

    def _rewritten(self, term: Term, patterns: Mapping[tuple[str, int], Sequence[Pattern]]) -> Iterator[Term]:
        for pattern in patterns.get((term.op, term.rank), ()):
            for match in pattern.matches(term, lambda _: ()):
                yield match.replacements[0]


# ---------------------------------------------------------------- directions


@dataclass(frozen=True)
class Effort:
    """What a graph costs at run time: operators executed, and arithmetic plus traffic in arbitrary units."""

    operators: int
    work: float


def effort(roots: Sequence[Term], *, weights_known: bool) -> Effort:
    """The cost of numeric terms; with `weights_known`, what depends on weights alone is free."""
    operators, work = 0, 0.0
    free: set[Term] = set()
    for term in subterms(*roots):
        known = weights_known and term.is_variable and term.name in WEIGHTS
        if known or (not term.is_variable and all(a in free for a in term.args)):
            free.add(term)
        elif not term.is_variable and term.op not in ("expand", "reshape"):
            operators += 1
            work += _work(term)
    return Effort(operators, work)


def _work(term: Term) -> float:
    moved = sum(_elements(t) for t in (term, *term.args))
    if term.op == "matmul":
        return moved + _elements(term) * float(term.args[0].shape[-1]) / 8  # type: ignore[arg-type]
    if term.op == "conv":
        return moved + _elements(term) * _elements(term.args[1]) / float(term.args[1].shape[0]) / 8  # type: ignore[arg-type]
    return moved


def _elements(term: Term) -> float:
    count = 1.0
    for extent in term.shape:
        count *= float(extent)  # type: ignore[arg-type]
    return count


def useful(left: tuple[Term, ...], right: tuple[Term, ...], numbered: Callable[[Term], Term | None]) -> bool:
    """Whether `left => right` can serve a search.

    Not useful: nothing but variables or constants on the left; something on the right that the left does not determine; a left
    side that is part of the right side; and steps that both execute more operators and do more work, weights known or not.
    """
    if all(t.is_variable or not variables(t) for t in left):
        return False
    if not set(variables(*right)) <= set(variables(*left)) or any(t in subterms(*right) for t in left):
        return False
    if {a for a in attribute_atoms(*right) if isinstance(a, Sym)} - _symbols_of(left):
        return False
    before, after = [_numbers(side, numbered) for side in (left, right)]
    if before is None or after is None:
        return False
    for weights_known in (True, False):
        old, new = effort(before, weights_known=weights_known), effort(after, weights_known=weights_known)
        if new.operators <= old.operators or new.work < old.work:
            return True
    return False


def _symbols_of(roots: Iterable[Term]) -> set[Sym]:
    """Symbols that a match determines: those in attributes and those in the variables' extents."""
    own = {a for a in attribute_atoms(*roots) if isinstance(a, Sym)}
    return own | {a for v in variables(*roots) for n in v.shape for a in getattr(n, "atoms", tuple)() if isinstance(a, Sym)}


def _numbers(roots: Sequence[Term], numbered: Callable[[Term], Term | None]) -> list[Term] | None:
    found = [numbered(t) for t in roots]
    return None if None in found else [t for t in found if t is not None]
