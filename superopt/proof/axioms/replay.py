"""Proof checking without a search: Z3 shows that the ground instances in a ledger make both sides of a rule equal.

First, every instance is parsed again from its text. The conditions of the instance must follow from the conditions of the rule.
The remaining problem for Z3 contains no quantifiers. Tensors are an uninterpreted sort. Every operator is an uninterpreted
function of tensors and of the numbers in its attributes. Sums and products of tensors are binary functions. Each product of
sizes is an unknown of linear arithmetic.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import z3

from superopt.algebra.operators import operator
from superopt.algebra.substitution import sole_atom
from superopt.algebra.terms import Attribute, Compare, Cond, Extent, Monomial, Size, Term, subterms
from superopt.errors import NotationError, ShapeError, SpecError
from superopt.notation.parsing import Equation
from superopt.policy import PROOF
from superopt.proof.axioms.ground import Ground, read_ground
from superopt.proof.definedness import defined_instances, undefined_somewhere
from superopt.proof.definitions.arithmetic import is_valid, isolated_solver
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.definitions.batching import claim_without_factors, representatives
from superopt.rules.rule import Rule
from superopt.rules.verdict import Proved, Unknown, Verdict

TENSOR = z3.DeclareSort("Tensor")


def replay_proof(rule: Rule, instances: Sequence[str]) -> Verdict:
    """Check that the axiom instances prove the rule at all of its ranks and axes.

    Return `Unknown` if the instances do not prove the rule. The result is also `Unknown` if the conditions of some instance
    hold at none of the checked ranks and axes.
    """
    found = shorten_proof(rule, instances)
    if isinstance(found, Proved) and len(found.instances) < len(instances):
        text = next(text for text in instances if text not in found.instances)
        return Unknown(
            f"the conditions of the axiom instance {text} do not follow at any of the checked ranks", found.milliseconds
        )
    return found


def shorten_proof(rule: Rule, instances: Sequence[str]) -> Verdict:
    """Check that the axiom instances prove the rule at all of its ranks and axes. Return `Proved` or `Unknown`.

    `Proved` contains only the instances whose conditions hold at some of the checked ranks and axes. A choice of ranks and axes
    is not checked if the rule at this choice follows from the rule at another choice.
    """
    started = time.perf_counter()
    used: set[str] = set()
    for equation in representatives(rule.equations):
        try:
            grounds = check_instances(Assumptions(equation), instances)
        except ShapeError as error:
            grounds = str(error)
        if isinstance(grounds, str):
            return Unknown(f"{_at(equation)}{grounds}", _since(started))
        used.update(g.text for g in grounds)
    return proved_verdict((text for text in instances if text in used), _since(started))


def proved_verdict(instances: Iterable[str], milliseconds: float) -> Proved:
    """Return the verdict `Proved` with these instances and the names of their axioms."""
    texts = tuple(instances)
    names = tuple(sorted({text.partition("(")[0] for text in texts}))
    return Proved(milliseconds, axioms=names, instances=texts, kind="axioms")


@isolated_solver()
def check_instances(assumptions: Assumptions, instances: Sequence[str]) -> list[Ground] | str:
    """Check with Z3 that the axiom instances imply the equation.

    If the instances imply the equation, return the instances that hold at the equation's ranks and axes. Otherwise return the
    reason for the failure. Instances that are ill typed or do not hold at these ranks and axes are ignored.
    """
    objection = type_objection(assumptions)
    if objection:
        return objection
    grounds: list[Ground] = []
    for text in instances:
        try:
            ground = read_ground(text, assumptions)
        except ShapeError:
            continue
        except (NotationError, SpecError) as error:
            return str(error)
        if is_sound(ground, assumptions):
            grounds.append(ground)
    if undefined_somewhere(assumptions):
        return "the right side is not shown to be defined wherever the left side is"
    grounds = defined_instances(assumptions, grounds)
    derivation = Derivation(goals_of(assumptions), grounds)
    return grounds if derivation.follows(grounds) else "Z3 does not derive the equation from the instances of axioms that hold"


def goals_of(assumptions: Assumptions) -> tuple[tuple[Term, Term], ...]:
    """Return the goals. A goal is a pair: an output of the left side, and the corresponding output of the right side."""
    return tuple(zip(assumptions.left, assumptions.right, strict=True))


def minimal_instances(assumptions: Assumptions, grounds: Sequence[Ground]) -> list[Ground]:
    """Return a minimal subset of the axiom instances that implies the equation.

    The function tries to remove each instance, from the last instance to the first instance.
    """
    kept = list(grounds)
    if len(kept) == 1 and all(len(t.args) <= 2 for t in _sums((*assumptions.left, *assumptions.right))):
        return kept
    derivation = Derivation(goals_of(assumptions), grounds)
    for ground in reversed(grounds):
        fewer = [g for g in kept if g is not ground]
        if derivation.follows(fewer) and len(defined_instances(assumptions, fewer)) == len(fewer):
            kept = fewer
    return kept


def type_objection(assumptions: Assumptions) -> str | None:
    """Check that the right side is well typed and has the left side's shape wherever the left side is well typed.

    Return None if the check succeeds. Otherwise return the reason for the failure.
    """
    if not all(_divided(known, claim) or is_valid(known, claim) for known, claim in assumptions.divisions):
        return "the conditions on the sizes of the rule cannot be solved for single sizes"
    if not all(map(assumptions.typed, assumptions.right)):
        return "the right side is not shown to be well typed wherever the left side is"
    if not all(map(assumptions.alike, assumptions.left, assumptions.right)):
        return "the sides are not shown to have the same shape"
    return None


def _divided(known: Iterable[Cond], claim: Cond) -> bool:
    """Return whether the claim is a known equality divided by factors that are at least 1.

    For example, dividing `a * n == b * n` by `n` gives `a == b`.
    """
    facts = [c for c in known if isinstance(c, Compare)]
    lowered = [c.left + 1 for c in facts if c.relation == ">="]
    positive = {a for e in lowered if isinstance(e, Size) and (a := sole_atom(e)) is not None}
    plain = claim_without_factors(claim, positive)
    return any(c.relation == "==" and claim_without_factors(c, positive) == plain for c in facts)


def is_sound(ground: Ground, assumptions: Assumptions) -> bool:
    """Return whether both sides of the axiom instance are well typed and have equal shapes wherever the proved rule applies."""
    terms = (ground.left, ground.right)
    return all(map(assumptions.typed, terms)) and assumptions.alike(*terms)


class Derivation:
    """A problem for Z3: whether instances of axioms imply the goals. A goal is a pair of terms that must be equal.

    Each query selects the instances that Z3 assumes.
    """

    def __init__(self, goals: Sequence[tuple[Term, Term]], grounds: Sequence[Ground]) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set("rlimit", PROOF.max_replay_steps)
        self._solver.add(z3.Or(*[_tensor(one) != _tensor(other) for one, other in goals]))
        sums = _sums(t for pair in goals for t in pair)
        for term in sums:
            self._solver.add(*_groupings(term))
        self._switches: dict[str, z3.BoolRef] = {}
        for ground in grounds:
            facts = [] if ground.left is ground.right else [_tensor(ground.left) == _tensor(ground.right)]
            for term in _sums((ground.left, ground.right)):
                facts += [] if term in sums else _groupings(term)
            switch = self._switches[ground.text] = z3.Bool(ground.text)
            self._solver.add(z3.Implies(switch, z3.And(*facts)))

    def follows(self, grounds: Sequence[Ground]) -> bool:
        """Return whether Z3 shows that the goals follow from these axiom instances."""
        return bool(self._solver.check(*[self._switches[g.text] for g in grounds]) == z3.unsat)


def _sums(roots: Iterable[Term]) -> dict[Term, None]:
    """Return the sums and products in the terms."""
    return {t: None for t in subterms(*roots) if not t.is_variable and operator(t.op).commutative}


# ---------------------------------------------------------------- terms as Z3 expressions


@functools.lru_cache(maxsize=PROOF.expression_cache_count)
def _tensor(term: Term) -> z3.ExprRef:
    if term.is_variable:
        return z3.Const(term.name, TENSOR)
    if operator(term.op).commutative:
        return _sum(term.op, term.args)
    numbers = [_number(extent) for _, value in term.attributes for extent in _extents(value)]
    operands = [_tensor(a) for a in term.args]
    if not operands and not numbers:
        return z3.Const(f"{term.op}()", TENSOR)
    lengths = "".join(f",{len(_extents(value))}" for _, value in term.attributes)
    sorts = [TENSOR] * len(operands) + [z3.RealSort()] * len(numbers)
    return z3.Function(f"{term.op}{lengths}", *sorts, TENSOR)(*operands, *numbers)


def _sum(op: str, operands: Sequence[Term]) -> z3.ExprRef:
    function = _binary(op)
    result = _tensor(operands[0])
    for operand in operands[1:]:
        result = function(result, _tensor(operand))
    return result


@functools.cache
def _binary(op: str) -> z3.FuncDeclRef:
    return z3.Function(op, TENSOR, TENSOR, TENSOR)


@functools.lru_cache(maxsize=PROOF.expression_cache_count)
def _groupings(term: Term) -> list[z3.BoolRef]:
    """Return formulas for associativity and commutativity.

    There is one formula for each way to split two or more operands of the sum (or product) into two parts.
    """
    function = _binary(term.op)
    return [
        _sum(term.op, whole) == function(_sum(term.op, one), _sum(term.op, other))
        for whole, one, other in _partitions(term.args)
    ]


def _partitions(operands: Sequence[Term]) -> Iterator[tuple[Sequence[Term], Sequence[Term], Sequence[Term]]]:
    """Yield every way to split a subset of the operands into two nonempty parts.

    Each yielded item contains the subset and its two parts. For each item, the item with the parts exchanged is also yielded.
    """
    places = range(len(operands))
    for count in range(2, len(operands) + 1):
        for whole in itertools.combinations(places, count):
            for taken in range(1, count):
                for one in itertools.combinations(whole, taken):
                    other = [p for p in whole if p not in one]
                    yield [operands[p] for p in whole], [operands[p] for p in one], [operands[p] for p in other]


def _extents(value: Attribute) -> Sequence[Extent]:
    assert not isinstance(value, str)
    return value if isinstance(value, tuple) else (value,)


@functools.lru_cache(maxsize=PROOF.expression_cache_count)
def _number(extent: Extent) -> z3.ArithRef:
    if not isinstance(extent, Size):
        return _constant(extent)
    return z3.Sum(*[_constant(c) * _unknown(m) if m else _constant(c) for m, c in extent.terms])


def _constant(number: Extent) -> z3.ArithRef:
    assert not isinstance(number, Size)
    fraction = Fraction(number)
    return z3.RatVal(fraction.numerator, fraction.denominator)


def _unknown(monomial: Monomial) -> z3.ArithRef:
    return z3.Real(" * ".join(str(atom) for atom in monomial))


def _at(equation: Equation) -> str:
    return f"at ranks {', '.join(f'{name}[{rank}]' for name, rank in equation.ranks)}: " if equation.ranks else ""


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
