"""The page and the card about an optimization: their content, their well-formed markup, and names that contain markup."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt import errors
from superopt.cli import main as cli
from superopt.model.load import as_model
from superopt.model.node_graphs import DrawnNode, DrawnPart, part_of_model
from superopt.policy import REPORT
from superopt.report.html.layered import DrawnBox, LayeredDrawing, draw_part
from superopt.report.html.page import PageContent, RewrittenPart, UsedRule, figure_of, used_rule
from superopt.report.html.rendering import card_svg, framed_html, page_html
from superopt.report.html.sentences import headline, next_steps, operator_bars, safety, waterfall
from superopt.report.optimization import (
    AppliedRule,
    Arithmetic,
    OutputRounding,
    Prediction,
    Report,
    Rounding,
    RunEnvironment,
    SegmentGain,
    Timing,
)
from superopt.rules.store import load, rule_named
from superopt.runtime.input_source import DRAWN
from superopt.runtime.operator_times import operator_seconds
from superopt.runtime.session import Device

HOSTILE = '<script>alert("1")</script>&\x07\ud800\'{{ 7 * 7 }}'
VOID = {"meta", "link", "br", "path", "rect", "i"}
SVG = "{http://www.w3.org/2000/svg}"
TIMING = Timing(2e-3, 1.2e-3, 1.67, 1.6, 1.75, 1.01, 0.02, 40)


def report(*, accepted: bool = True, name: str = "model.onnx", **changes: object) -> Report:
    made = Report(
        model=name,
        accepted=accepted,
        reason="1.67 times as fast as the original" if accepted else "nothing faster was found; the original is kept",
        nodes=12,
        nodes_in_islands=10,
        islands=2,
        nodes_after=7 if accepted else 12,
        rules=(AppliedRule(name, f"{name} => x for x[2]", 3, 1e-4),) if accepted else (),
        segments=(SegmentGain((name,), 5, 1, 1e-3, 4e-4, (name,), 20, ""),),
        timing=TIMING if accepted else None,
        rounding=Rounding(1e-7, 2e-7, "float64", ("random", name), 4.0, (OutputRounding(name, 1e-7, 2e-7),))
        if accepted
        else None,
        seconds={"load": 0.5, "search": 9.0},
        environment=RunEnvironment(name, "cpu", 1, {"superopt": "0.1.0", "onnxruntime": "1.31.1"}),
        budget=10.0,
        seed=7,
        stopped="every part was searched",
        arithmetic=Arithmetic("relaxed", ("reassoc",), (name,)),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def part(name: str = "node", operators: Sequence[str] = ("MatMul", "Relu")) -> DrawnPart:
    nodes = [DrawnNode(name, "", ("2×3",))]
    nodes += [DrawnNode(name, operator, (name,), (place,)) for place, operator in enumerate(operators)]
    nodes[-1] = dataclasses.replace(nodes[-1], output=True)
    return DrawnPart(tuple(nodes))


def content(of: Report, name: str = "node") -> PageContent:
    rule = UsedRule(name, 2, name, "⟹", name, "proved", proved=True, facts=((name, name),), axioms=((name, name),))
    before, after = figure_of(part(name)), figure_of(part(name, ("Gemm",)))
    rewritten = RewrittenPart(name, 0, 2, 5e-4, 1e-4, 8e-4, before, after, (rule,))
    return PageContent(
        of,
        parts=(rewritten,) if of.accepted else (),
        savings=((name, 8e-4),) if of.accepted else (),
        times={name: (1e-3, 2e-4), "MatMul": (1e-3, 0.0)},
        times_note=name,
        counts={name: (3, 1)},
        command=name,
        source="in.onnx",
        target="out.onnx",
        certificate=name,
        rules=(rule,) if of.accepted else (),
    )


class Reader(HTMLParser):
    """A parser that collects the tags and the text of a page and the files that the page fetches, and checks the nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.fetched += [v for n, v in attrs if n in ("src", "href", "data", "action", "xlink:href") and v and v != "data:,"]
        self.ids += [given["id"] or ""] if "id" in given else []
        assert not any(name.startswith("on") for name in given), "no event handlers"
        if tag not in {"meta", "link", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} is closed out of order"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    return reader


@pytest.mark.parametrize("accepted", [True, False])
def test_a_page_is_one_small_document_that_fetches_nothing(accepted: bool) -> None:
    page = page_html(content(report(accepted=accepted)))
    reader = read(page)
    assert page.startswith("<!DOCTYPE html>")
    assert reader.fetched == []
    assert "script" not in reader.tags
    assert "http" not in page
    assert "@import" not in page
    assert len(page.encode()) < 200_000


@pytest.mark.parametrize("accepted", [True, False])
def test_names_from_models_stay_text(accepted: bool) -> None:
    made = content(report(accepted=accepted, name=HOSTILE, reason=HOSTILE), HOSTILE)
    reader = read(page_html(made))
    assert "script" not in reader.tags
    said = "".join(reader.text)
    assert '<script>alert("1")</script>&' in said
    assert "{{ 7 * 7 }}" in said
    picture = ET.fromstring(card_svg(made))
    assert not [element for element in picture.iter() if element.tag.endswith("script")]


def test_the_first_screen_has_the_gain_its_interval_and_what_it_rests_on() -> None:
    made = content(report())
    told = headline(made.report)
    assert (told.text, told.faster) == ("1.67 times as fast", True)
    assert "1.60 to 1.75" in told.figures
    assert "2.0%" in told.figures
    facts = {fact.name: " ".join(fact.texts) for fact in safety(made)}
    assert "2.0e-07" in facts["Numbers"]
    assert "1.0e-07" in facts["Numbers"]
    assert "is proved" in facts["Proofs"]
    assert "regrouped" in facts["Arithmetic"]
    assert any("superopt verify in.onnx out.onnx" in step for step in next_steps(made))


def test_without_a_gain_the_page_says_why_and_what_to_try() -> None:
    made = content(report(accepted=False, hints=("--opset 20 would allow Gelu",)))
    assert not headline(made.report).faster
    assert "nothing faster" in " ".join(text for fact in safety(made) for text in fact.texts).lower()
    assert next_steps(made)[1:] == ("--opset 20 would allow Gelu.",)
    assert "original" in "".join(read(page_html(made)).text)


def test_a_prediction_is_called_one() -> None:
    predicted = Prediction("not measured", "gpu", "cuda", 1, {}, 2e-3, 1e-3, 2.0, 1e-4, 0.9)
    told = headline(report(timing=None, prediction=predicted))
    assert told.text == "Predicted to be 2.00 times as fast"


def test_a_waterfall_ends_at_the_predicted_and_the_measured_time() -> None:
    made = content(report())
    rows = waterfall(made)
    assert [row.kind for row in rows] == ["whole", "saved", "predicted", "measured"]
    assert rows[1].start == pytest.approx(60)
    assert rows[2].length == pytest.approx(60)
    assert rows[3].length == pytest.approx(60)
    assert waterfall(content(report(accepted=False))) == ()


def test_bars_that_do_not_fit_are_summed_up() -> None:
    many = {f"op{number}": (float(number), 1.0) for number in range(REPORT.max_page_rows + 5)}
    bars = operator_bars(many, seconds=True)
    assert len(bars) == REPORT.max_page_rows + 1
    assert bars[-1].name == "5 others"
    assert max(length for bar in bars for length in bar.lengths) == 100


def overlap(one: DrawnBox, other: DrawnBox) -> bool:
    apart = abs(one.x - other.x) >= (one.width + other.width) / 2 or abs(one.y - other.y) >= (one.height + other.height) / 2
    return not apart


@pytest.mark.parametrize("sideways", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_boxes_of_a_drawing_are_apart_and_inside(seed: int, sideways: bool) -> None:
    draw = np.random.default_rng(seed)
    nodes = [DrawnNode("x", "", ()), DrawnNode("y", "", ("3",))]
    for number in range(REPORT.max_drawn_nodes - 3):
        operands = tuple(sorted({int(k) for k in draw.integers(0, len(nodes), 2)}))
        nodes.append(DrawnNode(str(number), f"Op{number}", (f"axis={number}",), operands))
    drawing = draw_part(DrawnPart(tuple(nodes)), sideways=sideways)
    assert isinstance(drawing, LayeredDrawing)
    boxes = drawing.boxes
    assert not [(a.name, b.name) for n, a in enumerate(boxes) for b in boxes[n + 1 :] if overlap(a, b)]
    for box in boxes:
        assert box.width / 2 <= box.x <= drawing.width - box.width / 2
        assert box.height / 2 <= box.y <= drawing.height - box.height / 2


def test_an_edge_joins_the_places_of_its_boxes() -> None:
    drawing = draw_part(part(operators=("Relu",)))
    assert drawing is not None
    x, relu = drawing.boxes
    assert drawing.edges == (f"M{x.x:.0f} {x.y + x.height / 2:.0f}L{relu.x:.0f} {relu.y - relu.height / 2:.0f}",)


def test_equal_nodes_of_a_row_share_a_box_and_large_parts_are_counted() -> None:
    wide = [DrawnNode("x", "", ()), *(DrawnNode(str(n), "Relu", (), (0,)) for n in range(30))]
    wide.append(DrawnNode("sum", "Sum", (), tuple(range(1, 31)), output=True))
    drawing = draw_part(DrawnPart(tuple(wide)))
    assert drawing is not None
    assert [(box.title, box.details) for box in drawing.boxes] == [("x", ()), ("Relu", ("× 30",)), ("Sum", ())]
    long = part(operators=["Relu"] * (REPORT.max_drawn_nodes + 1))
    assert draw_part(long) is None
    assert figure_of(long).operators == (("Relu", REPORT.max_drawn_nodes + 1),)


def small_model(name: str = "first") -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 4), np.float32), "w")
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], name="weights alone"),
        helper.make_node("MatMul", ["x", "t"], ["a"], name=name),
        helper.make_node("Softmax", ["a"], ["b"], axis=-1),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [2, 4]) for end in "xy"]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_part_of_a_model_ends_at_its_inputs_and_its_weights() -> None:
    model = as_model(small_model())
    whole = part_of_model(model, (), ["y", "absent"], {"x"})
    assert [(n.name, n.operator, n.operands) for n in whole.nodes] == [
        ("x", "", ()),
        ("first", "MatMul", (0,)),
        ("b", "Softmax", (1,)),
        ("y", "Add", (1, 2)),
    ]
    assert whole.nodes[3].output
    assert whole.nodes[2].details == ("axis=-1",)
    inner = part_of_model(model, (), ["y"], {"a"})
    assert [n.name for n in inner.nodes] == ["a", "b", "y"]


def test_operators_are_timed() -> None:
    seconds = operator_seconds(small_model().SerializeToString(), Device("cpu", 1), {}, DRAWN)
    assert {"MatMul", "Softmax", "Add"} <= set(seconds)
    assert all(0 <= value < 1 for value in seconds.values())


def test_a_stored_rule_is_shown_with_its_proof() -> None:
    stored = next(s for s in load() if s.entry.kind == "axioms")
    rule = used_rule(AppliedRule(stored.rule.name, stored.rule.text, 1, 0.0), 1, stored)
    assert (rule.left, rule.right, rule.proved) == (stored.rule.statement.left, stored.rule.statement.right, True)
    assert {name for name, _ in rule.axioms} <= set(stored.entry.axioms)
    assert ("ledger key", stored.entry.key) in rule.facts
    assert rule_named(load(), rule.name).rule == stored.rule


def test_a_mutant_is_not_called_proved() -> None:
    rule = used_rule(AppliedRule("~> matrix product", "x0 @ w1  ~>  w1 @ x0", 1, 0.0), 1, None)
    assert (rule.name, rule.left, rule.arrow, rule.right, rule.proved) == (
        "matrix product",
        "x0 @ w1",
        "⟿",
        "w1 @ x0",
        False,
    )


@pytest.mark.slow
def test_importing_superopt_does_not_import_jinja2() -> None:
    code = "import sys, superopt.flows.optimize; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_the_command_writes_both_files(tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(small_model(HOSTILE[:27]), source)
    page, card = tmp_path / "page.html", tmp_path / "card.svg"
    written = [
        "optimize",
        str(source),
        str(target),
        "--budget",
        "1s",
        "--threads",
        "1",
        "--html",
        str(page),
        "--svg",
        str(card),
    ]
    assert cli.main(written) == 0
    reader = read(page.read_text(encoding="utf-8"))
    assert "superopt optimize" in "".join(reader.text)
    assert "--seed 0" in "".join(reader.text)
    assert "script" not in reader.tags
    assert ET.fromstring(card.read_text(encoding="utf-8")).tag == f"{SVG}svg"


@pytest.mark.parametrize("option", ["--html", "--svg"])
def test_a_page_that_cannot_be_written_is_refused_at_once(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.onnx"
    onnx.save(small_model(), source)
    for wrong in (tmp_path / "absent" / "page", source, tmp_path / "out.onnx"):
        run = ["optimize", str(source), str(tmp_path / "out.onnx"), option, str(wrong)]
        assert cli.main(run) == errors.TargetError.exit_code
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.onnx"]


def parallel_products() -> onnx.ModelProto:
    """Return a model of two products that one product can compute. Its names contain markup."""
    weights = [
        numpy_helper.from_array(np.random.default_rng(n).standard_normal((256, 256), np.float32), w) for n, w in enumerate("vw")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["<script>a</script>"], name="<script>first</script>"),
        helper.make_node("MatMul", ["x", "w"], ["b"], name="<script>second</script>"),
        helper.make_node("Add", ["<script>a</script>", "b"], ["<script>y</script>"]),
    ]
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [256, 256]) for end in ("x", "<script>y</script>")]
    graph = helper.make_graph(nodes, "<script>", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.slow
def test_the_page_of_a_real_optimization_draws_what_changed() -> None:
    optimized = superopt.optimize(parallel_products(), budget="20s", threads=1, no_cache=True)
    assert optimized.report.accepted
    page = optimized.html()
    reader = read(page)
    assert reader.fetched == []
    assert len(page.encode()) < 2_000_000
    assert "script" not in reader.tags
    assert "&lt;script&gt;first" in page
    said = "".join(reader.text)
    assert "What changed" in said
    assert "proved" in said
    assert optimized.report.rounding is not None
    assert [output.name for output in optimized.report.rounding.outputs] == ["<script>y</script>"]
    assert ET.fromstring(optimized.svg()).tag == f"{SVG}svg"
    assert optimized._repr_html_().startswith("<iframe")


def test_a_notebook_gets_a_frame() -> None:
    framed = framed_html(content(report(name=HOSTILE), HOSTILE))
    reader = Reader()
    reader.feed(framed)
    assert reader.tags == ["iframe"]
