"""Mutants: the enumeration finds the expected mutants from the program alone, and what it states about a mutant is true."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable, variables
from superopt.partial.access import Reads, product_reads
from superopt.partial.alter import alter_attributes
from superopt.partial.arrange import NOTHING, NUMBER, Elements, arrange_weight
from superopt.partial.blocks import skip_zero_blocks
from superopt.partial.box import Box, Run
from superopt.partial.contraction import MatrixProduct
from superopt.partial.forms import Convolution, Sample, WindowAxis, is_consistent
from superopt.partial.indices import Affine, Cut, SummationGuard
from superopt.partial.judge import judge
from superopt.partial.layout import Exchange, Fold, Grow, Layout, Step
from superopt.partial.moves import layouts
from superopt.partial.mutate import Mutant, Program, mutants, sketches
from superopt.partial.source import single_source
from superopt.policy import MUTANT
from superopt.rules.rule import parse_rule

pytestmark = pytest.mark.slow


def image(*shape: int, name: str = "x") -> Term:
    return variable(name, shape)


def weight(*shape: int, name: str = "w") -> Term:
    return variable(name, shape, constant=True)


def outputs(program: Program) -> tuple[Term, ...]:
    return program if isinstance(program, tuple) else (program,)


def values(program: Program, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    roots = outputs(program)
    named = sorted(variables(*roots), key=lambda v: v.name)
    arrays = {v.name: rng.standard_normal(v.sizes) for v in named}
    return list(evaluate_terms(roots, arrays, lambda _: None, Floats()))


def share(program: Program, mutant: Mutant) -> float:
    """Return the share of positions at which the program and the mutant are equal."""
    pairs = zip(values(program), values(mutant.term), strict=True)
    return float(np.mean(np.concatenate([np.isclose(a, b).ravel() for a, b in pairs])))


def applied(mutant: Mutant, op: str) -> list[Term]:
    return [t for t in subterms(*outputs(mutant.term)) if t.op == op and not t.constant]


DILATED = apply("conv", image(1, 3, 8, 8), weight(4, 3, 3, 3), pads=(2, 2, 2, 2), dilations=(2, 2))
POOLED = apply("avg_pool", image(1, 4, 7, 6), kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), include_pads=0)
BATCHED = apply("conv", image(2, 4, 6, 5), weight(6, 4, 3, 3), pads=(1, 1, 1, 1))
STRIDED = apply("conv", image(1, 2, 9, 9), weight(4, 2, 3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
GROUPED = apply("conv", image(1, 8, 5, 6), weight(8, 2, 3, 3), pads=(1, 1, 1, 1), group=4)
POINTWISE = apply("conv", image(2, 4, 3, 5), weight(6, 4, 1, 1))
PRODUCT = apply("matmul", image(6, 4), weight(4, 5))
WIDE = (
    apply("conv", image(1, 4, 5, 5), weight(4, 4, 3, 3), pads=(1, 1, 1, 1)),
    apply("conv", image(1, 4, 5, 5), weight(2, 4, 1, 1, name="v")),
)
PROGRAMS: dict[str, Program] = {
    "dilated": DILATED,
    "pooled": POOLED,
    "batched": BATCHED,
    "strided": STRIDED,
    "grouped": GROUPED,
    "pointwise": POINTWISE,
    "product": PRODUCT,
    "wide": WIDE,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_mutants_have_the_shape_and_the_variables_and_are_right_somewhere(name: str) -> None:
    program = PROGRAMS[name]
    found = list(itertools.islice(mutants(program), 25))
    assert len(found) > 5
    assert len({m.term for m in found}) == len(found)
    for mutant in found:
        assert [t.shape for t in outputs(mutant.term)] == [t.shape for t in outputs(program)]
        assert set(variables(*outputs(mutant.term))) == set(variables(*outputs(program)))
        assert share(program, mutant) > 0.2, mutant.made
        assert mutant.made


def test_the_order_is_the_same_every_time_and_by_cost() -> None:
    def cost(program: Program) -> float:
        return float(sum(t.op == "transpose" for t in subterms(*outputs(program))))

    first, again = ([m.term for m in itertools.islice(mutants(DILATED, cost=cost), 30)] for _ in range(2))
    assert first == again
    drafted = [cost(term) for term in first]
    assert drafted[0] == 0
    assert max(drafted) > 0


def test_a_sketch_costs_what_the_mutant_does_before_its_weights_are_solved_for() -> None:
    solved = [(sketch, mutant) for sketch in sketches(STRIDED)[:12] if (mutant := sketch.solved()) is not None]
    assert len(solved) > 5
    for sketch, mutant in solved:
        (before,), (after,) = outputs(sketch.term), outputs(mutant.term)
        assert [t.op for t in subterms(before) if not t.constant] == [t.op for t in subterms(after) if not t.constant]
        assert before.shape == after.shape


def test_a_dilated_convolution_is_dense_on_images_of_every_second_row_and_column() -> None:
    dense = [m for m in mutants(DILATED) if [t.args[0].sizes for t in applied(m, "conv")] == [(4, 3, 4, 4)]]
    assert dense
    for mutant in dense:
        (convolution,) = applied(mutant, "conv")
        assert convolution.integers("dilations") == (1, 1)
        assert share(DILATED, mutant) == 1.0
        assert not judge(DILATED, outputs(mutant.term)[0]).unequal


def test_a_pool_that_excludes_pads_is_a_depthwise_convolution_and_a_pool_that_counts_them_off_the_border() -> None:
    inside = (7 - 2) * (6 - 2) / (7 * 6)
    found = list(mutants(POOLED))
    depthwise = [m for m in found if [t["group"] for t in applied(m, "conv")] == [4] and not applied(m, "transpose")]
    counting = [m for m in found if [t["include_pads"] for t in applied(m, "avg_pool")] == [1]]
    for mutant in (depthwise[0], counting[0]):
        assert share(POOLED, mutant) == pytest.approx(inside)
        judgement = judge(POOLED, outputs(mutant.term)[0])
        assert float(judgement.share) == pytest.approx(inside)


def test_images_stacked_along_height_are_wrong_at_the_seam_alone() -> None:
    stacked = [m for m in mutants(BATCHED) if [t.args[0].sizes for t in applied(m, "conv")] == [(1, 4, 12, 5)]]
    assert any(share(BATCHED, m) == pytest.approx(10 / 12) for m in stacked)


def test_odd_sizes_are_padded_before_they_are_split() -> None:
    odd = apply("conv", image(1, 2, 7, 9), weight(3, 2, 3, 3), pads=(2, 2, 2, 2), dilations=(2, 2))
    dense = next(m for m in mutants(odd) if [t.args[0].sizes for t in applied(m, "conv")] == [(4, 2, 4, 5)])
    assert share(odd, dense) == 1.0


def test_a_strided_convolution_is_one_without_strides_on_more_channels() -> None:
    plain = [m for m in mutants(STRIDED) if [t.integers("strides") for t in applied(m, "conv")] == [(1, 1)]]
    assert any(t.args[0].sizes[1] == 8 and share(STRIDED, m) == 1.0 for m in plain for t in applied(m, "conv"))


def test_parts_of_a_grouped_convolution_read_their_channels_alone() -> None:
    halves = next(m for m in mutants(GROUPED) if [t.args[0].sizes for t in applied(m, "conv")] == [(1, 4, 5, 6)] * 2)
    assert share(GROUPED, halves) == 1.0


def test_a_pointwise_convolution_is_a_matrix_product_with_no_transpose() -> None:
    product = next(m for m in mutants(POINTWISE) if applied(m, "matmul") and not applied(m, "transpose"))
    assert not applied(product, "conv")
    assert share(POINTWISE, product) == 1.0


def test_convolutions_of_other_kernels_on_the_same_data_are_one() -> None:
    together = next(m for m in mutants(WIDE) if len(applied(m, "conv")) == 1 and not applied(m, "matmul"))
    assert applied(together, "conv")[0].args[0] is image(1, 4, 5, 5)
    assert share(WIDE, together) == 1.0


def test_matrix_products_are_a_batch() -> None:
    program = tuple(apply("matmul", image(3, 4, name=f"x{k}"), weight(4, 5, name=f"w{k}")) for k in range(3))
    batched = next(m for m in mutants(program) if [t.rank for t in applied(m, "matmul")] == [3])
    assert share(program, batched) == 1.0


def test_an_operator_inside_a_program_is_mutated_where_it_stands() -> None:
    program = apply("relu", apply("conv", apply("relu", image(1, 2, 6, 6)), weight(2, 2, 1, 3), pads=(0, 1, 0, 1)))
    found = list(itertools.islice(mutants(program), 12))
    assert found
    for mutant in found:
        (root,) = outputs(mutant.term)
        assert root.op == "relu"
        assert share(program, mutant) > 0.2


def test_an_operator_that_is_composed_of_others_has_mutants() -> None:
    program = apply("conv1d", image(1, 4, 9), weight(4, 4, 3), before=2, after=2, dilation=2)
    assert all(share(program, m) > 0.2 for m in itertools.islice(mutants(program), 8))
    pooled = apply("avg_pool1d", image(2, 4, 8), kernel=3, stride=1, before=1, after=1, include_pads=0)
    assert any("include_pads" in m.made[0] and share(pooled, m) == pytest.approx(6 / 8) for m in mutants(pooled))


def test_an_output_may_have_fewer_axes_than_the_data() -> None:
    program = apply("reduce_mean", image(1, 4, 6, 6), axes=(-2, -1))
    found = list(itertools.islice(mutants(program), 4))
    assert found
    assert all(share(program, m) == 1.0 for m in found)


def test_what_is_no_polynomial_has_no_mutants() -> None:
    assert not list(mutants(apply("softmax", image(4, 6), axis=-1)))
    assert not list(mutants(apply("max_pool", image(1, 2, 6, 6), kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))))


def test_numbers_of_attributes_become_their_neighbours_and_zero_and_one() -> None:
    pixels = apply("conv", image(1, 1, 6, 6), weight(1, 1, 1, 1), dilations=(3, 3))
    assert {altered["dilations"] for altered, _ in alter_attributes(pixels)} == {*itertools.product((1, 2, 3, 4), repeat=2)} - {
        (3, 3)
    }


def test_no_change_of_attributes_is_made_twice() -> None:
    pixels = apply("conv", image(1, 1, 6, 6), weight(1, 1, 1, 1), dilations=(3, 3))
    found = [altered for altered, _ in alter_attributes(pixels)]
    assert len(found) == len(set(found))


def test_a_rule_whose_condition_is_not_met_makes_a_mutant() -> None:
    rule = parse_rule(
        "shorter: slice(concat(x, y, axis=-1), axis=-1, start=0, stop=n)"
        " => slice(concat(x, x, axis=-1), axis=-1, start=0, stop=n)"
        " for x[2], y[2] where n <= x.shape[-1], x.shape[-1] == y.shape[-1]"
    )
    program = apply("slice", apply("concat", image(3, 6), image(3, 6, name="y"), axis=-1), axis=-1, start=0, stop=8)
    found = list(mutants(program, rules=[rule]))
    assert any("shorter" in m.made[0] and share(program, m) == pytest.approx(6 / 8) for m in found)


# ---------------------------------------------------------------- weights


W = weight(4, 6, 3, 3)
EACH = np.arange(4 * 6 * 9).reshape(4, 6, 3, 3)


def padded(shape: tuple[int, ...], at: tuple[slice, ...], what: np.ndarray) -> np.ndarray:
    found = np.full(shape, NOTHING)
    found[at] = what
    return found


WANTED = {
    "the weight": EACH,
    "transposed": EACH.transpose(0, 1, 3, 2),
    "interleaved": EACH.reshape(4, 3, 2, 3, 3).transpose(0, 1, 3, 2, 4).reshape(4, 3, 6, 3),
    "enlarged": padded((4, 8, 5, 5), np.s_[:, 1:7, 1:4, 1:4], EACH),
    "dilated": padded((4, 6, 5, 5), np.s_[:, :, ::2, ::2], EACH),
    "a part": EACH[1:3, 2:4],
    "at unequal distances": EACH[[0, 1, 3]],
    "repeated": np.concatenate([EACH, EACH], 1),
    "each repeated": np.repeat(EACH, 2, 1),
    "as a matrix": EACH[:, :, 0, 0].T,
    "blocks": np.concatenate([padded((2, 12, 3, 3), np.s_[:, :6], EACH[:2]), padded((2, 12, 3, 3), np.s_[:, 6:], EACH[2:])]),
}


@pytest.mark.parametrize("name", WANTED)
def test_weights_are_solved_for(name: str) -> None:
    wanted = WANTED[name]
    term = arrange_weight(Elements((W,), wanted, np.ones(wanted.shape)))
    assert term is not None
    assert term.constant
    given = np.random.default_rng(0).random(W.sizes)
    (value,) = evaluate_terms((term,), {"w": given}, lambda _: None, Floats())
    assert np.array_equal(value, np.where(wanted == NOTHING, 0.0, given.reshape(-1)[wanted]))


def test_a_weight_in_no_order_is_not_written_out() -> None:
    shuffled = np.random.default_rng(1).permutation(EACH.size).reshape(EACH.shape)
    assert arrange_weight(Elements((W,), shuffled, np.ones(EACH.shape))) is None


def test_a_weight_of_one_number() -> None:
    term = arrange_weight(Elements((), np.full((2, 1, 3, 3), NUMBER), np.full((2, 1, 3, 3), 1 / 9)))
    assert term is not None
    (value,) = evaluate_terms((term,), {}, lambda _: None, Floats())
    assert np.allclose(value, 1 / 9, rtol=1e-6)


# ---------------------------------------------------------------- layouts and reads


LAYOUTS: dict[str, tuple[Step, ...]] = {
    "runs of images along rows": (Fold(0, 2, 2, from_inner=False, to_inner=False),),
    "every second row among channels": (Fold(2, 1, 2, from_inner=True, to_inner=True),),
    "exchanged": (Exchange(1, 3),),
    "padded and split": (Grow(3, 2), Fold(3, 0, 2, from_inner=True, to_inner=False), Exchange(2, 3)),
    "there and back": (Fold(2, 3, 2, from_inner=True, to_inner=False), Fold(3, 2, 2, from_inner=False, to_inner=True)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_moves_what_it_says_and_is_undone(name: str) -> None:
    x = image(2, 3, 4, 5)
    layout = Layout(x.sizes, LAYOUTS[name])
    moved, back = layout.term(x), layout.undone(layout.term(x))
    assert moved.sizes == layout.after
    before, after, again = (values(t)[0] for t in (x, moved, back))
    positions = tuple(np.indices(x.sizes))
    assert np.array_equal(after[layout.to(positions)], before)
    assert np.array_equal(again, before)
    assert all(np.array_equal(a, b) for a, b in zip(layout.back(layout.to(positions)), positions, strict=True))


def test_only_axes_that_are_no_multiple_are_padded_to_one() -> None:
    grown = {step for *_, steps in layouts((6, 8), (6, 8), (), 1) for step in steps if isinstance(step, Grow)}
    assert {(step.axis, step.multiple) for step in grown} == {
        (axis, k) for axis, n in enumerate((6, 8)) for k in MUTANT.padding_multiple_counts if k < n and n % k
    }


def test_axes_of_images_have_names_and_other_axes_have_numbers() -> None:
    of_images, of_matrices = ({step for s in sketches(p) for step in s.draft.made} for p in (STRIDED, PRODUCT))
    assert "rows and columns exchanged" in of_images
    assert "every 2 of axis 0 along axis 1" in of_matrices


def test_a_box_is_written_as_one_range_or_position_for_each_axis() -> None:
    assert str(Box((Run(5, 1), Run(0, 4), Run(1, 3, 2)))) == "[5, 0:4, 1:6:2]"


def test_a_box_is_cut_where_a_falling_comparison_changes() -> None:
    box = Box((Run(0, 10, 1),))
    with pytest.raises(Cut) as cut:
        SummationGuard.of(Affine(box, (-2,), np.array([5])), equality=False).settled(box)
    assert [piece.runs[0].count for piece in cut.value.pieces] == [3, 7]


def test_axes_of_one_element_are_not_exchanged() -> None:
    exchanged = {step for *_, steps in layouts((1, 4, 3), (1, 4, 3), (), 1) for step in steps if isinstance(step, Exchange)}
    assert exchanged == {Exchange(1, 2)}


def test_an_axis_is_folded_whole_only_where_it_is_short() -> None:
    long = MUTANT.max_folded_positions + 2
    shape = (long, MUTANT.max_folded_positions)
    folds = {step for *_, steps in layouts(shape, shape, {long, 2}, 1) for step in steps if isinstance(step, Fold)}
    sizes = {axis: {fold.size for fold in folds if fold.source == axis} for axis in (0, 1)}
    assert sizes == {0: {2}, 1: {2, MUTANT.max_folded_positions}}


def test_steps_that_undo_each_other_leave_no_operator() -> None:
    x = image(2, 3, 4, 5)
    assert Layout(x.sizes, LAYOUTS["there and back"]).term(x) is x


@pytest.mark.parametrize("program", [DILATED, POOLED, STRIDED, GROUPED, PRODUCT], ids=lambda t: t.op)
def test_the_products_that_are_read_add_up_to_the_value(program: Term) -> None:
    rng = np.random.default_rng(3)
    arrays = {v: rng.random(v.sizes) for v in variables(program)}
    (whole,) = evaluate_terms((program,), {v.name: a for v, a in arrays.items()}, lambda _: None, Floats())
    at = tuple(rng.integers(0, n, 20) for n in program.sizes)
    assert np.allclose(sum(added(r, arrays) for r in product_reads(program, at)), whole[at])


def added(read: Reads, arrays: dict[Term, np.ndarray]) -> np.ndarray:
    """Return, for each position, the sum of the products at which `read.seen` is true."""
    factors: Sequence[np.ndarray] = [
        arrays[v][tuple(np.clip(c, 0, n - 1) for c, n in zip(at, v.sizes, strict=True))]
        for v, at in zip(read.variables, read.at, strict=True)
    ]
    return np.asarray(np.where(read.seen, read.coefficient * np.prod(factors, axis=0), 0.0).sum(axis=0))


# ---------------------------------------------------------------- blocks


def test_blocks_above_the_diagonal_are_skipped() -> None:
    scores = apply("lower_triangle", apply("matmul", image(2, 8, 5), image(2, 5, 8, name="k")), offset=0)
    program = apply("matmul", scores, image(2, 8, 3, name="v"))
    skipping = next(m for m in mutants(program) if "lower_triangle leaves out" in m.made[0] and len(applied(m, "matmul")) == 4)
    assert share(program, skipping) == 1.0
    assert not judge(program, outputs(skipping.term)[0]).unequal
    inner = sorted(t.args[0].sizes[-1] for t in applied(skipping, "matmul"))
    assert inner == [4, 5, 5, 8]


def test_as_many_blocks_as_rows_are_skipped() -> None:
    scores = apply("lower_triangle", apply("matmul", image(2, 5), image(5, 2, name="k")), offset=0)
    ((term, skipping, _),) = skip_zero_blocks((scores,))
    assert term is scores
    assert not judge(scores, skipping).unequal


def test_a_full_matrix_has_no_blocks_to_skip() -> None:
    assert not any("leaves out" in m.made[0] for m in mutants(PRODUCT))


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_description_names_the_dilation_of_a_dilated_convolution_alone(dilation: int) -> None:
    axis = WindowAxis(stride=1, before=0, after=0, dilation=dilation, taps=3)
    assert ("dilation" in Convolution((1, 2, 9, 9), (1, 2, 5, 5), 1, axis, axis).said()) == (dilation > 1)


@pytest.mark.parametrize("to_inner", [False, True])
def test_a_description_calls_a_fold_interleaved_if_neighbours_come_apart(to_inner: bool) -> None:
    step = Fold(0, 1, 2, from_inner=True, to_inner=to_inner)
    _, (first, second) = step.to((np.zeros(2, int), np.arange(2)), (4, 3))
    assert ("interleaved" in step.said("NC")) == (second - first > 1)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_weight_may_be_as_large_as_the_limit(beyond: int) -> None:
    axis, none = WindowAxis(stride=1, before=0, after=0, dilation=1, taps=1), np.zeros((1, 1), int)
    channels = MUTANT.max_weight_elements // 2 + beyond
    form = Convolution((1, 2, 1, 1), (1, channels, 1, 1), 1, axis, axis)
    at = (none[0],) * 4
    sample = Sample(at, (none,) * 4, none, np.ones((1, 1)), np.ones((1, 1), bool))
    assert is_consistent(form, sample) == (beyond == 0)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("heads", [True, False])
def test_a_batch_of_matrix_products_is_one_product_for_each_batch_position(left: bool, heads: bool) -> None:
    form = MatrixProduct((3, 2, 4), (2, 3, 5), ((1, 0),), ((0, 1),), (2,), (2,), left, heads)
    term = form.term(image(3, 2, 4), weight(*form.weight_shape))
    data, matrices = (np.random.default_rng(n).random(shape) for n, shape in enumerate([(3, 2, 4), form.weight_shape]))
    each = [data[:, n] @ (matrix if left else matrix.T) for n, matrix in enumerate(matrices if heads else [matrices] * 2)]
    (value,) = evaluate_terms((term,), {"x": data, "w": matrices}, lambda _: None, Floats())
    assert np.allclose(value, each)


def test_a_matrix_product_without_a_batch_has_no_batch_axis() -> None:
    form = MatrixProduct((3, 4), (3, 5), (), ((0, 0),), (1,), (1,), left=True, heads=False)
    assert form.term(image(3, 4), weight(4, 5)) == apply("matmul", image(3, 4), weight(4, 5))


@pytest.mark.parametrize("count", [1, 30, 39, 40])
def test_a_thinned_sample_has_different_products(count: int) -> None:
    numbers = np.arange(40)[:, None]
    sample = Sample((np.zeros(1, int),), (numbers,), numbers, np.ones((40, 1)), np.ones((40, 1), bool))
    kept = sample.thinned(count).of.ravel()
    assert len(kept) == len({*kept.tolist()})
    assert count <= len(kept) <= count + 2
    assert (kept[0], kept[-1]) == (0, 39)


def test_products_with_a_weight_of_one_element_are_as_many_as_products() -> None:
    x, w = image(1, 1, 8, 8), weight(1, 1, 1, 1)
    program = apply("reduce_sum", apply("conv", x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1), axes=(-1,))
    sample = single_source(program, x, (w,)).probe(0)
    assert sample.of.shape == sample.seen.shape
