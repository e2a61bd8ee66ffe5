"""The index prover: equations between terms, proved for all sizes from the definitions of their operators.

Both sides are evaluated to a normal form at one symbolic position, and their difference is shown to be zero. Where a group
count or a factor of a reshape defeats this, the proof is made for a stated set of its values, all other sizes symbolic.
Before a proof is tried and after one has failed, both sides are evaluated on random instances: a counterexample refutes the
equation, and one that has no instance is never called proved. Otherwise the answer is that it is not known.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Mapping

from superopt import index
from superopt.errors import InstantiationError
from superopt.extent import atoms_of
from superopt.graph import (
    Atom,
    Attribute,
    Cond,
    Dim,
    Floor,
    Size,
    Sym,
    Term,
    at_least,
    atoms,
    same,
    size,
    substitute,
    substitute_attribute,
    subterms,
    variables,
)
from superopt.op import operator
from superopt.prove.align import linear_in, quotients
from superopt.prove.arithmetic import valid
from superopt.prove.cancel import Cancellation
from superopt.prove.instance import conditions, solved_conditions
from superopt.prove.normal import (
    Guard,
    Normal,
    Sum,
    bound_in,
    extents_in,
    flattened,
    substitute_guard,
    substitute_sum,
    times,
)
from superopt.prove.sample import mismatch
from superopt.prove.simplify import one, quotient_range, quotient_value, split_index
from superopt.rule import Rule
from superopt.text import Equation
from superopt.verdict import Proved, Refuted, Unknown, Verdict, worst

FIRST_INSTANCES = 4
INSTANCES = 60
VALUES = (1, 2, 3, 4)
MOST_BOUNDED = 2
MOST_SPLITS = 6


def prove_axiom(rule: Rule, *, seed: int = 0) -> Verdict:
    """The verdict on a rule or axiom at all of its rank choices together, from the definitions alone."""
    return worst(prove_equation(equation, seed=seed) for equation in rule.equations)


def prove_equation(equation: Equation, *, seed: int = 0) -> Verdict:
    """The verdict on one equation, both sides taken to be well typed and its `where` to hold."""
    started = time.perf_counter()

    def spent() -> float:
        return (time.perf_counter() - started) * 1e3

    try:
        counterexample = mismatch(equation, instances=FIRST_INSTANCES, seed=seed)
        if counterexample is not None:
            return Refuted(counterexample, spent())
        attempt = Attempt(equation, {})
        if attempt.proved:
            return Proved(spent())
        counterexample = mismatch(equation, instances=INSTANCES, seed=seed + FIRST_INSTANCES)
    except InstantiationError as error:
        return Unknown(str(error), spent())
    if counterexample is not None:
        return Refuted(counterexample, spent())
    for chosen in _restrictions(attempt):
        choices = itertools.product(VALUES, repeat=len(chosen))
        if all(Attempt(equation, dict(zip(chosen, values, strict=True))).proved for values in choices):
            return Proved(spent(), tuple(f"{atom} in {', '.join(map(str, VALUES))}" for atom in chosen))
    return Unknown(attempt.reason, spent())


def _restrictions(attempt: Attempt) -> Iterator[tuple[Atom, ...]]:
    """Sets of unknowns to try small values of: group counts, then whatever the remaining quotients divide by."""
    groups = tuple(attempt.groups())
    divisors = tuple(a for a in attempt.divisors() if a not in groups)
    for chosen in (groups, divisors, groups + divisors):
        if 0 < len(chosen) <= MOST_BOUNDED:
            yield chosen


class Attempt:
    """One try to prove an equation, with some unknowns given values; `proved`, or else a `reason` why not."""

    def __init__(self, equation: Equation, values: Mapping[Atom, int]) -> None:
        self.equation = equation
        self.notation = Normal()
        self.work = Cancellation(self.notation)
        self.reason = ""
        roots = equation.left + equation.right
        dims = [Dim(v.name, axis) for v in variables(*roots) for axis in range(-v.rank, 0)]
        known: list[Cond] = [same(size(atom), value) for atom, value in values.items()]
        known += [*conditions(equation), *(at_least(size(d), 1) for d in dims)]
        self.solved, facts = solved_conditions(known)
        self.facts = _with_positive_quotients(tuple(facts))
        self.proved = False in facts or self._run()

    def _run(self) -> bool:
        tensors: dict[Term, index.Tensor] = {}
        with index.interpreted(self.notation):
            for term in subterms(*self.equation.left, *self.equation.right):
                tensors[term] = self._tensor(term, tensors)
            pairs = list(zip(self.equation.left, self.equation.right, strict=True))
            return all(self._equal(output, tensors[a], tensors[b]) for output, (a, b) in enumerate(pairs))

    def _tensor(self, term: Term, known: Mapping[Term, index.Tensor]) -> index.Tensor:
        if term.is_variable:
            return self.notation.read(term.name, tuple(substitute(e, self.solved.get) for e in term.shape))
        spec = operator(term.op)
        assert spec.definition is not None
        operands = [known[a] for a in term.args]
        if spec.commutative:
            return functools.reduce(spec.definition, operands)
        attributes: dict[str, Attribute] = {k: substitute_attribute(v, self.solved.get) for k, v in term.attributes}
        return spec.definition(*operands, **attributes)

    def _equal(self, output: int, left: index.Tensor, right: index.Tensor) -> bool:
        for axis, (here, there) in enumerate(zip(left.shape, right.shape, strict=True)):
            if not valid(self.facts, same(here, there)):
                self.reason = f"output {output}: extents {here} and {there} of axis {axis} are not shown to be equal"
                return False
        position = tuple(self.notation.fresh("i") for _ in left.shape)
        facts = self.facts
        for i, extent in zip(position, left.shape, strict=True):
            facts += tuple(c for c in (at_least(size(i), 0), at_least(extent - 1, size(i))) if c is not True)
        at = tuple(map(size, position))
        difference = flattened(left[at].tree) + times(flattened(right[at].tree), -1)
        facts, difference = self._split_positions(facts, difference, set(position))
        if self.work.zero(facts, difference):
            return True
        self.reason = f"output {output}: {len(self.work.remainder)} summands are left that do not cancel"
        return False

    def _split_positions(self, facts: Guard, value: Sum, position: set[Sym]) -> tuple[Guard, Sum]:
        """Positions i that stand in a quotient i // b become q * b + r with 0 <= r < b, which reaches all of them."""
        for _ in range(MOST_SPLITS):
            found = self._splittable(facts, value, position)
            if found is None:
                return facts, value
            quotient, i = found
            q, r = self.notation.fresh("i"), self.notation.fresh("i")
            whole, remainder = split_index(i, quotient, q, r)
            facts = (*substitute_guard(facts, one(i, whole)), *remainder)
            facts += tuple(quotient_range(facts, q))
            value = substitute_sum(value, one(i, whole))
            position = (position - {i}) | {q, r}
        return facts, value

    def _splittable(self, facts: Guard, value: Sum, position: set[Sym]) -> tuple[Floor, Sym] | None:
        bound = {k for s in value for k in bound_in(s)}
        for quotient in dict.fromkeys(quotients(e for s in value for e in extents_in(s))):
            if bound & {*atoms(quotient.numerator), *atoms(quotient.denominator)}:
                continue
            i = linear_in(quotient.numerator, lambda a: a in position)
            if i is None or set(atoms(quotient.denominator)) & position or quotient_value(facts, quotient) is not None:
                continue
            if valid(facts, at_least(quotient.denominator, 1)):
                return quotient, i
        return None

    def groups(self) -> Iterator[Atom]:
        """The unknown group counts."""
        found = (t["group"] for t in subterms(*self.equation.left, *self.equation.right) if dict(t.attributes).get("group"))
        yield from dict.fromkeys(a for g in found if isinstance(g, Size) for a in atoms(substitute(g, self.solved.get)))

    def divisors(self) -> Iterator[Atom]:
        """Unknowns by which quotients divide in what was left over."""
        found = quotients(e for s in self.work.remainder for e in extents_in(s))
        named = (a for q in found for a in atoms(q.denominator) if isinstance(a, Dim | Sym))
        yield from dict.fromkeys(a for a in named if isinstance(a, Dim) or a.name.isidentifier())


def _with_positive_quotients(facts: Guard) -> Guard:
    """The facts, and that each quotient introduced for `f % g == 0` is positive where the facts say so."""
    named = sorted({a for c in facts for a in atoms_of(c) if isinstance(a, Sym) and not a.name.isidentifier()})
    return facts + tuple(claim for a in named if valid(facts, claim := at_least(size(a), 1)))
