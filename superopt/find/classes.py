"""Which class each of many terms falls into, by digests: one that is known, or a new one that the first of them represents.

A term that is not defined for some inputs (the root of x, say) equals what has its value wherever it is defined: there, the
inputs that are all positive decide, and a term that is defined everywhere represents the class if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superopt.find.fingerprint import Hashes
from superopt.find.table import Flags, Ints
from superopt.find.values import Digests, Values

PARTIAL = np.uint64(0x5851F42D4C957F2D)


@dataclass(frozen=True)
class Classified:
    """For each term the number of its class (new ones follow the known), and whether it is the first of a new one.

    `first` are the terms that represent the new classes, in order; `leader` is the first term of each term's class where it is
    new, and -1 where it is not.
    """

    of: Ints
    represents: Flags
    first: Ints
    leader: Ints

    @property
    def fresh(self) -> int:
        """How many classes are new."""
        return len(self.first)


def classified(values: Values, found: Digests) -> Classified:
    """The classes of terms with these digests."""
    known = _keys(values.every, values.positive, values.total, values.every, values.positive, values.total)
    own = _keys(
        found.every,
        found.positive,
        found.total,
        np.concatenate([values.every, found.every]),
        np.concatenate([values.positive, found.positive]),
        np.concatenate([values.total, found.total]),
    )
    order = np.argsort(known, kind="stable")
    unique, first, inverse = np.unique(own, return_index=True, return_inverse=True)
    place = np.searchsorted(known[order], unique)
    there = np.zeros(len(unique), bool)
    inside = place < len(known)
    there[inside] = known[order][place[inside]] == unique[inside]
    numbers = np.empty(len(unique), np.int64)
    numbers[there] = order[place[there]]
    new = np.flatnonzero(~there)
    new = new[np.argsort(first[new], kind="stable")]
    numbers[new] = len(known) + np.arange(len(new))
    leaders = np.where(there, -1, first)
    represents = np.zeros(len(own), bool)
    represents[first[new]] = True
    return Classified(numbers[inverse], represents, first[new], leaders[inverse])


def _keys(every: Hashes, positive: Hashes, total: Flags, all_every: Hashes, all_positive: Hashes, all_total: Flags) -> Hashes:
    """What terms of one class have in common; `all_` columns are those of all terms that may represent a class."""
    keys = every.copy()
    if total.all():
        return keys
    unique, first = np.unique(all_positive[all_total], return_index=True)
    wanted = positive[~total]
    place = np.searchsorted(unique, wanted)
    same = np.zeros(len(wanted), bool)
    inside = place < len(unique)
    same[inside] = unique[place[inside]] == wanted[inside]
    own = wanted ^ PARTIAL
    own[same] = all_every[all_total][first[place[same]]]
    keys[~total] = own
    return keys
