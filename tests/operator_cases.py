"""Random applications of every operator in specs/ that the operator's signature and definition allow."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx.checker
import onnx_ir as ir
from hypothesis import strategies as st

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.operators import POSITIVE, Parameter, apply, operator, registry
from superopt.algebra.terms import Attribute, Sym, Term, size, substitute_attribute, subterms, variable, variables
from superopt.errors import ShapeError
from superopt.model.lift import leaf_of, lift_node
from superopt.notation.parsing import Equation
from superopt.protobuf.nodes import Lowered, lowered_model_proto
from superopt.rules.instances import instantiations
from superopt.runtime.session import Device, Session

DEFINED = [name for name, spec in registry().items() if spec.definition is not None]
COMPOSITES = [name for name, spec in registry().items() if spec.definition is None]
WITH_OPERANDS = [name for name in DEFINED if operator(name).arity]
CONSTANTS = [name for name in DEFINED if not operator(name).arity]
RANKS = range(5)
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@functools.cache
def forms(name: str) -> tuple[Term, ...]:
    """Return one form of the operator for each choice of ranks and axes.

    The extents and the other attributes of a form are symbolic.
    """
    spec = operator(name)
    found = []
    for ranks in itertools.product(RANKS, repeat=spec.arity):
        operands = [variable(letter, rank) for letter, rank in zip("xyzuvw", ranks, strict=False)]
        for values in itertools.product(*(list(_choices(p)) for p in spec.parameters)):
            attributes = dict(zip((p.name for p in spec.parameters), values, strict=True))
            try:
                found.append(apply(name, *operands, **attributes))
            except (ShapeError, ValueError, IndexError):
                continue
    assert found, f"no form of {name} is well typed"
    return tuple(dict.fromkeys(found))


def _choices(parameter: Parameter) -> Iterator[Attribute]:
    match parameter.kind:
        case "axis":
            yield from range(-4, 0)
        case "axes":
            for count in range(5):
                yield from itertools.permutations(range(-4, 0), count)
        case "extent":
            yield size(Sym(parameter.name))
        case "extents":
            for count in range(1, 5):
                yield tuple(size(Sym(f"{parameter.name}{position}")) for position in range(count))
        case "real":
            yield size(Sym(parameter.name, real=True))


def concrete(form: Term, seed: int) -> Term:
    """Return the form at random sizes and attribute values that the operator's definition allows."""
    equation = Equation((form,), (form,), True, ())
    instance = next(instantiations(equation, np.random.default_rng(seed)))
    operands = [variable(v.name, instance.shapes[v.name]) for v in form.args]
    attributes = {name: substitute_attribute(value, instance.value()) for name, value in form.attributes}
    return apply(form.op, *operands, **attributes)


@functools.cache
def applications(name: str) -> st.SearchStrategy[Term]:
    """Return a strategy for random applications of the operator to variables of fixed sizes."""
    return st.builds(concrete, st.sampled_from(forms(name)), st.integers(0, 2**20))


def arrays_for(*terms: Term, seed: int = 0) -> dict[str, Array]:
    """Return a random float32 array for each variable.

    The numbers are standard normal. If an operator requires positive inputs, the numbers are at least 0.5. Variables that
    hold positions get whole numbers.
    """
    rng = np.random.default_rng(seed)
    arrays = {v.name: rng.standard_normal(v.sizes).astype(np.float32) for v in variables(*terms)}
    if any(not t.is_variable and operator(t.op).domain == POSITIVE for t in subterms(*terms)):
        arrays = {name: np.asarray(np.abs(a) + 0.5, dtype=np.float32) for name, a in arrays.items()}
    for term in subterms(*terms):
        indices, extent = positions(term)
        if indices is not None and indices.is_variable:
            least = 0 if term.op == "rotary_embedding" else -extent
            arrays[indices.name] = rng.integers(least, extent, indices.sizes).astype(np.float32)
    return arrays


def positions(term: Term) -> tuple[Term | None, int]:
    """Return the operand that holds positions along an axis, and the extent of this axis."""
    match term.op:
        case "gather":
            return term.args[1], term.args[0].sizes[term.integer("axis")]
        case "lookup":
            return term.args[1], term.args[0].sizes[-2]
        case "rotary_embedding":
            return term.args[1], term.args[2].sizes[0]
        case "one_hot":
            return term.args[0], term.integer("depth")
        case _:
            return None, 0


def evaluated(arrays: Mapping[str, Array], *terms: Term) -> tuple[Array, ...]:
    """Evaluate the terms by their definitions in float64."""
    return evaluate_terms(terms, {name: a.astype(np.float64) for name, a in arrays.items()}, lambda _: None, Floats())


def lifted(graph: ir.Graph, opset: int) -> dict[ir.Value, Term]:
    """Return the terms of all values of the graph that lift. Values that do not lift are variables in these terms."""
    terms: dict[ir.Value, Term] = {}
    for node in graph:
        inputs = [None if v is None else terms.get(v) or leaf_of(v) for v in node.inputs]
        named = [v for v in node.outputs if v.name]
        terms.update(zip(named, lift_node(node, inputs, opset) or (), strict=False))
    return terms


def ran(lowered: Lowered, outputs: Mapping[str, Term], arrays: Mapping[str, Array], opset: int) -> list[Array]:
    """Run lowered terms in ONNX Runtime without graph optimizations, and return the outputs."""
    inputs = variables(*outputs.values())
    dtype = next((a.dtype for a in arrays.values()), np.dtype(np.float32))
    model = lowered_model_proto(lowered, inputs, outputs, opset, dtype)
    onnx.checker.check_model(model, full_check=True)
    return Session(model, Device(), optimize=False).run({v.name: arrays[v.name] for v in inputs})
