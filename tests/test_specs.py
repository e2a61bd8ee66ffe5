"""Every operator of specs/: its definition compared with ONNX Runtime, its shape with ONNX, its linearity and its work."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx.shape_inference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superopt.algebra.evaluate import Floats, evaluate_operator
from superopt.algebra.linearity import NONE, degree, degrees, linear_in
from superopt.algebra.operators import apply, operator, registry
from superopt.algebra.terms import Term, variable
from superopt.errors import ShapeError
from superopt.model.lower import lower
from superopt.protobuf.nodes import lowered_model_proto
from superopt.rules.rule import axioms
from superopt.rules.work import Work, total_work, work
from tests.operator_cases import (
    COMPOSITES,
    CONSTANTS,
    DEFINED,
    WITH_OPERANDS,
    Array,
    applications,
    arrays_for,
    concrete,
    evaluated,
    forms,
    ran,
)

pytestmark = pytest.mark.slow

LOWEST, HIGHEST = 7, onnx.defs.onnx_opset_version()
SUPPORTED = 22


def _lowest_opset(term: Term) -> int:
    return next(opset for opset in range(LOWEST, HIGHEST + 1) if _is_expressible(term, opset))


def _is_expressible(term: Term, opset: int) -> bool:
    try:
        lower({"out": term}, opset)
    except ShapeError:
        return False
    return True


@pytest.mark.parametrize("name", WITH_OPERANDS)
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers(0, 999))
def test_definition_is_what_onnx_runtime_computes(name: str, data: st.DataObject, seed: int) -> None:
    term = data.draw(applications(name))
    opset = data.draw(st.integers(_lowest_opset(term), SUPPORTED))
    arrays = arrays_for(term, seed=seed)
    (expected,) = evaluated(arrays, term)
    (found,) = ran(lower({"out": term}, opset), {"out": term}, arrays, opset)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_drawn_convolutions_are_of_every_kind() -> None:
    drawn = [concrete(forms("conv")[0], seed) for seed in range(150)]
    kinds = {
        "grouped": [c.integer("group") > 1 and c.args[1].sizes[1] > 1 for c in drawn],
        "depthwise": [c.integer("group") > 1 and c.args[1].sizes[1] == 1 for c in drawn],
        "asymmetric pads": [c.integers("pads")[:2] != c.integers("pads")[2:] for c in drawn],
        "even kernel": [c.args[1].sizes[2] % 2 == 0 for c in drawn],
        "dilated": [c.integers("dilations")[0] > 1 and c.args[1].sizes[2] > 1 for c in drawn],
        "strided": [c.integers("strides")[0] > 1 and c.sizes[2] > 1 for c in drawn],
    }
    assert {kind: sum(of) for kind, of in kinds.items() if sum(of) < 5} == {}


@pytest.mark.parametrize("name", ["add", "mul"])
@settings(max_examples=30)
@given(shape=st.lists(st.integers(1, 4), max_size=4), count=st.integers(3, 5), opset=st.integers(LOWEST, SUPPORTED))
def test_sums_and_products_of_many(name: str, shape: list[int], count: int, opset: int) -> None:
    term = apply(name, *(variable(f"x{position}", tuple(shape)) for position in range(count)))
    arrays = arrays_for(term)
    (found,) = ran(lower({"out": term}, opset), {"out": term}, arrays, opset)
    np.testing.assert_allclose(found, evaluated(arrays, term)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in DEFINED if not any("." in known for known in operator(name).onnx)])
@settings(max_examples=10)
@given(data=st.data())
def test_shape_is_what_onnx_infers(name: str, data: st.DataObject) -> None:
    term = data.draw(applications(name))
    opset = max(_lowest_opset(term), 13)
    model = lowered_model_proto(lower({"out": term}, opset), term.args, {"out": term}, opset)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    shape = inferred.graph.output[0].type.tensor_type.shape
    assert tuple(d.dim_value for d in shape.dim) == term.shape


@pytest.mark.parametrize("name", DEFINED)
@settings(max_examples=10)
@given(data=st.data(), seed=st.integers(0, 99))
def test_the_definition_has_the_shape_it_states(name: str, data: st.DataObject, seed: int) -> None:
    term = data.draw(applications(name))
    assert evaluated(arrays_for(term, seed=seed), term)[0].shape == term.shape


def test_constants_are_what_they_say() -> None:
    assert set(CONSTANTS) == {"zeros", "ones", "eye", "identity_kernel", "mean_kernel"}
    terms = [
        apply("zeros", shape=(2, 3)),
        apply("ones", shape=(2, 3)),
        apply("eye", n=3),
        apply("mean_kernel", shape=(2, 1, 2, 4)),
    ]
    expected: list[Array] = [np.zeros((2, 3)), np.ones((2, 3)), np.eye(3), np.full((2, 1, 2, 4), 0.125)]
    for found, array in zip(evaluated({}, *terms), expected, strict=True):
        np.testing.assert_array_equal(found, array)
    (kernel,) = evaluated({}, apply("identity_kernel", shape=(4, 2, 3, 1), at=(2, 0)))
    assert kernel.sum() == 4
    assert all(kernel[o, o % 2, 2, 0] == 1 for o in range(4))


# ---------------------------------------------------------------- applications outside of a definition


@pytest.mark.parametrize(
    ("name", "shapes", "attributes"),
    [
        ("add", [(2, 3), (3,)], {}),
        ("matmul", [(2, 3), (2, 3)], {}),
        ("concat", [(2, 3), (3, 3)], {"axis": 1}),
        ("slice", [(5,)], {"axis": 0, "start": 2, "stop": 6}),
        ("slice", [(5,)], {"axis": 0, "start": 2, "stop": 2}),
        ("transpose", [(2, 3)], {"perm": (0, 0)}),
        ("expand", [(2,)], {"shape": (3, 3), "axes": (0,)}),
        ("expand", [(2, 2)], {"shape": (2, 2), "axes": (1, 0)}),
        ("reshape", [(2, 3)], {"shape": (5,)}),
        ("pad", [(2,)], {"before": (-1,), "after": (0,)}),
        ("conv", [(1, 4, 5, 5), (6, 3, 3, 3)], {}),
        ("conv", [(1, 4, 5, 5), (5, 2, 3, 3)], {"group": 2}),
        ("conv", [(1, 4, 2, 2), (4, 4, 3, 3)], {}),
        ("avg_pool", [(1, 1, 5, 5)], {"kernel": (2, 2), "strides": (1, 1), "pads": (2, 0, 0, 0)}),
        ("max_pool", [(1, 1, 5, 5)], {"kernel": (2, 2), "strides": (0, 1), "pads": (0, 0, 0, 0)}),
        ("reduce_sum", [(2, 3)], {"axes": (0, 0)}),
        ("reduce_sum", [(2, 3)], {"axes": ()}),
    ],
)
def test_a_term_outside_its_definition_is_refused(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, object]
) -> None:
    operands = [variable(letter, shape) for letter, shape in zip("xy", shapes, strict=False)]
    with pytest.raises(ShapeError):
        apply(name, *operands, **attributes)  # type: ignore[arg-type]


# ---------------------------------------------------------------- linearity


def _combined(name: str, term: Term, operands: tuple[int, ...], seed: int) -> tuple[Array, Array]:
    """Return f(2 u + 3 v) and 2 f(u) + 3 f(v), where u and v stand for `operands` and the other operands are fixed."""
    rng = np.random.default_rng(seed)
    held, first, second = ([rng.integers(-5, 6, a.sizes).astype(np.float64) for a in term.args] for _ in range(3))

    def value(weights: tuple[int, int]) -> Array:
        mixed = [weights[0] * u + weights[1] * v for u, v in zip(first, second, strict=True)]
        arrays = tuple(mixed[p] if p in operands else held[p] for p in range(len(held)))
        with np.errstate(all="ignore"):
            return evaluate_operator(name, arrays, dict(term.attributes), Floats())

    return value((2, 3)), 2 * value((1, 0)) + 3 * value((0, 1))


def _operand_sets(name: str) -> list[tuple[int, ...]]:
    arity = operator(name).arity
    return [s for count in range(1, arity + 1) for s in itertools.combinations(range(arity), count)]


def _of_two(term: Term) -> bool:
    return len(term.args) == operator(term.op).arity


@pytest.mark.parametrize("name", WITH_OPERANDS)
@settings(max_examples=10)
@given(data=st.data(), seed=st.integers(0, 999))
def test_linear_where_the_definition_says_so(name: str, data: st.DataObject, seed: int) -> None:
    term = data.draw(applications(name).filter(_of_two))
    for operands in _operand_sets(name):
        if linear_in(term, operands):
            whole, parts = _combined(name, term, operands, seed)
            np.testing.assert_allclose(whole, parts, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WITH_OPERANDS)
def test_not_linear_where_the_definition_does_not_say_so(name: str) -> None:
    terms = [concrete(form, seed) for form in forms(name) for seed in range(5)]
    for operands in _operand_sets(name):
        rest = [(seed, term) for seed, term in enumerate(terms) if not linear_in(term, operands)]
        assert not rest or any(not np.allclose(*_combined(name, term, operands, seed)) for seed, term in rest)


def test_degrees_of_whole_terms() -> None:
    x, y = variable("x", (3, 3)), variable("y", (3, 3))
    product = apply("matmul", x, y)
    assert degrees(product) == {(1, 1)}
    assert degree(apply("matmul", product, x), x) == 2
    assert degree(apply("concat", product, y, axis=0), y) == 1
    assert degree(apply("add", product, y), x) == NONE
    assert degree(apply("relu", product), x) == NONE
    assert degree(apply("relu", x), y) == 0
    assert degree(apply("scale", apply("pad", x, before=(1, 0), after=(0, 0)), factor=3), x) == 1


# ---------------------------------------------------------------- work


def test_work_of_the_usual_operators() -> None:
    x, y = variable("x", (3, 5)), variable("y", (5, 7))
    assert work(apply("matmul", x, y)) == Work(2 * 3 * 5 * 7, 4 * (15 + 35 + 21))
    image, kernel = variable("i", (2, 4, 8, 9)), variable("k", (6, 2, 3, 2))
    conv = apply("conv", image, kernel, group=2, strides=(2, 1), pads=(1, 0, 1, 1))
    results = math.prod(conv.sizes)
    assert work(conv, itemsize=2) == Work(2 * results * 2 * 3 * 2, 2 * (2 * 4 * 8 * 9 + 6 * 2 * 3 * 2 + results))
    assert work(apply("add", x, apply("relu", x), apply("scale", x, factor=2))).flops == 2 * 15
    assert work(apply("slice", x, axis=1, start=1, stop=3)) == Work(0, 4 * (6 + 6))
    assert work(apply("expand", x, shape=(9, 3, 5), axes=(1, 2))) == Work(0, 4 * (15 + 9 * 15))
    assert work(apply("reduce_sum", x, axes=(0, 1))) == Work(15, 4 * 16)
    assert work(x) == Work(0, 0)


def test_work_counts_shared_terms_once_and_weights_not_at_all() -> None:
    x, w = variable("x", (3, 3)), variable("w", (3, 3), constant=True)
    product = apply("matmul", x, apply("add", w, w))
    assert total_work([apply("add", product, apply("relu", product))]).flops == 2 * 27 + 9 + 9


@pytest.mark.parametrize("name", WITH_OPERANDS)
@settings(max_examples=8)
@given(data=st.data())
def test_work_is_bounded_by_what_there_is_to_read_and_write(name: str, data: st.DataObject) -> None:
    term = data.draw(applications(name))
    found = work(term)
    assert found.flops >= 0
    assert 2 <= found.bytes / 4 <= sum(math.prod(a.sizes) for a in term.args) + math.prod(term.sizes)


# ---------------------------------------------------------------- the registry


def test_every_operator_is_either_defined_or_composed_and_can_be_lowered() -> None:
    for name, spec in registry().items():
        assert spec.definition is not None or spec.composite
        if name in WITH_OPERANDS:
            assert spec.lower is not None
        if name in COMPOSITES:
            assert spec.lift is not None
            assert spec.onnx


@pytest.mark.parametrize("name", axioms())
def test_axioms_agree_in_shape(name: str) -> None:
    for equation in axioms()[name].equations:
        for left, right in zip(equation.left, equation.right, strict=True):
            assert left.rank == right.rank
            assert left is not right


@pytest.mark.parametrize("attributes", [{"factor": ""}, {"factor": "2"}])
def test_an_attribute_is_no_text(attributes: dict[str, str]) -> None:
    with pytest.raises(ShapeError, match="not a text"):
        apply("scale", variable("x", (2, 3)), **attributes)
    with pytest.raises(ShapeError, match="not a text"):
        apply("reshape", variable("x", (2, 3)), shape=("6",))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "attributes"), [("scale", {"factor": (1, 2)}), ("reshape", {"shape": 6})])
def test_an_attribute_is_one_number_or_several_by_its_kind(name: str, attributes: dict[str, object]) -> None:
    with pytest.raises(ShapeError, match="not a text or"):
        apply(name, variable("x", (2, 3)), **attributes)  # type: ignore[arg-type]
