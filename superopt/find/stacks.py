"""The stacks family: what stands side by side, stacked along an axis of its own and taken out of there again."""

from __future__ import annotations

from superopt.find.universe import Universe, binary, parts, symbols, unary
from superopt.graph import Extent, variable

N, K, M, P, Q, B = symbols("n k m p q b")
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
    templates=(parts(-3), binary("matmul"), binary("concat", axis=-3)),
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
        parts(-3),
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

UNIVERSES = (STACKING, UNSTACKING, FLATTENED, COLUMNS, LONE_ROWS, LAID_OUT, PRODUCTS, LAYERS, WEIGHTED_SUMS, LONE_WEIGHTS)
