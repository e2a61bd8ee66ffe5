"""The gates family: products whose rows are scaled by numbers that are known only at run time, as in mixtures of experts."""

from __future__ import annotations

from superopt.algebra.terms import Extent, variable
from superopt.discovery.universe import Universe, binary, unary, universe_symbols

N, K, M = universe_symbols("n k m")
SMALL: tuple[Extent, ...] = (2, 3, 4)
SIZES = {"n": SMALL, "k": SMALL, "m": SMALL}
X, Y = variable("x", (N, K)), variable("y", (N, K))
W, V = variable("w", (K, M)), variable("v", (K, M))
BIAS = variable("b", (M,))

ROWS = Universe(
    family="gates",
    name="weighted rows",
    variables=((X, Y), (W, V), (variable("g", (N,)), variable("h", (N,))), (BIAS,)),
    constants=(),
    templates=(
        unary("expand", shape=(N, K), axes=(-2,), first=N),
        unary("expand", shape=(N, M), axes=(-2,), first=N),
        unary("expand", shape=(N, M), axes=(-1,), first=M),
        unary("reshape", shape=(N, 1), first=N),
        unary("reshape", shape=(1, M), first=M),
        binary("add"),
        binary("mul", beside="expand"),
        binary("matmul"),
    ),
    ranges=SIZES,
    limit=4,
)

SCALARS = Universe(
    family="gates",
    name="weighted tensors",
    variables=((X, Y), (W, V), (variable("g", ()), variable("h", ())), (BIAS,)),
    constants=(),
    templates=(
        unary("expand", shape=(N, K), axes=()),
        unary("expand", shape=(N, M), axes=()),
        unary("expand", shape=(K, M), axes=()),
        unary("expand", shape=(N, M), axes=(-1,), first=M),
        binary("add"),
        binary("mul", beside="expand"),
        binary("matmul"),
    ),
    ranges=SIZES,
    limit=4,
)

OUTER = Universe(
    family="gates",
    name="outer products",
    variables=((variable("g", ()),), (variable("t", (N,)),), (BIAS,)),
    constants=(),
    templates=(
        unary("expand", shape=(1, M), axes=()),
        unary("expand", shape=(1, 1, M), axes=()),
        unary("expand", shape=(1, M), axes=(-1,), first=M),
        unary("expand", shape=(1, 1, M), axes=(-1,), first=M),
        unary("expand", shape=(1, N, M), axes=(-1,), first=M),
        unary("expand", shape=(1, N, M), axes=(-2,), first=N),
        unary("reshape", shape=(1, 1)),
        unary("reshape", shape=(1, 1, 1)),
        unary("reshape", shape=(1, N, 1), first=N),
        unary("reshape", shape=(1, M), first=M),
        unary("reshape", shape=(1, 1, M), first=M),
        binary("mul", beside="expand"),
        binary("matmul"),
    ),
    ranges=SIZES,
    limit=3,
)

UNIVERSES = (ROWS, SCALARS, OUTER)
