"""Certificates: `verify` accepts certificates of correct rewrites, and refuses wrong or edited certificates."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.algebra.dim_binding import dimension
from superopt.algebra.evaluate import Floats, evaluate_operator
from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Term, variable
from superopt.cli import main as cli
from superopt.errors import CertificateError, CheckFailedError, InvalidModelError, ProviderError, ShapeError, SuperoptError
from superopt.flows.verify import verify, verify_certificate
from superopt.model.constant_folding import fold_known_values
from superopt.model.islands import Chart
from superopt.model.load import as_model, load
from superopt.model.save import save
from superopt.report.verification import Verification, verification_lines
from superopt.rules.fp_flags import FpFlag
from superopt.rules.rule import Rule, digest, parse_rule
from superopt.rules.store import load_rules
from superopt.search.apply import State
from superopt.search.apply import Step as Taken
from superopt.search.backtracking import SearchLimits, SearchResult
from superopt.search.island import search_island
from superopt.search.record import steps_recorded, steps_restored
from superopt.search.roofline import CPU, estimate_seconds
from superopt.search.ruleset import RuleSet
from superopt.search.widen import widened_states
from superopt.verification.arrays import NUMPY, UndecidedError, apply_certificate_operator, evaluate_certificate_terms
from superopt.verification.certificates import Certificate, CertifiedStep, Pass, Rewrite, RewrittenNodes, parse_certificate
from superopt.verification.contents import content_digest
from superopt.verification.derivation import check_nodes, check_weights
from superopt.verification.instances import is_instance
from superopt.verification.models import ModelSource, dimension_expression_extent, dimension_expression_names
from superopt.verification.runs import compare_runs, describe_difference
from superopt.verification.steps import StepChecker, StepEvidence
from superopt.verification.stored import check_stored
from tests.certified import MODELS, Certified, at_random
from tests.models import model, weight

pytestmark = pytest.mark.slow

WRONG_RESULTS = sorted((Path(__file__).parent / "wrong_results").iterdir())


UNUSUAL = {FpFlag.NNAN, FpFlag.NINF, FpFlag.RANGE, FpFlag.CANCEL}


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return load_rules()


@pytest.fixture(scope="module")
def prepared(rules: list[Rule]) -> RuleSet:
    return RuleSet(rules)


@pytest.fixture(scope="module")
def strict(rules: list[Rule]) -> RuleSet:
    """Return the rules that hold on infinities and NaN, because `verify` runs both models on such values."""
    return RuleSet([rule for rule in rules if not rule.flags & UNUSUAL])


@pytest.fixture(scope="module")
def branches(rules: list[Rule], strict: RuleSet, tmp_path_factory: pytest.TempPathFactory) -> Certified:
    passes = [at_random(strict, 0), at_random(strict, 100)]
    return Certified(MODELS["dynamic branches"](), passes, rules, tmp_path_factory.mktemp("branches"))


def estimate(state: State) -> float:
    return estimate_seconds(state, CPU)


def refused(certified: Certified, record: Any) -> str:
    """Return the reason why `verify` refuses another certificate of the same models."""
    with pytest.raises(CertificateError) as error:
        certified.verified(record)
    return str(error.value)


# ---------------------------------------------------------------- accepted certificates


@pytest.mark.parametrize("name", MODELS)
def test_what_is_rewritten_at_random_is_proved(name: str, rules: list[Rule], strict: RuleSet, tmp_path: Path) -> None:
    certified = Certified(MODELS[name](), [at_random(strict, 1, steps=3)], rules, tmp_path)
    found = certified.verified()
    assert certified.steps == 3
    assert {kind.how for kind in found.kinds} == {"proved"}
    assert sum(kind.steps for kind in found.kinds) == 3
    before, after, _ = found.linked
    assert before > 0
    assert after > 0
    assert all(found.run)


def test_models_whose_tensors_may_be_empty_are_verified(rules: list[Rule], strict: RuleSet, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["k"]), helper.make_node("Concat", ["past", "k"], ["keys"], axis=0)]
    nodes += [helper.make_node("MatMul", ["keys", name], [f"{name}k"]) for name in "uv"]
    nodes += [helper.make_node("Add", ["uk", "vk"], ["y"])]
    weights = [weight(name, 8, 8) for name in "wuv"]
    proto = model(nodes, {"x": ["new", 8], "past": ["past", 8]}, {"y": ["all", 8]}, weights)
    certified = Certified(proto, [at_random(strict, 0, steps=2)], rules, tmp_path)
    assert certified.steps == 2
    feeds = [{"x": np.ones((n, 8), np.float32), "past": np.ones((m, 8), np.float32)} for n, m in ((2, 0), (0, 2), (2, 2))]
    text = certified.file.read_text(encoding="utf-8")
    found = verify(certified.original, certified.optimized, text, examples=feeds)
    before, after, left_out = found.linked
    assert min(before, after) > 0
    assert left_out > 0


def test_a_corrected_mutant_is_tested() -> None:
    x = variable("x", (4, 6))
    root, new, wrong = relu(x), apply("maximum", x, apply("zeros", shape=(4, 6))), apply("abs", x)
    (shown,) = StepChecker({}, {}).follow(Rewrite((), (root,), (CertifiedStep("~> by hand", (root,), (new,)),), (new,)))
    assert shown.means is StepEvidence.TESTED
    with pytest.raises(CertificateError, match="is wrong: the values of its two sides differ"):
        StepChecker({}, {}).follow(Rewrite((), (root,), (CertifiedStep("~> by hand", (root,), (wrong,)),), (wrong,)))


def test_a_widened_island_is_tested(rules: list[Rule], prepared: RuleSet) -> None:
    x = variable("x", (1, 8, 6, 6))
    w, v = (variable(n, (44, count, 1, 1), constant=True) for n, count in (("w", 8), ("v", 44)))
    start = (apply("conv", apply("relu", apply("conv", x, w, pads=(0, 0, 0, 0))), v, pads=(0, 0, 0, 0)),)
    steps = StepChecker({rule.name: rule for rule in rules}, {rule.name: digest(rule) for rule in rules})
    ways = list(widened_states(start, prepared))
    assert ways
    for state, taken in ways:
        rewrite = Rewrite((), start, tuple(CertifiedStep(s.rule, s.roots, s.replacements) for s in taken), state)
        assert {shown.means for shown in steps.follow(rewrite)} == {StepEvidence.TESTED}


def test_sweeps_are_instances(rules: list[Rule], prepared: RuleSet, tmp_path: Path) -> None:
    def find(state: State) -> SearchResult:
        return search_island(state, prepared, estimate=estimate, measure=estimate, limits=SearchLimits(expansions=2))

    found = Certified(MODELS["branches"](), [find], rules, tmp_path).verified()
    assert {kind.how for kind in found.kinds} == {"proved"}


def test_what_optimize_writes_can_be_verified(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source, target, certificate = (str(tmp_path / name) for name in ("in.onnx", "out.onnx", "certificate.json"))
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 4]}, {"y": [2, 4]}), source)
    assert cli.main(["optimize", source, target, "--budget", "1s", "--certificate", certificate]) == 0
    assert cli.main(["verify", source, target, "--certificate", certificate]) == 0
    assert "it is the same model" in " ".join(capsys.readouterr().out.split())


def test_the_command_says_what_was_shown(capsys: pytest.CaptureFixture[str], branches: Certified) -> None:
    arguments = ["verify", str(branches.original), str(branches.optimized), "--certificate", str(branches.file)]
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == ["proved", "weights", "segments", "run"]
    assert lines[-1].startswith(f"{branches.optimized} computes what {branches.original} does: ")


# ---------------------------------------------------------------- wrong results


@pytest.mark.parametrize("folder", WRONG_RESULTS, ids=lambda folder: str(folder.name))
def test_wrong_results_are_refused(folder: Path) -> None:
    """The results are wrong, but an earlier version accepted them. A run of both models shows the difference."""
    record = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    original, optimized = ModelSource.read(folder / "in.onnx"), ModelSource.read(folder / "out.onnx")
    assert (original.digest(), optimized.digest()) == (record["original"], record["optimized"])
    with pytest.raises(CheckFailedError):
        compare_runs(original, optimized, given=record["sizes"])
    with pytest.raises(CertificateError, match="not of format version 2"):
        verify(folder / "in.onnx", folder / "out.onnx", json.dumps(record))
    for mode in ("relaxed", "precise"):
        bare = {**record, "form": 2, "passes": [], "stored": [], "arithmetic": {"mode": mode, "flags": []}}
        with pytest.raises(SuperoptError) as error:
            verify(folder / "in.onnx", folder / "out.onnx", json.dumps(bare))
        assert isinstance(error.value, CertificateError | CheckFailedError)


def test_precise_results_have_the_same_bits(tmp_path: Path) -> None:
    files = []
    for order in (("x", "one", "half"), ("x", "half", "one")):
        sums = [helper.make_node("Add", order[:2], ["t"]), helper.make_node("Add", ["t", order[2]], ["y"])]
        weights = [weight("one", 64), weight("half", 64)]
        onnx.save(model(sums, {"x": [64]}, {"y": [64]}, weights), tmp_path / f"{order[1]}.onnx")
        files.append(ModelSource.read(tmp_path / f"{order[1]}.onnx"))
    compare_runs(files[0], files[0], identical=True)
    compare_runs(*files)
    with pytest.raises(CheckFailedError, match="bits are not the same"):
        compare_runs(*files, identical=True)


def test_the_wrong_results_are_there() -> None:
    assert len(WRONG_RESULTS) == 15


# ---------------------------------------------------------------- refused certificates


def redone(certified: Certified, folder: Path, change: Callable[[onnx.ModelProto], None]) -> Callable[[], object]:
    """Change the optimized model, and return a function that verifies it with a certificate that has its digest."""
    proto = onnx.load(certified.optimized)
    change(proto)
    path = folder / "changed.onnx"
    onnx.save(proto, path)
    record = {**certified.record, "optimized": ModelSource.read(path).digest()}
    return lambda: verify(certified.original, path, json.dumps(record))


def scaled(factor: float, only: int | None = None) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        for place, tensor in enumerate(proto.graph.initializer):
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.float32 and only in (None, place):
                tensor.CopyFrom(numpy_helper.from_array((array * factor).astype(np.float32), tensor.name))

    return change


def test_weights_are_compared_within_their_rounding(branches: Certified, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="weight"):
        redone(branches, tmp_path, scaled(1 + 1e-6))()
    weights = [t for t in onnx.load(branches.optimized).graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.dims]
    assert len(weights) >= 2
    for place in range(len(weights)):
        with pytest.raises(CertificateError, match="weight"):
            redone(branches, tmp_path, scaled(1 + 1e-6, place))()
    redone(branches, tmp_path, lambda _: None)()


def multiplied() -> onnx.ModelProto:
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [3, 100]}, {"y": [3, 100]}, [weight("w", 100, 100)])


@pytest.mark.parametrize("kind", ["constant", "numbers", "bodies"])
def test_a_large_constant_without_a_term_is_refused(kind: str) -> None:
    original, changed = multiplied(), multiplied()
    array = numpy_helper.to_array(changed.graph.initializer[0]) * np.float32(1.0001)
    tensor = numpy_helper.from_array(array, "v")
    if kind == "bodies":
        outputs = [helper.make_tensor_value_info("r", TensorProto.FLOAT, [100, 100])]
        body = helper.make_graph([helper.make_node("Identity", ["v"], ["r"])], "body", [], outputs, [tensor])
        new = helper.make_node("If", ["c"], ["s"], then_branch=body, else_branch=body)
    elif kind == "constant":
        new = helper.make_node("Constant", [], ["v"], value=tensor)
    else:
        new = helper.make_node("Constant", [], ["v"], value_floats=array.ravel())
    changed.graph.node.insert(0, new)
    certificate = Certificate("", "", True, {}, (), ())
    before, after = (ModelSource(Path("model.onnx"), proto) for proto in (original, changed))
    check_weights(before, before, certificate)
    check_weights(after, after, certificate)
    with pytest.raises(CertificateError, match="new large constant"):
        check_weights(before, after, certificate)


def test_a_term_whose_large_numbers_cancel_does_not_widen_the_tolerance() -> None:
    original, changed = multiplied(), multiplied()
    array = numpy_helper.to_array(changed.graph.initializer[0])
    w = variable("w", (100, 100), constant=True)
    large = apply("scale", w, factor=10**20)
    term = apply("add", apply("sub", large, large), w)
    certificate = Certificate("", "", True, {}, (), (Pass((), {"v": term}),))
    for factor in (1, 1.0001):
        changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(array * np.float32(factor), "v"))
        before, after = (ModelSource(Path("model.onnx"), proto) for proto in (original, changed))
        with contextlib.nullcontext() if factor == 1 else pytest.raises(CertificateError, match="differs from its term"):
            check_weights(before, after, certificate)


def test_a_node_outside_the_segments_is_the_original(rules: list[Rule], strict: RuleSet, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}x"]) for name in "wv"]
    nodes += [helper.make_node("Add", ["wx", "vx"], ["s"]), helper.make_node("LpNormalization", ["s"], ["y"], axis=1)]
    stored = [weight(name, 4, 4) for name in "wv"]
    certified = Certified(model(nodes, {"x": [3, 4]}, {"y": [3, 4]}, stored), [at_random(strict, 3)], rules, tmp_path)
    certified.verified()

    def change(proto: onnx.ModelProto) -> None:
        (node,) = [node for node in proto.graph.node if node.op_type == "LpNormalization"]
        node.attribute[0].i = 0

    with pytest.raises(CertificateError, match="the node that computes 'y' differs"):
        redone(certified, tmp_path, change)()


def controlled(first: NodeProto, second: NodeProto, *weights: TensorProto) -> ModelSource:
    """Return a model with an If of two outputs, which the first branch computes by the two given nodes."""

    def branch(name: str, nodes: Sequence[NodeProto], arrays: Sequence[TensorProto] = ()) -> GraphProto:
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for one in nodes for n in one.output]
        return helper.make_graph(nodes, name, [], outputs, arrays)

    other = branch("else", [helper.make_node("Neg", ["x"], ["r"]), helper.make_node("Relu", ["x"], ["s"])])
    chosen = helper.make_node("If", ["c"], ["y", "z"], then_branch=branch("then", [first, second], weights), else_branch=other)
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "yz"]
    graph = helper.make_graph([chosen], "g", ports, outputs, [weight("w", 4)])
    opset = helper.make_opsetid("", 17)
    return ModelSource(Path("model.onnx"), helper.make_model(graph, opset_imports=[opset], ir_version=8))


def test_bodies_are_compared_node_by_node() -> None:
    product, total = (helper.make_node(op, ["x", "w"], ["p"]) for op in ("Mul", "Add"))
    relu, negative = (helper.make_node(op, ["x"], ["q"]) for op in ("Relu", "Neg"))
    place = RewrittenNodes((("y", "then_branch"),), ("p",), {}, ("p",))
    certificate = Certificate("", "", True, {}, (), (Pass((Rewrite((place,), (), (), ()),), {}),))
    original = controlled(product, relu)
    check_nodes(original, controlled(total, relu), certificate)
    with pytest.raises(CertificateError, match="computes 'q' differs"):
        check_nodes(original, controlled(total, negative), certificate)
    with pytest.raises(CertificateError, match="inputs, outputs or weights of a control flow body"):
        check_nodes(original, controlled(total, relu, weight("w", 4, seed=1)), certificate)
    elsewhere = replace(place, scope=(("y", "else_branch"),))
    with pytest.raises(CertificateError, match="computes 'p' differs"):
        check_nodes(
            original, controlled(total, relu), replace(certificate, passes=(Pass((Rewrite((elsewhere,), (), (), ()),), {}),))
        )
    with pytest.raises(CertificateError, match="the opset was converted"):
        check_nodes(original, controlled(total, negative), replace(certificate, opset=17))


def test_a_weight_does_not_take_the_place_of_a_node() -> None:
    nodes = [helper.make_node("Equal", ["i", "k"], ["e"]), helper.make_node("Cast", ["e"], ["y"], to=TensorProto.FLOAT)]
    number = numpy_helper.from_array(np.array([50256], np.int64), "k")
    ports = [helper.make_tensor_value_info("i", TensorProto.INT64, [4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])]

    def source(nodes: Sequence[NodeProto], weights: Sequence[TensorProto]) -> ModelSource:
        graph = helper.make_graph(nodes, "g", ports, outputs, weights)
        opsets = [helper.make_opsetid("", 17)]
        return ModelSource(Path("model.onnx"), helper.make_model(graph, opset_imports=opsets, ir_version=8))

    original = source(nodes, [number])
    never = source(nodes[1:], [number, numpy_helper.from_array(np.zeros(4, bool), "e")])
    certificate = Certificate("", "", True, {}, (), ())
    check_weights(original, original, certificate)
    with pytest.raises(CertificateError, match="the original computes 'e'"):
        check_weights(original, never, certificate)


@pytest.mark.parametrize("operator", ["Relu", "Erf", "com.microsoft.QuickGelu", "com.microsoft.Gelu"])
def test_stored_values_depend_on_fixed_shapes_alone(operator: str, rules: list[Rule], strict: RuleSet, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}x"]) for name in "wv"]
    nodes += [helper.make_node("Add", ["wx", "vx"], ["s"]), helper.make_node("Relu", ["s"], ["g"])]
    nodes += [helper.make_node("Shape", ["g"], ["n"]), helper.make_node("Concat", ["n", "one"], ["shape"], axis=0)]
    nodes += [helper.make_node("Reshape", ["g", "shape"], ["y"])]
    one = numpy_helper.from_array(np.array([1]), "one")
    proto = model(nodes, {"x": [4, 8]}, {"y": [4, 8, 1]}, [weight("w", 8, 8), weight("v", 8, 8), one])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.node[3].domain, _, proto.graph.node[3].op_type = operator.rpartition(".")
    certified = Certified(proto, [at_random(strict, 1, steps=2)], rules, tmp_path)
    assert certified.steps
    assert certified.record["stored"] == ["shape"]
    certified.verified()


@pytest.mark.parametrize("how", ["value", "shape", "chance"])
def test_a_stored_value_does_not_depend_on_inputs(how: str) -> None:
    nodes = {
        "value": [helper.make_node("Greater", ["x", "k"], ["c"])],
        "shape": [
            helper.make_node("Greater", ["x", "k"], ["p"]),
            helper.make_node("NonZero", ["p"], ["z"]),
            helper.make_node("Size", ["z"], ["n"]),
            helper.make_node("Cast", ["n"], ["c"], to=TensorProto.BOOL),
        ],
        "chance": [
            helper.make_node("RandomUniform", [], ["u"], shape=[4]),
            helper.make_node("Greater", ["u", "k"], ["c"]),
        ],
    }[how]
    last = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Where", ["c", "a", "x"], ["y"])]
    proto = model([*nodes, *last], {"x": [4]}, {"y": [4]}, [numpy_helper.from_array(np.full(4, 1e6, np.float32), "k")])
    shape: list[int] = [] if how == "shape" else [4]
    changed = model(last, {"x": [4]}, {"y": [4]}, [numpy_helper.from_array(np.zeros(shape, bool), "c")])
    original, optimized = (ModelSource(Path("model.onnx"), one) for one in (proto, changed))
    with pytest.raises(CertificateError, match="from weights and fixed shapes alone"):
        check_stored(original, optimized, Certificate("", "", True, {}, (), (), ("c",)), {"x": np.ones(4, np.float32)})


@pytest.mark.parametrize("provider", ["abacus", "cuda"])
def test_verify_runs_on_the_requested_provider(provider: str, branches: Certified, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    text = branches.file.read_text(encoding="utf-8")
    with pytest.raises(ProviderError, match=f"provider {provider}|provider '{provider}'"):
        verify(branches.original, branches.optimized, text, provider=provider)


def test_functions_and_the_opset_are_those_of_the_original() -> None:
    certificate = Certificate("", "", True, {}, (), ())
    original, other = (controlled(*(helper.make_node(op, ["x"], [op]) for op in ("Relu", "Neg"))) for _ in range(2))
    check_nodes(original, other, certificate)
    standard = helper.make_opsetid("", 17)
    body = [helper.make_node("Abs", ["x"], ["y"])]
    other.proto.functions.append(helper.make_function("", "Neg", ["x"], ["y"], body, [standard]))
    with pytest.raises(CertificateError, match="a local function"):
        check_nodes(original, other, certificate)
    del other.proto.functions[:]
    other.proto.opset_import[0].version = 16
    with pytest.raises(CertificateError, match="the opset was kept"):
        check_nodes(original, other, certificate)


def test_the_verdict_claims_the_same_model_only_if_nodes_are_equal() -> None:
    found = Verification("in", "out", [], run=(1, 1, 1))
    assert verification_lines(found)[-1].endswith("it is the same model")
    assert verification_lines(replace(found, changed=True))[-1].endswith("their runs agree")
    *_, nodes, _, verdict = verification_lines(replace(found, compared_nodes=False))
    assert nodes.startswith("nodes: not compared")
    assert verdict.endswith("their runs agree")


def test_nodes_are_not_compared_if_the_opset_was_raised(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    old, new = tmp_path / "17.onnx", tmp_path / "18.onnx"
    for opset, path in ((17, old), (18, new)):
        onnx.save(model(nodes, {"x": [4]}, {"y": [4]}, opset=opset), path)
    before, after = (ModelSource.read(path).digest() for path in (old, new))
    found = verify_certificate(old, new, Certificate(before, after, True, {}, (), (), opset=18), [])
    assert not found.compared_nodes
    assert not found.changed


def looped(*, stored: bool) -> onnx.ModelProto:
    """Return a Loop whose body adds two products with the body's own weights, and a node with an explicit domain after the
    Loop.

    With `stored`, the weights are initializers. Otherwise, they are Constant nodes.
    """
    weights = [weight(name, 8, 8) for name in "wv"]
    nodes = [helper.make_node("MatMul", ["s", name], [f"{name}s"]) for name in "wv"]
    nodes += [helper.make_node("Add", ["ws", "vs"], ["a"]), helper.make_node("Tanh", ["a"], ["r"])]
    nodes += [helper.make_node("Identity", ["c"], ["going"])]
    if not stored:
        nodes = [helper.make_node("Constant", [], [w.name], value=w) for w in weights] + nodes
    scalar = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", 7), ("c", 9), ("going", 9))}
    state, after = (helper.make_tensor_value_info(name, 1, [4, 8]) for name in "sr")
    body = helper.make_graph(
        nodes, "body", [scalar["i"], scalar["c"], state], [scalar["going"], after], weights if stored else []
    )
    top = [helper.make_node("Loop", ["n", "", "x"], ["t"], body=body), helper.make_node("Sinh", ["t"], ["y"], domain="")]
    count = numpy_helper.from_array(np.array(3), "n")
    return model(top, {"x": [4, 8]}, {"y": [4, 8]}, [count])


@pytest.mark.parametrize("stored", [True, False])
def test_weights_of_a_body_are_weights_of_the_model(stored: bool, rules: list[Rule], strict: RuleSet, tmp_path: Path) -> None:
    merged = RuleSet([rule for rule in rules if rule.name.startswith("add-matmul-to-matmul-add")])
    certified = Certified(looped(stored=stored), [at_random(merged, 0, 1)], rules, tmp_path)
    assert certified.steps
    certified.verified()
    changed = onnx.load(certified.optimized)
    (loop,) = (node for node in changed.graph.node if node.op_type == "Loop")
    (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
    (new,) = (tensor for graph in (changed.graph, body) for tensor in graph.initializer if "superopt" in tensor.name)
    new.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(new), new.name))
    onnx.save(changed, certified.optimized)
    record = {**certified.record, "optimized": ModelSource.read(certified.optimized).digest()}
    assert "differs from its term" in refused(certified, record)


def test_another_model_is_refused(capsys: pytest.CaptureFixture[str], branches: Certified, tmp_path: Path) -> None:
    arguments = ["verify", str(branches.optimized), str(branches.optimized), "--certificate", str(branches.file)]
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err.splitlines()[-1].endswith("is not the original model of the certificate")
    arguments = ["verify", str(branches.original), str(branches.original), "--certificate", str(branches.file)]
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err.splitlines()[-1].endswith("is not the optimized model of the certificate")


def test_a_changed_replacement_is_refused(branches: Certified) -> None:
    record = branches.record
    rewrite = record["passes"][0]["rewrites"][0]
    rewrite["nodes"].append(["scale", [rewrite["steps"][0][2][0]], {"factor": 2}])
    rewrite["steps"][0][2][0] = len(rewrite["nodes"]) - 1
    assert "is wrong: the values of its two sides differ" in refused(branches, record)


def test_steps_by_other_rules_are_refused(branches: Certified) -> None:
    record = branches.record
    step = record["passes"][0]["rewrites"][0]["steps"][0]
    name, step[0] = step[0], "no-such-rule"
    assert refused(branches, record).startswith("no stored rule is called 'no-such-rule'")
    record = branches.record
    record["rules"][name] = "0" * 16
    assert refused(branches, record) == f"the stored rule {name!r} differs from the rule that the certificate names"


def test_steps_lead_where_the_certificate_says(branches: Certified) -> None:
    record = branches.record
    record["passes"][0]["rewrites"][0]["steps"].pop()
    assert refused(branches, record) == "the steps do not lead to the final terms in the certificate"
    record = branches.record
    record["rewritten"] = False
    assert "says that nothing was rewritten" in refused(branches, record)
    record = branches.record
    record["passes"] = []
    reason = refused(branches, record)
    assert any(
        text in reason for text in ("of the optimized model", "differs from the original's", "differs between the models")
    )


def test_terms_are_those_of_the_models(branches: Certified) -> None:
    """The steps of the certificate are valid, but their initial terms are not the terms of the model."""
    record = branches.record
    for rewrite in record["passes"][0]["rewrites"]:
        rewrite["nodes"].append(["scale", [rewrite["before"][0]], {"factor": 2}])
        rewrite["before"][0] = rewrite["after"][0] = len(rewrite["nodes"]) - 1
        rewrite["steps"] = []
    assert "differs from its initial term" in refused(branches, record)


def test_variables_stand_for_values_of_the_original(branches: Certified) -> None:
    record = branches.record
    inputs = record["passes"][0]["rewrites"][0]["places"][0]["inputs"]
    name = min(inputs)
    inputs[name] += "x"
    assert "not have" in refused(branches, record) or "weight" in refused(branches, record)


@pytest.mark.parametrize("arithmetic", [{"mode": "sloppy"}, "sloppy", {"mode": 3}, {}])
def test_an_unknown_floating_point_mode_is_refused(branches: Certified, arithmetic: object) -> None:
    assert refused(branches, {**branches.record, "arithmetic": arithmetic}).startswith("the certificate ")


@pytest.mark.parametrize("text", ["", "[]", '{"form": 0}', '{"form": 2}', '{"form": 2, "passes": 3}', "[" * 100_000])
def test_what_is_no_certificate_is_refused(
    capsys: pytest.CaptureFixture[str], branches: Certified, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "certificate.json"
    arguments = ["verify", str(branches.original), str(branches.optimized), "--certificate", str(file)]
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err == f"superopt: {file}: no such file or directory\n"
    file.write_text(text, encoding="utf-8")
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err.startswith("superopt: the certificate ")


@pytest.mark.parametrize(
    "changes",
    [
        {"opset": 0},
        {"sizes": [{"n": -5}]},
        {"specialization": {"values": {}, "sizes": {"n": -1}, "branches": []}},
        {"specialization": {"values": {"x": {"type": "int64", "shape": [-1], "elements": [1]}}, "sizes": {}, "branches": []}},
    ],
)
def test_sizes_and_opsets_that_no_model_has_are_refused(
    capsys: pytest.CaptureFixture[str], branches: Certified, tmp_path: Path, changes: dict[str, object]
) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps({**branches.record, **changes}), encoding="utf-8")
    assert cli.main(["replay", str(file), str(branches.original), str(tmp_path / "new.onnx")]) == CertificateError.exit_code
    assert "where an integer of at least" in capsys.readouterr().err


def test_values_that_nest_deep_are_refused(branches: Certified) -> None:
    record = branches.record
    value: object = 1
    for _ in range(300):
        value = {"sum": [[value]]}
    record["passes"][0]["rewrites"][0]["nodes"][0][2]["shape"] = [value]
    with pytest.raises(CertificateError, match="is nested too deeply"):
        parse_certificate(json.dumps(record))


# ---------------------------------------------------------------- instances of rules


X = variable("x", (4, 6))
TWICE = parse_rule("twice: relu(relu(x)) => relu(x) for x[2]")
UP, DOWN = parse_rule("up: abs(x) => relu(abs(x)) for x[2]"), parse_rule("down: relu(abs(x)) => abs(x) for x[2]")


def relu(x: Term) -> Term:
    return apply("relu", x)


def test_replacements_inside_each_other_are_an_instance() -> None:
    inner, top = relu(relu(X)), relu(relu(apply("exp", relu(relu(X)))))
    right = (relu(X), relu(apply("exp", relu(X))))
    assert is_instance(TWICE, (inner, top), right, ())
    assert not is_instance(TWICE, (inner, top), (relu(X), relu(apply("exp", X))), ())


def test_reasons_in_a_circle_are_none() -> None:
    one, other = apply("abs", X), relu(apply("abs", X))
    anything = apply("exp", X)
    assert is_instance(UP, (one,), (other,), ())
    assert not is_instance(UP, (one, other), (anything, anything), ())


def test_conditions_and_rests_are_looked_at() -> None:
    factor = parse_rule("factor: x @ y + x @ z => x @ (y + z) for x[2], y[2], z[2]")
    y, z, r = (variable(n, shape) for n, shape in (("y", (6, 3)), ("z", (6, 3)), ("r", (4, 3))))
    root = apply("add", apply("matmul", X, y), apply("matmul", X, z), r)
    new = apply("add", apply("matmul", X, apply("add", y, z)), r)
    assert is_instance(factor, (root,), (new,), ())
    assert not is_instance(factor, (root,), (apply("matmul", X, apply("add", y, z)),), ())
    narrow = parse_rule("narrow: relu(relu(x)) => relu(x) for x[2] where x.shape[-1] <= 5")
    assert not is_instance(narrow, (relu(relu(X)),), (relu(X),), ())
    small = variable("s", (4, 5))
    assert is_instance(narrow, (relu(relu(small)),), (relu(small),), ())
    dynamic = variable("d", (4, dimension("n")))
    assert not is_instance(narrow, (relu(relu(dynamic)),), (relu(dynamic),), ())


# ---------------------------------------------------------------- arrays, runs and names


CASES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    **{name: (((3, 4),) * 3, {}) for name in ("add", "mul", "maximum", "minimum")},
    **{name: (((3, 4),), {}) for name in ("exp", "log", "sqrt", "reciprocal", "relu")},
    "sub": (((3, 4),) * 2, {}),
    "scale": (((3, 4),), {"factor": 0.3}),
    "matmul": (((2, 3, 4), (4, 5)), {}),
    "conv": (((2, 4, 9, 8), (6, 2, 3, 2)), {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2), "group": 2}),
    "max_pool": (((2, 4, 9, 8),), {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2)}),
    **{name: (((2, 3, 4),), {"axes": (-3, -1)}) for name in NUMPY if name.startswith("reduce")},
    "reshape": (((2, 6),), {"shape": (3, 4)}),
    "transpose": (((2, 3, 4),), {"perm": (-1, -3, -2)}),
    "concat": (((2, 3), (2, 5)), {"axis": -1}),
    "slice": (((2, 6),), {"axis": -1, "start": 1, "stop": 4}),
    "expand": (((2, 3),), {"shape": (2, 5, 3), "axes": (-3, -1)}),
    "pad": (((2, 3),), {"before": (1, 0), "after": (0, 2)}),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_computes_what_the_definition_says(name: str) -> None:
    shapes, attributes = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [np.abs(rng.standard_normal(shape)) + 0.1 - (name in ("relu", "add")) for shape in shapes]
    term = apply(name, *(variable(f"x{n}", shape) for n, shape in enumerate(shapes)), **attributes)
    expected = arrays[0]
    if operator(name).commutative:
        for array in arrays[1:]:
            expected = evaluate_operator(name, (expected, array), {}, Floats())
    else:
        expected = evaluate_operator(name, tuple(arrays), dict(term.attributes), Floats())
    np.testing.assert_allclose(apply_certificate_operator(name, arrays, attributes), expected, rtol=1e-12)


def test_elements_are_compared_with_those_beside_them() -> None:
    wanted = np.array([[1e6] * 8, [1.0] * 8], np.float32)
    near = [wanted * np.float32(1 + 1e-7)]
    found = wanted.copy()
    assert not describe_difference(wanted, found * np.float32(1 + 1e-5), near)
    found[1, 3] = 1.01
    assert "became 1.01 at [1, 3]" in describe_difference(wanted, found, near)
    found[1, 3] = np.inf
    assert "became inf" in describe_difference(wanted, found, near)
    assert not describe_difference(np.full(8, np.inf, np.float32), np.full(8, np.nan, np.float32))


def test_names_of_dimensions_may_be_expressions() -> None:
    assert dimension_expression_names("past + length") == {"past", "length"}
    assert (
        dimension_expression_names("unk__12")
        == dimension_expression_names("batch")
        == dimension_expression_names("?")
        == frozenset()
    )
    assert dimension_expression_extent("past + 2 * length", {"past": 3, "length": 4}) == 11


@pytest.mark.parametrize("name", ["n // 0", "n // (n - n)", "n * 'a'", "n * 1e400", "n * None"])
def test_a_dimension_without_a_size_is_refused(name: str) -> None:
    with pytest.raises(InvalidModelError, match="has no size"):
        dimension_expression_extent(name, {"n": 3})


def test_sizes_that_are_expressions_are_known_where_the_dimensions_are() -> None:
    rows = dimension("rows")
    (atom,) = rows.atoms()
    padded = variable("padded", (2 * rows - rows // 2 * 2, 4))
    half = apply("slice", padded, axis=0, start=0, stop=rows - rows // 2)
    array = np.ones((6, 4))
    (found,) = evaluate_certificate_terms([half], {"padded": array[:4]}, {atom: 3})
    assert found.shape == (2, 4)
    with pytest.raises(UndecidedError, match="a dimension of unknown size"):
        evaluate_certificate_terms([half], {"padded": array[:4]})
    with pytest.raises(ShapeError, match="axis 0 of padded has size 6"):
        evaluate_certificate_terms([half], {"padded": array}, {atom: 3})


# ---------------------------------------------------------------- forms


def test_steps_with_dynamic_extents_can_be_kept() -> None:
    batch = dimension("batch")
    x = variable("x", (batch, 8))
    flat = apply("reshape", x, shape=(batch * 8,))
    half = apply("slice", x, axis=0, start=0, stop=(batch + 1) // 2)
    steps = (Taken("flat", (x,), (flat,)), Taken("half", (x,), (half,)))
    assert steps_restored(json.loads(json.dumps(steps_recorded(steps)))) == steps


def test_where_tensors_lie_does_not_matter(tmp_path: Path) -> None:
    proto = MODELS["branches"]()
    apart, whole = tmp_path / "apart.onnx", tmp_path / "whole.onnx"
    save(as_model(proto), apart, external=True)
    onnx.save(proto, whole)
    assert len([*tmp_path.glob("apart-*.data")]) == 1
    assert content_digest(load(apart).model) == content_digest(as_model(proto))
    assert ModelSource.read(apart).digest() == ModelSource.read(whole).digest() == content_digest(as_model(proto))


def test_looking_at_a_model_does_not_change_what_it_holds() -> None:
    number = numpy_helper.from_array(np.array([2.0], np.float32))
    nodes = [helper.make_node("Constant", [], ["c"], value=number), helper.make_node("Mul", ["x", "c"], ["y"])]
    given = as_model(model(nodes, {"x": [4]}, {"y": [4]}))
    before = content_digest(given)
    Chart(fold_known_values(given))
    assert content_digest(given) == before


def test_external_weights_are_verified(rules: list[Rule], strict: RuleSet, tmp_path: Path) -> None:
    certified = Certified(MODELS["images"](), [at_random(strict, 1)], rules, tmp_path)
    apart = tmp_path / "apart" / "in.onnx"
    apart.parent.mkdir()
    save(load(certified.original).model, apart, external=True)
    shutil.copy(certified.optimized, apart.parent / "out.onnx")
    assert verify(apart, apart.parent / "out.onnx", certified.file.read_text(encoding="utf-8")).segments


@pytest.mark.parametrize("outputs", [["h"], ["h", ""]])
def test_a_model_at_which_the_runtime_dies_for_an_empty_batch_is_verified(
    outputs: list[str], rules: list[Rule], strict: RuleSet, tmp_path: Path
) -> None:
    """ONNX Runtime 1.32 dies if a bidirectional GRU has an empty batch.

    The node may list an unused output with an empty name.
    """
    nodes = [
        helper.make_node("GRU", ["x", "w", "r"], outputs, hidden_size=8, direction="bidirectional"),
        helper.make_node("MatMul", ["x", "p"], ["xp"]),
        helper.make_node("MatMul", ["x", "q"], ["xq"]),
        helper.make_node("Add", ["xp", "xq"], ["y"]),
    ]
    weights = [weight("w", 2, 24, 8), weight("r", 2, 24, 8), weight("p", 8, 8), weight("q", 8, 8)]
    proto = model(nodes, {"x": [5, "batch", 8]}, {"h": [5, 2, "batch", 8], "y": [5, "batch", 8]}, weights)
    certified = Certified(proto, [at_random(strict, 1, steps=2)], rules, tmp_path)
    assert certified.steps
    assert sum(kind.steps for kind in certified.verified().kinds) == certified.steps


def test_a_comparison_of_a_sum_that_cancels_may_have_either_result(rules: list[Rule], strict: RuleSet, tmp_path: Path) -> None:
    """The model computes the spectrum of a signal that is reflected at its start.

    The imaginary parts of the first frame are 0 up to rounding, so their comparison with 0 may have either result.
    """
    angles = 2 * np.pi * np.outer(np.arange(17), np.arange(32)) / 32
    sines = (-np.sin(angles) * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(32) / 32)))[:, None].astype(np.float32)
    stored = {"k": sines, "zero": np.float32(0), "two": np.float32(2), "pads": np.array([0, 0, 16, 0, 0, 16])}
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"], mode="reflect"),
        helper.make_node("Conv", ["padded", "k"], ["im"], strides=[8]),
        helper.make_node("Pow", ["im", "two"], ["power"]),
        helper.make_node("Greater", ["im", "zero"], ["positive"]),
        helper.make_node("Cast", ["positive"], ["sign"], to=TensorProto.FLOAT),
    ]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    proto = model(nodes, {"x": ["batch", 1, 256]}, {"power": ["batch", 17, 33], "sign": ["batch", 17, 33]}, weights)
    certified = Certified(proto, [at_random(strict, 0, steps=2)], rules, tmp_path)
    assert certified.steps
    assert sum(kind.steps for kind in certified.verified().kinds) == certified.steps
