"""Folding: weight-only terms computed once, by ONNX Runtime with its own optimizations off, in float64 where it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from superopt.errors import InvalidModelError
from superopt.graph import Term, subterms, variables
from superopt.model.booleans import MOVERS
from superopt.model.lower import Array, lower
from superopt.model.nodes import model_of
from superopt.model.session import Device, Session
from superopt.op import operator

OPSET = 18


def fold(terms: Sequence[Term], values: Mapping[str, Array], dtype: npt.DTypeLike | None = None) -> dict[Term, Array]:
    """The value of each term, rounded once to the type, by default that of the arrays in `values`, which has every variable of
    the terms.

    What ONNX keeps as booleans is boolean. The arithmetic is float64, or float32 where ONNX Runtime has no float64 kernel or
    elements of that type are only moved.
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
    """Whether the term's root is none, or moves the elements of its operands."""
    if term.is_variable:
        return True
    names = operator(term.op).onnx
    return bool(names) and MOVERS.issuperset(names)


def _computed(
    wanted: Mapping[str, Term], inputs: Sequence[Term], values: Mapping[str, Array], dtype: npt.DTypeLike, prefix: str
) -> list[Array]:
    lowered = lower(wanted, OPSET, dtype=dtype, prefix=f"{prefix}by.")
    session = Session(model_of(lowered, inputs, wanted, OPSET, dtype).SerializeToString(), Device(), optimize=False)
    return session.run({x.name: values[x.name] if x.condition else values[x.name].astype(dtype) for x in inputs})
