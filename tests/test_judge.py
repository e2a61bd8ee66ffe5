"""Partial equivalence: the boxes in which a mutant equals its program, checked by a comparison of every position."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.errors import Undecidable
from superopt.partial.box import Box, Run, full_box, merge_boxes
from superopt.partial.field import PrimeFields, program_field_primes, reconstruct_rational, residues
from superopt.partial.judge import Judgement, equal_positions, glance, judge, ratio
from superopt.partial.points import Points, evaluate_residues
from superopt.partial.region import regions, variable_halos
from superopt.policy import MUTANT
from tests.programs import Programs

pytestmark = pytest.mark.slow

X = variable("x", (1, 2, 9, 9))
W = variable("w", (3, 2, 3, 3), constant=True)
M = variable("m", (9, 9))
V = variable("v", (8,))


def flags(boxes: Iterable[Box], shape: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return, for each position, the number of boxes that contain it."""
    found = np.zeros(tuple(shape), np.int64)
    for box in boxes:
        found[box.grid()] += 1
    return found


def judged(program: Term, mutant: Term, seed: int = 0) -> Judgement:
    """Return the judgement, after checks that its boxes are a partition and agree with a comparison of every position."""
    judgement = judge(program, mutant, seed=seed)
    assert (flags((*judgement.equal, *judgement.unequal), program.sizes) == 1).all()
    assert np.array_equal(flags(judgement.equal, program.sizes) == 1, equal_positions(program, mutant, seed=seed))
    assert judgement.log2_error < -60
    return judgement


def kept(x: Term, positions: Iterable[int], axis: int) -> Term:
    """Return x at these positions of an axis, and zeros elsewhere."""
    n = x.sizes[axis]

    def around(amount: int) -> tuple[int, ...]:
        return tuple(amount if a == axis else 0 for a in range(-x.rank, 0))

    parts = [
        apply("pad", apply("slice", x, axis=axis, start=p, stop=p + 1), before=around(p), after=around(n - 1 - p))
        for p in positions
    ]
    return parts[0] if len(parts) == 1 else apply("add", *parts)


# ---------------------------------------------------------------- boxes


@pytest.mark.parametrize("seed", range(40))
def test_runs_meet_where_their_positions_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (Run(*(int(v) for v in (rng.integers(0, 9), rng.integers(1, 7), rng.integers(1, 5)))) for _ in range(2))
    both = sorted(set(a.positions().tolist()) & set(b.positions().tolist()))
    met = a.intersect(b)
    assert (met.positions().tolist() if met else []) == both
    hull = set(a.hull(b).positions().tolist())
    assert {*a.positions().tolist(), *b.positions().tolist()} <= hull
    assert all(p in hull or p not in a for p in range(60))


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        (Run(2, 1, 3), Run(9, 1, 5), Run(2, 2, 7)),
        (Run(8, 1, 3), Run(2, 3, 2), Run(2, 4, 2)),
        (Run(4, 1, 3), Run(4, 1, 3), Run(4, 1)),
    ],
)
def test_the_step_of_a_single_position_does_not_narrow_the_steps_of_a_hull(a: Run, b: Run, joined: Run) -> None:
    assert a.hull(b) == b.hull(a) == joined


def test_boxes_of_residue_classes_join() -> None:
    box = full_box((4, 12))
    parts = [box.along(1, run) for run in box.runs[1].classes(3)]
    assert merge_boxes(parts) == (box,)
    assert merge_boxes([box.along(0, run) for run in box.runs[0].cut([1, 3])]) == (box,)


# ---------------------------------------------------------------- regions


def test_regions_of_a_padded_convolution() -> None:
    boxes = regions((apply("conv", X, W, pads=(1, 1, 1, 1)),))
    ends = (Run(0, 1), Run(1, 7), Run(8, 1))
    assert boxes == sorted(Box((Run(0, 1), Run(0, 3), row, column)) for row in ends for column in ends)


def test_regions_of_a_transposed_convolution_are_residue_classes() -> None:
    turned = variable("t", (2, 3, 2, 2))
    boxes = regions((apply("conv_transpose", X, turned, strides=(2, 3), pads=(0, 0, 0, 0)),))
    assert {(box.runs[2].step, box.runs[3].step) for box in boxes} == {(2, 3)}
    assert len(boxes) == 6


def test_a_halo_is_what_is_read() -> None:
    conv = apply("conv", X, W, pads=(1, 1, 1, 1), strides=(2, 2))
    box = Box((Run(0, 1), Run(1, 1), Run(0, 2), Run(3, 2)))
    halo = variable_halos(conv, box)
    assert halo[X] == Box((Run(0, 1), Run(0, 2), Run(0, 4), Run(5, 4)))
    assert halo[W] == Box((Run(1, 1), Run(0, 2), Run(0, 3), Run(0, 3)))
    second = apply("conv", conv, variable("u", (1, 3, 3, 3)), pads=(1, 1, 1, 1))
    inner = variable_halos(second, Box((Run(0, 1), Run(0, 1), Run(0, 1), Run(0, 1))), (conv, X))
    assert inner == {
        conv: Box((Run(0, 1), Run(0, 3), Run(0, 2), Run(0, 2))),
        X: Box((Run(0, 1), Run(0, 2), Run(0, 4), Run(0, 4))),
    }


def test_what_is_not_selected_is_not_read() -> None:
    first, second = variable("a", (4, 4)), variable("b", (4, 4))
    joined = apply("concat", first, second, axis=-1)
    assert set(variable_halos(joined, Box((Run(0, 4), Run(0, 4))))) == {first}
    assert variable_halos(apply("lower_triangle", M, offset=0), Box((Run(0, 1), Run(1, 8)))) == {}


def test_too_many_regions_are_refused() -> None:
    with pytest.raises(Undecidable, match="regions"):
        regions((apply("lower_triangle", M, offset=0),), most=5)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("seed", range(12))
def test_points_have_the_values_of_whole_tensors(seed: int) -> None:
    program = Programs(seed).program(4)
    domain = PrimeFields(program_field_primes(2))
    (values,) = evaluate_residues((program,), domain, seed)
    rng = np.random.default_rng(seed)
    at = np.stack([rng.integers(0, n, 30) for n in program.sizes], axis=-1) if program.rank else np.zeros((30, 0), np.int64)
    assert np.array_equal(Points(program, domain, seed).values(program, at), values[tuple(at.T)])


@pytest.mark.parametrize("most", [600, 2500])
def test_points_are_worked_out_in_pieces_where_memory_asks_for_it(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = apply("conv", X, W, pads=(1, 1, 1, 1))
    program = apply("avg_pool", first, kernel=(3, 3), strides=(1, 2), pads=(1, 1, 1, 1), include_pads=0)
    domain = PrimeFields(program_field_primes(2))
    (values,) = evaluate_residues((program,), domain, 0)
    for module in ("points", "field"):
        monkeypatch.setattr(f"superopt.partial.{module}.MUTANT", replace(MUTANT, max_residues=most))
    rng = np.random.default_rng(0)
    at = np.stack([rng.integers(0, n, 25) for n in program.sizes], axis=-1)
    assert np.array_equal(Points(program, domain, 0).values(program, at), values[tuple(at.T)])


def test_the_fields_multiply_as_python_does() -> None:
    domain = PrimeFields(program_field_primes(3))
    rng = np.random.default_rng(0)
    a = rng.integers(0, domain.primes[-1], (40, 7, 1, 3))
    b = rng.integers(0, domain.primes[-1], (40, 1, 5, 3))
    found = (domain.read(a) * domain.read(b)).sum().array
    for field, p in enumerate(domain.primes):
        exact = (a[..., field].astype(object) * b[..., field].astype(object)).sum(axis=0) % p
        assert np.array_equal(found[..., field], exact.astype(np.int64))


@pytest.mark.parametrize("number", [Fraction(9, 4), Fraction(-3, 7), Fraction(1, 9), Fraction(0), Fraction(32001)])
def test_a_fraction_is_known_by_its_residue(number: Fraction) -> None:
    (p,) = program_field_primes(1)
    assert reconstruct_rational(residues(number, (p,))[0], p) == number


# ---------------------------------------------------------------- judgements


def test_a_program_equals_itself_written_otherwise() -> None:
    conv = apply("conv", X, W, pads=(1, 1, 1, 1))
    padded = apply("conv", apply("pad", X, before=(0, 0, 1, 1), after=(0, 0, 1, 1)), W)
    judgement = judged(conv, padded)
    assert judgement.equal == (full_box(conv.sizes),)
    assert judgement.unequal == ()
    assert judgement.share == 1


def test_images_side_by_side_differ_at_the_seam() -> None:
    stack = variable("s", (1, 2, 12, 5))
    halves = [apply("slice", stack, axis=-2, start=a, stop=a + 6) for a in (0, 6)]
    program = apply("concat", *(apply("conv", h, W, pads=(1, 1, 1, 1)) for h in halves), axis=-2)
    judgement = judged(program, apply("conv", stack, W, pads=(1, 1, 1, 1)))
    assert judgement.unequal == (Box((Run(0, 1), Run(0, 3), Run(5, 2), Run(0, 5))),)


def test_an_average_without_pads_is_a_convolution_off_the_borders() -> None:
    window = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}
    program, mutant = (apply("avg_pool", X, **window, include_pads=i) for i in (0, 1))
    assert judged(program, mutant).share == Fraction(49, 81)
    assert [ratio(program, mutant, box) for box in regions((program,))] == [
        Fraction(numerator, 4) for numerator in (9, 6, 9, 6, 4, 6, 9, 6, 9)
    ]
    assert ratio(program, mutant, full_box(program.sizes)) is None


def test_a_ratio_that_is_off_by_one_part_is_refused() -> None:
    box = Box((Run(0, 3), Run(0, 9)))
    parts = [apply("slice", M, axis=-2, start=a, stop=b) for a, b in ((0, 3), (3, 9))]
    scaled = apply(
        "concat", *(apply("scale", p, factor=f) for p, f in zip(parts, (Fraction(9, 6), Fraction(9, 4)), strict=True)), axis=-2
    )
    assert ratio(scaled, M, box) == Fraction(3, 2)
    assert ratio(scaled, M, Box((Run(0, 4), Run(0, 9)))) is None
    assert ratio(scaled, M, Box((Run(2, 2), Run(0, 9)))) is None


def test_right_at_thirds_only() -> None:
    judgement = judged(M, kept(kept(M, (3, 6), -1), (3, 6), -2))
    assert judgement.equal == (Box((Run(3, 2, 3), Run(3, 2, 3))),)


@pytest.mark.parametrize("corner", [(0, 0), (0, 8), (8, 0), (8, 8), (4, 4)])
def test_wrong_at_one_position_only(corner: tuple[int, int]) -> None:
    mutant = apply("add", M, kept(kept(M, corner[:1], -2), corner[1:], -1))
    assert judged(M, mutant).unequal == (Box(tuple(Run(p, 1) for p in corner)),)


def test_right_modulo_a_power_of_two_or_a_prime_only() -> None:
    for modulus in (2**32, program_field_primes(1)[0], math.prod(program_field_primes(4))):
        judgement = judged(M, apply("scale", M, factor=1 + modulus))
        assert judgement.unequal == (full_box((9, 9)),)


def test_right_on_zeros_only() -> None:
    assert judged(M, apply("mul", M, M)).unequal == (full_box((9, 9)),)


def test_the_steps_of_a_theorem_are_not_enough() -> None:
    """x[3 + p] + x[4 - p] equals x[3] + x[4] only at p = 0 and p = 1: at a corner and at one step from the corner."""
    backward = apply("reverse", V, axis=-1)
    program = apply("add", *(apply("slice", t, axis=-1, start=3, stop=8) for t in (V, backward)))
    middle = [apply("slice", V, axis=-1, start=p, stop=p + 1) for p in (3, 4)]
    mutant = apply("tile", apply("add", *middle), axis=-1, times=5)
    assert judged(program, mutant).unequal == (Box((Run(2, 3),)),)


def test_wrong_in_one_residue_class_only() -> None:
    third = apply("slice", apply("reshape", M, shape=(9, 3, 3)), axis=-1, start=1, stop=2)
    wrong = apply("reshape", apply("pad", third, before=(0, 0, 1), after=(0, 0, 1)), shape=(9, 9))
    assert judged(M, apply("add", M, wrong)).unequal == (Box((Run(0, 9), Run(1, 3, 3))),)


def test_wrong_where_two_conditions_meet_only() -> None:
    rows, both = kept(M, (0, 8), -2), kept(kept(M, (0, 8), -2), (0, 8), -1)
    assert judged(rows, apply("sub", rows, both)).unequal == (Box((Run(0, 2, 8), Run(0, 2, 8))),)


def test_wrong_on_a_diagonal_only() -> None:
    mutant = apply("add", apply("lower_triangle", M, offset=-1), apply("upper_triangle", M, offset=1))
    assert flags(judged(M, mutant).unequal, (9, 9)).tolist() == np.eye(9, dtype=int).tolist()


def test_reads_that_move_apart_meet_somewhere() -> None:
    turned = apply("transpose", M, perm=(-1, -2))
    symmetric = judged(M, turned)
    assert flags(symmetric.equal, (9, 9)).tolist() == np.eye(9, dtype=int).tolist()
    assert judged(apply("matmul", M, turned), apply("matmul", M, M)).share == 0


@pytest.mark.parametrize("name", ["relu", "exp", "softmax", "reduce_max", "sigmoid", "abs"])
def test_what_is_no_polynomial_is_refused(name: str) -> None:
    attributes: dict[str, tuple[int, ...] | int] = {"softmax": {"axis": -1}, "reduce_max": {"axes": (-1,)}}.get(name, {})  # type: ignore[assignment]
    term = apply(name, M, **attributes)
    with pytest.raises(Undecidable):
        judge(term, term)


def test_shapes_must_agree() -> None:
    with pytest.raises(Undecidable, match="but the mutant has the output shape"):
        judge(M, V)


def test_sizes_must_be_numbers() -> None:
    with pytest.raises(Undecidable, match="not an integer"):
        judge(variable("s", 2), variable("s", 2))


def test_few_positions_stand_for_many() -> None:
    x, w = variable("x", (64, 64, 56, 56)), variable("w", (64, 64, 3, 3))
    judgement = judge(apply("conv", x, w, pads=(1, 1, 1, 1)), apply("conv", x, w, pads=(2, 1, 0, 1)))
    assert judgement.positions < 200
    assert judgement.total == 64 * 64 * 56 * 56
    assert judgement.share == 0
    assert glance(apply("conv", x, w, pads=(1, 1, 1, 1)), apply("conv", x, w, pads=(2, 1, 0, 1))) == 0


@pytest.mark.parametrize("seed", range(60))
def test_random_mutants_are_judged_as_a_comparison_shows(seed: int) -> None:
    programs = Programs(seed)
    program = programs.program(1 + seed % 5)
    judged(program, programs.mutant(program), seed)


@pytest.mark.parametrize("shape", [(), (1, 1), (4, 5)])
def test_each_position_that_is_compared_counts_once(shape: tuple[int, ...]) -> None:
    """The comparison reads the first position, and one step along each axis of more than one position."""
    x = variable("x", shape)
    assert judge(x, x).positions == 1 + sum(n > 1 for n in shape)
