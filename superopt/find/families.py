"""What is enumerated: each universe is one typed vocabulary of variables, constants and operator templates.

Extents are symbols shared by the variables of a universe, so that terms compose; rules found here are generalised to
independent extents afterwards. Variables of one row of `variables` are interchangeable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from superopt.graph import Attribute, Extent, Size, Sym, Term, size, variable
from superopt.op import apply

WEIGHTS = frozenset({"w", "v", "u", "b", "c", "t", "r"})


@dataclass(frozen=True)
class Template:
    """An operator with its attributes.

    `cut` names an axis: the operand's two parts there, at every boundary, are meant. `first` is what the first operand's first
    extent must be, where it is given: activations are told from weights by it. `beside` names an operator that one of the
    operands must be made by.
    """

    op: str
    operands: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    cut: int = 0
    first: Extent = 0
    beside: str = ""


@dataclass(frozen=True)
class Constant:
    """A constant and the operators it may stand under directly; constants count as no operator."""

    term: Term
    under: tuple[str, ...]


@dataclass(frozen=True)
class Universe:
    """A vocabulary. `ranges` are the numbers a symbol may stand for in an environment, `divisors` the extents that divide.

    Constants count as no operator. With `repeats`, an operator may have one operand twice. `instances` are values for symbols
    at which a rule is stated too where its left side leaves them open.
    """

    family: str
    name: str
    variables: tuple[tuple[Term, ...], ...]
    constants: tuple[Constant, ...]
    templates: tuple[Template, ...]
    ranges: Mapping[str, tuple[Extent, ...]]
    divisors: tuple[str, ...] = ()
    limit: int = 3
    repeats: bool = False
    instances: tuple[Mapping[str, Extent], ...] = ()


def _sizes(names: str) -> list[Size]:
    return [size(Sym(name)) for name in names.split()]


def _unary(op: str, *, first: Extent = 0, **attributes: Attribute) -> Template:
    return Template(op, 1, attributes, first=first)


def _binary(op: str, *, first: Extent = 0, beside: str = "", **attributes: Attribute) -> Template:
    return Template(op, 2, attributes, first=first, beside=beside)


def _cut(axis: int) -> Template:
    return Template("slice", 1, cut=axis)


N, K, M, L = _sizes("n k m l")
FACTOR, OTHER_FACTOR = size(Sym("a", real=True)), size(Sym("e", real=True))
SMALL = (2, 3, 4)
FACTORS: tuple[Extent, ...] = (2, 3, 5, 7)

X, Y, Z = (variable(name, (N, K)) for name in "xyz")

ELEMENTWISE = Universe(
    family="matrix",
    name="elementwise",
    variables=((X, Y, Z),),
    constants=(
        Constant(apply("zeros", shape=(N, K)), ("add", "sub", "mul", "relu", "scale")),
        Constant(apply("ones", shape=(N, K)), ("mul",)),
    ),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("scale", factor=OTHER_FACTOR),
        _unary("scale", factor=FACTOR * OTHER_FACTOR),
        _unary("scale", factor=-1),
        _unary("scale", factor=2),
        _binary("add"),
        _binary("sub"),
        _binary("mul"),
    ),
    ranges={"n": SMALL, "k": SMALL, "a": FACTORS, "e": (3, 11, 13)},
    repeats=True,
)

PIECES = Universe(
    family="matrix",
    name="pieces",
    variables=((X, Y, Z, variable("q", (N, K))),),
    constants=(Constant(apply("zeros", shape=(N, K)), ()), Constant(apply("zeros", shape=(K, N)), ())),
    templates=(
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("scale", factor=-1),
        _unary("transpose", perm=(-1, -2)),
        _cut(-1),
        _cut(-2),
        _binary("add"),
        _binary("sub"),
        _binary("mul"),
        _binary("concat", axis=-1),
        _binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "a": FACTORS},
)

W, V = variable("w", (K, M)), variable("v", (K, M))

LOW_RANK = Universe(
    family="matrix",
    name="low rank",
    variables=((X,), (W,), (variable("v", (K, L)),), (variable("u", (L, M)),)),
    constants=(),
    templates=(_binary("add"), _binary("matmul")),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL, "l": SMALL},
    limit=5,
)

DIFFERENCES = Universe(
    family="matrix",
    name="differences",
    variables=((X, Y), (W, V), (variable("b", (M,)), variable("c", (M,)))),
    constants=tuple(Constant(apply("zeros", shape=shape), ()) for shape in ((N, K), (K, M), (N, M), (M,))),
    templates=(
        _unary("transpose", perm=(-1, -2)),
        _unary("expand", shape=(N, M), axes=(-1,)),
        _cut(-1),
        _binary("sub"),
        _binary("matmul"),
        _binary("concat", axis=-1),
        _binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL},
)

MATRIX = Universe(
    family="matrix",
    name="matrix",
    variables=((X, Y), (W, V), (variable("u", (M, L)),), (variable("b", (M,)), variable("c", (M,))), (variable("t", (K,)),)),
    constants=(
        Constant(apply("eye", n=K), ("matmul", "add", "scale")),
        Constant(apply("ones", shape=(K,)), ("expand",)),
        Constant(apply("zeros", shape=(M,)), ("expand",)),
    ),
    templates=(
        _unary("relu", first=N),
        _unary("relu", first=M),
        _unary("scale", factor=FACTOR),
        _unary("transpose", perm=(-1, -2)),
        _unary("expand", shape=(N, K), axes=(-1,)),
        _unary("expand", shape=(N, M), axes=(-1,)),
        _unary("expand", shape=(K, M), axes=(-1,)),
        _unary("expand", shape=(K, M), axes=(-2,)),
        _cut(-1),
        _cut(-2),
        _unary("reduce_sum", axes=(-1,), first=N),
        _unary("reduce_sum", axes=(-2,), first=N),
        _unary("reduce_mean", axes=(-1,), first=N),
        _unary("reduce_mean", axes=(-2,), first=N),
        _unary("reshape", shape=(N * K,), first=N),
        _binary("add"),
        _binary("mul", beside="expand"),
        _binary("matmul"),
        _binary("concat", axis=-1),
        _binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL, "l": SMALL, "a": FACTORS},
    divisors=("n", "k", "m"),
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
        _unary("relu"),
        _unary("scale", factor=FACTOR),
        _unary("transpose", perm=(-1, -2)),
        _cut(-1),
        _cut(-2),
        _binary("add"),
        _binary("mul", beside="expand"),
        _binary("matmul"),
        _binary("concat", axis=-1),
        _binary("concat", axis=-2),
    ),
    ranges={"n": SMALL, "k": SMALL, "m": SMALL, "l": SMALL, "a": FACTORS},
)

SQUARE = Universe(
    family="matrix",
    name="square",
    variables=((X, Y), (variable("w", (K, K)), variable("v", (K, K))), (variable("t", (K,)),)),
    constants=(Constant(apply("eye", n=K), ("add", "matmul", "mul", "scale")),),
    templates=(
        _unary("relu", first=N),
        _unary("scale", factor=FACTOR),
        _unary("expand", shape=(N, K), axes=(-1,)),
        _unary("expand", shape=(K, K), axes=(-1,)),
        _unary("expand", shape=(K, K), axes=(-2,)),
        _binary("add"),
        _binary("mul", beside="expand"),
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
_OUTPUT = apply("conv", IMAGE, _KERNELS[0], **SLIDING, group=G)

GROUPED = Universe(
    family="convolution",
    name="grouped",
    variables=(IMAGES, _KERNELS, _vectors(F * G)),
    constants=(),
    templates=(
        _unary("relu", first=BATCH),
        _unary("scale", factor=FACTOR),
        _unary("expand", shape=_KERNELS[0].shape, axes=(-4,)),
        _unary("expand", shape=_OUTPUT.shape, axes=(-3,)),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("mul", beside="expand"),
        _binary("conv", **SLIDING, group=G),
        _binary("conv", **SLIDING, group=2 * G),
        _binary("concat", axis=-3),
        _binary("concat", axis=-4),
    ),
    ranges=WINDOWS | {"f": (1, 2, 3)},
)

CONVOLVED_DIFFERENCES = Universe(
    family="convolution",
    name="convolved differences",
    variables=(IMAGES, _KERNELS),
    constants=tuple(Constant(apply("zeros", shape=t.shape), ()) for t in (IMAGE, _KERNELS[0], _OUTPUT)),
    templates=(_binary("sub"), _binary("conv", **SLIDING, group=G), _binary("concat", axis=-3), _binary("concat", axis=-4)),
    ranges=WINDOWS | {"f": (1, 2, 3)},
)

_DENSE_KERNELS = _kernels(F, CHANNELS, ROWS, COLUMNS)

DENSE = Universe(
    family="convolution",
    name="dense",
    variables=(IMAGES, _DENSE_KERNELS, (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        _unary("relu", first=BATCH),
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=_DENSE_KERNELS[0].shape, axes=(-3,)),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("mul", beside="expand"),
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
    variables=(IMAGES, _DEPTHWISE_KERNELS, (variable("t", (CHANNELS,)),)),
    constants=(Constant(apply("mean_kernel", shape=_DEPTHWISE_KERNELS[0].shape), ("conv", "add", "mul", "scale")),),
    templates=(
        _unary("relu", first=BATCH),
        _unary("scale", factor=FACTOR),
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=_DEPTHWISE_KERNELS[0].shape, axes=(-4,)),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=1),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("mul", beside="expand"),
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
        _unary("relu", first=BATCH),
        _unary("scale", factor=FACTOR),
        _unary("pad", before=(0, 0, E0, E1), after=(0, 0, E2, E3)),
        _binary("add"),
        _binary("conv", **SLIDING, group=G),
        _binary("conv", **_WIDER, group=G),
    ),
    ranges=WINDOWS | {"f": ONE_OR_TWO, "e0": (0, 1), "e1": ONE_OR_TWO, "e2": ONE_OR_TWO, "e3": (0, 1)},
)

# A convolution that keeps the image's shape: its kernel has i0 rows above the centre and j0 below, i1 columns left and j1 right.

I0, I1, J0, J1 = _sizes("i0 i1 j0 j1")
_CENTRED_KERNELS = _kernels(CHANNELS, D, I0 + J0 + 1, I1 + J1 + 1)
_CENTRED: Mapping[str, Attribute] = {"pads": (D0 * I0, D1 * I1, D0 * J0, D1 * J1), "dilations": (D0, D1)}

_POINT: Mapping[str, Extent] = {"i0": 0, "i1": 0, "j0": 0, "j1": 0, "d0": 1, "d1": 1}

RESIDUAL = Universe(
    family="convolution",
    name="residual",
    variables=(IMAGES, _CENTRED_KERNELS, (variable("t", (CHANNELS,)), variable("r", (CHANNELS,)))),
    constants=(
        Constant(apply("identity_kernel", shape=_CENTRED_KERNELS[0].shape, at=(I0, I1)), ("conv", "add", "mul", "scale")),
    ),
    templates=(
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=_CENTRED_KERNELS[0].shape, axes=(-4,)),
        _binary("add"),
        _binary("mul", beside="expand"),
        _binary("conv", **_CENTRED, group=G),
    ),
    ranges=WINDOWS | {"i0": (0, 1), "i1": ONE_OR_TWO, "j0": ONE_OR_TWO, "j1": (0, 1)},
    limit=4,
    instances=(_POINT | {"g": 1}, _POINT | {"d": 1}),
)

POOLING = Universe(
    family="convolution",
    name="pooling",
    variables=(IMAGES,),
    constants=(),
    templates=(
        _unary("relu", first=BATCH),
        _unary("scale", factor=FACTOR),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=1),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, include_pads=0),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=(0, 0, 0, 0), include_pads=1),
        _unary("avg_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=(0, 0, 0, 0), include_pads=0),
        _unary("max_pool", kernel=(ROWS, COLUMNS), strides=(S0, S1), pads=PADS, dilations=(D0, D1)),
        _cut(-3),
        _cut(-4),
        _binary("add"),
        _binary("concat", axis=-3),
        _binary("concat", axis=-4),
    ),
    ranges=WINDOWS,
    divisors=("k0", "k1"),
)

LAYOUT = Universe(
    family="convolution",
    name="layout",
    variables=(IMAGES, (variable("t", (CHANNELS,)),)),
    constants=(),
    templates=(
        _unary("relu", first=BATCH),
        _unary("scale", factor=FACTOR),
        _unary("transpose", perm=(-4, -2, -1, -3)),
        _unary("transpose", perm=(-4, -1, -3, -2)),
        _unary("expand", shape=IMAGE.shape, axes=(-3,)),
        _unary("expand", shape=(BATCH, H, WIDTH, CHANNELS), axes=(-1,)),
        _cut(-3),
        _cut(-1),
        _binary("add"),
        _binary("mul", beside="expand"),
        _binary("concat", axis=-3),
        _binary("concat", axis=-1),
    ),
    ranges=WINDOWS,
)

UNIVERSES: tuple[Universe, ...] = (
    ELEMENTWISE,
    PIECES,
    MATRIX,
    HALVES,
    LOW_RANK,
    DIFFERENCES,
    SQUARE,
    GROUPED,
    CONVOLVED_DIFFERENCES,
    DENSE,
    DEPTHWISE,
    ENLARGED,
    RESIDUAL,
    POOLING,
    LAYOUT,
)
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(u.family for u in UNIVERSES))
