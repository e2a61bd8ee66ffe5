"""The numerical check: its float64 reference compared with ONNX Runtime, and the results that it accepts and refuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.child.process import reuse_child
from superopt.errors import CheckFailedError, InvalidModelError, ProviderError, RuntimeMissingError
from superopt.policy import CHECK
from superopt.protobuf.stored import StoredModel
from superopt.runtime.bounds import index_bounds
from superopt.runtime.check import CheckSettings, _Bench, check_candidate
from superopt.runtime.input_source import DRAWN
from superopt.runtime.reference import NoReferenceError, Reference
from superopt.runtime.rounding import ELSEWHERE, OutputPair
from superopt.runtime.session import Array, Device, Port, Session, random_inputs, runtime
from superopt.runtime.trial_runs import TrialRuns

pytestmark = pytest.mark.slow

CPU = Device()
RNG = np.random.default_rng(7)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
    *,
    kind: int = TensorProto.FLOAT,
    domains: Sequence[tuple[str, int]] = (("", 18),),
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*d) for d in domains], ir_version=8)


def copied(proto: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(proto)
    return copy


def weight(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
    }
    mode = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if mode == "NOTSET":
        rows, columns = kernel
        attributes["pads"] = [draw(st.integers(0, end - 1)) for end in (rows, columns, rows, columns)]
        attributes["dilations"] = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    else:
        attributes["auto_pad"] = mode
        attributes["strides"] = tuple(map(min, attributes["strides"], kernel))  # ONNX Runtime refuses larger strides
    return attributes


def agrees(node: NodeProto, inputs: Mapping[str, Sequence[int]], weights: Mapping[str, Array] | None = None) -> None:
    proto = model([node], inputs, ["y"], weights, domains=[("", 19)])
    proto.ir_version = 9
    session = Session(proto, CPU, optimize=False)
    feeds = random_inputs(session.inputs, 3)
    try:
        (got,) = session.run(feeds)
    except InvalidModelError:
        reject()  # ONNX Runtime refuses some images that are smaller than the window
    (exact,) = map(np.asarray, Reference(proto).run(feeds))
    assert exact.dtype == np.float64
    assert got.shape == exact.shape
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(windows(), st.sampled_from([(1, 3, 4), (2, 2, 3), (4, 1, 2)]), st.sampled_from([(9, 8), (2, 2), (1, 3)]))
def test_reference_convolution_is_onnx_runtimes(
    window: dict[str, Any], channels: tuple[int, int, int], image: tuple[int, int]
) -> None:
    group, depth, features = channels
    w = weight(group * features, depth, *window["kernel_shape"])
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=group, **window)
    agrees(node, {"x": (2, group * depth, *image)}, {"w": w, "b": weight(group * features)})


@settings(max_examples=60, deadline=None)
@given(windows(), st.booleans(), st.booleans(), st.sampled_from([(9, 8), (2, 2), (1, 3)]))
def test_reference_pooling_is_onnx_runtimes(window: dict[str, Any], ceil: bool, counted: bool, image: tuple[int, int]) -> None:
    if "auto_pad" not in window:
        window = window | {"ceil_mode": int(ceil)}
    agrees(helper.make_node("MaxPool", ["x"], ["y"], **window), {"x": (2, 3, *image)})
    window = window | {"count_include_pad": int(counted)}
    agrees(helper.make_node("AveragePool", ["x"], ["y"], **window), {"x": (2, 3, *image)})


def test_reference_normalizes_by_the_stored_statistics_at_old_opsets() -> None:
    stored = {name: RNG.uniform(0.5, 2.0, 3).astype(np.float32) for name in ("scale", "bias", "mean", "variance")}
    nodes = [helper.make_node("BatchNormalization", ["x", *stored], ["y"], momentum=0.9)]
    proto = model(nodes, {"x": (2, 3, 5, 5)}, ["y"], stored, domains=(("", 11),))
    x = RNG.standard_normal((2, 3, 5, 5)).astype(np.float32)
    exact, own = map(np.asarray, (*Reference(proto).run({"x": x}), *Session(proto, CPU).run({"x": x})))
    assert np.allclose(exact, own, atol=1e-5)


def test_reference_fills_tensors_with_zeros_of_float64_by_default() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ScatterElements", ["zeros", "places", "x"], ["added"], axis=0, reduction="add"),
        helper.make_node("Add", ["added", "x"], ["y"]),
    ]
    proto = model(nodes, {"x": (2, 3)}, ["y"], {"places": np.array([[1, 0, 1], [1, 1, 0]])})
    x = weight(2, 3)
    exact, own = map(np.asarray, (*Reference(proto).run({"x": x}), *Session(proto, CPU).run({"x": x})))
    assert exact.dtype == np.float64
    assert np.allclose(exact, own, atol=1e-6)


def test_rounding_leaves_whole_exponents() -> None:
    proto = model([helper.make_node("Pow", ["x", "three"], ["y"])], {"x": (50,)}, ["y"], {"three": np.array(3, np.float32)})
    x = np.full(50, -1.1, np.float32)
    (rounded,) = map(np.asarray, Reference(proto).run_rounded({"x": x}, seed=0))
    assert 0 < np.abs(rounded - x**3).max() < 1e-6


def test_large_tensors_are_rounded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": (5, 8)}, ["y"])
    x = np.geomspace(1e-30, 1e30, 40, dtype=np.float32).reshape(5, 8)
    (whole,) = map(np.asarray, Reference(proto).run_rounded({"x": x}, seed=0))
    monkeypatch.setattr("superopt.runtime.reference.CHECK", replace(CHECK, max_rounded_elements=7))
    (parts,) = map(np.asarray, Reference(proto).run_rounded({"x": x}, seed=0))
    assert np.array_equal(whole, parts)
    assert not np.array_equal(whole, x.astype(float) ** 2)


def test_rounding_leaves_the_scales_of_images() -> None:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    proto = model(nodes, {"x": (1, 1, 5, 5)}, ["y"], {"scales": np.array([1, 1, 2, 2], np.float32)})
    x = RNG.standard_normal((1, 1, 5, 5)).astype(np.float32)
    assert {np.asarray(Reference(proto).run_rounded({"x": x}, seed)[0]).shape for seed in range(8)} == {(1, 1, 10, 10)}


def test_reference_gathers_elements() -> None:
    indices = RNG.integers(-4, 4, (1, 5, 3))
    agrees(helper.make_node("GatherElements", ["x", "i"], ["y"], axis=2), {"x": (1, 6, 4)}, {"i": indices})


def test_reference_is_float64_past_casts_constants_and_subgraphs() -> None:
    third = helper.make_node("Constant", [], ["third"], value_float=1 / 3)
    cast = helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT16)
    back = helper.make_node("Cast", ["c"], ["b"], to=TensorProto.FLOAT)
    branch = helper.make_graph(
        [helper.make_node("Mul", ["b", "k"], ["r"])],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("r")],
        [numpy_helper.from_array(np.array(3, np.float32), "k")],
    )
    choice = helper.make_node("If", ["yes"], ["m"], then_branch=branch, else_branch=branch)
    proto = model(
        [third, cast, back, choice, helper.make_node("Mul", ["m", "third"], ["y"])], {"x": (4,)}, ["y"], {"yes": np.array(True)}
    )
    x = weight(4)
    (y,) = map(np.asarray, Reference(proto).run({"x": x}))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, x.astype(np.float64), rtol=1e-7)


def linear(w: Array, *, output: str = "y", extra: Sequence[NodeProto] = ()) -> ModelProto:
    return model([helper.make_node("MatMul", ["x", "w"], [output]), *extra], {"x": (4, w.shape[0])}, [output], {"w": w})


def test_what_is_infinite_in_both_agrees() -> None:
    logarithm = model([helper.make_node("Relu", ["x"], ["p"]), helper.make_node("Log", ["p"], ["y"])], {"x": (64,)}, ["y"])
    assert check_candidate(logarithm, logarithm, CPU).candidate_error < 1e-5


def test_a_model_agrees_with_itself_on_all_inputs() -> None:
    w = weight(64, 32)
    found = check_candidate(linear(w), linear(w), CPU, seconds=60)
    assert found.reference == "float64"
    assert found.inputs[:4] == ("random", "zero", "masked", "one infinity in x")
    assert found.inputs[-5:] == ("large", "negative", "tiny", "one", "random again")
    assert {"huge", "mixed", "tiny magnitudes", "constant rows", "lowest", "denormal", "-inf in x"} < {*found.inputs}
    assert check_candidate(linear(w), linear(w), CPU, CheckSettings(adversarial=False)).inputs == (
        "random",
        "zero",
        *found.inputs[-5:],
    )
    assert found.left_out == ()
    assert found.original_error == found.candidate_error < 1e-5


def test_rounding_of_another_order_is_accepted() -> None:
    w = weight(64, 32)
    halves = [
        helper.make_node("Split", ["x"], ["p", "q"], axis=1, num_outputs=2),
        helper.make_node("MatMul", ["p", "u"], ["a"]),
        helper.make_node("MatMul", ["q", "v"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    check_candidate(linear(w), model(halves, {"x": (4, 64)}, ["y"], {"u": w[:32], "v": w[32:]}), CPU)


@pytest.mark.parametrize("size", [1e-4, 1e-1])
def test_wrong_values_are_refused(size: float) -> None:
    w = weight(64, 32)
    wrong = w.copy()
    wrong[5, 7] += np.float32(size) * np.abs(w).max() * 10
    with pytest.raises(CheckFailedError, match="off by"):
        check_candidate(linear(w), linear(wrong), CPU)


def test_an_error_of_ten_units_in_the_last_place_is_accepted_and_of_forty_refused() -> None:
    w = weight(64, 32)

    def off(units: float) -> ModelProto:
        return linear(w * np.float32(1 + units * np.finfo(np.float32).eps))

    assert check_candidate(linear(w), off(10), CPU).candidate_error > 0
    with pytest.raises(
        CheckFailedError, match=r"in the worst case over all inputs: the candidate is off by .* where the original is off by"
    ):
        check_candidate(linear(w), off(40), CPU)


def cancelled(seed: int, parts: int, scale: float = 1.0) -> ModelProto:
    """Return sums of 512 terms that cancel up to rounding, each computed from `parts` partial sums.

    The sums hardly depend on the two inputs.
    """
    rng = np.random.default_rng(seed)
    u, w = rng.standard_normal((2, 512)), rng.standard_normal((512, 1))
    w -= np.linalg.pinv(u) @ (u @ w)
    weights = {"u": u.astype(np.float32), "s": np.array(scale, np.float32)}
    weights |= {f"w{n}": part.astype(np.float32) for n, part in enumerate(np.split(w, parts))}
    names = [f"h{n}" for n in range(parts)]
    nodes = [helper.make_node("MatMul", ["x", "u"], ["h"]), helper.make_node("Split", ["h"], names, axis=1, num_outputs=parts)]
    nodes += [helper.make_node("MatMul", [h, f"w{n}"], [f"p{n}"]) for n, h in enumerate(names)]
    nodes += [helper.make_node("Sum", [f"p{n}" for n in range(parts)], ["t"]), helper.make_node("Mul", ["t", "s"], ["y"])]
    return model(nodes, {"x": (1, 2)}, ["y"], weights)


def test_sums_that_vanish_but_for_rounding_pass_in_another_order() -> None:
    """The original may be nearly exact by chance. Inputs close by show how much rounding changes its result."""
    accepted = 0
    for seed in range(20):
        whole, halves = cancelled(seed, 1), cancelled(seed, 4)
        accepted += passes(whole, halves)
        assert not passes(whole, cancelled(seed, 1, scale=1e3))
    assert accepted >= 18


def test_sizes_are_not_rounded_with_the_values() -> None:
    """A scale slightly below 2 gives a smaller output, so the check must not round the scale at random."""

    def doubled(factor: float) -> ModelProto:
        nodes = [
            helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
            helper.make_node("Mul", ["r", "f"], ["y"]),
        ]
        weights = {"scales": np.array([1, 1, 2, 2], np.float32), "f": np.array(factor, np.float32)}
        return model(nodes, {"x": (1, 1, 2, 2)}, ["y"], weights)

    with pytest.raises(CheckFailedError, match="off by"):
        check_candidate(doubled(1.0), doubled(1.001), CPU)


def passes(original: ModelProto, candidate: ModelProto) -> bool:
    try:
        return check_candidate(original, candidate, CPU, seconds=60).candidate_error > 0
    except CheckFailedError:
        return False


def test_half_precision_weights_are_refused() -> None:
    w = weight(64, 32)
    with pytest.raises(CheckFailedError, match="float64"):
        check_candidate(linear(w), linear(w.astype(np.float16).astype(np.float32)), CPU)


def test_what_only_an_edge_input_shows_is_refused() -> None:
    plain = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (8,)}, ["y"])
    bounded = model([helper.make_node("Clip", ["x", "low", "high"], ["y"])], {"x": (8,)}, ["y"], {
        "low": np.array(0, np.float32), "high": np.array(100, np.float32),
    })  # fmt: skip
    with pytest.raises(CheckFailedError, match="huge inputs"):
        check_candidate(plain, bounded, CPU)
    with pytest.raises(CheckFailedError, match="large inputs"):
        check_candidate(plain, bounded, CPU, CheckSettings(adversarial=False))


def test_nan_where_the_original_has_none_is_refused() -> None:
    same = model([helper.make_node("Identity", ["x"], ["y"])], {"x": (8,)}, ["y"])
    divided = model(
        [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Div", ["s", "x"], ["y"])], {"x": (8,)}, ["y"]
    )
    with pytest.raises(CheckFailedError, match="nan instead of 0"):
        check_candidate(same, divided, CPU)


def test_rounding_may_decide_what_is_not_finite() -> None:
    infinite, missing, finite = (np.array([value, 1], np.float32) for value in (-np.inf, np.nan, 3))
    assert OutputPair(infinite, missing, [], None).fault(4.0) == OutputPair(infinite, finite, [], None).fault(4.0) == ELSEWHERE
    assert not OutputPair(infinite, missing, [finite], None).fault(4.0)
    assert "nan instead of 3" in OutputPair(finite, missing, [infinite], None).fault(4.0)


def test_values_below_the_least_magnitude_are_rounded_to_it_or_to_zero() -> None:
    square = model([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": (1000,)}, ["y"], kind=TensorProto.FLOAT16)
    reference = Reference(square)
    (y,) = map(np.asarray, reference.run_rounded({"x": np.full(1000, 1.2e-4, np.float16)}, seed=0))
    assert {*(y * 2**24).tolist()} == {0.0, 1.0}
    assert 0.1 < np.mean(y > 0) < 0.4
    (zeros,) = reference.run_rounded({"x": np.zeros(1000, np.float16)}, seed=0)
    assert not np.asarray(zeros).any()


@pytest.mark.parametrize(("kind", "subnormal"), [("float16", 9e-7), ("float32", 1e-38), ("float64", 2e-308)])
def test_errors_as_small_as_subnormal_numbers_do_not_count(kind: str, subnormal: float) -> None:
    original, zero = np.array([subnormal, 0], kind), np.zeros(2, kind)
    pair = OutputPair(original, zero, [], original.astype(np.float64))
    assert not pair.fault(4.0)
    assert pair.errors(4.0).candidate == 0.0
    larger = OutputPair(original * 8, zero, [], original.astype(np.float64) * 8)
    assert larger.fault(4.0)
    assert larger.errors(4.0).candidate > 0.5


def test_bits_are_compared_except_for_signs_of_zeros_and_bits_of_nan() -> None:
    wanted = np.array([0.0, np.nan, np.inf, 1.5], np.float32)
    assert not OutputPair(wanted, np.array([-0.0, np.nan, np.inf, 1.5], np.float32), [], None).difference()
    for place, other in enumerate((1e-45, 0.0, -np.inf, np.nextafter(np.float32(1.5), np.float32(2)))):
        found = wanted.copy()
        found[place] = other
        assert f"at [{place}], and must have the same bits (1 such of 4" in OutputPair(wanted, found, [], None).difference()
    assert "float64[4]" in OutputPair(wanted, wanted.astype(np.float64), [], None).difference()


def test_a_logarithm_of_joined_tensors_does_not_have_the_same_bits() -> None:
    inputs = {"x": (5,), "z": (6,)}
    parts = [helper.make_node("Exp", [name], [f"exp_{name}"]) for name in inputs]
    logs = [helper.make_node("Log", [f"exp_{name}"], [f"log_{name}"]) for name in inputs]
    split = model([*parts, *logs, helper.make_node("Concat", ["log_x", "log_z"], ["y"], axis=0)], inputs, ["y"])
    join = helper.make_node("Concat", ["exp_x", "exp_z"], ["e"], axis=0)
    joined = model([*parts, join, helper.make_node("Log", ["e"], ["y"])], inputs, ["y"])
    check_candidate(split, joined, CPU)
    with pytest.raises(CheckFailedError, match="same bits"):
        check_candidate(split, joined, CPU, CheckSettings(identical=True))


def test_an_operator_of_onnx_runtime_in_float16_has_a_reference_in_float32() -> None:
    proto = model(
        [
            helper.make_node("BiasGelu", ["x", "b"], ["h"], domain="com.microsoft"),
            helper.make_node("QuickGelu", ["h"], ["y"], domain="com.microsoft", alpha=1.5),
        ],
        {"x": ("rows", 64)},
        ["y"],
        {"b": RNG.standard_normal(64).astype(np.float16)},
        kind=TensorProto.FLOAT16,
        domains=(("", 18), ("com.microsoft", 1)),
    )
    x = RNG.standard_normal((3, 64)).astype(np.float16)
    reference = Reference(proto)
    exact, rounded = map(np.asarray, (*reference.run({"x": x}), *reference.run_rounded({"x": x}, 0)))
    (own,) = Session(proto, CPU).run({"x": x})
    assert exact.dtype == np.float64
    assert 0 < np.abs(exact - own.astype(np.float64)).max() < 2**-8
    assert 0 < np.abs(exact - rounded).max() < 2**-7


def test_another_interface_is_refused() -> None:
    w = weight(8, 8)
    with pytest.raises(CheckFailedError, match="outputs differ"):
        check_candidate(linear(w), linear(w, output="z"), CPU)
    with pytest.raises(CheckFailedError, match="inputs differ"):
        check_candidate(linear(w), linear(weight(16, 8)), CPU)
    reshaped = linear(w, extra=[helper.make_node("Transpose", ["y"], ["t"])])
    reshaped.graph.node[0].output[0], reshaped.graph.node[1].input[0], reshaped.graph.node[1].output[0] = "t", "t", "y"
    with pytest.raises(CheckFailedError, match="became"):
        check_candidate(linear(w), reshaped, CPU)


def test_without_a_float64_run_the_models_are_compared_directly() -> None:
    domains = [("", 18), ("com.microsoft", 1)]
    gelu = model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], {"x": (64,)}, ["y"], domains=domains)
    found = check_candidate(gelu, gelu, CPU)
    assert found.reference.startswith("original (")
    quick = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    with pytest.raises(CheckFailedError, match="where the original has"):
        check_candidate(gelu, model([quick], {"x": (64,)}, ["y"], domains=domains), CPU)


def test_weights_in_other_files_have_a_float64_run(tmp_path: Path) -> None:
    whole = linear(weight(8, 8))
    onnx.save(copied(whole), tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    content = (tmp_path / "m.onnx").read_bytes()
    expected = check_candidate(whole, whole, CPU)
    assert expected.reference == "float64"
    assert (
        check_candidate(tmp_path / "m.onnx", whole, CPU)
        == check_candidate(StoredModel(content, tmp_path), whole, CPU)
        == expected
    )


def test_an_original_whose_outputs_are_large_runs_on_few_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.runtime.check.CHECK", replace(CHECK, max_result_bytes=0))
    w = weight(8, 8)
    found = check_candidate(linear(w), linear(w), CPU)
    assert len(found.inputs) == 4
    assert found.left_out


def body(*nodes: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str], shape: Sequence[int]) -> onnx.GraphProto:
    """Return the body of a Loop.

    The body reads the iteration, the condition and the carried values. It returns the condition, the carried values and the
    scan outputs.
    """
    info = helper.make_tensor_value_info
    given = [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, [])]
    given += [info(name, TensorProto.FLOAT, shape) for name in inputs]
    made = [info("goes", TensorProto.BOOL, []), *(info(name, TensorProto.FLOAT, shape) for name in outputs)]
    return helper.make_graph(nodes, "body", given, made)


@pytest.mark.parametrize("given", ["", "yes"])
def test_reference_loops_as_onnx_runtime_does(given: str) -> None:
    nodes = [
        helper.make_node("Identity", ["going"], ["goes"]),
        helper.make_node("MatMul", ["h", "w"], ["next"]),
        helper.make_node("Identity", ["next"], ["kept"]),
    ]
    loop = helper.make_node(
        "Loop", ["times", given, "x"], ["y", "rows"], body=body(*nodes, inputs=["h"], outputs=["next", "kept"], shape=(2, 4))
    )
    weights = {"w": weight(4, 4), "times": np.array(3), "yes": np.array(True)}
    proto = model([loop], {"x": (2, 4)}, ["y", "rows"], weights)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
    for got, exact in zip(Session(proto, CPU).run(feeds), map(np.asarray, Reference(proto).run(feeds)), strict=True):
        assert got.shape == exact.shape
        assert exact.dtype == np.float64
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


def node_case(
    op: str, shape: tuple[int, ...], *weights: Array | None, opset: int = 17, outputs: int = 1, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one node that reads the input `x` and the weights, and random values of the input."""
    named = {f"w{n}": w for n, w in enumerate(weights) if w is not None}
    names = [f"y{n}" for n in range(outputs)]
    read = ["x", *(f"w{n}" if w is not None else "" for n, w in enumerate(weights))]
    proto = model([helper.make_node(op, read, names, **attributes)], {"x": shape}, names, named, domains=[("", opset)])
    return proto, {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("images", [(9,), (9, 8), (5, 4, 6)])
def test_the_reference_agrees_with_onnx_runtime_on_images_of_any_rank(images: tuple[int, ...]) -> None:
    rank, shape = len(images), (2, 4, *images)
    grouped, whole = (weight(4, count, *(3,) * rank) for count in (3, 2))
    scales, sizes = np.array([1, 1, *(0.6,) * rank], np.float32), np.array([2, 4, *(n + 3 for n in images)])
    cases = [
        node_case("GlobalMaxPool", shape),
        node_case("ConvTranspose", shape, grouped, weight(6), group=2, dilations=(2,) * rank, pads=(1,) * 2 * rank),
        node_case("ConvTranspose", shape, whole, strides=(2,) * rank, output_padding=(1,) * rank),
        node_case("ConvTranspose", shape, whole, strides=(3,) * rank, auto_pad="SAME_UPPER"),
        node_case("ConvTranspose", shape, whole, strides=(2,) * rank, output_shape=[2 * n for n in images]),
        node_case("Resize", shape, None, None, sizes, mode="nearest", nearest_mode="floor"),
        node_case("Resize", shape, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric"),
        node_case("Resize", shape, None, scales, mode="linear", coordinate_transformation_mode="align_corners"),
        *(node_case(op, shape, opset=11, axis=1) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    ]
    for proto, feeds in cases:
        (found,), (exact,) = Session(proto, CPU).run(feeds), map(np.asarray, Reference(proto).run(feeds))
        assert exact.dtype == np.float64
        assert found.shape == exact.shape
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5, err_msg=str(proto.graph.node[0]))


def test_the_reference_has_no_recurrences_that_it_computes_differently() -> None:
    weights = weight(1, 16, 3), weight(1, 16, 4), weight(1, 32)
    plain, feeds = node_case("LSTM", (5, 2, 3), *weights, outputs=3, hidden_size=4)
    for found, exact in zip(Session(plain, CPU).run(feeds), map(np.asarray, Reference(plain).run(feeds)), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
    lengths = np.array([3, 5], np.int32)
    functions = ["Sigmoid", "Relu", "Tanh"]
    for proto, feeds in (
        node_case("LSTM", (5, 2, 3), *weights, lengths, outputs=3, hidden_size=4),
        node_case("LSTM", (5, 2, 3), *weights, outputs=3, hidden_size=4, clip=0.5),
        node_case("LSTM", (5, 2, 3), *weights, outputs=3, hidden_size=4, activations=functions),
    ):
        with pytest.raises(NoReferenceError):
            Reference(proto).run(feeds)


def test_half_precision_models_are_checked() -> None:
    w = weight(16, 8).astype(np.float16)
    half = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (4, 16)}, ["y"], {"w": w}, kind=TensorProto.FLOAT16)
    found = check_candidate(half, half, CPU)
    assert found.reference == "float64"
    assert 0 < found.original_error < 0.01


def lookup(rows: int, *, offset: int = 0) -> ModelProto:
    nodes = [
        helper.make_node("Unsqueeze", ["ids", "axes"], ["u"]),
        helper.make_node("Add", ["u", "offset"], ["shifted"]),
        helper.make_node("Gather", ["table", "shifted" if offset else "u"], ["y"]),
    ]
    weights = {
        "table": np.arange(rows * 3, dtype=np.float32).reshape(rows, 3),
        "axes": np.array([0]),
        "offset": np.array(offset),
    }
    return model(nodes, {"ids": (7,)}, ["y"], weights, kind=TensorProto.INT64)


def test_ids_stay_inside_the_smallest_table() -> None:
    assert index_bounds(lookup(5)) == {"ids": 5}
    assert check_candidate(lookup(5), lookup(5), CPU).inputs == ("random", "random again", "all off", "one row off", "all on")
    with pytest.raises(CheckFailedError, match="cannot run"):
        check_candidate(lookup(5), lookup(5, offset=40), CPU)


def test_integer_outputs_must_be_the_same() -> None:
    def best(op: str) -> ModelProto:
        return model([helper.make_node(op, ["x"], ["y"], axis=0)], {"x": (16, 8)}, ["y"])

    check_candidate(best("ArgMax"), best("ArgMax"), CPU)
    with pytest.raises(CheckFailedError, match="elements are wrong"):
        check_candidate(best("ArgMax"), best("ArgMin"), CPU)


def test_what_elements_that_are_off_may_be_is_no_allowance_for_floats() -> None:
    """A float output whose difference is allowed on one input alone is refused if it differs as much on all inputs.

    An integer output of the same model (a label) does not change this.
    """
    w = weight(4, 64)

    def labelled(scale: float) -> ModelProto:
        nodes = [
            helper.make_node("Gemm", ["x", "w"], ["g"]),
            helper.make_node("Mul", ["g", "s"], ["y"]),
            helper.make_node("ArgMax", ["x"], ["label"], axis=1),
        ]
        return model(nodes, {"x": (4, 4)}, ["y", "label"], {"w": w, "s": np.array(scale, np.float32)})

    check_candidate(labelled(1.0), labelled(1.0), CPU)
    with pytest.raises(CheckFailedError, match="in the worst case over all inputs"):
        check_candidate(labelled(1.0), labelled(1.0 + 40 * 2.0**-23), CPU)


def test_open_extents_are_given_or_one() -> None:
    port = Port("x", np.dtype(np.float32), ("batch", 3))
    assert random_inputs([port])["x"].shape == (1, 3)
    assert random_inputs([port], sizes={"batch": 4})["x"].shape == (4, 3)


def test_a_provider_is_never_replaced_silently() -> None:
    with pytest.raises(ProviderError, match="unknown provider"):
        Device("tpu")
    try:
        placed = Session(linear(weight(8, 8)), Device("cuda")).placement.get("cuda", 0)
    except ProviderError:
        placed = -1
    assert placed


def test_identical_bits_are_required_without_graph_optimizations_too() -> None:
    """ONNX Runtime fuses these nodes to a Gelu. Without graph optimizations, the nodes and the Gelu give different bits."""
    nodes = [
        helper.make_node("Div", ["x", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["p"]),
        helper.make_node("Mul", ["x", "p"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["y"]),
    ]
    weights = {name: np.array(value, np.float32) for name, value in (("root", 2**0.5), ("one", 1), ("half", 0.5))}
    domains = [("", 18), ("com.microsoft", 1)]
    apart = model(nodes, {"x": (64, 32)}, ["y"], weights, domains=domains)
    fused = model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], {"x": (64, 32)}, ["y"], domains=domains)
    check_candidate(apart, fused, CPU)
    with pytest.raises(CheckFailedError, match="must have the same bits"):
        check_candidate(apart, fused, CPU, CheckSettings(identical=True))


def test_a_missing_runtime_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    try:
        with pytest.raises(RuntimeMissingError, match="ONNX Runtime is not installed: run `pip install"):
            Device()
    finally:
        runtime.cache_clear()


OPEN = '<ir_version: 10, opset_import: ["" : 20]> agraph (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
DYING = """
import os, sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
while True:
    request, *arguments = connection.recv()
    if request == "run" and any(not value.size for value in arguments[0].values()):
        os.abort()
    connection.send(("done", [("x", "tensor(float)", ["n", 4])] if request == "load" else None))
"""


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[None]:
    """Let child processes die when they run a model on an empty input."""
    (program := tmp_path / "dying.py").write_text(DYING)
    with reuse_child(program):
        yield


@pytest.mark.usefixtures("dying")
def test_a_run_that_kills_the_child_process_is_an_error() -> None:
    trials = TrialRuns(onnx.parser.parse_model(OPEN), Device())
    for size in (2, 0, 3, 0):
        feeds = {"x": np.ones((size, 4), np.float32)}
        if size:
            trials.require_runs(feeds)
        else:
            with pytest.raises(InvalidModelError, match="ONNX Runtime dies while running the model"):
                trials.require_runs(feeds)


@pytest.mark.usefixtures("dying")
def test_sizes_at_which_the_runtime_dies_are_left_out() -> None:
    proto = onnx.parser.parse_model(OPEN)
    found = check_candidate(proto, proto, Device(), sizes={"n": 3})
    assert any(name.endswith("sizes at which the original does not run") for name in found.left_out)
    assert not any("n=0" in name for name in found.inputs)
    assert any("n=1" in name for name in found.inputs)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("kernel", [(3, 2), (5,), (2, 3, 1)])
def test_a_convolution_in_blocks_of_rows_is_the_whole_convolution(kernel: tuple[int, ...], group: int) -> None:
    rank = len(kernel)
    attributes: dict[str, Any] = {"strides": (2,) * rank, "dilations": (2,) * rank, "pads": (3,) * rank + (9,) * rank}
    conv = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=group, **attributes)
    shape = (2, 3, 11, 7, 5)[: 2 + rank]
    proto = model([conv], {"x": shape}, ["y"], {"w": weight(6, 3 // group, *kernel), "b": weight(6)})
    feeds = {"x": weight(*shape)}
    (whole,) = Reference(proto).run(feeds)
    for elements in (1, 600):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("superopt.runtime.reference.CHECK", replace(CHECK, max_convolved_elements=elements))
            (found,) = Reference(proto).run(feeds)
        np.testing.assert_allclose(np.asarray(found), np.asarray(whole), rtol=1e-12, atol=1e-12)


def test_sizes_at_which_a_run_needs_much_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    per_element = CHECK.max_sized_run_bytes // 40
    monkeypatch.setattr(TrialRuns, "require_runs", lambda _, feeds: per_element * sum(v.size for v in feeds.values()))
    proto = onnx.parser.parse_model(OPEN)
    found = check_candidate(proto, proto, Device(), sizes={"n": 3})
    sized = {int(name.partition("n=")[2].rstrip(")")) for name in found.inputs if "n=" in name}
    assert sized >= {0, 1, 2, 3, 4, 7, 8, 10}
    assert max(sized) == 10
    assert any(name.endswith("sizes at which the original needs too much memory") for name in found.left_out)


def test_memory_that_a_process_needs_once_leaves_no_sizes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrialRuns, "require_runs", lambda *_: CHECK.fixed_run_bytes)
    ends = {"zero": np.array([0]), "end": np.array([5000])}
    proto = model([helper.make_node("Slice", ["x", "zero", "end", "zero"], ["y"])], {"x": ("n", 2)}, ["y"], ends)
    found = check_candidate(proto, proto, Device(), sizes={"n": 1})
    assert not any("memory" in name for name in found.left_out)
    assert any("n=5001" in name for name in found.inputs)


JOINED = """
    <ir_version: 10, opset_import: ["" : 20]>
    agraph (float[m, 4] a, float[n, 2] b) => (float[k, 6] y)
    <float one = {1}> { c = Concat <axis = 1> (a, b) d = Mul (c, one) y = CHANGE (d) }
"""


def test_outputs_that_depend_on_memory_that_was_not_written_are_not_compared() -> None:
    """Concat of extents 3 and 0 leaves the columns of the second tensor unwritten in ONNX Runtime."""
    before, after = (onnx.parser.parse_model(JOINED.replace("CHANGE", name)) for name in ("Relu", "Identity"))
    ones = {"a": np.ones((3, 4), np.float32)}
    with reuse_child():
        trials = TrialRuns(before, Device(), optimized=False)
        for count, expected in ((3, True), (0, False)):
            feeds = {**ones, "b": np.ones((count, 2), np.float32)}
            trials.require_runs(feeds)
            assert trials.is_repeatable(feeds) is expected
    found = check_candidate(before, before, Device(), sizes={"m": 3, "n": 3})
    assert any(name.endswith("sizes at which the original reads memory that it does not write") for name in found.left_out)
    assert any("m=0, n=0" in name for name in found.inputs)
    assert not any(name.endswith("n=0)") and "m=0" not in name for name in found.inputs)
    with pytest.raises(CheckFailedError):
        check_candidate(before, after, Device(), sizes={"m": 3, "n": 3})


def test_a_float64_run_that_fails_at_some_sizes_leaves_the_others() -> None:
    proto = model([helper.make_node("Exp", ["x"], ["y"])], {"x": (2, "W")}, ["y"])
    bench = _Bench(proto, CPU, 0, DRAWN, exact=True)
    feeds = {"x": np.zeros((2, 8), np.float32)}
    first = bench._ran("zero", feeds, ordinary=True)
    assert first.exact is not None
    reference = bench.reference
    assert reference is not None

    def failing(feeds: Mapping[str, Array], *, partial: bool = False) -> list[object]:
        raise NoReferenceError("cannot reshape")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "run", failing)
        assert bench._ran("narrow", feeds, ordinary=True).exact is None
    assert bench.reference is reference
    assert not bench.why
    assert len(bench.look_closer(first).nudged) > len(first.nudged)


PICKY = """
import sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
while True:
    request, *arguments = connection.recv()
    if request == "load":
        picky = b"Neg" in arguments[0] and not arguments[-1]
    if request == "run" and picky and any(not value.size for value in arguments[0].values()):
        connection.send(("failed", "a Neg of nothing"))
    else:
        connection.send(("done", [("x", "tensor(float)", ["n", 4])] if request == "load" else None))
"""


def test_a_candidate_that_needs_graph_optimizations_on_empty_inputs_is_refused(tmp_path: Path) -> None:
    (program := tmp_path / "picky.py").write_text(PICKY)
    original = onnx.parser.parse_model(OPEN)
    candidate = onnx.parser.parse_model(OPEN.replace("y = Relu(x)", "r = Relu(x) m = Neg(r) y = Neg(m)"))
    with reuse_child(program):
        check_candidate(original, original, Device(), sizes={"n": 3})
        with pytest.raises(CheckFailedError, match=r"n=0.*without graph optimizations.*a Neg of nothing"):
            check_candidate(original, candidate, Device(), sizes={"n": 3})


def test_later_samples_of_noise_show_where_a_kernel_jumps() -> None:
    """The forget gate of the LSTM is a sigmoid of the input, and the cell state is -1e9 times the gate."""
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["", "", "y"], hidden_size=1)
    weights = {"w": np.array([[[0], [0], [1], [0]]], np.float32), "r": np.zeros((1, 4, 1), np.float32)}
    weights |= {"h": np.zeros((1, 500, 1), np.float32), "c": np.full((1, 500, 1), -1e9, np.float32)}
    bench = _Bench(model([node], {"x": (1, 500, 1)}, ["y"], weights), CPU, 0, DRAWN, exact=True)
    feeds = {"x": np.random.default_rng(0).uniform(-17.5, -16.5, (1, 500, 1)).astype(np.float32)}
    run = bench.look_closer(bench._ran("tails", feeds, ordinary=False))

    def jumping(look: int) -> float:
        samples = np.array([np.asarray(sample[0], np.float64) for sample in bench.samples(run, look)])
        return float(np.mean(np.ptp(samples, axis=0) > 20))

    assert jumping(0) == 0
    assert jumping(1) > 0.3


def normalized_rows(gain: float) -> ModelProto:
    """Return a model that looks up float16 rows and normalizes them in float32. The squares exceed the range of float16."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["row"]),
        helper.make_node("Cast", ["row"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "wide"], ["square"]),
        helper.make_node("ReduceMean", ["square", "last"], ["mean"], keepdims=1),
        helper.make_node("Sqrt", ["mean"], ["root"]),
        helper.make_node("Div", ["wide", "root"], ["unit"]),
        helper.make_node("Mul", ["unit", "gain"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["y"], to=TensorProto.FLOAT16),
    ]
    table = np.random.default_rng(3).uniform(300, 900, (16, 8)).astype(np.float16)
    weights = {"table": table, "last": np.array([-1]), "gain": np.full(8, gain, np.float32)}
    return model(nodes, {"ids": [5]}, ["y"], weights, kind=TensorProto.INT64)


def test_intermediate_values_beyond_the_range_of_the_outputs_hide_no_wrong_result() -> None:
    original = normalized_rows(1.5)
    assert check_candidate(original, copied(original), CPU, CheckSettings()).outputs
    with pytest.raises(CheckFailedError, match="output 'y'"):
        check_candidate(original, normalized_rows(-4.5), CPU, CheckSettings())


def masked_attention(scale: float, output: float) -> ModelProto:
    """Return attention whose bias is the lowest number times `1 - mask`. The mask has integers."""
    rng = np.random.default_rng(5)
    weights: dict[str, Array] = {n: rng.standard_normal((8, 8)).astype(np.float32) for n in ("wq", "wk", "wv", "wo")}
    weights["wo"] *= np.float32(output)
    numbers = {"scale": scale, "one": 1.0, "lowest": np.finfo(np.float32).min}
    weights |= {name: np.array(number, np.float32) for name, number in numbers.items()} | {"axis": np.array([1])}
    nodes = [
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "m"], ["hidden"]),
        helper.make_node("Mul", ["hidden", "lowest"], ["low"]),
        helper.make_node("Unsqueeze", ["low", "axis"], ["bias"]),
        *(helper.make_node("MatMul", ["x", f"w{n}"], [n]) for n in "qkv"),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["biased"]),
        helper.make_node("Softmax", ["biased"], ["shares"]),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "wo"], ["y"]),
    ]
    proto = model(nodes, {"x": (2, 6, 8), "mask": (2, 6)}, ["y"], weights)
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    return proto


def test_noise_of_exact_masks_hides_no_wrong_attention() -> None:
    original = masked_attention(0.3, 1.0)
    assert passes(original, masked_attention(0.3, 1.0))
    assert not passes(original, masked_attention(1.0, 1.0))
    assert not passes(original, masked_attention(0.3, -1.0))


def dequantized(sign: int) -> ModelProto:
    w = np.random.default_rng(6).standard_normal((8, 3)).astype(np.float32)
    weights = {"scale": np.float32(0.02), "zero": np.uint8(128), "w": sign * w}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    return model(nodes, {"x": (4, 8)}, ["y"], {n: np.asarray(a) for n, a in weights.items()}, kind=TensorProto.UINT8)


def test_quantized_inputs_have_all_values() -> None:
    check_candidate(dequantized(1), dequantized(1), CPU)
    with pytest.raises(CheckFailedError, match="integers up to"):
        check_candidate(dequantized(1), dequantized(-1), CPU)


def normalized(width: int, *, fused: bool, gain: float = 1.0, kind: int = TensorProto.FLOAT) -> ModelProto:
    """Return a layer norm of the hyperbolic tangent. In constant rows, the result of separate nodes is a rounding error."""
    ones, zeros = np.full(width, gain, np.float32), np.zeros(width, np.float32)
    weights = {"last": np.array([-1]), "eps": np.float32(1e-5), "ones": ones, "zeros": zeros}
    parts = [
        helper.make_node("ReduceMean", ["t", "last"], ["m"]),
        helper.make_node("Sub", ["t", "m"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["s"]),
        helper.make_node("ReduceMean", ["s", "last"], ["v"]),
        helper.make_node("Add", ["v", "eps"], ["e"]),
        helper.make_node("Sqrt", ["e"], ["r"]),
        helper.make_node("Div", ["d", "r"], ["u"]),
        helper.make_node("Mul", ["u", "ones"], ["n"]),
    ]
    one = [helper.make_node("LayerNormalization", ["t", "ones", "zeros"], ["n"], epsilon=1e-5)]
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        *(one if fused else parts),
        helper.make_node("Cast", ["n"], ["y"], to=kind),
    ]
    return model(nodes, {"x": (4, width)}, ["y"], {n: np.asarray(a) for n, a in weights.items()})


@pytest.mark.parametrize("width", [48, 96, 192])
def test_rounding_errors_of_constant_rows_are_not_on_purpose(width: int) -> None:
    assert passes(normalized(width, fused=False), normalized(width, fused=True))
    assert passes(normalized(width, fused=True), normalized(width, fused=False))


def test_outputs_that_vanish_do_not_hide_a_wrong_gain() -> None:
    original = normalized(96, fused=False, kind=TensorProto.FLOAT16)
    assert passes(original, normalized(96, fused=True, kind=TensorProto.FLOAT16))
    assert not passes(original, normalized(96, fused=False, gain=1.055, kind=TensorProto.FLOAT16))


def guarded(*, padded: bool) -> ModelProto:
    """Return a softmax with two biases of the lowest number, whose sum overflows."""
    weights = {"one": np.float32(1), "lowest": np.finfo(np.float32).min, "causal": np.triu(np.ones((6, 6), np.float32), 1)}
    nodes = [
        helper.make_node("Sub", ["one", "mask"], ["hidden"]),
        helper.make_node("Mul", ["hidden", "lowest"], ["pad"]),
        helper.make_node("Mul", ["causal", "lowest"], ["later"]),
        helper.make_node("Add", ["pad", "later"], ["bias"]) if padded else helper.make_node("Identity", ["later"], ["bias"]),
        helper.make_node("Add", ["x", "bias"], ["scores"]),
        helper.make_node("Max", ["scores", "lowest"], ["finite"]),
        helper.make_node("Softmax", ["finite"], ["y"]),
    ]
    proto = model(nodes, {"x": (6, 6), "mask": (6, 6)}, ["y"], {n: np.asarray(a) for n, a in weights.items()})
    given = np.random.default_rng(8).integers(0, 2, (6, 6)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(given, "mask"))
    del proto.graph.input[1]
    return proto


def test_overflow_on_ordinary_inputs_hides_no_wrong_result() -> None:
    assert passes(guarded(padded=True), guarded(padded=True))
    assert not passes(guarded(padded=True), guarded(padded=False))
