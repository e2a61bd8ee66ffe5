"""Models of every element type and opset: parts that the algebra knows are rewritten, and all other parts pass through."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import superopt
from superopt.errors import CheckFailedError, InvalidModelError
from superopt.flows.optimized import Optimized
from superopt.rules.rule import parse_rules
from superopt.runtime.check import check_candidate
from superopt.runtime.session import Device, Session, random_inputs
from tests.rewriting import always_taken

pytestmark = pytest.mark.slow

FLOW = importlib.import_module("superopt.flows.optimize")
PREPARE = importlib.import_module("superopt.flows.prepare")
CPU = Device()
FACTOR = "factor: x @ y + x @ z => x @ (y + z) for x[2], y[2], z[2]"
info, node = helper.make_tensor_value_info, helper.make_node
FLOAT, FLOAT16, DOUBLE, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16
NEWEST = 26


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use one rule, and keep no times between tests."""
    monkeypatch.setattr(FLOW, "default_path", lambda: tmp_path / "times.sqlite")
    monkeypatch.setattr(PREPARE, "load_rules", lambda: parse_rules(FACTOR))


def model(
    *more: NodeProto,
    kind: int = FLOAT,
    opset: int = 18,
    inputs: Sequence[ValueInfoProto] = (),
    outputs: Sequence[ValueInfoProto] = (),
    weights: dict[str, Any] | None = None,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """Return a model that adds six products of x and weights to y, followed by the nodes `more`."""
    random = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    stored = {f"w{n}": random.standard_normal((96, 96)).astype(dtype) / 8 for n in range(6)} | (weights or {})
    nodes = [node("MatMul", ["x", f"w{n}"], [f"p{n}"]) for n in range(6)]
    sums = ["p0", *(f"s{n}" for n in range(1, 5)), "sum"]
    nodes += [node("Add", [sums[n - 1], f"p{n}"], [sums[n]]) for n in range(1, 6)]
    nodes.append(node("Relu", ["sum"], ["y"]))
    given, made = [info("x", kind, [64, 96]), *inputs], [info("y", kind, [64, 96]), *outputs]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    if opset < 9:
        given += [info(t.name, t.data_type, t.dims) for t in tensors]
    version = 3 if opset < 9 else helper.find_min_ir_version_for(imports[:1])
    return helper.make_model(
        helper.make_graph([*nodes, *more], "g", given, made, tensors), opset_imports=imports, ir_version=version
    )


def optimized(proto: onnx.ModelProto, fp: str = "relaxed") -> Optimized[onnx.ModelProto]:
    """Optimize the model, and require that the result is right and has one product in place of six."""
    found = superopt.optimize(proto, budget=60.0, moves=("rules",), fp=fp)
    assert found.report.accepted, found.report.reason
    assert [n.op_type for n in found.model.graph.node].count("MatMul") == 1
    assert found.model.opset_import == proto.opset_import
    assert found.model.ir_version == proto.ir_version
    check_candidate(proto, found.model, CPU)
    return found


@pytest.mark.parametrize("kind", [FLOAT16, FLOAT, DOUBLE])
def test_floats_are_rewritten_and_checked_against_a_float64_run(kind: int) -> None:
    rounding = optimized(model(kind=kind)).report.rounding
    assert rounding is not None
    assert rounding.reference == "float64"
    assert rounding.optimized < {"FLOAT16": 5e-3, "FLOAT": 1e-5, "DOUBLE": 1e-14}[TensorProto.DataType.Name(kind)]


@pytest.mark.parametrize("opset", [7, 9, 13, 21, NEWEST])
def test_opsets_are_kept(opset: int) -> None:
    optimized(model(opset=opset))


def test_bfloat16_passes_through() -> None:
    casts = [node("Cast", ["y"], ["narrow"], to=BFLOAT16), node("Cast", ["b"], ["wide"], to=FLOAT)]
    proto = model(
        *casts, inputs=[info("b", BFLOAT16, [2, 3])], outputs=[info("narrow", BFLOAT16, [64, 96]), info("wide", FLOAT, [2, 3])]
    )
    rounding = optimized(proto).report.rounding
    assert rounding is not None
    assert rounding.reference == "float64"
    session = Session(proto, CPU)
    feeds = random_inputs(session.inputs)
    _, narrow, wide = session.run(feeds)
    assert feeds["b"].dtype == narrow.dtype == np.dtype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(wide, feeds["b"].astype(np.float32))
    _, bound, _ = session.bind(feeds).outputs()
    np.testing.assert_array_equal(bound.astype(np.float32), narrow.astype(np.float32))


def test_two_types_in_one_model_are_islands_of_their_own() -> None:
    random = np.random.default_rng(1)
    more = [
        node("Cast", ["y"], ["wide"], to=FLOAT),
        *(node("MatMul", ["wide", name], [f"{name}.p"]) for name in ("u", "v")),
        node("Add", ["u.p", "v.p"], ["z"]),
    ]
    weights = {name: random.standard_normal((96, 512)).astype(np.float32) for name in ("u", "v")}
    found = superopt.optimize(
        model(*more, kind=FLOAT16, outputs=[info("z", FLOAT, [64, 512])], weights=weights), budget=60.0, moves=("rules",)
    )
    assert found.report.islands == 2
    assert found.report.accepted, found.report.reason
    assert [n.op_type for n in found.model.graph.node].count("MatMul") < 4


@pytest.mark.parametrize("opset", [13, 19])
def test_quantized_parts_stay_and_the_rest_is_rewritten_in_the_fast_mode(opset: int) -> None:
    more = [
        node("QuantizeLinear", ["y", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("DequantizeLinear", ["stored", "scale", "zero"], ["w"]),
        node("MatMul", ["d", "w"], ["m"]),
        node("QuantizeLinear", ["m", "scale", "zero"], ["z"]),
    ]
    weights = {
        "scale": np.float32(0.1),
        "zero": np.int8(3),
        "stored": np.random.default_rng(0).integers(-99, 99, (96, 96)).astype(np.int8),
    }
    proto = model(*more, opset=opset, outputs=[info("z", TensorProto.INT8, [64, 96])], weights=weights)
    found = superopt.optimize(proto, budget=60.0, moves=("rules",), fp="fast")
    assert found.report.accepted, found.report.reason
    assert found.report.rounding is not None
    assert found.report.rounding.reference == "float64"
    kinds = [n.op_type for n in found.model.graph.node]
    assert (kinds.count("MatMul"), kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (2, 2, 2)
    assert "stored" in {t.name for t in found.model.graph.initializer}


def sequences() -> onnx.ModelProto:
    more = [node("SplitToSequence", ["y"], ["rows"], axis=0), node("SequenceAt", ["rows", "which"], ["row"])]
    outputs = [helper.make_tensor_sequence_value_info("rows", FLOAT, [1, 96]), info("row", FLOAT, [1, 96])]
    return model(*more, outputs=outputs, weights={"which": np.array(1)})


def texts() -> onnx.ModelProto:
    strings = [info(name, TensorProto.STRING, [3]) for name in ("s", "t")]
    return model(node("StringConcat", ["s", "s"], ["t"]), opset=20, inputs=strings[:1], outputs=strings[1:])


def optionals() -> onnx.ModelProto:
    kept = helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [64, 96])))
    return model(
        node("Optional", ["y"], ["o"]), node("OptionalHasElement", ["o"], ["there"]),
        outputs=[kept, info("there", TensorProto.BOOL, [])],
    )  # fmt: skip


def contributed() -> onnx.ModelProto:
    gelu = node("Gelu", ["y"], ["z"], domain="com.microsoft")
    return model(gelu, outputs=[info("z", FLOAT, [64, 96])], domains=["com.microsoft"])


def eight_bits() -> onnx.ModelProto:
    casts = [node("Cast", ["y"], ["f"], to=TensorProto.FLOAT8E4M3FN), node("Cast", ["f"], ["z"], to=FLOAT)]
    return model(*casts, opset=19, outputs=[info("z", FLOAT, [64, 96])])


@pytest.mark.parametrize("made", [sequences, texts, optionals, contributed])
def test_what_is_around_the_islands_passes_through(made: Any) -> None:
    optimized(made())


def test_nodes_before_a_cast_to_eight_bits_are_rewritten_in_the_fast_mode() -> None:
    optimized(eight_bits(), fp="fast")
    assert not superopt.optimize(eight_bits(), budget=60.0, moves=("rules",)).report.accepted


@pytest.mark.parametrize("kind", ["sequence", "optional"])
def test_inputs_that_cannot_be_drawn_are_told(kind: str) -> None:
    tensor = helper.make_tensor_type_proto(FLOAT, [2])
    proto = helper.make_sequence_type_proto(tensor) if kind == "sequence" else helper.make_optional_type_proto(tensor)
    nodes = {"sequence": node("SequenceAt", ["s", "which"], ["z"]), "optional": node("OptionalGetElement", ["s"], ["z"])}
    given = [helper.make_value_info("s", proto), info("open", FLOAT, ["n", 2])]
    report = superopt.optimize(
        model(nodes[kind], inputs=given, outputs=[info("z", FLOAT, [2])], weights={"which": np.array(0)}), budget=60.0
    ).report
    assert not report.accepted
    assert "can be made for the input 's'" in report.reason


def test_an_operator_that_nobody_knows_is_one_clear_error() -> None:
    proto = model(node("Nothing", ["y"], ["z"], domain="my.own"), outputs=[info("z", FLOAT, [64, 96])], domains=["my.own"])
    with pytest.raises(InvalidModelError, match=r"my\.own:Nothing"):
        superopt.optimize(proto, budget=60.0, moves=("rules",))


def test_what_reduces_to_an_input_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    always_taken(monkeypatch)
    monkeypatch.setattr(
        PREPARE,
        "load_rules",
        lambda: parse_rules("swap: transpose(transpose(x, perm=(-1, -2)), perm=(-1, -2)) => x for x[2]"),
    )
    nodes = [node("Cast", ["x"], ["n"], to=FLOAT16), node("Cast", ["n"], ["a"], to=FLOAT)]
    nodes += [node("Transpose", ["a"], ["b"], perm=[1, 0]), node("Transpose", ["b"], ["y"], perm=[1, 0])]
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [4, 8])], [info("y", FLOAT, [4, 8])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    report = superopt.optimize(proto, budget=60.0, moves=("rules",)).report
    assert report.timing is not None, "a state without nodes is a candidate"


def test_errors_are_judged_by_what_the_last_places_of_inputs_do() -> None:
    def sine(factor: float) -> onnx.ModelProto:
        nodes = [node("Mul", ["x", "f"], ["p"]), node("Gelu", ["p"], ["g"], domain="com.microsoft"), node("Sin", ["g"], ["y"])]
        graph = helper.make_graph(
            nodes, "g", [info("x", FLOAT, [64])], [info("y", FLOAT, [64])],
            [numpy_helper.from_array(np.array(factor, np.float32), "f")],
        )  # fmt: skip
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    assert check_candidate(sine(1e5), sine(1e5 * (1 + 2e-7)), CPU).reference.startswith("original (")
    with pytest.raises(CheckFailedError):
        check_candidate(sine(1.0), sine(1.001), CPU)
