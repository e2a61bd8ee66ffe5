"""The batches family: batched products, tensors stacked along a new axis, and rows selected by constant indices."""

from __future__ import annotations

from superopt.algebra.terms import variable
from superopt.discovery.universe import FACTOR, FACTORS, Template, Universe, binary, split_parts, unary, universe_symbols
from superopt.discovery.universes.matrix import SMALL, K, L, M, N

B, P = universe_symbols("b p")
SIZES = {"n": SMALL, "k": SMALL, "m": SMALL}
_X, _Y = (variable(name, (B, N, K)) for name in "xy")
_W, _V = (variable(name, (B, K, M)) for name in "wv")

BATCHED = Universe(
    family="batches",
    name="batched",
    variables=((_X, _Y), (_W, _V), (variable("u", (K, M)),), (variable("t", (M,)),)),
    constants=(),
    templates=(
        unary("relu", first=B),
        unary("scale", factor=FACTOR),
        unary("transpose", perm=(-3, -1, -2), first=B),
        unary("transpose", perm=(-2, -3, -1), first=B),
        unary("expand", shape=(B, N, M), axes=(-1,)),
        unary("expand", shape=(B, K, M), axes=(-1,)),
        unary("expand", shape=(B, K, M), axes=(-2, -1)),
        unary("reduce_sum", axes=(-3,), first=B),
        unary("reduce_mean", axes=(-2,), first=B),
        unary("reshape", shape=(B * N, K), first=B),
        unary("reshape", shape=(B * N, M), first=B),
        split_parts(-3),
        binary("add"),
        binary("mul", beside="expand"),
        binary("matmul"),
        binary("concat", axis=-3),
    ),
    ranges={**SIZES, "b": SMALL, "a": FACTORS},
)

_ROWS, _COLUMNS = variable("x", (N, K)), variable("y", (P, K))
_WEIGHTS = variable("w", (K, M)), variable("v", (K, M))

REPEATED = Universe(
    family="batches",
    name="repeated",
    variables=((_ROWS,), (_COLUMNS,), _WEIGHTS, (variable("z", (P, N, K)),)),
    constants=(),
    templates=(
        unary("expand", shape=(P, N, K), axes=(-2, -1)),
        unary("expand", shape=(P, N, K), axes=(-3, -1)),
        unary("expand", shape=(P, N, M), axes=(-2, -1)),
        unary("expand", shape=(P, N, M), axes=(-3, -1)),
        unary("relu", first=P),
        unary("scale", factor=FACTOR, first=P),
        unary("reduce_mean", axes=(-2,), first=P),
        unary("transpose", perm=(-2, -3, -1), first=P),
        binary("add"),
        binary("mul"),
        binary("matmul"),
        binary("concat", axis=-1),
    ),
    ranges={**SIZES, "p": SMALL, "a": FACTORS},
    limit=3,
)

PAIRS = Universe(
    family="batches",
    name="pairs",
    variables=((_ROWS,), (variable("y", (P, L)),), (variable("z", (P, N, L)),), (variable("w", (K + L, M)),)),
    constants=(),
    templates=(
        unary("expand", shape=(P, N, K), axes=(-2, -1)),
        unary("expand", shape=(P, N, L), axes=(-3, -1)),
        unary("expand", shape=(P, N, M), axes=(-2, -1)),
        unary("expand", shape=(P, N, M), axes=(-3, -1)),
        split_parts(-2),
        binary("add"),
        binary("matmul"),
        binary("concat", axis=-1),
    ),
    ranges={**SIZES, "p": SMALL, "l": SMALL},
    limit=5,
    weighing=2,
)

SPREAD = Universe(
    family="batches",
    name="spread biases",
    variables=((variable("x", (N, M)),), (variable("y", (P, M)),), (variable("t", (M,)),)),
    constants=(),
    templates=(
        unary("expand", shape=(P, N, M), axes=(-2, -1)),
        unary("expand", shape=(P, N, M), axes=(-3, -1)),
        unary("expand", shape=(P, N, M), axes=(-1,)),
        unary("expand", shape=(N, M), axes=(-1,)),
        unary("expand", shape=(P, M), axes=(-1,)),
        binary("add"),
        binary("mul", beside="expand"),
    ),
    ranges={"n": SMALL, "m": SMALL, "p": SMALL},
)

_x, _y = (variable(name, (N, K)) for name in "xy")
_w, _v = (variable(name, (K, M)) for name in "wv")

STACKED = Universe(
    family="batches",
    name="stacked",
    variables=((_x, _y), (_w, _v)),
    constants=(),
    templates=(
        unary("reshape", shape=(1, N, K)),
        unary("reshape", shape=(1, K, M)),
        unary("reshape", shape=(1, N, M)),
        unary("reshape", shape=(N, M)),
        unary("relu", first=1),
        split_parts(-3),
        binary("add"),
        binary("matmul"),
        binary("concat", axis=-3),
        binary("concat", axis=-2),
    ),
    ranges=SIZES,
    limit=4,
)

(_Q,) = universe_symbols("q")

UNFLATTENED = Universe(
    family="batches",
    name="unflattened",
    variables=((variable("x", (N, P * K)),), (variable("y", (N, _Q * K)),)),
    constants=(),
    templates=(
        *(unary("reshape", shape=(N, extent, K), first=N) for extent in (P, _Q, P + _Q)),
        *(unary("reshape", shape=(N, extent * K), first=N) for extent in (P, _Q, P + _Q)),
        unary("transpose", perm=(-2, -3, -1)),
        split_parts(-1),
        split_parts(-2),
        split_parts(-3),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
        binary("concat", axis=-3),
    ),
    ranges={"n": SMALL, "p": SMALL, "q": SMALL, "k": SMALL},
)

PICKED = Universe(
    family="batches",
    name="picked",
    variables=((_x, _y), (_w,), (variable("i", (P,)),), (variable("t", (K,)),)),
    constants=(),
    templates=(
        Template("gather", 2, {"axis": -2}, takes=((), ("i",))),
        Template("gather", 2, {"axis": -1}, takes=((), ("i",))),
        Template("one_hot", 1, {"depth": N}, takes=(("i",),)),
        Template("one_hot", 1, {"depth": K}, takes=(("i",),)),
        unary("relu", first=N),
        unary("scale", factor=FACTOR, first=N),
        unary("transpose", perm=(-1, -2)),
        unary("expand", shape=(N, K), axes=(-1,)),
        split_parts(-1),
        binary("add"),
        binary("mul"),
        binary("matmul"),
        binary("concat", axis=-1),
    ),
    ranges={**SIZES, "p": SMALL, "a": FACTORS},
    conditions=("i",),
)
