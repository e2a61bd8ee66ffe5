"""Arithmetic of sizes and indices: Z3 decides whether a condition follows from other conditions.

A question asks whether a condition follows from other conditions. Extents of variables are at least 1. Attribute variables are
integers unless they are marked as real, and indices are integers. A quotient is unconstrained unless its denominator is at
least 1. At first, each product of unknowns is treated as a new unknown. Only simple bounds of the new unknown are used, such as
`a * b >= b` for `a >= 1` and `b >= 0`. With these new unknowns, most questions are linear. If linear arithmetic cannot decide a
question, Z3's nonlinear arithmetic is used. The limit on Z3's work is a count of steps and not a time, so that a verdict does
not depend on the machine. Earlier questions to a solver can change the solver's next answers, so each verdict on a rule or
axiom is computed with a fresh solver.

Most questions that arise in a proof remain undecided. Undecided questions take the longest time, and no proof depends on an
undecided question. A ledger can therefore list the digests of undecided questions, and later checks skip these questions. A
skipped question counts as undecided, so the list cannot make a false condition pass.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction

import z3

from superopt.algebra.extent import Entry
from superopt.algebra.terms import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Inverse,
    Number,
    Size,
    at_least,
    atoms,
    negation,
    same,
    size,
    substitute_cond,
)
from superopt.policy import PROOF
from superopt.proof.definitions.formulas import (
    Expression,
    assert_formula,
    both,
    check_literals,
    implies,
    z3_numeral,
    z3_product,
    z3_sum,
    z3_variable,
)
from superopt.proof.definitions.products import (
    Monomial,
    consequences,
    floor_bounds,
    is_integer_lemma_condition,
    is_integer_lemma_product,
)

DIGEST = 8
"""The number of hexadecimal digits in the digest of a question. A question asks whether a condition follows from other
conditions.
"""


def z3_solver_version() -> str:
    """Return the name and the version of the solver as a text."""
    return f"z3 {z3.get_version_string()}"


class SolverEffort(IntEnum):
    """The effort with which the solver tries to show that a condition follows from other conditions.

    LINEAR uses only linear arithmetic. PRODUCTS also derives consequences of inequalities between products. NONLINEAR
    additionally uses Z3's nonlinear arithmetic.
    """

    LINEAR = 0
    PRODUCTS = 1
    NONLINEAR = 2


@contextlib.contextmanager
def isolated_solver() -> Iterator[None]:
    """Run a block with a fresh solver and no cached answers, so that verdicts do not depend on earlier questions.

    This block also skips all questions that the enclosing block skips.
    """
    outside = _sessions[-1]
    _sessions.append(_Session(outside.passed_over, outside.unsettled))
    try:
        yield
    finally:
        _sessions.pop()


@contextlib.contextmanager
def skip_questions(questions: Container[str] = frozenset()) -> Iterator[Collection[str]]:
    """Run a block in which certain questions are not asked and count as undecided. The block starts without cached answers.

    A question asks whether a condition follows from other conditions. `questions` contains the digests of the skipped
    questions. The block asks all other questions, including the questions that an enclosing block skips.

    Yields:
        The digests of all undecided questions in the block, in the order in which the questions arise.
    """
    inside = _Session(questions, {})
    _sessions.append(inside)
    try:
        yield inside.unsettled.keys()
    finally:
        _sessions.pop()


def is_valid(assumptions: Iterable[Cond], claim: Cond, effort: SolverEffort = SolverEffort.NONLINEAR) -> bool:
    """Return whether `claim` holds wherever all assumptions hold. False can also mean undecided."""
    known = tuple(assumptions)
    match claim:
        case bool():
            return claim or is_contradictory(known, effort)
        case AllOf(parts):
            return all(is_valid(known, part, effort) for part in parts)
        case _:
            return claim in known or _stronger(known, claim) or _decided(frozenset(known), claim, effort)


def is_contradictory(assumptions: Iterable[Cond], effort: SolverEffort = SolverEffort.PRODUCTS) -> bool:
    """Return whether the assumptions contradict each other. False can also mean undecided."""
    known = frozenset(assumptions)
    return False in known or any(negation(c) in known for c in known) or _decided(known, claim=False, effort=effort)


def _stronger(assumptions: Sequence[Cond], claim: Cond) -> bool:
    """Return whether the assumptions are shown, without a solver, to imply a claim `left >= 0`.

    The result is True in two cases. In the first case, an assumption has the same terms as the claim, and an equal or smaller
    constant term. In the second case, the claim is true because extents of variables are at least 1. An example of the second
    case is `2 * x.shape[-1] - 1 >= 0`.
    """
    if not isinstance(claim, Compare) or claim.relation != ">=":
        return False
    terms, constant = _apart(claim.left)
    lowest = constant
    for monomial, coefficient in terms:
        if coefficient < 0 or not all(isinstance(a, Dim) for a in monomial):
            break
        lowest += coefficient
    else:
        if lowest >= 0:
            return True
    for fact in assumptions:
        if isinstance(fact, Compare) and fact.relation == ">=" and len(fact.left.terms) <= len(claim.left.terms) + 1:
            same_terms, other = _apart(fact.left)
            if same_terms == terms and other <= constant:
                return True
    return False


def _apart(extent: Size) -> tuple[tuple[tuple[Monomial, int | float | Fraction], ...], int | float | Fraction]:
    if extent.terms[0][0]:
        return extent.terms, 0
    return extent.terms[1:], extent.terms[0][1]


def _decided(assumptions: frozenset[Cond], claim: Cond, effort: SolverEffort) -> bool:
    session = _sessions[-1]
    question = assumptions, claim, effort
    answer = session.answers.get(question)
    if answer is None:
        known: list[Cond] = sorted((c for c in assumptions if c is not True), key=str)
        name = _digest(known, claim, effort)
        answer = session.answers[question] = name not in session.passed_over and _answer(known, claim, effort)
        if not answer:
            session.unsettled[name] = None
    return answer


def _digest(known: Sequence[Cond], claim: Cond, effort: SolverEffort) -> str:
    """Return a digest of the question whether `claim` follows from `known`. Ledgers of proofs identify questions by digests."""
    text = "\n".join([*map(str, known), f"{effort.name} {claim}"])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST]


def _answer(known: Sequence[Cond], claim: Cond, effort: SolverEffort) -> bool:
    doubts = () if claim is False else (claim,)
    solver = _linear()
    if solver.refutes(known, doubts):
        return True
    if effort is SolverEffort.LINEAR or solver.satisfied(known, doubts):
        return False
    derived = consequences([*known, *map(negation, filter(is_integer_lemma_condition, doubts))])
    if derived and _linear().refutes([*known, *derived], doubts):
        return True
    return effort is SolverEffort.NONLINEAR and _refuted_nonlinear(known, doubts)


# ---------------------------------------------------------------- linear, with products as unknowns


def _linear() -> _Linear:
    """Return the linear solver of the innermost `with` block. A solver with too many conditions is replaced by a new solver."""
    session = _sessions[-1]
    if session.solver is None or len(session.solver.literals) > PROOF.max_session_conditions:
        session.solver = _Linear()
    return session.solver


class _Linear:
    """A solver that is used for many questions.

    The solver learns clauses from a question, and these clauses help with later questions. Each condition is asserted only
    once, as an implication from a Boolean literal. A question assumes the literals of its conditions.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self.solver = z3.Solver(ctx=self.context)
        self.solver.set("rlimit", PROOF.max_linear_steps)
        self.unknowns: dict[Monomial, Expression] = {}
        self.literals: dict[Cond, z3.BoolRef] = {}
        self.opposites: dict[Cond, z3.BoolRef] = {}
        self.answer = z3.unknown

    def refutes(self, conditions: Sequence[Cond], doubts: Sequence[Cond] = ()) -> bool:
        """Return whether Z3 shows that the conditions cannot all be true while every condition in `doubts` is false."""
        literals = [self.literal(c) for c in conditions] + [self.opposite(c) for c in doubts]
        self.answer = check_literals(self.solver, literals)
        return bool(self.answer == z3.unsat)

    def satisfied(self, conditions: Sequence[Cond], doubts: Sequence[Cond]) -> bool:
        """Return whether the solver's last model makes the conditions true and every condition in `doubts` false.

        The model's values for products and quotients are ignored. Instead, products and quotients are computed from the model's
        values for sizes and indices.
        """
        if self.answer != z3.sat:
            return False
        model = self.solver.model()

        def value(atom: Atom) -> Extent | None:
            unknown = None if isinstance(atom, Floor | Inverse) else self.unknowns.get((atom,))
            return None if unknown is None else _number(model.eval(unknown.ref, model_completion=True))

        try:
            return all(substitute_cond(c, value) is True for c in conditions) and all(
                substitute_cond(c, value) is False for c in doubts
            )
        except ZeroDivisionError:
            return False

    def literal(self, condition: Cond) -> z3.BoolRef:
        known = self.literals.get(condition)
        if known is None:
            known = self.literals[condition] = z3.Bool(f"c{len(self.literals)}", self.context)
            assert_formula(self.solver, implies(known, self.formula(condition)))
        return known

    def opposite(self, condition: Cond) -> z3.BoolRef:
        if is_integer_lemma_condition(condition):
            return self.literal(negation(condition))
        known = self.opposites.get(condition)
        if known is None:
            known = self.opposites[condition] = z3.Bool(f"n{len(self.opposites)}", self.context)
            assert_formula(self.solver, implies(known, z3.Not(self.formula(condition))))
        return known

    def formula(self, condition: Cond) -> z3.BoolRef:
        match condition:
            case bool():
                return z3.BoolVal(condition, self.context)
            case Compare(relation, left):
                value = self.extent(left)
                return value >= 0 if relation == ">=" else value.equals(0) if relation == "==" else value.differs(0)
            case AllOf(parts):
                return both(*map(self.formula, parts))
            case AnyOf(parts):
                return z3.Or(*map(self.formula, parts))

    def extent(self, extent: Extent) -> Expression:
        if not isinstance(extent, Size):
            return z3_numeral(extent, self.context)
        return z3_sum(*(self.times(monomial, coefficient) for monomial, coefficient in _whole(extent).terms))

    def times(self, monomial: Monomial, coefficient: Number) -> Expression:
        """Return the product of a monomial and a coefficient as a Z3 expression."""
        if not monomial:
            return z3_numeral(coefficient, self.context)
        return self.unknown(monomial) * z3_numeral(coefficient, self.context)

    def unknown(self, monomial: Monomial) -> Expression:
        known = self.unknowns.get(monomial)
        if known is None:
            name = f"m{len(self.unknowns)}"
            known = self.unknowns[monomial] = z3_variable(name, self.context, integer=is_integer_lemma_product(monomial))
            for fact in self.about(monomial):
                assert_formula(self.solver, fact)
        return known

    def about(self, monomial: Monomial) -> Iterator[z3.BoolRef]:
        """Yield the facts about a monomial that follow from its form, such as the lower bound of an extent."""
        if len(monomial) > 1:
            yield from self.order_of_product(monomial)
            return
        match monomial[0]:
            case Dim():
                yield self.unknown(monomial) >= 1
            case Floor() as quotient:
                defined = self.formula(at_least(quotient.denominator, 1))
                yield from (implies(defined, self.formula(bound)) for bound in floor_bounds(quotient))
            case Entry(_, _, extent):
                yield both(self.unknown(monomial) >= 0, self.formula(at_least(extent - 1, size(monomial[0]))))
            case Inverse(of) as inverse:
                value = self.unknown(monomial)
                one = self.formula(same(_times(of, size(inverse)), 1))
                yield implies(self.formula(at_least(of, 1)), both(value > 0, value <= 1, one))
            case _:
                pass

    def order_of_product(self, monomial: Monomial) -> Iterator[z3.BoolRef]:
        whole = self.unknown(monomial)
        for position, atom in enumerate(monomial):
            if atom in monomial[:position]:
                continue
            rest = monomial[:position] + monomial[position + 1 :]
            if not is_integer_lemma_product((atom,)) or not is_integer_lemma_product(rest):
                continue
            a, b = self.unknown((atom,)), self.unknown(rest)
            yield implies(both(a >= 1, b >= 1), whole >= a + b - 1)
            yield implies(both(a >= 1, b >= 0), whole >= b)
            yield implies(both(a >= 1, b <= -1), whole <= b - a + 1)
            yield implies(both(b >= 1, a <= -1), whole <= a - b + 1)
            yield implies(a.equals(0), whole.equals(0))
            yield implies(a.equals(1), whole.equals(b))


def _number(value: z3.ExprRef) -> Extent:
    if isinstance(value, z3.IntNumRef):
        return int(value.as_long())
    assert isinstance(value, z3.RatNumRef)
    return Fraction(value.numerator_as_long(), value.denominator_as_long())


def _whole(extent: Size) -> Size:
    """Multiply the extent by a positive integer that makes all coefficients integers. The extent's sign does not change."""
    scale = 1
    for _, coefficient in extent.terms:
        scale *= Fraction(coefficient).denominator
    grown = extent * scale
    return grown if isinstance(grown, Size) else extent


def _times(a: Extent, b: Extent) -> Extent:
    return a * b


# ---------------------------------------------------------------- nonlinear


def _refuted_nonlinear(conditions: Sequence[Cond], doubts: Sequence[Cond]) -> bool:
    if not any(len(m) > 1 for c in (*conditions, *doubts) for m in _monomials(c)):
        return False
    nonlinear = _Nonlinear()
    nonlinear.solver.add(*[nonlinear.formula(c) for c in conditions], *[z3.Not(nonlinear.formula(c)) for c in doubts])
    return bool(nonlinear.solver.check() == z3.unsat)


def _monomials(condition: Cond) -> Iterator[Monomial]:
    match condition:
        case Compare(_, left):
            yield from (m for m, _ in left.terms)
            for atom in left.atoms():
                if isinstance(atom, Floor) and set(atoms(atom.denominator)):
                    yield (atom, atom)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _monomials(part)
        case _:
            pass


class _Nonlinear(_Linear):
    """A solver for a single question. The solver represents products by Z3's nonlinear multiplication."""

    def __init__(self) -> None:
        super().__init__()
        self.solver.set("rlimit", PROOF.max_nonlinear_steps)

    def unknown(self, monomial: Monomial) -> Expression:
        if len(monomial) == 1:
            return super().unknown(monomial)
        return z3_product(*[self.unknown((atom,)) for atom in monomial])


# ---------------------------------------------------------------- sessions


@dataclass
class _Session:
    """The state of one `with` block: the solver, the cached answers, and the digests of skipped and undecided questions.

    A question asks whether a condition follows from other conditions.
    """

    passed_over: Container[str] = frozenset()
    unsettled: dict[str, None] = field(default_factory=dict)
    answers: dict[tuple[frozenset[Cond], Cond, SolverEffort], bool] = field(default_factory=dict)
    solver: _Linear | None = None


_sessions = [_Session()]
