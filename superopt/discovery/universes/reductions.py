"""The reductions family: sums, means and maxima over axes, softmax, normalizations and scans.

Terms are enumerated at rank 2. The rules are generalised to more ranks later.
"""

from __future__ import annotations

from superopt.algebra.operators import apply
from superopt.algebra.terms import Sym, size, variable
from superopt.discovery.universe import FACTOR, FACTORS, Constant, Universe, binary, split_parts, unary, universe_symbols
from superopt.discovery.universes.matrix import SMALL, K, M, N, X, Y

SIZES = {"n": SMALL, "k": SMALL}
ROW, COLUMN = variable("t", (K,)), variable("r", (N,))
BY_ROW, BY_COLUMN = unary("expand", shape=(N, K), axes=(-1,)), unary("expand", shape=(N, K), axes=(-2,))

SUMS = Universe(
    family="reductions",
    name="sums",
    variables=((X, Y), (ROW,), (COLUMN,)),
    constants=(),
    templates=(
        unary("reduce_sum", axes=(-1,), first=N),
        unary("reduce_sum", axes=(-2,), first=N),
        unary("reduce_mean", axes=(-1,), first=N),
        unary("reduce_sum_square", axes=(-1,), first=N),
        unary("scale", factor=FACTOR),
        unary("transpose", perm=(-1, -2)),
        BY_ROW,
        BY_COLUMN,
        binary("add"),
        binary("sub"),
        binary("mul"),
        binary("concat", axis=-1),
    ),
    ranges={**SIZES, "a": FACTORS},
)

EXTREMES = Universe(
    family="reductions",
    name="extremes",
    variables=((X, Y), (ROW,), (COLUMN,)),
    constants=(),
    templates=(
        unary("reduce_max", axes=(-1,), first=N),
        unary("reduce_max", axes=(-2,), first=N),
        unary("reduce_min", axes=(-1,), first=N),
        unary("relu"),
        unary("scale", factor=FACTOR),
        unary("scale", factor=-1),
        BY_ROW,
        BY_COLUMN,
        split_parts(-2),
        binary("add"),
        binary("maximum"),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges={**SIZES, "a": FACTORS},
    limit=3,
)

SOFTMAXES = Universe(
    family="reductions",
    name="softmaxes",
    variables=((X, Y), (COLUMN,)),
    constants=(),
    templates=(
        unary("softmax", axis=-1),
        unary("log_softmax", axis=-1),
        unary("exp"),
        unary("log"),
        unary("reciprocal"),
        unary("reduce_sum", axes=(-1,), first=N),
        BY_COLUMN,
        binary("add"),
        binary("sub"),
        binary("mul"),
    ),
    ranges=SIZES,
    limit=3,
)

MOVES_OF_SOFTMAXES = Universe(
    family="reductions",
    name="moves of softmaxes",
    variables=((X, Y),),
    constants=(),
    templates=(
        unary("softmax", axis=-1),
        unary("log_softmax", axis=-1),
        unary("softmax", axis=-2),
        unary("layer_norm", epsilon=size(Sym("e", real=True))),
        unary("transpose", perm=(-1, -2)),
        split_parts(-2),
        binary("concat", axis=-2),
    ),
    ranges={**SIZES, "e": (1, 2)},
    limit=3,
)

W, V = variable("w", (K, M)), variable("v", (K, M))

NORMS = Universe(
    family="reductions",
    name="norms",
    variables=((X, Y), (ROW, variable("b", (K,))), (W, V)),
    constants=(),
    templates=(
        unary("layer_norm", epsilon=size(Sym("e", real=True)), first=N),
        unary("rms_norm", epsilon=size(Sym("e", real=True)), first=N),
        BY_ROW,
        unary("expand", shape=(K, M), axes=(-2,)),
        unary("expand", shape=(N, M), axes=(-1,)),
        binary("add"),
        binary("mul", beside="expand"),
        binary("matmul"),
    ),
    ranges={**SIZES, "m": SMALL, "e": (1, 2)},
    limit=5,
)

TIMES, STEP = universe_symbols("o q")

REPEATS = Universe(
    family="reductions",
    name="repeats",
    variables=((X, Y), (ROW,)),
    constants=(),
    templates=(
        unary("tile", axis=-1, times=TIMES),
        unary("repeat", axis=-1, times=TIMES),
        unary("reverse", axis=-1),
        unary("stride", axis=-1, step=STEP),
        unary("relu"),
        unary("scale", factor=FACTOR),
        BY_ROW,
        unary("transpose", perm=(-1, -2)),
        binary("add"),
        binary("mul"),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges={**SIZES, "a": FACTORS, "o": (2, 3), "q": (2, 3)},
    limit=2,
)

SCANS = Universe(
    family="reductions",
    name="scans",
    variables=((X, Y), (variable("w", (K, K)),)),
    constants=(Constant(apply("zeros", shape=(N, K)), ()),),
    templates=(
        unary("cumsum", axis=-1),
        unary("cumsum", axis=-1, exclusive=1),
        unary("cumsum", axis=-1, reverse=1),
        unary("lower_triangle", offset=0),
        unary("upper_triangle", offset=0),
        unary("reverse", axis=-1),
        unary("transpose", perm=(-1, -2)),
        unary("scale", factor=FACTOR),
        binary("add"),
        binary("sub"),
        binary("mul"),
        binary("matmul"),
    ),
    ranges={**SIZES, "a": FACTORS},
    limit=2,
)
