"""Packed models: merging, sharing of weights and nodes, the command `superopt pack`, and the dispatcher."""

from __future__ import annotations

import asyncio
import json
import math
import selectors
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import superopt
from superopt.budget import active_time
from superopt.cli.main import main
from superopt.errors import CheckFailedError, InvalidModelError, PackError
from superopt.model.islands import Chart
from superopt.model.load import as_proto, load
from superopt.model.merge_models import merge_models
from superopt.pack import Dispatcher
from superopt.pack import dispatcher as dispatching
from superopt.pack import pack_models as packing
from superopt.pack.dispatcher import Values
from superopt.pack.pack_models import pack_models
from superopt.pack.plan import ServePlan, Variant, least_cover
from superopt.policy import PACK
from superopt.rules.store import load_rules
from superopt.runtime.session import Device, Port
from superopt.search import roofline
from superopt.search.apply import State, run_time_terms
from superopt.search.backtracking import SearchLimits
from superopt.search.island import search_island
from superopt.search.ruleset import RuleSet
from superopt.search.segments import parallel_islands

Floats = NDArray[np.float32]


def graph_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
    weights: Mapping[str, Floats] | None = None,
    *,
    opset: int = 20,
    domains: Mapping[str, int] | None = None,
) -> ModelProto:
    """Return a model of float tensors."""
    given, made = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in one.items()]
        for one in (inputs, outputs)
    )
    stored = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*one) for one in (domains or {}).items())]
    return helper.make_model(helper.make_graph(nodes, "g", given, made, stored), opset_imports=imports, ir_version=10)


def encoder(head: int, *, opset: int = 20, batch: str | int = "batch") -> ModelProto:
    """Return a model of an encoder, which is the same for each `head`, and a head with other weights for each `head`."""
    common, own = np.random.default_rng(0), np.random.default_rng(head)
    weights = {
        "w": common.standard_normal((8, 16)).astype(np.float32),
        "v": own.standard_normal((16, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="encode"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="head"),
    ]
    return graph_model(nodes, {"x": [batch, 8]}, {"y": [batch, 4]}, weights, opset=opset)


def merged(models: Mapping[str, ModelProto], shared: Sequence[str] = ()) -> ModelProto:
    """Merge the models, and check that the result is valid and that the models have not changed."""
    before = {name: model.SerializeToString() for name, model in models.items()}
    result = as_proto(merge_models({name: load(model).model for name, model in models.items()}, shared))
    onnx.checker.check_model(result, full_check=True)
    assert before == {name: model.SerializeToString() for name, model in models.items()}
    return result


def run(model: ModelProto, feeds: Mapping[str, object]) -> dict[str, Floats]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def values(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_outputs_are_those_of_the_originals() -> None:
    models = {"a": encoder(1), "b": encoder(2, opset=17)}
    result = merged(models)
    feeds = {"a": values(3, 8), "b": values(2, 8, seed=1)}
    found = run(result, {f"{name}/x": value for name, value in feeds.items()})
    for name, value in feeds.items():
        np.testing.assert_array_equal(found[f"{name}/y"], run(models[name], {"x": value})["y"])
    assert {dim.dim_param for port in result.graph.input for dim in port.type.tensor_type.shape.dim} == {
        "a/batch",
        "b/batch",
        "",
    }


def test_equal_weights_are_stored_once() -> None:
    result = merged({"a": encoder(1), "b": encoder(2)})
    assert [tensor.name for tensor in result.graph.initializer] == ["a/w", "a/v", "b/v"]
    assert len(result.graph.node) == 6


def test_equal_prefixes_are_computed_once() -> None:
    models = {str(head): encoder(head) for head in range(3)}
    result = merged(models, ["x"])
    assert [port.name for port in result.graph.input] == ["x"]
    assert [node.op_type for node in result.graph.node] == ["MatMul", "Relu", "MatMul", "MatMul", "MatMul"]
    assert result.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    x = values(5, 8)
    found = run(result, {"x": x})
    for name, model in models.items():
        np.testing.assert_array_equal(found[f"{name}/y"], run(model, {"x": x})["y"])


def test_equal_outputs_stay_apart() -> None:
    result = merged({"a": encoder(1), "b": encoder(1)}, ["x"])
    assert [port.name for port in result.graph.output] == ["a/y", "b/y"]
    assert [node.op_type for node in result.graph.node] == ["MatMul", "Relu", "MatMul", "Identity"]
    found = run(result, {"x": values(1, 8)})
    np.testing.assert_array_equal(found["a/y"], found["b/y"])


def test_a_value_inside_one_model_may_be_the_output_of_another() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Exp", ["h"], ["y"])]
    longer = graph_model(nodes, {"x": [2]}, {"y": [2]})
    shorter = graph_model(nodes[:1], {"x": [2]}, {"h": [2]})
    for models in ({"a": longer, "b": shorter}, {"b": shorter, "a": longer}):
        result = merged(models, ["x"])
        assert len(result.graph.node) == 2
        x = values(2)
        found = run(result, {"x": x})
        np.testing.assert_array_equal(found["b/h"], np.maximum(x, 0))
        np.testing.assert_array_equal(found["a/y"], run(longer, {"x": x})["y"])


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("RandomUniformLike", ["x"], ["y"]),
        helper.make_node("RandomNormal", [], ["y"], shape=[2]),
        helper.make_node("Bernoulli", ["x"], ["y"]),
        helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft"),
    ],
    ids=lambda node: node.op_type,
)
def test_nodes_that_may_differ_are_not_merged(node: NodeProto) -> None:
    model = graph_model([node], {"x": [2]}, {"y": [2]}, domains={"com.microsoft": 1})
    result = as_proto(merge_models({name: load(model).model for name in "ab"}, ["x"]))
    assert [one.op_type for one in result.graph.node] == [node.op_type] * 2


def test_attributes_are_compared_exactly() -> None:
    def clipped(alpha: float) -> ModelProto:
        return graph_model([helper.make_node("LeakyRelu", ["x"], ["y"], alpha=alpha)], {"x": [2]}, {"y": [2]})

    assert len(merged({"a": clipped(0.0), "b": clipped(-0.0)}, ["x"]).graph.node) == 2
    assert [node.op_type for node in merged({"a": clipped(0.5), "b": clipped(0.5)}, ["x"]).graph.node] == [
        "LeakyRelu",
        "Identity",
    ]


def test_a_result_that_only_one_model_names_stays() -> None:
    def pooled(*names: str) -> ModelProto:
        nodes = [helper.make_node("MaxPool", ["x"], [*names], kernel_shape=[2])]
        if len(names) > 1:
            nodes.append(helper.make_node("Cast", ["i"], ["j"], to=TensorProto.FLOAT))
        return graph_model(nodes, {"x": [1, 1, 4]}, {"y": [1, 1, 3], **({"j": [1, 1, 3]} if len(names) > 1 else {})})

    result = merged({"a": pooled("y"), "b": pooled("y", "i")}, ["x"])
    assert [node.op_type for node in result.graph.node] == ["MaxPool", "MaxPool", "Cast"]
    assert run(result, {"x": values(1, 1, 4)}).keys() == {"a/y", "b/y", "b/j"}


def test_an_input_may_be_an_output() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = graph_model(nodes, {"x": [2]}, {"y": [2], "x": [2]})
    x = values(2)
    found = run(merged({"a": model, "b": model}, ["x"]), {"x": x})
    assert found.keys() == {"a/y", "a/x", "b/y", "b/x"}
    np.testing.assert_array_equal(found["b/x"], x)
    found = run(merged({"a": model, "b": model}), {"a/x": x, "b/x": -x})
    np.testing.assert_array_equal(found["b/x"], -x)


def test_default_values_of_inputs_stay_apart() -> None:
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    model = graph_model(nodes, {"x": [2], "c": [2]}, {"y": [2]}, {"c": np.ones(2, np.float32)})
    result = merged({"a": model, "b": model})
    assert [tensor.name for tensor in result.graph.initializer] == ["a/c", "b/c"]
    zeros = np.zeros(2, np.float32)
    found = run(result, {"a/x": zeros, "b/x": zeros, "b/c": zeros})
    assert found["a/y"].tolist() == [1, 1]
    assert found["b/y"].tolist() == [0, 0]
    with pytest.raises(PackError, match="default value"):
        merged({"a": model, "b": model}, ["c"])


def test_weights_of_old_models_are_no_inputs() -> None:
    model = encoder(1)
    model.ir_version = 3
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims) for tensor in model.graph.initializer
    )
    result = merged({"a": model, "b": encoder(1)})
    assert [port.name for port in result.graph.input] == ["a/x", "b/x"]
    assert len(result.graph.initializer) == 2


def test_names_in_control_flow_bodies_get_the_prefix() -> None:
    def branch(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"])
        return helper.make_graph([helper.make_node(op, ["x"], ["z"], name="inner")], op, [], [out])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")),
    ]
    model = graph_model(nodes, {"x": ["n"]}, {"y": ["n"]})
    result = merged({"a": model, "b": model}, ["x"])
    assert [node.op_type for node in result.graph.node] == ["ReduceSum", "Cast", "If", "If"]
    body = result.graph.node[3].attribute[0].g
    assert (body.node[0].name, [*body.node[0].input], [*body.node[0].output]) == ("b/inner", ["x"], ["b/z"])
    assert run(result, {"x": values(3)}).keys() == {"a/y", "b/y"}


def test_local_functions_are_inlined() -> None:
    function = helper.make_function(
        "own", "twice", ["p"], ["q"], [helper.make_node("Add", ["p", "p"], ["q"])], [helper.make_opsetid("", 20)]
    )
    model = graph_model([helper.make_node("twice", ["x"], ["y"], domain="own")], {"x": [2]}, {"y": [2]}, domains={"own": 1})
    model.functions.append(function)
    result = merged({"a": model, "b": model}, ["x"])
    assert not result.functions
    assert [node.op_type for node in result.graph.node] == ["Add", "Identity"]


def test_weights_in_files_of_different_folders(tmp_path: Path) -> None:
    paths = []
    for head, name in ((1, "a"), (2, "b")):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "model.onnx"
        onnx.save(encoder(head), path, save_as_external_data=True, location="data", size_threshold=0)
        paths.append(path)
    packed = pack_models(dict(zip("ab", paths, strict=True)), budget=0, threads=1)
    packed.save(tmp_path / "packed.onnx")
    stored = onnx.load(tmp_path / "packed.onnx")
    assert len(stored.graph.initializer) == 3
    x = values(1, 8)
    found = run(stored, {"a/x": x, "b/x": x})
    np.testing.assert_array_equal(found["b/y"], run(encoder(2), {"x": x})["y"])


def test_sparse_weights_become_dense() -> None:
    model = encoder(1)
    dense = numpy_helper.to_array(model.graph.initializer[0])
    places = np.arange(dense.size, dtype=np.int64)
    content = numpy_helper.from_array(dense.ravel(), "w")
    sparse = helper.make_sparse_tensor(content, numpy_helper.from_array(places), dense.shape)
    del model.graph.initializer[0]
    model.graph.sparse_initializer.append(sparse)
    result = merged({"a": model, "b": encoder(2)})
    assert sorted(tensor.name for tensor in result.graph.initializer) == ["a/v", "a/w", "b/v"]


def test_strings_and_small_integers_are_shared() -> None:
    def keyed(text: str) -> ir.Model:
        graph = ir.Graph(
            [], [], nodes=[], opset_imports={"": 21}, name="g",
            initializers=[
                ir.Value(name="s", const_value=ir.StringTensor([text.encode()], shape=ir.Shape([1]), name="s")),
                ir.Value(name="i", const_value=ir.tensor(np.array([1, 2, 3], np.int8), dtype=ir.DataType.INT4, name="i")),
            ],
        )  # fmt: skip
        return ir.Model(graph, ir_version=10)

    result = merge_models({"a": keyed("x"), "b": keyed("x"), "c": keyed("y")})
    assert [*result.graph.initializers] == ["a/s", "a/i", "c/s"]


def test_metadata_gets_the_prefix() -> None:
    model = encoder(1)
    helper.set_model_props(model, {"ort_config": "{}"})
    result = merged({"a": model, "b": encoder(2)})
    assert {entry.key: entry.value for entry in result.metadata_props} == {"a/ort_config": "{}"}


@pytest.mark.parametrize("name", ["", "a/b"])
def test_names_that_cannot_be_prefixes_are_refused(name: str) -> None:
    with pytest.raises(PackError, match="cannot be the name"):
        merged({name: encoder(1)})


def test_inputs_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(PackError, match="no model has the shared input 'z'; the inputs are x"):
        merged({"a": encoder(1)}, ["z"])
    with pytest.raises(PackError, match=r"it is .*batch,8.* in a and .*2,8.* in b"):
        merged({"a": encoder(1), "b": encoder(2, batch=2)}, ["x"])
    named = graph_model([helper.make_node("Relu", ["a/x"], ["y"])], {"a/x": [2]}, {"y": [2]})
    with pytest.raises(PackError, match="begins with the name"):
        merged({"a": encoder(1), "b": named}, ["a/x"])


def test_domains_of_different_versions_are_refused() -> None:
    def using(version: int) -> ModelProto:
        return graph_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, domains={"own": version})

    with pytest.raises(PackError, match="a needs version 1 of the domain 'own', and b needs version 2"):
        merged({"a": using(1), "b": using(2)})


def test_random_outputs_are_not_compared() -> None:
    model = graph_model([helper.make_node("RandomUniformLike", ["x"], ["y"])], {"x": [4]}, {"y": [4]})
    packed = pack_models({"a": model, "b": encoder(1)}, budget=0, threads=1)
    assert [bool(tenant.outputs) for tenant in packed.report.tenants] == [False, True]


def test_other_outputs_than_the_originals_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = merge_models({"a": load(encoder(2)).model})
    monkeypatch.setattr(packing, "merge_models", lambda *_: other)
    with pytest.raises(CheckFailedError, match="the output 'a/y' of the merged model differs"):
        pack_models({"a": encoder(1)}, budget=0, threads=1)


def tenants(*widths: int) -> ModelProto:
    """Return a merged model of tenants with equal weights, each with a hidden layer of its own width."""
    models = {}
    for number, width in enumerate(widths):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "v"], ["y"]),
        ]
        weights = {"w": values(4, width), "v": values(width, 4)}
        models[str(number)] = graph_model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, weights)
    return merged(models)


@pytest.mark.parametrize(("widths", "expected"), [((4, 4, 4), [3]), ((4, 4, 6), [2]), ((4, 6), []), ((4,), [])])
def test_equal_tenants_are_parallel_islands(widths: Sequence[int], expected: Sequence[int]) -> None:
    chart = Chart(load(tenants(*widths)).model)
    assert len(chart.islands()) == len(widths)
    assert [len(island.outputs) for island in chart.parallel_islands()] == expected


@pytest.mark.slow
def test_products_of_different_tenants_are_joined() -> None:
    rules = RuleSet(load_rules())
    (segment,) = parallel_islands(Chart(load(tenants(*[8] * 4)).model), {})

    def estimate(state: State) -> float:
        return roofline.estimate_seconds(state, roofline.CPU)

    limits = SearchLimits(deadline=active_time() + 300)
    found = search_island(segment.state, rules, estimate=estimate, measure=estimate, limits=limits)
    assert [term.op for term in run_time_terms(segment.state)].count("matmul") == 8
    assert [term.op for term in run_time_terms(found.outputs)].count("matmul") == 2


@pytest.mark.slow
def test_a_rewrite_of_several_tenants_is_recorded_and_repeated(tmp_path: Path) -> None:
    models = {}
    for name in "abcd":
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "v"], ["y"]),
        ]
        models[name] = graph_model(nodes, {"x": [1, 512]}, {"y": [1, 512]}, {"w": values(512, 1024), "v": values(1024, 512)})
    original = merged(models)
    optimized = superopt.optimize(original, threads=1, budget=20, cache=tmp_path / "cache")
    assert optimized.report.accepted
    assert optimized.report.nodes_after < len(original.graph.node)
    (tmp_path / "steps.json").write_text(optimized.certificate)
    replayed = superopt.replay(tmp_path / "steps.json", original, threads=1, cache=tmp_path / "cache")
    assert replayed.evidence.rewritten


def test_the_command_writes_the_model_and_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{name}.onnx" for name in ("a", "b")]
    for head, path in enumerate(paths):
        onnx.save(encoder(head), path)
    target, report = tmp_path / "packed.onnx", tmp_path / "packed.json"
    arguments = ["pack", *map(str, paths), "-o", str(target), "--share-input", "x", "--budget", "0", "--threads", "1"]
    assert main([*arguments, "--json", str(report)]) == 0
    assert "packed 2 models: 4 nodes in place of 6" in capsys.readouterr().out
    assert [port.name for port in onnx.load(target).graph.output] == ["a/y", "b/y"]
    told = json.loads(report.read_text())
    assert (told["nodes"], [tenant["name"] for tenant in told["tenants"]]) == (4, ["a", "b"])
    assert main([*arguments, "--name", "p", "--name", "q"]) == 0
    assert [port.name for port in onnx.load(target).graph.output] == ["p/y", "q/y"]


def test_the_command_refuses_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = tmp_path / "a.onnx", tmp_path / "packed.onnx"
    onnx.save(encoder(1), path)
    assert main(["pack", str(path), str(path), "-o", str(target), "--budget", "0"]) == PackError.exit_code
    assert main(["pack", str(path), "-o", str(path), "--budget", "0"]) == 22
    assert main(["pack", str(tmp_path / "none.onnx"), "-o", str(target)]) == 20
    with pytest.raises(SystemExit, match="2"):
        main(["pack", str(path), "-o", str(target), "--name", "a", "--name", "b"])
    assert not target.exists()
    assert len(capsys.readouterr().err.splitlines()) >= 4


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock advances only while the loop waits, and then at once."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(FakeTimeSelector(self))

    def time(self) -> float:
        return self.now


class FakeTimeSelector(selectors.SelectSelector):
    def __init__(self, loop: FakeTimeLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.loop.now += timeout or 0.0
        return super().select(0)


def serving_plan(seconds: Mapping[str, float], *, slo: float = 1.0, workers: int = 1, shared: Sequence[str] = ()) -> ServePlan:
    """Return a plan for tenants with the input `x`. The keys of `seconds` are variants, such as "ab" for `a` and `b`."""
    names = sorted({*"".join(seconds)})
    empty = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    return ServePlan(
        variants=tuple(Variant(tuple(key), empty, cost) for key, cost in seconds.items()),
        slo=slo,
        device=Device(),
        workers=workers,
        inputs={name: (Port("x", np.dtype(np.float32), ("n",)),) for name in names},
        shared_inputs=frozenset(shared),
        fillers={name: {"x": np.zeros(1, np.float32)} for name in names},
    )


@dataclass
class Served:
    """A runner that records its runs, takes the measured time of a variant, and returns `10 * x` as `y`."""

    workers: int = 1
    runs: list[tuple[float, str]] = field(default_factory=list)
    free: asyncio.Semaphore | None = None

    async def __call__(self, variant: Variant, feeds: Values) -> Values:
        self.free = self.free or asyncio.Semaphore(self.workers)
        async with self.free:
            self.runs.append((asyncio.get_running_loop().time(), "".join(variant.tenants)))
            await asyncio.sleep(variant.seconds)
        if any(value[0] < 0 for value in feeds.values()):
            raise InvalidModelError("negative")
        return {f"{name}/y": 10 * feeds.get(f"{name}/x", feeds.get("x", np.zeros(0))) for name in variant.tenants}


Answers: TypeAlias = "list[tuple[float, float | str]]"


Request: TypeAlias = "tuple[float, str, float] | tuple[float, str, float, float]"
"""A request: the time, the tenant, the value and, if it differs from the plan's, the time limit."""


def served(plan: ServePlan, *requests: Request) -> tuple[Answers, list[tuple[float, str]]]:
    """Send each request. Return the time and the value or error of each answer, and all runs."""
    runner = Served(plan.workers)

    async def answers() -> Answers:
        async with Dispatcher(plan, runner=runner) as dispatcher:

            async def sent(at: float, tenant: str, value: float, within: float | None = None) -> tuple[float, float | str]:
                await asyncio.sleep(at)
                try:
                    outputs = await dispatcher.run(tenant, {"x": np.array([value], np.float32)}, within=within)
                except InvalidModelError as error:
                    return asyncio.get_running_loop().time(), str(error)
                assert outputs.keys() == {"y"}
                return asyncio.get_running_loop().time(), float(outputs["y"][0])

            return await asyncio.gather(*(sent(*request) for request in requests))

    with asyncio.Runner(loop_factory=FakeTimeLoop) as loop:
        return loop.run(answers()), runner.runs


def test_requests_of_different_tenants_share_a_run() -> None:
    answers, runs = served(serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}), (0.0, "a", 1), (0.05, "b", 2))
    assert runs == [(0.05, "ab")]
    assert [value for _, value in answers] == [10, 20]
    assert [end for end, _ in answers] == pytest.approx([0.17, 0.17])


@pytest.mark.parametrize("slo", [0.5, 1.0, 4.0])
def test_a_request_waits_only_as_long_as_its_deadline_allows(slo: float) -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}, slo=slo)
    ((end, _),), ((start, variant),) = served(plan, (0.0, "a", 1))
    assert variant == "a"
    assert start == pytest.approx(min(PACK.max_wait_share * slo, slo - PACK.deadline_factor * 0.12))
    assert end <= slo


def test_a_request_without_time_starts_at_once() -> None:
    _, runs = served(serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}, slo=0.1), (0.0, "a", 1), (0.01, "b", 2))
    assert [variant for _, variant in runs] == ["a", "b"]
    assert runs[0][0] == 0.0


def test_an_urgent_request_is_answered_before_a_patient_one_of_the_same_tenant() -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}, slo=4.0)
    answers, runs = served(plan, (0.0, "a", 1), (0.0, "a", 2, 0.5))
    assert [start for start, _ in runs] == pytest.approx([0.05, 0.4])
    assert [end for end, _ in answers] == pytest.approx([0.5, 0.15])


def test_an_urgent_request_does_not_prolong_the_wait_of_a_patient_one() -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12})
    answers, runs = served(plan, (0.0, "a", 1), (0.05, "a", 2, 0.9))
    assert [start for start, _ in runs] == pytest.approx([0.1, 0.2])
    assert [end for end, _ in answers] == pytest.approx([0.3, 0.2])


def test_a_request_without_a_deadline_waits_as_long_as_the_limit_of_the_plan_allows() -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12})
    assert served(plan, (0.0, "a", 1, math.inf))[1] == [(PACK.max_wait_share * plan.slo, "a")]
    with pytest.raises(ValueError, match="finite"):
        superopt.serve_plan({}, slo=math.inf)


def test_a_request_that_no_tenant_can_join_starts_at_once() -> None:
    _, runs = served(serving_plan({"a": 0.1, "b": 0.1}), (0.0, "a", 1))
    assert runs == [(0.0, "a")]


def test_the_cover_of_the_least_time_is_chosen() -> None:
    seconds = {"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1, "ab": 0.15, "cd": 0.15, "abcd": 0.22}
    plan = serving_plan(seconds, slo=2.0)
    for live, expected in (("abcd", {"abcd"}), ("abc", {"abcd"}), ("ab", {"ab"}), ("ac", {"a", "c"}), ("d", {"d"})):
        assert {"".join(one.tenants) for one in least_cover(frozenset(live), plan.variants)} == expected
    answers, runs = served(plan, (0.0, "a", 1), (0.0, "b", 2), (0.0, "c", 3))
    assert runs == [(PACK.max_wait_share * plan.slo, "abcd")]
    assert [value for _, value in answers] == [10, 20, 30]


def test_requests_of_one_tenant_are_answered_in_order() -> None:
    answers, runs = served(serving_plan({"a": 0.1}), (0.0, "a", 1), (0.0, "a", 2), (0.01, "a", 3))
    assert [value for _, value in answers] == [10, 20, 30]
    assert [start for start, _ in runs] == pytest.approx([0.0, 0.1, 0.2])


def test_workers_run_at_the_same_time() -> None:
    _, runs = served(serving_plan({"a": 0.1, "b": 0.1}, workers=2), (0.0, "a", 1), (0.0, "b", 2))
    assert runs == [(0.0, "a"), (0.0, "b")]


def test_a_run_that_others_could_join_is_chosen_when_a_worker_is_free() -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}, slo=0.3)
    answers, runs = served(plan, (0.0, "a", 1), (0.0, "b", 2), (0.01, "a", 3), (0.1, "b", 4))
    assert runs == [(0.0, "ab"), (pytest.approx(0.12), "ab")]
    assert [value for _, value in answers] == [10, 20, 30, 40]


def test_an_error_reaches_only_its_request() -> None:
    answers, runs = served(serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}), (0.0, "a", -1), (0.0, "b", 2))
    assert [value for _, value in answers] == ["negative", 20]
    assert [variant for _, variant in runs] == ["ab", "a", "b"]


@pytest.mark.parametrize("error", [asyncio.CancelledError, AttributeError])
def test_a_run_that_is_cancelled_or_returns_no_outputs_leaves_no_request_waiting(error: type[BaseException]) -> None:
    async def failing(*_: object) -> Values:
        if error is asyncio.CancelledError:
            raise error
        return None  # type: ignore[return-value]

    async def answers() -> list[object]:
        async with Dispatcher(serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}), runner=failing) as dispatcher:
            sent = [dispatcher.run(name, {"x": np.ones(1, np.float32)}) for name in "aab"]
            return await asyncio.gather(*sent, return_exceptions=True)

    with asyncio.Runner(loop_factory=FakeTimeLoop) as loop:
        assert [type(one) for one in loop.run(answers())] == [error] * 3


def test_only_equal_shared_inputs_share_a_run() -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}, shared=["x"])
    answers, runs = served(plan, (0.0, "a", 1), (0.0, "b", 1), (0.0, "a", 2), (0.0, "b", 3))
    assert [variant for _, variant in runs] == ["ab", "a", "b"]
    assert [value for _, value in answers] == [10, 10, 20, 30]


def test_shared_inputs_are_compared_bit_by_bit() -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}, shared=["x"])
    assert [variant for _, variant in served(plan, (0.0, "a", 0.0), (0.0, "b", -0.0))[1]] == ["a", "b"]
    assert [variant for _, variant in served(plan, (0.0, "a", math.nan), (0.0, "b", math.nan))[1]] == ["ab"]


def test_requests_that_do_not_fit_are_refused() -> None:
    async def refused() -> None:
        dispatcher = Dispatcher(serving_plan({"a": 0.1}), runner=Served())
        x = np.zeros(1, np.float32)
        for tenant, feeds, about in (
            ("b", {"x": x}, "no model has the name 'b'; the names are a"),
            ("a", {"z": x}, "the inputs of 'a' are x, not z"),
            ("a", {"x": x.astype(np.float64)}, "must be float32"),
            ("a", {"x": x[None]}, "must be float32"),
            ("a", {"x": [0.0]}, "must be an array, not list"),
        ):
            with pytest.raises(ValueError, match=about):
                await dispatcher.run(tenant, feeds)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="NaN"):
            await dispatcher.run("a", {"x": x}, within=math.nan)
        await dispatcher.close()
        with pytest.raises(ValueError, match="closed"):
            await dispatcher.run("a", {"x": x})

    with asyncio.Runner(loop_factory=FakeTimeLoop) as loop:
        loop.run(refused())


def test_a_list_of_strings_is_refused_and_stalls_no_other_request() -> None:
    plan = serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}, shared=["x"])
    texts = replace(plan, inputs={name: (Port("x", np.dtype(object), (1,), "tensor(string)"),) for name in "ab"})

    async def one(variant: Variant, _: Values) -> Values:
        return {f"{name}/y": np.ones(1) for name in variant.tenants}

    async def answers() -> list[object]:
        async with Dispatcher(texts, runner=one) as dispatcher:
            values: list[object] = [["hi"], np.array(["hi"], object), np.array(["hi"], object), np.array(["yoo"], object)]
            sent = [dispatcher.run(name, {"x": value}) for name, value in zip("aaba", values, strict=True)]  # type: ignore[dict-item]
            return await asyncio.gather(*sent, return_exceptions=True)

    with asyncio.Runner(loop_factory=FakeTimeLoop) as loop:
        first, *others = loop.run(answers())
    assert isinstance(first, ValueError)
    assert others == [{"y": np.ones(1)}] * 3


def test_an_error_of_the_dispatcher_reaches_all_waiting_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> tuple[Variant, ...]:
        raise ArithmeticError("no cover")

    monkeypatch.setattr(dispatching, "least_cover", failing)

    async def answers() -> list[object]:
        async with Dispatcher(serving_plan({"a": 0.1, "b": 0.1}), runner=Served()) as dispatcher:
            sent = [dispatcher.run(name, {"x": np.ones(1, np.float32)}) for name in "aab"]
            return await asyncio.gather(*sent, return_exceptions=True)

    with asyncio.Runner(loop_factory=FakeTimeLoop) as loop:
        assert [str(error) for error in loop.run(answers())] == ["no cover"] * 3


def test_closing_answers_what_waits() -> None:
    runner = Served()

    async def closed() -> tuple[float, float]:
        dispatcher = Dispatcher(serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}), runner=runner)
        waiting = asyncio.ensure_future(dispatcher.run("a", {"x": np.ones(1, np.float32)}))
        await asyncio.sleep(0)
        await dispatcher.close()
        return asyncio.get_running_loop().time(), float((await waiting)["y"][0])

    with asyncio.Runner(loop_factory=FakeTimeLoop) as loop:
        assert loop.run(closed()) == pytest.approx((0.1, 10))
    assert runner.runs == [(0.0, "a")]


def test_a_cancelled_request_is_not_run() -> None:
    runner = Served()

    async def cancelled() -> None:
        async with Dispatcher(serving_plan({"a": 0.1, "b": 0.1, "ab": 0.12}), runner=runner) as dispatcher:
            waiting = asyncio.ensure_future(dispatcher.run("a", {"x": np.ones(1, np.float32)}))
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.sleep(1.0)

    with asyncio.Runner(loop_factory=FakeTimeLoop) as loop:
        loop.run(cancelled())
    assert not runner.runs


@pytest.mark.slow
def test_every_tenant_gets_the_outputs_of_its_original() -> None:
    models: dict[str, ModelProto] = {str(head): encoder(head, batch=1) for head in range(3)}
    plan = superopt.serve_plan(models, slo=0.5, shared_inputs=["x"], budget=0, workers=1)
    assert [variant.tenants for variant in plan.variants][:3] == [("0",), ("1",), ("2",)]
    x = [values(1, 8, seed=seed) for seed in range(3)]

    async def answers() -> list[dict[str, Floats]]:
        async with Dispatcher(plan) as dispatcher:
            pairs = [(name, one) for one in x for name in models]
            return await asyncio.gather(*(dispatcher.run(name, {"x": one}) for name, one in pairs))

    expected = [run(models[name], {"x": one})["y"] for one in x for name in models]
    for found, wanted in zip(asyncio.run(answers()), expected, strict=True):
        np.testing.assert_array_equal(found["y"], wanted)
