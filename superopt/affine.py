"""A factor and a bias for every position of one axis, as ONNX's normalizations take them: lifted as a product and a sum.

On lowering they go back into the normalization (see `model.hosts`). What is constant along other axes stands under an `expand`.
"""

from __future__ import annotations

from superopt.graph import Cond, Term, at_least, conjunction, negation, same
from superopt.index import Real
from superopt.op import Emit, Node, apply


def positive(number: Real) -> Cond:
    """Whether a real attribute is larger than 0."""
    return conjunction(at_least(number, 0), negation(same(number, 0)))


def rows(node: Node, first: int = 1) -> tuple[Term | None, Term | None]:
    """The factor and the bias that two inputs of a normalization are, from the `first` on, None where they change nothing."""
    factor = None if node.uniform(first) == 1 else node.operand(first)
    return factor, _unless_zero(node, first + 1)


def _unless_zero(node: Node, position: int) -> Term | None:
    """The input, or None where it is left out or changes nothing in a sum."""
    return None if node.absent(position) or node.uniform(position) == 0 else node.operand(position)


def residual(node: Node, bias: int) -> Term:
    """The sum of inputs 0 and 1, broadcast, and of the vector along the last axis that the input `bias` may be."""
    x = node.operand(0)
    return affine(apply("add", x, node.expanded(node.operand(1), x.sizes)), None, _unless_zero(node, bias), -1)


def affine(x: Term, factor: Term | None, bias: Term | None, axis: int) -> Term:
    """x * factor + bias, both vectors along this axis, counted from the end."""
    if factor is not None:
        x = apply("mul", x, apply("expand", factor, shape=x.shape, axes=(axis,)))
    return x if bias is None else apply("add", x, apply("expand", bias, shape=x.shape, axes=(axis,)))


def axis_of(host: Term, name: str, axis: int) -> int | None:
    """`axis` where the host is the operator `name`, or that times a constant factor along the axis; otherwise None."""
    return axis if host.op == name or split(host, name, axis) is not None else None


def split(host: Term, name: str, axis: int) -> tuple[Term, Term] | None:
    """What the operator `name` computes and the vector along the axis that it is multiplied by, where the host is that."""
    if host.op != "mul" or len(host.args) != 2:
        return None
    x, factor = sorted(host.args, key=lambda a: a.op != name)
    along = factor.op == "expand" and factor.constant and factor.integers("axes") == (axis,)
    return (x, factor.args[0]) if x.op == name and along else None


def applied(x: Term | str, factor: Term | None, bias: Term | None, axis: int, emit: Emit) -> str:
    """The value of x * factor + bias, a node for each of the two that is given."""
    value = x
    for op_type, row in (("Mul", factor), ("Add", bias)):
        if row is not None:
            shape = (*row.shape, *(1,) * (-1 - axis))
            value = emit(op_type, value, apply("reshape", row, shape=shape) if shape != row.shape else row)
    assert isinstance(value, str), "a factor or a bias is given"
    return value
