"""The matrix family: elementwise operators, matrix products, parts of tensors and reductions.

Terms are enumerated at rank 2. The rules are generalised to more ranks later.
"""

from __future__ import annotations

from superopt.algebra.operators import apply
from superopt.algebra.terms import Extent, variable
from superopt.discovery.universe import (
    FACTOR,
    FACTORS,
    OTHER_FACTOR,
    Constant,
    Template,
    Universe,
    binary,
    split_parts,
    unary,
    universe_symbols,
)

N, K, M, L = universe_symbols("n k m l")
SMALL: tuple[Extent, ...] = (2, 3, 4)

X, Y, Z = (variable(name, (N, K)) for name in "xyz")

AFFINE = Universe(
    family="matrix",
    name="affine maps",
    variables=((X,), (variable("b", (N, K)),), (variable("w", (N, K)),)),
    constants=(),
    templates=(
        Template("add", 2, takes=(("x", "b", "mul"),) * 2),
        Template("sub", 2, takes=(("x", "b", "mul"),) * 2),
        Template("mul", 2, takes=(("x", "b", "w", "add", "sub"),) * 2),
    ),
    ranges={"n": SMALL, "k": SMALL},
    limit=3,
)

ELEMENTWISE = Universe(
    family="matrix",
    name="elementwise",
    variables=((X, Y, Z),),
    constants=(
        Constant(apply("zeros", shape=(N, K)), ("add", "sub", "mul", "relu", "scale")),
        Constant(apply("ones", shape=(N, K)), ("mul",)),
    ),
    templates=(
        unary("relu"),
        unary("scale", factor=FACTOR),
        unary("scale", factor=OTHER_FACTOR),
        unary("scale", factor=FACTOR * OTHER_FACTOR),
        unary("scale", factor=-1),
        unary("scale", factor=2),
        binary("add"),
        binary("sub"),
        binary("mul"),
    ),
    ranges={"n": SMALL, "k": SMALL, "a": FACTORS, "e": (3, 11, 13)},
    repeats=True,
)

SPLIT = Universe(
    family="matrix",
    name="products of what is side by side",
    variables=((variable("x", (N, K)),), (variable("y", (N, L)),), (variable("w", (K + L, M)),)),
    constants=(),
    templates=(split_parts(-2), binary("add"), binary("matmul"), binary("concat", axis=-1)),
    ranges={"n": SMALL, "k": SMALL, "l": SMALL, "m": SMALL},
    small=("m",),
    limit=5,
    weighing=2,
)

PIECES = Universe(
    family="matrix",
    name="pieces",
    variables=((X, Y, Z, variable("q", (N, K))),),
    constants=(Constant(apply("zeros", shape=(N, K)), ()), Constant(apply("zeros", shape=(K, N)), ())),
    templates=(
        unary("relu"),
        unary("scale", factor=FACTOR),
        unary("scale", factor=-1),
        unary("transpose", perm=(-1, -2)),
        split_parts(-1),
        split_parts(-2),
        binary("add"),
        binary("sub"),
        binary("mul"),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "a": FACTORS},
)

P, Q = universe_symbols("p q")

_WHOLE = K + L + M + P + Q

INTERVALS = Universe(
    family="matrix",
    name="intervals",
    variables=((variable("x", (N, _WHOLE)), variable("y", (N, _WHOLE))),),
    constants=(),
    templates=(
        unary("slice", axis=-1, start=K, stop=K + L + M + P),
        unary("slice", axis=-1, start=L, stop=L + M),
        unary("slice", axis=-1, start=K, stop=K + L),
        unary("slice", axis=-1, start=K + L, stop=K + L + M),
        unary("slice", axis=-1, start=K, stop=K + L + M),
        binary("concat", axis=-1),
    ),
    ranges={"n": SMALL, "k": SMALL, "l": SMALL, "m": SMALL, "p": SMALL, "q": SMALL},
    limit=3,
)

BIASES = Universe(
    family="matrix",
    name="biases",
    variables=((X,), (variable("y", (N, L)),), (variable("b", (K,)),), (variable("c", (L,)),)),
    constants=(),
    templates=(
        *(unary("expand", shape=(N, extent), axes=(-1,)) for extent in (K, L, K + L)),
        split_parts(-1),
        binary("add"),
        binary("mul"),
        binary("concat", axis=-1),
    ),
    ranges={"n": SMALL, "k": SMALL, "l": SMALL},
    limit=5,
)

FACTORED = Universe(
    family="matrix",
    name="factors side by side",
    variables=((X,), (variable("y", (N, L)),)),
    constants=tuple(Constant(apply("ones", shape=(N, extent)), ("scale", "concat")) for extent in (K, L)),
    templates=(
        Template("scale", 1, {"factor": FACTOR}, takes=(("x", "y", "ones"),)),
        Template("mul", 2, takes=(("concat",), ("concat",))),
        Template("concat", 2, {"axis": -1}, takes=(("x", "y", "ones", "scale"),) * 2),
    ),
    ranges={"n": SMALL, "k": SMALL, "l": SMALL, "a": FACTORS},
)

W, V = variable("w", (K, M)), variable("v", (K, M))

AFFINE_LAYERS = Universe(
    family="matrix",
    name="affine layers",
    variables=((X,), (W,), (variable("b", (K,)),)),
    constants=(),
    templates=(
        Template("expand", 1, {"shape": (N, K), "axes": (-1,)}, takes=(("b",),)),
        Template("expand", 1, {"shape": (N, M), "axes": (-1,)}, takes=(("reshape",),)),
        Template("reshape", 1, {"shape": (1, K)}, takes=(("b",),)),
        Template("reshape", 1, {"shape": (M,)}, takes=(("matmul",),)),
        Template("add", 2, takes=(("x", "expand", "matmul"),) * 2),
        Template("sub", 2, takes=(("x", "expand", "matmul"),) * 2),
        Template("matmul", 2, takes=(("x", "add", "sub", "reshape"), ("w",))),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL},
    limit=2,
    weighing=4,
)

LOW_RANK = Universe(
    family="matrix",
    name="low rank",
    variables=((X,), (W,), (variable("v", (K, L)),), (variable("u", (L, M)),)),
    constants=(),
    templates=(binary("add"), binary("matmul")),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL, "l": SMALL},
    small=("l",),
    limit=5,
)

DIFFERENCES = Universe(
    family="matrix",
    name="differences",
    variables=((X, Y), (W, V), (variable("b", (M,)), variable("c", (M,)))),
    constants=tuple(Constant(apply("zeros", shape=shape), ()) for shape in ((N, K), (K, M), (N, M), (M,))),
    templates=(
        unary("transpose", perm=(-1, -2)),
        unary("expand", shape=(N, M), axes=(-1,)),
        split_parts(-1),
        binary("sub"),
        binary("matmul"),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL},
)

MATRIX = Universe(
    family="matrix",
    name="matrix",
    variables=((X, Y), (W, V), (variable("u", (M, L)),), (variable("b", (M,)), variable("c", (M,))), (variable("t", (K,)),)),
    constants=(Constant(apply("eye", n=K), ("matmul", "add")),),
    templates=(
        unary("relu", first=N),
        unary("relu", first=M),
        unary("scale", factor=FACTOR),
        unary("transpose", perm=(-1, -2)),
        unary("expand", shape=(N, K), axes=(-1,)),
        unary("expand", shape=(N, M), axes=(-1,)),
        unary("expand", shape=(K, M), axes=(-1,)),
        unary("expand", shape=(K, M), axes=(-2,)),
        split_parts(-1),
        split_parts(-2),
        unary("reduce_sum", axes=(-1,), first=N),
        unary("reduce_sum", axes=(-2,), first=N),
        unary("reduce_mean", axes=(-1,), first=N),
        unary("reduce_mean", axes=(-2,), first=N),
        unary("reshape", shape=(N * K,), first=N),
        binary("add"),
        binary("mul", beside="expand"),
        binary("matmul"),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL, "l": SMALL, "a": FACTORS},
    small=("l",),
)

HALVES = Universe(
    family="matrix",
    name="halves",
    variables=(
        (variable("x", (N + K, M + L)), variable("y", (N + K, M + L))),
        (variable("w", (M + L, N)),),
        (variable("u", (N, L)),),
    ),
    constants=(),
    templates=(
        unary("relu"),
        unary("scale", factor=FACTOR),
        unary("transpose", perm=(-1, -2)),
        split_parts(-1),
        split_parts(-2),
        binary("add"),
        binary("mul", beside="expand"),
        binary("matmul"),
        binary("concat", axis=-1),
        binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL, "l": SMALL, "a": FACTORS},
    small=("l",),
)

SQUARE = Universe(
    family="matrix",
    name="square",
    variables=((X, Y), (variable("w", (K, K)), variable("v", (K, K))), (variable("t", (K,)),)),
    constants=(Constant(apply("eye", n=K), ("add", "matmul", "mul", "scale")),),
    templates=(
        unary("relu", first=N),
        unary("scale", factor=FACTOR),
        unary("expand", shape=(N, K), axes=(-1,)),
        unary("expand", shape=(K, K), axes=(-1,)),
        unary("expand", shape=(K, K), axes=(-2,)),
        binary("add"),
        binary("mul", beside="expand"),
        binary("matmul"),
    ),
    ranges={"n": SMALL, "k": SMALL, "a": FACTORS},
)

SIGNS = Universe(
    family="matrix",
    name="signs",
    variables=((variable("x", (N, M)),), (variable("y", (N, K)),), (W,)),
    constants=(),
    templates=(
        Template("scale", 1, {"factor": -1}, takes=(("w",),)),
        Template("matmul", 2, takes=(("y",), ("w", "scale"))),
        Template("add", 2, takes=(("x", "matmul"),) * 2),
        Template("sub", 2, takes=(("x",), ("matmul",))),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL},
    limit=3,
)
