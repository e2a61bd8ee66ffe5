"""Corrections: they compute parts of a program by the program's own operators, and make wrong mutants right everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable, variables
from superopt.notation.parsing import parse
from superopt.partial.assemble import assemble_boxes, box_covers, is_box_within, piecewise_constant
from superopt.partial.box import Box, Run, full_box
from superopt.partial.correct import Corrected, corrections, estimate_correction_operations
from superopt.partial.judge import equal_positions, judge
from superopt.partial.restrict import restrict_program, slice_box
from superopt.rules.work import total_work

pytestmark = pytest.mark.slow

X = variable("x", (3, 4, 6, 6))
W = variable("w", (4, 4, 3, 3), constant=True)
PADS = (1, 1, 1, 1)
CONV = apply("conv", X, W, pads=PADS)


def term(text: str, **operands: Term) -> Term:
    (found,) = parse(text, operands)
    return found


def along(shape: Sequence[int], **runs: tuple[int, ...]) -> Box:
    """Return the box of this shape with the given runs along some axes: a2=(0, 1) is the first position of axis 2."""
    box = full_box(shape)
    for name, run in runs.items():
        box = box.along(int(name[1:]), Run(*run))
    return box


def same(one: Term, other: Term) -> bool:
    return bool(equal_positions(one, other).all())


def in_floats(one: Term, other: Term) -> bool:
    """Return whether both terms are equal on real inputs, up to rounding."""
    rng = np.random.default_rng(1)
    arrays = {v.name: rng.standard_normal(v.sizes) for v in variables(one, other)}
    left, right = evaluate_terms((one, other), arrays, lambda _: None, Floats())
    return bool(np.allclose(left, right, rtol=1e-9, atol=1e-9))


@pytest.mark.parametrize(
    ("program", "runs"),
    [
        (CONV, {"a2": (0, 1)}),
        (CONV, {"a2": (5, 1), "a3": (2, 3)}),
        (CONV, {"a0": (1, 2), "a1": (1, 2)}),
        (CONV, {"a2": (1, 3, 2)}),
        (apply("conv", X, W, pads=PADS, strides=(2, 2)), {"a2": (2, 1), "a3": (0, 2)}),
        (apply("conv", X, W, pads=(2, 2, 2, 2), dilations=(2, 2)), {"a2": (1, 3, 2)}),
        (apply("conv", X, variable("v", (4, 1, 3, 3)), pads=PADS, group=4), {"a1": (1, 2)}),
        (apply("conv", X, variable("v", (8, 2, 3, 3)), pads=PADS, group=2), {"a1": (1, 2)}),
        (apply("avg_pool", X, kernel=(3, 3), strides=(1, 1), pads=PADS), {"a2": (0, 2), "a3": (5, 1)}),
        (apply("avg_pool", X, kernel=(3, 3), strides=(2, 2), pads=(0, 0, 1, 1)), {"a2": (2, 1)}),
        (apply("conv_transpose", X, variable("v", (4, 2, 4, 4)), strides=(2, 2), pads=PADS), {"a2": (3, 4)}),
        (apply("conv_transpose", X, variable("v", (4, 2, 4, 4)), strides=(2, 2), pads=PADS), {"a2": (1, 6, 2)}),
        (apply("pad", CONV, before=(0, 0, 1, 0), after=(0, 0, 0, 1)), {"a2": (0, 1)}),
        (apply("pad", CONV, before=(0, 0, 1, 0), after=(0, 0, 0, 1)), {"a2": (0, 3), "a3": (5, 2)}),
        (apply("reshape", CONV, shape=(3, 4, 36)), {"a2": (6, 6)}),
        (apply("reshape", CONV, shape=(12, 6, 6)), {"a0": (3, 4), "a1": (0, 1)}),
        (apply("concat", CONV, X, axis=-3), {"a1": (3, 3), "a2": (0, 2)}),
        (apply("concat", CONV, X, axis=-3), {"a1": (5, 2)}),
        (apply("conv", CONV, variable("v", (2, 4, 3, 3)), pads=PADS), {"a2": (0, 1), "a3": (0, 1)}),
    ],
    ids=str,
)
def test_a_part_is_computed_from_parts(program: Term, runs: dict[str, tuple[int, ...]]) -> None:
    box = along(program.sizes, **runs)
    part = restrict_program(program, box)
    assert same(part, slice_box(program, box))
    assert in_floats(part, slice_box(program, box))
    assert total_work([part]).flops <= total_work([program]).flops
    assert part is not slice_box(program, box)


def test_a_part_of_a_convolution_takes_the_rows_and_the_taps_that_it_needs() -> None:
    part = restrict_program(CONV, along(CONV.sizes, a2=(0, 1)))
    expected = "conv(slice(x, axis=-2, start=0, stop=2), slice(w, axis=-2, start=1, stop=3), pads=(0, 1, 0, 1))"
    assert part is term(expected, x=X, w=W)


def test_a_part_of_a_triangle_knows_which_diagonal_it_has() -> None:
    q, k, v = variable("q", (2, 8, 3)), variable("k", (2, 3, 8)), variable("v", (2, 8, 5))
    program = term("lower_triangle(q @ k, offset=0) @ v", q=q, k=k, v=v)
    box = along(program.sizes, a1=(4, 2))
    part = restrict_program(program, box)
    assert same(part, slice_box(program, box))
    assert not any(t.op == "matmul" and t.sizes == (2, 8, 8) for t in subterms(part))


@pytest.mark.parametrize(("count", "expected"), [(1, ["slice"]), (2, ["slice", "stride"])])
def test_one_position_of_a_run_is_cut_without_a_stride(count: int, expected: list[str]) -> None:
    part = slice_box(variable("x", (9,)), Box((Run(3, count, 2),)))
    assert [t.op for t in subterms(part) if t.args] == expected


def test_what_is_no_polynomial_is_cut() -> None:
    program = apply("relu", CONV)
    box = along(program.sizes, a2=(0, 1))
    assert restrict_program(program, box) is slice_box(program, box)


# ---------------------------------------------------------------- assembly


def numbered(sizes: Sequence[int], labelled: Sequence[tuple[Box, int]]) -> tuple[Term, np.ndarray]:
    """Assemble boxes of constants, and return the term and the expected values."""
    expected = np.zeros(sizes)
    for box, label in labelled:
        expected[box.grid()] = label

    def make(box: Box, label: int) -> Term:
        return apply("scale", apply("ones", shape=box.shape), factor=label) if label else apply("zeros", shape=box.shape)

    return assemble_boxes(sizes, labelled, 0, make), expected


@pytest.mark.parametrize(
    "labelled",
    [
        [(along((4, 6), a0=(0, 1)), 1)],
        [(along((4, 6), a0=(0, 1), a1=(0, 1)), 1), (along((4, 6), a0=(3, 1), a1=(5, 1)), 2)],
        [(along((4, 6), a1=(1, 3, 2)), 1)],
        [(along((4, 6), a0=(0, 2, 2), a1=(0, 2, 3)), 1), (along((4, 6), a0=(1, 1)), 2)],
        [(along((4, 6), a0=(0, 2, 3), a1=(2, 2)), 3)],
    ],
    ids=lambda labelled: "; ".join(str(box) for box, _ in labelled),
)
def test_boxes_are_put_together(labelled: list[tuple[Box, int]]) -> None:
    built, expected = numbered((4, 6), labelled)
    (values,) = evaluate_terms((built,), {}, lambda _: None, Floats())
    assert np.array_equal(values, expected)


def test_a_frame_takes_as_few_parts_as_cuts_from_end_to_end_allow() -> None:
    built, _ = numbered((6, 6), [(along((6, 6), a0=(0, 2, 5)), 1), (along((6, 6), a1=(0, 2, 5)), 1)])
    assert sum(t.op == "concat" for t in subterms(built)) == 4
    assert sum(not t.args for t in subterms(built)) <= 5


def test_a_constant_is_expanded_where_it_does_not_change() -> None:
    mask = piecewise_constant((2, 3, 4, 5), [(along((2, 3, 4, 5), a2=(0, 1)), Fraction(3, 2))], Fraction(1))
    (values,) = evaluate_terms((mask,), {}, lambda _: None, Floats())
    assert mask.op == "expand"
    assert mask.args[0].sizes == (4,)
    assert mask.constant
    assert np.array_equal(values[:, :, 0], np.full((2, 3, 5), 1.5))
    assert np.array_equal(values[:, :, 1:], np.ones((2, 3, 3, 5)))


def test_boxes_are_widened_but_never_to_everything() -> None:
    corners = [along((4, 6), a0=(0, 1), a1=(0, 1)), along((4, 6), a0=(3, 1), a1=(5, 1))]
    covers = box_covers((4, 6), corners)
    assert tuple(sorted(corners)) in covers
    assert (along((4, 6), a0=(0, 1)), along((4, 6), a0=(3, 1))) in covers
    assert (full_box((4, 6)),) not in covers
    for cover in covers:
        assert all(any(is_box_within(box, wide) for wide in cover) for box in corners)


def test_boxes_that_fill_the_tensor_have_no_cover() -> None:
    halves = [along((4, 6), a0=(0, 2)), along((4, 6), a0=(2, 2))]
    assert box_covers((4, 6), halves) == []
    assert (halves[0],) in box_covers((4, 6), halves[:1])


# ---------------------------------------------------------------- corrections


def stacked(axis: int) -> Term:
    """Return the convolution of the images side by side along height (2) or width (3).

    Windows at the borders of an image reach into the next image.
    """
    n, c, h, w = X.sizes
    if axis == 2:
        before = apply("reshape", apply("transpose", X, perm=(-3, -4, -2, -1)), shape=(1, c, n * h, w))
        after = apply("reshape", apply("conv", before, W, pads=PADS), shape=(c, n, h, w))
        return apply("transpose", after, perm=(-3, -4, -2, -1))
    before = apply("reshape", apply("transpose", X, perm=(-3, -2, -4, -1)), shape=(1, c, h, n * w))
    after = apply("reshape", apply("conv", before, W, pads=PADS), shape=(c, h, n, w))
    return apply("transpose", after, perm=(-2, -4, -3, -1))


def found(program: Term, mutant: Term) -> list[Corrected]:
    """Return the corrections of the mutant, after checks of each correction."""
    every = list(corrections(program, mutant, judge(program, mutant)))
    costs = [estimate_correction_operations(c.term) for c in every]
    assert costs == sorted(costs)
    for corrected in every:
        assert not corrected.judgement.unequal
        assert corrected.judgement.log2_error < -60
        assert same(program, corrected.term)
        assert in_floats(program, corrected.term)
    return every


def kinds(every: Sequence[Corrected]) -> set[str]:
    return {corrected.kind for corrected in every}


@pytest.mark.parametrize("axis", [2, 3])
def test_images_side_by_side_get_zeros_between_or_their_seams_anew(axis: int) -> None:
    every = found(CONV, stacked(axis))
    assert kinds(every) == {"spaced", "recomputed"}
    spaced = next(corrected for corrected in every if corrected.kind == "spaced")
    (padded,) = (t for t in subterms(spaced.term) if t.op == "pad")
    assert sum(padded.integers("before")) + padded.integers("after")[axis] == 1


@pytest.mark.parametrize(
    ("strides", "pads"), [((1, 1), PADS), ((2, 2), PADS), ((2, 2), (0, 0, 1, 1)), ((1, 1), (1, 0, 2, 1))], ids=str
)
def test_pooling_that_counts_pads_is_scaled(strides: tuple[int, int], pads: tuple[int, ...]) -> None:
    given = {"kernel": (3, 3), "strides": strides, "pads": pads}
    program = apply("avg_pool", X, include_pads=0, **given)
    depthwise = apply("conv", X, apply("mean_kernel", shape=(4, 1, 3, 3)), strides=strides, pads=pads, group=4)
    for mutant in (apply("avg_pool", X, include_pads=1, **given), depthwise):
        best = found(program, mutant)[0]
        assert best.kind == "scaled"
        (factors,) = (t for t in best.term.args if t.constant)
        assert factors.op == "expand"
        assert len(factors.integers("axes")) == 2


def test_borders_left_out_are_computed_anew() -> None:
    cropped = apply("pad", apply("conv", X, W), before=(0, 0, 1, 1), after=(0, 0, 1, 1))
    every = found(CONV, cropped)
    assert kinds(every) == {"recomputed"}
    assert every[0].boxes


def test_what_should_be_zero_is_made_zero() -> None:
    program = apply("pad", apply("slice", CONV, axis=-2, start=0, stop=5), before=(0, 0, 0, 0), after=(0, 0, 1, 0))
    every = found(program, CONV)
    assert "scaled" in kinds(every)


def test_channels_left_out_are_computed_anew() -> None:
    most = apply("conv", X, apply("slice", W, axis=-4, start=0, stop=3), pads=PADS)
    every = found(CONV, apply("concat", most, apply("zeros", shape=(3, 1, 6, 6)), axis=-3))
    left, right = (apply("slice", W, axis=-4, start=start, stop=stop) for start, stop in ((0, 3), (3, 4)))
    expected = apply("concat", apply("conv", X, left, pads=PADS), apply("conv", X, right, pads=PADS), axis=-3)
    assert every[0].term is expected


def test_one_corner_is_enough_to_be_wrong() -> None:
    spot = apply("pad", apply("ones", shape=(3, 4, 1, 1)), before=(0, 0, 0, 0), after=(0, 0, 5, 5))
    wrong = apply("add", CONV, apply("mul", X, spot))
    assert judge(CONV, wrong).unequal == (along(CONV.sizes, a2=(0, 1), a3=(0, 1)),)
    assert found(CONV, wrong)


def test_every_other_row_is_put_in_between() -> None:
    program = apply("conv_transpose", X, variable("v", (4, 2, 4, 4), constant=True), strides=(2, 2), pads=PADS)
    rows = apply("tile", apply("concat", apply("ones", shape=(1,)), apply("zeros", shape=(1,)), axis=-1), axis=-1, times=6)
    mutant = apply("mul", program, apply("expand", rows, shape=program.shape, axes=(-2,)))
    every = found(program, mutant)
    assert {box.runs[2] for box in every[0].boxes} == {Run(1, 6, 2)}


def test_an_equal_mutant_is_its_own_correction() -> None:
    larger = apply("conv", apply("pad", X, before=(0, 0, 1, 1), after=(0, 0, 1, 1)), W)
    (corrected,) = found(CONV, larger)
    assert (corrected.term, corrected.kind, corrected.boxes) == (larger, "equal", ())


def test_the_caller_says_what_is_cheap() -> None:
    mutant = stacked(2)
    judgement = judge(CONV, mutant)
    first = next(corrections(CONV, mutant, judgement, cost=lambda t: sum(s.op == "pad" for s in subterms(t))))
    assert first.kind == "recomputed"
