"""The lookups family. Rows of a table are read at positions that are known only at run time.

Some operations can be applied to the table instead of the rows.
"""

from __future__ import annotations

from superopt.algebra.terms import Attribute, Extent, variable
from superopt.discovery.universe import FACTOR, FACTORS, Template, Universe, binary, split_parts, unary, universe_symbols
from superopt.discovery.universes.pointwise import ALPHA

N, K, M, P, B = universe_symbols("n k m p b")
SMALL: tuple[Extent, ...] = (2, 3, 4)
SIZES = {"n": SMALL, "k": SMALL, "p": SMALL}
TABLES = variable("u", (N, K)), variable("v", (N, K))
INDICES = variable("i", (P,)), variable("j", (P,))
BIAS = variable("t", (K,))

_VALUES = ("u", "v", "w", "t", "lookup", "expand", "relu", "scale", "add", "mul", "matmul", "concat", "slice")
_LOOKUP = Template("lookup", 2, takes=((), ("i", "j")))
_LOOKUP_IN_STACKS = Template("lookup", 2, takes=(_VALUES, ("i", "j", "concat")))


def _of_values(op: str, operands: int, **attributes: Attribute) -> Template:
    """Return a template for enumeration: the operator `op`, applied only to operands that are not indices."""
    return Template(op, operands, attributes, takes=(_VALUES,) * operands)


LINEAR = Universe(
    family="lookups",
    name="lookups",
    variables=(TABLES, INDICES, (variable("w", (K, M)),), (BIAS,)),
    constants=(),
    templates=(
        _LOOKUP,
        _of_values("relu", 1),
        _of_values("scale", 1, factor=FACTOR),
        unary("expand", shape=(N, K), axes=(-1,)),
        unary("expand", shape=(P, K), axes=(-1,)),
        split_parts(-1),
        _of_values("add", 2),
        _of_values("mul", 2),
        _of_values("matmul", 2),
        binary("concat", axis=-1),
    ),
    ranges={**SIZES, "m": SMALL, "a": FACTORS},
    limit=3,
)


def functions(name: str, *templates: Template, positive: bool = False) -> Universe:
    """Return a universe (a vocabulary for enumeration) for rules about functions of a table's rows.

    A function can be applied to the table before rows are looked up, or to the rows that were looked up.
    """
    return Universe(
        family="lookups",
        name=name,
        variables=((TABLES[0],), (INDICES[0],), (BIAS,)),
        constants=(),
        templates=(
            _LOOKUP,
            *templates,
            unary("expand", shape=(N, K), axes=(-1,)),
            unary("expand", shape=(P, K), axes=(-1,)),
        ),
        ranges={**SIZES, "e": (1, 2), "f": (1, 2), "i": (-1, 0), "j": (1, 2, 3)},
        limit=3,
        positive=("u", "t") if positive else (),
    )


FUNCTIONS = (
    functions("lookups of sigmoids", unary("sigmoid"), unary("tanh"), unary("silu")),
    functions("lookups of error functions", unary("erf"), unary("gelu"), unary("gelu_tanh"), unary("leaky_relu", alpha=ALPHA)),
    functions("lookups of powers", unary("exp"), unary("sqrt"), unary("reciprocal"), unary("power", exponent=2), positive=True),
    functions("lookups of pairs", binary("sub"), binary("maximum"), binary("minimum")),
    functions("lookups of softmaxes", unary("softmax", axis=-1), unary("log_softmax", axis=-1), unary("scale", factor=ALPHA)),
)

SIGNS = Universe(
    family="lookups",
    name="signs of tables",
    variables=((TABLES[0],), (INDICES[0],), (variable("x", (P, K)),)),
    constants=(),
    templates=(_LOOKUP, binary("add"), binary("sub"), unary("scale", factor=-1)),
    ranges=SIZES,
    limit=3,
    weighing=1,
)

PIECES = Universe(
    family="lookups",
    name="lookups at pieces",
    variables=((TABLES[0],), INDICES),
    constants=(),
    templates=(
        Template("lookup", 2, takes=(("u",), ("i", "j", "concat", "slice"))),
        Template("slice", 1, cut=-1, takes=(("i", "j", "concat"),)),
        Template("concat", 2, {"axis": -1}, takes=(("i", "j", "slice"), ("i", "j", "slice"))),
        Template("slice", 1, cut=-2, takes=(("lookup", "concat"),)),
        Template("concat", 2, {"axis": -2}, takes=(("lookup", "slice"), ("lookup", "slice"))),
    ),
    ranges=SIZES,
    limit=3,
)

STACKED = Universe(
    family="lookups",
    name="stacked lookups",
    variables=(
        (variable("u", (B, N, K)), variable("v", (B, N, K))),
        (variable("i", (B, P)), variable("j", (B, P))),
        (variable("w", (B, K, M)),),
    ),
    constants=(),
    templates=(
        _LOOKUP_IN_STACKS,
        _of_values("relu", 1),
        split_parts(-3),
        split_parts(-1),
        _of_values("add", 2),
        _of_values("matmul", 2),
        binary("concat", axis=-3),
        Template("concat", 2, {"axis": -2}, takes=(("i", "j"), ("i", "j"))),
        binary("concat", axis=-1),
    ),
    ranges={**SIZES, "m": SMALL, "b": SMALL},
    limit=3,
    weighing=1,
)

SINGLE = Universe(
    family="lookups",
    name="stacks of one table",
    variables=((TABLES[0],), (INDICES[0],)),
    constants=(),
    templates=(
        Template("lookup", 2, takes=(("u", "reshape"), ("i", "reshape"))),
        unary("reshape", shape=(1, N, K), first=N),
        unary("reshape", shape=(1, P), first=P),
        unary("reshape", shape=(1, P, K), first=P),
        unary("reshape", shape=(P, K), first=1),
        unary("reshape", shape=(P,), first=1),
    ),
    ranges=SIZES,
    limit=4,
)

UNIVERSES = (LINEAR, PIECES, *FUNCTIONS, SIGNS, STACKED, SINGLE)
