"""Render the verdicts on axioms or rules as a table of families (groups of axioms or rules) and a table of single items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

COLOURS = {"proved": "green", "refuted": "bold red", "unknown": "bold yellow"}


class VerdictRow(Protocol):
    """The verdict (proved, refuted or unknown) on one axiom or rule."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def word(self) -> str:
        """The verdict in one word: proved, refuted or unknown."""

    @property
    def verdict(self) -> object: ...

    @property
    def how(self) -> str: ...

    @property
    def bounded(self) -> Sequence[str]:
        """The sizes and attributes for which the proof covers only some values. The result is empty if the proof holds for all
        values.
        """

    @property
    def ranks(self) -> Sequence[str]: ...

    @property
    def milliseconds(self) -> float: ...


def verdicts(title: str, rows: Iterable[VerdictRow], *, each: bool) -> RenderableType:
    """Return two tables of the verdicts in `rows`, and a line of totals.

    The first table has a line for each family (a group of axioms or rules). The second table has a line for each axiom or rule
    that is not proved for all sizes. If `each` is True, the second table has a line for every axiom or rule.
    """
    rows = list(rows)
    chosen = [row for row in rows if each or row.word != "proved" or row.bounded]
    tables = [_families(title, rows), *([_one_by_one(chosen)] if chosen else [])]
    return Group(*tables, Text(verdict_summary(rows)))


def _families(title: str, rows: Sequence[VerdictRow]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("family", no_wrap=True)
    for heading in ("all", "proved", "for all sizes", "seconds"):
        table.add_column(heading, justify="right")
    for family in dict.fromkeys(row.family for row in rows):
        members = [row for row in rows if row.family == family]
        held = [row for row in members if row.word == "proved"]
        counts = (len(members), len(held), sum(not row.bounded for row in held))
        table.add_row(escape(family), *map(str, counts), f"{sum(row.milliseconds for row in members) / 1e3:.1f}")
    return table


def _one_by_one(rows: Iterable[VerdictRow]) -> Table:
    table = Table()
    table.add_column("name", no_wrap=True)
    table.add_column("verdict")
    table.add_column("for", overflow="fold")
    table.add_column("ranks", justify="right")
    table.add_column("from")
    table.add_column("ms", justify="right")
    for row in rows:
        word = Text(row.word, style=COLOURS[row.word])
        covers = ("; ".join(row.bounded) or "all sizes") if row.word == "proved" else str(row.verdict)
        table.add_row(escape(row.name), word, escape(covers), str(len(row.ranks)), row.how, f"{row.milliseconds:.1f}")
    return table


def verdict_summary(rows: Sequence[VerdictRow]) -> str:
    """Return a line with the number of rows for each verdict, the number of bounded proofs, and the total seconds of all rows.

    A bounded proof holds only for stated values of some sizes or attributes.
    """
    words = Counter(row.word for row in rows)
    bounded = sum(bool(row.bounded) for row in rows)
    parts = [f"{words[word]} {word}" for word in COLOURS if words[word] or word == "proved"]
    limits = f" ({bounded} of them for stated values of some attributes)" if bounded else ""
    return f"{', '.join(parts)}{limits}; {sum(row.milliseconds for row in rows) / 1e3:.1f} s"
