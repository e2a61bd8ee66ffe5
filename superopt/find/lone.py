"""The lone family: what operators are along axes of one position, as attention to a single token has them."""

from __future__ import annotations

from superopt.find.universe import Constant, Template, Universe, binary, symbols, unary
from superopt.graph import Attribute, Extent, variable
from superopt.op import apply

N, K = symbols("n k")
SMALL: tuple[Extent, ...] = (2, 3, 4)


def _alone(op: str, **attributes: Attribute) -> Template:
    """An operator of the column itself."""
    return Template(op, 1, attributes, takes=(("x",),))


def _lone(name: str, rows: Extent) -> Universe:
    """Operators along an axis of one position: there they are constant, or leave what is there alone."""
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


UNIVERSES = (_lone("lone columns", N), _lone("lone numbers", 1))
