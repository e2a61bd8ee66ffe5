"""Widening: tensors with more elements along an axis than they need, so that kernels meet extents that they like.

A kernel that takes sixteen channels at a time is slow with forty-four. A stored rule says that what is padded and then sliced
is as before; read from right to left it widens a term, if the padding can be moved up into weights, by rules: then it costs
nothing at run time. The slice that is left moves down through the terms that use it, by rules, until one takes it into its
weights. So a whole island is carried in wider form, in one walk from its inputs to its outputs; where a term has no rule for
wide operands, the slice stays in front of it. What is put together from slices is no slice of anything: a term of it is taken
apart, by rules, into terms of its parts, each of which can take one slice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from superopt.errors import ShapeError
from superopt.graph import Term, subterms
from superopt.op import apply, rebuild
from superopt.rewrite.apply import State, Step, computed, parted
from superopt.rewrite.ruleset import RuleSet, Undoing

LINE = 16
"""Extents that kernels like are multiples of it: the single-precision numbers of a cache line, and of the widest vectors."""
MOST = 3
"""An extent grows by one part in so many at most."""
DEPTH = 6
"""Terms that padding moves up through to weights, at most."""
TRIES = 100
"""How often it is tried to move the padding of one term up: a sum of many can be taken apart in more ways than there is time
for.
"""


def widened(start: State, rules: RuleSet) -> Iterator[tuple[State, tuple[Step, ...]]]:
    """For each axis along which stored rules undo padding, the state in wider form, if that is another, and the steps.

    The first step leads there; those after it name the other rules that it used, and change nothing.
    """
    for undoing in rules.undoing():
        walk = _Walk(rules, undoing)
        try:
            state = walk.through(start)
        except ShapeError:
            continue
        if state != start:
            yield state, (Step(undoing.rule, start, state), *(Step(name, (), ()) for name in walk.used))


@dataclass
class _Walk:
    """What became of the terms met so far.

    `plain` is what a term is in the new state, `wide` a term of which it is a slice, and `done` has both. `cut` has the
    slices of wide terms, and `zero`, for terms of the new state, what they are if padded. `stuck` says through how many terms
    a padding does not move up from a term: what is above it was met before it, so that this is so for good. `tries` counts how
    often the padding of the last one met was tried to be moved.
    """

    rules: RuleSet
    undoing: Undoing
    plain: dict[Term, Term] = field(default_factory=dict)
    wide: dict[Term, Term] = field(default_factory=dict)
    done: set[Term] = field(default_factory=set)
    cut: set[Term] = field(default_factory=set)
    zero: dict[Term, Term] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)
    stuck: dict[tuple[Term, int], int] = field(default_factory=dict)
    tries: int = 0

    def through(self, state: State) -> State:
        """The state in wider form."""
        for term in computed(state):
            self._meet(term)
        return tuple(self._narrow(root) for root in state)

    def _meet(self, term: Term) -> None:
        """Decides what becomes of a term whose operands were met."""
        own, wider = self._form(apply(term.op, *map(self._narrow, term.args), **dict(term.attributes)))
        if wider is None:
            self.plain[term] = own
        else:
            self.wide[term] = wider

    def _form(self, own: Term) -> tuple[Term, Term | None]:
        """What becomes of a term whose operands are of the new state, and what that is a slice of, if it is made wider."""
        below: tuple[str, Term] | None = None
        for name, match in self.rules.matches(own) if any(a in self.cut for a in own.args) else ():
            (new,) = match.replacements
            if self._is_slice(new) and not self._slices(new.args[0]):
                below = below or (name, new.args[0])
            elif not self._slices(new):
                own = new
                self.used[name] = None
                break
        else:
            own = self._apart(own)
        more = self._padding(own)
        self.tries = 0
        wider = self._padded(own, more, DEPTH) if more else None
        if wider is not None:
            self.zero[self.undoing.sliced(wider, own)] = wider
        elif below is not None:
            name, wider = below
            self.used[name] = None
        if wider is not None:
            self.cut.add(self.undoing.sliced(wider, own))
        self.done.add(own if wider is None else wider)
        return own, wider

    def _apart(self, term: Term) -> Term:
        """The term made of what it makes of the parts of an operand, if that is put together from slices and rules say that it
        can be; else as it is.
        """
        for operand in term.args:
            if self._has_sliced_parts(operand):
                ways = itertools.chain(self._made_of_parts(term, operand), self._with_parts_of_weights(term, operand))
                for name, new in itertools.islice(ways, 1):
                    self.used[name] = None
                    return self._formed(new)
        return term

    def _has_sliced_parts(self, term: Term) -> bool:
        """Whether the term is put together along the axis, of slices among others."""
        waiting, seen = [term], set[Term]()
        while waiting:
            one = waiting.pop()
            if one in seen or one.op != "concat" or one.rank != self.undoing.rank or one["axis"] != self.undoing.axis:
                continue
            seen.add(one)
            if not self.cut.isdisjoint(one.args):
                return True
            waiting += one.args
        return False

    def _made_of_parts(self, term: Term, whole: Term) -> Iterator[tuple[str, Term]]:
        """What the operator makes of each part, put together along the same axis or another."""
        if term.args != (whole,):
            return
        for axis in range(-term.rank, 0):
            try:
                parts = (apply(term.op, part, **dict(term.attributes)) for part in whole.args)
                new = apply("concat", *parts, axis=axis)
            except ShapeError:
                continue
            yield from ((name, new) for name, match in self.rules.matches(new) if match.replacements == (term,))

    def _with_parts_of_weights(self, term: Term, whole: Term) -> Iterator[tuple[str, Term]]:
        """What rules make of the term with a weight that is written as put together where the parts of the operand are."""
        first = whole.args[0].shape[self.undoing.axis]
        extent = whole.shape[self.undoing.axis]
        weights = ((a, axis) for a in term.args if a.constant for axis in range(-a.rank, 0) if a.shape[axis] == extent)
        for weight, axis in weights:
            pieces = parted(weight, axis, first)
            operands = (pieces if operand == weight else operand for operand in term.args)
            for name, match in self.rules.matches(apply(term.op, *operands, **dict(term.attributes))):
                (new,) = match.replacements
                if whole not in subterms(new):
                    yield name, new

    def _formed(self, term: Term) -> Term:
        """The term in the new state, when what it is made of that is not there yet has become what it becomes."""
        if term.is_variable or term.constant or term in self.done or term in self.cut:
            return term
        own, wider = self._form(apply(term.op, *map(self._formed, term.args), **dict(term.attributes)))
        return own if wider is None else self.undoing.sliced(wider, own)

    def _narrow(self, term: Term) -> Term:
        """The term in the new state, sliced out of a wider one where there is one."""
        wider = self.wide.get(term)
        if wider is None:
            return self.plain.get(term, term)
        return self.undoing.sliced(wider, term)

    def _padding(self, term: Term) -> int:
        """How much longer the term's axis should be; 0 if it is fine, or would have to grow too much."""
        if term.rank != self.undoing.rank:
            return 0
        extent = term.shape[self.undoing.axis]
        if not isinstance(extent, int):
            return 0
        more = -extent % LINE
        return more if more * MOST <= extent else 0

    def _padded(self, term: Term, more: int, depth: int) -> Term | None:
        """The term, padded: by rules that move the padding up until only weights are padded; None if there are none."""
        if term in self.zero:
            return self.zero[term]
        if self.stuck.get((term, more), -1) >= depth or self.tries >= TRIES:
            return None
        self.tries += 1
        found = self._padded_by_rules(term, more, depth)
        if found is None and self.tries < TRIES:
            self.stuck[term, more] = depth
        return found

    def _padded_by_rules(self, term: Term, more: int, depth: int) -> Term | None:
        padded = self.undoing.padded(term, more)
        alone = padded if padded.constant else None
        if not depth or term.is_variable:
            return alone
        for name, match in self.rules.matches(padded):
            (new,) = match.replacements
            if new.op == padded.op:
                continue
            known = {t: self._moved(t, more, depth - 1) for t in self._made(new) if t.op == padded.op}
            found = {t: k for t, k in known.items() if k is not None}
            if len(found) == len(known):
                self.used[name] = None
                return rebuild(new, found)
        return alone

    def _made(self, term: Term) -> Iterator[Term]:
        """The term and what it is made of, down to what was there before at run time."""
        seen, stack = set[Term](), [term]
        while stack:
            one = stack.pop()
            if one not in seen and one not in self.done:
                seen.add(one)
                yield one
                stack += one.args

    def _moved(self, padded: Term, more: int, depth: int) -> Term | None:
        """The padded term with the padding moved up further, if it is of the axis and amount; as it is, if it pads a weight."""
        alike = padded.args[0].rank == self.undoing.rank and padded == self.undoing.padded(padded.args[0], more)
        alone = padded if padded.constant else None
        return self._padded(padded.args[0], more, depth) if alike else alone

    def _is_slice(self, term: Term) -> bool:
        return term.op == "slice" and term["axis"] == self.undoing.axis and term["start"] == 0

    def _slices(self, term: Term) -> bool:
        """Whether something is sliced at run time in the term, down to what was there before."""
        return any(self._is_slice(one) for one in self._made(term) if not one.constant)
