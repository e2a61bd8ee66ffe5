"""Molecules, read from SMILES without charges, isotopes and stereochemistry."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

TOKEN = re.compile(r"\[nH\]|Br|Cl|[BCNOPSFIbcnops]|[-=#]|[()]|\d")
VALENCE = {"B": 3, "C": 4, "N": 3, "O": 2, "P": 3, "S": 2, "F": 1, "Cl": 1, "Br": 1, "I": 1}
NUMBER = {"B": 5, "C": 6, "N": 7, "O": 8, "F": 9, "P": 15, "S": 16, "Cl": 17, "Br": 35, "I": 53}
ORDER = {"-": 1.0, "=": 2.0, "#": 3.0}
AROMATIC = 1.5


@dataclass
class Molecule:
    """A molecule as a graph of its heavy atoms. The order of an aromatic bond is 1.5."""

    elements: list[str] = field(default_factory=list)
    aromatic: list[bool] = field(default_factory=list)
    given: list[int | None] = field(default_factory=list)
    """For each atom, the number of hydrogen atoms, or None if the text does not state the number."""
    bonds: list[tuple[int, int, float]] = field(default_factory=list)

    def neighbours(self, atom: int) -> list[int]:
        """Return the heavy atoms with a bond to the atom."""
        return [b if a == atom else a for a, b, _ in self.bonds if atom in (a, b)]

    def hydrogens(self, atom: int) -> int:
        """Return the number of hydrogen atoms with a bond to the atom."""
        if (given := self.given[atom]) is not None:
            return given
        used = sum(order for a, b, order in self.bonds if atom in (a, b))
        return max(0, int(VALENCE[self.elements[atom]] - used))

    def adjacency(self) -> Array:
        """Return the adjacency matrix of the heavy atoms."""
        result = np.zeros((len(self.elements), len(self.elements)))
        for a, b, _ in self.bonds:
            result[a, b] = result[b, a] = 1
        return result

    def distances(self, without: tuple[int, int] | None = None) -> Array:
        """Return the number of bonds on the shortest path between each two atoms, or infinity.

        Args:
            without: A bond that paths may not use.
        """
        result = np.full((len(self.elements), len(self.elements)), np.inf)
        for start in range(len(self.elements)):
            result[start, start] = 0
            queue = deque([start])
            while queue:
                atom = queue.popleft()
                for other in self.neighbours(atom):
                    if np.isinf(result[start, other]) and without not in ((atom, other), (other, atom)):
                        result[start, other] = result[start, atom] + 1
                        queue.append(other)
        return result

    def in_ring(self, a: int, b: int) -> bool:
        """Return whether the bond between two atoms is in a ring."""
        return bool(np.isfinite(self.distances(without=(a, b))[a, b]))


def parsed(smiles: str) -> Molecule:
    """Return the molecule that the text describes.

    Raises:
        ValueError: The text has a symbol that this parser does not know.
    """
    result = Molecule()
    tokens = TOKEN.findall(smiles)
    if "".join(tokens) != smiles:
        raise ValueError(f"unknown symbol in {smiles}")
    branches: list[int] = []
    rings: dict[str, tuple[int, float | None]] = {}
    last, order = -1, None
    for token in tokens:
        if token == "(":
            branches.append(last)
        elif token == ")":
            last = branches.pop()
        elif token in ORDER:
            order = ORDER[token]
        elif token.isdigit() and token in rings:
            other, opened = rings.pop(token)
            connect(result, other, last, order or opened)
            order = None
        elif token.isdigit():
            rings[token] = last, order
            order = None
        else:
            symbol = token.strip("[]H")
            result.elements.append(symbol.capitalize())
            result.aromatic.append(symbol.islower())
            result.given.append(1 if token == "[nH]" else None)
            if last >= 0:
                connect(result, last, len(result.elements) - 1, order)
            last, order = len(result.elements) - 1, None
    return result


def connect(molecule: Molecule, a: int, b: int, order: float | None) -> None:
    """Add a bond between two atoms. A bond without an order is aromatic between aromatic atoms and single otherwise."""
    implied = AROMATIC if molecule.aromatic[a] and molecule.aromatic[b] else 1.0
    molecule.bonds.append((a, b, order or implied))
