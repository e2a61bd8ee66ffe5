"""Fixed inputs and sizes, and branches that are always taken: the specialized model, refused options, and the certificate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import superopt
from superopt.cli import main as cli
from superopt.errors import CertificateError, CheckFailedError, FixedInputError, InvalidModelError
from superopt.flows.verify import verify
from superopt.model.load import as_model, as_proto
from superopt.model.specialize import at_fixed_sizes, read_fixed, specialize
from superopt.policy import VERIFY
from superopt.protobuf.specialize import Specialization, if_nodes
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Device, Session
from tests.rewriting import always_taken

FLOAT, INTEGER, BOOLEAN = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info


def body(nodes: list[NodeProto], outputs: Sequence[str], weights: Mapping[str, Any] | None = None) -> GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    return helper.make_graph(nodes, "body", [], [info(name, FLOAT, None) for name in outputs], tensors)


def model(
    nodes: list[NodeProto],
    inputs: Mapping[str, tuple[int, list[Any]]],
    outputs: Mapping[str, list[Any]],
    weights: Mapping[str, Any] | None = None,
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [info(name, *kind) for name, kind in inputs.items()],
        [info(name, FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def by_rate(size: int = 16) -> ModelProto:
    """Return a model that multiplies by different weights at each of two rates. Both branches use the same names."""
    rng = np.random.default_rng(0)

    def branch(scale: float) -> GraphProto:
        weights = {name: (scale * rng.standard_normal((size, size))).astype(np.float32) for name in "vw"}
        products = [node("MatMul", ["x", "v"], ["p"]), node("MatMul", ["p", "w"], ["m"])]
        return body([*products, node("Relu", ["m"], ["r"])], ["r"], weights)

    return model(
        [
            node("Equal", ["rate", "high"], ["fast"]),
            node("If", ["fast"], ["y"], then_branch=branch(1.0), else_branch=branch(2.0)),
        ],
        {"x": (FLOAT, ["n", size]), "rate": (INTEGER, [])},
        {"y": ["n", size]},
        {"high": np.int64(16000)},
    )


def squeezing() -> ModelProto:
    """Return a model that squeezes an axis only if its size is 1, as PyTorch's exporter writes it.

    The model does this twice, each time with a nested If.
    """

    def squeezed(x: str, y: str) -> list[NodeProto]:
        inner = body([node("Relu", [x], ["i"])], ["i"]), body([node("Neg", [x], ["i"])], ["i"])
        then = [
            node("If", ["always"], ["p"], then_branch=inner[0], else_branch=inner[1]),
            node("Squeeze", ["p", "axis"], ["s"]),
        ]
        return [
            node("Shape", [x], [f"{y}.shape"]),
            node("Gather", [f"{y}.shape", "one"], [f"{y}.size"]),
            node("Equal", [f"{y}.size", "one"], [f"{y}.is"]),
            node(
                "If",
                [f"{y}.is"],
                [y],
                then_branch=body(then, ["s"]),
                else_branch=body([node("Identity", [x], ["k"])], ["k"]),
            ),
        ]

    return model(
        [*squeezed("x", "a"), *squeezed("z", "b"), node("Add", ["a", "b"], ["y"])],
        {"x": (FLOAT, ["n", "m"]), "z": (FLOAT, ["n", 1])},
        {"y": None},  # type: ignore[dict-item]
        {"one": np.int64(1), "axis": np.array([1]), "always": np.array(True)},
    )


def values(proto: ModelProto, feeds: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return Session(proto.SerializeToString(), Device()).run({name: np.asarray(value) for name, value in feeds.items()})[0]


def fixed_model(proto: ModelProto, **fixed: Any) -> ModelProto:
    loaded = as_model(proto)
    return as_proto(specialize(loaded, read_fixed(fixed, loaded))[0])


# ---------------------------------------------------------------- fixed inputs


def test_a_branch_that_a_fixed_input_selects_replaces_the_if() -> None:
    special = fixed_model(by_rate(), rate=16000)
    assert not if_nodes(as_model(special))
    assert [value.name for value in special.graph.input] == ["x", "rate"]
    assert len([t for t in special.graph.initializer if list(t.dims) == [16, 16]]) == 2
    feeds = {"x": np.ones((3, 16), np.float32), "rate": np.int64(16000)}
    assert np.array_equal(values(special, feeds), values(by_rate(), feeds))
    assert [(p.key, p.value) for p in special.metadata_props] == [("superopt.fixed", "rate=16000")]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_model_with_a_fixed_input_does_not_run_with_another_value(rows: int) -> None:
    special = fixed_model(by_rate(), rate="16000")
    for rate in (8000, 15999, 16001, 0, -16000, 16000 + (1 << 32)):
        with pytest.raises(InvalidModelError):
            values(special, {"x": np.ones((rows, 16), np.float32), "rate": np.int64(rate)})


def reading(kind: int, shape: list[int]) -> ModelProto:
    cast = [node("Cast", ["s"], ["c"], to=FLOAT), node("ReduceSum", ["c"], ["t"], keepdims=0)]
    return model([*cast, node("Add", ["x", "t"], ["y"])], {"x": (FLOAT, ["n"]), "s": (kind, shape)}, {"y": ["n"]})


@pytest.mark.parametrize(
    ("kind", "shape", "fixed", "other"),
    [
        (INTEGER, [], 3, 4),
        (INTEGER, [3], [1, 2, 3], [1, 2, 4]),
        (INTEGER, [1, 1], 7, [[8]]),
        (FLOAT, [2, 2], 0.1, [[0.1, 0.1], [0.1, 0.2]]),
        (BOOLEAN, [], "true", False),
        (TensorProto.UINT8, [2], 200, [200, 201]),
        (TensorProto.FLOAT16, [1], 0.1, [0.2]),
        (TensorProto.DOUBLE, [], 1e-300, 0.0),
    ],
)
def test_inputs_of_any_type_and_shape_are_fixed(kind: int, shape: list[int], fixed: Any, other: Any) -> None:
    original = reading(kind, shape)
    special = fixed_model(original, s=fixed)
    (array,) = read_fixed({"s": fixed}, as_model(original)).values.values()
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(values(special, {"x": x, "s": array}), values(original, {"x": x, "s": array}))
    with pytest.raises(InvalidModelError):
        values(special, {"x": x, "s": np.asarray(other, array.dtype)})


def test_several_inputs_are_fixed_together() -> None:
    original = model(
        [node("Add", ["x", "a"], ["p"]), node("Mul", ["p", "b"], ["y"])],
        {"x": (FLOAT, ["n"]), "a": (FLOAT, []), "b": (FLOAT, [1])},
        {"y": ["n"]},
    )
    special, x = fixed_model(original, a=1, b=2), np.ones(3, np.float32)
    one, two = np.float32(1), np.array([2], np.float32)
    assert values(special, {"x": x, "a": one, "b": two}).tolist() == [4, 4, 4]
    for a, b in ((two[0], two), (one, one.reshape(1))):
        with pytest.raises(InvalidModelError):
            values(special, {"x": x, "a": a, "b": b})


def test_a_fixed_size_is_declared_and_others_stay_dynamic() -> None:
    special = fixed_model(squeezing(), m=1)
    assert [[d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim] for v in special.graph.input] == [
        ["n", 1],
        ["n", 1],
    ]
    assert not if_nodes(as_model(special))


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"speed": 1}, "no input or dynamic dimension 'speed': the possible names are x, rate, n"),
        ({"rate": "fast"}, "'fast' is not a value of input 'rate', which has elements of type int64"),
        ({"rate": 1.5}, "1.5 is not a value of input 'rate'"),
        ({"rate": [1, 2]}, r"input 'rate' has the shape \[\], but the fixed value has the shape \[2\]"),
        ({"x": 1}, "input 'x' cannot be given a value, because a dimension of the input has no known size"),
        ({"n": 0}, "'0' is not a size of dimension 'n'"),
        ({"n": "1" * 5000}, "is not a size of dimension 'n'"),
        ({"n": "many"}, "'many' is not a size of dimension 'n'"),
        ({"n": 2, "x[0]": 3}, "'n' is fixed to 2"),
        ({"x[1]": 16}, r"'x\[1\]'"),
    ],
)
def test_values_that_do_not_fit_are_named(fixed: dict[str, Any], message: str) -> None:
    with pytest.raises(FixedInputError, match=message):
        read_fixed(fixed, as_model(by_rate()))


@pytest.mark.parametrize("spelling", ["n", "x[0]", "x.0"])
def test_a_dimension_is_fixed_by_its_name_or_by_its_place(spelling: str) -> None:
    assert read_fixed({spelling: "2", "n": 2}, as_model(by_rate())).sizes == {"n": 2}
    special = fixed_model(by_rate(), **{spelling: 2})
    assert special.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_a_placeholder_fixes_all_of_its_dimensions() -> None:
    inputs: dict[str, tuple[int, list[Any]]] = {"x": (FLOAT, ["?", 1]), "z": (FLOAT, ["?", 1])}
    added = as_model(model([node("Add", ["x", "z"], ["y"])], inputs, {"y": ["?", 1]}))
    assert read_fixed({"?": 4}, added).sizes == {"x[0]": 4, "z[0]": 4}


def test_sizes_and_examples_may_not_contradict_fixed_ones() -> None:
    assert at_fixed_sizes([], Specialization(sizes={"n": 3})) == [{"n": 3}]
    assert at_fixed_sizes([{"m": 2}], Specialization()) == [{"m": 2}]
    with pytest.raises(FixedInputError, match="'n' is fixed to 3, but is also given the size 4"):
        at_fixed_sizes([{"n": 4}], Specialization(sizes={"n": 3}))
    with pytest.raises(FixedInputError, match="'rate' is fixed to 16000, but an example has the value 8000"):
        superopt.optimize(by_rate(), fix={"rate": 16000}, inputs=[{"rate": 8000}])
    with pytest.raises(FixedInputError, match="'n' is fixed to 3"):
        superopt.optimize(by_rate(), fix={"n": 3}, shapes={"x[0]": 4})


def test_fixed_inputs_and_sizes_are_not_drawn() -> None:
    session = Session(by_rate().SerializeToString(), Device())
    source = InputSource(fixed={"rate": np.asarray(16000)}, fixed_sizes={"n": 5})
    feeds = source.drawn(source.fixed_ports(session.inputs), seed=3)
    assert feeds["rate"] == 16000
    assert feeds["x"].shape == (5, 16)
    assert source.digest not in {InputSource().digest, InputSource(fixed=source.fixed).digest}


# ---------------------------------------------------------------- branches


@pytest.mark.parametrize("width", [1, 3])
def test_branches_are_inlined_where_all_sizes_decide_them(width: int) -> None:
    special = fixed_model(squeezing())
    # The width of z is 1 at all sizes, and the width of x is not known. The nested If of x is inlined in its branch.
    assert [node.outputs[0].name for node in if_nodes(as_model(special))] == ["a"]
    feeds = {"x": np.full((2, width), -2, np.float32), "z": np.full((2, 1), 3, np.float32)}
    if width == 1:
        assert np.array_equal(values(special, feeds), values(squeezing(), feeds))
    else:
        with pytest.raises(InvalidModelError):
            values(squeezing(), feeds)


def test_a_model_without_known_branches_is_returned_itself() -> None:
    loaded = as_model(by_rate())
    assert specialize(loaded, Specialization())[0] is loaded


# ---------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, its optimized version for one rate, and the certificate."""
    folder = tmp_path_factory.mktemp("fixed")
    onnx.save(by_rate(256), folder / "in.onnx")
    arguments = ["in.onnx", "out.onnx", "--certificate", "out.json", "--json", "report.json", "--cache", "cache.db"]
    paths = [str(folder / one) if "." in one else one for one in arguments]
    with pytest.MonkeyPatch.context() as patch:
        always_taken(patch)
        assert cli.main(["optimize", *paths, "--fix", "rate=16000", "--budget", "4s"]) == 0
    return folder


@pytest.mark.slow
def test_the_command_writes_a_model_for_the_fixed_value(optimized: Path) -> None:
    report = json.loads((optimized / "report.json").read_text())
    assert report["accepted"], report["reason"]
    assert report["fixed"] == {"rate": "16000"}
    assert report["inlined"] == 1
    special = onnx.load(optimized / "out.onnx")
    feeds = {"x": np.ones((3, 256), np.float32), "rate": np.int64(16000)}
    assert np.allclose(values(special, feeds), values(by_rate(256), feeds), rtol=1e-3)
    with pytest.raises(InvalidModelError):
        values(special, {**feeds, "rate": np.int64(8000)})
    found = verify(optimized / "in.onnx", optimized / "out.onnx", (optimized / "out.json").read_text())
    assert "rate is 16000, and no other value." in found.assumptions


@pytest.mark.slow
def test_verify_runs_examples(optimized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(VERIFY, value_run_seconds=0.0, size_run_seconds=math.inf, max_sizes=VERIFY.min_sizes)
    monkeypatch.setattr("superopt.verification.runs.VERIFY", limits)
    text, paths = (optimized / "out.json").read_text(), (optimized / "in.onnx", optimized / "out.onnx")
    counts = [verify(*paths, text, examples=examples).run for examples in ((), [{"x": np.ones((7, 256), np.float32)}])]
    assert counts[1][1] == counts[0][1] + 1
    with pytest.raises(InvalidModelError, match="the original does not run on example 1"):
        verify(*paths, text, examples=[{"x": np.ones((7, 9), np.float32)}])
    np.savez(tmp_path / "example.npz", x=np.ones((7, 256), np.float32))
    options = ["--certificate", str(optimized / "out.json"), "--input", str(tmp_path / "example.npz")]
    assert cli.main(["verify", *map(str, paths), *options]) == 0


def forged(folder: Path, change: ModelProto, record: dict[str, Any]) -> str:
    """Save a changed model, and return the certificate with the digest of this model."""
    from superopt.verification.contents import content_digest

    onnx.save(change, folder / "forged.onnx")
    return json.dumps({**record, "optimized": content_digest(as_model(change))})


@pytest.mark.slow
def test_verify_finds_a_model_that_runs_with_other_values(optimized: Path) -> None:
    special = onnx.load(optimized / "out.onnx")
    for one in special.graph.node:
        if one.op_type == "Where":
            one.input[2] = one.input[1]
    text = forged(optimized, special, json.loads((optimized / "out.json").read_text()))
    with pytest.raises((CheckFailedError, CertificateError)):
        verify(optimized / "in.onnx", optimized / "forged.onnx", text)


@pytest.mark.slow
def test_verify_finds_a_branch_that_is_not_taken(optimized: Path) -> None:
    loaded = as_model(by_rate(256))
    special = Specialization({"rate": np.asarray(16000)}, {}, [[False]])
    record = json.loads((optimized / "out.json").read_text())
    record |= {"specialization": special.as_json(), "passes": [], "stored": [], "rules": {}}
    text = forged(optimized, as_proto(special.of(loaded)), record)
    with pytest.raises((CheckFailedError, CertificateError)):
        verify(optimized / "in.onnx", optimized / "forged.onnx", text)


@pytest.mark.slow
def test_the_command_fixes_a_dimension_by_its_place(tmp_path: Path) -> None:
    onnx.save(by_rate(), tmp_path / "in.onnx")
    paths = [str(tmp_path / name) for name in ("in.onnx", "out.onnx")]
    options = ["--budget", "1s", "--json", str(tmp_path / "report.json"), "--cache", str(tmp_path / "cache.db")]
    assert cli.main(["optimize", *paths, *options, "--fix", "x[0]=2", "--fix", "rate=16000"]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["fixed"] == {"n": "2", "rate": "16000"}


@pytest.mark.parametrize("wrong", ["rate", "=1", "rate="])
def test_a_malformed_option_is_a_usage_error(wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(by_rate(256), tmp_path / "in.onnx")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["optimize", str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx"), "--fix", wrong])
    assert "NAME=VALUE" in capsys.readouterr().err


def test_a_name_that_the_model_lacks_is_one_line_and_a_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(by_rate(256), tmp_path / "in.onnx")
    code = cli.main(["optimize", str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx"), "--fix", "speed=1"])
    assert code == FixedInputError.exit_code
    assert len(capsys.readouterr().err.strip().splitlines()[-1:]) == 1
    assert not (tmp_path / "out.onnx").exists()
