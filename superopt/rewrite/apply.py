"""One rewriting step: every place where a rule of the set matches a state, and the state after it is applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.errors import ShapeError
from superopt.graph import Extent, Term, subterms, variable
from superopt.match import Match
from superopt.op import apply, rebuild
from superopt.rewrite.ruleset import RuleSet
from superopt.show import show

State = tuple[Term, ...]
MOVES = frozenset({"slice", "concat", "transpose", "reshape", "expand"})
"""Operators that only move elements."""
PARTLY = "~>"
"""What the name of a step begins with that exchanges an operator for a corrected mutant: no rule says that they are equal."""


@dataclass(frozen=True)
class Step:
    """A rule applied at a match: the certificate of one rewrite."""

    rule: str
    roots: tuple[Term, ...]
    replacements: tuple[Term, ...]

    @property
    def programs(self) -> tuple[Term, Term]:
        """What is exchanged for what at the first root, whose operands are variables."""
        (root, *_), (replacement, *_) = self.roots, self.replacements
        names = {
            arg: variable(f"{'w' if arg.constant else 'x'}{n}", arg.shape, constant=arg.constant)
            for n, arg in enumerate(root.args)
        }
        program = apply(root.op, *(names[arg] for arg in root.args), **dict(root.attributes))
        return program, rebuild(replacement, names)

    @property
    def text(self) -> str:
        """What is exchanged for what, the first root's operands being variables."""
        program, replacement = self.programs
        return f"{show(program)}  {PARTLY}  {show(replacement)}"


def parted(weight: Term, axis: int, first: Extent) -> Term:
    """The weight, written as put together along the axis of its `first` positions and the others."""
    bounds = (0, first), (first, weight.shape[axis])
    return apply("concat", *(apply("slice", weight, axis=axis, start=start, stop=stop) for start, stop in bounds), axis=axis)


def computed(state: State) -> list[Term]:
    """The terms that are computed at run time, arguments before users: neither variables nor weight-only."""
    return [t for t in subterms(*state, constants=False) if not t.is_variable]


def foremost(state: State, rules: RuleSet) -> tuple[str, dict[Term, Term]] | None:
    """The first rule of one output that has a place, and what it says of the terms at all of its places."""
    found: dict[str, dict[Term, Term]] = {}
    for term in computed(state):
        for name, match in rules.matches(term):
            found.setdefault(name, {}).setdefault(term, match.replacements[0])
    return next(iter(found.items()), None)


def siblings(live: Sequence[Term]) -> list[list[Term]]:
    """The terms by how many operators that compute they are away from the inputs: none of those feeds its like, not even
    through others.
    """
    levels: dict[Term, int] = {}
    found: dict[int, list[Term]] = {}
    for term in live:
        levels[term] = max((levels.get(a, 0) for a in term.args), default=0) + (term.op not in MOVES)
        found.setdefault(levels[term], []).append(term)
    return [*found.values()]


def successors(state: State, rules: RuleSet, focus: frozenset[Term] | None = None) -> Iterator[tuple[State, Step]]:
    """Every state one rule application away, each with the step that leads there, in a deterministic order.

    With `focus`, only matches whose first root is in it. Rules of several outputs are applied to siblings. Weight-only terms
    are left alone: they cost nothing.
    """
    live = computed(state)
    beside = {term: same for same in siblings(live) for term in same}
    for term in live:
        if focus is not None and term not in focus:
            continue
        for name, match in rules.matches(term, lambda op, same=beside[term]: [t for t in same if t.op == op]):  # type: ignore[misc]
            after = rewritten(state, match, live)
            if after is not None and after != state:
                yield after, Step(name, match.roots, match.replacements)


def rewritten(state: State, match: Match, live: Sequence[Term]) -> State | None:
    """The state with the match's roots replaced, or None if one of several outputs feeds another (a cycle).

    `live` lists the state's terms that are not weight-only, arguments before users.
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
    """Where what is new in `state` since `before` can be built upon: new terms, their users, and the users of these."""
    old = set(subterms(*before))
    live = computed(state)
    new = {t for t in live if t not in old}
    near = {t for t in new if not any(a in new for a in t.args)}
    for _ in range(2):
        near |= {t for t in live if any(a in near for a in t.args)}
    return frozenset(near)


def rebuilt(state: State, wanted: Mapping[Term, Term]) -> Mapping[Term, Term] | None:
    """What every term of the state becomes with these replacements, also inside each other; None if they cannot be made."""
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
    """The operator of the term applied to these."""
    same = all(a is b for a, b in zip(term.args, args, strict=False))
    return term if same else apply(term.op, *args, **dict(term.attributes))
