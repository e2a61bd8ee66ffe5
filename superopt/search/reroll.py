"""Replace unrolled recurrences by operators such as LSTM, by applying the operators' definitions backwards.

A definition gives the states after one step of a recurrence. If the linear form of the definition (with sums outermost) matches
terms of the model, these terms are a step of a recurrence. A run is a sequence of steps with the same weights. Each step of a
run begins with the states after the previous step. By definition, the operator computes the states of the run from the sequence
elements that the run reads. The states of the run are therefore replaced by parts of the operator's result. The search needs
only the definition, and therefore recognizes every operator that is defined by a recurrence.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.algebra.operators import apply, replace_subterms
from superopt.algebra.terms import Term, subterms, variable
from superopt.errors import ShapeError
from superopt.policy import SEARCH
from superopt.rules.fp_flags import FpMode
from superopt.rules.match import EMPTY, Binding, instantiate, match_term
from superopt.search.apply import State, Step, replaced_terms, run_time_terms
from superopt.search.linear import LinearForms
from superopt.search.ruleset import RuleSet
from superopt.search.sequence import Sequences, reshape_rewritten_term
from superopt.speclib.recurrence import Recurrence, recurrences

FIXED = frozenset({"mul", "sigmoid", "tanh"})
"""Operators whose number does not change when terms are rewritten to linear form (see `LinearForms`).

A model that contains the unrolled steps of a recurrence therefore contains each of these operators at least as often as the
steps.
"""
RANKS = (2, 3)
"""The ranks of a recurrence's state in a model. All axes before the last axis count as one axis of rows."""


@dataclass(frozen=True)
class Stage:
    """One step of a recurrence that is unrolled in a model.

    Attributes:
        x: the element of the sequence that the step reads.
        before: the states before the step.
        after: the states after the step.
        weights: the weights, with None for each missing bias.
    """

    x: Term
    before: tuple[Term, ...]
    after: tuple[Term, ...]
    weights: tuple[Term | None, ...]


def reroll_recurrences(start: State, rules: RuleSet) -> tuple[State, tuple[Step, ...]]:
    """Replace unrolled recurrences in the state by operators such as LSTM, and return the new state and the steps.

    Recurrences are replaced one after the other. Stacked layers are replaced too: after the first layer is replaced, its
    operator computes the sequence that the second layer reads. The state is returned unchanged if an extent is dynamic. The
    state is also returned unchanged in the precise floating-point mode, because the operator adds in a different order.
    """
    forms, sequences = LinearForms(rules), Sequences(rules)
    state, steps = start, list[Step]()
    exact = rules.gate is not None and rules.gate.mode is FpMode.PRECISE
    found = not exact and all(isinstance(n, int) for term in run_time_terms(start) for n in term.shape)
    while found:
        found = False
        for recurrence in filter(_occurs_in(state), recurrences()):
            wanted = _Roller(recurrence, state, forms, sequences).replacements()
            step = _taken(state, recurrence.name, wanted)
            if step is not None:
                state, found = step[0], True
                steps.append(step[1])
    for name, wanted in _restacked(state, sequences) if steps else ():
        step = _taken(state, name, wanted)
        if step is not None:
            state = step[0]
            steps.append(step[1])
    return state, tuple(steps)


def _taken(state: State, name: str, wanted: Mapping[Term, Term]) -> tuple[State, Step] | None:
    """Make the replacements `wanted`, and return the new state and the step.

    Returns None if `wanted` is empty or if the replacements form a cycle.
    """
    done = replaced_terms(state, wanted) if wanted else None
    if done is None:
        return None
    roots = tuple(root for root in wanted if root in done)
    return tuple(done[root] for root in state), Step(name, roots, tuple(done[root] for root in roots))


def _occurs_in(state: State) -> Callable[[Recurrence], bool]:
    """Return a function that tests whether the state has enough nonlinear operators for several steps of a recurrence."""
    there = Counter(term.op for term in run_time_terms(state))

    def occurs(recurrence: Recurrence) -> bool:
        return any(
            all(
                there[op] >= SEARCH.min_recurrence_steps * count
                for op, count in Counter(t.op for t in subterms(*step)).items()
                if op in FIXED
            )
            for step in _patterns(recurrence)
        )

    return occurs


class _Roller:
    """The search for runs of one recurrence in a state. A run is a sequence of steps with the same weights."""

    def __init__(self, recurrence: Recurrence, state: State, forms: LinearForms, sequences: Sequences) -> None:
        self.recurrence, self.state, self.sequences = recurrence, state, sequences
        self.live = run_time_terms(state)
        self.origin: dict[Term, Term] = {}
        self.twins: dict[Term, list[Term]] = {}
        for term in self.live:
            form = forms.form(term)
            self.origin.setdefault(form, term)
            self.twins.setdefault(form, []).append(term)
        self.users: dict[Term, set[Term]] = {}
        for term in self.live:
            for arg in term.args:
                self.users.setdefault(arg, set()).add(term)

    def replacements(self) -> dict[Term, Term]:
        """Find the longest run of steps. Return a mapping from the states of the run to their replacements.

        A run is a sequence of steps with the same weights. Among runs of equal length, the first run is used. If there is no
        run, the mapping is empty.
        """
        run = max(filter(self._is_free, self._runs()), key=len, default=[])
        return self._rolled(run) if len(run) >= SEARCH.min_recurrence_steps else {}

    def _runs(self) -> Iterator[list[Stage]]:
        """Yield the runs (sequences of consecutive steps of the recurrence), in the order of the runs' first steps."""
        stages = [stage for form in self.twins for stage in stages_at(form, self.recurrence)]
        by_start: dict[tuple[object, ...], Stage] = {}
        for stage in stages:
            by_start.setdefault((stage.before, stage.weights), stage)
        ends = {(stage.after, stage.weights) for stage in stages}
        for stage in stages:
            if (stage.before, stage.weights) not in ends:
                run = [stage]
                while (following := by_start.get((run[-1].after, stage.weights))) is not None:
                    if not self._only_passed_on(run[-1], following):
                        break
                    run.append(following)
                yield run

    def _is_free(self, run: Sequence[Stage]) -> bool:
        """Return whether all sequence elements that the run reads are independent of the states in the run."""
        made = {stage.after[0] for stage in run}
        stack, met = [stage.x for stage in run], set[Term]()
        while stack:
            term = stack.pop()
            if term in made:
                return False
            if term not in met and not term.constant:
                met.add(term)
                stack += term.args
        return True

    def _only_passed_on(self, stage: Stage, following: Stage) -> bool:
        """Return whether only two consecutive recurrence steps use the states between the two steps.

        The first step is `stage`, and the second step is `following`. The first of the states is an exception: this state may
        also be used elsewhere. The terms that the first step computes from the remaining states must not be used elsewhere
        either.
        """
        inside = _between(stage)
        made = {*stage.after[1:]}
        for term in inside:
            if made.intersection(term.args):
                made.add(term)
        own = {twin for form in (*inside, *_between(following)) for twin in self.twins.get(form, ())}
        passed = (twin for form in made - {stage.after[0]} for twin in self.twins.get(form, ()))
        return all(twin not in self.state and self.users.get(twin, set()) <= own for twin in passed)

    def _rolled(self, run: Sequence[Stage]) -> dict[Term, Term]:
        """Replace the states of the recurrence steps in `run`. Return a mapping from states to replacements.

        Each replacement is a part of the result of an operator such as LSTM.
        """
        recurrence, first = self.recurrence, run[0]
        rows, width = math.prod(first.x.sizes[:-1]), first.before[0].sizes[-1]
        elements = [self.origin.get(stage.x, stage.x) for stage in run]
        x = self.sequences.of(elements, (len(run), rows, first.x.sizes[-1]))
        parts = dict(zip(recurrence.names, first.weights, strict=True))
        matrices = [_beside([w for name in names if (w := parts[name])]) for names in recurrence.weights.values()]
        rows_of = [_beside([_row(parts[name], width) for name in names]) for names in recurrence.biases.values()]
        operands = [
            x,
            *matrices,
            *rows_of,
            *(reshape_rewritten_term(self.origin.get(s, s), (rows, width)) for s in first.before),
        ]
        every = apply(recurrence.every, *operands)
        cut = [apply("slice", every, axis=0, start=n, stop=n + 1) for n in range(len(run))]
        whole = [apply(name, *operands) for name in recurrence.last]
        wanted = [*zip((stage.after[0] for stage in run), cut, strict=True), *zip(run[-1].after[1:], whole, strict=True)]
        return {twin: reshape_rewritten_term(term, twin.sizes) for state, term in wanted for twin in self.twins.get(state, ())}


def _between(stage: Stage) -> list[Term]:
    """Return the terms that the recurrence step `stage` computes from its sequence element and the previous states.

    Operands come before users.
    """
    done = {stage.x, *stage.before}
    found: list[Term] = []
    stack = [*stage.after]
    while stack:
        term = stack[-1]
        waiting = [a for a in term.args if a not in done and not a.constant]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if term not in done:
            done.add(term)
            found.append(term)
    return found


def stages_at(term: Term, recurrence: Recurrence) -> Iterator[Stage]:
    """Yield each step of the recurrence (such as one time step of an LSTM) whose first new state is `term`.

    `term` must be in linear form (see `LinearForms`).
    """
    for states in _patterns(recurrence):
        if states[0].op != term.op or states[0].rank != term.rank:
            continue
        for binding in _matches(_outline(states[0]), term):
            stage = _stage(states, term, binding, recurrence)
            if stage is not None:
                yield stage


@functools.cache
def _outline(pattern: Term) -> tuple[tuple[str, Term], ...]:
    """Split a pattern at its shared terms, for matching one part after the other.

    A shared term occurs more than once in the pattern. The result starts with the pattern, in which a named variable stands for
    each shared term. Then the result lists the shared terms, each with the name of its variable. Each shared term, such as a
    sum, is therefore matched only once.
    """
    inside = subterms(pattern)
    uses = Counter(a for term in inside for a in term.args)
    shared = [t for t in reversed(inside) if uses[t] > 1 and not t.is_variable and not t.constant and t.args]
    names = {t: variable(f"#{n}", t.rank) for n, t in enumerate(shared)}

    def written(root: Term) -> Term:
        return replace_subterms(root, {t: name for t, name in names.items() if t is not root})

    return (("", written(pattern)), *((names[t].name, written(t)) for t in shared))


def _matches(outline: Sequence[tuple[str, Term]], term: Term, known: Binding = EMPTY) -> Iterator[Binding]:
    """Yield every binding of variables under which the split pattern `outline` (see `_outline`) matches the term."""
    if not outline:
        yield known
        return
    (name, pattern), *rest = outline
    for binding in match_term(pattern, known.tensors.get(name, term), known):
        yield from _matches(rest, term, binding)


def _stage(states: Sequence[Term], term: Term, binding: Binding, recurrence: Recurrence) -> Stage | None:
    """Return the step of the recurrence with the variables of `states` bound by `binding`.

    Returns None if the step does not compute `term`, or if the weights of the step do not have the form that an operator needs.
    """
    cache: dict[Term, Term] = {}
    try:
        after = tuple(instantiate(state, binding, cache) for state in states)
    except ShapeError:
        return None
    tensors = binding.tensors
    before = tuple(tensors[name] for name in recurrence.states)
    weights = tuple(tensors.get(name) for name in recurrence.names)
    rows = weights[-len(weights) + sum(map(len, recurrence.weights.values())) :]
    fitting = all(w is None or w.constant for w in weights) and all(w is None or _is_row(w) for w in rows)
    same = (
        after[0] is term
        and all(s.shape == term.shape for s in (*before, *after))
        and term.shape[:-1] == tensors["x"].shape[:-1]
    )
    return Stage(tensors["x"], before, after, weights) if same and fitting else None


@functools.cache
def _patterns(recurrence: Recurrence) -> tuple[tuple[Term, ...], ...]:
    """Return the states after one step of the recurrence as terms, for each rank in `RANKS`, with and without biases."""
    vectors = [name for names in recurrence.biases.values() for name in names]
    found: list[tuple[Term, ...]] = []
    for rank, text in itertools.product(RANKS, (recurrence.step, *recurrence.equals)):
        operands = {name: variable(name, rank) for name in ("x", *recurrence.states, *vectors)}
        operands.update((name, variable(name, 2, constant=True)) for name in recurrence.names if name not in operands)
        states = recurrence.after(operands, text)
        found.append(states)
        bare = {term: _without(term, {operands[name] for name in vectors}) for term in subterms(*states) if term.op == "add"}
        found.append(tuple(replace_subterms(state, {t: b for t, b in bare.items() if t is not b}) for state in states))
    return tuple(found)


def _without(term: Term, operands: set[Term]) -> Term:
    """Return the sum `term` without the operands that are in `operands`."""
    rest = [a for a in term.args if a not in operands]
    return apply(term.op, *rest) if len(rest) > 1 else rest[0]


def _is_row(term: Term) -> bool:
    """Return whether all rows of the constant are known to be equal."""
    if math.prod(term.sizes[:-1]) == 1:
        return True
    match term.op:
        case "expand":
            return term["axes"] == (-1,)
        case "add" | "scale" | "mul" | "sub":
            return all(map(_is_row, term.args))
        case "slice":
            return term["axis"] == -1 and _is_row(term.args[0])
        case _:
            return term.op in ("zeros", "ones")


def _row(bias: Term | None, width: int) -> Term:
    """Return one row of a bias whose rows are all equal. If there is no bias, return zeros."""
    if bias is None:
        return apply("zeros", shape=(width,))
    if bias.op == "expand" and bias["axes"] == (-1,):
        return bias.args[0]
    for axis in range(-bias.rank, -1):
        bias = apply("slice", bias, axis=axis, start=0, stop=1) if bias.sizes[axis] > 1 else bias
    return reshape_rewritten_term(bias, (width,))


def _beside(parts: Sequence[Term]) -> Term:
    """Return the concatenation of the parts along the last axis."""
    return functools.reduce(lambda rest, part: apply("concat", part, rest, axis=-1), reversed(parts))


def _restacked(state: State, sequences: Sequences) -> Iterator[tuple[str, dict[Term, Term]]]:
    """For each concatenation of consecutive slices of one term, yield the name of a rule and the replacement.

    The replacement transposes or reshapes the sliced term. The rule is the last rule that joined slices.
    """
    live = run_time_terms(state)
    inner = {a for t in live if t.op == "concat" for a in t.args if a.op == "concat" and a["axis"] == t["axis"]}
    for term in live:
        if term.op == "concat" and term not in inner:
            axis = term.integer("axis")
            parts = _parts(term, axis)
            whole = sequences.whole(parts) if all(p.sizes[axis] == 1 for p in parts) else None
            if whole is not None:
                yield whole.rule, {term: whole.moved(term.sizes, axis + term.rank)}


def _parts(term: Term, axis: int) -> list[Term]:
    """Return the parts of nested concatenations along the axis, first to last."""
    found, stack = list[Term](), [term]
    while stack:
        top = stack.pop()
        if top.op == "concat" and top["axis"] == axis:
            stack += reversed(top.args)
        else:
            found.append(top)
    return found
