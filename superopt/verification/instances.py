"""A matcher that decides whether a step, which replaces terms, is an instance of a stored rule.

The matcher is written for readability, not speed: the matcher tries every assignment of operands to a pattern. A condition on
dynamic dimensions must hold at many random sizes. The search, in contrast, proves such a condition for all sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from superopt.algebra.operators import apply, operator, replace_subterms
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Cond,
    Dim,
    Extent,
    Size,
    Sym,
    Term,
    atoms,
    size,
    substitute,
    substitute_attribute,
    substitute_cond,
    subterms,
)
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation
from superopt.policy import VERIFY
from superopt.rules.rule import Rule


@dataclass(frozen=True)
class StepBinding:
    """The values of a rule's variables.

    Attributes:
        tensors: The term of each tensor variable.
        numbers: The value of each attribute variable.
        open: Equations that must still be solved: pairs of an attribute in the rule and an attribute in the matched term.
    """

    tensors: Mapping[str, Term]
    numbers: Mapping[str, Extent]
    open: tuple[tuple[Extent, Extent], ...] = ()

    def value(self, atom: Atom) -> Extent | None:
        """Return the value of a dimension or attribute variable of the rule. If the value is unknown, return None."""
        if isinstance(atom, Dim):
            tensor = self.tensors.get(atom.tensor)
            return None if tensor is None else tensor.shape[atom.axis]
        return self.numbers.get(atom.name) if isinstance(atom, Sym) else None


def is_instance(rule: Rule, roots: Sequence[Term], replacements: Sequence[Term], state: Sequence[Term]) -> bool:
    """Return whether a step that replaces terms is an instance of the rule.

    The replaced terms are called roots. All roots are replaced at once. A replacement may contain the replacements of other
    roots.

    Args:
        rule: The rule.
        roots: The terms that the step replaces.
        replacements: The new term for each root.
        state: The terms before the step. If the rule has several outputs, the second and later outputs may match any of these
            terms.
    """
    wanted = dict(zip(roots, replacements, strict=True))
    shown: dict[Term, Term] = {}
    for equation in rule.equations:
        for root in roots:
            if root in shown:
                continue
            for several in _results(equation, root, state):
                for one, new in several:
                    if one in wanted and one not in shown and _is(new, wanted[one], wanted):
                        shown[one] = new
                if root in shown:
                    break
        if len(shown) == len(wanted):
            return all(shown[root] is wanted[root] for root in wanted) or _together(shown, wanted)
    return False


def _is(new: Term, replacement: Term, wanted: Mapping[Term, Term]) -> bool:
    """Return whether the terms `new` and `replacement` are equal, or become equal when a step's replacements are made in `new`.

    A root is a term that the step replaces. `new` is the rule's result for one root, and `replacement` is the term by which the
    step replaces this root. Other roots may occur in `new`, and the step replaces these roots too. `wanted` contains the
    replacement of each root.
    """
    if new is replacement:
        return True
    try:
        return replace_subterms(new, dict(wanted)) is replacement
    except ShapeError:
        return False


def _together(shown: Mapping[Term, Term], wanted: Mapping[Term, Term]) -> bool:
    """Return whether the rule's results give the replacement of each root.

    A root is a term that the step replaces. The rule's result for a root may contain other roots. Such roots are replaced by
    the rule's results for these roots, until no root is left. The final term for each root must be the replacement of this
    root.

    Args:
        shown: The rule's result for each root.
        wanted: The replacement of each root.

    Returns:
        False if a final term differs from the replacement of its root, or if a result contains its own root, directly or
        through other results.
    """
    done: dict[Term, Term] = {}
    under_way: set[Term] = set()

    def made(term: Term) -> Term | None:
        if term in done:
            return done[term]
        if term in under_way:
            return None
        under_way.add(term)
        inner = shown.get(term)
        if inner is not None:
            found = made(inner) if inner is not term else term
        elif term.is_variable:
            found = term
        else:
            args = [made(a) for a in term.args]
            try:
                found = None if None in args else apply(term.op, *(a for a in args if a is not None), **dict(term.attributes))
            except ShapeError:
                found = None
        under_way.discard(term)
        if found is not None:
            done[term] = found
        return found

    return all(made(root) is wanted[root] for root in wanted)


def _results(equation: Equation, root: Term, state: Sequence[Term]) -> Iterator[list[tuple[Term, Term]]]:
    """Yield the matches of the equation at `root`.

    A match is a list of pairs. Each pair contains a replaced term and its new term. The list has one pair for each output of
    the equation. The first output of the left side matches `root`. The other outputs match any terms of `state`, the terms
    before the step.
    """
    tries = itertools.count()
    for binding, rest in _outputs(equation.left[0], root, StepBinding({}, {})):
        for full, roots, rests in _further(equation, 1, binding, (root,), (rest,), state):
            if next(tries) > VERIFY.max_match_tries:
                return
            solved = _solved(full)
            if solved is None or not _holds(substitute_cond(equation.where, solved.value)):
                continue
            try:
                left = [_with_rest(_instance(t, solved), rest) for t, rest in zip(equation.left, rests, strict=True)]
                right = [
                    _with_rest(_instance(t, solved), rest, like=one.op)
                    for t, rest, one in zip(equation.right, rests, equation.left, strict=True)
                ]
            except (ShapeError, ZeroDivisionError, KeyError):
                continue
            same_shapes = all(new.shape == old.shape for new, old in zip(right, roots, strict=True))
            if all(a is b for a, b in zip(left, roots, strict=True)) and same_shapes and _typed(right, roots):
                yield list(zip(roots, right, strict=True))


def _further(
    equation: Equation,
    place: int,
    binding: StepBinding,
    roots: tuple[Term, ...],
    rests: tuple[tuple[Term, ...], ...],
    state: Sequence[Term],
) -> Iterator[tuple[StepBinding, tuple[Term, ...], tuple[tuple[Term, ...], ...]]]:
    """Extend a match of the first outputs of a rule to all outputs, and yield each complete match.

    Each unmatched output may match any term of `state` that no other output matches.

    Args:
        equation: The rule.
        place: The index of the first unmatched output.
        binding: The values of the rule's variables.
        roots: The term that each matched output matches.
        rests: The unmatched operands of each term in `roots`.
        state: The terms before the step, which the remaining outputs may match.
    """
    if place == len(equation.left):
        yield binding, roots, rests
        return
    pattern = equation.left[place]
    for term in state:
        if term.op == pattern.op and term not in roots:
            for found, rest in _outputs(pattern, term, binding):
                yield from _further(equation, place + 1, found, (*roots, term), (*rests, rest), state)


def _outputs(pattern: Term, term: Term, binding: StepBinding) -> Iterator[tuple[StepBinding, tuple[Term, ...]]]:
    """Yield the matches of a rule's output with a term. Each match comes with the unmatched operands of the term.

    Only the pattern of a commutative operator, such as a sum, may leave operands of the term unmatched.
    """
    if not pattern.is_variable and pattern.op == term.op and operator(pattern.op).commutative:
        yield from _some(list(pattern.args), list(term.args), binding)
    else:
        yield from ((found, ()) for found in _matches(pattern, term, binding))


def _matches(pattern: Term, term: Term, binding: StepBinding) -> Iterator[StepBinding]:
    if pattern.is_variable:
        known = binding.tensors.get(pattern.name)
        if known is None and pattern.rank == term.rank:
            yield StepBinding({**binding.tensors, pattern.name: term}, binding.numbers, binding.open)
        elif known is term:
            yield binding
        return
    if pattern.op != term.op:
        return
    bound = _attributes(pattern, term, binding)
    if bound is None:
        return
    if operator(pattern.op).commutative:
        yield from _whole(pattern.op, list(pattern.args), list(term.args), bound)
    else:
        yield from _in_turn(pattern.args, term.args, bound)


def _in_turn(patterns: Sequence[Term], terms: Sequence[Term], binding: StepBinding) -> Iterator[StepBinding]:
    if len(patterns) != len(terms):
        return
    if not patterns:
        yield binding
        return
    for found in _matches(patterns[0], terms[0], binding):
        yield from _in_turn(patterns[1:], terms[1:], found)


def _some(patterns: list[Term], terms: list[Term], binding: StepBinding) -> Iterator[tuple[StepBinding, tuple[Term, ...]]]:
    """Match each pattern with a different operand in `terms`, and yield each match with the unmatched operands."""
    if not patterns:
        yield binding, tuple(terms)
        return
    patterns = sorted(patterns, key=lambda p: p.is_variable)
    for place, term in enumerate(terms):
        if term in terms[:place]:
            continue
        for found in _matches(patterns[0], term, binding):
            yield from _some(patterns[1:], terms[:place] + terms[place + 1 :], found)


def _whole(op: str, patterns: list[Term], terms: list[Term], binding: StepBinding) -> Iterator[StepBinding]:
    """Yield every way to match the patterns with all operands of a commutative operator.

    One variable among the patterns may match several operands.
    """
    for found, rest in _some(patterns, terms, binding):
        if not rest:
            yield found
    if len(terms) <= len(patterns):
        return
    for place, one in enumerate(patterns):
        if one.is_variable:
            for found, rest in _some(patterns[:place] + patterns[place + 1 :], terms, binding):
                yield from _matches(one, apply(op, *rest), found)


def _attributes(pattern: Term, term: Term, binding: StepBinding) -> StepBinding | None:
    numbers, pairs = dict(binding.numbers), list(binding.open)
    have = dict(term.attributes)
    for name, want in pattern.attributes:
        value = have.get(name)
        if isinstance(want, tuple) != isinstance(value, tuple) or value is None:
            return None
        several = zip(want, value, strict=False) if isinstance(want, tuple) and isinstance(value, tuple) else [(want, value)]
        if isinstance(want, tuple) and isinstance(value, tuple) and len(want) != len(value):
            return None
        for one, other in several:
            if not isinstance(one, Size):
                if one != other or isinstance(one, bool) != isinstance(other, bool):
                    return None
            elif isinstance(other, str | tuple):
                return None
            else:
                symbol = _symbol(one)
                if symbol is None:
                    pairs.append((one, other))
                elif numbers.setdefault(symbol, other) != other:
                    return None
    return StepBinding(binding.tensors, numbers, tuple(pairs))


def _symbol(extent: Size) -> str | None:
    """If the extent (a symbolic number) is just an attribute variable, return the variable's name. Otherwise, return None."""
    found = [a for a in extent.atoms() if isinstance(a, Sym)]
    return found[0].name if len(found) == 1 and size(found[0]) == extent else None


def _solved(binding: StepBinding) -> StepBinding | None:
    """Solve the open equations between attributes, and return the binding with the values of all unknowns.

    The result is None if an equation is false. The result is also None if an unknown cannot be computed from a linear equation
    in this unknown alone.
    """
    numbers, pairs = dict(binding.numbers), list(binding.open)
    known = StepBinding(binding.tensors, numbers)
    while pairs:
        left: list[tuple[Extent, Extent]] = []
        for want, have in pairs:
            reduced = substitute(want, known.value)
            unknown = [a for a in (atoms(reduced) if isinstance(reduced, Size) else ()) if isinstance(a, Sym)]
            if not unknown:
                if reduced != have:
                    return None
            elif len(set(unknown)) == 1 and (value := _linear(reduced, unknown[0], have)) is not None:
                numbers[unknown[0].name] = value
            else:
                left.append((want, have))
        if len(left) == len(pairs):
            return None
        pairs = left
    return known


def _linear(extent: Extent, unknown: Sym, value: Extent) -> Extent | None:
    """Return the value of `unknown` at which the extent equals `value`.

    The result is None if the extent is not linear in `unknown`, or if the value of an integer unknown is not an integer.
    """

    def filled(number: int) -> Extent:
        return substitute(extent, lambda a: number if a == unknown else None)

    at = [filled(number) for number in (0, 1, 2)]
    slope = at[1] - at[0]
    if at[2] - at[1] != slope or isinstance(slope, Size) or not slope:
        return None
    difference = value - at[0]
    if unknown.real:
        return difference * (1 / Fraction(slope)) if not isinstance(slope, float) else difference * (1 / slope)
    if isinstance(difference, Size):
        return difference * slope if abs(slope) == 1 else None
    quotient, remainder = divmod(difference, slope)
    return int(quotient) if not remainder else None


def _instance(term: Term, binding: StepBinding) -> Term:
    done: dict[Term, Term] = {}
    for part in subterms(term):
        if part.is_variable:
            done[part] = binding.tensors[part.name]
        else:
            attributes: dict[str, Attribute] = {k: substitute_attribute(v, binding.value) for k, v in part.attributes}
            done[part] = apply(part.op, *(done[a] for a in part.args), **attributes)
    return done[term]


def _with_rest(term: Term, rest: tuple[Term, ...], like: str = "") -> Term:
    return apply(like or term.op, term, *rest) if rest else term


def _holds(condition: Cond) -> bool:
    """Return whether a condition is true. A condition on dynamic dimensions must be true at many random sizes."""
    if isinstance(condition, bool):
        return condition
    rng = np.random.default_rng(0)
    for turn in range(VERIFY.condition_draw_count):
        known: dict[Atom, int] = {}

        def value(atom: Atom, known: dict[Atom, int] = known, turn: int = turn) -> Extent | None:
            if not isinstance(atom, Dim | Sym):
                return None
            return known.setdefault(atom, 1 + turn % 5 if turn < 5 else int(rng.integers(1, 200)))

        if substitute_cond(condition, value) is not True:
            return False
    return True


def _typed(results: Sequence[Term], roots: Sequence[Term]) -> bool:
    """Return whether the new terms `results` are well typed at all sizes at which the old terms `roots` are well typed.

    A new term may require a condition on sizes that no old term requires. Such a condition must hold at many random sizes.
    """
    old = {*subterms(*roots)}
    given = {c for t in old for c in t.requires}
    return all(c in given or _holds(c) for t in subterms(*results) if t not in old for c in t.requires)
