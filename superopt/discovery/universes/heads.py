"""The heads family: attention heads that are flattened into one axis with the batch, or that share keys and values in groups.

The universes (vocabularies from which terms are enumerated) include:

- Operations on attention scores, elementwise or on rows. The heads are a separate axis, are grouped, or are flattened into the
  batch.
- Heads in a batch of size 1. ONNX Runtime fuses a transpose of three axes into a product, but not a transpose of four axes.
- Operators that cancel. A transpose moves the axis of heads before the axis of rows, and a second transpose moves the axis of
  heads back. A reshape flattens heads, and a second reshape splits the heads.
- Products of heads, written as products of stacks of matrices.
- Keys and values that several query heads share. Exporters repeat the shared keys and values for each query head.
"""

from __future__ import annotations

from superopt.algebra.terms import variable
from superopt.discovery.universe import FACTOR, FACTORS, Template, Universe, binary, unary, universe_symbols
from superopt.discovery.universes.matrix import SMALL, K, M, N

B, G, H, R = universe_symbols("b g h r")
SIZES = {"b": SMALL, "n": SMALL, "k": SMALL, "m": SMALL}

FLATTENED = Universe(
    family="heads",
    name="flattened heads",
    variables=((variable("x", (B, H, N, K)),), (variable("w", (B, H, K, M)),)),
    constants=(),
    templates=(
        unary("reshape", shape=(B * H, N, K)),
        unary("reshape", shape=(B * H, K, M)),
        unary("reshape", shape=(B * H, M, K)),
        unary("reshape", shape=(B, H, K, M)),
        unary("reshape", shape=(B, H, M, K)),
        unary("reshape", shape=(B, H, N, M)),
        unary("transpose", perm=(-3, -1, -2)),
        unary("transpose", perm=(-4, -3, -1, -2)),
        binary("matmul"),
    ),
    ranges={**SIZES, "h": SMALL},
)

REPEATED = Universe(
    family="heads",
    name="repeated heads",
    variables=((variable("x", (B, G * R, N, K)),), (variable("w", (B, G, K, M)),)),
    constants=(),
    templates=(
        unary("expand", shape=(B, G, R, K, M), axes=(-5, -4, -2, -1)),
        unary("expand", shape=(B, G, R, M, K), axes=(-5, -4, -2, -1)),
        unary("reshape", shape=(B, G * R, K, M)),
        unary("reshape", shape=(B, G * R, M, K)),
        unary("reshape", shape=(B * G * R, K, M)),
        unary("transpose", perm=(-3, -1, -2)),
        unary("reshape", shape=(B, G, R * N, K)),
        unary("reshape", shape=(B, G * R, N, M)),
        unary("transpose", perm=(-4, -3, -1, -2)),
        binary("matmul"),
    ),
    ranges={**SIZES, "g": SMALL, "r": SMALL},
)

SCORES = Universe(
    family="heads",
    name="scores of heads in groups",
    variables=(
        tuple(variable(name, (B, G * R, N, M)) for name in "xy"),
        (variable("z", (B, G, R * N, M)),),
        (variable("q", (B * G * R, N, M)),),
        (variable("u", (N, M)),),
    ),
    constants=(),
    templates=(
        unary("reshape", shape=(B, G, R * N, M)),
        unary("reshape", shape=(B, G * R, N, M)),
        unary("reshape", shape=(B * G * R, N, M)),
        unary("expand", shape=(B, G * R, N, M), axes=(-2, -1)),
        unary("scale", factor=FACTOR),
        unary("softmax", axis=-1),
        binary("add"),
        binary("mul"),
    ),
    ranges={**SIZES, "g": SMALL, "r": SMALL, "a": FACTORS},
    limit=3,
)


def _lone(order: tuple[int, ...]) -> Universe:
    """Return a universe (a vocabulary for enumeration) of attention heads in a batch of size 1.

    A transpose permutes the axes after the batch axis by `order`.
    """
    heads = N, H, K
    return Universe(
        family="heads",
        name=f"heads of one batch, axes {order}",
        variables=((variable("x", (1, *heads)),),),
        constants=(),
        templates=(
            Template("reshape", 1, {"shape": heads}, takes=(("x",),)),
            Template("transpose", 1, {"perm": order}, takes=(("reshape",),)),
            Template("reshape", 1, {"shape": (1, *(heads[axis] for axis in order))}, takes=(("transpose",),)),
            Template("transpose", 1, {"perm": (-4, *order)}, takes=(("x",),)),
        ),
        ranges={"n": SMALL, "h": SMALL, "k": SMALL},
        limit=3,
    )


SWAPPED = Universe(
    family="heads",
    name="heads before rows and after",
    variables=((variable("x", (B, N, H, K)),), (variable("y", (B, N, H * K)),)),
    constants=(),
    templates=(
        unary("reshape", shape=(B, N, H, K)),
        unary("reshape", shape=(B, N, H * K)),
        unary("transpose", perm=(-4, -2, -3, -1)),
    ),
    ranges={**SIZES, "h": SMALL},
    limit=3,
)

UNIVERSES = (FLATTENED, REPEATED, SCORES, SWAPPED, _lone((-2, -3, -1)), _lone((-2, -1, -3)))
