"""The stacks family: tensors that are stacked along a separate axis, or unstacked again."""

from __future__ import annotations

from collections.abc import Sequence

from superopt.algebra.terms import Extent, Shape, variable
from superopt.discovery.universe import Universe, binary, split_parts, unary, universe_symbols

N, K, M, P, Q, B = universe_symbols("n k m p q b")
SMALL: tuple[Extent, ...] = (2, 3, 4)
SIZES = {"n": SMALL, "k": SMALL}
_ROWS = tuple(variable(name, (N, K)) for name in "xy")
_LAYERS = tuple(variable(name, (1, N, K)) for name in "xy")

STACKING = Universe(
    family="stacks",
    name="stacking",
    variables=(_ROWS,),
    constants=(),
    templates=(
        unary("reshape", shape=(1, N, K), first=N),
        unary("reshape", shape=(N, 1, K), first=N),
        unary("transpose", perm=(-2, -3, -1)),
        binary("concat", axis=-2),
        binary("concat", axis=-3),
    ),
    ranges=SIZES,
)

UNSTACKING = Universe(
    family="stacks",
    name="unstacking",
    variables=(_LAYERS,),
    constants=(),
    templates=(
        unary("reshape", shape=(N, K)),
        unary("reshape", shape=(N, 1, K)),
        unary("transpose", perm=(-2, -3, -1)),
        binary("concat", axis=-2),
        binary("concat", axis=-3),
    ),
    ranges=SIZES,
)

FLATTENED = Universe(
    family="stacks",
    name="flattened",
    variables=((variable("x", (N, P, K)),), (variable("y", (N, Q, K)),)),
    constants=(),
    templates=(
        *(unary("reshape", shape=(N, extent * K), first=N) for extent in (P, Q, P + Q)),
        unary("transpose", perm=(-2, -3, -1)),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges={**SIZES, "p": SMALL, "q": SMALL},
    limit=3,
)

COLUMNS = Universe(
    family="stacks",
    name="columns",
    variables=((variable("x", (N, 1)), variable("y", (N, 1))),),
    constants=(),
    templates=(
        unary("reshape", shape=(N,), first=N),
        unary("reshape", shape=(1, N), first=N),
        unary("transpose", perm=(-1, -2)),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges=SIZES,
)

LONE_ROWS = Universe(
    family="stacks",
    name="lone rows",
    variables=((variable("x", (1, P * K)),), (variable("y", (1, Q * K)),)),
    constants=(),
    templates=(
        *(unary("reshape", shape=(extent, 1, K), first=1) for extent in (P, Q, P + Q)),
        binary("concat", axis=-1),
        binary("concat", axis=-3),
    ),
    ranges={"p": SMALL, "q": SMALL, "k": SMALL},
)

LAID_OUT = Universe(
    family="stacks",
    name="stacks laid out",
    variables=((variable("x", (P, N, K)),), (variable("y", (Q, N, K)),)),
    constants=(),
    templates=(
        *(unary("reshape", shape=(extent * N, K), first=extent) for extent in (P, Q, P + Q)),
        *(unary("reshape", shape=(1, extent * N, K), first=extent) for extent in (P, Q, P + Q)),
        *(unary("reshape", shape=(1, extent * N * K), first=extent) for extent in (P, Q, P + Q)),
        *(unary("reshape", shape=(1, 1, extent * N * K), first=extent) for extent in (P, Q, P + Q)),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
        binary("concat", axis=-3),
    ),
    ranges={**SIZES, "p": SMALL, "q": SMALL},
    limit=3,
)

PRODUCTS = Universe(
    family="stacks",
    name="products of stacks",
    variables=(
        (variable("x", (B, N, K)), variable("y", (B, N, K))),
        (variable("w", (B, K, M)), variable("v", (B, K, M))),
    ),
    constants=(),
    templates=(split_parts(-3), binary("matmul"), binary("concat", axis=-3)),
    ranges={**SIZES, "m": SMALL, "b": SMALL},
    limit=3,
    weighing=1,
)

LAYERS = Universe(
    family="stacks",
    name="layers with weights of their own",
    variables=(_LAYERS, (variable("w", (K, M)), variable("v", (K, M)))),
    constants=(),
    templates=(
        unary("reshape", shape=(1, K, M), first=K),
        split_parts(-3),
        binary("matmul"),
        binary("concat", axis=-3),
    ),
    ranges={**SIZES, "m": SMALL},
    limit=3,
    weighing=3,
)

_WEIGHTS, _STACK = variable("g", (N, P)), variable("y", (N, P, K))

WEIGHTED_SUMS = Universe(
    family="stacks",
    name="weighted sums of stacks",
    variables=((_WEIGHTS,), (_STACK,)),
    constants=(),
    templates=(
        unary("expand", shape=(N, P, K), axes=(-3, -2)),
        unary("reshape", shape=(N, 1, P), first=N),
        unary("reshape", shape=(N, K), first=N),
        unary("reduce_sum", axes=(-2,)),
        binary("mul", beside="expand"),
        binary("matmul"),
    ),
    ranges={**SIZES, "p": SMALL},
    limit=3,
)

LONE_WEIGHTS = Universe(
    family="stacks",
    name="one weighted sum of a stack",
    variables=((variable("g", (1, P)),), (variable("y", (1, P, K)),)),
    constants=(),
    templates=(
        unary("expand", shape=(1, P, K), axes=(-3, -2)),
        unary("reshape", shape=(P, K), first=1),
        unary("reduce_sum", axes=(-2,)),
        binary("mul", beside="expand"),
        binary("matmul"),
    ),
    ranges={"p": SMALL, "k": SMALL},
    limit=3,
)

JOINED_LAYERS = Universe(
    family="stacks",
    name="two layers with weights of their own",
    variables=LAYERS.variables,
    constants=(),
    templates=(
        unary("reshape", shape=(1, K, M), first=K),
        *(unary("slice", axis=-3, start=layer, stop=layer + 1) for layer in (0, 1)),
        binary("matmul"),
        binary("concat", axis=-3),
    ),
    ranges=LAYERS.ranges,
    limit=3,
    weighing=3,
)

SUMMED_LAYERS = Universe(
    family="stacks",
    name="sums of two layers",
    variables=((variable("x", (P + 2 + Q, N, K)),),),
    constants=(),
    templates=(
        *(unary("slice", axis=-3, start=start, stop=stop) for start, stop in ((P, P + 1), (P + 1, P + 2), (P, P + 2))),
        unary("reduce_sum", axes=(-3,)),
        unary("reshape", shape=(1, N, K), first=N),
        unary("reshape", shape=(N, K), first=1),
        binary("add"),
    ),
    ranges={**SIZES, "p": SMALL, "q": SMALL},
    limit=5,
)

NUMBERS = Universe(
    family="stacks",
    name="stacked numbers",
    variables=((variable("g", ()), variable("h", ())), (variable("a", (P,)),), (variable("b", (Q,)),)),
    constants=(),
    templates=(
        unary("expand", shape=(1, N, M), axes=()),
        *(unary("expand", shape=(extent, N, M), axes=(-3,)) for extent in (2, P, Q, P + Q)),
        unary("reshape", shape=(1,)),
        binary("concat", axis=-1),
        binary("concat", axis=-3),
    ),
    ranges={"n": SMALL, "m": SMALL, "p": SMALL, "q": SMALL},
)


def _regrouped(name: str, one: Shape, other: Shape, shapes: Sequence[Shape], axes: Sequence[int]) -> Universe:
    """Return a universe (a vocabulary for enumeration) with two tensors of shapes `one` and `other`.

    The universe's operators are a concatenation along each axis in `axes` and a reshape to each shape in `shapes`.
    """
    return Universe(
        family="stacks",
        name=name,
        variables=((variable("x", one),), (variable("y", other),)),
        constants=(),
        templates=(*(unary("reshape", shape=shape) for shape in shapes), *(binary("concat", axis=axis) for axis in axes)),
        ranges={"p": SMALL, "q": SMALL, "k": SMALL},
        limit=3,
    )


_EXTENTS = (P, Q, P + Q)

REGROUPED = (
    _regrouped("rows made columns", (1, P), (1, Q), [(extent, 1) for extent in _EXTENTS], (-1, -2)),
    _regrouped("rows made vectors", (1, P), (1, Q), [(extent,) for extent in _EXTENTS], (-1,)),
    _regrouped("lone rows made vectors", (1, 1, P), (1, 1, Q), [(extent,) for extent in _EXTENTS], (-1,)),
    _regrouped("lone rows of a batch", (1, 1, P), (1, 1, Q), [(1, extent) for extent in _EXTENTS], (-1,)),
    _regrouped("lone rows made columns", (1, 1, P), (1, 1, Q), [(1, extent, 1) for extent in _EXTENTS], (-1, -2)),
    _regrouped("lone rows made layers", (1, 1, P * K), (1, 1, Q * K), [(extent, 1, K) for extent in _EXTENTS], (-1, -3)),
    _regrouped("lone rows made rows", (1, P * K), (1, Q * K), [(extent, K) for extent in _EXTENTS], (-1, -2)),
    _regrouped("rows made a lone row", (P, K), (Q, K), [(1, extent * K) for extent in _EXTENTS], (-2, -1)),
    _regrouped("one more of a column", (1, P), (1, 1), ((P, 1), (P + 1, 1)), (-1, -2)),
    _regrouped("one more of a lone column", (1, 1, P), (1, 1, 1), ((1, P, 1), (1, P + 1, 1)), (-1, -2)),
    _regrouped("one more of layers made rows", (P, 1, K), (1, 1, K), ((1, P, K), (1, P + 1, K)), (-3, -2)),
    _regrouped("one more of rows made layers", (1, 1, P * K), (1, 1, K), ((P, 1, K), (P + 1, 1, K)), (-1, -3)),
)


def _neighbouring(name: str, whole: Shape, axis: int, step: Extent, shape: Shape, along: int) -> Universe:
    """Return a universe (a vocabulary for enumeration) of two neighbouring slices of a tensor, and their concatenation.

    The slices have length `step` along `axis` and start at `P` and `P + step`. The slices are concatenated along the axis
    `along`, or reshaped to `shape`.
    """
    cuts = (P, P + step), (P + step, P + 2 * step), (P, P + 2 * step)
    return Universe(
        family="stacks",
        name=name,
        variables=((variable("x", whole),),),
        constants=(),
        templates=(
            *(unary("slice", axis=axis, start=start, stop=stop) for start, stop in cuts),
            unary("reshape", shape=shape),
            binary("concat", axis=along),
        ),
        ranges={"p": SMALL, "q": SMALL, "k": SMALL},
        limit=3,
    )


NEIGHBOURS = (
    _neighbouring("neighbours made layers", (1, 1, P + 2 * K + Q), -1, K, (2, 1, K), -3),
    _neighbouring("neighbouring layers made rows", (P + 2 + Q, 1, K), -3, 1, (1, 2, K), -2),
    _neighbouring("neighbours made rows", (1, P + 2 * K + Q), -1, K, (2, K), -2),
    _neighbouring("neighbouring rows made one", (P + 2 + Q, K), -2, 1, (1, 2 * K), -1),
    _neighbouring("neighbours made a column", (1, P + 2 + Q), -1, 1, (2, 1), -2),
)

LONE_NUMBERS = tuple(
    Universe(
        family="stacks",
        name=f"a number of rank {rank} made one of rank {other}",
        variables=((variable("x", (1,) * rank),),),
        constants=(),
        templates=(unary("reshape", shape=()), unary("reshape", shape=(1,) * other)),
        ranges={},
        limit=2,
    )
    for rank in (1, 2, 3)
    for other in (1, 2, 3)
)

UNIVERSES = (
    STACKING,
    UNSTACKING,
    FLATTENED,
    COLUMNS,
    LONE_ROWS,
    LAID_OUT,
    PRODUCTS,
    LAYERS,
    WEIGHTED_SUMS,
    LONE_WEIGHTS,
    JOINED_LAYERS,
    SUMMED_LAYERS,
    NUMBERS,
    *REGROUPED,
    *NEIGHBOURS,
    *LONE_NUMBERS,
)
