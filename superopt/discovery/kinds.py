"""The typing of enumerated terms: which operands an operator template accepts, and the operator and shape of each result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from superopt.algebra.operators import apply
from superopt.algebra.terms import Attribute, Compare, Extent, Size, Term, variable
from superopt.discovery.fingerprint import Hashes, mixed_ids
from superopt.discovery.table import MOST_OPERATORS, Flags, Ints, Numbering, OperatorCode, Table
from superopt.discovery.universe import Template
from superopt.errors import ShapeError

COLLAPSING = frozenset({"relu", "scale"})
ARITY = 3
TOGETHER = 8


@dataclass(frozen=True)
class TermKind:
    """The operator, the attributes and the operand shapes of a group of terms. The terms of a group are evaluated together."""

    code: int
    shapes: tuple[int, ...]
    result: int


@dataclass(frozen=True)
class Rows:
    """Terms as rows of numbers, without `Term` objects.

    Attributes:
        kinds: for each term, a number that stands for its kind: the operator, the attributes and the operand shapes.
        operands: for each term, the numbers that identify its operands in the table, padded with -1. Every operand represents
            its class of terms with equal values.
        keys: a hash of each term.
    """

    kinds: Ints
    operands: Ints
    keys: Hashes

    def __len__(self) -> int:
        return len(self.kinds)

    def at(self, where: Ints | Flags) -> Rows:
        """Return the rows that `where` selects. The argument `where` is an array of indices or a mask."""
        return Rows(self.kinds[where], self.operands[where], self.keys[where])


class Typing:
    """The kinds of terms (operator, attributes and operand shapes) that operator templates produce."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.universe = table.universe
        self.kinds: Numbering[TermKind] = Numbering()
        self.extents = {n for row in self.universe.variables for v in row for n in v.shape}
        self.extents |= {n for c in self.universe.constants for n in c.term.shape}
        self.summands = {e for n in self.extents if isinstance(n, Size) and len(n.terms) > 1 for e in _summands(n)}
        self._known: dict[tuple[object, ...], TermKind | None] = {}
        self._spreads: dict[tuple[str, int], Hashes] = {}

    def applied(self, rows: Ints, level: int) -> Iterator[Rows]:
        """Apply each operator template to the operands in each row of `rows`, and yield the terms with `level` operators.

        All terms of a yielded batch have the same kind (operator, attributes and operand shapes).
        """
        arity = rows.shape[1]
        for template in (t for t in self.universe.templates if t.operands == arity):
            turned = arity == 2 and not OperatorCode(template.op, ()).commutative
            for ordered in (rows, rows[rows[:, 0] != rows[:, 1]][:, ::-1]) if turned else (rows,):
                some = ordered[self._taken(template, ordered)]
                for shapes, members in _by_columns(self.table.shape[some]):
                    for kind, chosen in self._kinds(template, shapes, some[members]):
                        found = self._rows(kind, chosen, level)
                        if len(found):
                            yield found

    def _taken(self, template: Template, rows: Ints) -> Flags:
        """For each row of operands, return whether the template accepts the operands. Shapes are not checked."""
        table = self.table
        good = np.ones(len(rows), dtype=bool)
        for constant, under in table.constants.items():
            if template.op not in under:
                good &= (rows != table.numbers[constant]).all(axis=1)
        for position, names in enumerate(template.takes):
            if names:
                allowed = np.array([(t.name if t.is_variable else t.op) in names for t in table.terms], dtype=bool)
                good &= allowed[rows[:, position]]
        if template.beside:
            good &= (table.root[rows] == table.operators.of(template.beside)).any(axis=1)
        if template.weighted:
            good &= (table.weights[rows[:, 1]] == 1) & (table.weights[rows[:, 0]] == 0)
        if not self.universe.repeats:
            for earlier in range(rows.shape[1]):
                for later in range(earlier):
                    good &= rows[:, earlier] != rows[:, later]
            if template.op in COLLAPSING:
                good &= table.root[rows[:, 0]] != table.operators.of(template.op)
        return good

    def _kinds(self, template: Template, shapes: tuple[int, ...], rows: Ints) -> Iterator[tuple[int, Ints]]:
        if template.first and self.table.shape_of(shapes[0])[:1] != (template.first,):
            return
        if not template.cut:
            kind = self._typed(template.op, template.attributes, shapes)
            if kind is not None:
                yield kind, rows
            return
        for boundary, members in self._boundaries(template.cut, shapes[0], rows):
            for start, stop in boundary:
                kind = self._typed(template.op, {"axis": template.cut, "start": start, "stop": stop}, shapes)
                if kind is not None:
                    yield kind, members

    def _boundaries(self, axis: int, shape: int, rows: Ints) -> Iterator[tuple[list[tuple[Extent, Extent]], Ints]]:
        """Yield each possible boundary between two parts of an axis, and the rows whose terms may be cut at this boundary.

        A boundary is given by the start and stop of each part. A concatenation along the axis is cut only between its operands.
        For any other term, each part must have a known extent. The known extents are the extents of variables and constants. If
        the extent of the whole axis is known, the extent of a part may also be a summand of a known extent.
        """
        whole_shape = self.table.shape_of(shape)
        if len(whole_shape) < -axis:
            return
        whole = whole_shape[axis]
        terms = [self.table.terms[n] for n in rows[:, 0]]
        joined = np.array([t.op == "concat" and t["axis"] == axis for t in terms], dtype=bool)
        for first in dict.fromkeys(t.args[0].shape[axis] for t, own in zip(terms, joined, strict=True) if own):
            here = np.array([own and t.args[0].shape[axis] == first for t, own in zip(terms, joined, strict=True)], dtype=bool)
            yield [(0, first), (first, whole)], rows[here]
        known = self.extents | self.summands if whole in self.extents else self.extents
        for first in sorted((e for e in known if isinstance(e, Size)), key=str):
            if whole - first in known:
                yield [(0, first), (first, whole)], rows[~joined]

    def _typed(self, op: str, attributes: Mapping[str, Attribute], shapes: tuple[int, ...]) -> int | None:
        """Return the number that identifies an operator with these attributes and operand shapes.

        Returns None if the operator is ill typed on these shapes. Returns None if the operator is well typed only under the
        condition that different symbolic extents are equal. Also returns None if the result is a scalar, unless the attribute
        `shape` is the empty tuple.
        """
        key = (op, tuple(attributes.items()), shapes)
        if key not in self._known:
            self._known[key] = self._kind(op, attributes, shapes)
        kind = self._known[key]
        return None if kind is None else self.kinds.of(kind)

    def _kind(self, op: str, attributes: Mapping[str, Attribute], shapes: tuple[int, ...]) -> TermKind | None:
        operands = [variable(f"o{position}", self.table.shape_of(shape)) for position, shape in enumerate(shapes)]
        try:
            term = apply(op, *operands, **attributes)
        except ShapeError:
            return None
        wanted = term.rank > 0 or attributes.get("shape") == ()
        if not wanted or not all(isinstance(c, Compare) and c.relation == ">=" for c in term.requires):
            return None
        return TermKind(self.table.codes.of(OperatorCode(op, term.attributes)), shapes, self.table.shapes.of(term.shape))

    def _rows(self, kind: int, operands: Ints, level: int) -> Rows:
        """Return terms of one kind (operator, attributes and operand shapes) with the given operands.

        An operand of a sum can be a sum too. A nested sum is flattened to one sum. The term is included only if the flattened
        sum has exactly `level` operators. Terms of other commutative operators are treated like sums.
        """
        found = self.kinds.things[kind]
        code = self.table.code_of(found.code)
        if code.commutative:
            nested = (self.table.root[operands] == self.table.operators.of(code.op)).any(axis=1)
            keep = ~nested
            keep[nested] = self._flat(code.op, operands[nested], level)
            operands = operands[keep]
        padded = np.full((len(operands), ARITY), -1, dtype=np.int64)
        padded[:, : operands.shape[1]] = operands
        return Rows(np.full(len(operands), kind, dtype=np.int64), padded, self.keys(found.code, operands))

    def _flat(self, op: str, rows: Ints, level: int) -> Flags:
        """For each row of `rows`, return whether the row's nested sum has exactly `level` operators after it is flattened.

        A row holds the operands of one sum, and at least one of these operands is a sum too. To flatten the nested sum, each
        inner sum is replaced by its own operands. If the universe forbids repeated operands, the flattened sum must not have
        repeated operands. Any other commutative operator `op` is treated like a sum.
        """
        table = self.table
        kids = self.flattened(op, rows)
        runs, weighs = table.count(table.inside(kids))
        own = (kids >= 0).sum(axis=1) - 1
        weights = (table.weights[rows] == 1).all(axis=1)
        good = table.level_of(runs + np.where(weights, 0, own), weighs + np.where(weights, own, 0)) == level
        if not self.universe.repeats:
            ordered = np.sort(kids, axis=1)
            good &= ~((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
        return np.asarray(good)

    def flattened(self, op: str, rows: Ints) -> Ints:
        """Return the operands of sums, padded with -1. An operand that is a sum is replaced by its own operands.

        Any other commutative operator `op` is treated like a sum.
        """
        table = self.table
        found = np.full((len(rows), rows.shape[1] * MOST_OPERATORS), -1, dtype=np.int64)
        for position in range(rows.shape[1]):
            here = slice(position * MOST_OPERATORS, (position + 1) * MOST_OPERATORS)
            nested = (rows[:, position] >= 0) & (table.root[rows[:, position]] == table.operators.of(op))
            found[nested, here] = table.kids[rows[nested, position]]
            found[~nested, here.start] = rows[~nested, position]
        return found

    def keys(self, code: int, operands: Ints, there: Flags | None = None) -> Hashes:
        """For each row of `operands`, return a hash of the term that applies an operator to the operands in the row.

        The number `code` identifies the operator with its attributes. Sums that differ only in the order or nesting of their
        operands have equal hashes. The mask `there` is True at the operands of a row, and False at its padding.
        """
        total = mixed_ids(np.full(len(operands), code, dtype=np.int64), ARITY)
        op = self.table.code_of(code)
        for position in range(operands.shape[1]):
            if op.commutative:
                part = self._spread(op.op)[operands[:, position]]
            else:
                part = mixed_ids(operands[:, position], position)
            total = total + (part if there is None else np.where(there[:, position], part, np.uint64(0)))
        return total

    def term(self, rows: Rows, row: int) -> Term:
        """Return the term that the row with the index `row` in `rows` describes."""
        found = self.table.code_of(self.kinds.things[rows.kinds[row]].code)
        operands = (self.table.terms[n] for n in rows.operands[row].tolist() if n >= 0)
        return apply(found.op, *operands, **dict(found.attributes))

    def _spread(self, op: str) -> Hashes:
        """Return an array with an entry for each term of the table.

        If the term is an operand of a sum, the entry is the number that the term adds to the sum's hash.
        """
        table = self.table
        key = op, len(table)
        if key not in self._spreads:
            own = mixed_ids(np.arange(len(table)), TOGETHER)
            kids = np.where(table.kids >= 0, own[table.kids], np.uint64(0)).sum(axis=1, dtype=np.uint64)
            self._spreads[key] = np.where(table.root == table.operators.of(op), kids, own)
        return self._spreads[key]


def _summands(extent: Size) -> list[Extent]:
    return [Size((term,)) if term[0] else term[1] for term in extent.terms]


def _by_columns(columns: Ints) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Yield each distinct row of a matrix, with the positions at which the row occurs."""
    if not len(columns):
        return
    order = np.lexsort(columns.T[::-1])
    ordered = columns[order]
    edges = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    for members in np.split(order, edges):
        yield tuple(int(n) for n in columns[members[0]]), members
