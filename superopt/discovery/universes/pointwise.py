"""The pointwise family: operators that compute each element separately, such as exponentials, maxima and choices by a
condition.

Some universes of the family combine these operators with operators that only move elements.
"""

from __future__ import annotations

from superopt.algebra.operators import apply
from superopt.algebra.terms import Attribute, Extent, Sym, size, variable
from superopt.discovery.universe import (
    FACTOR,
    FACTORS,
    Constant,
    Template,
    Universe,
    binary,
    split_parts,
    unary,
    universe_symbols,
)

N, K = universe_symbols("n k")
SMALL: tuple[Extent, ...] = (2, 3, 4)
SIZES = {"n": SMALL, "k": SMALL}
X, Y, Z = (variable(name, (N, K)) for name in "xyz")
ZEROS, ONES = apply("zeros", shape=(N, K)), apply("ones", shape=(N, K))
LOW, HIGH, ALPHA, BETA = (size(Sym(name, real=True)) for name in ("i", "j", "e", "f"))

LATTICE = Universe(
    family="pointwise",
    name="lattice",
    variables=((X, Y, Z),),
    constants=(Constant(ZEROS, ("maximum", "minimum")),),
    templates=(
        unary("relu"),
        unary("abs"),
        unary("scale", factor=-1),
        binary("maximum"),
        binary("minimum"),
    ),
    ranges=SIZES,
)

ORDER = Universe(
    family="pointwise",
    name="order",
    variables=((X, Y, Z),),
    constants=(Constant(ZEROS, ("maximum", "minimum", "add")),),
    templates=(
        unary("relu"),
        unary("abs"),
        unary("scale", factor=FACTOR),
        unary("scale", factor=-1),
        binary("maximum"),
        binary("minimum"),
        binary("add"),
        binary("sub"),
    ),
    ranges={**SIZES, "a": FACTORS},
    limit=3,
)

CLAMPS = Universe(
    family="pointwise",
    name="clamps",
    variables=((X, Y),),
    constants=(Constant(ONES, ("mul",)), Constant(ZEROS, ("maximum", "minimum"))),
    templates=(
        unary("relu"),
        unary("clip", low=0, high=6),
        unary("clip", low=LOW, high=HIGH),
        unary("leaky_relu", alpha=ALPHA),
        unary("hard_sigmoid", alpha=ALPHA, beta=BETA),
        unary("hard_swish"),
        unary("scale", factor=FACTOR),
        unary("scale", factor=-1),
        unary("abs"),
        binary("mul"),
        binary("add"),
        binary("maximum"),
        binary("minimum"),
    ),
    ranges={**SIZES, "a": FACTORS, "i": (-1, 0), "j": (1, 2, 3), "e": (2, 3), "f": (1, 2)},
    limit=2,
)

POWERS = Universe(
    family="pointwise",
    name="powers",
    variables=((X, Y),),
    constants=(Constant(ONES, ("mul", "add")),),
    templates=(
        unary("sqrt"),
        unary("rsqrt"),
        unary("reciprocal"),
        unary("power", exponent=2),
        unary("abs"),
        unary("scale", factor=-1),
        binary("mul"),
        binary("add"),
    ),
    ranges=SIZES,
    repeats=True,
    positive=("x", "y"),
    limit=2,
)

EXPONENTIALS = Universe(
    family="pointwise",
    name="exponentials",
    variables=((X, Y),),
    constants=(Constant(ONES, ("add", "sub")), Constant(ZEROS, ("exp", "sub"))),
    templates=(
        unary("exp"),
        unary("log"),
        unary("reciprocal"),
        unary("scale", factor=-1),
        unary("scale", factor=2),
        binary("mul"),
        binary("add"),
        binary("sub"),
    ),
    ranges=SIZES,
    positive=("x", "y"),
)

SIGMOIDS = Universe(
    family="pointwise",
    name="sigmoids",
    variables=((X, Y),),
    constants=(Constant(ONES, ("add", "sub")),),
    templates=(
        unary("sigmoid"),
        unary("tanh"),
        unary("silu"),
        unary("exp"),
        unary("reciprocal"),
        unary("scale", factor=-1),
        unary("scale", factor=2),
        binary("mul"),
        binary("add"),
        binary("sub"),
    ),
    ranges=SIZES,
)

ERROR_FUNCTIONS = Universe(
    family="pointwise",
    name="error functions",
    variables=((X, Y),),
    constants=(Constant(ONES, ("add",)),),
    templates=(
        unary("erf"),
        unary("gelu"),
        unary("gelu_tanh"),
        unary("tanh"),
        unary("scale", factor=-1),
        unary("scale", factor=FACTOR),
        binary("mul"),
        binary("add"),
    ),
    ranges={**SIZES, "a": FACTORS},
    limit=3,
)

C, D = (variable(name, (N, K)) for name in "cd")
_MOVERS = ("transpose", "slice", "concat")
_TRUTHS = ("c", "d", "less", "logical_not", *_MOVERS)
_VALUES = ("x", "y", "zeros", "where", "relu", "scale", "maximum", "add", "mul", *_MOVERS)
_WHERE = Template("where", 3, takes=(_TRUTHS, _VALUES, _VALUES))
_NOT = Template("logical_not", 1, takes=(_TRUTHS,))


def _of_values(op: str, operands: int, **attributes: Attribute) -> Template:
    """Return a template for enumeration: the operator `op`, applied only to operands that are not conditions."""
    return Template(op, operands, attributes, takes=(_VALUES,) * operands)


CONDITIONS = Universe(
    family="pointwise",
    name="conditions",
    variables=((X, Y), (C, D)),
    constants=(Constant(ZEROS, ("where", "less", "add")),),
    templates=(
        _WHERE,
        _NOT,
        _of_values("less", 2),
        _of_values("relu", 1),
        _of_values("scale", 1, factor=-1),
        _of_values("maximum", 2),
        _of_values("add", 2),
        _of_values("mul", 2),
    ),
    ranges=SIZES,
    conditions=("c", "d"),
    limit=2,
)


def moves(name: str, *functions: Template, positive: bool = False) -> Universe:
    """Return a universe (a vocabulary for enumeration) for rules by which functions commute with operators that only move
    elements.
    """
    return Universe(
        family="pointwise",
        name=name,
        variables=((X, Y), (variable("t", (K,)),)),
        constants=(),
        templates=(
            *functions,
            unary("transpose", perm=(-1, -2)),
            unary("expand", shape=(N, K), axes=(-1,)),
            unary("reshape", shape=(N * K,), first=N),
            split_parts(-1),
            binary("concat", axis=-1),
        ),
        ranges={**SIZES, "a": FACTORS, "i": (-1, 0), "j": (1, 2, 3), "e": (2, 3), "f": (1, 2)},
        limit=3,
        positive=("x", "y", "t") if positive else (),
    )


MOVES = (
    moves(
        "moves of exponentials", unary("exp"), unary("log"), unary("reciprocal"), unary("scale", factor=ALPHA), positive=True
    ),
    moves("moves of roots", unary("sqrt"), unary("rsqrt"), unary("power", exponent=2), unary("abs"), positive=True),
    moves("moves of sigmoids", unary("sigmoid"), unary("tanh"), unary("silu"), unary("softplus")),
    moves("moves of error functions", unary("erf"), unary("gelu"), unary("gelu_tanh"), unary("mish")),
    moves("moves of clamps", unary("clip", low=LOW, high=HIGH), unary("leaky_relu", alpha=ALPHA), unary("hard_swish")),
    moves("moves of hard sigmoids", unary("hard_sigmoid", alpha=ALPHA, beta=BETA), unary("elu", alpha=ALPHA)),
    moves("moves of pairs", binary("maximum"), binary("minimum"), binary("mul")),
)

MOVES_OF_CONDITIONS = Universe(
    family="pointwise",
    name="moves of conditions",
    variables=((X, Y), (C, D)),
    constants=(),
    templates=(
        _WHERE,
        _NOT,
        _of_values("less", 2),
        unary("transpose", perm=(-1, -2)),
        split_parts(-1),
        binary("concat", axis=-1),
    ),
    ranges=SIZES,
    conditions=("c", "d"),
    limit=2,
)
