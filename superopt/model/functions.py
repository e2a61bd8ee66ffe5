"""Export rules as pairs of ONNX functions. A pair consists of a pattern and a replacement for nodes that match the pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.helper
from onnx import AttributeProto, FunctionProto, ModelProto

from superopt.errors import InvalidModelError
from superopt.policy import MODEL
from superopt.protobuf.nodes import AttributeValue, Lowered, node_proto
from superopt.runtime.session import Device, Session

DOMAIN = "superopt.rules"
FUNCTIONS_IR = 8  # the first IR version in which a model may contain functions


@dataclass(frozen=True)
class FunctionPair:
    """Two ONNX functions with the same inputs and outputs. Nodes that match `pattern` may be replaced by `replacement`."""

    name: str
    pattern: FunctionProto
    replacement: FunctionProto


def pair(
    name: str, left: Sequence[Lowered], right: Sequence[Lowered], inputs: Sequence[str], outputs: int, opset: int
) -> FunctionPair | str:
    """Return a rule as a pair of ONNX functions.

    `left` and `right` contain the nodes of the rule's two sides for several instances. An instance is a choice of sizes and
    attributes. If an attribute of the left side differs between instances, this attribute becomes an attribute of the
    functions. If an attribute of the right side differs between instances, an attribute of the left side must have an equal
    value in every instance.

    If the rule cannot be written as a pair of functions, the reason is returned as text.
    """
    if any(lowered.initializers for lowered in (*left, *right)):
        return "the rule has constants, whose values a pattern cannot check"
    if any(_shape(side[0]) != _shape(lowered) for side in (left, right) for lowered in side):
        return "the ONNX nodes of the rule depend on sizes"
    if len(right[0].nodes) > len(left[0].nodes):
        return "the right side has more nodes than the left side"
    varying = _varying(left)
    wildcards: dict[tuple[AttributeValue, ...], str] = {}
    for values in varying.values():
        wildcards.setdefault(values, f"a{len(wildcards)}")
    if any(values not in wildcards for values in _varying(right).values()):
        return "the value of an attribute of the right side is not the value of any attribute of the left side"
    used = {name for node in left[0].nodes for name in node.inputs}
    taken = [x for x in inputs if x in used]
    titles = [f"out{n}" for n in range(outputs)]
    functions = [
        _function(f"{name}-{part}", lowered, varying_, wildcards, taken, titles, opset)
        for part, lowered, varying_ in (("pattern", left[0], varying), ("replacement", right[0], _varying(right)))
    ]
    return FunctionPair(name, functions[0], functions[1])


def _shape(lowered: Lowered) -> tuple[tuple[object, ...], ...]:
    return tuple((n.op_type, n.inputs, n.outputs, tuple(name for name, _ in n.attributes)) for n in lowered.nodes)


def _varying(side: Sequence[Lowered]) -> dict[tuple[int, str], tuple[AttributeValue, ...]]:
    """Return a mapping from attributes to their values. The mapping contains the attributes whose values differ between the
    items of `side`.

    `side` contains the nodes of one side of a rule at several choices of sizes and attributes. A key of the mapping consists of
    the position of a node and the name of an attribute.
    """
    found = {}
    for position, node in enumerate(side[0].nodes):
        for number, (name, _) in enumerate(node.attributes):
            values = tuple(lowered.nodes[position].attributes[number][1] for lowered in side)
            if len(set(values)) > 1:
                found[position, name] = values
    return found


def _function(
    name: str,
    lowered: Lowered,
    varying: dict[tuple[int, str], tuple[AttributeValue, ...]],
    wildcards: dict[tuple[AttributeValue, ...], str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
) -> FunctionProto:
    nodes = []
    for position, text in enumerate(lowered.nodes):
        node = node_proto(text)
        for attribute in node.attribute:
            values = varying.get((position, attribute.name))
            if values is not None:
                attribute.CopyFrom(AttributeProto(name=attribute.name, type=attribute.type, ref_attr_name=wildcards[values]))
        nodes.append(node)
    return onnx.helper.make_function(
        DOMAIN, name, list(inputs), list(outputs), nodes, [onnx.helper.make_opsetid("", opset)], sorted(wildcards.values())
    )


def function_library(pairs: Sequence[FunctionPair], opset: int) -> ModelProto:
    """Return a model that contains the functions of all pairs and no nodes. Each pattern is followed by its replacement."""
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid(DOMAIN, 1)]
    functions = [function for found in pairs for function in (found.pattern, found.replacement)]
    version = onnx.helper.find_min_ir_version_for(imports[:1])
    return onnx.helper.make_model(
        onnx.helper.make_graph([], "rules", [], []),
        functions=functions,
        opset_imports=imports,
        ir_version=max(version, FUNCTIONS_IR),
        producer_name="superopt",
    )


# ---------------------------------------------------------------- matches at shapes at which the rule is not stated


def lowered_sides_agree(
    sides: tuple[Lowered, Lowered], drawn: Sequence[Mapping[str, tuple[int, ...]]], opset: int, seed: int
) -> bool:
    """Return whether both sides of an exported rule, lowered to ONNX nodes, give the same results on random inputs.

    Inputs on which the left side fails are ignored. The right side must run on all remaining inputs, and at least
    `MODEL.min_pair_trials` inputs must remain. `drawn` contains shapes of the inputs at which the rule is well typed. The ranks
    and extents of some inputs are changed at random, because a pattern also matches operands of different ranks and operands
    that are broadcast.
    """
    rng = np.random.default_rng(seed)
    names = list(drawn[0])
    sessions = [Session(_model(side, names, opset), Device("cpu"), optimize=False) for side in sides]
    ran = 0
    for trial in range(MODEL.pair_trial_count):
        shapes = drawn[trial % len(drawn)]
        feeds = {n: rng.integers(-3, 4, _changed(shapes[n], rng)).astype(np.float32) for n in names}
        try:
            before = sessions[0].run(feeds)
        except InvalidModelError:
            continue
        ran += 1
        try:
            after = sessions[1].run(feeds)
        except InvalidModelError:
            return False
        if not all(
            a.shape == b.shape and np.allclose(a, b, MODEL.pair_tolerance_share, MODEL.pair_tolerance_share)
            for a, b in zip(before, after, strict=True)
        ):
            return False
    return ran >= MODEL.min_pair_trials


def _changed(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """Return a randomly changed shape. Changes set extents to 1, remove or add axes, or reorder axes."""
    changed = list(shape)
    for _ in range(int(rng.integers(3))):
        kind = int(rng.integers(4))
        if kind == 0 and changed:
            changed[int(rng.integers(len(changed)))] = 1
        elif kind == 1 and len(changed) > 1:
            changed.pop(0)
        elif kind == 2 and len(changed) < MODEL.max_pair_rank:
            changed.insert(0, int(rng.integers(1, 4)))
        elif kind == 3:
            changed = [changed[i] for i in rng.permutation(len(changed))]
    return tuple(changed)


def _model(side: Lowered, inputs: Sequence[str], opset: int) -> ModelProto:
    """Return one side of a rule as a model whose inputs may have any shape. The outputs are the values with names such as
    `out0`.
    """
    kind = onnx.TensorProto.FLOAT
    outputs = sorted({n for node in side.nodes for n in node.outputs if n.startswith("out")})
    graph = onnx.helper.make_graph(
        [node_proto(n) for n in side.nodes],
        "side",
        [onnx.helper.make_tensor_value_info(name, kind, None) for name in inputs],
        [onnx.helper.make_tensor_value_info(name, kind, None) for name in outputs],
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=onnx.helper.find_min_ir_version_for(imports))
