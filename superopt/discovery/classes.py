"""Equivalence classes of terms with equal digests. The first term of a class represents the class.

A digest is a hash of a term's values on random inputs. A partial term is a term that is undefined on some inputs, as the square
root is on negative inputs. Partial terms are compared by their digests over the positive inputs. A partial term joins the class
of a term that is defined everywhere if the digests of both terms over the positive inputs are equal. All remaining partial
terms form new classes. Two remaining terms are in one class if their digests over the positive inputs are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superopt.discovery.fingerprint import Hashes
from superopt.discovery.table import Flags, Ints
from superopt.discovery.values import Digests, ValueColumns

PARTIAL = np.uint64(0x5851F42D4C957F2D)


@dataclass(frozen=True)
class Classified:
    """The result of assigning terms to classes of equal values.

    Attributes:
        of: for each term, the number that identifies its class. New classes are numbered after the existing classes.
        represents: for each term, whether it is the first term of a new class.
        first: the positions of the first terms of the new classes, in ascending order.
        leader: for each term of a new class, the position of the first term of this class. For all other terms, the value is
            -1.
    """

    of: Ints
    represents: Flags
    first: Ints
    leader: Ints

    @property
    def fresh(self) -> int:
        """The count of new classes."""
        return len(self.first)


def classify_terms(values: ValueColumns, found: Digests) -> Classified:
    """Assign new terms to classes of terms with equal values.

    `found` holds digests of the new terms' values. `values` holds the digests of one term of each existing class.
    """
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
    """Return a key for each term, so that terms with equal values have equal keys.

    `every` contains digests of each term's values on all inputs, and `positive` contains digests of its values on the positive
    inputs. `total` is True for terms that are defined on all inputs. The arguments whose names begin with `all_` hold these
    data for all compared terms. The compared terms include the terms for which keys are returned.
    """
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
