"""Replayed certificates: rewrites of one model are applied to the same graph with other weights, or left out with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import superopt
from superopt import errors
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.algebra.value_analysis import ORDINARY_INPUT, UNBOUNDED, Facts
from superopt.cli import main as cli
from superopt.flows.verify import verify
from superopt.partial.families import MUTANTS
from superopt.rules.fp_flags import FpFlag, FpMode
from superopt.rules.rule import Rule, parse_rule
from superopt.rules.store import load_rules
from superopt.runtime.session import runtime
from superopt.search.absorption import absorption
from superopt.search.apply import PARTLY, State, Step, successors
from superopt.search.backtracking import SearchResult
from superopt.search.gate import Gate
from superopt.search.recognition import recognized_rules
from superopt.search.replay import StepReplay
from superopt.search.reroll import reroll_recurrences
from superopt.search.ruleset import RuleSet
from superopt.search.vanish import remove_vanishing
from superopt.search.widen import widened_states
from tests.certified import MODELS, Certified, Find, at_random
from tests.models import model, weight

pytestmark = pytest.mark.slow

CLEARED = "where-mul-zeros-to-mul-where-zeros"
MERGED = "add-matmul-to-matmul-add-2"
MOVED = "scale-leaky-relu-to-leaky-relu-scale"


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return load_rules()


@pytest.fixture(scope="module")
def prepared(rules: list[Rule]) -> RuleSet:
    return RuleSet(rules)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUPEROPT_CACHE", str(tmp_path / "cache.db"))
    return tmp_path / "cache.db"


def retrained(proto: onnx.ModelProto, **changed: Any) -> onnx.ModelProto:
    """Return the model with other random tensors.

    `changed` gives the values of named tensors. Single numbers do not change.
    """
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    random = np.random.default_rng(7)
    for tensor in other.graph.initializer:
        old = numpy_helper.to_array(tensor)
        new = random.standard_normal(old.shape) if old.dtype.kind == "f" and old.size > 1 else old
        tensor.CopyFrom(
            numpy_helper.from_array(np.asarray(changed.get(tensor.name, new), old.dtype).reshape(old.shape), tensor.name)
        )
    return other


def by(*names: str, rules: RuleSet, wanted: Callable[[Term], bool] = lambda _: True) -> Find:
    """Return a search that applies these rules, each at its first match whose new term is `wanted`."""

    def find(state: State) -> SearchResult | None:
        here, steps = state, list[Step]()
        for name in names:
            ways = (way for way in successors(here, rules) if way[1].rule == name and wanted(way[1].replacements[0]))
            found = next(ways, None)
            if found is not None:
                here, steps = found[0], [*steps, found[1]]
        return SearchResult(here, tuple(steps), 1.0, 0.0, 0, "") if steps else None

    return find


def outputs(proto: onnx.ModelProto, seed: int = 3) -> list[np.ndarray[Any, Any]]:
    session = runtime().InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(seed)
    shapes = {port.name: [n if isinstance(n, int) else 3 for n in port.shape] for port in session.get_inputs()}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return [np.asarray(one) for one in session.run(None, feeds)]


def two_branches() -> onnx.ModelProto:
    """Return a model of two independent parts. Each part adds two products of its input, and scales the sum."""
    nodes, weights = list[onnx.NodeProto](), list[onnx.TensorProto]()
    for part in "pq":
        nodes += [helper.make_node("MatMul", [f"{part}x", f"{part}{w}"], [f"{part}{w}x"]) for w in "wv"]
        nodes.append(helper.make_node("Add", [f"{part}wx", f"{part}vx"], [f"{part}s"]))
        nodes.append(helper.make_node("LeakyRelu", [f"{part}s"], [f"{part}r"], alpha=0.1))
        nodes.append(helper.make_node("Mul", [f"{part}r", f"{part}n"], [f"{part}y"]))
        weights += [weight(f"{part}w", 8, 6), weight(f"{part}v", 8, 6)]
        weights.append(numpy_helper.from_array(np.array(0.5, np.float32), f"{part}n"))
    return model(nodes, {"px": [4, 8], "qx": [5, 8]}, {"py": [4, 6], "qy": [5, 6]}, weights)


def guarded() -> onnx.ModelProto:
    """Return a model that computes tanh(x) / d where x is positive, and 0 elsewhere. The divisors d are positive weights."""
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Greater", ["t", "z"], ["c"])]
    nodes.append(helper.make_node("Div", ["t", "d"], ["q"]))
    nodes.append(helper.make_node("Where", ["c", "q", "z"], ["y"]))
    divisors = numpy_helper.from_array(np.array([0.5, 1, 2, 3], np.float32), "d")
    zeros = numpy_helper.from_array(np.zeros((3, 4), np.float32), "z")
    return model(nodes, {"x": [3, 4]}, {"y": [3, 4]}, [divisors, zeros])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["branches", "dynamic branches", "images", "heads"])
def test_other_weights_get_the_recorded_rewrites(
    name: str, seed: int, rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path
) -> None:
    certified = Certified(MODELS[name](), [at_random(prepared, seed), at_random(prepared, seed + 100)], rules, tmp_path)
    record = certified.record
    record["arithmetic"]["mode"] = "fast"
    other = retrained(MODELS[name]())
    replayed = superopt.replay(json.dumps(record), other, threads=1, cache=cache)
    report = replayed.report
    assert report.applied == report.recorded > 0
    assert not report.left
    assert isinstance(replayed.model, onnx.ModelProto)
    for one, expected in zip(outputs(replayed.model), outputs(other), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-4)
    onnx.save(other, tmp_path / "other.onnx")
    replayed.save(tmp_path / "result.onnx")
    assert verify(tmp_path / "other.onnx", tmp_path / "result.onnx", replayed.certificate).segments == report.applied


def test_a_search_is_repeated_for_other_weights(cache: Path, tmp_path: Path) -> None:
    first = MODELS["branches"]()
    optimized = superopt.optimize(first, budget=3, threads=1, cache=cache)
    other = retrained(first)
    replayed = superopt.replay(optimized.certificate, other, threads=1, cache=cache)
    recorded = [place for one in json.loads(optimized.certificate)["passes"] for r in one["rewrites"] for place in r["places"]]
    assert replayed.report.applied == replayed.report.recorded == len(recorded)
    if recorded:
        assert onnx.load_from_string(replayed.model.SerializeToString()).graph.node == optimized.model.graph.node
    np.testing.assert_allclose(outputs(replayed.model)[0], outputs(other)[0], rtol=1e-3, atol=1e-5)


def change_number(proto: onnx.ModelProto) -> None:
    tensor = next(t for t in proto.graph.initializer if t.name == "qn")
    tensor.CopyFrom(numpy_helper.from_array(np.array(0.25, np.float32), "qn"))


def change_attribute(proto: onnx.ModelProto) -> None:
    node = next(n for n in proto.graph.node if n.output[0] == "qr")
    node.attribute[0].f = 0.2


def add_node(proto: onnx.ModelProto) -> None:
    place, node = next((i, n) for i, n in enumerate(proto.graph.node) if n.output[0] == "qr")
    node.input[0] = "qt"
    proto.graph.node.insert(place, helper.make_node("Tanh", ["qs"], ["qt"]))


def add_output(proto: onnx.ModelProto) -> None:
    proto.graph.output.append(helper.make_tensor_value_info("qwx", onnx.TensorProto.FLOAT, [5, 6]))


def rename_node(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = ["other" if name == "qs" else name for name in names]
    change_number(proto)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_number, "of its scale differs"),
        (change_attribute, "differs"),
        (add_node, "other nodes use 2 of its values"),
        (add_output, "other nodes use 2 of its values"),
        (rename_node, "not together"),
    ],
)
def test_a_segment_that_differs_is_left(
    change: Callable[[onnx.ModelProto], None],
    reason: str,
    rules: list[Rule],
    prepared: RuleSet,
    cache: Path,
    tmp_path: Path,
) -> None:
    certified = Certified(two_branches(), [by(MERGED, rules=prepared), by(MOVED, rules=prepared)], rules, tmp_path)
    assert not superopt.replay(certified.file, retrained(two_branches()), threads=1, cache=cache).report.left
    other = retrained(two_branches())
    change(other)
    replayed = superopt.replay(certified.file, other, threads=1, cache=cache)
    assert replayed.report.applied >= 1
    assert any(reason in why for why in replayed.report.left), replayed.report.left
    assert {name for some in replayed.report.left.values() for names in some for name in names} <= {"qy", "qwx"}
    for one, expected in zip(outputs(replayed.model), outputs(other), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-5)


def test_later_passes_find_nodes_that_were_numbered_otherwise(
    rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path
) -> None:
    certified = Certified(two_branches(), [by(MERGED, rules=prepared), by(MOVED, rules=prepared)], rules, tmp_path)
    first, second = ([place["nodes"] for r in one["rewrites"] for place in r["places"]] for one in certified.record["passes"])
    assert any(name.startswith("superopt.1.") for nodes in second for name in nodes), first
    other = retrained(two_branches())
    other.graph.output.append(helper.make_tensor_value_info("pwx", onnx.TensorProto.FLOAT, [4, 6]))
    replayed = superopt.replay(certified.file, other, threads=1, cache=cache)
    assert replayed.report.applied == 2
    assert sum(map(len, replayed.report.left.values())) == 2
    for one, expected in zip(outputs(replayed.model), outputs(other), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-5)


def test_other_names_are_found_by_their_terms(rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path) -> None:
    certified = Certified(two_branches(), [by(MERGED, rules=prepared)], rules, tmp_path)
    other = retrained(two_branches())
    inner = {name for node in other.graph.node for name in (*node.input, *node.output)} - {"px", "qx", "py", "qy"}
    for node in other.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{name}_of_another_export" if name in inner else name for name in names]
    for tensor in other.graph.initializer:
        tensor.name += "_of_another_export"
    replayed = superopt.replay(certified.file, other, threads=1, cache=cache)
    assert replayed.report.applied == replayed.report.recorded == 2
    np.testing.assert_allclose(outputs(replayed.model)[1], outputs(other)[1], rtol=1e-4, atol=1e-5)


def test_weights_that_break_a_fact_are_refused(rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path) -> None:
    outside = by(CLEARED, rules=prepared, wanted=lambda term: any(arg.op == "expand" for arg in term.args))
    certified = Certified(guarded(), [outside], rules, tmp_path)
    positive = superopt.replay(certified.file, retrained(guarded(), d=[4, 3, 2, 1], z=0 * np.ones((3, 4))), cache=cache)
    assert positive.report.applied == 1
    for mode in ("relaxed", "fast"):
        record = certified.record
        record["arithmetic"]["mode"] = mode
        other = retrained(guarded(), d=[4, 0, 2, 1], z=0 * np.ones((3, 4)))
        replayed = superopt.replay(json.dumps(record), other, cache=cache)
        assert replayed.report.applied == 0
        assert [*replayed.report.left] == [f"the floating-point mode does not permit {CLEARED} for these weights"]
        assert replayed.model is other


def gate(**facts: Facts) -> Gate:
    return Gate(FpMode.RELAXED, facts, absorption, strict=False)


def test_a_step_that_needs_a_bound_is_refused_without_the_bound() -> None:
    rule = parse_rule("clipped: relu(x - y) => x - minimum(x, y) for x[2], y[2]")
    rule = Rule(**{**vars(rule), "flags": frozenset({FpFlag.CANCEL})}) if not rule.flags else rule
    x, y = variable("x", (3, 4)), variable("y", (3, 4), constant=True)
    start = (apply("relu", apply("sub", x, y)),)
    after = (apply("sub", x, apply("minimum", x, y)),)
    steps = [Step("clipped", start, after)]
    replay = StepReplay([rule])
    assert replay.refusal(start, steps, after, gate(x=ORDINARY_INPUT, y=Facts(-2.0, 2.0))) == ""
    assert "does not permit" in replay.refusal(start, steps, after, gate(x=ORDINARY_INPUT, y=UNBOUNDED))
    assert "do not lead" in replay.refusal(start, steps, start, gate(x=ORDINARY_INPUT, y=Facts(-2.0, 2.0)))
    wrong = (apply("sub", x, apply("maximum", x, y)),)
    assert "is not a match of the rule" in replay.refusal(start, [Step("clipped", start, wrong)], wrong, gate(x=ORDINARY_INPUT))
    assert "no rule" in replay.refusal(start, [Step("unknown", start, after)], after, gate(x=ORDINARY_INPUT))


def test_a_mutant_is_judged_again() -> None:
    x, w = variable("x", (5, 4)), variable("w", (4, 6), constant=True)
    start = (apply("matmul", x, w),)
    right = (apply("transpose", apply("matmul", *(apply("transpose", t, perm=(-1, -2)) for t in (w, x))), perm=(-1, -2)),)
    wrong = (apply("scale", apply("matmul", x, w), factor=2),)
    replay, name = StepReplay([]), f"{PARTLY} transposed; whole"
    known = {"x": ORDINARY_INPUT, "w": Facts(-1.0, 1.0)}
    assert replay.refusal(start, [Step(name, start, right)], right, gate(**known)) == ""
    assert "wrong" in replay.refusal(start, [Step(name, start, wrong)], wrong, gate(**known))
    assert "permit" in replay.refusal(start, [Step(name, start, right)], right, gate(**known | {"w": UNBOUNDED}))


@pytest.mark.parametrize(("family", "repeated"), [(MUTANTS, True), ("matrix", False)])
def test_a_mutant_of_one_operator_needs_only_bounded_operands(family: str, *, repeated: bool) -> None:
    """The sign of a zero matters here. Rules of other families that may change this sign are not allowed."""
    stated = parse_rule(
        "turned: x @ y => transpose(transpose(y, perm=(-1, -2)) @ transpose(x, perm=(-1, -2)), perm=(-1, -2)) for x[2], y[2]"
    )
    replay = StepReplay([replace(stated, family=family, flags=frozenset({FpFlag.NSZ}))])
    x, w = variable("x", (5, 4)), variable("w", (4, 6), constant=True)
    start = (apply("matmul", x, w),)
    after = (apply("transpose", apply("matmul", *(apply("transpose", t, perm=(-1, -2)) for t in (w, x))), perm=(-1, -2)),)

    def refusal(weights: Facts) -> str:
        facts = {"x": ORDINARY_INPUT, "w": weights}
        signed = Gate(FpMode.RELAXED, facts, absorption, strict=False, signed_zeros=True)
        return replay.refusal(start, [Step("turned", start, after)], after, signed)

    assert (refusal(Facts(-1.0, 1.0)) == "") == repeated
    assert "does not permit" in refusal(UNBOUNDED)


def test_padding_is_found_again(rules: list[Rule], prepared: RuleSet) -> None:
    x = variable("x", (1, 3, 8, 8))
    w, v = variable("w", (44, 3, 1, 1), constant=True), variable("v", (8, 44, 1, 1), constant=True)
    at: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    start = (apply("conv", apply("relu", apply("conv", x, w, **at)), v, **at),)
    known = {"x": ORDINARY_INPUT, "w": Facts(-1.0, 1.0), "v": Facts(-1.0, 1.0)}
    gated = prepared.gated(gate(**known))
    after, steps = next(found for found in widened_states(start, gated) if found[0] != start)
    replay = StepReplay(rules)
    assert replay.refusal(start, steps, after, gate(**known)) == ""
    assert replay.refusal(start, steps, start, gate(**known)) != ""


def test_terms_that_vanish_together_are_found_again() -> None:
    rule = parse_rule("zero: x + zeros(shape=x.shape) => x for x[2]")
    x, zeros = variable("x", (3, 4)), apply("zeros", shape=(3, 4))
    inner = apply("add", x, zeros)
    start = (apply("add", apply("relu", inner), zeros),)
    after, steps = remove_vanishing(start, RuleSet([rule]))
    assert after == (apply("relu", x),)
    assert steps == (Step("zero", (inner, *start), (x, *after)),)
    replay, known = StepReplay([rule]), gate(x=ORDINARY_INPUT)
    assert replay.refusal(start, steps, after, known) == ""
    wrong = (apply("exp", x),)
    forged = [Step("zero", (inner, *start), (x, *wrong))]
    assert replay.refusal(start, forged, wrong, known) != ""


def test_a_recurrence_is_found_again(rules: list[Rule], prepared: RuleSet) -> None:
    h, r, w = variable("h", (2, 4)), variable("r", (4, 4), constant=True), variable("w", (3, 4), constant=True)
    elements = [variable(f"x{n}", (2, 3)) for n in range(4)]
    known = dict.fromkeys(["h", "r", "w", *(x.name for x in elements)], Facts(-1.0, 1.0))
    for x in elements:
        h = apply("tanh", apply("add", apply("matmul", x, w), apply("matmul", h, r)))
    start = (h,)
    after, steps = reroll_recurrences(start, prepared.gated(gate(**known)))
    assert steps
    replay = StepReplay(rules)
    assert replay.refusal(start, steps, after, gate(**known)) == ""
    forged = [Step(steps[0].rule, start, (apply("scale", start[0], factor=2),))]
    assert "not found again" in replay.refusal(start, forged, forged[0].replacements, gate(**known))


def test_an_operator_is_recognized_again() -> None:
    x = variable("x", (6, 16))
    start: State = (apply("mul", x, apply("sigmoid", x)),)
    (rule,) = recognized_rules(start, ["silu"])
    after: State = (apply("silu", x),)
    replay, known = StepReplay([]), {"x": ORDINARY_INPUT}
    assert replay.refusal(start, [Step(rule.name, start, after)], after, gate(**known)) == ""
    other: State = (apply("mul", x, apply("tanh", x)),)
    assert replay.refusal(other, [Step(rule.name, other, after)], after, gate(**known)) != ""


# ---------------------------------------------------------------- the command line


def test_the_command_writes_a_model_that_verify_confirms(
    rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certified = Certified(two_branches(), [by(MERGED, rules=prepared)], rules, tmp_path)
    source, target, written = (str(tmp_path / name) for name in ("other.onnx", "result.onnx", "new.json"))
    onnx.save(retrained(two_branches()), source)
    arguments = ["replay", str(certified.file), source, target, "--certificate", written, "--threads", "1", "--compare"]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "2 of 2 recorded rewrites were applied" in said
    assert "times as fast" in said
    assert cli.main(["verify", source, target, "--certificate", written]) == 0


def test_a_model_without_any_recorded_segment_is_written_as_it_is(
    rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certified = Certified(two_branches(), [by(MERGED, rules=prepared)], rules, tmp_path)
    source, target, written = (tmp_path / name for name in ("other.onnx", "result.onnx", "new.json"))
    onnx.save(MODELS["images"](), source)
    arguments = ["replay", str(certified.file), str(source), str(target), "--certificate", str(written)]
    assert cli.main(arguments) == errors.ReplayError.exit_code
    assert target.read_bytes() == source.read_bytes()
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("superopt:")]) == 1
    assert cli.main(["verify", str(source), str(target), "--certificate", str(written)]) == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, errors.CertificateError),
        ("", errors.CertificateError),
        ("{}", errors.CertificateError),
        ('{"form": 1}', errors.CertificateError),
    ],
    ids=["absent", "empty", "no certificate", "old"],
)
def test_a_file_that_is_no_certificate_is_one_line(
    text: str | None, error: type[errors.SuperoptError], cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, steps = (tmp_path / name for name in ("in.onnx", "out.onnx", "steps.json"))
    onnx.save(two_branches(), source)
    target.write_bytes(b"before")
    if text is not None:
        steps.write_text(text, encoding="utf-8")
    assert cli.main(["replay", str(steps), str(source), str(target)]) == error.exit_code
    assert target.read_bytes() == b"before"
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("superopt:")]) == 1


def test_wrong_files_are_refused(rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path) -> None:
    certified = Certified(two_branches(), [by(MERGED, rules=prepared)], rules, tmp_path)
    source, target = str(certified.original), str(tmp_path / "out2.onnx")
    assert cli.main(["replay", str(certified.file), str(tmp_path / "absent"), target]) == errors.ModelNotFoundError.exit_code
    same = ["replay", str(certified.file), source, target, "--certificate"]
    assert cli.main([*same, target]) == errors.TargetError.exit_code
    assert cli.main([*same, source]) == errors.TargetError.exit_code
    assert cli.main(["replay", str(certified.file), source, str(certified.file)]) == errors.TargetError.exit_code
    (tmp_path / "text.onnx").write_text("no model")
    assert cli.main(["replay", str(certified.file), str(tmp_path / "text.onnx"), target]) == errors.InvalidModelError.exit_code
    assert not Path(target).exists()


@pytest.mark.parametrize("place", ["after", "steps", "places"])
def test_a_forged_certificate_changes_nothing(
    place: str, rules: list[Rule], prepared: RuleSet, cache: Path, tmp_path: Path
) -> None:
    certified = Certified(two_branches(), [by(MERGED, rules=prepared)], rules, tmp_path)
    record = certified.record
    rewrite = record["passes"][0]["rewrites"][0]
    if place == "after":
        rewrite["after"] = rewrite["before"]
    elif place == "steps":
        rewrite["steps"][0][0] = "no-such-rule"
    else:
        rewrite["places"] = [rewrite["places"][0]] * 3
    replayed = superopt.replay(json.dumps(record), two_branches(), threads=1, cache=cache)
    assert replayed.report.applied == len(record["passes"][0]["rewrites"]) - (place != "places")
    assert replayed.report.left
