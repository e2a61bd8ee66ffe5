"""Layered drawings of directed graphs by the method of Sugiyama, Tagawa and Toda (1981).

Each topological generation is a row. A row is ordered by barycentres to avoid crossings. A long edge passes through a narrow
placeholder in each row that it crosses.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from superopt.model.node_graphs import DrawnNode, DrawnPart
from superopt.policy import REPORT

GLYPH, LINE, PADDING, PASSAGE = 7.0, 15.0, 9.0, 10.0
ROW_GAP, COLUMN_GAP, MARGIN = 26.0, 16.0, 6.0
SWEEPS = 6


@dataclass(frozen=True)
class DrawnBox:
    """A box of a drawing: its title, further lines, kind (value, operator or output), hover text, and place in pixels."""

    title: str
    details: tuple[str, ...]
    kind: str
    name: str
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0

    @property
    def lines(self) -> tuple[tuple[str, float], ...]:
        """Each line of text with the height of its baseline."""
        top = self.y - self.height / 2 + PADDING / 2 + LINE - 3.5
        return tuple((line, top + number * LINE) for number, line in enumerate((self.title, *self.details)))


@dataclass(frozen=True)
class LayeredDrawing:
    """A drawing of a graph: boxes, paths of edges in the notation of SVG, and the size in pixels."""

    boxes: tuple[DrawnBox, ...]
    edges: tuple[str, ...]
    width: float
    height: float


def draw_part(part: DrawnPart, *, sideways: bool = False) -> LayeredDrawing | None:
    """Return a drawing of the part of a model. If the part is too large for a drawing, return None.

    If the part has many nodes, equal nodes of a row are drawn as one box with their count. A drawing is read from top to
    bottom, or from left to right if `sideways` is True. A sideways drawing shows neither attributes nor shapes.
    """
    nodes = _without_unread(part.nodes)
    if sideways:
        nodes = [replace(node, details=()) for node in nodes]
    if len(nodes) > REPORT.max_single_nodes:
        nodes = _merged(nodes)
    if not nodes or len(nodes) > REPORT.max_drawn_nodes:
        return None
    operands = [node.operands for node in nodes]
    if not sideways:
        return _laid_out([_box(node) for node in nodes], operands)
    turned = _laid_out([_turned(_box(node)) for node in nodes], operands, sideways=True)
    return replace(turned, boxes=tuple(map(_turned, turned.boxes)), width=turned.height, height=turned.width)


def _turned(box: DrawnBox) -> DrawnBox:
    """Return the box with its two axes exchanged."""
    return replace(box, x=box.y, y=box.x, width=box.height, height=box.width)


def _without_unread(nodes: Sequence[DrawnNode]) -> list[DrawnNode]:
    """Return the nodes of a part without unused inputs.

    An unused input comes from outside the part, and no node of the part reads this input.
    """
    read = {operand for node in nodes for operand in node.operands}
    kept = [place for place, node in enumerate(nodes) if node.operator or place in read]
    return _renumbered(nodes, {place: number for number, place in enumerate(kept)}, kept)


def _renumbered(nodes: Sequence[DrawnNode], numbers: Mapping[int, int], kept: Iterable[int]) -> list[DrawnNode]:
    def operands(node: DrawnNode) -> tuple[int, ...]:
        return tuple(dict.fromkeys(numbers[operand] for operand in node.operands))

    return [replace(nodes[place], operands=operands(nodes[place])) for place in kept]


def _merged(nodes: Sequence[DrawnNode]) -> list[DrawnNode]:
    """Return the nodes, with equal nodes of a row merged into one node.

    The first detail of a merged node is the count of the merged nodes.
    """
    rows = _rows([node.operands for node in nodes])
    groups: dict[Hashable, list[int]] = {}
    for place, node in enumerate(nodes):
        groups.setdefault((rows[place], node.operator, node.details, node.output), []).append(place)
    numbers = {place: number for number, group in enumerate(groups.values()) for place in group}
    merged: list[DrawnNode] = []
    for group in groups.values():
        first = nodes[group[0]]
        operands = tuple(dict.fromkeys(numbers[operand] for place in group for operand in nodes[place].operands))
        count = (f"× {len(group)}",) if len(group) > 1 else ()
        name = f"{first.name} and {len(group) - 1} more" if count else first.name
        merged.append(replace(first, name=name, details=(*count, *first.details), operands=operands))
    return merged


def _rows(operands: Sequence[Sequence[int]]) -> list[int]:
    """Return the row of each node: its topological generation. A node without operands is just above its first user."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(operands)))
    graph.add_edges_from((operand, place) for place, own in enumerate(operands) for operand in own)
    row = {place: number for number, generation in enumerate(nx.topological_generations(graph)) for place in generation}
    for place, own in enumerate(operands):
        if not own:
            row[place] = max(min((row[user] for user in graph.successors(place)), default=1) - 1, 0)
    return [row[place] for place in range(len(operands))]


def _box(node: DrawnNode) -> DrawnBox:
    limit = REPORT.max_drawn_line_characters
    title = node.operator or node.name
    short = title if len(title) <= limit else f"…{title[1 - limit :]}"
    width = max(len(line) for line in (short, *node.details)) * GLYPH + 2 * PADDING
    kind = "output" if node.output else "operator" if node.operator else "value"
    return DrawnBox(short, node.details, kind, node.name, width=width, height=LINE * (1 + len(node.details)) + PADDING)


def _laid_out(boxes: Sequence[DrawnBox], operands: Sequence[Sequence[int]], *, sideways: bool = False) -> LayeredDrawing:
    """Return a drawing of the boxes with edges from operands to users. If `sideways` is True, the axes of edges are swapped."""
    row = _rows(operands)
    rows: list[list[int]] = [[] for _ in range(max(row) + 1)]
    for place, number in enumerate(row):
        rows[number].append(place)
    width = {place: box.width for place, box in enumerate(boxes)}
    above: dict[int, list[int]] = {place: [] for place in width}
    chains: list[list[int]] = []
    for user, own in enumerate(operands):
        for operand in own:
            chain = [operand]
            for number in range(row[operand] + 1, row[user]):
                passage = len(width)
                width[passage], above[passage] = PASSAGE, [chain[-1]]
                rows[number].append(passage)
                chain.append(passage)
            above[user].append(chain[-1])
            chains.append([*chain, user])
    below: dict[int, list[int]] = {place: [] for place in width}
    for place, sources in above.items():
        for source in sources:
            below[source].append(place)
    x = _columns(rows, width, above, below)
    left = min(x[place] - width[place] / 2 for place in x) - MARGIN
    placed, heights, top = dict[int, DrawnBox](), dict[int, tuple[float, float]](), MARGIN
    for members in rows:
        tallest = max((boxes[p].height for p in members if p < len(boxes)), default=0.0)
        for place in members:
            tall = boxes[place].height if place < len(boxes) else tallest
            heights[place] = top + (tallest - tall) / 2, top + (tallest + tall) / 2
            if place < len(boxes):
                placed[place] = replace(boxes[place], x=x[place] - left, y=top + tallest / 2)
        top += tallest + ROW_GAP
    right = max(x[place] + width[place] / 2 for place in x) - left + MARGIN
    edges = [_edge(chain, {p: x[p] - left for p in chain}, heights, sideways=sideways) for chain in chains]
    return LayeredDrawing(tuple(placed[p] for p in range(len(boxes))), tuple(edges), right, top - ROW_GAP + MARGIN)


def _columns(
    rows: list[list[int]], width: Mapping[int, float], above: Mapping[int, list[int]], below: Mapping[int, list[int]]
) -> dict[int, float]:
    """Sort each row by the barycentres of the neighbours, and return the horizontal centre of each box and placeholder."""
    x: dict[int, float] = {}
    for members in rows:
        _place(members, width, {}, x)
    for sweep in range(SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        for members in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {p: statistics.fmean(x[n] for n in neighbours[p]) if neighbours[p] else x[p] for p in members}
            members.sort(key=lambda place: wanted[place])
            _place(members, width, wanted, x)
    return x


def _place(members: Sequence[int], width: Mapping[int, float], wanted: Mapping[int, float], x: dict[int, float]) -> None:
    """Set the centres of the boxes in a row to places near the wanted centres.

    The boxes keep their order and do not overlap.
    """
    edge, offsets = 0.0, list[float]()
    for number, place in enumerate(members):
        least = edge + width[place] / 2
        x[place] = least if number == 0 or not wanted else max(least, x[members[0]] + wanted[place] - wanted[members[0]])
        edge = x[place] + width[place] / 2 + COLUMN_GAP
        offsets.append(wanted.get(place, 0.0) - x[place] if wanted else 0.0)
    shift = statistics.fmean(offsets) if wanted else -(edge - COLUMN_GAP) / 2
    for place in members:
        x[place] += shift


def _edge(chain: Sequence[int], x: Mapping[int, float], heights: Mapping[int, tuple[float, float]], *, sideways: bool) -> str:
    """Return the path of an edge from the bottom of the first box through the placeholders to the top of the last box."""
    points = [(x[chain[0]], heights[chain[0]][1])]
    for passage in chain[1:-1]:
        points += [(x[passage], heights[passage][0]), (x[passage], heights[passage][1])]
    points.append((x[chain[-1]], heights[chain[-1]][0]))

    def at(x: float, y: float) -> str:
        return f"{y:.0f} {x:.0f}" if sideways else f"{x:.0f} {y:.0f}"

    path = f"M{at(*points[0])}"
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        path += f"L{at(x1, y1)}" if x0 == x1 else f"C{at(x0, middle)} {at(x1, middle)} {at(x1, y1)}"
    return path
