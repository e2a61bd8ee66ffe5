"""Rules prepared for matching: outlines quickly exclude rules that cannot match at a term.

The view of a term consists of the term's operator, the operands' operators, and the operators of the operands' operands. The
outline of a rule describes the rule's left side in the same way. A rule is a candidate at a term if its outline fits the term's
view. Candidates are computed once for each view. When a rule first becomes a candidate, one pattern for matching is made for
each choice of ranks of the rule's variables. A rule whose operators do not occur in the model never becomes a candidate, and
takes no time.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Term
from superopt.policy import SEARCH
from superopt.rules.match import Match, Pattern
from superopt.rules.rule import Rule
from superopt.rules.signature import ANY, Outline, outlines
from superopt.search.gate import Gate

View: TypeAlias = "tuple[str, tuple[View, ...] | None]"
"""The operator of a term and the views of its operands. None stands for the views of the operands if the term is at the largest
depth or is a variable.
"""
_SLICE_OF_PAD = Outline("slice", (Outline("pad", (ANY,)),))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A rule, the outlines of its left side (the operators near each output), and its patterns for matching.

    There is one pattern for each choice of ranks of the rule's variables. Patterns are made on first use.
    """

    rule: Rule
    left: tuple[Outline, ...]

    def patterns(self, rank: int) -> Sequence[Pattern]:
        """Return the rule's patterns whose first output has this rank.

        A pattern is left out if its left side does not determine every variable and number of the right side.
        """
        return self._by_rank.get(rank, ())

    @functools.cached_property
    def _by_rank(self) -> dict[int, list[Pattern]]:
        found: dict[int, list[Pattern]] = {}
        for equation in self.rule.equations:
            pattern = Pattern.of(equation)
            if pattern.usable:
                found.setdefault(equation.left[0].rank, []).append(pattern)
        return found


@dataclass(frozen=True)
class PaddingUndo:
    """A rule `slice(pad(x)) == x` for padding at the end of one axis, at one rank."""

    rule: str
    rank: int
    axis: int

    def padded(self, term: Term, more: int) -> Term:
        """Return the term with `more` zeros appended along the rule's axis."""
        after = tuple(more if axis == self.axis else 0 for axis in range(-self.rank, 0))
        return apply("pad", term, before=(0,) * self.rank, after=after)

    def sliced(self, wide: Term, term: Term) -> Term:
        """Return a slice of `wide` along the rule's axis. The slice starts at index 0 and has the extent of `term`."""
        return apply("slice", wide, axis=self.axis, start=0, stop=term.shape[self.axis])


def only_reshapes(rule: Rule) -> bool:
    """Return whether the rule replaces a chain of reshapes of a variable by a chain with at least as many reshapes.

    A search does not use these rules, because they make no model faster.
    """
    left, right = (outlines(side) for side in (rule.statement.left, rule.statement.right))
    return len(left) == len(right) == 1 and 0 < _changes(left[0]) <= _changes(right[0])


def _changes(outline: Outline) -> int:
    """Return the number of reshapes if the outline (nested operators) is a chain of reshapes of a variable. Otherwise, return
    0.
    """
    count = 0
    while outline.op == "reshape":
        (outline,) = outline.args
        count += 1
    return 0 if outline.op else count


def no_terms_for_other_outputs(_: str) -> tuple[Term, ...]:
    """Return no terms. If `RuleSet.matches` gets this function as `candidates`, no rule with several outputs matches."""
    return ()


class RuleSet:
    """A set of rules that are matched at terms. Rules whose left side starts with a bare variable are not matched.

    Attributes:
        gate: the filter that decides which matches are returned. If None, every match is returned.

    Args:
        rules: the rules.
        algorithms: rules that replace an operator by a different algorithm. These rules are matched separately.
        mutants: rules that generalise mutants (cheaper terms in place of operators). These rules are matched separately.
    """

    gate: Gate | None = None

    def __init__(self, rules: Iterable[Rule], algorithms: Iterable[Rule] = (), mutants: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._algorithms = tuple(algorithms)
        self._mutants = tuple(mutants)
        prepared = [Prepared(rule, outlines(rule.statement.left)) for rule in self._rules]
        self._by_operator: dict[str, list[Prepared]] = {}
        for one in prepared:
            if one.left[0].op:
                self._by_operator.setdefault(one.left[0].op, []).append(one)
        self._views: dict[Term, View] = {}
        self._candidates: dict[View, tuple[tuple[Prepared, ...], tuple[Prepared, ...]]] = {}
        self._alone: dict[Term, tuple[tuple[Rule, Match], ...]] = {}
        self._parts: dict[Hashable, RuleSet] = {}
        self._beside: dict[tuple[Pattern, Term, tuple[tuple[Term, ...], ...]], tuple[Match, ...]] = {}
        self._gated: dict[str, RuleSet] = {"": self}

    @property
    def algorithms(self) -> RuleSet:
        """The rules that replace an operator by a different algorithm, as a separate rule set."""
        return self._part("algorithms", lambda: self._algorithms)

    @property
    def mutants(self) -> RuleSet:
        """The rules that were generalised from mutants, as a separate rule set.

        A mutant is a cheaper term that replaces an operator.
        """
        return self._part("mutants", lambda: self._mutants)

    @property
    def vanishing(self) -> RuleSet:
        """The rules with one output whose right side is a variable, such as `x + zeros => x`, as a separate rule set."""
        sides = ((rule, rule.statement.right) for rule in self._rules)
        return self._part("vanishing", lambda: (rule for rule, right in sides if len(right) == 1 and not outlines(right)[0].op))

    def within(self, operators: Collection[str]) -> RuleSet:
        """Return a rule set with the rules that contain only these operators on both sides."""
        only = frozenset(operators)
        return self._part(only, lambda: (rule for rule in self._rules if only.issuperset(rule.operators)))

    def _part(self, name: Hashable, rules: Callable[[], Iterable[Rule]]) -> RuleSet:
        """Return a rule set with some of the rules, and with the gate of this rule set. The rule set is cached under `name`."""
        if name not in self._parts:
            self._parts[name] = RuleSet(rules())
        return self._parts[name].gated(self.gate)

    def gated(self, gate: Gate | None) -> RuleSet:
        """Return a rule set with the same rules. The returned rule set gives only matches that the gate permits.

        A gate is the filter for a floating-point mode. The rule sets for different gates share the cached matches of rules with
        one output.
        """
        key = "" if gate is None else gate.key
        if key not in self._gated:
            other = self._gated[key] = copy.copy(self)
            other.gate, other._beside = gate, {}
        return self._gated[key]

    def _permits(self, rule: Rule, match: Match) -> bool:
        return self.gate is None or self.gate.permits(rule, match)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the set's rules."""
        return tuple(rule.name for rule in self._rules)

    def matches(
        self, term: Term, candidates: Callable[[str], Sequence[Term]] = no_terms_for_other_outputs
    ) -> Iterator[tuple[str, Match]]:
        """Yield every match whose first replaced term (root) is `term`, with the name of its rule.

        A rule with several outputs replaces several terms. For each replaced term except the root, `candidates` returns the
        possible terms with a given operator. If `candidates` is not given, only rules with one output are matched. The matches
        of rules with one output depend only on the term, and are cached.
        """
        single, several = self._of_view(self._view(term))
        known = self._alone.get(term)
        if known is None:
            found: dict[tuple[str, tuple[Term, ...]], tuple[Rule, Match]] = {}
            for prepared in single:
                for pattern in prepared.patterns(term.rank):
                    for match in pattern.matches(term, candidates):
                        found.setdefault((prepared.rule.name, match.replacements), (prepared.rule, match))
            known = self._alone[term] = tuple(found.values())
        yield from self._distinct(known)
        for prepared in several:
            if all(candidates(outline.op) for outline in prepared.left[1:]):
                for pattern in prepared.patterns(term.rank):
                    for match in pattern.matches(term, candidates):
                        if self._permits(prepared.rule, match):
                            yield prepared.rule.name, match

    def alone(self, term: Term, rule: str) -> Iterator[Match]:
        """Yield the matches of the rule with this name at `term`. The rule must have one output."""
        known = self._alone.get(term)
        if known is not None:
            yield from (match for name, match in self._distinct(known) if name == rule)
            return
        for prepared in self._of_view(self._view(term))[0]:
            if prepared.rule.name == rule:
                for pattern in prepared.patterns(term.rank):
                    yield from (
                        match
                        for match in pattern.matches(term, no_terms_for_other_outputs)
                        if self._permits(prepared.rule, match)
                    )

    def _distinct(self, known: Iterable[tuple[Rule, Match]]) -> Iterator[tuple[str, Match]]:
        """Yield the matches that the gate permits, with the names of their rules.

        If several matches have equal replacements, only the first of these matches is yielded.
        """
        given: set[tuple[Term, ...]] = set()
        for rule, match in known:
            if match.replacements not in given and self._permits(rule, match):
                given.add(match.replacements)
                yield rule.name, match

    def several(self, term: Term) -> Iterator[tuple[Rule, Pattern]]:
        """Yield the rules with several outputs whose first output may match `term`.

        Each rule is yielded with each of its patterns (the rule at one choice of ranks).
        """
        for prepared in self._of_view(self._view(term))[1]:
            for pattern in prepared.patterns(term.rank):
                yield prepared.rule, pattern

    def beside(self, rule: Rule, pattern: Pattern, term: Term, free: tuple[tuple[Term, ...], ...]) -> tuple[Match, ...]:
        """Return the first match of the pattern at `term`, and the directly following matches that have the same roots.

        The roots of a match are the terms that the match replaces. The first root is `term`. The remaining roots are taken from
        `free`, which lists the possible terms for each output. Matches are cached, because most terms of a state occur in the
        next state too.
        """
        key = pattern, term, free
        known = self._beside.get(key)
        if known is None:
            listed = dict(zip(pattern.roots, free, strict=True))
            matches = (m for m in pattern.matches(term, listed.__getitem__) if self._permits(rule, m))
            first = next(matches, None)
            alike = itertools.takewhile(lambda match: first is not None and match.roots == first.roots, matches)
            known = self._beside[key] = (
                () if first is None else (first, *itertools.islice(alike, SEARCH.max_matches_per_roots - 1))
            )
        return known

    def undoing(self) -> Iterator[PaddingUndo]:
        """Yield the rules of the form `slice(pad(x)) == x`, for padding of any size at the end of one axis."""
        for prepared in self._by_operator.get("slice", ()):
            for equation in prepared.rule.equations if prepared.left == (_SLICE_OF_PAD,) else ():
                left, right = equation.left[0], equation.right[0]
                if right == left.args[0].args[0] and left["start"] == 0:
                    rank, axis, after = right.rank, left["axis"], left.args[0]["after"]
                    assert isinstance(axis, int)
                    assert isinstance(after, tuple)
                    if [amount != 0 for amount in after] == [a == axis for a in range(-rank, 0)]:
                        yield PaddingUndo(prepared.rule.name, rank, axis)

    def _of_view(self, view: View) -> tuple[tuple[Prepared, ...], tuple[Prepared, ...]]:
        """Return the rules whose left side may match at a term with this view (the operators near the term's root).

        The first tuple contains the rules with one output, and the second tuple contains the rules with several outputs. For a
        rule with several outputs, only the first output is compared with the view.
        """
        known = self._candidates.get(view)
        if known is None:
            fitting = [p for p in self._by_operator.get(view[0], ()) if ruleset_outline_may_match(p.left[0], view)]
            known = tuple(p for p in fitting if len(p.left) == 1), tuple(p for p in fitting if len(p.left) > 1)
            self._candidates[view] = known
        return known

    def _view(self, term: Term) -> View:
        known = self._views.get(term)
        if known is None:
            known = self._views[term] = ruleset_term_view(term)
        return known


def ruleset_term_view(term: Term, depth: int = SEARCH.max_outline_depth) -> View:
    """Return, as a nested tuple, the operators of the term and of the subterms down to `depth` levels below the term.

    For commutative operators, the operands' views are sorted.
    """
    if term.is_variable or not depth:
        return term.op, None
    seen = [ruleset_term_view(a, depth - 1) for a in term.args]
    return term.op, tuple(sorted(seen, key=repr) if operator(term.op).commutative else seen)


def ruleset_outline_may_match(outline: Outline, seen: View) -> bool:
    """Return whether a term may match a rule's outline. `seen` is the view of the term: the operators near the term's root.

    A sum or product may match if only some of its operands match.
    """
    if not outline.op:
        return True
    op, operands = seen
    if op != outline.op:
        return False
    if operands is None:
        return True
    if operator(op).commutative:
        wanted = [o for o in outline.args if o.op]
        return len(outline.args) <= len(operands) and all(
            any(ruleset_outline_may_match(o, s) for s in operands) for o in wanted
        )
    return all(ruleset_outline_may_match(o, s) for o, s in zip(outline.args, operands, strict=True))
