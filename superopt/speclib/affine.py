"""Translation of the factor and the bias of ONNX's normalizations.

A normalization node has a factor and a bias along one axis as inputs. Lifting translates the node to a product and a sum, where
an `expand` repeats the factor and the bias along the other axes. Lowering puts the factor and the bias back into the node (see
`superopt.model.epilogues`).
"""

from __future__ import annotations

from superopt.algebra.index import Real
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Cond, Term, at_least, conjunction, negation, same


def positive(number: Real) -> Cond:
    """Return the condition `number > 0`, which files of specs/ require for attributes such as `epsilon` and `scale`."""
    return conjunction(at_least(number, 0), negation(same(number, 0)))


def rows(node: Node, first: int = 1) -> tuple[Term | None, Term | None]:
    """Return the factor and the bias of a normalization node: the inputs at the positions `first` and `first + 1`.

    A factor of 1 and a bias of 0 are returned as None.
    """
    factor = None if node.uniform(first) == 1 else node.operand(first)
    return factor, _unless_zero(node, first + 1)


def _unless_zero(node: Node, position: int) -> Term | None:
    """Return the input at this position, or None if the input is omitted or zero everywhere."""
    return None if node.absent(position) or node.uniform(position) == 0 else node.operand(position)


def residual(node: Node, bias: int) -> Term:
    """Return the sum of the node's inputs 0 and 1 and of its bias. Input 1 is broadcast to the shape of input 0.

    `bias` is the position of the bias, a vector along the last axis. The node may omit the bias.
    """
    x = node.operand(0)
    return affine(apply("add", x, node.expanded(node.operand(1), x.sizes)), None, _unless_zero(node, bias), -1)


def affine(x: Term, factor: Term | None, bias: Term | None, axis: int) -> Term:
    """Return `x * factor + bias`, where the factor and the bias are vectors along `axis`, a negative number.

    A factor or bias that is None is left out.
    """
    if factor is not None:
        x = apply("mul", x, apply("expand", factor, shape=x.shape, axes=(axis,)))
    return x if bias is None else apply("add", x, apply("expand", bias, shape=x.shape, axes=(axis,)))


def normalization_bias_axis(host: Term, name: str, axis: int) -> int | None:
    """Return `axis` if a normalization's node can also add a bias along this axis, and None otherwise.

    The function `bias_axis` in files of specs/ returns this result. The node can add a bias if `host` is an application of the
    operator `name`, possibly multiplied by a constant vector along the axis.
    """
    return axis if host.op == name or split_factor(host, name, axis) is not None else None


def split_factor(host: Term, name: str, axis: int) -> tuple[Term, Term] | None:
    """Split a normalization with a factor: return the application of the operator `name`, and the factor.

    The factor is a constant vector along `axis`. Return None if `host` is not the product of an application and a factor.
    """
    if host.op != "mul" or len(host.args) != 2:
        return None
    x, factor = sorted(host.args, key=lambda a: a.op != name)
    along = factor.op == "expand" and factor.constant and factor.integers("axes") == (axis,)
    return (x, factor.args[0]) if x.op == name and along else None


def applied(x: Term | str, factor: Term | None, bias: Term | None, axis: int, emit: Emit) -> str:
    """Write `x * factor + bias` as ONNX nodes, and return the name of the result.

    A factor or bias that is None is left out. At least one of factor and bias must be given.
    """
    value = x
    for op_type, row in (("Mul", factor), ("Add", bias)):
        if row is not None:
            shape = (*row.shape, *(1,) * (-1 - axis))
            value = emit(op_type, value, apply("reshape", row, shape=shape) if shape != row.shape else row)
    assert isinstance(value, str), "a factor or a bias is given"
    return value
