"""Constant folding: evaluate terms over weights in ONNX Runtime. Graph optimizations are disabled, and float64 is used if
possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import operator
from superopt.algebra.terms import Term, subterms, variables
from superopt.errors import InvalidModelError
from superopt.model.booleans import MOVERS
from superopt.model.lower import Array, lower
from superopt.protobuf.nodes import lowered_model_proto
from superopt.runtime.session import Device, Session

OPSET = 18


def fold(terms: Sequence[Term], values: Mapping[str, Array], dtype: npt.DTypeLike | None = None) -> dict[Term, Array]:
    """Evaluate the terms, and return the value of each term.

    The arithmetic is usually in float64, and only the results are rounded to `dtype`. The arithmetic is in float32 if ONNX
    Runtime has no float64 kernel, or if the terms only move elements and the results are float32. If a term is a boolean in
    ONNX, its value is a boolean array.

    Args:
        terms: the terms.
        values: the value of every variable of the terms.
        dtype: the type of the results. The default is the type of the arrays in `values`.
    """
    inputs = variables(*terms)
    prefix = "folded."
    while any(x.name.startswith(prefix) for x in inputs):
        prefix = f"again.{prefix}"
    wanted = {f"{prefix}{position}": term for position, term in enumerate(dict.fromkeys(terms))}
    if not wanted:
        return {}
    numbers = [values[x.name].dtype for x in inputs if not x.condition] or [np.dtype(np.float32)]
    rounded = np.result_type(*numbers) if dtype is None else np.dtype(dtype)
    exact = np.float32 if rounded == np.float32 and all(map(_only_moves, subterms(*terms))) else np.float64
    try:
        arrays = _computed(wanted, inputs, values, exact, prefix)
    except InvalidModelError:
        arrays = _computed(wanted, inputs, values, np.float32, prefix)
    with np.errstate(over="ignore"):
        return {t: a if a.dtype == np.bool_ else a.astype(rounded) for t, a in zip(wanted.values(), arrays, strict=True)}


def _only_moves(term: Term) -> bool:
    """Return whether the term is a variable, or has a root operator that only moves elements."""
    if term.is_variable:
        return True
    names = operator(term.op).onnx
    return bool(names) and MOVERS.issuperset(names)


def _computed(
    wanted: Mapping[str, Term], inputs: Sequence[Term], values: Mapping[str, Array], dtype: npt.DTypeLike, prefix: str
) -> list[Array]:
    lowered = lower(wanted, OPSET, dtype=dtype, prefix=f"{prefix}by.")
    session = Session(lowered_model_proto(lowered, inputs, wanted, OPSET, dtype).SerializeToString(), Device(), optimize=False)
    return session.run({x.name: values[x.name] if x.condition else values[x.name].astype(dtype) for x in inputs})
