"""Show the progress of a run on the standard error stream: as a panel in a terminal, and otherwise as lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from superopt.policy import REPORT
from superopt.report.number_texts import counted, ratio
from superopt.report.progress import Listener, Progress

SEARCHING = "search"
"""The name of the stage in which a run searches. A run that is stopped in this stage or later keeps its best result."""


ECHO = len("^C") + 1
"""The number of free columns to the right of the panel.

The echo of Ctrl-C fits into these columns. Otherwise, the echo would start a new line, and this line would remain on the
screen.
"""


class RunState:
    """The latest progress of a run, with the time of the report. Other threads may read the state."""

    def __init__(self) -> None:
        self.start = self.reported = self.stage_start = time.monotonic()
        self.progress = Progress("")
        self.searched = False
        """Whether the search has begun, so that an interrupted run may have a result."""

    def update(self, progress: Progress) -> None:
        """Replace the latest progress."""
        now = time.monotonic()
        if (progress.stage, progress.place) != (self.progress.stage, self.progress.place):
            self.stage_start = now
        elif progress.search is None:
            progress = _with_search_of(progress, self.progress, now - self.reported)
        self.progress, self.reported = progress, now
        self.searched = self.searched or progress.stage == SEARCHING

    @property
    def used(self) -> tuple[float, float] | None:
        """The used seconds and the total seconds of the search budget, or None if the run is not searching."""
        search = self.progress.search
        if search is None or self.progress.stage != SEARCHING:
            return None
        return min(search.seconds + time.monotonic() - self.reported, search.budget), search.budget

    @property
    def best(self) -> str:
        """The best result so far. The text is empty if the run is not searching."""
        search = self.progress.search
        if search is None or self.progress.stage != SEARCHING:
            return ""
        if search.speedup == 1:
            return "nothing faster so far"
        return f"best so far {f'{ratio(search.speedup)} times as fast' if search.speedup else 'faster'} (predicted)"

    @property
    def counts(self) -> str:
        """The numbers of rewrites and candidates. The text is empty if the run is not searching."""
        search = self.progress.search
        return (
            ""
            if search is None
            else f"{counted(search.tried, 'rewrite')} tried, {counted(search.measured, 'candidate')} measured"
        )

    def line(self) -> str:
        """Return the state of the run as one line of text."""
        stage = f"stage {self.progress.place} of {self.progress.stages}: {self.progress.stage}"
        used = self.used
        if used is None:
            spent = time.monotonic() - self.stage_start
            return f"{stage}, {spent:.0f} s" if spent >= REPORT.progress_seconds else stage
        return f"{stage}, {used[0]:.0f} s of {used[1]:.3g} s, {self.best}, {self.counts}"


def _with_search_of(progress: Progress, before: Progress, seconds: float) -> Progress:
    """Return a copy of `progress` with the search state of the earlier report `before`.

    The search time in the copy is longer by the argument `seconds`. If `before` has no search state, the result is `progress`.
    """
    search = before.search
    return progress if search is None else replace(progress, search=replace(search, seconds=search.seconds + seconds))


@contextmanager
def lines(print_line: Callable[[object], None]) -> Iterator[Listener]:
    """Yield a listener that prints a line for each new stage, and a line every few seconds during a stage.

    If the run has no stages, a line is printed for each new phase. A further progress report is printed if the last line is a
    few seconds old.
    """
    state, lock, ended, printed = RunState(), threading.Lock(), threading.Event(), [0.0]

    def show(text: object) -> None:
        printed[0] = time.monotonic()
        print_line(text)

    def listen(progress: Progress) -> None:
        with lock:
            before = state.progress
            state.update(progress)
            due = time.monotonic() - printed[0] >= REPORT.progress_seconds
            if progress.place:
                if (progress.stage, progress.place) != (before.stage, before.place) or due:
                    show(state.line())
            elif progress.phase != before.phase or due:
                show(progress)

    def repeat() -> None:
        while not ended.wait(max(printed[0] + REPORT.progress_seconds - time.monotonic(), REPORT.event_seconds)):
            with lock:
                if state.progress.place and time.monotonic() - printed[0] >= REPORT.progress_seconds:
                    show(state.line())

    repeating = threading.Thread(target=repeat, name="progress lines", daemon=True)
    repeating.start()
    try:
        yield listen
    finally:
        ended.set()
        repeating.join()


@contextmanager
def panel(console: Console, title: str, is_stopping: Callable[[], bool]) -> Iterator[Listener]:
    """Yield a listener that updates a panel in the terminal. The panel disappears when the context ends.

    `is_stopping` returns whether a signal asked the run to stop.
    """
    state = RunState()

    def render() -> RenderableType:
        return _panel(state, title, max(console.width - ECHO, 1), stopping=is_stopping())

    live = Live(
        console=console,
        get_renderable=render,
        refresh_per_second=1 / REPORT.panel_refresh_seconds,
        transient=True,
        redirect_stdout=False,
    )
    with live:
        yield state.update


def _panel(state: RunState, title: str, width: int, *, stopping: bool) -> Panel:
    """Return the state of the run as a panel with `width` columns."""
    progress, used = state.progress, state.used
    elapsed = f"{time.monotonic() - state.start:.0f} s"
    rows = Table.grid(padding=(0, 2), expand=True)
    rows.add_column()
    rows.add_column(justify="right")
    place = f"stage {progress.place} of {progress.stages}: {progress.stage}" if progress.place else progress.phase
    parts = f", {progress.phase.removeprefix('search, ')}" if progress.phase != progress.stage else ""
    count = f", {progress.done} of {progress.total}" if progress.total else ""
    rows.add_row(Text(f"{place}{parts}{count}", style="bold"), f"{elapsed} elapsed")
    lines: list[RenderableType] = [rows]
    if used is not None:
        bar = Table.grid(padding=(0, 2), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        bar.add_row(ProgressBar(total=used[1] or 1.0, completed=used[0]), f"{used[0]:.0f} s of {used[1]:.3g} s")
        lines += [bar, Text(state.best), Text(state.counts)]
    if stopping:
        hint = "stopping: the best result so far is checked first; Ctrl-C again stops at once"
    else:
        hint = (
            "Ctrl-C keeps the best result so far"
            if state.searched
            else "Ctrl-C ends the run; nothing is written before the search"
        )
    lines.append(Text(hint, style="dim"))
    return Panel(Group(*lines), title=escape(title), title_align="left", width=width)
