"""Nodes that do not split an island: casts to the same type, unused masks, and values that do not depend on any input."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import ModelProto

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.terms import subterms, variable
from superopt.model.islands import Chart, Charts
from superopt.model.lift import structured_weight
from superopt.model.load import as_model, as_proto, load
from superopt.notation.printing import render_terms
from superopt.rules.fp_flags import FpMode
from superopt.rules.store import load_rules
from superopt.runtime.session import Device, Session
from superopt.search.segments import relower, whole_islands
from superopt.search.selection import splice_passes
from tests.models import run
from tests.test_model import islands


def model(body: str) -> ModelProto:
    """Return a model with a product `a`, nodes `body` that compute `b` from `a`, and a product of `b`."""
    text = f"""
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (float[3, 4] x) => (float[3, 4] y)
        <float[4, 4] w = {{{", ".join(str(n % 5 - 2) for n in range(16))}}},
         float[3, 4] s = {{0, 1, 1, 0, 0.5, 0.5, 0.5, 0.5, 0, 0, 1, 1}},
         int64[3, 1] rows = {{-3, 1, -1}}, int64[3, 1] swapped = {{-1, 0, 1}},
         float[12] table = {{{", ".join(map(str, range(12)))}}},
         int64[3, 4] places = {{0, 5, 7, 3, 1, 11, 2, 6, 4, 8, 9, 10}}>
        {{
            a = MatMul(x, w)
            {body}
            y = MatMul(b, w)
        }}
    """
    return onnx.parser.parse_model(text)


def rewritten(proto: ModelProto) -> ModelProto:
    """Return the model with every island lowered again."""
    given = load(proto).model
    return as_proto(splice_passes(given, (relower(whole_islands(Chart(given), {}), load_rules()),)))


BUCKETS = """
    far = Cast<to = 1>(places)
    more = Exp(far)
    less = Log(more)
    bucket = Cast<to = 7>(less)
    bias = Gather<axis = 0>(table, bucket)
    b = Add(a, bias)
"""
"""Relative positions in the form of T5: numbers that do not depend on the input, by operators that the algebra does not have.
"""


@pytest.mark.parametrize(
    "body", ["Pow(a, half)", "Dropout(a, half)", "Resize<MODE>(a, , scales)", "Resize<MODE>(a, , , sizes)"]
)
def test_a_number_in_float32_does_not_cut_an_island_in_float16(body: str) -> None:
    mode = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    text = f"""
        <ir_version: 9, opset_import: ["" : 19]>
        agraph (float16[1, 2, 3, 4] x) => (float16[1, c, h, w] y)
        <float half = {{0.5}}, float[4] scales = {{1, 1, 2, 3}}, int64[4] sizes = {{1, 2, 6, 12}}>
        {{ a = Relu(x) b = {body.replace("MODE", mode)} y = Sigmoid(b) }}
    """
    proto = onnx.parser.parse_model(text)
    (island,) = islands(proto)
    assert len(island.nodes) == 3
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float16)}
    found, expected = (Session(some, Device(), optimize=False).run(feeds) for some in (rewritten(proto), proto))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-3)


@pytest.mark.parametrize(
    "body",
    [
        "b = Cast<to = 1>(a)",
        "b = CastLike(a, x)",
        "r = Relu(a) c = Cast<to = 1>(r) b = Add(c, a)",
        "b, mask = Dropout(a)",
        "b = GatherND(a, rows)",
        "b = GatherND(a, swapped)",
        BUCKETS,
    ],
)
def test_what_changes_nothing_does_not_cut_an_island(body: str) -> None:
    proto = model(body)
    (island,) = islands(proto)
    assert [n.op_type for n in island.nodes].count("MatMul") == 2
    np.testing.assert_allclose(run(rewritten(proto))[0], run(proto)[0], rtol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        "half = Cast<to = 10>(a) b = Cast<to = 1>(half)",
        "c, mask = Dropout(a) d = Cast<to = 1>(mask) b = Add(c, d)",
        "many = Cast<to = 7>(a) b = Cast<to = 1>(many)",
        "r = Bernoulli(a) b = Add(a, r)",
    ],
)
def test_what_changes_values_does(body: str) -> None:
    found = islands(model(body))
    assert not any([n.op_type for n in island.nodes].count("MatMul") == 2 for island in found)


def test_what_no_input_changes_is_in_no_island_before_an_operator_without_a_spec() -> None:
    (island,) = islands(model(BUCKETS))
    assert [n.op_type for n in island.nodes] == ["MatMul", "Gather", "Add", "MatMul"]


@pytest.mark.parametrize("batch", ["1", "n"])
@pytest.mark.parametrize(
    ("opset", "body", "expected"),
    [
        (18, "g = GroupNormalization<num_groups = 3>(a, s, s)", ["Conv", "GroupNormalization", "Relu", "Conv"]),
        (21, "g = GroupNormalization<num_groups = 3>(a, t, t)", ["Conv", "GroupNormalization", "Relu", "Conv"]),
        (21, "g = MeanVarianceNormalization(a)", ["Relu", "Conv"]),
    ],
)
def test_what_follows_a_normalization_has_a_known_shape(batch: str, opset: int, body: str, expected: list[str]) -> None:
    """The package onnx infers no shapes for these normalizations."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : {opset}]>
        agraph (float[{batch}, 6, 4, 4] x, float[6, 6, 1, 1] w, float[3] s, float[6] t) => (float[{batch}, 6, 4, 4] y)
        {{ a = Conv(x, w) {body} r = Relu(g) y = Conv(r, w) }}
    """)
    assert expected in [[n.op_type for n in island.nodes] for island in islands(proto)]


def test_what_is_random_is_not_the_same_each_time() -> None:
    found = islands(model("r = Bernoulli(s) e = Exp(r) f = Cast<to = 7>(e) g = Cast<to = 1>(f) b = Add(a, g)"))
    assert any("Exp" in {n.op_type for n in island.nodes} for island in found)


OPEN = """
    <ir_version: 9, opset_import: ["" : 20]>
    agraph (float[batch, 3, 4] x) => (float[batch, 3, 4] y)
    <float[4, 4] w = {1, 0, 2, 0, 1, 1, 0, 3, 1, 0, 0, 2, 1, 1, 0, 1}>
    { a = MatMul(x, w) shape = Shape(a) %s y = MatMul(b, w) }
"""


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("f = Flatten<axis = 2>(a) r = Relu(f) b = Reshape(r, shape)", 1),
        ("o = ConstantOfShape(shape) r = Relu(o) b = Add(a, r)", 2),
        ("o = ConstantOfShape(shape) u = Bernoulli(o) b = Add(a, u)", 2),
    ],
)
def test_of_what_a_known_shape_was_computed_does_not_matter(body: str, count: int) -> None:
    proto = onnx.parser.parse_model(OPEN % body)
    found = islands(proto)
    assert max([n.op_type for n in island.nodes].count("MatMul") for island in found) == 3 - count
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    if "Bernoulli" not in body:
        one, other = (Session(m, Device("cpu")).run({"x": x})[0] for m in (proto, rewritten(proto)))
        np.testing.assert_allclose(other, one, rtol=1e-5)


def product_with_weight(values: str, extent: int) -> str:
    """Return the text of the term of `x * weight`."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]>
        g (float[2,{extent}] x) => (float[2,{extent}] z) <float[1,{extent}] w = {values}> {{
            y = Relu (x)
            z = Mul (y, w)
        }}"""
    )
    (island,) = Chart(load(proto).model).islands()
    return render_terms(*island.outputs.values())


@pytest.mark.parametrize(
    ("values", "term"),
    [
        ("{0, 0, 0, 0}", "zeros(shape=(2, 4))"),
        ("{1, 2, 1, 2}", "concat((t1 := slice(w, axis=-1, stop=2)), t1, axis=-1)"),
        ("{-1, -2, 1, 2}", "concat((t1 := slice(w, axis=-1, stop=2)), scale(t1, factor=-1), axis=-1)"),
        ("{1, 1, 2, 2}", "reshape(stride(slice(w, axis=-1, stop=3), axis=-1, step=2), shape=(1, 2, 1))"),
    ],
)
def test_the_term_of_a_weight_shows_that_its_numbers_repeat(values: str, term: str) -> None:
    assert term in product_with_weight(values, 4)


@pytest.mark.parametrize("shape", [(4, 4), (4, 6), (6, 4)])
@pytest.mark.parametrize("triangle", [np.tril, np.triu])
@pytest.mark.parametrize("offset", range(-2, 3))
def test_the_term_of_a_triangle_of_ones_is_a_triangle(shape: tuple[int, int], triangle: Any, offset: int) -> None:
    weight = ir.Value(name="w", const_value=ir.tensor(triangle(np.ones(shape, np.float32), offset)))
    found = structured_weight(weight, variable("w", shape, constant=True))
    (values,) = evaluate_terms((found,), {}, lambda _: None, Floats())
    assert found.op in ("lower_triangle", "upper_triangle")
    assert np.array_equal(values, triangle(np.ones(shape), offset))


@pytest.mark.parametrize("values", ["{1, 1, 1, 1}", "{1, 2, 3, 4}", "{1, 2, -1, 2}", "{1, 2, 2, 1}"])
def test_the_term_of_any_other_weight_is_a_variable(values: str) -> None:
    assert "slice" not in product_with_weight(values, 4)


@pytest.mark.parametrize(
    ("positions", "operators"),
    [
        ([1, 0, 1, 2, 3, 2], {"concat", "relu", "slice"}),
        ([2, 1, 0, 1, 2, 3, 2, 1], {"concat", "relu", "reverse", "slice"}),
        ([1, 2, 3, 0, 1, 2], {"concat", "relu", "slice"}),
        ([3, 2, 1, 0], {"relu", "reverse", "slice"}),
        ([0, 2, 0, 2, 0], {"gather", "relu"}),
        ([0, 1, 2, 3] * 2000, {"gather", "relu"}),
    ],
)
def test_a_gather_of_a_few_runs_is_a_concatenation_of_slices(positions: list[int], operators: set[str]) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]>
        g (float[2,4] x) => (float[2,{len(positions)}] z)
        <int64[{len(positions)}] i = {{{", ".join(map(str, positions))}}}> {{
            y = Relu (x)
            z = Gather <axis = 1> (y, i)
        }}"""
    )
    (island,) = Chart(load(proto).model).islands()
    terms = tuple(island.outputs.values())
    assert {term.op for term in subterms(*terms) if not term.is_variable} - {"slice"} == operators - {"slice"}
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (found,) = evaluate_terms(terms, {"x": x, "i": np.array(positions)}, lambda _: None, Floats())
    assert np.array_equal(found, x[:, positions])


@pytest.mark.parametrize("mode", [FpMode.RELAXED, FpMode.PRECISE])
def test_a_subtracted_weight_is_added_as_its_negative(mode: FpMode) -> None:
    """In IEEE arithmetic, both forms give the same bits. Only the sum can be merged with other sums of weights."""
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { y = Sub(x, w) }
    """)
    (island,) = Charts(mode).of(as_model(proto)).islands()
    assert repr(island.outputs["y"]) == "add(x, expand(scale(w, factor=-1), axes=(-1,)))"


def test_negative_zeros_keep_their_signs() -> None:
    """If x is -0.0, 1 / (x + -0.0) is minus infinity."""
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (float[2, 3] x) => (float[2, 3] y) <float w = {-0.0}, float[3] v = {-0.0, -0.0, -0.0}>
        { a = Add(x, w) b = Add(a, v) y = Reciprocal(b) }
    """)
    found = Charts(FpMode.FAST).of(as_model(proto)).islands()
    assert not any(t.op == "zeros" for island in found for t in subterms(*island.values.values()))
