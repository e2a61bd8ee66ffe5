"""Operators that move elements, and windows along one axis: lifting of ONNX nodes, and lowering of terms to few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.errors import ShapeError
from superopt.model.lower import lower
from superopt.proof.axioms.axiomatic import prove_from_axioms
from superopt.rules.rule import Rule, parse_rules
from superopt.rules.verdict import Proved
from superopt.runtime.session import Device, Session
from tests.operator_cases import Array, arrays_for, evaluated, lifted, ran

RNG = np.random.default_rng(0)
NEWEST = 21


def _floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def _integers(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def _numbers(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


class Nodes:
    """A model of these nodes.

    Arrays with names x... are inputs, and other arrays are initializers. The outputs have names y....
    """

    def __init__(self, nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, Array], opset: int) -> None:
        self.feeds = {name: a for name, a in arrays.items() if name.startswith("x")}
        self.arrays, self.opset = arrays, opset
        self.results = [o for n in nodes for o in n.output if o.startswith("y")]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "nodes",
            [info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in self.feeds.items()],
            [info(name, onnx.TensorProto.FLOAT, None) for name in self.results],
            [numpy_helper.from_array(a, name) for name, a in arrays.items() if name not in self.feeds],
        )
        imports = [helper.make_opsetid("", opset)]
        self.proto = helper.make_model(graph, opset_imports=imports, ir_version=max(4, helper.find_min_ir_version_for(imports)))

    def terms(self) -> dict[str, Term]:
        found = lifted(ir.from_proto(self.proto).graph, self.opset)
        by_name = {value.name: term for value, term in found.items()}
        return {name: by_name[name] for name in self.results if name in by_name}

    def op_types(self) -> list[str]:
        """Return the operators of the lowered terms.

        The values of the terms and of the lowered nodes must agree with ONNX Runtime's outputs of the model.
        """
        terms = self.terms()
        assert list(terms) == self.results
        expected = Session(self.proto, Device(), optimize=False).run(self.feeds)
        floats = {name: a for name, a in self.arrays.items() if a.dtype == np.float32}
        lowered = lower(terms, self.opset)
        found = ran(lowered, terms, floats, self.opset)
        for array, value, run in zip(expected, evaluated(floats, *terms.values()), found, strict=True):
            assert array.shape == value.shape
            np.testing.assert_allclose(value, array, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(run, array, rtol=1e-4, atol=1e-5)
        return sorted(n.op_type for n in lowered.nodes)


def _one(op_type: str, opset: int, *inputs: Array | None, **attributes: Any) -> Nodes:
    names = ["x" if i == 0 else "" if a is None else f"w{i}" for i, a in enumerate(inputs)]
    arrays = {name: a for name, a in zip(names, inputs, strict=True) if a is not None}
    return Nodes([helper.make_node(op_type, names, ["y"], **attributes)], arrays, opset)


# ---------------------------------------------------------------- cuts

x2, x3, x4 = variable("x", (5, 6)), variable("x", (3, 4, 5)), variable("x", (2, 3, 6, 4))


@pytest.mark.parametrize("opset", [10, 13, 21])
@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((0,), (100,), (-1,), (2,)),
        ((1,), (6,), (1,), (3,)),
        ((-1,), (-100,), (0,), (-1,)),
        ((-1,), (0,), (1,), (-2,)),
        ((4,), (1,), (1,), (-1,)),
        ((100,), (-(2**40),), (1,), (-3,)),
        ((1, -2), (5, -100), (0, 1), (2, -2)),
        ((1, 0), (3, 4), (0, 1), (1, 1)),
    ],
)
def test_a_slice_with_steps_is_one_node_again(
    starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...], steps: tuple[int, ...], opset: int
) -> None:
    given = (_integers(*part) for part in (starts, ends, axes, steps))
    assert _one("Slice", opset, _floats(5, 6), *given).op_types() == ["Slice"]


def test_what_steps_lift_to() -> None:
    def term(*parts: int) -> Term:
        return _one("Slice", 13, _floats(5, 6), *(_integers(p) for p in parts)).terms()["y"]

    assert term(0, 9, 1, 2) is apply("stride", x2, axis=1, step=2)
    assert term(1, 9, 1, 2) is apply("stride", apply("slice", x2, axis=1, start=1, stop=6), axis=1, step=2)
    assert term(-1, -9, 0, -1) is apply("reverse", x2, axis=0)
    back = apply("reverse", apply("slice", x2, axis=1, start=2, stop=5), axis=1)
    assert term(4, 1, 1, -2) is apply("stride", back, axis=1, step=2)


CUTS = st.lists(
    st.one_of(
        st.tuples(st.just("slice"), st.integers(-3, -1), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("stride"), st.integers(-3, -1), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("reverse"), st.integers(-3, -1), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(cuts=CUTS)
def test_cuts_on_each_other_are_one_node(cuts: list[tuple[str, int, int, int]]) -> None:
    term = variable("x", (5, 7, 6))
    for name, axis, one, other in cuts:
        match name:
            case "slice":
                start = min(one, term.sizes[axis] - 1)
                stop = min(start + other, term.sizes[axis])
                if (start, stop) != (0, term.sizes[axis]):
                    term = apply("slice", term, axis=axis, start=start, stop=stop)
            case "stride":
                term = apply("stride", term, axis=axis, step=one)
            case _:
                term = apply("reverse", term, axis=axis)
    arrays = arrays_for(term)
    lowered = lower({"y": term}, 13)
    assert [n.op_type for n in lowered.nodes] == (["Identity"] if term.is_variable else ["Slice"])
    np.testing.assert_array_equal(ran(lowered, {"y": term}, arrays, 13)[0], evaluated(arrays, term)[0].astype(np.float32))


def test_a_step_needs_an_opset_that_has_it() -> None:
    with pytest.raises(ShapeError):
        lower({"y": apply("stride", x2, axis=1, step=2)}, 9)


# ---------------------------------------------------------------- repetition


@pytest.mark.parametrize("opset", [7, 13, 21])
def test_tiling_along_several_axes_is_one_node(opset: int) -> None:
    assert _one("Tile", opset, _floats(2, 3, 4), _integers(2, 1, 3)).op_types() == ["Tile"]
    assert _one("Tile", opset, _floats(2, 3), _integers(1, 1)).terms()["y"] is variable("x", (2, 3))


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes"),
    [
        (7, (), {"scales": [1.0, 1.0, 2.0, 3.0]}),
        (9, (_numbers(1, 1, 2, 3),), {}),
        (10, (_numbers(1, 1, 3, 2),), {"mode": "nearest"}),
        (11, (_numbers(), _numbers(1, 1, 2, 2)), {"coordinate_transformation_mode": "asymmetric"}),
        (11, (_numbers(), _numbers(), _integers(2, 3, 12, 12)), {"nearest_mode": "round_prefer_ceil"}),
        (13, (None, _numbers(1, 1, 3, 4)), {}),
        (13, (None, _numbers(1, 1, 1, 3)), {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        (18, (None, _numbers(2, 2)), {"axes": [2, -1]}),
        (19, (None, None, _integers(2, 6, 6, 8)), {"coordinate_transformation_mode": "half_pixel_symmetric"}),
        (21, (None, _numbers(1, 1, 5, 7)), {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ],
)
def test_enlarging_by_whole_factors_is_one_node(opset: int, inputs: Sequence[Array | None], attributes: dict[str, Any]) -> None:
    name = "Upsample" if opset < 10 else "Resize"
    assert _one(name, opset, _floats(2, 3, 6, 4), *inputs, **attributes).op_types() == [name]


@pytest.mark.parametrize(
    ("scales", "attributes"),
    [
        ((1, 1, 2, 2.5), {}),
        ((1, 1, 0.5, 1), {}),
        ((1, 1, 2, 2), {"mode": "linear"}),
        ((1, 1, 2, 2), {"nearest_mode": "floor"}),
        ((1, 1, 2, 2), {"nearest_mode": "ceil"}),
        ((1, 1, 3, 3), {"coordinate_transformation_mode": "asymmetric"}),
        ((1, 1, 2, 2), {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "round_prefer_ceil"}),
        ((1, 1, 2, 2), {"coordinate_transformation_mode": "align_corners"}),
    ],
)
def test_any_other_resize_stays_opaque(scales: tuple[float, ...], attributes: dict[str, Any]) -> None:
    assert _one("Resize", 13, _floats(2, 3, 6, 4), None, _numbers(*scales), **attributes).terms() == {}


def test_enlarging_twice_is_one_node() -> None:
    term = apply("repeat", apply("upsample", x4, rows=2, columns=3), axis=-2, times=2)
    assert [n.op_type for n in lower({"y": term}, 13).nodes] == ["Resize"]


# ---------------------------------------------------------------- blocks


@pytest.mark.parametrize(("mode", "operator"), [("DCR", "depth_to_space"), ("CRD", "pixel_shuffle")])
def test_blocks_of_channels(mode: str, operator: str) -> None:
    nodes = _one("DepthToSpace", 13, _floats(2, 12, 3, 2), blocksize=2, mode=mode)
    assert nodes.terms()["y"] is apply(operator, variable("x", (2, 12, 3, 2)), block=2)
    assert nodes.op_types() == ["DepthToSpace"]
    assert _one("DepthToSpace", 10, _floats(2, 12, 3, 2), blocksize=2).op_types() == ["DepthToSpace"]


def test_the_fast_order_of_blocks_is_written_out_where_the_opset_has_it_not() -> None:
    term = apply("pixel_shuffle", variable("x", (2, 12, 3, 2)), block=2)
    arrays = arrays_for(term)
    lowered = lower({"y": term}, 10)
    assert "DepthToSpace" not in [n.op_type for n in lowered.nodes]
    np.testing.assert_array_equal(ran(lowered, {"y": term}, arrays, 10)[0], evaluated(arrays, term)[0].astype(np.float32))


def test_blocks_there_and_back() -> None:
    x = variable("x", (2, 12, 3, 2))
    there = apply("depth_to_space", x, block=2)
    arrays = arrays_for(x)
    np.testing.assert_array_equal(evaluated(arrays, apply("space_to_depth", there, block=2))[0], arrays["x"])
    assert _one("SpaceToDepth", 13, _floats(2, 3, 4, 6), blocksize=2).op_types() == ["SpaceToDepth"]
    with pytest.raises(ShapeError):
        apply("depth_to_space", variable("x", (2, 6, 3, 2)), block=2)
    with pytest.raises(ShapeError):
        apply("space_to_depth", variable("x", (2, 6, 3, 2)), block=2)


# ---------------------------------------------------------------- stacks


@pytest.mark.parametrize("opset", [11, 13])
def test_stacking_costs_no_more_nodes(opset: int) -> None:
    axes: dict[str, Any] = {"axes": [1]} if opset < 13 else {}
    given = [] if opset < 13 else ["axes"]
    nodes = [helper.make_node("Unsqueeze", [f"x{i}", *given], [f"u{i}"], **axes) for i in range(3)]
    nodes.append(helper.make_node("Concat", ["u0", "u1", "u2"], ["y"], axis=1))
    arrays = {f"x{i}": _floats(2, 3) for i in range(3)} | ({"axes": _integers(1)} if given else {})
    assert Nodes(nodes, arrays, opset).op_types() == ["Concat", "Reshape", "Reshape", "Reshape"]


@pytest.mark.parametrize("opset", [11, 13])
def test_unstacking_costs_no_more_nodes(opset: int) -> None:
    axes: dict[str, Any] = {"axes": [1]} if opset < 13 else {}
    given = [] if opset < 13 else ["axes"]
    nodes = [helper.make_node("Split", ["x"], [f"s{i}" for i in range(3)], axis=1)]
    nodes += [helper.make_node("Squeeze", [f"s{i}", *given], [f"y{i}"], **axes) for i in range(3)]
    arrays = {"x": _floats(2, 3, 4)} | ({"axes": _integers(1)} if given else {})
    assert Nodes(nodes, arrays, opset).op_types() == ["Reshape", "Reshape", "Reshape", "Split"]


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize("opset", [7, 13, 21])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2], "pads": [1, 2], "dilations": [2], "group": 2},
        {"strides": [3], "auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID"},
    ],
)
def test_a_convolution_along_one_axis_is_one_node(attributes: dict[str, Any], opset: int) -> None:
    kernel = _floats(6, 4 // attributes.get("group", 1), 3)
    assert _one("Conv", opset, _floats(2, 4, 9), kernel, _floats(6), **attributes).op_types() == ["Conv"]
    assert _one("Conv", opset, _floats(2, 4, 9), kernel, **attributes).op_types() == ["Conv"]


@pytest.mark.parametrize("opset", [7, 13, 21])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 3], "pads": [1, 0, 2, 1], "dilations": [2, 1], "output_padding": [1, 2], "group": 2},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [1, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "output_shape": [8, 9]},
        {"strides": [2, 3], "output_shape": [9, 16]},
    ],
)
def test_a_transposed_convolution_is_one_node(attributes: dict[str, Any], opset: int) -> None:
    nodes = _one("ConvTranspose", opset, _floats(2, 4, 4, 5), _floats(4, 3, 3, 2), **attributes)
    assert nodes.op_types() == ["ConvTranspose"]
    bias = _floats(3 * attributes.get("group", 1))
    assert _one("ConvTranspose", opset, _floats(2, 4, 4, 5), _floats(4, 3, 3, 2), bias, **attributes).op_types() == [
        "ConvTranspose"
    ]


def test_a_transposed_convolution_along_one_axis_is_one_node() -> None:
    given = {"strides": [2], "pads": [1, 0], "dilations": [2], "output_padding": [1], "group": 2}
    assert _one("ConvTranspose", 13, _floats(2, 4, 5), _floats(4, 3, 3), _floats(6), **given).op_types() == ["ConvTranspose"]


@pytest.mark.parametrize("opset", [10, 13, 21])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3], "strides": [2], "pads": [1, 2]},
        {"kernel_shape": [2], "strides": [2], "ceil_mode": 1},
        {"kernel_shape": [3], "strides": [3], "pads": [2, 0], "ceil_mode": 1},
        {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"},
    ],
)
def test_pooling_along_one_axis_is_one_node(op_type: str, attributes: dict[str, Any], opset: int) -> None:
    assert _one(op_type, opset, _floats(2, 4, 9), **attributes).op_types() == [op_type]


@settings(max_examples=40)
@given(
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    pads=st.tuples(*(st.integers(0, 2),) * 4),
    op_type=st.sampled_from(["MaxPool", "AveragePool"]),
)
def test_last_windows_that_are_not_whole(
    size: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], pads: tuple[int, ...], op_type: str
) -> None:
    pads = tuple(min(p, kernel[axis % 2] - 1) for axis, p in enumerate(pads))
    nodes = _one(op_type, 13, _floats(1, 2, *size), kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=1)
    if nodes.terms():
        assert nodes.op_types() in (["AveragePool"], ["MaxPool"])


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 5, 4)])
def test_the_largest_of_whole_images(shape: tuple[int, ...]) -> None:
    assert _one("GlobalMaxPool", 13, _floats(*shape)).op_types() == ["MaxPool"]


@pytest.mark.parametrize("opset", [7, 11, 18])
def test_padding_with_a_number_is_one_node(opset: int) -> None:
    around = [0, 1, 2, 1, 0, 0]
    given: list[Array] = [] if opset < 11 else [_integers(*around), _numbers(1.5)]
    attributes: dict[str, Any] = {"pads": around, "value": 1.5} if opset < 11 else {}
    nodes = _one("Pad", opset, _floats(2, 3, 4), *given, mode="constant", **attributes)
    assert nodes.terms()["y"].op == "pad_with"
    assert nodes.op_types() == ["Pad"]


# ---------------------------------------------------------------- laws

LAWS = parse_rules(
    """
    relu-upsample:     relu(upsample(x, rows=m, columns=n)) => upsample(relu(x), rows=m, columns=n)  for x[4]
    relu-blocks:       relu(depth_to_space(x, block=b)) => depth_to_space(relu(x), block=b)  for x[4]
    relu-shuffle:      relu(pixel_shuffle(x, block=b)) => pixel_shuffle(relu(x), block=b)  for x[4]
    add-upsample:      upsample(x, rows=m, columns=n) + upsample(y, rows=m, columns=n) => upsample(x + y, rows=m, columns=n)
                       for x[4], y[4]
    scale-upsample:    upsample(scale(x, factor=a), rows=m, columns=n) => scale(upsample(x, rows=m, columns=n), factor=a)
                       for x[4]
    channels-upsample: upsample(x * expand(t, shape=x.shape, axes=(-3,)), rows=m, columns=n)
                       => upsample(x, rows=m, columns=n) * expand(t, shape=upsample(x, rows=m, columns=n).shape, axes=(-3,))
                       for x[4], t[1]
    conv-upsample:     conv(upsample(x, rows=m, columns=n), w) => upsample(conv(x, w), rows=m, columns=n)
                       for x[4], w[4] where w.shape[-2] == 1, w.shape[-1] == 1
    concat-upsample:   upsample(concat(x, y, axis=-3), rows=m, columns=n)
                       => concat(upsample(x, rows=m, columns=n), upsample(y, rows=m, columns=n), axis=-3)  for x[4], y[4]
    mean-upsample:     reduce_mean(upsample(x, rows=m, columns=n), axes=(-2, -1)) => reduce_mean(x, axes=(-2, -1))  for x[4]
    pool-upsample:     avg_pool(upsample(x, rows=m, columns=n), kernel=(m, n), strides=(m, n), pads=(0, 0, 0, 0)) => x  for x[4]
    blocks-back:       space_to_depth(depth_to_space(x, block=b), block=b) => x  for x[4]
    blocks-forth:      depth_to_space(space_to_depth(x, block=b), block=b) => x  for x[4]
    row-kernel:        conv1d(x, v + w, stride=s, before=p, after=q, dilation=d, group=g)
                       => conv1d(x, v, stride=s, before=p, after=q, dilation=d, group=g)
                        + conv1d(x, w, stride=s, before=p, after=q, dilation=d, group=g)  for x[3], v[3], w[3]
    row-input:         conv1d(scale(x, factor=a), w, stride=s, before=p, after=q, dilation=d, group=g)
                       => scale(conv1d(x, w, stride=s, before=p, after=q, dilation=d, group=g), factor=a)  for x[3], w[3]
    row-concat:        conv1d(x, concat(v, w, axis=-3), stride=s, before=p, after=q, dilation=d)
                       => concat(conv1d(x, v, stride=s, before=p, after=q, dilation=d),
                                 conv1d(x, w, stride=s, before=p, after=q, dilation=d), axis=-2)  for x[3], v[3], w[3]
    row-outputs:       conv1d(x, w, stride=s) * expand(t, shape=conv1d(x, w, stride=s).shape, axes=(-2,))
                       => conv1d(x, w * expand(t, shape=w.shape, axes=(-3,)), stride=s)  for x[3], w[3], t[1]
    padded-add:        pad_with(x, before=p, after=q, value=v) + pad(y, before=p, after=q)
                       => pad_with(x + y, before=p, after=q, value=v)  for x[2], y[2], p[2], q[2]
    spread-and-picked: stride(stride(conv_transpose(x, w, strides=(m, n)), axis=-2, step=m), axis=-1, step=n)
                       => conv(x, transpose(w, perm=(-3, -4, -2, -1)))
                       for x[4], w[4] where w.shape[-2] == 1, w.shape[-1] == 1
    copies:            conv_transpose(x, ones(shape=(x.shape[-3], 1, m, n)), strides=(m, n), group=x.shape[-3])
                       => upsample(x, rows=m, columns=n)  for x[4]
    """
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_of_composites_follows_from_the_axioms(law: Rule) -> None:
    verdict = prove_from_axioms(law)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.bounded == ()
