"""What `superopt optimize` shows in a terminal: the order of the parts, whole names, gains without negative numbers."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from superopt.model.coverage import UNDEFINED, UncoveredNodes
from superopt.report.optimization import AppliedRule, Report, RunEnvironment, SegmentGain, Timing, duration, ratio
from superopt.report.optimization_summary import summary, verdict

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


def test_ratios() -> None:
    assert [ratio(value) for value in (1.0432, 9.876, 12.345)] == ["1.04", "9.88", "12.3"]
