"""The symbolic evaluator of shape arithmetic: it knows the values that are the same at all sizes, and no others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import superopt
from superopt.algebra.dim_binding import dimension
from superopt.algebra.integers import base_atoms, evaluate, is_unknown
from superopt.algebra.terms import Term, subterms
from superopt.model.dimensions import dynamic_dimension_names, dynamic_dimensions, representative_sizings
from superopt.model.islands import Chart
from superopt.model.lift import constant_tensor
from superopt.model.shape_values import describe_inferred_sizes
from superopt.model.splice import Replacement, splice
from superopt.model.views import Views
from superopt.policy import MODEL
from superopt.report.optimization import Report
from superopt.runtime.session import Device, Session

RNG = np.random.default_rng(3)
node = helper.make_node


def whole(name: str, numbers: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(numbers, np.int64), name)


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


def model(
    nodes: list[NodeProto], inputs: dict[str, list[Any]], outputs: list[str], weights: list[TensorProto], opset: int = 17
) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "graph",
        [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info(name, TensorProto.FLOAT, None) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


CONSTANTS = [whole("axis", 0), whole("zero", [0]), *(whole(f"c{n}", n) for n in (1, 2, 3, 4, 8)), whole("c64", [64])]


def computed(nodes: list[NodeProto], weights: Sequence[TensorProto] = ()) -> str:
    """Return the evaluator's description of the scalar `r`, which the nodes compute from `n`, the first size of an input."""
    start = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "axis"], ["n"])]
    ends = [node("Cast", ["r"], ["y"], to=TensorProto.FLOAT)]
    views = Views(ir.from_proto(model([*start, *nodes, *ends], {"x": ["n", 64]}, ["y"], [*CONSTANTS, *weights])))
    (value,) = (v for n in views.model.graph for v in n.outputs if v.name == "r")
    if value.const_value is not None:
        return str(value.const_value.numpy().item())
    found = views.values.content(value)
    return "unknown" if found is None else describe_inferred_sizes(found.item())


def chain(*steps: tuple[str, str]) -> list[NodeProto]:
    """Return nodes that apply binary operators to `n` in turn."""
    names = ["n", *(f"t{i}" for i in range(len(steps) - 1)), "r"]
    return [node(op, [names[i], other], [names[i + 1]]) for i, (op, other) in enumerate(steps)]


def cut_of_the_shape(first: list[int], last: list[int], step: list[int] | None) -> list[NodeProto]:
    """Return nodes that compute the first element of a slice of the shape (n, 64)."""
    bounds = {"b": first, "e": last} | ({} if step is None else {"a": [0], "s": step})
    return [
        *(node("Constant", [], [name], value=whole(name, numbers)) for name, numbers in bounds.items()),
        node("Slice", ["shape", *bounds], ["cut"]),
        node("Gather", ["cut", "axis"], ["r"]),
    ]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (chain(("Mul", "c2"), ("Mod", "c2")), "0"),
        (chain(("Mod", "c2")), "n - 2 * ((n) // (2))"),
        (chain(("Sub", "n")), "0"),
        (chain(("Mul", "c8"), ("Div", "c8"), ("Sub", "n"), ("Add", "c3")), "3"),
        (chain(("Div", "c2"), ("Mul", "c2"), ("LessOrEqual", "n")), "True"),
        (chain(("Min", "c4"), ("Max", "c8")), "8"),
        (chain(("Greater", "c4")), "n >= 5"),
        (chain(("Less", "axis")), "False"),
        (chain(("GreaterOrEqual", "axis")), "True"),
        (chain(("GreaterOrEqual", "c1")), "n >= 1"),
        (chain(("Mod", "c8"), ("Div", "c8")), "0"),
        ([node("Mod", ["n", "c2"], ["p"]), node("Equal", ["p", "c2"], ["r"])], "False"),
        ([node("Greater", ["n", "c4"], ["g"]), node("Where", ["g", "c3", "c3"], ["r"])], "3"),
        ([node("Less", ["n", "axis"], ["l"]), node("Where", ["l", "c3", "n"], ["r"])], "n"),
        ([node("GreaterOrEqual", ["n", "axis"], ["g"]), node("Where", ["g", "c3", "n"], ["r"])], "3"),
        ([node("Cast", ["n"], ["f"], to=TensorProto.FLOAT), node("Cast", ["f"], ["r"], to=TensorProto.INT64)], "n"),
        ([node("NonZero", ["x"], ["z"]), node("Size", ["z"], ["r"])], "2 * ?0.shape[0]"),
        (cut_of_the_shape([1], [0], [-1]), "64"),
        (cut_of_the_shape([-1], [-1000], [-1]), "64"),
        (cut_of_the_shape([0], [-1], [1]), "n"),
        (cut_of_the_shape([-2], [1], [2]), "n"),
        (cut_of_the_shape([0], [1000], [1]), "n"),
        (cut_of_the_shape([1], [2], None), "64"),
    ],
)
def test_arithmetic_of_sizes_is_exact(nodes: list[NodeProto], expected: str) -> None:
    assert computed(nodes) == expected


def cast(source: str, target: str, kind: int) -> NodeProto:
    return node("Cast", [source], [target], to=kind)


FLOATED = [node("Sub", ["n", "c4"], ["d"]), cast("d", "f", TensorProto.FLOAT), node("Mul", ["f", "half"], ["h"])]
FLAGS = [node("Greater", ["n", "c4"], ["p"]), node("Less", ["n", "c8"], ["q"])]
PAIRED = [node("Unsqueeze", ["n", "zero"], ["v"]), node("Concat", ["v", "pair", "v"], ["l"], axis=0)]


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Abs", ["d"], ["r"])],
        [node("Sign", ["d"], ["r"])],
        [node("Neg", ["d"], ["r"])],
        [node("Mod", ["d", "c3"], ["r"])],
        [node("Mod", ["d", "c3"], ["r"], fmod=1)],
        [node("Div", ["d", "c3"], ["r"])],
        [node("Clip", ["n", "c2", "c8"], ["r"])],
        [node("Min", ["n", "c8", "c4"], ["r"])],
        [node("Max", ["n", "c2", "c4"], ["r"])],
        [node("Sum", ["f", "half", "f"], ["r"])],
        [node("Pow", ["n", "c3"], ["r"])],
        [node("Floor", ["h"], ["r"])],
        [node("Ceil", ["h"], ["r"])],
        [node("Floor", ["h"], ["g"]), cast("g", "r", TensorProto.INT64)],
        [cast("h", "r", TensorProto.INT64)],
        [cast("d", "r", TensorProto.BOOL)],
        [node("Div", ["f", "two"], ["r"])],
        [node("Sub", ["h", "half"], ["g"]), node("Sign", ["g"], ["r"])],
        [node("Greater", ["h", "half"], ["r"])],
        [node("LessOrEqual", ["h", "half"], ["r"])],
        [node("Sqrt", ["four"], ["g"]), node("Add", ["g", "f"], ["r"])],
        [node("Where", ["p", "n", "c4"], ["r"])],
        [node("And", ["p", "q"], ["r"])],
        [node("Or", ["p", "q"], ["r"])],
        [node("Xor", ["p", "q"], ["r"])],
        [node("Not", ["p"], ["r"])],
        [node("Equal", ["n", "c8"], ["r"])],
        [node("ReduceProd", ["l"], ["r"], keepdims=0)],
        [node("ReduceSum", ["l", "zero"], ["r"], keepdims=0)],
        [node("ReduceMax", ["l"], ["r"], keepdims=0)],
        [node("ReduceMin", ["l"], ["r"], keepdims=0)],
        [node("Tile", ["l", "two_times"], ["t"]), node("Gather", ["t", "c4"], ["r"])],
        [node("Split", ["l", "parts"], ["t", "u"], axis=0), node("ReduceSum", ["u", "zero"], ["r"], keepdims=0)],
        [node("Range", ["n", "c8", "c3"], ["t"]), node("Size", ["t"], ["r"])],
        [node("Range", ["axis", "c8", "c3"], ["t"]), node("Add", ["t", "v"], ["u"]), node("Gather", ["u", "c2"], ["r"])],
    ],
    ids=lambda nodes: "-".join(n.op_type for n in nodes),
)
def test_the_evaluator_computes_what_onnx_runtime_computes(nodes: list[NodeProto]) -> None:
    start = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "axis"], ["n"])]
    ends = [cast("r", "y", TensorProto.FLOAT)]
    constants = [
        *CONSTANTS,
        whole("pair", [3, 5]),
        whole("two_times", [2]),
        whole("parts", [3, 1]),
        *(
            numpy_helper.from_array(np.array(value, np.float32), name)
            for name, value in (("half", 0.5), ("two", 2), ("four", 4))
        ),
    ]
    proto = model([*start, *FLOATED, *FLAGS, *PAIRED, *nodes, *ends], {"x": ["n", 64]}, ["y"], constants, opset=18)
    views = Views(ir.from_proto(proto))
    (value,) = (v for n in views.model.graph for v in n.outputs if v.name == "y")
    found = views.values.content(value) if value.const_value is None else value.const_value.numpy()
    assert found is not None
    assert not any(map(is_unknown, base_atoms(found.item())))
    session = Session(proto, Device("cpu", 1))
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 16, 31):
        (result,) = session.run({"x": np.zeros((n, 64), np.float32)})
        at = dict.fromkeys(base_atoms(found.item()), n)
        assert float(evaluate(found.item(), at)) == result.item(), n


def test_a_sum_of_floats_that_rounds_is_not_known() -> None:
    third = numpy_helper.from_array(np.array(1 / 3, np.float32), "third")
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "third"], ["g"]),
        node("Cast", ["g"], ["r"], to=TensorProto.INT64),
        node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    views = Views(ir.from_proto(model(nodes, {"x": ["n"]}, ["y"], [third])))
    (value,) = (v for n in views.model.graph for v in n.outputs if v.name == "r")
    elements = views.values.content(value)
    assert elements is not None
    (element,) = elements
    assert all(is_unknown(atom) for atom in base_atoms(element))


def test_a_quotient_that_rounds_is_not_compared() -> None:
    third = numpy_helper.from_array(np.array(1 / 3, np.float32), "third")
    three = numpy_helper.from_array(np.array(3, np.float32), "three")
    nodes = [
        cast("n", "f", TensorProto.FLOAT),
        node("Div", ["f", "three"], ["q"]),
        node("GreaterOrEqual", ["q", "third"], ["r"]),
    ]
    assert computed(nodes, [third, three]) == "?0 != 0"


@pytest.mark.parametrize(("exponent", "expected"), [(8, "n * n * n * n * n * n * n * n"), (9, "?0")])
def test_powers_of_sizes_up_to_eight_are_known(exponent: int, expected: str) -> None:
    assert computed([node("Pow", ["n", "exponent"], ["r"])], [whole("exponent", exponent)]) == expected


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_table_is_known_up_to_the_limit(beyond: int) -> None:
    nodes = [node("Add", ["table", "n"], ["sums"]), node("Gather", ["sums", "axis"], ["r"])]
    table = whole("table", np.arange(MODEL.max_tracked_elements + beyond))
    assert (computed(nodes, [table]) == "n") == (beyond == 0)


# ---------------------------------------------------------------- shapes, against ONNX Runtime


def attribute_cases() -> list[tuple[str, list[NodeProto], list[TensorProto]]]:
    image = [weight("k", 3, 3, 3, 3)]
    cases: list[tuple[str, list[NodeProto], list[TensorProto]]] = []
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"):
        for stride in (1, 2, 3):
            window: dict[str, Any] = {"strides": [stride, stride], "auto_pad": pad}
            cases.append((f"conv-{pad}-{stride}", [node("Conv", ["x", "k"], ["y"], **window)], image))
    for ceil in (0, 1):
        for kernel, stride, pads in ((2, 2, 0), (3, 2, 1), (3, 4, 1), (2, 3, 0), (5, 4, 2)):
            pool: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
            pool.update(pads=[pads] * 4, ceil_mode=ceil)
            name = f"{kernel}-{stride}-{pads}-{ceil}"
            cases.append((f"max-{name}", [node("MaxPool", ["x"], ["y"], **pool)], []))
            cases.append((f"average-{name}", [node("AveragePool", ["x"], ["y"], **pool)], []))
    cases.append(("transpose-conv", [node("ConvTranspose", ["x", "k"], ["y"], strides=[2, 2], output_padding=[1, 1])], image))
    for kernel, stride in ((1, 2), (2, 3), (3, 2), (4, 3)):
        taps = [weight("k", 3, 2, kernel, kernel)]
        window = {"strides": [stride] * 2, "auto_pad": "SAME_LOWER"}
        cases.append((f"transpose-conv-same-{kernel}-{stride}", [node("ConvTranspose", ["x", "k"], ["y"], **window)], taps))
    bounds = [(1, 7, 1), (-3, 1000, 1), (0, -2, 2), (5, 2, 1), (-1, -1000, -1), (6, 1, -2), (-4, -1, 3), (1000, -1000, -3)]
    for first, last, step in bounds:
        given = [whole("b", [first]), whole("e", [last]), whole("a", [2]), whole("s", [step])]
        cases.append((f"slice-{first}-{last}-{step}", [node("Slice", ["x", "b", "e", "a", "s"], ["y"])], given))
    scales = numpy_helper.from_array(np.array([1, 1, 1.5, 0.75], np.float32), "scales")
    cases.append(("resize", [node("Resize", ["x", "", "scales"], ["y"])], [scales]))
    cases.append(("top-k", [node("TopK", ["x", "k"], ["y", "at"], axis=2)], [whole("k", [3])]))
    parts = [node("Split", ["x"], ["a", "b", "y"], axis=2, num_outputs=3)]
    cases.append(("last-part", parts, []))
    cases.append(("reshape", [node("Reshape", ["x", "s"], ["y"])], [whole("s", [0, -1, 3])]))
    cases.append(("sum-of-other-rank", [node("Add", ["x", "bias"], ["y"])], [weight("bias", 3, 1, 1)]))
    return cases


CASES = attribute_cases()


@pytest.mark.parametrize(("nodes", "weights"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_shapes_are_those_of_onnx_runtime(nodes: list[NodeProto], weights: list[TensorProto]) -> None:
    proto = model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights, opset=18)
    views = Views(ir.from_proto(proto))
    shape = views.values.shape(views.model.graph.outputs[0])
    assert shape is not None
    session = Session(proto, Device("cpu", 1))
    compared = 0
    for n, h, w in ((1, 5, 6), (2, 7, 9), (1, 8, 8), (3, 13, 10), (1, 3, 32), (2, 16, 33), (1, 17, 4), (1, 11, 12)):
        try:
            (found,) = session.run({"x": np.zeros((n, 3, h, w), np.float32)})
        except Exception:  # noqa: BLE001 (the model does not run at every size)
            continue
        at = {a: {"%n": n, "%h": h, "%w": w}[a.tensor] for a in base_atoms(*shape)}  # type: ignore[union-attr]
        assert tuple(int(evaluate(extent, at)) for extent in shape) == found.shape
        compared += 1
    assert compared >= 4


@pytest.mark.parametrize(("scales", "assumed"), [((1.0, 1.0, 2.0, 3.0), False), ((1.0, 1.0, 1.5, 2.0), True)])
def test_only_a_resize_by_a_fraction_assumes_something_of_its_sizes(scales: tuple[float, ...], *, assumed: bool) -> None:
    factors = numpy_helper.from_array(np.array(scales, np.float32), "scales")
    nodes = [node("Resize", ["x", "", "scales"], ["y"])]
    views = Views(ir.from_proto(model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], [factors])))
    assert views.values.shape(views.model.graph.outputs[0]) is not None
    assert bool(views.values.assumptions) == assumed


def test_an_input_that_is_also_an_output_keeps_its_shape() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": ["n", 8]}, ["y"], [])
    proto.graph.output.append(proto.graph.input[0])
    views = Views(ir.from_proto(proto))
    y, x = (views.values.shape(value) for value in views.model.graph.outputs)
    assert y is not None
    assert y == x


@pytest.mark.parametrize(
    "broadcast",
    [
        node("Add", ["x", "z"], ["y"]),
        node("PRelu", ["x", "z"], ["y"]),
        node("Einsum", ["x", "z"], ["y"], equation="ij,ij->ij"),
    ],
    ids=["Add", "PRelu", "Einsum"],
)
def test_an_operation_over_two_dynamic_extents_has_the_extent_that_is_not_one(broadcast: NodeProto) -> None:
    views = Views(ir.from_proto(model([broadcast], {"x": ["n", 8], "z": ["m", 8]}, ["y"], [])))
    shape = views.values.shape(views.model.graph.outputs[0])
    assert shape is not None
    for n, m, whole_extent in ((1, 5, 5), (5, 1, 5), (4, 4, 4)):
        at = {a: {"%n": n, "%m": m}[a.tensor] for a in base_atoms(*shape)}  # type: ignore[union-attr]
        assert [int(evaluate(extent, at)) for extent in shape] == [whole_extent, 8]


@pytest.mark.parametrize("stack", [[3], [1], [3, 2]])
def test_a_product_with_a_stack_of_matrices_is_a_stack(stack: list[int]) -> None:
    views = Views(
        ir.from_proto(model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 8]}, ["y"], [weight("w", *stack, 8, 5)]))
    )
    shape = views.values.shape(views.model.graph.outputs[0])
    assert shape is not None
    assert shape[:-2] == tuple(stack)
    assert shape[-2:] == (dimension("n"), 5)


# ---------------------------------------------------------------- islands, and siblings with provable facts


def two_products(source: str, target: str) -> list[NodeProto]:
    return [
        node("MatMul", [source, "left"], ["p"]),
        node("MatMul", [source, "right"], ["q"]),
        node("Add", ["p", "q"], [target]),
    ]


PRODUCTS = [weight("left", 64, 64), weight("right", 64, 64)]


def islands_of(proto: onnx.ModelProto) -> dict[str, Term]:
    return {name: term for island in Chart(ir.from_proto(proto)).islands() for name, term in island.outputs.items()}


def relowered(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every island lowered again."""
    original = ir.from_proto(proto)
    replacements = [Replacement(i.outputs, i.dtype, i.conditions, i.sizings, i.scope) for i in Chart(original).islands()]
    return ir.to_proto(splice(original, replacements))


def require_alike(proto: onnx.ModelProto, other: onnx.ModelProto, shapes: list[dict[str, tuple[int, ...]]]) -> None:
    sessions = [Session(m, Device("cpu", 1)) for m in (proto, other)]
    for given in shapes:
        feeds = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in given.items()}
        for one, two in zip(*(s.run(feeds) for s in sessions), strict=True):
            assert one.shape == two.shape
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


def padded(*, even: bool) -> onnx.ModelProto:
    """Return a model that pads a length by its remainder.

    With `even`, the length is even by construction, so that the padding is 0.
    """
    doubled = [node("Concat", ["x", "x"], ["z"], axis=0)] if even else [node("Identity", ["x"], ["z"])]
    nodes = [
        *doubled,
        node("Shape", ["z"], ["shape"]),
        node("Gather", ["shape", "axis"], ["n"]),
        node("Mod", ["n", "c2"], ["rest"]),
        node("Unsqueeze", ["rest", "zero"], ["rest_1"]),
        node("Concat", ["pair", "rest_1", "zero"], ["pads"], axis=0),
        node("Pad", ["z", "pads"], ["padded"]),
        *two_products("padded", "y"),
    ]
    return model(nodes, {"x": ["n", 64]}, ["y"], [*CONSTANTS, whole("pair", [0, 0]), *PRODUCTS])


def test_a_pad_that_is_always_nothing_goes_and_one_that_may_be_one_stays() -> None:
    for even in (False, True):
        proto = padded(even=even)
        lifted = {n.op_type for island in Chart(ir.from_proto(proto)).islands() for n in island.nodes}
        assert ("Pad" in lifted) is even
        require_alike(proto, relowered(proto), [{"x": (n, 64)} for n in (1, 2, 5, 8)])


@pytest.mark.parametrize(("size", "fixed"), [("h", False), (32, True)])
def test_same_pads_are_kept_as_an_attribute_where_they_depend_on_the_size(size: object, *, fixed: bool) -> None:
    first = node("Conv", ["x", "k"], ["first"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3])
    proto = model([first, node("Relu", ["first"], ["y"])], {"x": ["n", 3, size, size]}, ["y"], [weight("k", 4, 3, 3, 3)])
    (term,) = islands_of(proto).values()
    assert {t.op for t in subterms(term) if t.args} == {"conv", "relu"}
    again = relowered(proto)
    (conv,) = (n for n in again.graph.node if n.op_type == "Conv")
    assert {a.name for a in conv.attribute}.isdisjoint({"pads"}) is not fixed
    require_alike(proto, again, [{"x": (2, 3, n, n)} for n in ((32,) if fixed else (5, 32, 33))])


@pytest.mark.parametrize("exact", [True, False])
def test_sizes_in_floating_point_are_assumed_to_be_small(*, exact: bool) -> None:
    """A comparison of a size in floating point needs an assumption about the size. A comparison of integers does not."""
    sizes = [node("Cast", ["n"], ["f"], to=TensorProto.FLOAT), node("Greater", ["f", "four"], ["r"])]
    steps = chain(("Greater", "c4")) if exact else sizes
    start = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "axis"], ["n"])]
    end = [node("Where", ["r", "x", "x"], ["y"])]
    four = numpy_helper.from_array(np.array(4, np.float32), "four")
    views = Views(ir.from_proto(model([*start, *steps, *end], {"x": ["n", 64]}, ["y"], [*CONSTANTS, four])))
    (value,) = (v for n in views.model.graph for v in n.outputs if v.name == "r")
    assert views.values.content(value) is not None
    assert any("floating point" in sentence for sentence in views.assumptions) is not exact


def test_dimensions_without_a_name_are_not_equal() -> None:
    nodes = [node("Add", ["x", "z"], ["y"])]
    for name, lifts in (("?", False), ("unk__3", False), ("", False), ("-1", False), (None, False), ("n", True)):
        proto = model(nodes, {"x": [name, 8], "z": [name, 8]}, ["y"], [])
        assert bool(islands_of(proto)) is lifts
    unnamed = ir.from_proto(model(nodes, {"x": ["?", 8], "z": ["?", 8]}, ["y"], []))
    assert [*dynamic_dimension_names(unnamed)] == ["x[0]", "z[0]"]
    assert len({*dynamic_dimensions(unnamed).values()}) == 2
    sizes = [{"?": 5}, {"x[0]": 3, "z.0": 1}]
    assert [s.numbers for s in representative_sizings(unnamed, sizes)] == [{"x[0]": 5, "z[0]": 5}, {"x[0]": 3, "z[0]": 1}]


def test_what_the_model_demands_is_assumed_and_said() -> None:
    """A product requires equal inner sizes. A sum with the first n rows of a table requires that the table has n rows."""
    product = model(
        [node("MatMul", ["x", "z"], ["y"]), node("MatMul", ["y", "z"], ["u"])], {"x": ["?", "?"], "z": ["?", "?"]}, ["u"], []
    )
    views = Views(ir.from_proto(product))
    assert any("The model runs only where" in sentence for sentence in views.assumptions)
    assert len(islands_of(product)) == 1
    cut = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        node("Slice", ["table", "zero", "n", "zero"], ["rows"]),
        node("Add", ["x", "rows"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    proto = model(cut, {"x": ["n", 8]}, ["y"], [*CONSTANTS, weight("table", 16, 8)])
    views = Views(ir.from_proto(proto))
    assert "The model runs only where 16 >= n." in views.assumptions
    assert views.values.shape(views.model.graph.outputs[0]) == (*dynamic_dimensions(ir.from_proto(proto)).values(), 8)


@pytest.mark.slow
def test_the_report_and_the_certificate_state_the_assumptions(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "z"], ["a"]), *two_products("a", "y")]
    proto = model(nodes, {"x": ["n", 64], "z": ["n", 64]}, ["y"], PRODUCTS)
    optimized = superopt.optimize(proto, budget=0.5, cache=tmp_path / "cache")
    report: Report = optimized.report
    assert any("x[0] = z[0]" in sentence for sentence in report.assumptions)
    assert json.loads(report.json())["assumptions"] == list(report.assumptions)
    assert json.loads(optimized.certificate)["assumptions"] == list(report.assumptions)


def test_a_model_with_many_dynamic_dimensions_is_one_island_each() -> None:
    inputs: dict[str, list[Any]] = {f"x{i}": [None, None, 64] for i in range(8)}
    nodes = [n for i in range(8) for n in (node("MatMul", [f"x{i}", "left"], [f"m{i}"]), node("Relu", [f"m{i}"], [f"y{i}"]))]
    proto = model(nodes, inputs, [f"y{i}" for i in range(8)], PRODUCTS[:1])
    assert len(islands_of(proto)) == 8


def test_a_mask_of_units_is_dropped_without_knowing_its_sizes() -> None:
    nodes = [node("Squeeze", ["m", "units"], ["narrow"]), node("Add", ["x", "narrow"], ["y"])]
    proto = model(nodes, {"x": ["b", 4, "s", "t"], "m": [1, 1, "s", "t"]}, ["y"], [whole("units", [0, 1])])
    assert [t.op for t in islands_of(proto).values()] == ["add"]
    again = relowered(proto)
    require_alike(proto, again, [{"x": (2, 4, s, t), "m": (1, 1, s, t)} for s, t in ((3, 5), (1, 1), (8, 2))])


def test_a_flattened_tensor_may_be_empty() -> None:
    """A Reshape to the shape (0, -1) would fail at a batch of 0, but the original model runs at this size."""
    proto = model([node("Flatten", ["x"], ["f"]), node("Relu", ["f"], ["y"])], {"x": ["n", "m", 4]}, ["y"], [])
    (term,) = islands_of(proto).values()
    assert [t.op for t in subterms(term) if t.args] == ["reshape", "relu"]
    require_alike(proto, relowered(proto), [{"x": (n, m, 4)} for n, m in ((0, 3), (0, 0), (2, 3), (1, 1))])


def test_a_condition_on_a_size_is_exact_at_no_elements() -> None:
    """For zero rows, the model returns a given number in place of the sum."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "axis"], ["n"]),
        node("Greater", ["n", "axis"], ["some"]),
        node("ReduceSum", ["x", "zero"], ["sum"], keepdims=0),
        node("Where", ["some", "sum", "seven"], ["y"]),
    ]
    seven = numpy_helper.from_array(np.array(7, np.float32), "seven")
    proto = model(nodes, {"x": ["n", 4]}, ["y"], [*CONSTANTS, seven])
    require_alike(proto, relowered(proto), [{"x": (n, 4)} for n in (0, 1, 3)])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("a", TensorProto.FLOAT), ("b", TensorProto.INT64)], False),
        ([("a", TensorProto.INT32), ("b", TensorProto.INT64)], False),
        ([("a", TensorProto.INT64), ("b", TensorProto.INT64)], True),
    ],
)
def test_a_cast_of_data_to_a_narrower_type_is_not_exact(steps: list[tuple[str, int]], expected: bool) -> None:
    names = ["i", *(name for name, _ in steps)]
    nodes = [node("Cast", [names[at]], [name], to=to) for at, (name, to) in enumerate(steps)]
    ends = [node("Equal", [names[-1], "i"], ["same"]), node("Cast", ["same"], ["y"], to=TensorProto.FLOAT)]
    proto = model([*nodes, *ends], {"x": ["n", 64]}, ["y"], CONSTANTS)
    proto.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, [1]))
    views = Views(ir.from_proto(proto))
    (value,) = (v for n in views.model.graph for v in n.outputs if v.name == "same")
    constant = value.const_value is not None or constant_tensor(value) is not None
    found = views.values.content(value)
    assert (constant or (found is not None and found.item() is True)) == expected


@pytest.mark.parametrize(("equation", "expected"), [("ab,cb", "ac"), ("ba, ca -> cb", "cb"), ("za,ba", "bz")])
def test_the_axes_of_an_einsum_are_those_of_its_equation(equation: str, expected: str) -> None:
    """Without an arrow, the labels that occur once are the axes, in the order of the alphabet."""
    proto = model([node("Einsum", ["x", "z"], ["y"], equation=equation)], {"x": ["n", 8], "z": ["m", 8]}, ["y"], [])
    views = Views(ir.from_proto(proto))
    first, second = (operand.strip() for operand in equation.partition("->")[0].split(","))
    sizes = dict(zip(first, ("n", "8"), strict=True)) | dict(zip(second, ("m", "8"), strict=True))
    shape = views.values.shape(views.model.graph.outputs[0])
    assert shape is not None
    assert [describe_inferred_sizes(extent) for extent in shape] == [sizes[label] for label in expected]


def test_dilated_pooling_with_computed_pads_has_unknown_extents() -> None:
    """ONNX Runtime ignores the dilations when it computes the pads of `SAME_UPPER`."""
    pool: dict[str, Any] = {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}
    for dilations, unknown in (([1, 1], False), ([2, 2], True)):
        nodes = [node("MaxPool", ["x"], ["y"], **pool, dilations=dilations)]
        views = Views(ir.from_proto(model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], [])))
        shape = views.values.shape(views.model.graph.outputs[0])
        assert shape is not None
        assert [any(map(is_unknown, base_atoms(extent))) for extent in shape] == [False, False, unknown, unknown]


@pytest.mark.parametrize(("pads", "assumed"), [([0, 0, 0, 0], True), ([1, 1, 1, 1], False)])
def test_pooling_assumes_that_an_image_holds_a_window(pads: list[int], assumed: bool) -> None:
    nodes = [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=pads)]
    views = Views(ir.from_proto(model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], [])))
    assert any("h >= 3" in sentence for sentence in views.assumptions) == assumed


@pytest.mark.parametrize("axes", [[], None])
def test_a_reduction_without_axes_that_is_an_identity_is_known(axes: list[int] | None) -> None:
    weights = [] if axes is None else [whole("axes", axes)]
    total = node("ReduceSum", ["shape", *(w.name for w in weights)], ["same"], noop_with_empty_axes=1)
    assert computed([total, node("Gather", ["same", "axis"], ["r"])], weights) == "n"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Add", ["i", "c1"], ["j"]), node("Greater", ["j", "i"], ["r"])], "unknown"),
        ([node("Mul", ["i", "c2"], ["j"]), node("Div", ["j", "c2"], ["k"]), node("Sub", ["k", "i"], ["r"])], "unknown"),
        ([node("Abs", ["i"], ["j"]), node("Less", ["j", "axis"], ["r"])], "unknown"),
        ([node("Add", ["i", "c1"], ["j"]), node("Sub", ["j", "i"], ["r"])], "1"),
        ([node("Add", ["n", "c1"], ["j"]), node("Greater", ["j", "n"], ["r"])], "True"),
    ],
)
def test_data_that_is_computed_with_may_overflow(nodes: list[NodeProto], expected: str) -> None:
    """Integers that a model reads may be the largest of their type, but sizes may not. Sums and products are modular."""
    read = [node("Cast", ["x"], ["all"], to=TensorProto.INT64), node("ReduceMax", ["all"], ["i"], keepdims=0)]
    found = computed([*read, *nodes])
    assert found == expected or (expected == "unknown" and found.startswith("?"))


def test_a_slice_with_starts_of_unknown_shape_has_an_unknown_size() -> None:
    body = helper.make_graph(
        [node("Identity", ["going"], ["goes"]), node("Add", ["carried", "one"], ["next"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.INT64, None),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.INT64, None),
        ],
    )
    nodes = [
        node("Loop", ["times", "", "zero"], ["start"], body=body),
        node("Slice", ["x", "start", "c64v", "zero"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    weights = [whole("times", 3), whole("one", [1]), whole("c64v", [64])]
    views = Views(ir.from_proto(model(nodes, {"x": ["n", 64]}, ["y"], [*CONSTANTS, *weights])))
    (value,) = (v for n in views.model.graph for v in n.outputs if v.name == "s")
    shape = views.values.shape(value)
    assert shape is None or shape[1] == 64


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1])
@pytest.mark.parametrize("first", ["n", 8])
def test_a_backward_slice_to_the_largest_integer_is_left_alone(end: int, first: int | str) -> None:
    bounds = [whole("s", [4]), whole("e", [end]), whole("a", [0]), whole("t", [-1])]
    nodes = [node("Slice", ["x", "s", "e", "a", "t"], ["p"]), node("Relu", ["p"], ["y"])]
    chart = Chart(ir.from_proto(model(nodes, {"x": [first, 64]}, ["y"], bounds)))
    assert not any(part.op_type == "Slice" for island in chart.islands() for part in island.nodes)
    (value,) = (v for part in chart.model.graph for v in part.outputs if v.name == "p")
    shape = chart.views.values.shape(value) if chart.views.dynamic else None
    assert shape is None or shape[0] != 0
