"""The search of a whole island: the result of its two parts."""

from __future__ import annotations

import pytest

from superopt.algebra.terms import variable
from superopt.search import island
from superopt.search.backtracking import OUT_OF_TIME, SearchResult
from superopt.search.island import search_island
from superopt.search.ruleset import RuleSet
from superopt.search.sweep import SWEPT


@pytest.mark.parametrize("swept", [0.9, 0.7])
def test_search_that_a_deadline_cut_short_says_so_whichever_part_wins(monkeypatch: pytest.MonkeyPatch, swept: float) -> None:
    state = (variable("x", (4,)),)
    monkeypatch.setattr(island, "with_algorithms", lambda *_, **__: SearchResult(state, (), 1.0, 0.8, 1, SWEPT))
    monkeypatch.setattr(island, "_swept", lambda *_, **__: SearchResult(state, (), 1.0, swept, 2, OUT_OF_TIME))
    found = search_island(state, RuleSet([]), estimate=lambda _: 1.0, measure=lambda _: 1.0, limits=None)
    assert (found.after, found.expanded, found.stopped) == (min(swept, 0.8), 3, OUT_OF_TIME)
