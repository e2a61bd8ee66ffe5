"""Check whether pairs of terms are equal: compute the terms in ONNX Runtime, and compare the results.

One model computes many pairs, because it takes long to create a session of ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.algebra.terms import Term, variables
from superopt.errors import InvalidModelError, ShapeError
from superopt.model.lower import lower
from superopt.protobuf.nodes import Lowered, lowered_model_proto
from superopt.runtime.session import Array, Device, Session

OPSET = 20


@dataclass(frozen=True, eq=False)
class TermPair:
    """Two tuples of terms, and a float32 array for each variable. Each term `left[i]` should equal `right[i]`. All extents are
    numbers.
    """

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    arrays: Mapping[str, Array]


def largest_differences(pairs: Sequence[TermPair], opset: int = OPSET) -> list[float]:
    """Return, for each pair, the largest difference between an element of a left term and the corresponding element of the
    right term.

    If the largest magnitude in the left term's value is above 1, differences are divided by this magnitude. Elements that are
    not finite in the left term's value are ignored. ONNX Runtime computes the terms without graph optimizations, and left and
    right terms share no nodes. The result for a pair that cannot be computed is NaN.
    """
    try:
        return _together(pairs, opset)
    except (InvalidModelError, ShapeError):
        if len(pairs) == 1:
            return [math.nan]
        half = len(pairs) // 2
        return [*largest_differences(pairs[:half], opset), *largest_differences(pairs[half:], opset)]


def _together(pairs: Sequence[TermPair], opset: int) -> list[float]:
    parts: list[Lowered] = []
    outputs: dict[str, Term] = {}
    inputs: dict[Term, Array] = {}
    for number, pair in enumerate(pairs):
        for side, terms in (("left", pair.left), ("right", pair.right)):
            wanted = {f"{number}.{side}.{position}": term for position, term in enumerate(terms)}
            parts.append(lower(wanted, opset, prefix=f"{number}.{side}/", conditions=()))
            outputs.update(wanted)
        inputs.update((x, pair.arrays[x.name]) for x in variables(*pair.left, *pair.right))
    whole = Lowered(
        tuple(node for part in parts for node in part.nodes),
        {name: array for part in parts for name, array in part.initializers.items()},
    )
    session = Session(lowered_model_proto(whole, inputs, outputs, opset).SerializeToString(), Device(), optimize=False)
    values = dict(zip(outputs, session.run({x.name: array for x, array in inputs.items()}), strict=True))
    return [
        max(_difference(values[f"{number}.left.{i}"], values[f"{number}.right.{i}"]) for i in range(len(pair.left)))
        for number, pair in enumerate(pairs)
    ]


def _difference(left: Array, right: Array) -> float:
    if left.shape != right.shape:
        return math.inf
    counted = np.isfinite(left)
    scale = max(float(np.abs(left, where=counted, out=np.zeros_like(left)).max(initial=0.0)), 1.0)
    apart = np.abs(np.where(counted, left, 0) - np.where(counted, right, 0))
    largest = float(apart.max(initial=0.0)) / scale
    return largest if math.isfinite(largest) else math.inf
