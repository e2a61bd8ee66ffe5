"""Widening: pad tensors along an axis to extents that suit kernels.

For example, a kernel that computes sixteen channels at a time wastes time on forty-four channels. By a stored rule,
`slice(pad(x))` equals `x`. The rule widens a term if the rule is applied from right to left. Other rules must then move the
padding towards the inputs, into weights, where the padding costs nothing at run time. Rules also move the remaining slice
towards the outputs, until a term merges the slice into its weights.

One walk from the inputs to the outputs widens a whole island. If no rule moves a slice through the next term, the slice stays
before this term. A concatenation of slices is not itself a slice. If an operand of a term is a concatenation, rules therefore
split the term into one term for each part of the concatenation. A slice can move through each of these terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from superopt.algebra.operators import apply, replace_subterms
from superopt.algebra.terms import Term, subterms
from superopt.errors import ShapeError
from superopt.policy import SEARCH
from superopt.search.apply import State, Step, run_time_terms, split_weight
from superopt.search.ruleset import PaddingUndo, RuleSet


def widened_states(start: State, rules: RuleSet) -> Iterator[tuple[State, tuple[Step, ...]]]:
    """Yield a pair for each possible axis: the state with padded tensors, and the steps.

    Tensors are padded along the axis to extents that suit kernels. An axis is possible if a stored rule says that slicing
    undoes padding along this axis. Axes along which nothing is padded are left out. The first step leads to the padded state.
    The remaining steps do not change the state, and only name the remaining rules that were used.
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
    """A walk from inputs to outputs that pads tensors along one axis and records the new form of each visited term.

    Attributes:
        rules: the rules.
        undoing: the rule `slice(pad(x)) == x`, with the axis of the padding.
        plain: maps each unpadded term to the form of the term in the new state.
        wide: maps each padded term to its padded form. The term equals a slice of the padded form.
        done: the terms of the new state, padded or not.
        cut: the slices of padded terms.
        zero: maps slices of padded terms to the padded terms, if the padding consists of zeros.
        used: the names of the rules that were used, except `undoing`.
        stuck: maps pairs (term, amount of padding) to numbers of rewriting steps. This number of steps did not suffice to move
            the padding to the weights. An entry stays valid, because all terms between the term and the inputs have been
            visited.
        tries: the number of attempts to move the padding of the present term towards the inputs.
    """

    rules: RuleSet
    undoing: PaddingUndo
    plain: dict[Term, Term] = field(default_factory=dict)
    wide: dict[Term, Term] = field(default_factory=dict)
    done: set[Term] = field(default_factory=set)
    cut: set[Term] = field(default_factory=set)
    zero: dict[Term, Term] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)
    stuck: dict[tuple[Term, int], int] = field(default_factory=dict)
    tries: int = 0

    def through(self, state: State) -> State:
        """Pad tensors where the rules can move the padding into weights, and return the new state."""
        for term in run_time_terms(state):
            self._meet(term)
        return tuple(self._narrow(root) for root in state)

    def _meet(self, term: Term) -> None:
        """Record the padded form of the term, or its form in the new state if the term is not padded.

        In the padded form, tensors are padded along the axis to multiples of `SEARCH.widened_multiple_count`. The padded forms
        of the term's operands must be recorded already.
        """
        own, wider = self._form(apply(term.op, *map(self._narrow, term.args), **dict(term.attributes)))
        if wider is None:
            self.plain[term] = own
        else:
            self.wide[term] = wider

    def _form(self, own: Term) -> tuple[Term, Term | None]:
        """Return a pair: the form of the term in the new state, and the padded term.

        The new state contains padded tensors. The operands of the term must be in the new state already. The first term of the
        pair equals a slice of the padded term. The padded term is None if the term is not padded.
        """
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
        wider = self._padded(own, more, SEARCH.max_widening_depth) if more else None
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
        """If an operand is a concatenation of slices, compute the term separately for each part. Return the new term.

        Returns the term unchanged if no operand is a concatenation of slices, or if no rule proves the two forms equal.
        """
        for operand in term.args:
            if self._has_sliced_parts(operand):
                ways = itertools.chain(self._made_of_parts(term, operand), self._with_parts_of_weights(term, operand))
                for name, new in itertools.islice(ways, 1):
                    self.used[name] = None
                    return self._formed(new)
        return term

    def _has_sliced_parts(self, term: Term) -> bool:
        """Return whether the term concatenates a slice of a padded term with another term along the padded axis.

        Concatenations inside the concatenation are searched too.
        """
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
        """Apply the term's operator to each part of the concatenation `whole`, and concatenate the results along an axis.

        All axes are tried. Yield each concatenation that a rule proves equal to the term, with the rule's name.
        """
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
        """Split a weight at the index where the two parts of a concatenation meet. Yield terms that a rule proves equal to the
        given term.

        The concatenation `whole` is an operand of the given term. Each yielded term equals the given term, but does not contain
        the concatenation. The name of the rule is yielded with the term.
        """
        first = whole.args[0].shape[self.undoing.axis]
        extent = whole.shape[self.undoing.axis]
        weights = ((a, axis) for a in term.args if a.constant for axis in range(-a.rank, 0) if a.shape[axis] == extent)
        for weight, axis in weights:
            pieces = split_weight(weight, axis, first)
            operands = (pieces if operand == weight else operand for operand in term.args)
            for name, match in self.rules.matches(apply(term.op, *operands, **dict(term.attributes))):
                (new,) = match.replacements
                if whole not in subterms(new):
                    yield name, new

    def _formed(self, term: Term) -> Term:
        """Return the term's form in the new state (with padded tensors).

        Operands that are not yet in the new state are converted first.
        """
        if term.is_variable or term.constant or term in self.done or term in self.cut:
            return term
        own, wider = self._form(apply(term.op, *map(self._formed, term.args), **dict(term.attributes)))
        return own if wider is None else self.undoing.sliced(wider, own)

    def _narrow(self, term: Term) -> Term:
        """Return the term's form in the new state (with padded tensors): a slice of the padded form if the term is padded."""
        wider = self.wide.get(term)
        if wider is None:
            return self.plain.get(term, term)
        return self.undoing.sliced(wider, term)

    def _padding(self, term: Term) -> int:
        """Return the number of elements to append along the axis that the walk pads, so that the term's extent suits kernels.

        Returns 0 if no padding is needed or if the term would grow too much.
        """
        if term.rank != self.undoing.rank:
            return 0
        extent = term.shape[self.undoing.axis]
        if not isinstance(extent, int):
            return 0
        more = -extent % SEARCH.widened_multiple_count
        return more if more * SEARCH.widening_divisor <= extent else 0

    def _padded(self, term: Term, more: int, depth: int) -> Term | None:
        """Pad the term with `more` zeros by padding its weights, so that nothing is padded at run time. Return the new term.

        Returns None if the rules cannot move the padding to the weights in `depth` steps.
        """
        if term in self.zero:
            return self.zero[term]
        if self.stuck.get((term, more), -1) >= depth or self.tries >= SEARCH.max_widening_tries:
            return None
        self.tries += 1
        found = self._padded_by_rules(term, more, depth)
        if found is None and self.tries < SEARCH.max_widening_tries:
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
                return replace_subterms(new, found)
        return alone

    def _made(self, term: Term) -> Iterator[Term]:
        """Yield the term and the terms below it that are not yet in the new state (with padded tensors).

        If a term is already in the new state, its operands are not visited.
        """
        seen, stack = set[Term](), [term]
        while stack:
            one = stack.pop()
            if one not in seen and one not in self.done:
                seen.add(one)
                yield one
                stack += one.args

    def _moved(self, padded: Term, more: int, depth: int) -> Term | None:
        """Move the padding of the padded term further towards the inputs, and return the new term.

        If the padding cannot be moved, return None. The padding must add `more` elements along the axis that the walk pads.
        Padding of a different form is accepted only if a weight is padded.
        """
        alike = padded.args[0].rank == self.undoing.rank and padded == self.undoing.padded(padded.args[0], more)
        alone = padded if padded.constant else None
        return self._padded(padded.args[0], more, depth) if alike else alone

    def _is_slice(self, term: Term) -> bool:
        return term.op == "slice" and term["axis"] == self.undoing.axis and term["start"] == 0

    def _slices(self, term: Term) -> bool:
        """Return whether the term contains a new slice along the padded axis. Slices of weights are not counted.

        A slice is new if the state with padded tensors does not contain the slice yet.
        """
        return any(self._is_slice(one) for one in self._made(term) if not one.constant)
