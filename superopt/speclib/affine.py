"""The factor and the bias along one axis of ONNX's normalizations, lifted as a product and a sum.

Lowering puts factor and bias back into the normalization (see `superopt.model.epilogues`). In terms, an `expand` repeats factor
and bias along the other axes.
"""

from __future__ import annotations

from superopt.algebra.index import Real
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Cond, Term, at_least, conjunction, negation, same


def positive(number: Real) -> Cond:
    """Return the condition that a real attribute is larger than 0."""
    return conjunction(at_least(number, 0), negation(same(number, 0)))


def rows(node: Node, first: int = 1) -> tuple[Term | None, Term | None]:
    """Return the factor and the bias of a normalization, which are its inputs `first` and `first + 1`.

    A factor of 1 and a bias of 0 are returned as None.
    """
    factor = None if node.uniform(first) == 1 else node.operand(first)
    return factor, _unless_zero(node, first + 1)


def _unless_zero(node: Node, position: int) -> Term | None:
    """Return the input, or None if it is omitted or zero everywhere."""
    return None if node.absent(position) or node.uniform(position) == 0 else node.operand(position)


def residual(node: Node, bias: int) -> Term:
    """Return the sum of the inputs 0 and 1, with broadcasting, and of the input `bias` if the node has one.

    The input `bias` is a vector along the last axis.
    """
    x = node.operand(0)
    return affine(apply("add", x, node.expanded(node.operand(1), x.sizes)), None, _unless_zero(node, bias), -1)


def affine(x: Term, factor: Term | None, bias: Term | None, axis: int) -> Term:
    """Return x * factor + bias. The factor and the bias are vectors along the axis, which is counted from the end."""
    if factor is not None:
        x = apply("mul", x, apply("expand", factor, shape=x.shape, axes=(axis,)))
    return x if bias is None else apply("add", x, apply("expand", bias, shape=x.shape, axes=(axis,)))


def axis_of(host: Term, name: str, axis: int) -> int | None:
    """Return `axis` if the host is the operator `name`, or `name` times a constant factor along the axis. Else return None."""
    return axis if host.op == name or split(host, name, axis) is not None else None


def split(host: Term, name: str, axis: int) -> tuple[Term, Term] | None:
    """Return an application of `name` and the constant vector that multiplies it along the axis.

    Return None if the host is not such a product.
    """
    if host.op != "mul" or len(host.args) != 2:
        return None
    x, factor = sorted(host.args, key=lambda a: a.op != name)
    along = factor.op == "expand" and factor.constant and factor.integers("axes") == (axis,)
    return (x, factor.args[0]) if x.op == name and along else None


def applied(x: Term | str, factor: Term | None, bias: Term | None, axis: int, emit: Emit) -> str:
    """Write x * factor + bias as ONNX nodes and return the name of the value. At least one of factor and bias must be given."""
    value = x
    for op_type, row in (("Mul", factor), ("Add", bias)):
        if row is not None:
            shape = (*row.shape, *(1,) * (-1 - axis))
            value = emit(op_type, value, apply("reshape", row, shape=shape) if shape != row.shape else row)
    assert isinstance(value, str), "a factor or a bias is given"
    return value
