"""Tables of results on GPUs: each model with and without contrib operators, and with and without CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.peers.contenders import SUPEROPT
from benchmarks.peers.summary import Entry, Result, entries, mean

CONTRIB = ("--allow-contrib",)
HEADINGS = ("original, ms", "superopt", "with contrib", "as a graph, ms", "superopt", "with contrib", "found for graphs")
Cell: TypeAlias = Callable[["Model"], Entry | None]


@dataclass(frozen=True)
class Model:
    """The rows of one model on one GPU. A row that does not exist is None.

    Attributes:
        name: The name of the model.
        plain: The row of an optimization without CUDA graphs, with standard operators only.
        contrib: The row of an optimization without CUDA graphs, with contrib operators.
        graph: The row of an optimization for CUDA graphs, with standard operators only.

    The results in `plain` and `contrib` were timed without and with CUDA graphs.
    """

    name: str
    plain: Result | None
    contrib: Result | None
    graph: Result | None

    def original(self, *, replayed: bool) -> float | None:
        """Return the milliseconds of a run of the original, or None if it was not timed.

        If `replayed` is True, the run replays a CUDA graph.
        """
        first = next((_speed(row, replayed=replayed) for row in (self.plain, self.contrib) if row is not None), None)
        return None if first is None else float(first["original_ms"])


def models(rows: Sequence[Result]) -> list[Model]:
    """Return the models of the rows, which are all from one GPU. Models with larger gains come first."""

    def row(name: str, asked: Sequence[str], *, graph: bool) -> Result | None:
        fitting = (r for r in rows if r["model"] == name and r["device"]["cuda_graph"] == graph)
        return next((r for r in fitting if tuple(r.get("options", ())) == tuple(asked)), None)

    names = dict.fromkeys(r["model"] for r in rows)
    found = [Model(n, row(n, (), graph=False), row(n, CONTRIB, graph=False), row(n, (), graph=True)) for n in names]
    return sorted(found, key=lambda model: (-_ratio(plain(model)), model.name))


def plain(model: Model) -> Entry | None:
    """Return the entry for standard operators, without CUDA graphs."""
    return _entry(model.plain, replayed=False)


def contrib(model: Model) -> Entry | None:
    """Return the entry for standard and contrib operators, without CUDA graphs."""
    return _entry(model.contrib, replayed=False)


def plain_replayed(model: Model) -> Entry | None:
    """Return the entry for standard operators, timed in CUDA graphs."""
    return _entry(model.plain, replayed=True)


def contrib_replayed(model: Model) -> Entry | None:
    """Return the entry for standard and contrib operators, timed in CUDA graphs."""
    return _entry(model.contrib, replayed=True)


def for_graphs(model: Model) -> Entry | None:
    """Return the entry for standard operators, optimized for CUDA graphs and timed in CUDA graphs."""
    return _entry(model.graph, replayed=False)


def told(group: Sequence[Model]) -> str:
    """Return text with the geometric means of the models' gains, and the number of models without a gain."""
    ways: Mapping[str, Cell] = {"": plain, " in CUDA graphs": plain_replayed, " with contrib operators": contrib}
    found = {way: [entry for model in group if (entry := cell(model)) is not None] for way, cell in ways.items()}
    means = [f"**{mean(some):.3f}**{way} ({counted(len(some))})" for way, some in found.items() if some]
    kept = sum(entry.kept for entry in found[""])
    whole = counted(len(found[""]))
    without = f"In the runs without CUDA graphs, no improvement was found for {kept} of the {whole}"
    return f"the geometric mean speedup is {listed(means)}. {without}"


def counted(number: int) -> str:
    """Return the number followed by the word `model`, in the singular or the plural."""
    return f"{number} model{'s' * (number != 1)}"


def listed(items: Sequence[str]) -> str:
    """Return the items as a list in words, with `and` before the last item."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def line(model: Model) -> list[str]:
    """Return the table row of the model: the name, and a cell for each column of HEADINGS."""
    cells = [plain, contrib, plain_replayed, contrib_replayed, for_graphs]
    first, second, *others = [entry.cell if (entry := cell(model)) is not None else "" for cell in cells]
    times = [f"{ms:.2f}" if (ms := model.original(replayed=graph)) is not None else "" for graph in (False, True)]
    return [model.name, times[0], f"**{first}**" if first else "", second, times[1], *others]


def _speed(row: Result, *, replayed: bool) -> Result | None:
    speed: Result | None = row.get("cuda graph", {}).get("speed") if replayed else row["speed"]
    return speed


def _entry(row: Result | None, *, replayed: bool) -> Entry | None:
    """Return superopt's entry of the row, or None if there is no row or the model has no CUDA graph."""
    if row is None or (speed := _speed(row, replayed=replayed)) is None:
        return None
    (ours,) = (entry for entry in entries({**row, "speed": speed}) if entry.contender == SUPEROPT)
    return ours


def _ratio(entry: Entry | None) -> float:
    return (entry.ratio or 0.0) if entry is not None else 0.0
