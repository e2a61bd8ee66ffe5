"""The log of a search: the number of tried rewrites, the number of measured states, and the times of improvements."""

from __future__ import annotations

import time
from dataclasses import replace

from superopt.algebra.terms import Term, variables
from superopt.budget import active_time
from superopt.policy import REPORT
from superopt.report.progress import Listener, Progress, SearchProgress, ignore_progress
from superopt.search.apply import State
from superopt.search.backtracking import Cost


class SearchLog:
    """The log of one search of a model. The search begins when the log is created. The log does not affect the search.

    Args:
        listener: Receives progress reports: one for each event, and a few per second while one segment is searched.
        run_seconds: The seconds of one run of the model.
        budget: The seconds that the search may take.

    Attributes:
        tried: The number of states whose cost was estimated. A state is a rewritten form of a part of the model.
        measured: The number of states whose cost was measured.
        improvements: For each improvement, a pair of times in seconds. The first is the time since the start of the search. The
            second is the saving of the best result so far in one run, according to the cost model.
    """

    def __init__(self, listener: Listener = ignore_progress, run_seconds: float = 0.0, budget: float = 0.0) -> None:
        self.listener, self.run_seconds, self.budget = listener, run_seconds, budget
        self.tried = self.measured = 0
        self.improvements: list[tuple[float, float]] = []
        self._start = active_time()
        self._latest = Progress("search")
        self._told = 0.0
        self._saved_by_models = self._saved_by_pass = self._saved_here = 0.0
        """The seconds that are saved in one run. `_saved_by_models` is the saving of the best finished pass. `_saved_by_pass`
        is the saving of the model before the current pass, plus the savings of the segments that this pass has finished.
        `_saved_here` is `_saved_by_pass`, plus the saving of the best state of the unfinished segment.
        """

    @property
    def seconds(self) -> float:
        """The seconds since the start of the search."""
        return active_time() - self._start

    @property
    def saved(self) -> float:
        """The seconds that the best result so far saves in one run of the model, according to the cost model."""
        return max(self._saved_by_models, self._saved_here)

    @property
    def speedup(self) -> float:
        """The predicted speedup of the best result so far, or 0 if no speedup can be predicted."""
        return self.run_seconds / (self.run_seconds - self.saved) if self.saved < self.run_seconds else 0.0

    def begin_pass(self, saved: float) -> None:
        """Record that a pass (a search of the whole model) begins with a model that saves `saved` seconds in one run."""
        self._saved_by_pass = self._saved_here = saved

    def end_pass(self, saved: float) -> None:
        """Record that a pass ends. One run of the resulting model is measured to save `saved` seconds."""
        self._saved_by_models = max(self._saved_by_models, saved)
        self._saved_by_pass = self._saved_here = saved
        self._note_improvement()

    def segment_found(self, saved: float) -> None:
        """Record that the search of a segment (part of the model) ended, and that the result saves `saved` seconds per run."""
        self._saved_by_pass += max(saved, 0.0)
        self._saved_here = self._saved_by_pass
        self._note_improvement()

    def tell(self, progress: Progress) -> None:
        """Report progress to the listener, with the counts of this log."""
        self._latest, self._told = progress, time.monotonic()
        counts = SearchProgress(self.seconds, self.budget, self.speedup, self.tried, self.measured)
        self.listener(replace(progress, search=counts))

    def counted_estimate(self, estimate: Cost) -> Cost:
        """Return a cost function that calls `estimate` and counts the estimated states."""
        seen: set[int] = set()

        def counted(state: State) -> float:
            if (key := hash(state)) not in seen:
                seen.add(key)
                self.tried += 1
            return estimate(state)

        return counted

    def counted_measure(self, measure: Cost, start: State, runs: float, *, whole: bool = True) -> Cost:
        """Return a cost function that returns the result of `measure`, counts the measured states, and records improvements.

        A search also measures operators in isolation. A measured state is not recorded as an improvement if its inputs or
        output shapes differ from the inputs or output shapes of `start`.

        Args:
            measure: The cost function of states that are equivalent to `start`.
            start: The state of the segment before the search.
            runs: The number of runs of the segment and its copies in one run of the model.
            whole: Whether all measured states are equivalent to `start`. If parts of states are measured too, improvements are
                recorded only at the end of the segment's search.
        """
        known: dict[State, float] = {}
        shapes, inputs = [term.shape for term in start], _inputs(start)

        def counted(state: State) -> float:
            cost = measure(state)
            if state not in known:
                known[state] = cost
                self.measured += state != start
                if whole and [term.shape for term in state] == shapes and _inputs(state) <= inputs:
                    saved = (known.get(start, cost) - cost) * runs
                    self._saved_here = max(self._saved_here, self._saved_by_pass + saved)
                    self._note_improvement()
                if time.monotonic() - self._told > REPORT.event_seconds:
                    self.tell(self._latest)
            return cost

        return counted

    def _note_improvement(self) -> None:
        latest = self.improvements[-1][1] if self.improvements else 0.0
        if self.saved != latest:
            self.improvements.append((self.seconds, self.saved))


def _inputs(state: State) -> set[Term]:
    return {variable for variable in variables(*state) if not variable.constant}
