"""The terminal output of `superopt optimize`: the order of its parts, whole names, and gains without negative numbers."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from superopt import policy
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.cli.display import RunState, lines, panel
from superopt.model.coverage import UNDEFINED, UncoveredNodes
from superopt.report.number_texts import counted, duration, ratio
from superopt.report.optimization import AppliedRule, Report, Rounding, RunEnvironment, SegmentGain, Timing
from superopt.report.optimization_summary import summary, verdict
from superopt.report.progress import Progress, SearchProgress
from superopt.report.statements import errors, rewrite_outline
from superopt.search.search_log import SearchLog

LONG = "matmul-transpose-to-slice-matmul-concat-transpose-1"
RULES = (
    AppliedRule("concat-slice-to-slice", "", 16, 1.14e-05),
    *(AppliedRule(f"rule-{number}", "", 2, 1e-6 / number) for number in range(1, 6)),
    AppliedRule(LONG, "", 30, -4.78e-06),
    AppliedRule("relu-to-slice", "", 7, -7.91e-09),
)
TIMING = Timing(2.68123e-05, 1.62321e-05, 1.6432, 1.6321, 1.6754, 1.0, 0.0491, 6)
REPORT = Report(
    model="in.onnx",
    accepted=True,
    reason="1.64 times as fast as the original",
    nodes=74,
    nodes_in_islands=73,
    islands=1,
    nodes_after=21,
    rules=RULES,
    segments=(SegmentGain(("an output of the model",), 74, 1, 2.2e-05, 1.52e-05, ("a",), 9, ""),),
    timing=TIMING,
    rounding=None,
    seconds={"load": 0.809123, "search": 15.2345},
    environment=RunEnvironment("a device", "cpu", 1, {}),
    budget=15.0,
    seed=0,
    stopped="the budget is spent",
    uncovered=(UncoveredNodes("Det", 1, 0.25, UNDEFINED),),
    why=("a reason",),
    hints=("a step",),
)


def shown(report: Report, width: int = 100, *, verbose: bool = False) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(summary(report, verbose=verbose))
    return captured.get()


def test_the_verdict_comes_first_and_the_tables_last() -> None:
    text = shown(REPORT, verbose=True)
    places = [text.index(part) for part in (str(verdict(REPORT)), "26.8 us", "a reason", "a step", "Rules applied", "Segments")]
    assert places == sorted(places)
    assert text.startswith(str(verdict(REPORT)))


def test_without_verbose_only_the_largest_gains_are_named() -> None:
    text = shown(REPORT)
    assert "concat-slice-to-slice" in text
    assert "rule-2" in text
    assert "rule-3" not in text
    assert LONG not in text


@pytest.mark.parametrize("verbose", [False, True])
def test_what_prepared_others_is_counted_without_negative_numbers(verbose: bool) -> None:
    text = shown(REPORT, verbose=verbose)
    assert not re.search(r"-\d[\d.]* (ns|us|ms|s)\b", text)
    assert "37" in text
    assert (LONG in text) == verbose


@pytest.mark.parametrize("verbose", [False, True])
def test_numbers_have_three_digits_at_most(verbose: bool) -> None:
    text = shown(replace(REPORT, seconds={"load": 0.809123}), verbose=verbose)
    assert not [number for number in re.findall(r"\d+\.\d+", text) if len(number.replace(".", "").lstrip("0")) > 3]


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_names_are_whole_at_any_width(width: int) -> None:
    text = shown(REPORT, width, verbose=True)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    whole = re.sub(
        r"[^\w-]|(?<=\s)-|─", "", "".join(line[: line.find("│", 1)] for line in text.splitlines() if line[:1] == "│")
    )
    assert LONG in whole


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0025, "2.5 ms"), (999.6e-6, "1 ms"), (15.234, "15.2 s"), (0.0, "0 ns"), (1200.0, "20 min"), (1.234e-8, "12.3 ns")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_result_without_a_gaining_rule_has_another_reason() -> None:
    report = replace(REPORT, rules=(AppliedRule("add-zeros-to-x", "", 8, 0.0),), segments=())
    assert "other nodes" in shown(report)
    text = shown(report, verbose=True)
    assert "add-zeros-to-x" in text
    assert not any(part in text for part in ("possible", "Segments"))


def test_counts() -> None:
    assert [counted(number, "rule") for number in (0, 1, 2000)] == ["0 rules", "1 rule", "2,000 rules"]


def test_ratios() -> None:
    assert [ratio(value) for value in (1.0432, 9.876, 12.345)] == ["1.04", "9.88", "12.3"]


# ---------------------------------------------------------------- progress


def searching(seconds: float, speedup: float = 1.0) -> Progress:
    counts = SearchProgress(seconds, 15.0, speedup, 1234, 56)
    return Progress("search, pass 1", 1, 3, stage="search", place=2, stages=3, search=counts)


def test_a_line_is_printed_for_each_stage() -> None:
    printed: list[str] = []
    with lines(lambda text: printed.append(str(text))) as listen:
        for phase, stage, place in (
            ("load", "load", 1),
            ("measure", "load", 1),
            ("search", "search", 2),
            ("check", "check", 3),
        ):
            listen(Progress(phase, stage=stage, place=place, stages=3))
    assert [line.split()[1:5:3] for line in printed] == [["1", "load"], ["2", "search"], ["3", "check"]]


def test_lines_are_printed_every_few_seconds_without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.cli.display.REPORT", replace(policy.REPORT, progress_seconds=0.01, event_seconds=0.01))
    printed: list[str] = []
    enough = threading.Event()

    def show(text: object) -> None:
        printed.append(str(text))
        if len(printed) > 3:
            enough.set()

    with lines(show) as listen:
        listen(searching(4.0, 1.5))
        assert enough.wait(30)
    assert all("search" in line and "15 s" in line and "1.50" in line and "1,234" in line for line in printed)


@pytest.mark.parametrize("width", [50, 80, 140])
def test_the_panel_shows_the_stage_the_budget_and_the_best(width: int) -> None:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    stopping = False
    with panel(console, "in.onnx", lambda: stopping) as listen:
        listen(Progress("load", stage="load", place=1, stages=3))
        listen(searching(7.0, 1.5))
        stopping = True
    assert isinstance(console.file, io.StringIO)
    text = " ".join(console.file.getvalue().replace("│", " ").split())
    for part in ("in.onnx", "stage 2 of 3", "7 s of 15 s", "1.50 times", "1,234", "56", "Ctrl-C"):
        assert part in text


def test_the_best_is_known_only_while_the_search_runs() -> None:
    state = RunState()
    seen = []
    for progress in (
        searching(4.0),
        Progress("measure", 3, 100, stage="search", place=2, stages=3),
        Progress("check", stage="check", place=3, stages=3),
    ):
        state.update(progress)
        seen.append((state.used and state.used[1], "nothing" in state.best))
    assert seen == [(15.0, True), (15.0, True), (None, False)]


def test_a_log_records_when_a_search_improves() -> None:
    told: list[Progress] = []
    log = SearchLog(told.append, run_seconds=10.0, budget=15.0)
    x = variable("x", 2)
    state, other = (apply("abs", apply("abs", x)),), (x,)
    alone = [(apply("abs", variable("y", 2)),), (variable("x", 3),)]
    costs: dict[tuple[Term, ...], float] = {state: 4.0, other: 3.0, alone[0]: 1.0, alone[1]: 1.0}
    estimate, measure = log.counted_estimate(costs.__getitem__), log.counted_measure(costs.__getitem__, state, 2.0)
    log.begin_pass(0.0)
    for cost in (estimate, measure):
        assert [cost(one) for one in (state, other, other)] == [4.0, 3.0, 3.0]
    assert [*map(measure, alone)] == [1.0, 1.0]
    log.segment_found(2.0)
    log.segment_found(3.0)
    log.end_pass(4.0)
    log.begin_pass(0.0)
    log.segment_found(1.0)
    log.tell(Progress("search"))
    assert [saved for _, saved in log.improvements] == [2.0, 5.0, 4.0]
    assert (log.tried, log.measured, log.saved, log.speedup) == (2, 3, 4.0, 10 / 6)
    assert told[-1].search is not None
    assert (told[-1].search.speedup, told[-1].search.measured) == (log.speedup, 3)


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        ("conv(x, w, pads=p) + y => conv(x, w + y, pads=(0, p)) for x[4]", "conv(x, w) + y becomes conv(x, w + y)"),
        ("y @ w => w @ y for x[2]", "y @ w becomes w @ y"),
        ("the definition of LSTM", ""),
        ("a b => c", ""),
        (f"{' + '.join('x' * 40)} => x for x[2]", ""),
    ],
)
def test_the_outline_of_a_rule_has_no_attributes(text: str, outline: str) -> None:
    assert rewrite_outline(text) == outline


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_report_says_what_was_not_checked(count: int) -> None:
    names = tuple(f"{i} sizes" for i in range(count))
    lines = [*errors(Rounding(1e-7, 2e-7, "float64", ("random",), 4.0, left_out=names))][2:]
    assert len(lines) == (count > 0)
    assert all(f"{i} sizes" in lines[0] for i in range(min(count, 3)))
    assert count <= 3 or "2 more" in lines[0]
