"""The convolution family: kernels of symbolic size, any strides, pads, dilations and groups; pools, channels and layouts."""

from __future__ import annotations

from superopt.algebra.operators import apply
from superopt.algebra.terms import Attribute, Extent, Sym, Term, size, variable
from superopt.discovery.universe import (
    FACTOR,
    FACTORS,
    Constant,
    Universe,
    binary,
    convolution,
    split_parts,
    unary,
    universe_symbols,
)

# A convolution's group count is g, its input channels d * g and its output channels f * g.

BATCH, D, G, F, H, WIDTH = universe_symbols("n d g f h0 h1")
ROWS, COLUMNS = universe_symbols("k0 k1")
S0, S1 = universe_symbols("s0 s1")
D0, D1 = universe_symbols("d0 d1")
P0, P1, P2, P3 = universe_symbols("p0 p1 p2 p3")
PADS = (P0, P1, P2, P3)
SLIDING: dict[str, Attribute] = {"strides": (S0, S1), "dilations": (D0, D1)}

CHANNELS = D * G
IMAGE, OTHER_IMAGE = variable("x", (BATCH, CHANNELS, H, WIDTH)), variable("y", (BATCH, CHANNELS, H, WIDTH))
IMAGES = (IMAGE, OTHER_IMAGE)

ONE_OR_TWO: tuple[Extent, ...] = (1, 2)
WINDOWS: dict[str, tuple[Extent, ...]] = {
    "n": ONE_OR_TWO,
    "h0": (5, 6),
    "h1": (6, 7),
    "d": ONE_OR_TWO,
    "g": (2, 3),
    "k0": ONE_OR_TWO,
    "k1": (2, 3),
    "s0": ONE_OR_TWO,
    "s1": ONE_OR_TWO,
    "d0": ONE_OR_TWO,
    "d1": ONE_OR_TWO,
    "p0": (0, 1),
    "p1": ONE_OR_TWO,
    "p2": ONE_OR_TWO,
    "p3": (0, 1),
    "a": FACTORS,
}


def _kernels(*shape: Extent) -> tuple[Term, Term]:
    return variable("w", shape), variable("v", shape)


def _vectors(extent: Extent) -> tuple[Term, Term]:
    return variable("b", (extent,)), variable("c", (extent,))


_KERNELS = _kernels(F * G, D, ROWS, COLUMNS)
_OUTPUT = apply("conv", IMAGE, _KERNELS[0], pads=PADS, group=G, **SLIDING)

GROUPED = Universe(
    family="convolution",
    name="grouped",
    variables=(IMAGES, _KERNELS, _vectors(F * G)),
    constants=(),
    templates=(
        unary("relu", first=BATCH),
        unary("scale", factor=FACTOR),
        unary("expand", shape=_KERNELS[0].shape, axes=(-4,)),
        unary("expand", shape=_OUTPUT.shape, axes=(-3,)),
        split_parts(-3),
        split_parts(-4),
        binary("add"),
        binary("mul", beside="expand"),
        convolution(PADS, group=G, **SLIDING),
        convolution(PADS, group=2 * G, **SLIDING),
        binary("concat", axis=-3),
        binary("concat", axis=-4),
    ),
    ranges=WINDOWS | {"f": (1, 2, 3)},
)

CONVOLVED_DIFFERENCES = Universe(
    family="convolution",
    name="convolved differences",
    variables=(IMAGES, _KERNELS),
    constants=tuple(Constant(apply("zeros", shape=t.shape), ()) for t in (IMAGE, _KERNELS[0], _OUTPUT)),
    templates=(binary("sub"), convolution(PADS, group=G, **SLIDING), binary("concat", axis=-3), binary("concat", axis=-4)),
    ranges=WINDOWS | {"f": (1, 2, 3)},
)

_DENSE_KERNELS = _kernels(F, CHANNELS, ROWS, COLUMNS)

DENSE = Universe(
    family="convolution",
    name="dense",
    variables=(IMAGES, _DENSE_KERNELS, (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        unary("relu", first=BATCH),
        unary("expand", shape=IMAGE.shape, axes=(-3,)),
        unary("expand", shape=_DENSE_KERNELS[0].shape, axes=(-3,)),
        split_parts(-3),
        split_parts(-4),
        binary("add"),
        binary("mul", beside="expand"),
        convolution(PADS, group=1, **SLIDING),
        binary("concat", axis=-3),
        binary("concat", axis=-4),
    ),
    ranges=WINDOWS | {"f": (1, 2, 3)},
)

_DEPTHWISE_KERNELS = _kernels(CHANNELS, 1, ROWS, COLUMNS)

DEPTHWISE = Universe(
    family="convolution",
    name="depthwise",
    variables=(IMAGES, _DEPTHWISE_KERNELS, (variable("t", (CHANNELS,)),)),
    constants=(Constant(apply("mean_kernel", shape=_DEPTHWISE_KERNELS[0].shape), ("conv", "add", "mul")),),
    templates=(
        unary("relu", first=BATCH),
        unary("scale", factor=FACTOR),
        unary("expand", shape=IMAGE.shape, axes=(-3,)),
        unary("expand", shape=_DEPTHWISE_KERNELS[0].shape, axes=(-4,)),
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=1),
        split_parts(-3),
        split_parts(-4),
        binary("add"),
        binary("mul", beside="expand"),
        convolution(PADS, group=CHANNELS, strides=(S0, S1)),
        binary("concat", axis=-3),
        binary("concat", axis=-4),
    ),
    ranges=WINDOWS,
)

# The kernel w is the kernel u, enlarged by e0 rows above, e1 columns to the left, e2 rows below and e3 columns to the right.

E0, E1, E2, E3 = universe_symbols("e0 e1 e2 e3")
_WIDER_PADS = (P0 + D0 * E0, P1 + D1 * E1, P2 + D0 * E2, P3 + D1 * E3)
_PADDED_PADS = (P0 + E0, P1 + E1, P2 + E2, P3 + E3)
_WIDE_KERNELS = _kernels(F * G, D, ROWS + E0 + E2, COLUMNS + E1 + E3)

ENLARGED = Universe(
    family="convolution",
    name="enlarged",
    variables=(IMAGES, _WIDE_KERNELS, (variable("u", _KERNELS[0].shape),)),
    constants=(),
    templates=(
        unary("relu", first=BATCH),
        unary("scale", factor=FACTOR),
        unary("pad", before=(0, 0, E0, E1), after=(0, 0, E2, E3)),
        binary("add"),
        convolution(PADS, group=G, **SLIDING),
        convolution(_WIDER_PADS, group=G, **SLIDING),
        convolution(_PADDED_PADS, group=G, **SLIDING),
    ),
    ranges=WINDOWS | {"f": ONE_OR_TWO, "e0": (0, 1), "e1": ONE_OR_TWO, "e2": ONE_OR_TWO, "e3": (0, 1)},
)

# A convolution that keeps the image's shape: i0 rows of its kernel are above the centre, j0 below, i1 columns left, j1 right.

I0, I1, J0, J1 = universe_symbols("i0 i1 j0 j1")
_CENTRED_KERNELS = _kernels(CHANNELS, D, I0 + J0 + 1, I1 + J1 + 1)
_CENTRED_PADS = (D0 * I0, D1 * I1, D0 * J0, D1 * J1)

_POINT: dict[str, Extent] = {"i0": 0, "i1": 0, "j0": 0, "j1": 0, "d0": 1, "d1": 1}

RESIDUAL = Universe(
    family="convolution",
    name="residual",
    variables=(IMAGES, _CENTRED_KERNELS, (variable("t", (CHANNELS,)), variable("r", (CHANNELS,)))),
    constants=(Constant(apply("identity_kernel", shape=_CENTRED_KERNELS[0].shape, at=(I0, I1)), ("conv", "add", "mul")),),
    templates=(
        unary("expand", shape=IMAGE.shape, axes=(-3,)),
        unary("expand", shape=_CENTRED_KERNELS[0].shape, axes=(-4,)),
        binary("add"),
        binary("mul", beside="expand"),
        convolution(_CENTRED_PADS, group=G, dilations=(D0, D1)),
    ),
    ranges=WINDOWS | {"i0": (0, 1), "i1": ONE_OR_TWO, "j0": ONE_OR_TWO, "j1": (0, 1)},
    limit=4,
    instances=(_POINT | {"g": 1}, _POINT | {"d": 1}),
)

INCLUDE = size(Sym("i"))

POOLING = Universe(
    family="convolution",
    name="pooling",
    variables=(IMAGES,),
    constants=(),
    templates=(
        unary("relu", first=BATCH),
        unary("scale", factor=FACTOR),
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=INCLUDE),
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=(0, 0, 0, 0), include_pads=1),
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=(0, 0, 0, 0), include_pads=0),
        unary("max_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, dilations=(D0, D1)),
        split_parts(-3),
        split_parts(-4),
        binary("add"),
        binary("concat", axis=-3),
        binary("concat", axis=-4),
    ),
    ranges=WINDOWS | {"i": (0, 1, 1)},
)

LAYOUT = Universe(
    family="convolution",
    name="layout",
    variables=(IMAGES, (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        unary("relu", first=BATCH),
        unary("scale", factor=FACTOR),
        unary("transpose", perm=(-4, -2, -1, -3)),
        unary("transpose", perm=(-4, -1, -3, -2)),
        unary("expand", shape=IMAGE.shape, axes=(-3,)),
        unary("expand", shape=(BATCH, H, WIDTH, CHANNELS), axes=(-1,)),
        split_parts(-3),
        split_parts(-1),
        binary("add"),
        binary("mul", beside="expand"),
        binary("concat", axis=-3),
        binary("concat", axis=-1),
    ),
    ranges=WINDOWS,
)

# Images and kernels whose c channels are padded with zeros to m channels. The padding costs nothing where it cancels.

C, M = universe_symbols("c m")
P = M - C
_NARROW, _WIDE = variable("x", (BATCH, C, H, WIDTH)), variable("y", (BATCH, M, H, WIDTH))
_CONVOLVED = apply("conv", _NARROW, variable("w", (F, C, ROWS, COLUMNS)), pads=PADS, **SLIDING)
_BROADER = (BATCH, F + P, *_CONVOLVED.shape[-2:])
_NO_MORE, _MORE_CHANNELS, _MORE_KERNELS = (0, 0, 0, 0), (0, P, 0, 0), (P, 0, 0, 0)
_BROAD = WINDOWS | {"c": (2, 3), "m": (4, 5)}

PADDED = Universe(
    family="padding",
    name="padded",
    variables=((_NARROW,), (_WIDE,), _kernels(F, C, ROWS, COLUMNS), (variable("t", (F,)),)),
    constants=(),
    templates=(
        unary("relu", first=BATCH),
        unary("pad", before=_NO_MORE, after=_MORE_CHANNELS),
        unary("pad", before=_NO_MORE, after=_MORE_KERNELS),
        unary("pad", before=(0,), after=(P,)),
        unary("expand", shape=_CONVOLVED.shape, axes=(-3,)),
        unary("expand", shape=_BROADER, axes=(-3,)),
        unary("slice", axis=-3, start=0, stop=C),
        binary("add"),
        convolution(PADS, group=1, **SLIDING),
    ),
    ranges=_BROAD | {"f": (1, 2, 3)},
)

PADDED_DEPTHWISE = Universe(
    family="padding",
    name="padded depthwise",
    variables=((_NARROW, variable("z", _NARROW.shape)), (_WIDE,), (variable("u", (C, 1, ROWS, COLUMNS)),)),
    constants=(),
    templates=(
        unary("relu", first=BATCH),
        unary("pad", before=_NO_MORE, after=_MORE_CHANNELS),
        unary("pad", before=_NO_MORE, after=_MORE_KERNELS),
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=0),
        unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=1),
        unary("max_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS),
        unary("slice", axis=-3, start=0, stop=C),
        binary("add"),
        convolution(PADS, group=C, **SLIDING),
        convolution(PADS, group=M, **SLIDING),
    ),
    ranges=_BROAD,
    limit=3,
)

PADDED_MASKS = Universe(
    family="padding",
    name="padded under masks",
    variables=((_NARROW,), (_WIDE,), (variable("m", (H, WIDTH)),)),
    constants=(),
    templates=(
        unary("pad", before=_NO_MORE, after=_MORE_CHANNELS),
        unary("expand", shape=_NARROW.shape, axes=(-2, -1)),
        unary("expand", shape=_WIDE.shape, axes=(-2, -1)),
        unary("slice", axis=-3, start=0, stop=C),
        binary("mul", beside="expand"),
    ),
    ranges=_BROAD,
)
