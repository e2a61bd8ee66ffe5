"""Arithmetic formulas for Z3, built through Z3's C interface.

Z3's own Python classes build the same formulas, but check sorts at every step. In proofs, these checks take more time than Z3
takes to answer the questions.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Array
from dataclasses import dataclass
from fractions import Fraction

import z3
from z3 import z3core


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A Z3 expression for a number: an integer or a real. In an operation with a real, an integer is converted to a real."""

    ref: z3.AstRef
    integer: bool

    def __add__(self, other: Expression | int) -> Expression:
        return _joined(z3core.Z3_mk_add, self, other)

    def __sub__(self, other: Expression | int) -> Expression:
        return _joined(z3core.Z3_mk_sub, self, other)

    def __mul__(self, other: Expression | int) -> Expression:
        return _joined(z3core.Z3_mk_mul, self, other)

    def __ge__(self, other: Expression | int) -> z3.BoolRef:
        return _compared(z3core.Z3_mk_ge, self, other)

    def __le__(self, other: Expression | int) -> z3.BoolRef:
        return _compared(z3core.Z3_mk_le, self, other)

    def __gt__(self, other: Expression | int) -> z3.BoolRef:
        return _compared(z3core.Z3_mk_gt, self, other)

    def equals(self, other: Expression | int) -> z3.BoolRef:
        """Return the formula `self == other`."""
        return _compared(z3core.Z3_mk_eq, self, other)

    def differs(self, other: Expression | int) -> z3.BoolRef:
        """Return the formula `self != other`."""
        one, two = _alike([self, _number(other, self)])
        return z3.BoolRef(z3core.Z3_mk_distinct(_context(self.ref), 2, _array(one, two)), self.ref.ctx)


def z3_variable(name: str, context: z3.Context, *, integer: bool) -> Expression:
    """Return the Z3 variable with this name, which is an integer or a real number."""
    return Expression(z3.Int(name, context) if integer else z3.Real(name, context), integer)


def z3_numeral(number: float | Fraction, context: z3.Context) -> Expression:
    """Return the number as a Z3 numeral."""
    if isinstance(number, int):
        return Expression(_integer(number, context, z3core.Z3_mk_int_sort(context.ref())), integer=True)
    fraction = Fraction(number)
    return Expression(z3.RatVal(fraction.numerator, fraction.denominator, context), integer=False)


def z3_sum(*parts: Expression) -> Expression:
    """Return the sum of one or more numbers."""
    return _all(z3core.Z3_mk_add, parts) if len(parts) > 1 else parts[0]


def z3_product(*parts: Expression) -> Expression:
    """Return the product of one or more numbers."""
    return _all(z3core.Z3_mk_mul, parts)


def implies(condition: z3.BoolRef, claim: z3.BoolRef) -> z3.BoolRef:
    """Return the formula which says that the condition implies the claim."""
    return z3.BoolRef(z3core.Z3_mk_implies(_context(condition), condition.ast, claim.ast), condition.ctx)


def both(*parts: z3.BoolRef) -> z3.BoolRef:
    """Return the conjunction of one or more formulas."""
    return z3.BoolRef(z3core.Z3_mk_and(_context(parts[0]), len(parts), _array(*parts)), parts[0].ctx)


def assert_formula(solver: z3.Solver, formula: z3.BoolRef) -> None:
    """Assert the formula in the solver."""
    z3core.Z3_solver_assert(_context(formula), solver.solver, formula.ast)


def check_literals(solver: z3.Solver, literals: list[z3.BoolRef]) -> z3.CheckSatResult:
    """Check whether the solver's assertions and all literals can hold together."""
    return z3.CheckSatResult(
        z3core.Z3_solver_check_assumptions(solver.ctx.ref(), solver.solver, len(literals), _array(*literals))
    )


def _number(value: Expression | int, like: Expression) -> Expression:
    """Return the value as a Z3 number. A Python integer is converted to the sort (integer or real) of `like`."""
    if isinstance(value, Expression):
        return value
    return Expression(_integer(value, like.ref.ctx, z3core.Z3_get_sort(_context(like.ref), like.ref.ast)), like.integer)


def _integer(number: int, context: z3.Context, sort: z3.Sort) -> z3.AstRef:
    return z3.ArithRef(z3core.Z3_mk_numeral(context.ref(), str(number), sort), context)


def _alike(parts: list[Expression]) -> list[z3.AstRef]:
    if all(part.integer for part in parts):
        return [part.ref for part in parts]
    return [_real(part.ref) if part.integer else part.ref for part in parts]


def _real(ref: z3.AstRef) -> z3.AstRef:
    return z3.ArithRef(z3core.Z3_mk_int2real(_context(ref), ref.ast), ref.ctx)


def _all(make: Callable[..., z3.Ast], parts: tuple[Expression, ...]) -> Expression:
    refs = _alike([*parts])
    made = make(_context(refs[0]), len(refs), _array(*refs))
    return Expression(z3.ArithRef(made, refs[0].ctx), all(part.integer for part in parts))


def _joined(make: Callable[..., z3.Ast], one: Expression, other: Expression | int) -> Expression:
    return _all(make, (one, _number(other, one)))


def _compared(make: Callable[..., z3.Ast], one: Expression, other: Expression | int) -> z3.BoolRef:
    left, right = _alike([one, _number(other, one)])
    return z3.BoolRef(make(_context(left), left.ast, right.ast), left.ctx)


def _context(ref: z3.AstRef) -> z3.ContextObj:
    return ref.ctx.ref()


def _array(*refs: z3.AstRef) -> Array[z3.Ast]:
    array: Array[z3.Ast] = (z3.Ast * len(refs))(*(ref.ast for ref in refs))
    return array
