"""One rewriting step: all matches of the rules in a state, and the state after a match is applied.

A state is a tuple of output terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.algebra.operators import apply, replace_subterms
from superopt.algebra.terms import Extent, Term, subterms, variable
from superopt.errors import ShapeError
from superopt.notation.printing import render_terms
from superopt.rules.match import Match
from superopt.search.ruleset import RuleSet

State = tuple[Term, ...]
MOVES = frozenset({"slice", "concat", "transpose", "reshape", "expand"})
"""Operators that only move elements, without arithmetic."""
PARTLY = "~>"
"""The prefix of the name of a step that replaces an operator by a corrected mutant. No rule proves such a step.

A mutant is a cheaper term that equals the operator at some output positions. The correction replaces the wrong elements.
"""


@dataclass(frozen=True)
class Step:
    """One rewrite: the name of the rule, the terms that the rule replaces (`roots`), and their replacements.

    A certificate (the record of what an optimization changed) contains the steps of the search.
    """

    rule: str
    roots: tuple[Term, ...]
    replacements: tuple[Term, ...]

    @property
    def programs(self) -> tuple[Term, Term]:
        """The first replaced term and its replacement, with variables in place of the operands of the replaced term."""
        (root, *_), (replacement, *_) = self.roots, self.replacements
        names = {
            arg: variable(f"{'w' if arg.constant else 'x'}{n}", arg.shape, constant=arg.constant)
            for n, arg in enumerate(root.args)
        }
        program = apply(root.op, *(names[arg] for arg in root.args), **dict(root.attributes))
        return program, replace_subterms(replacement, names)

    @property
    def text(self) -> str:
        """The first replaced term and its replacement (see `programs`) as text, joined by an arrow."""
        program, replacement = self.programs
        return f"{render_terms(program)}  {PARTLY}  {render_terms(replacement)}"


def split_weight(weight: Term, axis: int, first: Extent) -> Term:
    """Return the weight as a concatenation of two slices along the axis. The first slice has extent `first`."""
    bounds = (0, first), (first, weight.shape[axis])
    return apply("concat", *(apply("slice", weight, axis=axis, start=start, stop=stop) for start, stop in bounds), axis=axis)


def run_time_terms(state: State) -> list[Term]:
    """Return the terms of the state that are computed at run time. Each term comes after its operands.

    The state is a tuple of output terms. Variables and terms that depend only on weights are left out.
    """
    return [t for t in subterms(*state, constants=False) if not t.is_variable]


def first_rewrite(state: State, rules: RuleSet) -> tuple[str, dict[Term, Term]] | None:
    """Find the first matching rule with one output. Return the rule's name, and a mapping from matched terms to replacements.

    Return None if no rule matches a term of the state (a tuple of output terms).
    """
    found: dict[str, dict[Term, Term]] = {}
    for term in run_time_terms(state):
        for name, match in rules.matches(term):
            found.setdefault(name, {}).setdefault(term, match.replacements[0])
    return next(iter(found.items()), None)


def siblings(live: Sequence[Term]) -> list[list[Term]]:
    """Group the terms by their distance from the inputs. The index of a group in the returned list is the distance.

    The distance counts only operators that do arithmetic. Two terms of a group that both do arithmetic never depend on each
    other, not even indirectly.
    """
    levels: dict[Term, int] = {}
    found: dict[int, list[Term]] = {}
    for term in live:
        levels[term] = max((levels.get(a, 0) for a in term.args), default=0) + (term.op not in MOVES)
        found.setdefault(levels[term], []).append(term)
    return [found.get(level, []) for level in range(max(found, default=-1) + 1)]


def successors(state: State, rules: RuleSet, focus: frozenset[Term] | None = None) -> Iterator[tuple[State, Step]]:
    """Yield a pair for each match of a rule in `state`: the state after the rule is applied, and the step.

    A state is a tuple of output terms. The order of the pairs is deterministic. If `focus` is given, a rule is applied only if
    `focus` contains the first replaced term. Rules with several outputs are applied to siblings, which are terms at the same
    distance from the inputs. Terms that depend only on weights are not rewritten, because they cost nothing at run time.
    """
    live = run_time_terms(state)
    beside = {term: same for same in siblings(live) for term in same}
    for term in live:
        if focus is not None and term not in focus:
            continue
        for name, match in rules.matches(term, lambda op, same=beside[term]: [t for t in same if t.op == op]):  # type: ignore[misc]
            after = replace_match(state, match, live)
            if after is not None and after != state:
                yield after, Step(name, match.roots, match.replacements)


def replace_match(state: State, match: Match, live: Sequence[Term]) -> State | None:
    """Apply a match of a rule, and return the new state. The roots of the match are the terms that the rule replaces.

    Returns None if shapes do not fit. Also returns None if one root is computed from a second root, because the new state would
    contain a cycle. The state is a tuple of output terms. `live` lists the terms that are computed at run time, as
    `run_time_terms` returns them.
    """
    if len(match.roots) > 1:
        below = set(subterms(*match.binding.tensors.values()))
        if any(root in below for root in match.roots):
            return None
    done: dict[Term, Term] = dict(zip(match.roots, match.replacements, strict=True))
    try:
        for term in live:
            if term not in done and any(a in done for a in term.args):
                done[term] = apply(term.op, *(done.get(a, a) for a in term.args), **dict(term.attributes))
    except ShapeError:
        return None
    return tuple(done.get(root, root) for root in state)


def neighbourhood(state: State, before: State) -> frozenset[Term]:
    """Return the terms at which a further step can use the new terms of `state`.

    A new term is a term that `before` does not contain. A lowest new term is a new term without new operands. The result
    contains the lowest new terms, and every term that uses a lowest new term directly or through one further term.
    """
    old = set(subterms(*before))
    live = run_time_terms(state)
    new = {t for t in live if t not in old}
    near = {t for t in new if not any(a in new for a in t.args)}
    for _ in range(2):
        near |= {t for t in live if any(a in near for a in t.args)}
    return frozenset(near)


def replaced_terms(state: State, wanted: Mapping[Term, Term]) -> Mapping[Term, Term] | None:
    """Make all replacements in `wanted`, and return a mapping from each term of the state to the resulting term.

    `wanted` maps terms to their replacements. Terms inside a replacement are replaced too. Returns None if the replacements
    form a cycle, or if a shape does not fit.
    """
    done: dict[Term, Term] = {}
    waiting: set[Term] = set()
    stack = list(state)
    while stack:
        term = stack[-1]
        needs = () if term.constant else (wanted[term],) if term in wanted else term.args
        more = [t for t in needs if t not in done]
        if term not in done and more:
            if term in waiting:
                return None
            waiting.add(term)
            stack += more
            continue
        stack.pop()
        if term not in done:
            try:
                done[term] = done[wanted[term]] if term in wanted else _with(term, [done[t] for t in needs])
            except ShapeError:
                return None
    return done


def _with(term: Term, args: Sequence[Term]) -> Term:
    """Return the term's operator applied to `args`."""
    same = all(a is b for a, b in zip(term.args, args, strict=False))
    return term if same else apply(term.op, *args, **dict(term.attributes))
