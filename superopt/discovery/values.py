"""The values of representatives in every environment, and digests of terms whose operands are representatives.

A representative stands for all enumerated terms of equal value. An environment assigns numbers to symbols and arrays to
variables.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.terms import Term
from superopt.discovery.fingerprint import Fingerprints, Hashes, mixed_ids
from superopt.discovery.kinds import Rows, TermKind
from superopt.discovery.table import Flags, Ints, Table
from superopt.policy import DISCOVERY

Array = npt.NDArray[Any]
SHAPED = 11


@dataclass(frozen=True)
class Digests:
    """Digests of the values of some terms in several environments. An environment is an assignment of random inputs.

    Attributes:
        defined: whether each requested term has a digest. The other attributes have entries only for terms with a digest.
        every: the digest of the values in all environments.
        positive: the digest of the values in the environments with positive inputs.
        total: whether a term is defined in every environment.
        sure: False for a term that was evaluated only in the first environment, because the term has a unique value in this
            environment.
    """

    defined: Flags
    every: Hashes
    positive: Hashes
    total: Flags
    sure: Flags


class ValueColumns:
    """The values of terms on random inputs, and digests of the values. Each term represents all terms of equal value.

    For each random input (environment), one array stores the values of all terms of one shape.
    """

    def __init__(self, table: Table, fingerprints: Fingerprints) -> None:
        self.table = table
        self.fingerprints = fingerprints
        self.count = len(fingerprints.environments)
        self._arrays: list[dict[int, Array]] = [{} for _ in range(self.count)]
        self._columns: list[int] = []
        self.first: Hashes = np.empty(0, np.uint64)
        self.every: Hashes = np.empty(0, np.uint64)
        self.positive: Hashes = np.empty(0, np.uint64)
        self.total: Flags = np.empty(0, bool)

    def add_leaf(self, term: Term) -> None:
        """Compute and store the values of a variable or constant."""
        code = -1
        number = self.table.add(term, code, 0)
        values = [self._leaf(term, e) for e in range(self.count)]
        self._append(int(self.table.shape[number]), values, 1)
        found = [self.fingerprints.digests(v, e) for e, v in enumerate(values)]
        self._remember(self._summed(found, np.array([self.table.shape[number]])))

    def _leaf(self, term: Term, number: int) -> Array:
        if term.is_variable:
            return self.fingerprints.leaf(term, number)
        operands = [self._leaf(a, number) for a in term.args]
        value = self.fingerprints.applied(term.op, dict(term.attributes), operands, number)
        assert value is not None
        return value

    def _append(self, shape: int, values: Sequence[Array], count: int) -> None:
        first = self._arrays[0][shape].shape[-1] if shape in self._arrays[0] else 0
        for e, value in enumerate(values):
            known = self._arrays[e].get(shape)
            self._arrays[e][shape] = np.array(value) if known is None else np.concatenate([known, value], axis=-1)
        self._columns += range(first, first + count)

    def _remember(self, found: tuple[Hashes, Hashes, Hashes, Flags]) -> None:
        first, every, positive, total = found
        self.first = np.concatenate([self.first, first])
        self.every = np.concatenate([self.every, every])
        self.positive = np.concatenate([self.positive, positive])
        self.total = np.concatenate([self.total, total])

    def digests(self, rows: Rows, kinds: Sequence[TermKind], *, quick: bool) -> Digests:
        """Return the digests of the terms in `rows`.

        If `quick` is True, every term is evaluated in the first environment (random input). A term is evaluated in the
        remaining environments only if its value in the first environment is not unique.
        """
        shapes = np.array([k.result for k in kinds], dtype=np.int64)
        found = [self._of(rows, kinds, 0)]
        sure = found[0][1].copy()
        if quick:
            first = self._salted(found[0][0], shapes[rows.kinds] if len(rows) else rows.kinds)
            sure &= _repeated(first, found[0][1]) | np.isin(first, self.first)
        where = np.flatnonzero(sure)
        for number in range(1, self.count):
            digests, exact = self._of(rows.at(where), kinds, number)
            every = np.zeros(len(rows), np.uint64), np.ones(len(rows), bool)
            every[0][where], every[1][where] = digests, exact
            found.append(every)
        _, total, positive, whole = self._summed(found, shapes[rows.kinds] if len(rows) else rows.kinds)
        defined = np.logical_and.reduce([exact for _, exact in found[: self.fingerprints.positive]])
        return Digests(defined, total[defined], positive[defined], whole[defined], sure[defined])

    def _of(self, rows: Rows, kinds: Sequence[TermKind], number: int) -> tuple[Hashes, Flags]:
        """Evaluate the terms in `rows` on one random input. Return digests of their values, and whether the values are exact.

        `number` is the index of the random input (environment).
        """
        digests, exact = np.zeros(len(rows), np.uint64), np.zeros(len(rows), bool)
        for members, value in self._evaluated(rows, kinds, number):
            digests[members], exact[members] = self.fingerprints.digests(value, number)
        return digests, exact

    def _evaluated(self, rows: Rows, kinds: Sequence[TermKind], number: int) -> Iterator[tuple[Ints, Array]]:
        """Evaluate the terms in `rows` on one random input, and yield their values in batches of terms of one kind.

        `number` is the index of the random input (environment). A kind is an operator with its attributes and operand shapes.
        Kinds that are not defined in the environment are left out.
        """
        columns = np.asarray(self._columns, dtype=np.int64)
        order = np.argsort(rows.kinds, kind="stable")
        edges = np.flatnonzero(np.diff(rows.kinds[order])) + 1
        for members in np.split(order, edges) if len(order) else ():
            kind = kinds[rows.kinds[members[0]]]
            code = self.table.code_of(kind.code)
            stores = [self._arrays[number].get(s) for s in kind.shapes]
            step = self._step(stores)
            for start in range(0, len(members), step):
                part = members[start : start + step]
                operands = [s[..., columns[rows.operands[part, p]]] for p, s in enumerate(stores) if s is not None]
                value = self.fingerprints.applied(code.op, dict(code.attributes), operands, number)
                if value is None:
                    break
                yield part, np.broadcast_to(value, (*value.shape[:-1], len(part)))

    def _step(self, stores: Sequence[Array | None]) -> int:
        """Return the number of terms to evaluate at once. With this number, intermediate values fit into a processor cache.

        `stores` contains the arrays from which the terms' operands are taken.
        """
        sizes = [s[..., 0].size for s in stores if s is not None]
        return int(np.clip(DISCOVERY.max_batch_elements // (max(sizes) * (min(sizes) if len(sizes) > 1 else 1)), 64, 1 << 14))

    def _salted(self, digests: Hashes, shapes: Ints) -> Hashes:
        return digests + mixed_ids(shapes, SHAPED)

    def _summed(self, found: Sequence[tuple[Hashes, Flags]], shapes: Ints) -> tuple[Hashes, Hashes, Hashes, Flags]:
        """Combine the digests of terms in several environments (random inputs). Each element of `found` contains the digests
        for one environment.

        Returns four arrays. The first three arrays contain the digests for the first environment, for all environments, and for
        the environments with positive inputs. The last array states whether the values are exact in all environments.
        """
        parts = [d * np.uint64(2 * e + 1) for e, (d, _) in enumerate(found)]
        positive = functools.reduce(lambda a, b: a + b, parts[: self.fingerprints.positive])
        every = functools.reduce(lambda a, b: a + b, parts)
        total = np.logical_and.reduce([exact for _, exact in found])
        return self._salted(found[0][0], shapes), self._salted(every, shapes), self._salted(positive, shapes), total

    def add(self, rows: Rows, kinds: Sequence[TermKind]) -> None:
        """Compute and store the values and digests of the terms in `rows`, which must be the last terms of the table."""
        base = len(self._columns)
        self._columns += [0] * len(rows)
        results = np.array([kinds[k].result for k in rows.kinds.tolist()], dtype=np.int64)
        found: list[tuple[Hashes, Flags]] = []
        for number in range(self.count):
            digests, exact = np.zeros(len(rows), np.uint64), np.zeros(len(rows), bool)
            fresh: dict[int, list[tuple[Ints, Array]]] = {}
            for members, value in self._evaluated(rows, kinds, number):
                digests[members], exact[members] = self.fingerprints.digests(value, number)
                fresh.setdefault(int(results[members[0]]), []).append((members, value))
            for shape, some in fresh.items():
                known = self._arrays[number].get(shape)
                count = 0 if known is None else known.shape[-1]
                for members, _ in some:
                    for column, row in enumerate(members.tolist(), start=count):
                        self._columns[base + row] = column
                    count += len(members)
                parts = [value for _, value in some]
                self._arrays[number][shape] = np.concatenate(parts if known is None else [known, *parts], axis=-1)
            found.append((digests, exact))
        self._remember(self._summed(found, results))

    def digest_of(self, term: Term) -> int | None:
        """Return the digest of the term's values on all random inputs. Return None if the term is undefined on an input."""
        found = []
        for number in range(self.count):
            value = self._value(term, number, {})
            if value is None:
                return None
            found.append(self.fingerprints.digests(value, number))
        if not all(bool(exact[0]) for _, exact in found):
            return None
        shape = self.table.shapes.of(term.shape)
        return int(self._summed(found, np.array([shape]))[1][0])

    def _value(self, term: Term, number: int, known: dict[Term, Array]) -> Array | None:
        if term not in known:
            place = self.table.numbers.get(term)
            if place is not None:
                shape, column = int(self.table.shape[place]), self._columns[place]
                known[term] = self._arrays[number][shape][..., column : column + 1]
            else:
                operands = [v for a in term.args if (v := self._value(a, number, known)) is not None]
                whole = len(operands) == len(term.args)
                value = self.fingerprints.applied(term.op, dict(term.attributes), operands, number) if whole else None
                if value is None:
                    return None
                known[term] = value
        return known[term]


def _repeated(values: Hashes, where: Flags) -> Flags:
    """Return a flag for each value: whether an equal value occurs at a different position.

    Only values that the mask `where` selects are compared. For all other values, the result is False.
    """
    _, inverse, counts = np.unique(values[where], return_inverse=True, return_counts=True)
    found = np.zeros(len(values), bool)
    found[where] = counts[inverse] > 1
    return found
