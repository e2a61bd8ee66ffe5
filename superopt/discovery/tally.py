"""Count the graphs that the enumerated terms stand for.

An argument of a term stands for all graphs that compute the same value as the argument.
"""

from __future__ import annotations

import numpy as np

from superopt.discovery.kinds import Rows, Typing
from superopt.discovery.table import MOST_OPERATORS, Ints, Table
from superopt.policy import DISCOVERY


class GraphTally:
    """Counts the graphs that the enumerated terms stand for. Only graphs within a limit on the count of operators are counted.

    An argument of a term stands for all graphs that compute the value of the argument, so one term counts as several graphs. If
    a term is within the limit only because its arguments share operators, the term counts as one graph. The attribute `most`
    contains the limit.
    """

    def __init__(self, table: Table, typing: Typing, most: int) -> None:
        self.table = table
        self.typing = typing
        self.most = most
        self.graphs = 0
        self._leaves = 0
        self._below: list[tuple[Ints, Ints, Ints]] = []
        self._tree: list[int] = []
        self._counted: Ints | None = None

    def leaves(self, count: int) -> None:
        """Set the count of variables and constants. The classes of variables and constants have the lowest numbers."""
        self._leaves = count

    def add(self, rows: Rows, classes: Ints, *, last: bool) -> None:
        """Count the graphs that the terms in `rows` stand for. All these terms must have the same count of operators.

        `classes` gives, for each term, the number that identifies its class of terms with equal values. If `last` is True, no
        later term has these terms as arguments.
        """
        for start in range(0, len(rows), DISCOVERY.tallied_row_count):
            part = rows.at(np.arange(start, min(start + DISCOVERY.tallied_row_count, len(rows))))
            kids = self._kids(part)
            own = self._own(part, kids)
            self.graphs += int(self._unshared(kids, own))
            if not last:
                self._below.append((kids, own, classes[start : start + DISCOVERY.tallied_row_count]))
            else:
                members = self._members()
                for operators in range(self.most + 1):
                    self.graphs += int(self._ways(members, kids, operators - own).sum())
        if last:
            self.graphs += int(self._members().sum())

    def _kids(self, rows: Rows) -> Ints:
        found = np.full((len(rows), MOST_OPERATORS), -1, dtype=np.int64)
        found[:, : rows.operands.shape[1]] = rows.operands
        sums: dict[str, list[int]] = {}
        for number, kind in enumerate(self.typing.kinds.things):
            code = self.table.code_of(kind.code)
            if code.commutative:
                sums.setdefault(code.op, []).append(number)
        for op, kinds in sums.items():
            where = np.isin(rows.kinds, kinds)
            flat = np.sort(self.typing.flattened(op, rows.operands[where][:, :2]), axis=1)[:, ::-1]
            found[where] = flat[:, :MOST_OPERATORS]
        return found

    def _own(self, rows: Rows, kids: Ints) -> Ints:
        """Return the operator count of each term's root.

        A commutative operator with n operands counts as n - 1 operators. Any other operator counts as 1.
        """
        sums = np.array([self.table.code_of(k.code).commutative for k in self.typing.kinds.things], dtype=bool)
        return np.where(sums[rows.kinds] if len(rows) else False, (kids >= 0).sum(axis=1) - 1, 1)

    def _unshared(self, kids: Ints, own: Ints) -> Ints:
        """Return the number of terms that exceed the limit on operators if every occurrence of a shared operator counts.

        If several arguments of a term share an operator, the operator is counted once for each of its occurrences. The matrix
        `kids` contains the arguments of each term. The array `own` contains the result of `_own`, the operator count of each
        term's root.
        """
        counts = own + np.where(kids >= 0, self._sizes()[kids], 0).sum(axis=1)
        return np.asarray((counts > self.most).sum())

    def _sizes(self) -> Ints:
        """Return the operator count of each term in the table. Every occurrence of an operator counts."""
        if len(self._tree) != len(self.table):
            own = self.table.run + self.table.weighing
            for number in range(len(self._tree), len(self.table)):
                kids = self.table.kids[number]
                self._tree.append(int(own[number]) + sum(self._tree[k] for k in kids.tolist() if k >= 0))
        return np.asarray(self._tree, dtype=np.int64)

    def _members(self) -> Ints:
        """Return a matrix with a row for each class of equal terms. Column i holds the count of the class's graphs with i
        operators.

        Terms at the limit on operators are left out, because these terms are not arguments of larger terms.
        """
        if self._counted is None:
            counts = np.zeros((len(self.table), self.most + 1), dtype=np.int64)
            counts[: self._leaves, 0] = 1
            for operators in range(self.most + 1):
                for kids, own, classes in self._below:
                    np.add.at(counts[:, operators], classes, self._ways(counts, kids, operators - own))
            self._counted = counts
        return self._counted

    def _ways(self, members: Ints, kids: Ints, operators: Ints) -> Ints:
        """For each term, return the count of ways to choose one graph for each argument.

        The chosen graphs must have a given total count of operators. The array `operators` contains the total count for each
        term. If this count is negative, the result is 0. The matrix `kids` contains the classes of each term's arguments. In
        the matrix `members`, the entry in row c and column i is the count of the graphs of class c that have i operators.
        """
        ways = np.zeros((len(kids), self.most + 1), dtype=np.int64)
        ways[:, 0] = 1
        for column in kids.T:
            there = column >= 0
            if not there.any():
                break
            each = members[column[there]]
            before = ways[there]
            after = np.zeros_like(before)
            for some in range(self.most + 1):
                after[:, some:] += before[:, : self.most + 1 - some] * each[:, some : some + 1]
            ways[there] = after
        return np.where(operators >= 0, ways[np.arange(len(kids)), np.maximum(operators, 0)], 0)
