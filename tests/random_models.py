"""Random models and random rewrites of models. A random model is a tree of operators from specs/."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, numpy_helper

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, conjunction, same, substitute_attribute, variable, variables
from superopt.errors import InstantiationError, ShapeError
from superopt.model.islands import chart_of
from superopt.model.load import Model
from superopt.model.lower import lower
from superopt.model.splice import Replacement, splice
from superopt.model.views import Views
from superopt.notation.parsing import Equation
from superopt.protobuf.nodes import lowered_model_proto
from superopt.rules.fp_flags import FpMode
from superopt.rules.instances import instantiations
from superopt.rules.match import Binding, instantiate
from superopt.rules.rule import Rule
from superopt.search.ruleset import RuleSet
from superopt.search.segments import gate_of, segments
from tests.operator_cases import DEFINED, Array, concrete, forms
from tests.walks import walk

OPSET = 22
WEIGHTS = 0.4
"""The share of operands that are weights."""
_OPERATORS, _TRIES = 6, 20
_LARGEST = 1e5
"""The largest number of elements of a segment during a random walk."""


def is_condition(root: Term, name: str) -> bool:
    """Return whether the operand of this name is a condition."""
    return any(v.condition for v in variables(root) if v.name == name)


def grown(rng: random.Random, start: Term | None = None) -> Term:
    """Return a random tree of operators on top of `start`, or on top of a random operator."""
    term = start or fresh(concrete(rng.choice(forms(rng.choice(DEFINED))), rng.randrange(2**20)), 0)
    for number in range(1, rng.randint(2, _OPERATORS)):
        for _ in range(_TRIES):
            above = on_top(term, rng.choice(DEFINED), rng, number)
            if above is not None:
                term = above
                break
    return term


def fresh(term: Term, number: int) -> Term:
    """Return the application with new names for its variables. The names end in `number`."""
    args = [variable(f"{v.name}{number}", v.shape, condition=v.condition) if v.is_variable else v for v in term.args]
    return apply(term.op, *args, **dict(term.attributes))


def on_top(term: Term, name: str, rng: random.Random, number: int) -> Term | None:
    """Return the operator applied to the term and to new variables, or None if no such application was found."""
    form = rng.choice(forms(name))
    places = [p for p, v in enumerate(form.args) if v.rank == len(term.sizes) and v.condition == term.condition]
    places = [p for p in places if not (form.op in ("gather", "lookup") and p == 1) and form.op != "one_hot"]
    if not places:
        return None
    place = rng.choice(places)
    sizes = conjunction(*(same(a, b) for a, b in zip(form.args[place].shape, term.shape, strict=True)))
    if sizes is False:
        return None
    try:
        instance = next(instantiations(Equation((form,), (form,), sizes, ()), np.random.default_rng(rng.randrange(2**20))))
        args = [
            term if p == place else variable(f"{v.name}{number}", instance.shapes[v.name], condition=v.condition)
            for p, v in enumerate(form.args)
        ]
        attributes = {k: substitute_attribute(v, instance.value()) for k, v in form.attributes}
        return apply(name, *args, **attributes)
    except (InstantiationError, ShapeError, StopIteration):
        return None


def proto_of(root: Term, feeds: Mapping[str, Array], constants: set[str]) -> ModelProto:
    """Return the model of the term, in which the variables named in `constants` are weights."""
    dtype = next((a.dtype for a in feeds.values() if a.dtype.kind == "f"), np.dtype(np.float32))
    outputs = {"out": root}
    proto = lowered_model_proto(lower(outputs, OPSET, dtype=dtype), variables(root), outputs, OPSET, dtype)
    ports = [port for port in proto.graph.input if port.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(ports)
    proto.graph.initializer.extend(
        numpy_helper.from_array(feeds[v.name], v.name) for v in variables(root) if v.name in constants
    )
    return proto


def planted(rule: Rule, rng: random.Random) -> tuple[Term, set[str]] | None:
    """Return the left side of a rule at random sizes, and the names of the operands that must be weights.

    Return None if the left side has several results, or if no sizes are found.
    """
    equation = rng.choice(rule.equations)
    if len(equation.left) > 1:
        return None
    try:
        instance = next(instantiations(equation, np.random.default_rng(rng.randrange(2**20))))
        operands = {v.name: v for v in variables(*equation.left)}
        tensors = {
            name: variable(f"{name}0", shape, condition=name in operands and operands[name].condition)
            for name, shape in instance.shapes.items()
        }
        root = instantiate(equation.left[0], Binding(tensors, instance.attributes))
    except (InstantiationError, ShapeError, StopIteration):
        return None
    return (root, {f"{name}0" for name, v in operands.items() if v.constant}) if not root.is_variable else None


def rewritten_model(
    model: Model,
    rules: RuleSet,
    rng: random.Random,
    *,
    steps: int,
    mode: FpMode | None = None,
    strict: bool = True,
    first: RuleSet | None = None,
) -> tuple[Model, list[str]]:
    """Return the model after random rewrites of every segment, and the names of the rules that were used.

    Args:
        model: The model.
        rules: The rules that may be used.
        rng: The random number generator.
        steps: The largest number of rewrites of a segment.
        mode: The floating-point mode that decides which matches are allowed, or None to allow all matches.
        strict: Whether the gate is strict, as in the second search of `optimize`.
        first: Rules of which one is used first if any of them matches.
    """
    replacements: list[Replacement] = []
    used: list[str] = []
    for part in segments(chart_of(model, Views(model), FpMode.FAST if mode is None else mode), {}):
        state, taken = part.state, list[str]()
        for some, most in ((first, 1), (rules, steps)):
            if some is not None:
                gate = None if mode is None else gate_of([part], mode, strict=strict)
                admitted = some if gate is None else some.gated(gate)
                state, more = walk(state, admitted, rng, steps=most, largest=_LARGEST, gate=gate)
                taken += more
        if taken:
            used += taken
            outputs = dict(zip(part.island.outputs, part.form.restored(state), strict=True))
            replacements.append(
                Replacement(outputs, part.island.dtype, part.island.conditions, part.island.sizings, part.island.scope)
            )
    return splice(model, replacements), used
