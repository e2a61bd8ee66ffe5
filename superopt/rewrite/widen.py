"""Widening: tensors with more elements along an axis than they need, so that kernels meet extents that they like.

A kernel that takes sixteen channels at a time is slow with forty-four. A stored rule says that what is padded and then sliced
is as before; read from right to left it widens a term, if the padding can be moved up into weights, by rules: then it costs
nothing at run time. The slice that is left moves down through the terms that use it, by rules, until one takes it into its
weights. So a whole island is carried in wider form, in one walk from its inputs to its outputs; where a term has no rule for
wide operands, the slice stays in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from superopt.errors import ShapeError
from superopt.graph import Term, subterms
from superopt.op import apply, rebuild
from superopt.rewrite.apply import State, Step, computed
from superopt.rewrite.ruleset import RuleSet, Undoing

LINE = 16
"""Extents that kernels like are multiples of it: the single-precision numbers of a cache line, and of the widest vectors."""
MOST = 3
"""An extent grows by one part in so many at most."""
DEPTH = 6
"""Terms that padding moves up through to weights, at most."""


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

    `plain` is what a term is in the new state, `wide` a term of which it is a slice, and `done` has both. `zero` has, for terms
    of the new state, what they are if padded.
    """

    rules: RuleSet
    undoing: Undoing
    plain: dict[Term, Term] = field(default_factory=dict)
    wide: dict[Term, Term] = field(default_factory=dict)
    done: set[Term] = field(default_factory=set)
    zero: dict[Term, Term] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)

    def through(self, state: State) -> State:
        """The state in wider form."""
        for term in computed(state):
            self._meet(term)
        return tuple(self._narrow(root) for root in state)

    def _meet(self, term: Term) -> None:
        """Decides what becomes of a term whose operands were met."""
        own = apply(term.op, *map(self._narrow, term.args), **dict(term.attributes))
        below: tuple[str, Term] | None = None
        for name, match in self.rules.matches(own) if any(a in self.wide for a in term.args) else ():
            (new,) = match.replacements
            if self._is_slice(new) and not self._slices(new.args[0]):
                below = below or (name, new.args[0])
            elif not self._slices(new):
                own = new
                self.used[name] = None
                break
        more = self._padding(own)
        wider = self._padded(own, more, DEPTH) if more else None
        if wider is not None:
            self.wide[term] = wider
            self.zero[self._narrow(term)] = wider
        elif below is not None:
            name, self.wide[term] = below
            self.used[name] = None
        else:
            self.plain[term] = own
        self.done.add(self.wide.get(term, own))

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
        padded = self.undoing.padded(term, more)
        if padded.constant or not depth or term.is_variable:
            return padded if padded.constant else None
        for name, match in self.rules.matches(padded):
            (new,) = match.replacements
            if new.op == padded.op:
                continue
            inner = [t for t in subterms(new) if t.op == padded.op and not t.constant]
            known = {t: self._padded(t.args[0], more, depth - 1) for t in inner}
            found = {t: k for t, k in known.items() if k is not None}
            if len(found) == len(known):
                self.used[name] = None
                return rebuild(new, found)
        return None

    def _is_slice(self, term: Term) -> bool:
        return term.op == "slice" and term["axis"] == self.undoing.axis and term["start"] == 0

    def _slices(self, term: Term) -> bool:
        """Whether something is sliced at run time in the term, down to what was there before."""
        stack = [term]
        while stack:
            one = stack.pop()
            if one not in self.done:
                if self._is_slice(one):
                    return True
                stack += one.args
        return False
