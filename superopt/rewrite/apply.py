"""One rewriting step: every place where a rule of the set matches a state, and the state after it is applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.errors import ShapeError
from superopt.graph import Term, subterms
from superopt.match import Match, Pattern
from superopt.op import rebuild
from superopt.rule import Rule

State = tuple[Term, ...]


@dataclass(frozen=True)
class Step:
    """A rule applied at a match: the certificate of one rewrite."""

    rule: str
    roots: tuple[Term, ...]
    replacements: tuple[Term, ...]


class RuleSet:
    """Rules prepared for matching: their usable patterns by the operator and rank at the first root."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._patterns: dict[tuple[str, int], list[tuple[str, Pattern]]] = {}
        self.names: list[str] = []
        for rule in rules:
            self.names.append(rule.name)
            for equation in rule.equations:
                pattern = Pattern.of(equation)
                if pattern.usable and not equation.left[0].is_variable:
                    key = equation.left[0].op, equation.left[0].rank
                    self._patterns.setdefault(key, []).append((rule.name, pattern))

    def at(self, term: Term) -> Sequence[tuple[str, Pattern]]:
        """The patterns whose first root could be `term`."""
        return self._patterns.get((term.op, term.rank), ())


def successors(state: State, rules: RuleSet, focus: frozenset[Term] | None = None) -> Iterator[tuple[State, Step]]:
    """Every state one rule application away, each with the step that leads there, in a deterministic order.

    With `focus`, only matches whose first root is in it. Weight-only terms are left alone: they cost nothing.
    """
    live = [t for t in subterms(*state) if not t.is_variable and not t.constant]
    by_operator: dict[str, list[Term]] = {}
    for term in live:
        by_operator.setdefault(term.op, []).append(term)
    for term in live:
        if focus is not None and term not in focus:
            continue
        for name, pattern in rules.at(term):
            for match in pattern.matches(term, lambda op: by_operator.get(op, ())):
                after = rewritten(state, match)
                if after is not None and after != state:
                    yield after, Step(name, match.roots, match.replacements)


def rewritten(state: State, match: Match) -> State | None:
    """The state with the match's roots replaced, or None if one of several outputs feeds another (a cycle)."""
    if len(match.roots) > 1:
        below = set(subterms(*match.binding.tensors.values()))
        if any(root in below for root in match.roots):
            return None
    replacement: Mapping[Term, Term] = dict(zip(match.roots, match.replacements, strict=True))
    cache: dict[Term, Term] = {}
    try:
        return tuple(rebuild(root, replacement, cache) for root in state)
    except ShapeError:
        return None


def neighbourhood(state: State, before: State) -> frozenset[Term]:
    """The terms of `state` that are new since `before` and touch its new work: new terms and their users' users."""
    old = set(subterms(*before))
    order = subterms(*state)
    new = {t for t in order if t not in old and not t.is_variable}
    core = {t for t in new if all(a not in new for a in t.args)}
    for _ in range(2):
        core |= {t for t in order if any(a in core for a in t.args)}
    return frozenset(core)
