"""The representatives of enumerated terms as columns of numbers, from which larger terms are built in batches.

A representative stands for all enumerated terms of equal value. A number identifies a representative. A code identifies a
shape, or an operator with its attributes. Every part of a representative is a representative too. The table lists the numbers
that identify the parts of each representative.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import operator
from superopt.algebra.terms import Attribute, Shape, Term, variables
from superopt.discovery.universe import WEIGHTS, Universe

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
MOST_OPERATORS = 8
Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True)
class OperatorCode:
    """An operator with its attributes."""

    op: str
    attributes: tuple[tuple[str, Attribute], ...]

    @property
    def commutative(self) -> bool:
        return operator(self.op).commutative


class Numbering(Generic[Thing]):
    """Assigns numbers to objects in the order in which they are first seen."""

    def __init__(self) -> None:
        self.numbers: dict[Thing, int] = {}
        self.things: list[Thing] = []

    def of(self, thing: Thing) -> int:
        number = self.numbers.get(thing)
        if number is None:
            number = self.numbers[thing] = len(self.things)
            self.things.append(thing)
        return number


class Table:
    """Columns of numbers, with one entry for each representative in the order of discovery.

    A representative is a term that stands for all terms of equal value.
    """

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.codes: Numbering[OperatorCode] = Numbering()
        self.shapes: Numbering[Shape] = Numbering()
        self.operators: Numbering[str] = Numbering()
        self.terms: list[Term] = []
        self.numbers: dict[Term, int] = {}
        self.constants = {c.term: c.under for c in universe.constants}
        self._bits = {v.name: position for position, v in enumerate(v for row in universe.variables for v in row)}
        self._columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self._lists: dict[str, list[list[int]]] = {name: [] for name in LISTS}
        self._arrays: dict[str, Ints] = {}

    def __len__(self) -> int:
        return len(self.terms)

    def __getattr__(self, name: str) -> Ints:
        if name not in COLUMNS and name not in LISTS:
            raise AttributeError(name)
        if name not in self._arrays:
            column = self._lists[name] if name in LISTS else self._columns[name]
            self._arrays[name] = np.asarray(column, dtype=np.int64)
        return self._arrays[name]

    def add(self, term: Term, code: int, level: int) -> int:
        """Add a term that represents all terms of equal value, and return the number of the added term.

        The operands must have been added before. `code` identifies the operator with the attributes. `level` states how many of
        the term's operators count towards the limit on operators.
        """
        number = len(self.terms)
        self.terms.append(term)
        self.numbers[term] = number
        self._arrays.clear()
        kids = [self.numbers[a] for a in term.args]
        inside = sorted({n for kid in kids for n in self._lists["nodes"][kid] if n >= 0} | ({number} if kids else set()))
        weighs = all(v.name in WEIGHTS for v in variables(term))
        own = (len(kids) - 1 if operator(term.op).commutative else 1) if kids else 0
        self._columns["run"].append(0 if weighs else own)
        self._columns["weighing"].append(own if weighs else 0)
        row = {
            "code": code,
            "root": self.operators.of(term.op),
            "shape": self.shapes.of(term.shape),
            "runs": sum(self._columns["run"][n] for n in inside),
            "weighs": sum(self._columns["weighing"][n] for n in inside),
            "weights": int(weighs),
            "used": sum(1 << self._bits[v.name] for v in variables(term)),
            "level": level,
        }
        for name, value in row.items():
            self._columns[name].append(value)
        self._lists["kids"].append(_padded(kids))
        self._lists["nodes"].append(_padded(inside))
        return number

    def shape_of(self, code: int) -> Shape:
        """Return the shape with this code."""
        return self.shapes.things[code]

    def code_of(self, number: int) -> OperatorCode:
        """Return the operator and attributes with the code `number`."""
        return self.codes.things[number]

    def level_of(self, runs: Ints, weighs: Ints) -> Ints:
        """Return the level of each term: how many of its operators count towards the limit on operators.

        `runs` counts the operators that are executed at run time, and `weighs` the operators that depend only on weights. The
        first `Universe.weighing` operators on weights do not count.
        """
        return np.asarray(runs + np.maximum(weighs - self.universe.weighing, 0))

    def inside(self, operands: Ints) -> Ints:
        """For each row of `operands`, return the operators in the graphs of these operands. A shared operator is listed once.

        An operator in a graph is the root of a part of the graph. The number that identifies this part also identifies the
        operator. The rows of `operands` and of the result are padded with -1.
        """
        nodes = np.where(operands[..., None] >= 0, self.nodes[operands], -1)
        together = np.sort(nodes.reshape(len(operands), operands.shape[1] * MOST_OPERATORS), axis=1)
        together[:, 1:][together[:, 1:] == together[:, :-1]] = -1
        return np.asarray(together)

    def count(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Count, in each row of `nodes`, the operators that are executed at run time and the operators that depend only on
        weights.

        A row holds numbers that identify operators, padded with -1.
        """
        there = nodes >= 0
        safe = np.where(there, nodes, 0)
        return (np.where(there, self.run[safe], 0)).sum(axis=1), (np.where(there, self.weighing[safe], 0)).sum(axis=1)

    def prefixed(self, used: Ints) -> Flags:
        """Return a flag for each term: True if the term skips no interchangeable variable.

        For example, the term `x + z` skips the variable `y`, but the term `x + y` skips no variable.

        The array `used` contains an integer for each term. The bits of the integer state which variables the term uses. Every
        term that skips a variable is a renaming of a term that skips no variable.
        """
        good = np.ones(len(used), dtype=bool)
        for row in self.universe.variables:
            for earlier, later in itertools.pairwise(row):
                good &= ~((used >> self._bits[later.name] & 1 == 1) & (used >> self._bits[earlier.name] & 1 == 0))
        return good


COLUMNS = ("code", "root", "shape", "runs", "weighs", "weights", "used", "level", "run", "weighing")
LISTS = ("kids", "nodes")
"""The columns that hold a list of numbers for each representative."""


def _padded(numbers: Sequence[int]) -> list[int]:
    return [*numbers, *[-1] * (MOST_OPERATORS - len(numbers))]
