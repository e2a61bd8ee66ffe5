"""Evaluation of scalar code in binary floating-point formats for many inputs at once, and estimation of rounding errors.

Every operation is computed in float64 and rounded to the nearest number of the format, ties to even. Sums, products, quotients
and roots in formats of at most 24 bits are correctly rounded. Results of exponentials and similar functions are within half a
unit in the last place of the real result, except for rare ties. ONNX Runtime's kernels are less accurate by a few units in the
last place, and add long sums in a different order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from superopt.algebra.evaluate import FUNCTIONS
from superopt.floating_point.scalars import Compute, Input, Instruction, LoadConstant, LoadInput, Program

Array: TypeAlias = "npt.NDArray[np.float64]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        precision: The number of bits of the significand, including the leading bit.
        least: The smallest exponent of normal numbers.
        most: The largest exponent of normal numbers.
    """

    name: str
    precision: int
    least: int
    most: int

    @property
    def epsilon(self) -> float:
        """Half the distance from 1 to the next larger number: a bound on the relative rounding error of a normal number."""
        return math.ldexp(1.0, -self.precision)

    @property
    def tiny(self) -> float:
        """The smallest positive number, which is subnormal."""
        return math.ldexp(1.0, self.least - self.precision + 1)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return math.ldexp(2.0 - math.ldexp(1.0, 1 - self.precision), self.most)

    def round(self, values: Array) -> Array:
        """Return, for each value, the nearest number of the format."""
        if self == FLOAT32:
            return values.astype(np.float32).astype(np.float64)
        bits = np.ascontiguousarray(values).view(np.int64)
        drop = 53 - self.precision
        rounded = bits + (np.int64((1 << (drop - 1)) - 1) + ((bits >> drop) & 1))
        found = (rounded & ~np.int64((1 << drop) - 1)).view(np.float64)
        found = np.where(np.isfinite(values), found, values)
        if self.least > WIDE.least:
            size = np.abs(values)
            small = size < math.ldexp(1.0, self.least)
            if small.any():
                unit = self.tiny
                found = np.where(small, np.copysign(np.rint(size / unit) * unit, values), found)
            found = np.where(np.abs(found) > self.largest, np.copysign(np.inf, values), found)
        return found


FLOAT32 = Format("float32", 24, -126, 127)
MARGIN = 6
SPARE = Format("float32 with spare exponents", 24, FLOAT32.least - MARGIN, FLOAT32.most + MARGIN)
"""float32 with a slightly larger range of exponents, in which a result that is barely out of float32's range is finite."""
WIDE = Format("float32 with the exponents of float64", 24, -1022, 1023)
"""float32 without overflow. In this format, the two sides of a rule differ only by rounding."""
SMALL = Format("3 exponent and 4 significand bits", 4, -2, 3)
"""The format in which rules are evaluated on all inputs: 3 bits of exponent, and 4 bits of significand with the leading bit."""


@dataclass(frozen=True)
class Contraction:
    """Options for the evaluation of fused multiply-adds and quotients.

    Attributes:
        rounded_products: Whether products in fused multiply-adds are rounded before the addition.
        by_reciprocals: Whether quotients are computed as products with reciprocals.
    """

    rounded_products: bool = False
    by_reciprocals: bool = False


PLAIN = Contraction()
EVERY = Contraction(rounded_products=True, by_reciprocals=True)


def run_program(
    program: Program,
    numbers: Sequence[int],
    inputs: Mapping[Input, Array],
    form: Format,
    how: Contraction = PLAIN,
) -> dict[int, Array]:
    """Evaluate instructions on a batch of inputs, and return the values of each instruction by its number.

    Args:
        program: The program.
        numbers: The numbers of the instructions to evaluate, operands before their users.
        inputs: The values of each input, one for each row of the batch.
        form: The format to which every result is rounded.
        how: Options for fused multiply-adds and quotients.
    """
    known: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for number in numbers:
            match program.instructions[number]:
                case LoadInput(element):
                    known[number] = inputs[element]
                case LoadConstant(constant):
                    known[number] = form.round(np.array([float(constant)]))
                case Compute("fma", operands):
                    a, b, c = (known[i] for i in operands)
                    known[number] = form.round((form.round(a * b) if how.rounded_products else a * b) + c)
                case Compute("div", operands) if how.by_reciprocals:
                    a, b = (known[i] for i in operands)
                    known[number] = form.round(a * form.round(1.0 / b))
                case Compute(op, operands):
                    function, exact = OPERATIONS[op]
                    value = function(*(known[i] for i in operands))
                    known[number] = value if exact else form.round(value)
    return known


def _choose(condition: Array, then: Array, other: Array) -> Array:
    return np.where(condition != 0, then, other)


def _maximum(a: Array, b: Array) -> Array:
    """Return IEEE 754's maximum. The maximum is NaN if either operand is NaN. In addition, +0 is larger than -0."""
    return np.where(np.isnan(a) | (a > b) | ((a == b) & np.signbit(b)), a, b)


def _indicator(test: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *values: test(*values).astype(np.float64)


def _sigmoid(v: Array) -> Array:
    """Return 1 / (1 + exp(-v)), rounded to multiples of 2^-25.

    ONNX Runtime's Sigmoid has an error of at most half a unit in the last place of 1, and is 0 below -18.
    """
    return np.round((0.5 + 0.5 * np.tanh(0.5 * v)) * 2.0**25) / 2.0**25


OPERATIONS: Mapping[str, tuple[Callable[..., Array], bool]] = {
    "add": (np.add, False),
    "sub": (np.subtract, False),
    "mul": (np.multiply, False),
    "div": (np.divide, False),
    "neg": (np.negative, True),
    "abs": (np.abs, True),
    "max": (_maximum, True),
    "min": (lambda a, b: -_maximum(-a, -b), True),
    "relu": (lambda v: np.where((v >= 0) | np.isnan(v), v, 0.0), True),
    "choose": (_choose, True),
    "less": (_indicator(np.less), True),
    "less_equal": (_indicator(np.less_equal), True),
    "equal": (_indicator(np.equal), True),
    "positive": (_indicator(lambda v: v > 0), True),
    "zero": (_indicator(lambda v: v == 0), True),
    "reciprocal": (lambda v: 1.0 / v, False),
    "sqrt": (np.sqrt, False),
    "exp": (np.exp, False),
    "log": (np.log, False),
    "log1p": (np.log1p, False),
    "erf": (FUNCTIONS["erf"], False),
    "power": (np.power, False),
    "tanh": (np.tanh, False),
    "sigmoid": (_sigmoid, False),
}
"""For each operation, the function that computes the operation, and whether the result needs no rounding."""


def scales(program: Program, numbers: Sequence[int], values: Mapping[int, Array], form: Format, steps: int) -> dict[int, Array]:
    """Return the scale of each instruction by the number of the instruction.

    The rounding errors of an instruction are proportional to its scale.

    The scale of a sum is the sum of the operands' scales, and the scale of a product is the product of the operands' scales.
    Only the operand that a maximum or a condition selects contributes to the scale. The scale of a function is the operand's
    scale times the magnitude of the function's derivative. Therefore, to first order, the error of a computed result is at most
    a few units in the last place of the scale. This holds for any grouping of sums and products. Rounding errors of `steps *
    form.epsilon` times the operands' scales may change which operand is selected. If this is possible, the scale is the larger
    of the operands' scales, or infinite.
    """
    found: dict[int, Array] = {}
    slack = steps * form.epsilon
    with np.errstate(all="ignore"):
        for number in numbers:
            instruction = program.instructions[number]
            v = values[number]
            s = _scale(instruction, v, values, found, slack)
            found[number] = np.maximum(s, np.abs(v))
    return found


def _scale(  # noqa: PLR0911 (a case for each operation)
    instruction: Instruction, v: Array, values: Mapping[int, Array], found: Mapping[int, Array], slack: float
) -> Array:
    if not isinstance(instruction, Compute):
        return np.abs(v)
    a = [values[i] for i in instruction.operands]
    s = [found[i] for i in instruction.operands]
    match instruction.op:
        case "add" | "sub":
            return s[0] + s[1]
        case "mul":
            return s[0] * s[1]
        case "fma":
            return s[0] * s[1] + s[2]
        case "div":
            return s[0] / np.abs(a[1]) + np.abs(v) * s[1] / np.abs(a[1])
        case "neg" | "abs":
            return s[0]
        case "max" | "min":
            near = np.abs(a[0] - a[1]) <= slack * (s[0] + s[1])
            first = a[0] > a[1] if instruction.op == "max" else a[0] < a[1]
            return np.where(near, np.maximum(s[0], s[1]), np.where(first, s[0], s[1]))
        case "relu":
            return np.where(a[0] > -slack * s[0], s[0], 0.0)
        case "choose":
            open_ = ~np.isfinite(s[0])
            return np.where(open_, np.inf, np.where(a[0] != 0, s[1], s[2]))
        case "less" | "less_equal" | "equal":
            exact = (s[0] == np.abs(a[0])) & (s[1] == np.abs(a[1]))
            near = np.abs(a[0] - a[1]) <= slack * (s[0] + s[1])
            return np.where(near & ~exact, np.inf, np.abs(v))
        case "sigmoid":
            return np.ones_like(v)
        case "positive" | "zero":
            return np.where((np.abs(a[0]) <= slack * s[0]) & (s[0] != np.abs(a[0])), np.inf, np.abs(v))
        case _:
            return s[0] * np.abs(_derivative(instruction.op, v, a))


def _derivative(op: str, v: Array, a: Sequence[Array]) -> Array:
    match op:
        case "exp":
            return v
        case "log":
            return 1.0 / a[0]
        case "sqrt":
            return 0.5 / v
        case "reciprocal":
            return v * v
        case "erf":
            return (2.0 / math.sqrt(math.pi)) * np.exp(-a[0] * a[0])
        case "log1p":
            return 1.0 / (1.0 + a[0])
        case "tanh":
            return 1.0 - v * v
        case "power":
            return a[1] * v / a[0]
        case _:
            raise AssertionError(f"the derivative of the operation {op} is not defined")
