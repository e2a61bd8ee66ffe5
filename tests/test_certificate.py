"""Certificates: what the searches find is replayed and holds; what is changed afterwards is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from superopt import cli
from superopt.certificate import Evidence
from superopt.errors import CertificateError
from superopt.graph import Term, subterms, variable
from superopt.model.content import content_digest, require_same
from superopt.model.dimensions import Sizing, dimension
from superopt.model.islands import Chart
from superopt.model.known import with_known_stored
from superopt.model.load import as_model, load
from superopt.model.save import save
from superopt.mutation import search_mutants
from superopt.op import apply
from superopt.replay import Means, Replay
from superopt.report.verification import Verification
from superopt.rewrite.apply import State, Step, rebuilt
from superopt.rewrite.instance import is_instance
from superopt.rewrite.island import search_island
from superopt.rewrite.record import steps_recorded, steps_restored
from superopt.rewrite.roofline import CPU, seconds
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.schedule import Find
from superopt.rewrite.search import Limits, search
from superopt.rewrite.widen import widened
from superopt.rule import Rule, digest, parse_rule
from superopt.segments import Gain, Segment, whole
from superopt.selection import spliced
from superopt.store import load_rules
from superopt.verify import verify
from tests.models import model, weight

Cost = Callable[[State], float]


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return load_rules()


def steps_of_a_sequence() -> onnx.ModelProto:
    """Slices of one input through one weight: at all of them together a single product."""
    nodes = []
    for n in range(4):
        nodes.append(helper.make_node("Slice", ["x", f"from{n}", f"to{n}", "axis"], [f"part{n}"]))
        nodes.append(helper.make_node("MatMul", [f"part{n}", "w"], [f"made{n}"]))
        nodes.append(helper.make_node("Relu", [f"made{n}"], [f"y{n}"]))
    numbers = {"axis": 0} | {f"from{n}": 8 * n for n in range(4)} | {f"to{n}": 8 * n + 8 for n in range(4)}
    stored = [numpy_helper.from_array(np.array([value]), name) for name, value in numbers.items()]
    outputs: dict[str, Sequence[int | str]] = {f"y{n}": [8, 64] for n in range(4)}
    return model(nodes, {"x": [32, 64]}, outputs, [weight("w", 64, 64), *stored])


def pooled() -> onnx.ModelProto:
    """Pooling that leaves pads out."""
    sides: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 0}
    nodes = [helper.make_node("AveragePool", ["x"], ["p"], **sides), helper.make_node("Relu", ["p"], ["y"])]
    return model(nodes, {"x": [1, 4, 8, 8]}, {"y": [1, 4, 8, 8]})


def recurrent() -> onnx.ModelProto:
    """A simple recurrent network, unrolled."""
    nodes, state = list[onnx.NodeProto](), "h"
    for n in range(3):
        nodes.append(helper.make_node("MatMul", [f"x{n}", "w"], [f"in{n}"]))
        nodes.append(helper.make_node("MatMul", [state, "r"], [f"on{n}"]))
        nodes.append(helper.make_node("Add", [f"in{n}", f"on{n}"], [f"sum{n}"]))
        nodes.append(helper.make_node("Add", [f"sum{n}", "b"], [f"all{n}"]))
        nodes.append(helper.make_node("Tanh", [f"all{n}"], [state := f"y{n}"]))
    inputs: dict[str, Sequence[int | str]] = {"h": [2, 8], **{f"x{n}": [2, 4] for n in range(3)}}
    outputs: dict[str, Sequence[int | str]] = {f"y{n}": [2, 8] for n in range(3)}
    return model(nodes, inputs, outputs, [weight("w", 4, 8), weight("r", 8, 8), weight("b", 8)])


def estimate(state: State) -> float:
    return seconds(state, CPU)


def slow_pools(state: State) -> float:
    """A device on which pooling takes long."""
    return estimate(state) + 1e-3 * sum(t.op == "avg_pool" for t in subterms(*state))


def slow_functions(state: State) -> float:
    """A device on which every function takes long, inside a recurrent operator less so."""
    return estimate(state) + 1e-3 * sum(t.op == "tanh" for t in subterms(*state))


class Certified:
    """A model, what a search made of it, and the certificate, in files."""

    def __init__(self, proto: onnx.ModelProto, find: Find, cost: Cost, rules: list[Rule], folder: Path) -> None:
        self.original, self.optimized, self.file = (folder / name for name in ("in.onnx", "out.onnx", "certificate.json"))
        onnx.save(proto, self.original)
        given = load(self.original).model
        start = with_known_stored(given)
        copies: dict[State, list[Segment]] = {}
        for segment in whole(Chart(start), {}):
            copies.setdefault(segment.state, []).append(segment)
        prepared, limits = RuleSet(rules), Limits(expansions=20)
        found = {s: find(s, prepared, estimate=cost, measure=cost, limits=limits) for s in copies}
        taken = tuple(Gain(tuple(copies[s]), f, ()) for s, f in found.items() if f.steps)
        assert taken
        made = spliced(start, (taken,))
        save(made, self.optimized)
        self.file.write_text(Evidence(given, True, (taken,), rules).certificate(made), encoding="utf-8")

    @property
    def record(self) -> Any:
        return json.loads(self.file.read_text(encoding="utf-8"))

    def verified(self) -> Verification:
        return verify(self.original, self.optimized, self.file.read_text(encoding="utf-8"))

    def refused(self, record: Any) -> str:
        """Why another certificate of the same models is refused."""
        with pytest.raises(CertificateError) as refused:
            verify(self.original, self.optimized, json.dumps(record))
        return str(refused.value)


@pytest.fixture(scope="module")
def swept(rules: list[Rule], tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(steps_of_a_sequence(), search_island, estimate, rules, tmp_path_factory.mktemp("swept"))


@pytest.fixture(scope="module")
def mutated(rules: list[Rule], tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(pooled(), search_mutants, slow_pools, rules, tmp_path_factory.mktemp("mutated"))


# ---------------------------------------------------------------- what holds


def test_a_sweep_is_proved(swept: Certified) -> None:
    found = swept.verified()
    (kind,) = found.kinds
    assert (kind.how, kind.log2_error) == ("proved", None)
    assert kind.roots > kind.steps
    assert found.errors is not None
    assert found.rounded == 0


def test_a_corrected_mutant_is_judged(mutated: Certified) -> None:
    (kind,) = mutated.verified().kinds
    assert kind.how == "judged"
    assert kind.log2_error is not None
    assert kind.log2_error < -60
    (row,) = mutated.record["judged"]
    assert row["programs"].startswith("avg_pool(x0")
    assert row["log2_error"] < -60


def test_a_recurrence_is_tested(rules: list[Rule], tmp_path: Path) -> None:
    kinds = Certified(recurrent(), search_island, slow_functions, rules, tmp_path).verified().kinds
    (tested,) = [kind for kind in kinds if kind.how == "tested"]
    assert "rnn.definition" in tested.rules
    assert tested.log2_error is not None
    assert tested.log2_error < -60


def test_a_widened_island_is_tested(rules: list[Rule]) -> None:
    x = variable("x", (1, 8, 6, 6))
    w, v = (variable(n, (44, count, 1, 1), constant=True) for n, count in (("w", 8), ("v", 44)))
    start = (apply("conv", relu(apply("conv", x, w, pads=(0, 0, 0, 0))), v, pads=(0, 0, 0, 0)),)
    replay = Replay(rules, {rule.name: digest(rule) for rule in rules})
    ways = list(widened(start, RuleSet(rules)))
    assert ways
    for state, steps in ways:
        end, (shown,) = replay.followed(start, steps)
        assert end == state
        assert shown.means is Means.TESTED
        assert shown.log2_error is not None
        assert shown.log2_error < -60


def test_steps_hold_at_every_size(rules: list[Rule], tmp_path: Path) -> None:
    sizing = Sizing({"batch": 5})

    def at_a_size(state: State) -> float:
        return estimate(tuple(map(sizing.at, state)))

    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}x"]) for name in "wv"]
    nodes += [helper.make_node("Add", ["wx", "vx"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    proto = model(nodes, {"x": ["batch", 64]}, {"y": ["batch", 64]}, [weight("w", 64, 64), weight("v", 64, 64)])
    found = Certified(proto, search, at_a_size, rules, tmp_path).verified()
    assert [kind.how for kind in found.kinds] == ["proved"]


def test_the_command_says_how_each_step_was_shown(capsys: pytest.CaptureFixture[str], swept: Certified) -> None:
    arguments = ["verify", str(swept.original), str(swept.optimized), "--certificate", str(swept.file)]
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("proved: ")
    assert lines[-1].startswith(f"{swept.optimized} computes what {swept.original} does: ")


def test_what_optimize_writes_can_be_verified(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source, target, certificate = (str(tmp_path / name) for name in ("in.onnx", "out.onnx", "certificate.json"))
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 4]}, {"y": [2, 4]}), source)
    assert cli.main(["optimize", source, target, "--budget", "1s", "--certificate", certificate]) == 0
    assert cli.main(["verify", source, target, "--certificate", certificate]) == 0
    assert "it is the same model" in " ".join(capsys.readouterr().out.split())


# ---------------------------------------------------------------- what is refused


def test_another_model_is_refused(capsys: pytest.CaptureFixture[str], swept: Certified, mutated: Certified) -> None:
    arguments = ["verify", str(mutated.original), str(swept.optimized), "--certificate", str(swept.file)]
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err.splitlines()[-1].endswith("is not the original model of the certificate")
    arguments = ["verify", str(swept.original), str(mutated.optimized), "--certificate", str(swept.file)]
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err.splitlines()[-1].endswith("is not the optimized model of the certificate")


def test_a_changed_replacement_is_refused(swept: Certified, mutated: Certified) -> None:
    for certified, operator in ((swept, "matmul"), (mutated, "conv")):
        record = certified.record
        (rewrite,) = record["passes"][0]
        _, _, (replacement, *_) = rewrite["steps"][0]
        nodes = rewrite["nodes"]
        assert operator in {op for op, _, _ in nodes}
        nodes.append(["scale", [replacement], {"factor": 2}])
        rewrite["steps"][0][2][0] = len(nodes) - 1
        assert "is not right: values differ" in certified.refused(record) or "is wrong at" in certified.refused(record)


def test_steps_by_other_rules_are_refused(swept: Certified) -> None:
    record = swept.record
    step = record["passes"][0][0]["steps"][0]
    name, step[0] = step[0], "no-such-rule"
    assert swept.refused(record) == "no stored rule is called 'no-such-rule'"
    record = swept.record
    record["rules"][name] = "0" * 16
    assert swept.refused(record) == f"the stored rule {name!r} is not the one of the certificate"


def test_fewer_steps_make_another_model(swept: Certified) -> None:
    record = swept.record
    record["passes"][0][0]["steps"].pop()
    assert "the steps lead to another model than the optimized one" in swept.refused(record)
    record["rewritten"] = False
    assert "says that nothing was rewritten" in swept.refused(record)


def test_what_is_not_there_is_not_replaced(mutated: Certified) -> None:
    record = mutated.record
    nodes = record["passes"][0][0]["nodes"]
    next(attributes for op, _, attributes in nodes if op == "")["name"] = "x7"
    assert "replaces avg_pool, which is not there" in mutated.refused(record)


def test_a_mutant_reads_the_operands_alone(rules: list[Rule]) -> None:
    """The input stands under the name by which the first operand is known where the mutant is judged."""
    x = variable("x0", (4, 5))
    one, other = (apply("matmul", y, variable("w0", (5, 5), constant=True)) for y in (relu(x), x))
    with pytest.raises(CertificateError, match="reads more than the operands"):
        Replay(rules, {}).followed((one,), [Step("~> nothing", (one,), (other,))])


def test_places_that_are_not_there_are_refused(swept: Certified) -> None:
    record = swept.record
    record["passes"][0][0]["places"][0]["nodes"][0] = "nothing"
    assert "no island of the model has the nodes" in swept.refused(record)


@pytest.mark.parametrize("text", ["", "[]", '{"form": 0}', '{"form": 1}', '{"form": 1, "passes": 3}'])
def test_what_is_no_certificate_is_refused(
    capsys: pytest.CaptureFixture[str], swept: Certified, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "certificate.json"
    arguments = ["verify", str(swept.original), str(swept.optimized), "--certificate", str(file)]
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err == f"superopt: {file}: no such file or directory\n"
    file.write_text(text, encoding="utf-8")
    assert cli.main(arguments) == CertificateError.exit_code
    assert capsys.readouterr().err.startswith("superopt: the certificate ")


# ---------------------------------------------------------------- instances of rules


X = variable("x", (4, 6))
TWICE = RuleSet([parse_rule("twice: relu(relu(x)) => relu(x) for x[2]")])
AROUND = RuleSet([parse_rule("up: abs(x) => relu(abs(x)) for x[2]"), parse_rule("down: relu(abs(x)) => abs(x) for x[2]")])


def relu(x: Term) -> Term:
    return apply("relu", x)


def test_replacements_inside_each_other_are_an_instance() -> None:
    top = relu(relu(apply("exp", relu(relu(X)))))
    inner = relu(relu(X))
    wanted = {inner: relu(X), top: relu(apply("exp", relu(relu(X))))}
    done = rebuilt((top,), wanted)
    assert done is not None
    roots = (inner, top)
    assert is_instance(Step("twice", roots, tuple(done[r] for r in roots)), (top,), TWICE)
    assert not is_instance(Step("twice", roots, (relu(X), relu(apply("exp", X)))), (top,), TWICE)


def test_reasons_in_a_circle_are_none() -> None:
    one, other = apply("abs", X), relu(apply("abs", X))
    anything = apply("exp", X)
    assert is_instance(Step("up", (one,), (other,)), (one,), AROUND)
    assert not is_instance(Step("up", (one, other), (anything, anything)), (other,), AROUND)


# ---------------------------------------------------------------- forms


def test_steps_with_open_extents_can_be_kept() -> None:
    batch = dimension("batch")
    x = variable("x", (batch, 8))
    flat = apply("reshape", x, shape=(batch * 8,))
    half = apply("slice", x, axis=0, start=0, stop=(batch + 1) // 2)
    steps = (Step("flat", (x,), (flat,)), Step("half", (x,), (half,)))
    assert steps_restored(json.loads(json.dumps(steps_recorded(steps)))) == steps


def test_where_tensors_lie_does_not_matter(tmp_path: Path) -> None:
    proto = steps_of_a_sequence()
    apart = tmp_path / "apart.onnx"
    save(as_model(proto), apart, external=True)
    assert len([*tmp_path.glob("apart-*.data")]) == 1
    assert content_digest(load(apart).model) == content_digest(as_model(proto))


def test_looking_at_a_model_does_not_change_what_it_holds() -> None:
    number = numpy_helper.from_array(np.array([2.0], np.float32))
    nodes = [helper.make_node("Constant", [], ["c"], value=number), helper.make_node("Mul", ["x", "c"], ["y"])]
    given = as_model(model(nodes, {"x": [4]}, {"y": [4]}))
    before = content_digest(given)
    Chart(with_known_stored(given))
    assert content_digest(given) == before


def test_weights_may_differ_in_their_last_places_alone() -> None:
    def with_weight(change: float) -> onnx.ModelProto:
        proto = steps_of_a_sequence()
        first = proto.graph.initializer[0]
        array = numpy_helper.to_array(first) * np.float32(change)
        first.CopyFrom(numpy_helper.from_array(array, first.name))
        return proto

    made = as_model(steps_of_a_sequence())
    assert require_same(made, as_model(with_weight(1.0))) == 0
    assert require_same(made, as_model(with_weight(1.0 + 1e-6))) == 1
    with pytest.raises(CertificateError, match="weight 'w' differs"):
        require_same(made, as_model(with_weight(1.01)))
