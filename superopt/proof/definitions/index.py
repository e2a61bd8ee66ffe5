"""The index prover: proves equations between terms for all sizes from the definitions of their operators.

Both sides are evaluated to a normal form at one symbolic position, and their difference is shown to be zero. This proof can
fail because of a group count (as in a convolution) or a factor of a reshape. In this case, the equation is proved only for a
few values of the count or factor, and the verdict lists these values. All remaining sizes stay symbolic. Both sides are
compared on random instances (choices of sizes and attributes) before a proof is tried, and again after a proof has failed. A
difference is a counterexample, which refutes the equation. An equation for which no instance exists is never reported as
proved. If there is neither a proof nor a counterexample, the verdict is `Unknown`.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from superopt.algebra import index
from superopt.algebra.operators import operator, registry
from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Cond,
    Dim,
    Extent,
    Size,
    Sym,
    Term,
    at_least,
    atoms,
    attribute_atoms,
    same,
    size,
    substitute,
    substitute_attribute,
    subterms,
    variables,
)
from superopt.errors import InstantiationError
from superopt.notation.parsing import Equation
from superopt.policy import PROOF
from superopt.proof.definitions.align import floor_quotients
from superopt.proof.definitions.arithmetic import is_valid, isolated_solver
from superopt.proof.definitions.compare import TensorComparison
from superopt.proof.definitions.normal import Normal, TooLongError
from superopt.proof.definitions.sums import Guard, Sum, extents_in
from superopt.proof.denominators import denominator_factors, denominators
from superopt.proof.sample import mismatch
from superopt.rules.instances import equation_instance_conditions, is_instance_quotient, solve_instance_conditions
from superopt.rules.rule import Rule
from superopt.rules.verdict import Proved, Refuted, Unknown, Verdict, worst

VALUES = (1, 2, 3, 4)
RANKS = (1, 2, 3, 4)


@isolated_solver()
def prove_axiom(rule: Rule, *, seed: int = 0) -> Verdict:
    """Prove or refute a rule or axiom at all choices of its ranks, from the definitions of its operators.

    If the proof fails at a choice of ranks, the verdict at this choice is returned. The sides of an `==` rule must be defined
    on the same inputs. The right side of a `=>` rule must be defined wherever the left side is defined.
    """
    both_ways = rule.statement.arrow == "=="
    found: list[Verdict] = []
    for equation in rule.equations:
        found.append(prove_equation(equation, seed=seed, both_ways=both_ways))
        if not isinstance(found[-1], Proved):
            break
    return worst(found)


@isolated_solver()
def reprove_equations(equations: Iterable[Equation], bounded: Sequence[str] = (), *, both_ways: bool = False) -> Verdict:
    """Prove the equations again from the definitions. Return `Proved` or `Unknown`.

    The proof covers all sizes within the limits in `bounded`, such as `g in 1, 2, 3, 4`. `bounded` contains the limits of the
    stored proof. With `both_ways`, the left side must also be defined wherever the right side is defined. The function does not
    search for a counterexample.
    """
    started = time.perf_counter()
    for equation in equations:
        chosen = [atom for atom in _unknowns(equation) if _limit(atom) in bounded]
        if len(chosen) != len(bounded):
            return Unknown(f"the stored bound {' and '.join(bounded)} does not name a size or attribute of this rule")
        for values in itertools.product(VALUES, repeat=len(chosen)):
            with isolated_solver():
                attempt = Attempt(equation, dict(zip(chosen, values, strict=True)), both_ways=both_ways)
            if not attempt.proved:
                return Unknown(attempt.reason, (time.perf_counter() - started) * 1e3)
    return Proved((time.perf_counter() - started) * 1e3, tuple(bounded))


def prove_equation(equation: Equation, *, seed: int = 0, both_ways: bool = False) -> Verdict:
    """Prove or refute one equation.

    Both sides are assumed to be well typed, and the equation's condition `where` is assumed to hold.

    `Proved` means that, wherever the left side is defined, the right side is also defined and equals the left side. With
    `both_ways`, the left side is also defined wherever the right side is defined.
    """
    started = time.perf_counter()

    def spent() -> float:
        return (time.perf_counter() - started) * 1e3

    try:
        counterexample = mismatch(equation, instances=PROOF.first_instance_count, seed=seed)
        if counterexample is not None:
            return Refuted(counterexample, spent())
        attempt = Attempt(equation, {}, both_ways=both_ways)
        if attempt.proved:
            return Proved(spent())
        counterexample = mismatch(equation, instances=PROOF.refutation_instance_count, seed=seed + PROOF.first_instance_count)
    except InstantiationError as error:
        return Unknown(str(error), spent())
    if counterexample is not None:
        return Refuted(counterexample, spent())
    for chosen in _restrictions(attempt):
        choices = itertools.product(VALUES, repeat=len(chosen))
        attempts = (Attempt(equation, dict(zip(chosen, values, strict=True)), both_ways=both_ways) for values in choices)
        if all(other.proved for other in attempts):
            return Proved(spent(), tuple(map(_limit, chosen)))
    return Unknown(attempt.reason, spent())


def _limit(atom: Atom) -> str:
    """Return a text such as `g in 1, 2, 3, 4`. The text states the values of `atom` to which a proof is limited."""
    return f"{atom} in {', '.join(map(str, VALUES))}"


def _unknowns(equation: Equation) -> list[Atom]:
    """Return the extents of the equation's variables, and its attribute variables."""
    roots = equation.left + equation.right
    dims = [Dim(v.name, axis) for v in variables(*roots) for axis in range(-v.rank, 0)]
    return [*dims, *sorted(a for a in attribute_atoms(*roots) if isinstance(a, Sym))]


def _restrictions(attempt: Attempt) -> Iterator[tuple[Atom, ...]]:
    """After a failed attempt, yield sets of unknowns to fix at small values.

    The unknowns are group counts, divisors and dividends.
    """
    groups = tuple(attempt.groups())
    divisors, dividends = attempt.divided()
    for chosen in dict.fromkeys((groups, divisors, groups + divisors, dividends)):
        if 0 < len(set(chosen)) == len(chosen) <= PROOF.max_bounded_sizes:
            yield chosen


class Attempt:
    """An attempt to prove an equation. Some unknowns have fixed values. `reason` says why the attempt failed."""

    def __init__(self, equation: Equation, values: Mapping[Atom, int], *, both_ways: bool = False) -> None:
        self.equation = equation
        self.both_ways = both_ways
        roots = equation.left + equation.right
        dims = [Dim(v.name, axis) for v in variables(*roots) for axis in range(-v.rank, 0)]
        known: list[Cond] = [same(size(atom), value) for atom, value in values.items()]
        known += [*equation_instance_conditions(equation), *(at_least(size(d), 1) for d in dims)]
        self.solved, facts = solve_instance_conditions(known)
        self.notation = Normal()
        self.comparison = TensorComparison(self.notation, _with_positive_quotients(tuple(facts)))
        try:
            self.reason = "" if False in facts else self._difference()
        except TooLongError as error:
            self.reason = str(error)

    @property
    def proved(self) -> bool:
        """Whether both sides of the equation were shown to be equal."""
        return not self.reason

    @property
    def remainder(self) -> Sum:
        """The summands that did not cancel when the proof attempt subtracted one side from the other."""
        return self.comparison.remainder

    def _difference(self) -> str:
        tensors: dict[Term, index.Tensor] = {}
        with index.interpreted(self.notation):
            for term in subterms(*self.equation.left, *self.equation.right):
                tensors[term] = self._tensor(term, tensors)
        of_left = self._divisors(*self.equation.left)
        for output, (left, right) in enumerate(zip(self.equation.left, self.equation.right, strict=True)):
            divisors = of_left, self._divisors(right)
            reason = self.comparison.difference(tensors[left], tensors[right], both_ways=self.both_ways, divisors=divisors)
            if reason is not None:
                return f"output {output}: {reason}"
        return ""

    def _divisors(self, *roots: Term) -> tuple[Extent, ...]:
        """Return the denominators that occur in attributes of the terms, split into their factors."""
        return tuple(f for d in denominators(*roots) for f in denominator_factors(substitute(d, self.solved.get)))

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

    def groups(self) -> Iterator[Atom]:
        """Yield the unknowns in the `group` attributes of operators such as convolutions."""
        found = (t["group"] for t in subterms(*self.equation.left, *self.equation.right) if "group" in dict(t.attributes))
        yield from dict.fromkeys(a for g in found if isinstance(g, Size) for a in atoms(substitute(g, self.solved.get)))

    def divided(self) -> tuple[tuple[Atom, ...], tuple[Atom, ...]]:
        """Return the unknowns in the denominators of quotients, and the unknowns in the numerators.

        The quotients are taken from attributes, from shapes and from the summands that did not cancel.
        """
        terms = subterms(*self.equation.left, *self.equation.right)
        values = (v for t in terms for v in (*dict(t.attributes).values(), t.shape))
        written = (e for v in values for e in (v if isinstance(v, tuple) else (v,)))
        extents = [substitute(e, self.solved.get) for e in written if isinstance(e, Size)]
        found = list(floor_quotients([*extents, *(e for s in self.remainder for e in extents_in(s))]))
        return _named(q.denominator for q in found), _named(q.numerator for q in found)


def _named(extents: Iterable[Extent]) -> tuple[Atom, ...]:
    return tuple(dict.fromkeys(a for e in extents for a in atoms(e) if isinstance(a, Dim | Sym) and not _made(a)))


def _made(atom: Atom) -> bool:
    """Return whether the atom is a quotient or an index that the prover introduced."""
    return isinstance(atom, Sym) and not atom.name.isidentifier()


def _with_positive_quotients(facts: Guard) -> Guard:
    """For each quotient q, add the fact `q >= 1` if the facts imply this fact. Return all facts.

    A quotient q is an unknown that was introduced to write a condition `f % g == 0` as `f = g * q`.
    """
    named = dict.fromkeys(a for c in facts for a in condition_atoms(c) if is_instance_quotient(a))
    return facts + tuple(claim for a in named if is_valid(facts, claim := at_least(size(a), 1)))


# ---------------------------------------------------------------- laws built into terms


def commutative_obligations() -> Iterator[tuple[str, Verdict]]:
    """Yield two verdicts for each commutative operator: one on commutativity and one on associativity.

    Terms cannot state these laws: the operands of a commutative operator are sorted, so both sides of a law are the same term.
    Instead, the operator's binary definition is applied directly to exchanged and regrouped operands, and the results are
    compared.
    """
    for name, spec in registry().items():
        if spec.commutative:
            yield f"{name}.commutativity", worst(_swapped(name, rank) for rank in RANKS)
            yield f"{name}.regrouping", worst(_regrouped(name, rank) for rank in RANKS)


def _swapped(name: str, rank: int) -> Verdict:
    return _same(name, rank, lambda f, x, y, _: (f(x, y), f(y, x)))


def _regrouped(name: str, rank: int) -> Verdict:
    return _same(name, rank, lambda f, x, y, z: (f(f(x, y), z), f(x, f(y, z))))


def _same(name: str, rank: int, sides: Callable[..., tuple[index.Tensor, index.Tensor]]) -> Verdict:
    started = time.perf_counter()
    notation = Normal()
    shape = tuple(size(Dim("x", axis)) for axis in range(-rank, 0))
    operands = [notation.read(variable, shape) for variable in "xyz"]
    with index.interpreted(notation):
        left, right = sides(operator(name).definition, *operands)
    reason = TensorComparison(notation, ()).difference(left, right)
    spent = (time.perf_counter() - started) * 1e3
    return Proved(spent) if reason is None else Unknown(reason, spent)
