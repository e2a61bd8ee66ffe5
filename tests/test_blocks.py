"""Transposes that move square blocks of images become `space_to_depth` or `depth_to_space`, with the same values."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superopt.algebra.dim_binding import dimension
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.model.image_blocks import rewrite_block_transpose
from superopt.model.lower import lower
from superopt.protobuf.nodes import lowered_model_proto
from superopt.runtime.session import Device, Session
from tests.operator_cases import evaluated

pytestmark = pytest.mark.slow


def moved(shape: tuple[int, ...], perm: tuple[int, ...]) -> Term:
    """Return a variable that is reshaped to the shape and then transposed."""
    x = variable("x", (1, math.prod(shape)))
    return apply("transpose", apply("reshape", x, shape=shape), perm=tuple(a - len(perm) for a in perm))


def kinds(term: Term) -> set[str]:
    return {t.op for t in subterms(term) if not t.is_variable} - {"reshape"}


@pytest.mark.parametrize(
    ("shape", "perm", "op"),
    [
        ((2, 3, 4, 2, 5, 2), (0, 3, 5, 1, 2, 4), "space_to_depth"),
        ((1, 3, 4, 2, 5, 2), (0, 3, 5, 1, 2, 4), "space_to_depth"),
        ((2, 1, 4, 3, 5, 3), (0, 3, 5, 1, 2, 4), "space_to_depth"),
        ((1, 3, 4, 2, 5, 2), (3, 5, 0, 1, 2, 4), "space_to_depth"),
        ((2, 2, 2, 3, 4, 5), (0, 3, 4, 1, 5, 2), "depth_to_space"),
        ((2, 3, 2, 2, 4, 5), (0, 1, 4, 2, 5, 3), "depth_to_space"),
        ((2, 3, 4, 2, 5, 3), (0, 3, 5, 1, 2, 4), ""),
        ((2, 3, 4, 2, 5, 2), (3, 5, 0, 1, 2, 4), "space_to_depth"),
        ((2, 3, 4, 2, 5, 2), (5, 3, 0, 1, 2, 4), ""),
        ((2, 3, 4, 5), (0, 2, 1, 3), ""),
    ],
)
def test_moves_of_square_blocks_are_told(shape: tuple[int, ...], perm: tuple[int, ...], op: str) -> None:
    found = rewrite_block_transpose(moved(shape, perm))
    assert (found is None) if not op else (found is not None and kinds(found) == {op})


@st.composite
def moves(draw: st.DrawFn) -> Term:
    """Draw a transpose that moves blocks into channels or back, with all axes in the usual order or in random order.

    Extents are small, so that axes of extent 1 are frequent.
    """
    n, c, h, b, w = (draw(st.integers(1, 3)) for _ in range(5))
    shape, perm = draw(
        st.sampled_from(
            [
                ((n, c, h, b, w, b), (0, 3, 5, 1, 2, 4)),
                ((n, c, h, b, w, b), (3, 5, 0, 1, 2, 4)),
                ((n, b, b, c, h, w), (0, 3, 4, 1, 5, 2)),
                ((n, c, b, b, h, w), (0, 1, 4, 2, 5, 3)),
                ((n, h, b, w, b, c), (0, 2, 4, 1, 3, 5)),
            ]
        )
    )
    if draw(st.booleans()):
        return moved(shape, tuple(draw(st.permutations(perm))))
    return moved(shape, perm)


@given(moves())
def test_what_is_told_is_the_same_move(term: Term) -> None:
    found = rewrite_block_transpose(term)
    if found is not None:
        feeds = {"x": np.arange(math.prod(term.sizes), dtype=np.float32).reshape(1, -1)}
        one, other = evaluated(feeds, found, term)
        assert np.array_equal(one, other)


def nodes(term: Term, **options: object) -> Counter[str]:
    return Counter(node.op_type for node in lower({"y": term}, 18, **options).nodes)  # type: ignore[arg-type]


def test_lowering_writes_the_operator_and_the_runtime_agrees() -> None:
    term = moved((1, 8, 4, 2, 5, 2), (0, 3, 5, 1, 2, 4))
    lowered = lower({"y": term}, 18)
    assert Counter(node.op_type for node in lowered.nodes) == {"Reshape": 2, "SpaceToDepth": 1}
    x = np.random.default_rng(0).standard_normal((1, 640)).astype(np.float32)
    model = lowered_model_proto(lowered, [variable("x", x.shape)], {"y": term}, 18)
    (found,) = Session(model, Device("cpu")).run({"x": x})
    (expected,) = evaluated({"x": x}, term)
    assert np.array_equal(found, expected)


def test_lowering_leaves_the_transpose_where_the_kernel_may_be_missing_or_sizes_may_differ() -> None:
    term = moved((1, 8, 4, 2, 5, 2), (0, 3, 5, 1, 2, 4))
    assert nodes(term, dtype=np.float16)["Transpose"] == 1
    x = variable("x", (dimension("n"), 4, 2, 5, 2))
    assert nodes(apply("transpose", x, perm=(-3, -1, -5, -4, -2)))["Transpose"] == 1
    assert nodes(apply("transpose", variable("x", (8, 4, 2, 5, 2)), perm=(-3, -1, -5, -4, -2)))["SpaceToDepth"] == 1
