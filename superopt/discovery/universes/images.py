"""The images family: upsampling, pooling, rearrangements of blocks and channels, pointwise and transposed convolutions."""

from __future__ import annotations

from superopt.algebra.terms import variable
from superopt.discovery.universe import FACTOR, Template, Universe, binary, convolution, split_parts, unary, universe_symbols
from superopt.discovery.universes.convolution import (
    BATCH,
    CHANNELS,
    COLUMNS,
    IMAGE,
    IMAGES,
    ONE_OR_TWO,
    PADS,
    ROWS,
    S0,
    S1,
    SLIDING,
    WIDTH,
    WINDOWS,
    D,
    F,
    G,
    H,
)

NO_PADS = (0, 0, 0, 0)
_POINTS = variable("w", (F * G, D, 1, 1)), variable("v", (F * G, D, 1, 1))
_BY_CHANNEL = unary("expand", shape=IMAGE.shape, axes=(-3,))
POINTWISE = convolution(NO_PADS, group=G, strides=(1, 1), dilations=(1, 1))

POOLED = Universe(
    family="images",
    name="pooled",
    variables=(IMAGES, (_POINTS[0],), (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        POINTWISE,
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=1),
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=0),
        unary("reduce_mean", axes=(-2, -1), first=BATCH),
        unary("reshape", shape=(BATCH, CHANNELS, 1, 1), first=BATCH),
        _BY_CHANNEL,
        binary("add"),
        binary("mul", beside="expand"),
        binary("concat", axis=-3),
    ),
    ranges=WINDOWS | {"f": ONE_OR_TWO},
)

R0, R1 = universe_symbols("r0 r1")

ENLARGING = Universe(
    family="images",
    name="enlarging",
    variables=(IMAGES, (_POINTS[0],), (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        POINTWISE,
        unary("upsample", rows=R0, columns=R1, first=BATCH),
        unary("max_pool", kernel=(R0, R1), strides=(R0, R1), pads=NO_PADS, dilations=(1, 1), first=BATCH),
        unary("avg_pool", kernel=(R0, R1), strides=(R0, R1), pads=NO_PADS, include_pads=1, first=BATCH),
        unary("relu", first=BATCH),
        unary("scale", factor=FACTOR),
        _BY_CHANNEL,
        split_parts(-3),
        binary("add"),
        binary("mul", beside="expand"),
        binary("concat", axis=-3),
    ),
    ranges=WINDOWS | {"f": ONE_OR_TWO, "r0": (2, 3), "r1": (2, 3)},
)

ENLARGED_BIASES = Universe(
    family="images",
    name="enlarged biases",
    variables=((IMAGE,), (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        unary("upsample", rows=R0, columns=R1, first=BATCH),
        _BY_CHANNEL,
        unary("expand", shape=(BATCH, CHANNELS, H * R0, WIDTH * R1), axes=(-3,)),
        binary("add"),
        binary("mul", beside="expand"),
    ),
    ranges=WINDOWS | {"f": ONE_OR_TWO, "r0": (2, 3), "r1": (2, 3)},
)

(BLOCK,) = universe_symbols("o")
_WIDE = (
    variable("x", (BATCH, D * BLOCK * BLOCK, H * BLOCK, WIDTH * BLOCK)),
    variable("y", (BATCH, D * BLOCK * BLOCK, H * BLOCK, WIDTH * BLOCK)),
)

BLOCKS = Universe(
    family="images",
    name="blocks",
    variables=(_WIDE,),
    constants=(),
    templates=(
        unary("depth_to_space", block=BLOCK),
        unary("pixel_shuffle", block=BLOCK),
        unary("space_to_depth", block=BLOCK),
        unary("relu"),
        unary("scale", factor=FACTOR),
        unary("sigmoid"),
        split_parts(-4),
        binary("add"),
        binary("mul"),
        binary("concat", axis=-4),
    ),
    ranges={"n": ONE_OR_TWO, "d": ONE_OR_TWO, "h0": ONE_OR_TWO, "h1": ONE_OR_TWO, "o": (2, 3), "a": WINDOWS["a"]},
)

_OUTWARD = variable("w", (CHANNELS, F, ROWS, COLUMNS)), variable("v", (CHANNELS, F, ROWS, COLUMNS))
TRANSPOSED_CONVOLUTION = Template("conv_transpose", 2, {"pads": PADS, "group": G, **SLIDING}, weighted=True)

TRANSPOSED = Universe(
    family="images",
    name="transposed",
    variables=(IMAGES, _OUTWARD, (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        TRANSPOSED_CONVOLUTION,
        unary("scale", factor=FACTOR),
        _BY_CHANNEL,
        unary("expand", shape=_OUTWARD[0].shape, axes=(-4,)),
        split_parts(-4),
        binary("add"),
        binary("sub"),
        binary("mul", beside="expand"),
        binary("concat", axis=-3),
        binary("concat", axis=-4),
    ),
    ranges=WINDOWS | {"f": ONE_OR_TWO},
)
