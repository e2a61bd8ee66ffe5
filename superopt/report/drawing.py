"""Draw a rule as an SVG document: both sides as graphs. Operands are above the operators that use the operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import networkx as nx

from superopt.algebra.operators import operator
from superopt.algebra.terms import Attribute, Term, show_extent, subterms

GLYPH, LINE, PADDING = 7.2, 16.0, 10.0
ROW_GAP, COLUMN_GAP, MARGIN, ARROW = 34.0, 22.0, 20.0, 70.0
SYMBOLS = {"matmul": "@", "add": "+", "sub": "−", "mul": "×"}
STYLE = """
    text { font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #1c2330; text-anchor: middle }
    .title { font-weight: bold }
    .attribute { fill: #5a6478; font-size: 11px }
    .variable { fill: #eaf2fd; stroke: #4a7fc1 }
    .constant { fill: #f3f0e6; stroke: #a08b45 }
    .operator { fill: #ffffff; stroke: #3a4252 }
    .output { stroke-width: 2.5 }
    .edge { fill: none; stroke: #7a8496; marker-end: url(#head) }
    .becomes { font-size: 26px }
"""


@dataclass(frozen=True)
class NodeBox:
    """The box of a graph node in a drawing: lines of text, kind (variable, constant or operator), and centre in pixels."""

    lines: tuple[str, ...]
    kind: str
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """The width in pixels."""
        return max(len(line) for line in self.lines) * GLYPH + 2 * PADDING

    @property
    def height(self) -> float:
        """The height in pixels."""
        return len(self.lines) * LINE + PADDING


@dataclass(frozen=True)
class Side:
    """The layout of one side of a rule in a drawing: the box of each term, the outputs, and the size in pixels."""

    boxes: Mapping[Term, NodeBox]
    outputs: tuple[Term, ...]
    width: float
    height: float


def drawing(left: Sequence[Term], right: Sequence[Term]) -> str:
    """Return an SVG document of a rule: the graphs of both sides with an arrow between them. Outputs have a thick border."""
    sides = [layout_side(tuple(left)), layout_side(tuple(right))]
    height = max(side.height for side in sides)
    width = sides[0].width + ARROW + sides[1].width + 2 * MARGIN
    start = MARGIN + sides[0].width
    body = [
        *_drawn(sides[0], MARGIN, MARGIN + (height - sides[0].height) / 2),
        f'<text class="becomes" x="{start + ARROW / 2:.1f}" y="{MARGIN + height / 2 + 8:.1f}">⇒</text>',
        *_drawn(sides[1], start + ARROW, MARGIN + (height - sides[1].height) / 2),
    ]
    size = f'width="{width:.0f}" height="{height + 2 * MARGIN:.0f}" viewBox="0 0 {width:.0f} {height + 2 * MARGIN:.0f}"'
    head = '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    marker = f'<defs>{head}<path d="M0 0 L8 4 L0 8 z" fill="#7a8496"/></marker></defs>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{marker}\n' + "\n".join(body) + "\n</svg>\n"
    )


def layout_side(roots: tuple[Term, ...]) -> Side:
    """Lay out the graph of the terms in rows. Each term is below all of its operands and near the middle of its operands."""
    graph: nx.DiGraph[Term] = nx.DiGraph()
    for term in subterms(*roots):
        graph.add_node(term)
        graph.add_edges_from((operand, term) for operand in term.args)
    boxes = {term: _box(term) for term in graph}
    order = {term: number for number, term in enumerate(graph)}
    rows: list[list[Term]] = [list(row) for row in nx.topological_generations(graph)]
    rows = _leaves_lowered(rows, graph)
    column: dict[Term, float] = {}
    for row in rows:
        row.sort(key=lambda t: (_middle(t, column), order[t]))
        column.update({term: float(position) for position, term in enumerate(row)})
    widths = [sum(boxes[t].width for t in row) + COLUMN_GAP * (len(row) - 1) for row in rows]
    whole = max(widths)
    y = 0.0
    placed: dict[Term, NodeBox] = {}
    for row, width in zip(rows, widths, strict=True):
        tallest = max(boxes[t].height for t in row)
        x = (whole - width) / 2
        for term in row:
            box = boxes[term]
            placed[term] = NodeBox(box.lines, box.kind, x + box.width / 2, y + tallest / 2)
            x += box.width + COLUMN_GAP
        y += tallest + ROW_GAP
    return Side(placed, roots, whole, y - ROW_GAP)


def _leaves_lowered(rows: list[list[Term]], graph: nx.DiGraph[Term]) -> list[list[Term]]:
    """Return the rows with every variable and constant moved to the row above its first user."""
    level = {term: number for number, row in enumerate(rows) for term in row}
    for term in rows[0]:
        level[term] = min((level[user] for user in graph.successors(term)), default=1) - 1
    return [[t for t in graph if level[t] == number] for number in range(len(rows))]


def _middle(term: Term, column: Mapping[Term, float]) -> float:
    """Return the mean horizontal position (`column`) of the term's operands. If no operand has a position, return zero."""
    known = [column[a] for a in term.args if a in column]
    return sum(known) / len(known) if known else 0.0


def _box(term: Term) -> NodeBox:
    if term.is_variable:
        return NodeBox((f"{term.name}[{', '.join(map(_extent, term.shape))}]",), "variable")
    parameters = operator(term.op).parameters
    shown = [f"{p.name}={_value(term[p.name])}" for p in parameters if p.default is None or term[p.name] != p.default]
    return NodeBox((SYMBOLS.get(term.op, term.op), *shown), "operator" if term.args else "constant")


def _value(value: Attribute) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_extent, value))})"
    return value if isinstance(value, str) else show_extent(value)


def _extent(value: object) -> str:
    """Return the text for an extent (the size of an axis) in a drawing. The extent `x.shape[-1]` gives `x₋₁`."""
    text = value if isinstance(value, str) else show_extent(value)  # type: ignore[arg-type]
    for axis in range(1, 5):
        text = text.replace(f".shape[-{axis}]", "₋" + "₀₁₂₃₄"[axis])
    return text


def _drawn(side: Side, left: float, top: float) -> list[str]:
    edges = [
        _edge(side.boxes[operand], box, left, top, position, len(term.args))
        for term, box in side.boxes.items()
        for position, operand in enumerate(term.args)
    ]
    return edges + [_node(box, left, top, output=term in side.outputs) for term, box in side.boxes.items()]


def _edge(start: NodeBox, end: NodeBox, left: float, top: float, position: int, operands: int) -> str:
    x0, y0 = left + start.x, top + start.y + start.height / 2
    x1, y1 = (
        left + end.x + (position - (operands - 1) / 2) * min(18.0, end.width / (operands + 1)),
        top + end.y - end.height / 2,
    )
    bend = (y1 - y0) / 2
    return f'<path class="edge" d="M{x0:.1f} {y0:.1f} C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}"/>'


def _node(box: NodeBox, left: float, top: float, *, output: bool) -> str:
    x, y = left + box.x - box.width / 2, top + box.y - box.height / 2
    kind = f"{box.kind} output" if output else box.kind
    rectangle = f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="5"/>'
    texts = [
        f'<text class="{"attribute" if number else "title"}" x="{left + box.x:.1f}" '
        f'y="{y + PADDING / 2 + LINE * number + 12:.1f}">{escape(line)}</text>'
        for number, line in enumerate(box.lines)
    ]
    return rectangle + "".join(texts)
