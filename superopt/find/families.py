"""What is enumerated: each universe is one typed vocabulary of variables, constants and operator templates.

Extents are symbols shared by the variables of a universe, so that terms compose; rules found here are generalised to
independent extents afterwards. Variables of one row of `variables` are interchangeable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from superopt.graph import Attribute, Extent, Size, Sym, Term, size, variable
from superopt.op import apply

WEIGHTS = frozenset({"w", "v", "u", "b", "c", "s", "r"})


@dataclass(frozen=True)
class Template:
    """An operator with its attributes. `cut` names an axis: the operand's two parts there, at every boundary, are meant."""

    op: str
    operands: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    cut: int = 0


@dataclass(frozen=True)
class Universe:
    """A vocabulary. `ranges` are the numbers a symbol may stand for in an environment, `divisors` the extents that divide."""

    family: str
    name: str
    variables: tuple[tuple[Term, ...], ...]
    constants: tuple[Term, ...]
    templates: tuple[Template, ...]
    ranges: Mapping[str, tuple[Extent, ...]]
    divisors: tuple[str, ...] = ()
    limit: int = 3


def _sizes(names: str) -> list[Size]:
    return [size(Sym(name)) for name in names.split()]


def _unary(op: str, **attributes: Attribute) -> Template:
    return Template(op, 1, attributes)


def _binary(op: str, **attributes: Attribute) -> Template:
    return Template(op, 2, attributes)


def _cut(axis: int) -> Template:
    return Template("slice", 1, cut=axis)


N, K, M, L = _sizes("n k m l")
FACTOR = size(Sym("a", real=True))
SMALL = (2, 3, 4)
FACTORS: tuple[Extent, ...] = (-2, 2, 3)

X, Y = variable("x", (N, K)), variable("y", (N, K))
W, V = variable("w", (K, M)), variable("v", (K, M))
U = variable("u", (M, L))
B, C = variable("b", (M,)), variable("c", (M,))
S = variable("s", (K,))

MATRIX = Universe(
    family="matrix",
    name="matrix",
    variables=((X, Y), (W, V), (U,), (B, C), (S,)),
    constants=(
        apply("eye", n=K),
        apply("zeros", shape=(N, K)),
        apply("zeros", shape=(K, M)),
        apply("zeros", shape=(M,)),
        apply("ones", shape=(N, K)),
    ),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("transpose", perm=(-1, -2)),
        _unary("expand", shape=(N, K), axes=(-1,)),
        _unary("expand", shape=(N, M), axes=(-1,)),
        _unary("expand", shape=(K, M), axes=(-1,)),
        _unary("expand", shape=(K, M), axes=(-2,)),
        _cut(-1),
        _cut(-2),
        _unary("reduce_sum", axes=(-1,)),
        _unary("reduce_sum", axes=(-2,)),
        _unary("reduce_mean", axes=(-1,)),
        _unary("reduce_mean", axes=(-2,)),
        _unary("reshape", shape=(N * K,)),
        _binary("add"),
        _binary("sub"),
        _binary("mul"),
        _binary("matmul"),
        _binary("concat", axis=-1),
        _binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL, "l": SMALL, "a": FACTORS},
    divisors=("n", "k", "m"),
)

SQUARE_W, SQUARE_V = variable("w", (K, K)), variable("v", (K, K))

SQUARE = Universe(
    family="matrix",
    name="square",
    variables=((X, Y), (SQUARE_W, SQUARE_V), (S,)),
    constants=(apply("eye", n=K),),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("expand", shape=(N, K), axes=(-1,)),
        _unary("expand", shape=(K, K), axes=(-1,)),
        _unary("expand", shape=(K, K), axes=(-2,)),
        _binary("add"),
        _binary("sub"),
        _binary("mul"),
        _binary("matmul"),
    ),
    ranges={"n": SMALL, "k": SMALL, "a": FACTORS},
)

# A convolution's group count is g, its input channels d * g and its output channels f * g.

BATCH, D, G, F, H, WIDTH = _sizes("n d g f h0 h1")
ROWS, COLUMNS = _sizes("k0 k1")
S0, S1 = _sizes("s0 s1")
D0, D1 = _sizes("d0 d1")
P0, P1, P2, P3 = _sizes("p0 p1 p2 p3")
PADS = (P0, P1, P2, P3)
SLIDING: Mapping[str, Attribute] = {"strides": (S0, S1), "pads": PADS, "dilations": (D0, D1)}

CHANNELS = D * G
IMAGE, OTHER_IMAGE = variable("x", (BATCH, CHANNELS, H, WIDTH)), variable("y", (BATCH, CHANNELS, H, WIDTH))
IMAGES = (IMAGE, OTHER_IMAGE)

ONE_OR_TWO = (1, 2)
WINDOWS: Mapping[str, tuple[Extent, ...]] = {
    "n": ONE_OR_TWO,
    "h0": (5, 6),
    "h1": (6, 7),
    "d": ONE_OR_TWO,
    "g": ONE_OR_TWO,
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
_OUTPUT = apply("conv", IMAGE, _KERNELS[0], **SLIDING, group=G)

GROUPED = Universe(
    family="convolution",
    name="grouped",
    variables=(IMAGES, _KERNELS, _vectors(F * G)),
    constants=(apply("zeros", shape=_KERNELS[0].shape), apply("zeros", shape=IMAGE.shape)),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("expand", shape=_KERNELS[0].shape, axes=(-4,)),
        _unary("expand", shape=_OUTPUT.shape, axes=(-3,)),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("sub"),
        _binary("mul"),
        _binary("conv", **SLIDING, group=G),
        _binary("conv", **SLIDING, group=2 * G),
        _binary("concat", axis=-3),
        _binary("concat", axis=-4),
    ),
    ranges=WINDOWS | {"f": (1, 2, 3)},
)

_DENSE_KERNELS = _kernels(F, CHANNELS, ROWS, COLUMNS)

DENSE = Universe(
    family="convolution",
    name="dense",
    variables=(IMAGES, _DENSE_KERNELS, (variable("s", (CHANNELS,)),)),
    constants=(),
    templates=(
        _unary("relu"),
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=_DENSE_KERNELS[0].shape, axes=(-3,)),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("mul"),
        _binary("conv", **SLIDING, group=1),
        _binary("concat", axis=-3),
        _binary("concat", axis=-4),
    ),
    ranges=WINDOWS | {"f": (1, 2, 3)},
)

_DEPTHWISE_KERNELS = _kernels(CHANNELS, 1, ROWS, COLUMNS)

DEPTHWISE = Universe(
    family="convolution",
    name="depthwise",
    variables=(IMAGES, _DEPTHWISE_KERNELS, (variable("s", (CHANNELS,)),)),
    constants=(apply("mean_kernel", shape=_DEPTHWISE_KERNELS[0].shape),),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=_DEPTHWISE_KERNELS[0].shape, axes=(-4,)),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=1),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("mul"),
        _binary("conv", strides=(S0, S1), pads=PADS, dilations=(1, 1), group=CHANNELS),
        _binary("concat", axis=-3),
        _binary("concat", axis=-4),
    ),
    ranges=WINDOWS,
    divisors=("k0", "k1"),
)

# The kernel of w is that of u, enlarged by e0 rows above, e1 columns to the left, e2 rows below and e3 columns to the right.

E0, E1, E2, E3 = _sizes("e0 e1 e2 e3")
_WIDER: Mapping[str, Attribute] = {**SLIDING, "pads": (P0 + D0 * E0, P1 + D1 * E1, P2 + D0 * E2, P3 + D1 * E3)}
_WIDE_KERNELS = _kernels(F * G, D, ROWS + E0 + E2, COLUMNS + E1 + E3)

ENLARGED = Universe(
    family="convolution",
    name="enlarged",
    variables=(IMAGES, _WIDE_KERNELS, (variable("u", _KERNELS[0].shape),)),
    constants=(),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("pad", before=(0, 0, E0, E1), after=(0, 0, E2, E3)),
        _binary("add"),
        _binary("sub"),
        _binary("conv", **SLIDING, group=G),
        _binary("conv", **_WIDER, group=G),
    ),
    ranges=WINDOWS | {"f": ONE_OR_TWO, "e0": (0, 1), "e1": ONE_OR_TWO, "e2": ONE_OR_TWO, "e3": (0, 1)},
)

# A convolution that keeps the image's shape: its kernel has i0 rows above the centre and j0 below, i1 columns left and j1 right.

I0, I1, J0, J1 = _sizes("i0 i1 j0 j1")
_CENTRED_KERNELS = _kernels(CHANNELS, D, I0 + J0 + 1, I1 + J1 + 1)
_CENTRED: Mapping[str, Attribute] = {"pads": (D0 * I0, D1 * I1, D0 * J0, D1 * J1), "dilations": (D0, D1)}

RESIDUAL = Universe(
    family="convolution",
    name="residual",
    variables=(IMAGES, _CENTRED_KERNELS, (variable("s", (CHANNELS,)), variable("r", (CHANNELS,)))),
    constants=(apply("identity_kernel", shape=_CENTRED_KERNELS[0].shape, at=(I0, I1)),),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=_CENTRED_KERNELS[0].shape, axes=(-4,)),
        _binary("add"),
        _binary("sub"),
        _binary("mul"),
        _binary("conv", **_CENTRED, group=G),
    ),
    ranges=WINDOWS | {"i0": (0, 1), "i1": ONE_OR_TWO, "j0": ONE_OR_TWO, "j1": (0, 1)},
)

POOLING = Universe(
    family="convolution",
    name="pooling",
    variables=(IMAGES,),
    constants=(),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=1),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=0),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=(0, 0, 0, 0), include_pads=1),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=(0, 0, 0, 0), include_pads=0),
        _unary("max_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, dilations=(D0, D1)),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("sub"),
        _binary("concat", axis=-3),
        _binary("concat", axis=-4),
    ),
    ranges=WINDOWS,
    divisors=("k0", "k1"),
)

LAYOUT = Universe(
    family="convolution",
    name="layout",
    variables=(IMAGES, (variable("s", (CHANNELS,)),)),
    constants=(),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("transpose", perm=(-4, -2, -1, -3)),
        _unary("transpose", perm=(-4, -1, -3, -2)),
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=(BATCH, H, WIDTH, CHANNELS), axes=(-1,)),
        _cut(-3),
        _cut(-1),
        _binary("add"),
        _binary("sub"),
        _binary("mul"),
        _binary("concat", axis=-3),
        _binary("concat", axis=-1),
    ),
    ranges=WINDOWS,
)

UNIVERSES: tuple[Universe, ...] = (MATRIX, SQUARE, GROUPED, DENSE, DEPTHWISE, ENLARGED, RESIDUAL, POOLING, LAYOUT)
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(u.family for u in UNIVERSES))
