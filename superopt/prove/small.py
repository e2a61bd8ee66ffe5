"""Rules at a format so small that all inputs can be tried: 3 bits of exponent and 4 of significand.

A rule that needs no flag but `nsz`, `nnan` and `ninf` has to agree bit for bit wherever these flags promise something, whatever
the format is. For up to three inputs every combination is evaluated; for more, Z3's theory of floating-point numbers is asked.
Exponentials and the like are functions of which Z3 knows nothing, so that what it confirms holds for any. That a rule agrees at
the small format does not prove that it agrees at float32; it shows that no combination of zeros, subnormal and normal numbers,
infinities and NaN was overlooked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import z3

from superopt.fp_flags import FpFlag
from superopt.prove.differences import FREEDOMS
from superopt.prove.elements import Pair
from superopt.prove.environments import Environments, Input, every
from superopt.prove.floats import SMALL, evaluate

MAX_INPUTS = 3
MAX_EVALUATIONS = 40_000_000
"""Most instructions times rows that are evaluated."""
CHUNK = 1 << 14
"""Rows that are evaluated at once, which a cache holds."""
MAX_INSTRUCTIONS = 40
TIMEOUT_MS = 3000
SORT = z3.FPSort(3, 4)
ROUND = z3.RNE()


class Basis(StrEnum):
    """What it rests on that an element needs no other flags, the strongest first."""

    IDENTICAL = "identical"
    """Both sides are the same code."""
    EXHAUSTIVE = "exhaustive"
    """All inputs at the small format were evaluated."""
    SMT = "smt"
    """Z3 found that no input at the small format is a counterexample."""
    SAMPLED = "sampled"
    """Special values at float32 alone."""
    DIFFERENT = "different"
    """There is an input at the small format at which the sides differ, though none was found at float32."""


def weakest(found: Collection[Basis]) -> Basis:
    """What a rule's flags rest on: what those of the least certain of its elements do."""
    return max(found, key=list(Basis).index, default=Basis.SAMPLED)


def basis(pair: Pair, flags: Collection[FpFlag]) -> Basis:
    """What it rests on that the element needs these flags and no others."""
    if pair.identical:
        return Basis.IDENTICAL
    if FREEDOMS & set(flags) or any(i[0] == "const" and abs(i[1]) > SMALL.largest for i in pair.code):
        return Basis.SAMPLED
    inputs = pair.inputs
    rows = 115 ** len(inputs)
    if len(inputs) <= MAX_INPUTS and rows * len(pair.numbers) <= MAX_EVALUATIONS:
        everything = every(inputs, pair.conditions, SMALL)
        return Basis.DIFFERENT if any(_wrong(pair, some, flags) for some in everything.chunks(CHUNK)) else Basis.EXHAUSTIVE
    return _asked(pair, flags) if len(pair.numbers) <= MAX_INSTRUCTIONS else Basis.SAMPLED


def _wrong(pair: Pair, environments: Environments, flags: Collection[FpFlag]) -> bool:
    """Whether the sides differ in some row though the flags promise that they do not."""
    known = evaluate(pair.program, pair.numbers, environments.values, SMALL)
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


def _asked(pair: Pair, flags: Collection[FpFlag]) -> Basis:
    """What Z3 says of all inputs."""
    known: dict[int, Any] = {}
    inputs: dict[Input, Any] = {}
    for number in pair.numbers:
        op, *operands = pair.program.instructions[number]
        if op == "input":
            one = operands[0], operands[1]
            known[number] = inputs[one] = z3.FP(str(one), SORT)
        elif op == "const":
            value = operands[0]
            finite = abs(value) != float("inf")
            known[number] = z3.fpToFP(ROUND, z3.RealVal(str(value)), SORT) if finite else z3.fpInfinity(SORT, value < 0)
        else:
            known[number] = _operation(op, [known[i] for i in operands])
    left, right = known[pair.left], known[pair.right]
    solver = z3.SolverFor("QF_FP") if not _opaque(pair) else z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
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


def _opaque(pair: Pair) -> bool:
    """Whether it computes functions of which Z3 knows nothing."""
    return any(i[0] not in ("input", "const") and i[0] not in KNOWN for i in pair.code)


def _operation(op: str, a: list[Any]) -> Any:
    if op in KNOWN:
        return KNOWN[op](*a)
    function = z3.Function(op, *([SORT] * (len(a) + 1)))
    return function(*a)


def _larger(a: Any, b: Any) -> Any:
    first = z3.Or(z3.fpIsNaN(a), z3.fpGT(a, b), z3.And(z3.fpEQ(a, b), z3.fpIsNegative(b)))
    return z3.If(first, a, b)


def _smaller(a: Any, b: Any) -> Any:
    return z3.fpNeg(_larger(z3.fpNeg(a), z3.fpNeg(b)))


def _indicator(condition: Any) -> Any:
    return z3.If(condition, z3.FPVal(1, SORT), z3.FPVal(0, SORT))


def _relu(a: Any) -> Any:
    return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpGEQ(a, z3.FPVal(0, SORT))), a, z3.FPVal(0, SORT))


KNOWN: Mapping[str, Any] = {
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
"""The operations that Z3 knows, as `floats.OPERATIONS` evaluates them."""
