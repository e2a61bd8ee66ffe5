"""Evaluation of rules on all inputs of a small floating-point format with 3 bits of exponent and 4 bits of significand.

If a rule needs only the flags `nsz`, `nnan` and `ninf`, its sides must agree bit for bit in every format, wherever these flags
promise equality. If there are at most three inputs, every combination of their values is evaluated. Otherwise, Z3's theory of
floating-point numbers is used. In Z3, exponentials and similar functions are uninterpreted, so a proof holds for every choice
of these functions. Agreement in the small format does not prove agreement in float32. However, the agreement shows that no
combination of zeros, subnormal and normal numbers, infinities and NaN was overlooked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

import numpy as np
import z3

from superopt.algebra.terms import magnitude_of
from superopt.floating_point.differences import FREEDOMS
from superopt.floating_point.elements import ElementPair
from superopt.floating_point.environments import Environments, exhaustive_rows
from superopt.floating_point.floats import SMALL, run_program
from superopt.floating_point.scalars import Compute, Input, LoadConstant, LoadInput
from superopt.policy import FLOATING_POINT
from superopt.rules.fp_flags import FpFlag

SORT = z3.FPSort(3, 4)
ROUND = z3.RNE()


class Basis(StrEnum):
    """The kinds of evidence for the claim that an output element needs only the given flags. The strongest kind comes first."""

    IDENTICAL = "identical"
    """Both sides have the same scalar code."""
    EXHAUSTIVE = "exhaustive"
    """All inputs in the small format were evaluated."""
    SMT = "smt"
    """Z3 proved that no input in the small format is a counterexample."""
    SAMPLED = "sampled"
    """Only special values in float32 were evaluated."""
    DIFFERENT = "different"
    """The sides differ at an input in the small format, but no such input was found in float32."""


def weakest_basis(found: Collection[Basis]) -> Basis:
    """Return the weakest kind of evidence in `found`, or `SAMPLED` if `found` is empty."""
    return max(found, key=list(Basis).index, default=Basis.SAMPLED)


def basis(pair: ElementPair, flags: Collection[FpFlag]) -> Basis:
    """Return the strongest available evidence that the output element needs only these flags."""
    if pair.identical:
        return Basis.IDENTICAL
    if FREEDOMS & set(flags) or any(isinstance(i, LoadConstant) and magnitude_of(i.number) > SMALL.largest for i in pair.code):
        return Basis.SAMPLED
    inputs = pair.inputs
    rows = 115 ** len(inputs)
    if (
        len(inputs) <= FLOATING_POINT.max_exhaustive_inputs
        and rows * len(pair.numbers) <= FLOATING_POINT.max_exhaustive_evaluations
    ):
        everything = exhaustive_rows(inputs, pair.conditions, SMALL)
        return (
            Basis.DIFFERENT
            if any(_wrong(pair, some, flags) for some in everything.chunks(FLOATING_POINT.row_chunk_count))
            else Basis.EXHAUSTIVE
        )
    return _asked(pair, flags) if len(pair.numbers) <= FLOATING_POINT.max_solver_instructions else Basis.SAMPLED


def _wrong(pair: ElementPair, environments: Environments, flags: Collection[FpFlag]) -> bool:
    """Return whether the sides differ at inputs for which the flags promise equality."""
    known = run_program(pair.program, pair.numbers, environments.values, SMALL)
    left, right = (np.broadcast_to(known[n], environments.rows) for n in (pair.left, pair.right))
    inputs = [environments.values[one] for one in pair.inputs]
    differ = (left != right) & ~(np.isnan(left) & np.isnan(right))
    if FpFlag.NSZ not in flags:
        differ |= (left == 0) & (right == 0) & (np.signbit(left) != np.signbit(right))
    if FpFlag.NNAN in flags:
        differ &= ~np.isnan(left) & ~np.any([np.isnan(v) for v in inputs], axis=0)
    if FpFlag.NINF in flags:
        differ &= ~np.isinf(left) & ~np.any([np.isinf(v) for v in inputs], axis=0)
    return bool(differ.any())


# ---------------------------------------------------------------- Z3


def _asked(pair: ElementPair, flags: Collection[FpFlag]) -> Basis:
    """Search with Z3 for inputs in the small format at which the sides differ.

    Return `DIFFERENT` if Z3 finds such inputs, `SMT` if Z3 proves that there are no such inputs, and `SAMPLED` if Z3 does not
    decide.
    """
    known: dict[int, z3.FPRef] = {}
    inputs: dict[Input, z3.FPRef] = {}
    for number in pair.numbers:
        match pair.program.instructions[number]:
            case LoadInput(element):
                known[number] = inputs[element] = z3.FP(str(element), SORT)
            case LoadConstant(value):
                finite = abs(value) != float("inf")
                known[number] = z3.fpToFP(ROUND, z3.RealVal(str(value)), SORT) if finite else z3.fpInfinity(SORT, value < 0)
            case Compute(op, operands):
                known[number] = _operation(op, [known[i] for i in operands])
    left, right = known[pair.left], known[pair.right]
    solver = z3.SolverFor("QF_FP") if not _opaque(pair) else z3.Solver()
    solver.set("timeout", FLOATING_POINT.solver_milliseconds)
    for (name, _), value in inputs.items():
        if name in pair.conditions:
            solver.add(z3.Or(z3.fpEQ(value, z3.FPVal(0, SORT)), z3.fpEQ(value, z3.FPVal(1, SORT))))
    same = z3.Or(z3.And(z3.fpIsNaN(left), z3.fpIsNaN(right)), z3.fpEQ(left, right) if FpFlag.NSZ in flags else left == right)
    for flag, test in ((FpFlag.NNAN, z3.fpIsNaN), (FpFlag.NINF, z3.fpIsInf)):
        if flag in flags:
            solver.add(*(z3.Not(test(value)) for value in [*inputs.values(), left]))
    solver.add(z3.Not(same))
    verdict = solver.check()
    if verdict == z3.unsat:
        return Basis.SMT
    return Basis.DIFFERENT if verdict == z3.sat and not _opaque(pair) else Basis.SAMPLED


def _opaque(pair: ElementPair) -> bool:
    """Return whether the code computes functions that are uninterpreted in Z3."""
    return any(isinstance(i, Compute) and i.op not in KNOWN for i in pair.code)


def _operation(op: str, a: list[z3.FPRef]) -> z3.FPRef:
    if op in KNOWN:
        return KNOWN[op](*a)
    function = z3.Function(op, *([SORT] * (len(a) + 1)))
    return function(*a)


def _larger(a: z3.FPRef, b: z3.FPRef) -> z3.FPRef:
    first = z3.Or(z3.fpIsNaN(a), z3.fpGT(a, b), z3.And(z3.fpEQ(a, b), z3.fpIsNegative(b)))
    return z3.If(first, a, b)


def _smaller(a: z3.FPRef, b: z3.FPRef) -> z3.FPRef:
    return z3.fpNeg(_larger(z3.fpNeg(a), z3.fpNeg(b)))


def _indicator(condition: z3.BoolRef) -> z3.FPRef:
    return z3.If(condition, z3.FPVal(1, SORT), z3.FPVal(0, SORT))


def _relu(a: z3.FPRef) -> z3.FPRef:
    return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpGEQ(a, z3.FPVal(0, SORT))), a, z3.FPVal(0, SORT))


KNOWN: Mapping[str, Callable[..., z3.FPRef]] = {
    "add": lambda a, b: z3.fpAdd(ROUND, a, b),
    "sub": lambda a, b: z3.fpSub(ROUND, a, b),
    "mul": lambda a, b: z3.fpMul(ROUND, a, b),
    "div": lambda a, b: z3.fpDiv(ROUND, a, b),
    "fma": lambda a, b, c: z3.fpFMA(ROUND, a, b, c),
    "sqrt": lambda a: z3.fpSqrt(ROUND, a),
    "reciprocal": lambda a: z3.fpDiv(ROUND, z3.FPVal(1, SORT), a),
    "neg": z3.fpNeg,
    "abs": z3.fpAbs,
    "max": _larger,
    "min": _smaller,
    "relu": _relu,
    "choose": lambda c, a, b: z3.If(z3.fpEQ(c, z3.FPVal(0, SORT)), b, a),
    "less": lambda a, b: _indicator(z3.fpLT(a, b)),
    "less_equal": lambda a, b: _indicator(z3.fpLEQ(a, b)),
    "equal": lambda a, b: _indicator(z3.fpEQ(a, b)),
    "positive": lambda a: _indicator(z3.fpGT(a, z3.FPVal(0, SORT))),
    "zero": lambda a: _indicator(z3.fpEQ(a, z3.FPVal(0, SORT))),
}
"""For each operation, the function that returns its Z3 expression. The operations have the meanings of `floats.OPERATIONS`."""
