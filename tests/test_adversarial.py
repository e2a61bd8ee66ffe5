"""The numerical check refuses results that are wrong only at some sizes or values, and accepts correct results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.errors import CheckFailedError
from superopt.runtime.adversarial import adversarial_values, image_inputs
from superopt.runtime.bounds import integer_constants, number_inputs
from superopt.runtime.check import CheckSettings, check_all, check_candidate
from superopt.runtime.input_source import DRAWN
from superopt.runtime.reference import Reference
from superopt.runtime.session import Array, Device, Port
from superopt.runtime.sizes import dynamic_dimension_keys, sizes_to_check, telling_constants

CPU = Device()
node = helper.make_node
Shape = Sequence[int | str | None]


def weight(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, object] | None = None,
    masks: Sequence[str] = (),
) -> ModelProto:
    arrays = {name: np.asarray(value) for name, value in (weights or {}).items()}
    arrays = {n: a.astype(np.float32) if a.dtype == np.float64 else a for n, a in arrays.items()}
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, TensorProto.BOOL if n in masks else TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def refuses(original: ModelProto, candidate: ModelProto, match: str, sizes: Mapping[str, int] | None = None) -> None:
    check_candidate(original, original, CPU, sizes=sizes, seconds=60)
    with pytest.raises(CheckFailedError, match=match):
        check_candidate(original, candidate, CPU, sizes=sizes, seconds=60)


# Sizes


def length(axis: int = 0) -> list[NodeProto]:
    return [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "axis"], ["n"])]


@pytest.mark.slow
def test_pads_that_depend_on_the_parity_of_a_size_are_not_constants() -> None:
    kernel = {"k": weight(8, 4, 3, 3)}

    def strided(**pads: Any) -> ModelProto:
        return model([node("Conv", ["x", "k"], ["y"], strides=[2, 2], **pads)], {"x": [1, 4, "H", "W"]}, weights=kernel)

    same = strided(auto_pad="SAME_UPPER")
    refuses(same, strided(pads=[0, 0, 1, 1]), "became|cannot run", {"H": 64, "W": 64})
    refuses(same, strided(pads=[1, 1, 1, 1]), "off by|became", {"H": 33, "W": 33})


def test_a_length_that_is_padded_to_a_multiple_is_padded() -> None:
    nodes = [
        *length(),
        node("Mod", ["n", "eight"], ["rest"]),
        node("Sub", ["eight", "rest"], ["less"]),
        node("Mod", ["less", "eight"], ["more"]),
        node("Unsqueeze", ["more", "zero"], ["more_1"]),
        node("Concat", ["zeros", "more_1", "zero"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["y"]),
    ]
    weights = {"axis": 0, "eight": 8, "zero": [0], "zeros": [0, 0]}
    padded = model(nodes, {"x": ["N", 4]}, weights=weights)
    refuses(padded, model([node("Identity", ["x"], ["y"])], {"x": ["N", 4]}), "became", {"N": 64})


@pytest.mark.slow
def test_a_slice_that_a_long_sequence_alone_reaches_stays() -> None:
    nodes = [node("Slice", ["x", "zero", "end", "zero"], ["cut"]), node("MatMul", ["cut", "w"], ["y"])]
    weights = {"zero": [0], "w": weight(8, 8)}
    whole = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["N", 8]}, weights=weights)
    for end in (9, 100, 16384):
        refuses(model(nodes, {"x": ["N", 8]}, weights=weights | {"end": [end]}), whole, "became", {"N": 8})


@pytest.mark.slow
def test_a_condition_on_a_size_is_no_constant() -> None:
    nodes = [
        *length(),
        node("Div", ["n", "two"], ["half"]),
        node("Greater", ["half", "limit"], ["long"]),
        node("Neg", ["x"], ["negative"]),
        node("Where", ["long", "x", "negative"], ["y"]),
    ]
    original = model(nodes, {"x": ["N", 4]}, weights={"axis": 0, "two": 2, "limit": 150})
    refuses(original, model([node("Neg", ["x"], ["y"])], {"x": ["N", 4]}), r"off by", {"N": 64})
    refuses(original, model([node("Identity", ["x"], ["y"])], {"x": ["N", 4]}), "off by", {"N": 1000})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["?", "-1", "None", "unk__17", "", None])
def test_unnamed_dimensions_are_unequal(name: str | None) -> None:
    shape: Shape = [1, 2, name, name]
    transposed = model([node("Transpose", ["x"], ["y"], perm=[0, 1, 3, 2])], {"x": shape})
    nodes = [node("Shape", ["x"], ["shape"]), node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2])]
    swapped = model([*nodes, node("Reshape", ["t", "shape"], ["y"])], {"x": shape})
    assert dynamic_dimension_keys(transposed) == ["x[2]", "x[3]"]
    refuses(transposed, swapped, "became|cannot run", {"?": 16})
    refuses(transposed, swapped, "became|cannot run", {"x[2]": 16, "x[3]": 16})
    square: dict[str, Shape] = {"x": [1, 2, "n", "n"]}
    named = [model(list(m.graph.node), square) for m in (transposed, swapped)]
    check_candidate(named[0], named[1], CPU, sizes={"n": 16})


def test_sizes_where_the_original_does_not_run_are_left_out() -> None:
    pairs = [node("Reshape", ["x", "pairs"], ["p"]), node("Relu", ["p"], ["y"])]
    turned = [node("Relu", ["x"], ["r"]), node("Reshape", ["r", "pairs"], ["y"])]
    inputs: dict[str, Shape] = {"x": ["N", 3]}
    weights = {"pairs": [-1, 2, 3]}
    found = check_candidate(model(pairs, inputs, weights=weights), model(turned, inputs, weights=weights), CPU, sizes={"N": 6})
    assert any("N=4" in name for name in found.inputs)
    assert not any("N=7" in name for name in found.inputs)
    assert any("sizes at which the original does not run" in name for name in found.left_out)


def test_dimensions_of_which_one_is_a_sum_over_another_grow_together() -> None:
    inputs: dict[str, Shape] = {"x": ["past", 4], "new": ["length", 4], "total": ["all", 4]}
    joined = [node("Concat", ["x", "new"], ["c"], axis=0), node("Add", ["c", "total"], ["y"])]
    sizes = {"past": 5, "length": 3, "all": 8}
    found = check_candidate(model(joined, inputs), model(joined, inputs), CPU, sizes=sizes)
    assert {"random (past=6, length=3, all=9)", "random (past=5, length=4, all=9)"} < {*found.inputs}


def test_sizes_have_mixed_residues_and_stand_around_constants() -> None:
    nodes = [node("Slice", ["x", "zero", "end", "zero"], ["y"])]
    proto = model(nodes, {"x": ["N", "M"]}, weights={"zero": [0], "end": [77]})
    assert telling_constants(proto) == [77]
    drawn = list(sizes_to_check(proto, {"N": 8, "M": 8}))
    ns = {sizes["N"] for sizes in drawn if "N" in sizes}
    assert {0, 1, 2, 3, 4, 76, 77, 78, 1000} <= ns
    assert {n % 8 for n in ns} == set(range(8))
    assert any(sizes.get("N") != sizes.get("M") for sizes in drawn)
    assert list(sizes_to_check(model(nodes, {"x": [4, 4]}, weights={"zero": [0], "end": [77]}), {})) == []


def compared_with(value: str, *nodes: NodeProto, weights: Mapping[str, object]) -> ModelProto:
    """Return a model that doubles its input only if the number of rows is less than a value that the nodes compute."""
    decided = [node("Shape", ["x"], ["n"], end=1), node("Less", ["n", value], ["c"]), node("Where", ["c", "d", "x"], ["y"])]
    return model([*nodes, node("Add", ["x", "x"], ["d"]), *decided], {"x": ["N", 4]}, weights=weights)


def test_sizes_stand_around_constants_that_are_computed_from_constants() -> None:
    squared = compared_with("m", node("Mul", ["a", "a"], ["m"]), weights={"a": [50]})
    assert telling_constants(squared) == [2500]
    assert {2499, 2500, 2501} <= {sizes.get("N") for sizes in sizes_to_check(squared, {"N": 8})}
    refuses(squared, model([node("Add", ["x", "x"], ["y"])], {"x": ["N", 4]}), "off by", {"N": 8})
    chain = [
        node("Constant", [], ["b"], value_ints=[30, 7]),
        node("Gather", ["b", "one"], ["g"]),
        node("Add", ["g", "a"], ["s"]),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "f"], ["q"]),
        node("Cast", ["q"], ["m"], to=TensorProto.INT64),
    ]
    assert telling_constants(compared_with("m", *chain, weights={"a": [50], "one": [1]})) == [57 * 57]
    rows = [node("Shape", ["table"], ["t"], end=1), node("Sub", ["t", "a"], ["m"])]
    assert telling_constants(compared_with("m", *rows, weights={"a": [50], "table": [[1, 2]] * 400})) == [350]


def test_constants_that_cannot_be_computed_are_left_out() -> None:
    for wrong in (node("Mul", ["a", "b"], ["m"]), node("Reshape", ["a", "b"], ["m"]), node("Unheard", ["a"], ["m"])):
        found = telling_constants(compared_with("m", wrong, weights={"a": [50, 60], "b": [7, 8, 9]}))
        assert {50, 60} <= {*found} <= {7, 8, 9, 50, 60}
    text = compared_with("m", node("Cast", ["a"], ["m"], to=TensorProto.STRING), weights={"a": [50]})
    assert telling_constants(text) == [50]


def test_constants_are_read_in_branches_and_in_functions() -> None:
    nodes = [node("Mul", ["a", "b"], ["m"]), *compared_with("m", weights={}).graph.node]
    proto = model(nodes, {"x": ["N", 4]}, weights={"a": [50], "b": [60]})
    constant = node("Constant", [], ["b"], value_int=60)
    for graph in (proto.graph, helper.make_graph([constant, *nodes], "b", [], list(proto.graph.output))):
        again = model([node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)], {"x": ["N", 4]}, weights={"a": [50]})
        assert telling_constants(again) == [3000]
    call = model([node("F", ["x"], ["y"], domain="local")], {"x": ["N", 4]})
    body = [node("Constant", [], ["a"], value_int=50), constant, *nodes]
    opsets = [helper.make_opsetid("", 17)]
    call.functions.append(helper.make_function("local", "F", ["x"], ["y"], body, opsets))
    assert telling_constants(call) == [3000]


def test_one_dimension_is_empty_beside_others_that_are_not() -> None:
    proto = model([node("Concat", ["x", "y"], ["z"], axis=0)], {"x": ["a", 4], "y": ["b", 4]})
    drawn = list(sizes_to_check(proto, {"a": 1, "b": 1}))[:20]
    assert all(any(one.get(name) == 0 < one.get(other, 0) for one in drawn) for name, other in ("ab", "ba"))
    assert all({name: 0} in drawn[:9] for name in "ab")


# Values


def binary(*nodes: NodeProto, weights: Mapping[str, object] | None = None, inputs: str = "xyz") -> ModelProto:
    return model(nodes, {name: [16, 32] for name in inputs}, ["o"], weights)


def test_a_mask_that_swallows_a_term_is_refused() -> None:
    whole = [node("Sub", ["x", "y"], ["d"]), node("Relu", ["d"], ["r"]), node("Add", ["r", "z"], ["o"])]
    lost = [
        node("Min", ["y", "x"], ["m"]),
        node("Sub", ["x", "m"], ["d"]),
        node("Add", ["d", "z"], ["o"]),
    ]  # fmt: skip
    swallowed = [node("Min", ["y", "x"], ["m"]), node("Sub", ["z", "m"], ["d"]), node("Add", ["d", "x"], ["o"])]
    check_candidate(binary(*whole), binary(*whole), CPU)
    refuses(binary(*whole), binary(*swallowed), "masked|inf")
    with pytest.raises(CheckFailedError, match="inf"):
        check_candidate(binary(*whole), binary(*lost), CPU)


def test_rounding_on_purpose_stays() -> None:
    magic = binary(
        node("Add", ["x", "magic"], ["t"]), node("Sub", ["t", "magic"], ["o"]), weights={"magic": 12582912.0}, inputs="x"
    )
    plain, rounded = (binary(node(kind, ["x"], ["o"]), inputs="x") for kind in ("Identity", "Round"))
    refuses(magic, plain, "rounds on purpose")
    with pytest.raises(CheckFailedError, match="rounds on purpose"):
        check_candidate(magic, plain, CPU, CheckSettings(adversarial=False))
    check_candidate(magic, rounded, CPU, CheckSettings(adversarial=False))
    with pytest.raises(CheckFailedError, match="off by"):
        check_candidate(rounded, plain, CPU, CheckSettings(adversarial=False))


def test_the_low_part_of_a_sum_is_not_nothing() -> None:
    low = [
        node("Add", ["x", "y"], ["s"]),
        node("Sub", ["s", "x"], ["b"]),
        node("Sub", ["y", "b"], ["o"]),
    ]  # fmt: skip
    nothing = [node("Sub", ["y", "y"], ["n"]), node("Mul", ["n", "x"], ["o"])]
    with pytest.raises(CheckFailedError, match="rounds on purpose"):
        check_candidate(binary(*low, inputs="xy"), binary(*nothing, inputs="xy"), CPU, CheckSettings(adversarial=False))


def test_what_overflows_on_the_way_is_refused() -> None:
    positive = [node("Abs", [n], [f"{n}a"]) for n in "xy"] + [node("Add", [f"{n}a", "e"], [f"{n}b"]) for n in "xy"]
    logs = [node("Log", ["xb"], ["p"]), node("Log", ["yb"], ["q"]), node("Add", ["p", "q"], ["o"])]
    product = [node("Mul", ["xb", "yb"], ["p"]), node("Log", ["p"], ["o"])]
    small = {"e": 1e-3}
    refuses(
        binary(*positive, *logs, weights=small, inputs="xy"), binary(*positive, *product, weights=small, inputs="xy"), "inf"
    )
    divided = [node("Div", ["z", "x"], ["a"]), node("Div", ["a", "y"], ["o"])]
    once = [node("Mul", ["x", "y"], ["p"]), node("Div", ["z", "p"], ["o"])]
    refuses(binary(*divided), binary(*once), "huge|tiny")
    bounded = [node("Sigmoid", [n], [f"{n}a"]) for n in "xy"] + [node("Add", [f"{n}a", "e"], [f"{n}b"]) for n in "xy"]
    check_candidate(
        binary(*bounded, *logs, weights=small, inputs="xy"), binary(*bounded, *product, weights=small, inputs="xy"), CPU
    )


def test_nothing_is_asked_of_what_overflows_in_the_original() -> None:
    """If the square q overflows, `1 / (1 + 1 / q)` is 1, and `q / (1 + q)` is NaN.

    The check must accept this with a float64 reference (Identity) and without one (QuickGelu).
    """

    def share(*nodes: NodeProto, end: NodeProto) -> ModelProto:
        odd = [node("Mul", ["x", "nought"], ["w"]), node("Add", ["v", "w"], ["n"])]  # NaN if x is infinite
        weights = {"one": 1.0, "nought": 0.0}
        proto = binary(node("Mul", ["x", "x"], ["q"]), *nodes, *odd, end, weights=weights, inputs="x")
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return proto

    inverse = [node("Div", ["one", "q"], ["i"]), node("Add", ["i", "one"], ["d"]), node("Div", ["one", "d"], ["v"])]
    direct = [node("Add", ["q", "one"], ["d"]), node("Div", ["q", "d"], ["v"])]
    for end in (node("Identity", ["n"], ["o"]), node("QuickGelu", ["n"], ["o"], domain="com.microsoft")):
        check_candidate(share(*inverse, end=end), share(*direct, end=end), CPU)
        wrong = [*direct[:1], node("Div", ["one", "d"], ["v"])]
        with pytest.raises(CheckFailedError, match="random inputs"):
            check_candidate(share(*inverse, end=end), share(*wrong, end=end), CPU)


def test_one_infinity_is_not_a_row_of_nan() -> None:
    v = weight(32)
    scaled = model([node("Mul", ["x", "v"], ["y"])], {"x": [4, 16, 32]}, weights={"v": v})
    refuses(scaled, model([node("MatMul", ["x", "d"], ["y"])], {"x": [4, 16, 32]}, weights={"d": np.diag(v)}), "nan instead of")


def test_a_guarded_division_stays_guarded() -> None:
    def masked(*nodes: NodeProto) -> ModelProto:
        count = [node("Cast", ["mask"], ["ones"], to=TensorProto.FLOAT), node("ReduceSum", ["ones", "one"], ["count"])]
        weights = {"one": [1], "zero": 0.0, "two": 2.0}
        return model([*count, *nodes], {"x": [8, 16, 4], "mask": [8, 16, 1]}, ["o"], weights, masks=["mask"])

    def guarded(by: str) -> list[NodeProto]:
        return [node("Div", ["x", by], ["s"]), node("Where", ["mask", "s", "zero"], ["o"])]

    def bare(by: str) -> list[NodeProto]:
        return [node("Where", ["mask", "x", "zero"], ["s"]), node("Div", ["s", by], ["o"])]

    refuses(masked(*guarded("count")), masked(*bare("count")), "nan instead of 0")
    check_candidate(masked(*guarded("two")), masked(*bare("two")), CPU)


def test_an_error_in_a_small_row_is_not_hidden_by_a_large_one() -> None:
    sizes = np.array([[1e6], [1.0]])

    def rows(*wrong: float) -> ModelProto:
        nodes = [node("Mul", ["x", "s"], ["y"])]
        return model(nodes, {"x": [2, 64]}, weights={"s": sizes * np.array(wrong).reshape(2, 1)})

    refuses(rows(1, 1), rows(1, 1.001), r"at \[1, \d+\]")
    check_candidate(rows(1, 1), rows(1, 1 + 2**-21), CPU)


@pytest.mark.slow
def test_sums_in_another_order_pass_on_all_values() -> None:
    parts = {f"w{i}": weight(64, 48) * (i + 1) for i in range(3)}
    nodes = [node("MatMul", ["x", name], [f"m{name}"]) for name in parts]
    apart = [*nodes, node("Sum", [f"m{name}" for name in parts], ["s"]), node("Softmax", ["s"], ["y"])]
    merged = [node("MatMul", ["x", "w"], ["s"]), node("Softmax", ["s"], ["y"])]
    for end in ("Softmax", "Relu", "Tanh"):
        apart[-1], merged[-1] = node(end, ["s"], ["y"]), node(end, ["s"], ["y"])
        whole = model(merged, {"x": ["N", 64]}, weights={"w": sum(parts.values())})
        check_candidate(model(apart, {"x": ["N", 64]}, weights=parts), whole, CPU, sizes={"N": 32})


def test_normalization_of_constant_rows_passes_in_another_form() -> None:
    weights = {"g": weight(32), "b": weight(32), "e": 1e-5, "two": 2.0}
    mean = [node("ReduceMean", ["x"], ["m"], axes=[-1]), node("Sub", ["x", "m"], ["d"])]
    nodes = [*mean, node("Mul", ["d", "d"], ["q"]), node("ReduceMean", ["q"], ["v"], axes=[-1]), node("Add", ["v", "e"], ["w"])]
    nodes += [
        node("Sqrt", ["w"], ["r"]),
        node("Div", ["d", "r"], ["n"]),
        node("Mul", ["n", "g"], ["k"]),
        node("Add", ["k", "b"], ["y"]),
    ]
    fused = [node("LayerNormalization", ["x", "g", "b"], ["y"], epsilon=1e-5)]
    check_candidate(model(nodes, {"x": [8, 32]}, weights=weights), model(fused, {"x": [8, 32]}, weights=weights), CPU)


def test_a_tile_may_hold_an_infinity_of_its_image_but_not_another() -> None:
    kernel = {"k": weight(4, 4, 3, 3), "d": np.diag(weight(24))}
    proto = model([node("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1])], {"x": [1, 4, 24, 24]}, weights=kernel)
    assert image_inputs(proto) == {"x"}
    x = weight(1, 4, 24, 24)
    x[0, 1, 12, 12] = np.inf
    plain, tiled = (np.asarray(Reference(proto, tiles=tiles).run({"x": x})[0]) for tiles in (False, True))
    odd = [np.argwhere(~np.isfinite(y[0, 0])) for y in (plain, tiled)]
    assert [(at.min(), at.max()) for at in odd] == [(11, 13), (6, 18)]
    np.testing.assert_array_equal(plain[np.isfinite(tiled)], tiled[np.isfinite(tiled)])


def test_branches_merged_by_identity_kernels_and_enlarged_ones_pass() -> None:
    """An infinite pixel makes its neighbours NaN only in the merged convolution, where the infinity is multiplied by zero
    weights.
    """
    image: dict[str, Shape] = {"x": [1, 4, "H", "W"]}
    wide, narrow = weight(4, 4, 3, 3), weight(4, 4, 1, 1)
    identity = np.zeros_like(wide)
    identity[range(4), range(4), 1, 1] = 1
    enlarged = np.pad(narrow, [(0, 0), (0, 0), (1, 1), (1, 1)])
    branches = [node("Conv", ["x", "a"], ["p"], pads=[1] * 4), node("Conv", ["x", "b"], ["q"])]
    merged = node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    residual = model([*branches, node("Sum", ["p", "q", "x"], ["y"])], image, weights={"a": wide, "b": narrow})
    check_candidate(residual, model([merged], image, weights={"w": wide + enlarged + identity}), CPU, sizes={"H": 24, "W": 24})
    beside = model([*branches, node("Concat", ["p", "q"], ["y"], axis=1)], image, weights={"a": wide, "b": narrow})
    check_candidate(
        beside, model([merged], image, weights={"w": np.concatenate([wide, enlarged])}), CPU, sizes={"H": 24, "W": 24}
    )


def test_values_are_a_function_of_the_seed_and_hold_what_they_say() -> None:
    ports = [Port("x", np.dtype(np.float32), (8, 16)), Port("m", np.dtype(np.bool_), (8, 16))]
    values = {v.name: v.make() for v in adversarial_values(ports, 3, None, DRAWN)}
    again = {v.name: v.make() for v in adversarial_values(ports, 3, None, DRAWN)}
    assert all(np.array_equal(values[n][p], again[n][p], equal_nan=p == "x") for n in values for p in "xm")
    assert np.isnan(values["one NaN in x"]["x"]).sum() == np.isinf(values["one infinity in x"]["x"]).sum() == 1
    assert (values["masked"]["x"] == -1e9).any()
    assert (values["lowest"]["x"] == np.finfo(np.float32).min).any()
    assert 0 < np.abs(values["denormal"]["x"]).max() < np.finfo(np.float32).tiny
    shares = {v["m"].mean() for v in values.values()}
    assert {0.0, 1.0} < shares


def test_trials_at_several_sizes_name_them() -> None:
    from superopt.runtime.check import CheckSizes

    proto = model([node("Relu", ["x"], ["y"])], {"x": ["N", 4]})
    found = check_all(proto, proto, CPU, [CheckSizes(f"N={n}", {"N": n}, 60.0) for n in (8, 9)])
    assert {"random (N=8)", "random (N=9)", "masked (N=9)", "random (N=0)"} < {*found.inputs}
    assert found.reference == "float64"


def test_integer_inputs_that_are_numbers_have_any_value() -> None:
    given = {name: [2, 3] for name in ("ids", "count", "rows", "divisor", "table")}
    nodes = [
        node("Equal", ["ids", "pad"], ["is_pad"]),
        node("Cast", ["is_pad"], ["mask"], to=TensorProto.FLOAT),
        node("Add", ["count", "count"], ["twice"]),
        node("Cast", ["twice"], ["number"], to=TensorProto.FLOAT),
        node("Gather", ["embedding", "rows"], ["row"]),
        node("Div", ["count", "divisor"], ["quotient"]),
        node("Cast", ["quotient"], ["part"], to=TensorProto.FLOAT),
        node("Reshape", ["mask", "table"], ["reshaped"]),
    ]
    weights = {"pad": np.array(50256, np.int64), "end": np.array(2**63 - 1), "embedding": np.ones((5, 2), np.float32)}
    proto = model(nodes, given, ["number", "row", "part", "reshaped"], weights=weights)
    for port in proto.graph.input:
        port.type.tensor_type.elem_type = TensorProto.INT64
    assert number_inputs(proto) == {"ids", "count"}
    assert integer_constants(proto) == (50256,)
    ports = [Port(name, np.dtype(kind), (64,)) for name, kind in (("ids", np.int64), ("count", np.uint8), ("rows", np.int64))]
    values = adversarial_values(ports, 3, None, DRAWN, frozenset(), frozenset({"ids", "count"}), (50256,))
    small, large, near = (one.make() for one in values[:3])
    assert small["ids"].max() == 10
    assert large["ids"].min() < -500 < 500 < large["ids"].max()
    assert {*near["ids"].tolist()} == {50255, 50256, 50257}
    assert {*large["count"].tolist()} >= {0, 255}
    assert all(feeds["rows"].max() <= 1 for feeds in (small, large, near))


def test_numbers_that_few_integers_show_are_checked() -> None:
    """The candidate is 0 at all integers. The original is not 0 in float16 for integers from 1000 on."""
    scaled = [
        node("Cast", ["n"], ["h"], to=TensorProto.FLOAT16),
        node("Mul", ["h", "a"], ["p"]),
        node("Mul", ["p", "a"], ["y"]),
    ]
    zero = [node("Cast", ["n"], ["h"], to=TensorProto.FLOAT16), node("Mul", ["h", "a"], ["y"])]
    protos = []
    for nodes, factor in ((scaled, 2e-4), (zero, 0.0)):
        proto = model(nodes, {"n": [64]}, ["y"], weights={"a": np.array(factor, np.float16)})
        proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
        protos.append(proto)
    with pytest.raises(CheckFailedError, match="integers up to 1000"):
        check_candidate(protos[0], protos[1], CPU)
