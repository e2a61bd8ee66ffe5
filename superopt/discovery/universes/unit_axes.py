"""The lone family: operators along axes of size 1, as in attention to a single token."""

from __future__ import annotations

from superopt.algebra.operators import apply
from superopt.algebra.terms import Attribute, Extent, variable
from superopt.discovery.universe import Constant, Template, Universe, binary, unary, universe_symbols

B, H, N, K = universe_symbols("b h n k")
SMALL: tuple[Extent, ...] = (2, 3, 4)


def _alone(op: str, **attributes: Attribute) -> Template:
    """Return a template for enumeration: the operator `op`, applied only to the variable `x` (a column vector)."""
    return Template(op, 1, attributes, takes=(("x",),))


def _lone(name: str, rows: Extent) -> Universe:
    """Return a universe (a vocabulary for enumeration) of operators on a matrix with a single column.

    The matrix has the shape (`rows`, 1). Functions such as sums and softmaxes are applied along its last axis, which has size
    1. Along an axis of size 1, each of these functions has a constant result or no effect.
    """
    return Universe(
        family="lone",
        name=name,
        variables=((variable("x", (rows, 1)),), (variable("y", (1, K)),)),
        constants=(Constant(apply("ones", shape=(rows, 1)), ("matmul", "mul")), Constant(apply("zeros", shape=(rows, 1)), ())),
        templates=(
            _alone("reshape", shape=(rows,)),
            _alone("softmax", axis=-1),
            _alone("log_softmax", axis=-1),
            *(_alone(op, axes=(-1,)) for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")),
            Template("reshape", 1, {"shape": (K,)}, takes=(("y",),)),
            unary("expand", shape=(rows, K), axes=(-1,)),
            binary("matmul"),
        ),
        ranges={"n": SMALL, "k": SMALL},
        limit=2,
    )


def _head(name: str, *batch: Extent, rows: Extent) -> Universe:
    """Return a universe (a vocabulary for enumeration) of matrix products. The left matrix is a column of ones, and the right
    matrix is a row.

    Matrix products of this form occur if attention has only a single token to attend to. Both matrices are stacked along
    leading axes with the extents `batch`. For example, there is one matrix for each head. The column has `rows` elements.
    """
    axes = (*range(-2 - len(batch), -2), -1)
    return Universe(
        family="lone",
        name=name,
        variables=((variable("y", (*batch, 1, K)),),),
        constants=(Constant(apply("ones", shape=(*batch, rows, 1)), ("matmul",)),),
        templates=(
            unary("reshape", shape=(*batch, K)),
            unary("expand", shape=(*batch, rows, K), axes=axes),
            binary("matmul"),
        ),
        ranges={"b": SMALL, "h": SMALL, "n": SMALL, "k": SMALL},
        limit=2,
    )


ROWS = Universe(
    family="lone",
    name="heads of lone rows",
    variables=((variable("x", (B, 1, H, K)),), (variable("y", (B, H, 1, K)),)),
    constants=(),
    templates=(
        Template("reshape", 1, {"shape": (B, H, 1, K)}, takes=(("x",),)),
        Template("reshape", 1, {"shape": (B, 1, H, K)}, takes=(("y",),)),
        Template("transpose", 1, {"perm": (-4, -2, -3, -1)}, takes=(("x", "y"),)),
    ),
    ranges={"b": SMALL, "h": SMALL, "k": SMALL},
    limit=1,
)

UNIVERSES = (
    _lone("lone columns", N),
    _lone("lone numbers", 1),
    _head("lone keys", H, rows=N),
    _head("lone tokens", H, rows=1),
    _head("lone keys of heads", B, H, rows=N),
    _head("lone tokens of heads", B, H, rows=1),
    ROWS,
)
