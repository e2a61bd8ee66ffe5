"""Terms as straight-line scalar code: the IEEE operations, in order, that compute one element of a term.

The code follows the definitions in specs/, at concrete sizes. If ONNX Runtime's kernel for an operator rounds differently from
the definition, the code follows the kernel: Softmax subtracts the maximum, Softplus keeps the digits of a small result, and
MatMul uses fused multiply-adds. Equal instructions are stored once and share one number. Two elements with the same number are
therefore computed in the same way and are equal bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from superopt.algebra import index
from superopt.algebra.bilinear import Matrix
from superopt.algebra.operators import apply, interpret, operator
from superopt.algebra.terms import Attribute, Cond, Extent, Size, Term, subterms, variable
from superopt.errors import ShapeError
from superopt.policy import FLOATING_POINT
from superopt.speclib.composite import unfolded

Input: TypeAlias = "tuple[str, tuple[int, ...]]"
"""An input of scalar code: the name of a variable, and the position of one element."""

COMMUTATIVE = frozenset({"add", "mul", "max", "min"})
FUSED = frozenset({"conv", "conv_transpose", "gram_matmul", "matmul", "winograd", "winograd_kernel"})
"""Operators whose kernels add products by fused multiply-adds."""
CONDITIONS = {"where": (0,), "logical_and": (0, 1), "logical_not": (0,), "logical_or": (0, 1)}
"""For each operator, the positions of the operands that are booleans in a model."""
POSITIONS = {"gather": 1, "lookup": 1, "one_hot": 0}
"""For each operator, the position of the operand that contains indices along an axis."""


class ProgramTooLongError(Exception):
    """Raised when an element takes more instructions than the limit."""


@dataclass(frozen=True)
class LoadConstant:
    """An instruction whose result is a number."""

    number: Fraction | float


@dataclass(frozen=True)
class LoadInput:
    """An instruction whose result is an input."""

    element: Input


@dataclass(frozen=True)
class Compute:
    """An instruction that applies an operation to results of earlier instructions, whose numbers are `operands`."""

    op: str
    operands: tuple[int, ...]


Instruction: TypeAlias = "LoadConstant | LoadInput | Compute"


class Program:
    """A list of distinct instructions, in which operands come before the instructions that use them."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._numbers: dict[Instruction, int] = {}

    def emit(self, op: str, *operands: int) -> int:
        """Return the number of the instruction with this operation and these operands.

        If the program does not contain the instruction, the instruction is added at the end of the program.
        """
        if op in COMMUTATIVE and operands[0] > operands[1]:
            operands = operands[1], operands[0]
        if op == "fma" and operands[0] > operands[1]:
            operands = operands[1], operands[0], operands[2]
        if op in ("max", "min") and operands[0] == operands[1]:
            return operands[0]
        return self.append(Compute(op, operands))

    def append(self, instruction: Instruction) -> int:
        """Return the number of the instruction. A new instruction is added at the end of the program."""
        number = self._numbers.get(instruction)
        if number is None:
            number = self._numbers[instruction] = len(self.instructions)
            self.instructions.append(instruction)
            if number > FLOATING_POINT.max_instructions:
                raise ProgramTooLongError
        return number

    def under(self, roots: Iterable[int]) -> list[int]:
        """Return the numbers of the instructions `roots` and of all instructions on which they depend, in execution order."""
        needed: set[int] = set()
        stack = list(roots)
        while stack:
            number = stack.pop()
            if number not in needed:
                needed.add(number)
                instruction = self.instructions[number]
                stack += instruction.operands if isinstance(instruction, Compute) else ()
        return sorted(needed)

    def operations(self, root: int) -> list[Compute]:
        """Return the operations on which the instruction with the number `root` depends, in execution order."""
        code = (self.instructions[number] for number in self.under([root]))
        return [instruction for instruction in code if isinstance(instruction, Compute)]


class Scalar:
    """The result of an instruction of scalar code, identified by the number of the instruction."""

    __slots__ = ("_number", "code")

    def __init__(self, code: ScalarCode, number: int) -> None:
        self.code = code
        self._number = number

    @property
    def number(self) -> int:
        """The number of the instruction that computes the scalar."""
        return self._number

    def __add__(self, other: Scalar) -> Scalar:
        return self.code.result("add", self, other)

    def __sub__(self, other: Scalar) -> Scalar:
        return self.code.result("sub", self, other)

    def __mul__(self, other: Scalar) -> Scalar:
        return self.code.result("mul", self, other)


class Summands(Scalar):
    """A sum whose additions are not emitted yet. An enclosing sum can append these summands to its own list of summands.

    A kernel computes the nested sums of one operator in this way.
    """

    __slots__ = ("summands",)

    def __init__(self, code: ScalarCode, summands: Sequence[Scalar]) -> None:
        super().__init__(code, -1)
        self.summands = summands

    @property
    def number(self) -> int:
        if self._number < 0:
            self._number = self.code.added(self.summands)
        return self._number


def scalar_code_at(tensor: index.Tensor, position: tuple[int, ...]) -> Scalar:
    """Return the element of the tensor at this position."""
    found: Scalar = tensor[position]
    return found


class ScalarCode:
    """An interpreter of operator definitions (index notation) that emits instructions.

    An index is a number, and a value is a `Scalar`.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.fused = False
        self.depth = 0

    def result(self, op: str, *operands: Scalar) -> Scalar:
        """Emit the operation on these operands, and return the result."""
        return Scalar(self, self.program.emit(op, *(operand.number for operand in operands)))

    def constant(self, value: Attribute) -> Scalar:
        """Return `value` as a constant of the program. The value must be a number."""
        assert not isinstance(value, str | Size | tuple)
        number = value if isinstance(value, float) else Fraction(value)
        return Scalar(self, self.program.append(LoadConstant(number)))

    def value(self, scalar: Scalar) -> Fraction | float | None:
        """Return the value of the scalar if the scalar is a constant. Otherwise, return None."""
        instruction = self.program.instructions[scalar.number]
        return instruction.number if isinstance(instruction, LoadConstant) else None

    # ------------------------------------------------------------ index notation

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Scalar]) -> index.Tensor:
        return index.Tensor(shape, self._once(at, fused=None))

    def require(self, condition: Cond, message: str) -> None:
        if not condition:
            raise ShapeError(message)

    def total(self, extent: Extent, body: Callable[[int], Scalar]) -> Scalar:
        summands: list[Scalar] = []
        self.depth += 1
        for k in range(int(extent)):  # type: ignore[arg-type]
            part = body(k)
            summands += part.summands if isinstance(part, Summands) else [part]
        self.depth -= 1
        return Summands(self, summands)

    def added(self, summands: Sequence[Scalar]) -> int:
        """Emit instructions that add the summands from first to last, and return the number of the last instruction.

        If the operator's kernel uses fused multiply-adds, products are added by fused multiply-adds.
        """
        found = summands[0].number
        for part in summands[1:]:
            match self.program.instructions[part.number]:
                case Compute("mul", operands) if self.fused:
                    found = self.program.emit("fma", *operands, found)
                case _:
                    found = self.program.emit("add", found, part.number)
        return found

    def maximum(self, extent: Extent, body: Callable[[int], Scalar]) -> Scalar:
        return self.extreme("max", [body(k) for k in range(int(extent))])  # type: ignore[arg-type]

    def extreme(self, op: str, values: Sequence[Scalar]) -> Scalar:
        """Return the largest of the values if `op` is "max", or the smallest if `op` is "min".

        Constants equal to minus infinity are ignored.
        """
        real = [v for v in values if self.value(v) != -float("inf")] or list(values[:1])
        return functools.reduce(functools.partial(self.result, op), real)

    def select(self, condition: bool, then: Scalar, other: Scalar) -> Scalar:
        return then if condition else other

    def picked(self, value: Scalar, extent: Extent, body: Callable[[int], Scalar]) -> Scalar:
        if self.program.instructions[value.number] == Compute("undefined", ()):
            return value
        position = self.value(value)
        assert position is not None, "positions are constants"
        return body(int(position) % int(extent))  # type: ignore[arg-type]

    def call(self, function: str, *arguments: Scalar) -> Scalar:
        if function == "larger":
            return self.result("max", *arguments)
        return self.result(function, *arguments)

    def number(self, value: Extent) -> Scalar:
        return self.constant(value)

    def entry(self, matrix: Callable[[], Matrix], row: int, column: int) -> Scalar:
        return self.constant(matrix()[row][column])

    def lowest(self) -> Scalar:
        return self.constant(-float("inf"))

    # ------------------------------------------------------------ terms

    def read(self, name: str, shape: tuple[int, ...], known: Mapping[tuple[int, ...], float] | None = None) -> index.Tensor:
        """Return the variable `name` as a tensor. The elements are inputs of the program. If `known` is given, the elements are
        the constants in `known` instead.
        """

        def at(*position: int) -> Scalar:
            if not all(0 <= i < n for i, n in zip(position, shape, strict=True)):
                return self.result("undefined")
            if known is not None:
                return self.constant(known[position])
            return Scalar(self, self.program.append(LoadInput((name, position))))

        return index.Tensor(shape, at)

    def tensors(self, roots: Sequence[Term], leaves: Mapping[Term, index.Tensor], *, turned: bool) -> list[index.Tensor]:
        """Return the tensor of each term, given the tensors of variables in `leaves`.

        If `turned` is True, sums and products of three or more operands are computed from the last operand to the first.
        """
        known = dict(leaves)
        with index.interpreted(self):
            for term in subterms(*roots):
                if term not in known:
                    known[term] = self._kernel(term, [known[a] for a in term.args], turned=turned)
        return [known[root] for root in roots]

    def _kernel(self, term: Term, operands: Sequence[index.Tensor], *, turned: bool) -> index.Tensor:
        kernel = KERNELS.get(term.op)
        if kernel is not None:
            found = kernel(self, term, operands)
            if found is not None:
                return index.Tensor(found.shape, self._once(found.at, fused=False))
        spec = operator(term.op)
        if spec.commutative:
            order = list(zip(term.args, operands, strict=True))
            if turned and len(order) > 2:
                order.reverse()
            found = self._chain(term, order)
            return index.Tensor(found.shape, self._once(found.at, fused=False))
        if term.op not in FUSED and spec.composite:
            standing = [variable(f"#{n}", a.shape) for n, a in enumerate(term.args)]
            body = unfolded(apply(term.op, *standing, **dict(term.attributes)))
            if body is not None:
                (found,) = self.tensors([body], dict(zip(standing, operands, strict=True)), turned=turned)
                return found
        found = interpret(term, operands)
        return index.Tensor(found.shape, self._once(found.at, fused=term.op in FUSED))

    def _chain(self, term: Term, operands: Sequence[tuple[Term, index.Tensor]]) -> index.Tensor:
        """Compute a sum, product, maximum or minimum of any number of operands. A reciprocal factor becomes a division."""
        op = {"add": "add", "mul": "mul", "maximum": "max", "minimum": "min"}[term.op]
        below = [t for part, t in operands if op == "mul" and part.op == "reciprocal"][: len(operands) - 1]
        above = [t for _, t in operands if t not in below]

        def at(*position: int) -> Scalar:
            found = functools.reduce(functools.partial(self.result, op), [scalar_code_at(t, position) for t in above])
            for t in below:
                found = self.divided(found, scalar_code_at(t, position))
            return found

        return index.Tensor(operands[0][1].shape, at)

    def divided(self, above: Scalar, below: Scalar) -> Scalar:
        """Return `above / d` if `below` is the reciprocal of d, and `above * below` otherwise."""
        match self.program.instructions[below.number]:
            case Compute("reciprocal", (divisor,)):
                return Scalar(self, self.program.emit("div", above.number, divisor))
            case _:
                return above * below

    def _once(self, at: Callable[..., Scalar], *, fused: bool | None) -> Callable[..., Scalar]:
        """Return a cached version of the function `at`, which computes the element at a position.

        Within one call of `at`, nested sums are merged, and products are fused into sums. `fused` decides whether sums use
        fused multiply-adds. If `fused` is None, the setting of the enclosing call applies.
        """
        known: dict[tuple[int, ...], Scalar] = {}

        def value(*position: int) -> Scalar:
            if position not in known:
                outer = self.fused, self.depth
                self.fused, self.depth = self.fused if fused is None else fused, 0
                try:
                    with index.interpreted(self):
                        found = at(*position)
                    known[position] = Scalar(self, found.number)
                finally:
                    self.fused, self.depth = outer
            return known[position]

        return value


Kernel: TypeAlias = "Callable[[ScalarCode, Term, Sequence[index.Tensor]], index.Tensor | None]"


def _elementwise(op: str) -> Kernel:
    def kernel(code: ScalarCode, _: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
        return index.Tensor(operands[0].shape, lambda *i: code.result(op, *(t[i] for t in operands)))

    return kernel


def _scale(code: ScalarCode, term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    """Multiply by the attribute `factor`. A factor of -1 becomes a negation, and a scaled reciprocal becomes a quotient."""
    (x,), factor = operands, code.constant(term["factor"])

    def at(*position: int) -> Scalar:
        if term["factor"] == -1:
            return code.result("neg", x[position])
        if term.args[0].op == "reciprocal":
            return code.divided(factor, scalar_code_at(x, position))
        return scalar_code_at(x, position) * factor

    return index.Tensor(x.shape, at)


def _leaky_relu(code: ScalarCode, term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    (x,) = operands
    return index.Tensor(x.shape, lambda *i: _sloped(code, x[i], code.constant(term["alpha"])))


def _prelu(code: ScalarCode, _: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    x, slope = operands
    return index.Tensor(x.shape, lambda *i: _sloped(code, x[i], slope[i]))


def _sloped(code: ScalarCode, x: Scalar, slope: Scalar) -> Scalar:
    return code.result("choose", code.result("less", x, code.constant(0)), x * slope, x)


def _softplus(code: ScalarCode, _: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    """Compute max(x, 0) + log1p(exp(-|x|)), which keeps the digits of a small result."""
    (x,) = operands

    def at(*position: int) -> Scalar:
        size = code.result("abs", x[position])
        return code.result("relu", x[position]) + code.result("log1p", code.result("exp", code.result("neg", size)))

    return index.Tensor(x.shape, at)


def _softmax(code: ScalarCode, term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    """Compute exp(x - m) divided by the sum of exp(x - m), or the logarithm of this quotient. Here m is the largest element."""
    (x,), axis = operands, term.integer("axis")

    def at(*position: int) -> Scalar:
        def along(k: int) -> Scalar:
            return scalar_code_at(x, tuple(k if a == axis else i for a, i in zip(range(-x.rank, 0), position, strict=True)))

        values = [along(k) for k in range(int(x.shape[axis]))]  # type: ignore[arg-type]
        largest = code.extreme("max", values)
        total = functools.reduce(functools.partial(code.result, "add"), [code.result("exp", v - largest) for v in values])
        shifted = scalar_code_at(x, position) - largest
        if term.op == "log_softmax":
            return shifted - code.result("log", total)
        return code.result("div", code.result("exp", shifted), total)

    return index.Tensor(x.shape, at)


def _reduce_min(code: ScalarCode, term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    (x,), axes = operands, term.integers("axes")
    rest = [a for a in range(-x.rank, 0) if a not in axes]

    def at(*position: int) -> Scalar:
        values = [x[p] for p in _positions(x.shape, axes, dict(zip(rest, position, strict=True)))]
        return code.extreme("min", values)

    return index.Tensor(tuple(x.shape[a] for a in rest), at)


def _positions(shape: Sequence[Extent], axes: Sequence[int], given: Mapping[int, int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for a in range(-len(shape), 0):
        choices = range(int(shape[a])) if a in axes else (given[a],)  # type: ignore[arg-type]
        found = [(*p, k) for p in found for k in choices]
    return found


def _gather(code: ScalarCode, term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    """Read the gathered element directly. The definition of gather computes a sum over all positions."""
    (x, indices), axis = operands, term.integer("axis")

    def at(*position: int) -> Scalar:
        return code.picked(
            indices[(position[axis],)],
            x.shape[axis],
            lambda k: x[tuple(k if a == axis else i for a, i in zip(range(-x.rank, 0), position, strict=True))],
        )

    return index.Tensor(term.shape, at)


def _one_hot(code: ScalarCode, term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    (indices,), depth = operands, term.integer("depth")
    return index.Tensor(term.shape, lambda i, n: code.picked(indices[(i,)], depth, lambda k: code.constant(int(k == n))))


def _pad_with(code: ScalarCode, term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    (x,), before = operands, term.integers("before")

    def at(*position: int) -> Scalar:
        source = tuple(i - p for i, p in zip(position, before, strict=True))
        seen = all(0 <= i < int(n) for i, n in zip(source, x.shape, strict=True))  # type: ignore[arg-type]
        return x[source] if seen else code.constant(term["value"])

    return index.Tensor(term.shape, at)


KERNELS: Mapping[str, Kernel] = {
    "abs": _elementwise("abs"),
    "equal": _elementwise("equal"),
    "gather": _gather,
    "leaky_relu": _leaky_relu,
    "less": _elementwise("less"),
    "less_equal": _elementwise("less_equal"),
    "log_softmax": _softmax,
    "one_hot": _one_hot,
    "pad_with": _pad_with,
    "prelu": _prelu,
    "reduce_min": _reduce_min,
    "scale": _scale,
    "sigmoid": _elementwise("sigmoid"),
    "softmax": _softmax,
    "softplus": _softplus,
    "sub": _elementwise("sub"),
    "tanh": _elementwise("tanh"),
}
"""For some operators, a function that emits the operator's code. ONNX Runtime's kernel for such an operator rounds differently
from the definition, or the definition computes the result indirectly.
"""
