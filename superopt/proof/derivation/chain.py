"""Chains from a congruence closure: sequences of rule instances that lead from one term to an equal term.

The replacement of a subterm is one step of the whole term, so a chain contains no separate steps for congruence. A chain also
contains no steps for associativity and commutativity of sums and products, because terms have both laws built in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term
from superopt.errors import ShapeError
from superopt.notation.printing import render_terms
from superopt.policy import PROOF
from superopt.proof.axioms.closure import Closure, Congruence, Given, Reason, Regrouping


@dataclass(frozen=True)
class ChainStep:
    """One application of a rule: the instance of the rule, the direction of the replacement, and the term after the step."""

    rule: str
    instance: str
    forwards: bool
    term: str

    def __str__(self) -> str:
        return f"== {self.term}    by {self.instance}{'' if self.forwards else ', backwards'}"


@dataclass(frozen=True)
class Chain:
    """A derivation of one equation: for each output, the left side's term and the steps that lead to the right side's term.

    If an output has no steps, the terms of the two sides are the same.
    """

    ranks: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, tuple[ChainStep, ...]], ...]

    @property
    def steps(self) -> tuple[ChainStep, ...]:
        """The steps of the derivation for all outputs of the equation, one output after another."""
        return tuple(step for _, steps in self.outputs for step in steps)

    @property
    def rules(self) -> tuple[str, ...]:
        """The distinct names of the rules that the steps use, in alphabetical order."""
        return tuple(sorted({step.rule for step in self.steps}))

    def lines(self) -> Iterator[str]:
        """Yield the chain as text, one line for each term."""
        for start, steps in self.outputs:
            yield start
            yield from map(str, steps)


@dataclass(frozen=True)
class Move:
    """A step between two terms.

    `forwards` is True if the step replaces the left side of the rule instance `given` with the right side.
    """

    before: Term
    given: Given
    forwards: bool
    after: Term


def linear_steps(closure: Closure, start: Term, goal: Term) -> tuple[ChainStep, ...]:
    """Return the steps from `start` to `goal`. The two terms must be equal in the closure.

    Raises:
        ShapeError: There are more than `PROOF.max_chain_length_steps` steps.
    """
    steps: list[ChainStep] = []
    for move in _Walk(closure).between(start, goal):
        if move.before is not move.after:
            text = move.given.text
            steps.append(ChainStep(text.partition("(")[0], text, move.forwards, render_terms(move.after)))
        if len(steps) > PROOF.max_chain_length_steps:
            raise ShapeError(f"the chain of axiom instances has more than {PROOF.max_chain_length_steps} steps")
    return tuple(steps)


class _Walk:
    """Paths through the proof forest of a congruence closure, written as steps from term to term."""

    def __init__(self, closure: Closure) -> None:
        self.closure = closure

    def between(self, one: Term, other: Term) -> Iterator[Move]:
        """Yield, in order, the steps that lead from `one` to `other`. The terms must be equal in the closure."""
        for here, there, reason in self.closure.path(one, other):
            yield from self._edge(here, there, reason)

    def _edge(self, here: Term, there: Term, reason: Reason) -> Iterator[Move]:
        match reason:
            case Given():
                yield Move(here, reason, here is reason.left, there)
            case Congruence(pairs):
                if Counter(p for p, _ in pairs) != Counter(here.args):
                    pairs = tuple((q, p) for p, q in pairs)
                yield from self._operands(here, pairs)
            case Regrouping((node, _, new), pairs):
                moves = self._regrouped(node, pairs)
                yield from moves if here is node else _reversed(tuple(moves))
                assert {here, there} == {node, new}

    def _operands(self, term: Term, pairs: Sequence[tuple[Term, Term]]) -> Iterator[Move]:
        """Yield the steps that replace the term's operands one by one. Each pair contains an operand and its replacement."""
        args = list(term.args)
        for old, new in pairs:
            place = args.index(old)

            def around(operand: Term, place: int = place) -> Term:
                return apply(term.op, *args[:place], operand, *args[place + 1 :], **dict(term.attributes))

            yield from self._inside(old, new, around)
            args[place] = new

    def _regrouped(self, node: Term, pairs: Sequence[tuple[Term, Term]]) -> Iterator[Move]:
        """Yield the steps that replace operands of a sum or product.

        Each pair contains the replaced term and the new term. The replaced term is an operand of `node`, or the sum (or
        product) of several operands of `node`.
        """
        rest = list(node.args)
        for old, new in pairs:
            for operand in old.args if old not in rest and old.op == node.op else (old,):
                rest.remove(operand)

            def around(operand: Term, others: tuple[Term, ...] = tuple(rest)) -> Term:
                return apply(node.op, operand, *others) if others else operand

            yield from self._inside(old, new, around)
            rest += new.args if new.op == node.op else (new,)

    def _inside(self, old: Term, new: Term, around: Callable[[Term], Term]) -> Iterator[Move]:
        for move in self.between(old, new):
            yield replace(move, before=around(move.before), after=around(move.after))


def _reversed(moves: Sequence[Move]) -> Iterator[Move]:
    for move in reversed(moves):
        yield Move(move.after, move.given, not move.forwards, move.before)
