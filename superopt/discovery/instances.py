"""Remove redundant candidates: renamings of interchangeable variables, and instances of smaller candidates.

All candidates are checked at once, as columns of numbers. Terms with equal values form a class. A candidate states that a term
t equals the representative of the class of t. The candidate is redundant if an earlier candidate, used as a rewriting step at
the root, turns t into a term u of the same class. The term u must have been enumerated, so that its class is known from its
values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from superopt.algebra.terms import Term, subterms, variables
from superopt.discovery.classes import Classified
from superopt.discovery.fingerprint import Hashes
from superopt.discovery.kinds import Rows, Typing
from superopt.discovery.table import Flags, Ints, OperatorCode, Table
from superopt.policy import DISCOVERY

Bound = dict[Term, Ints]


@dataclass(frozen=True)
class KeptEquality:
    """A candidate (a pair of equal terms) that was kept.

    A later candidate is dropped if it results from the kept candidate by replacing variables with terms.
    """

    left: Term
    right: Term


@dataclass
class Registry:
    """The terms that were built. The registry stores the class of equal terms and the position in the order of building for
    each term.

    A term is identified by a key, which is a hash.
    """

    keys: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    classes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    places: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, keys: Hashes, classes: Ints) -> None:
        """Add terms in the order in which they were built.

        `keys` contains the hashes of the terms, and `classes` contains their classes.
        """
        places = np.arange(len(self.keys), len(self.keys) + len(keys))
        order = np.argsort(np.concatenate([self.keys, keys]), kind="stable")
        self.keys = np.concatenate([self.keys, keys])[order]
        self.classes = np.concatenate([self.classes, classes])[order]
        self.places = np.concatenate([self.places, places])[order]

    def of(self, keys: Hashes) -> tuple[Ints, Ints]:
        """Return two arrays for the terms with the hashes `keys`: their classes, and their positions in the order of building.

        Both entries are -1 for a term that was not built.
        """
        found = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        if not len(self.keys):
            return np.full(len(keys), -1), np.full(len(keys), -1)
        there = self.keys[found] == keys
        return np.where(there, self.classes[found], -1), np.where(there, self.places[found], -1)


class Redundancy:
    """A filter that drops redundant candidates (pairs of equal terms).

    The filter stores the candidates that were kept so far.
    """

    def __init__(self, table: Table, typing: Typing) -> None:
        self.table = table
        self.typing = typing
        self.registry = Registry()
        self.equalities: dict[int, list[KeptEquality]] = {}
        self.renamings: list[Ints] = []

    def news(self, rows: Rows, classes: Classified, suggested: Ints) -> Ints:
        """Return the suggested candidates that are neither renamings nor instances of earlier candidates.

        A candidate is given by the index of a row of `rows`. The candidate states that the row's term equals the representative
        of the term's class. An instance of a candidate results from replacing the candidate's variables by terms.
        """
        first = len(self.registry.keys)
        self.registry.add(rows.keys, classes.of)
        self._rename()
        kept = suggested[self._first_of_renamings(rows, classes, suggested, first)]
        codes = np.array([k.code for k in self.typing.kinds.things], dtype=np.int64)[rows.kinds[kept]] if len(kept) else kept
        known = np.zeros(len(kept), bool)
        for code, equalities in self.equalities.items():
            where = np.flatnonzero(codes == code)
            for equality in equalities:
                where = where[~known[where]]
                if not len(where):
                    break
                known[where[self._said(equality, code, rows.at(kept[where]), classes.of[kept[where]])]] = True
        self._learn(rows, classes, kept[~known])
        return kept[~known]

    # ------------------------------------------------------------ renamings

    def _rename(self) -> None:
        """Add the new representatives to the mappings in `self.renamings`. There is one mapping for each renaming of variables.

        A representative stands for all terms of equal value. The mapping of a renaming maps each representative to a number.
        The number is the class of the term that results from the renaming, or -1 if this term was not built.
        """
        table = self.table
        orders = [list(itertools.permutations(row)) for row in table.universe.variables]
        for number, order in enumerate(itertools.islice(itertools.product(*orders), 1, DISCOVERY.max_renamings)):
            if number == len(self.renamings):
                self.renamings.append(np.empty(0, np.int64))
            image = self.renamings[number]
            names = {
                a: b
                for row, turned in zip(table.universe.variables, order, strict=True)
                for a, b in zip(row, turned, strict=True)
            }
            fresh = np.arange(len(image), len(table))
            image = np.concatenate([image, np.full(len(fresh), -1, dtype=np.int64)])
            sizes = table.runs[fresh] + table.weighs[fresh]
            for size in np.unique(sizes).tolist():
                some = fresh[sizes == size]
                image[some] = self._images(image, some, names)
            self.renamings[number] = image

    def _images(self, image: Ints, fresh: Ints, names: Mapping[Term, Term]) -> Ints:
        found = np.full(len(fresh), -1, dtype=np.int64)
        table = self.table
        for position, number in enumerate(fresh.tolist()):
            term = table.terms[number]
            if not term.args:
                found[position] = table.numbers[names.get(term, term)]
        built = table.code[fresh] >= 0
        for code in np.unique(table.code[fresh[built]]).tolist():
            where = np.flatnonzero(table.code[fresh] == code)
            kids = table.kids[fresh[where]]
            found[where] = self._looked_up(code, np.where(kids >= 0, image[kids], -1), kids >= 0)
        return found

    def _looked_up(self, code: int, operands: Ints, there: Flags) -> Ints:
        """For each row of `operands`, return the class of the term that applies an operator to the operands in the row.

        The number `code` identifies the operator with its attributes. Terms with equal values form a class. The result is -1
        for a term that was not built. A row holds the indices of one term's operands. The mask `there` is True at the operands
        of a row, and False at its padding.
        """
        known = (~there | ((operands >= 0) & (operands < len(self.table)))).all(axis=1)
        found = np.full(len(operands), -1, dtype=np.int64)
        keys = self.typing.keys(code, np.where(there, operands, 0)[known], there[known])
        found[known] = self.registry.of(keys)[0]
        return found

    def _first_of_renamings(self, rows: Rows, classes: Classified, suggested: Ints, first: int) -> Flags:
        """For each suggested candidate, return True if no renaming of the candidate's variables gives an earlier candidate.

        A candidate is given by the index of a row of `rows`. The candidate states that the row's term equals the representative
        of the term's class. All built terms are numbered in the order of building. The argument `first` is the number of the
        term in the first row.
        """
        keep = np.ones(len(suggested), bool)
        own_class, own_place = classes.of[suggested], suggested + first
        codes = np.array([k.code for k in self.typing.kinds.things], dtype=np.int64)
        for image in self.renamings:
            operands = rows.operands[suggested]
            there = operands >= 0
            turned = np.where(there, image[operands], -1)
            known = (~there | (turned >= 0)).all(axis=1)
            for code in np.unique(codes[rows.kinds[suggested]]).tolist() if len(suggested) else ():
                where = np.flatnonzero(known & (codes[rows.kinds[suggested]] == code))
                keys = self.typing.keys(code, np.where(there, turned, 0)[where], there[where])
                other_class, other_place = self.registry.of(keys)
                earlier = (other_class < own_class[where]) | (
                    (other_class == own_class[where]) & (other_place < own_place[where])
                )
                keep[where[earlier & (other_class >= 0)]] = False
        return keep

    # ------------------------------------------------------------ instances

    def _learn(self, rows: Rows, classes: Classified, kept: Ints) -> None:
        """Keep each candidate (pair of equal terms) if the left side contains all variables of the right side.

        Later instances of a kept candidate are recognised as redundant.
        """
        for row in kept.tolist():
            number = int(classes.of[row])
            if number >= len(self.table):
                continue
            code = self.typing.kinds.things[rows.kinds[row]].code
            found = self.table.code_of(code)
            left = self.typing.term(rows, row)
            right = self.table.terms[number]
            if set(variables(right)) <= set(variables(left)) and found.op == left.op:
                self.equalities.setdefault(code, []).append(KeptEquality(left, right))

    def _said(self, equality: KeptEquality, code: int, rows: Rows, classes: Ints) -> Flags:
        """For each row, return True if the equality rewrites the row's term to a term that was built and has the same value.

        The equality is applied once, from left to right, at the root of the row's term. All rows must have the same operator
        and attributes, which the number `code` identifies. Terms with equal values form a class, and the array `classes`
        contains the number of each term's class.
        """
        found = np.zeros(len(rows), bool)
        op = self.table.code_of(code)
        operands = rows.operands
        if op.commutative:
            operands = self.typing.flattened(op.op, rows.operands[:, :2])
            operands = np.sort(operands, axis=1)[:, ::-1]
            operands = operands[:, : int((operands >= 0).sum(axis=1).max())]
        for where, bound, rest in self._root(equality.left, operands, commutative=op.commutative):
            image = self._image(equality.right, bound, len(where)).copy()
            more = (rest >= 0).any(axis=1)
            if more.any():
                operands_ = np.concatenate([image[more, None], rest[more]], axis=1)
                there = np.concatenate([np.ones((len(operands_), 1), bool), rest[more] >= 0], axis=1)
                image[more] = self._looked_up(code, operands_, there)
            found[where[image == classes[where]]] = True
        return found

    def _root(self, left: Term, operands: Ints, *, commutative: bool) -> Iterator[tuple[Ints, Bound, Ints]]:
        """Match `left`, the left side of a kept equality, at the root of each term that a row of `operands` describes.

        A row holds the indices of one term's operands. Yields the matching rows, the terms that the variables stand for, and
        the operands that are not part of the match.
        """
        count = len(left.args)
        every = np.arange(len(operands))
        if not commutative:
            yield from (
                (w, b, np.empty((len(w), 0), np.int64)) for w, b in self._all(left.args, operands[:, :count].T, every, {})
            )
            return
        for chosen in itertools.permutations(range(operands.shape[1]), count):
            others = [c for c in range(operands.shape[1]) if c not in chosen]
            some = every[(operands[:, list(chosen)] >= 0).all(axis=1)]
            columns = [operands[some, c] for c in chosen]
            for where, bound in self._all(left.args, columns, some, {}):
                yield where, bound, operands[where][:, others]

    def _all(
        self, patterns: tuple[Term, ...], columns: list[Ints] | Ints, where: Ints, bound: Bound
    ) -> Iterator[tuple[Ints, Bound]]:
        """Match each pattern with its column of terms, row by row. A column is an array of numbers that identify terms.

        Yields the rows on which all patterns match, and the terms that the variables stand for on these rows. The array `where`
        contains the row of each entry of a column. For each variable that is already bound, `bound` contains a column of terms.
        """
        if not len(where):
            return
        if not patterns:
            yield where, bound
            return
        rest = list(columns[1:])
        for kept, now in self._one(patterns[0], columns[0], bound):
            yield from self._all(patterns[1:], [c[kept] for c in rest], where[kept], now)

    def _one(self, pattern: Term, column: Ints, bound: Bound) -> Iterator[tuple[Ints, Bound]]:
        """Match one pattern with every term of `column`, an array of numbers that identify terms.

        Yields the positions at which the pattern matches, and the terms that the variables stand for at these positions.
        """
        table = self.table
        if pattern.is_variable or not pattern.args:
            if pattern.is_variable and pattern not in bound:
                yield np.arange(len(column)), {**bound, pattern: column}
                return
            kept = np.flatnonzero(column == (bound[pattern] if pattern.is_variable else table.numbers[pattern]))
            yield kept, {v: c[kept] for v, c in bound.items()}
            return
        code = table.codes.numbers.get(OperatorCode(pattern.op, pattern.attributes), -1)
        here = np.flatnonzero((table.code[column] == code) & (column < len(table)) & (code >= 0))
        kids = table.kids[column[here]]
        count = len(pattern.args)
        exact = (kids >= 0).sum(axis=1) == count
        here, kids = here[exact], kids[exact]
        orders = (
            itertools.permutations(range(count)) if table.code_of(code).commutative else (range(count),) if code >= 0 else ()
        )
        for order in orders:
            yield from self._all(pattern.args, [kids[:, c] for c in order], here, {v: c[here] for v, c in bound.items()})

    def _image(self, term: Term, bound: Bound, count: int) -> Ints:
        """For each of `count` rows, return the class of the term that results if `bound` replaces the variables of `term`.

        For each variable, `bound` contains an array with the numbers of the terms that replace the variable in the rows. Terms
        with equal values form a class. The class is -1 if the resulting term was not built.
        """
        known: dict[Term, Ints] = {}
        for part in subterms(term):
            if part.is_variable:
                known[part] = bound[part]
            elif not part.args:
                known[part] = np.full(count, self.table.numbers[part], dtype=np.int64)
            else:
                operands = np.stack([np.where(known[a] < len(self.table), known[a], -1) for a in part.args], axis=1)
                code = self.table.codes.numbers.get(OperatorCode(part.op, part.attributes), -1)
                known[part] = self._looked_up(code, operands, np.ones_like(operands, bool)) if code >= 0 else np.full(count, -1)
        return known[term]
