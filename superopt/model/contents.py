"""Compute keys and digests of a model's nodes and initializers, so that two models can be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TypeAlias

import onnx_ir as ir

from superopt.model.load import Model
from superopt.protobuf.tensors import tensor_content

Key: TypeAlias = "tuple[str, str]"
"""The path to a graph, and the name of a value in the graph. The path of the top graph is empty."""


def comparable_nodes(model: Model) -> Iterator[tuple[Key, ir.Node, str]]:
    """Yield every node with a key and a digest. The nodes of control flow bodies and of local functions are included.

    The key contains the name of the node's first output. The digest covers the operator, the attributes, and the names of
    inputs and outputs. The digest does not cover bodies of control flow, because the nodes of bodies are yielded too. The
    digest does not cover the node's name, its doc string or the version of its operator either.
    """
    for path, graph in _graphs(model):
        for node in graph:
            yield (path, _title(node)), node, _node_digest(node)


def comparable_initializers(model: Model) -> Iterator[tuple[Key, ir.TensorProtocol, str]]:
    """Yield every initializer with a key and a digest of its type, shape and elements."""
    for path, graph in _graphs(model):
        for name, value in graph.initializers.items() if isinstance(graph, ir.Graph) else ():
            if value.const_value is not None:
                yield (path, name), value.const_value, tensor_digest(value.const_value)


def _graphs(model: Model) -> Iterator[tuple[str, ir.Graph | ir.Function]]:
    yield from _nested(model.graph, "")
    for function in model.functions.values():
        yield from _nested(function, f"{function.domain}.{function.name}")


def _nested(graph: ir.Graph | ir.Function, path: str) -> Iterator[tuple[str, ir.Graph | ir.Function]]:
    yield path, graph
    for node in graph:
        for name, body in _bodies(node):
            yield from _nested(body, f"{path}/{_title(node)}.{name}".removeprefix("/"))


def _bodies(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.name, attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
            yield from ((f"{attribute.name}{place}", body) for place, body in enumerate(attribute.as_graphs()))


def _title(node: ir.Node) -> str:
    return next((value.name for value in node.outputs if value.name), "")


def _node_digest(node: ir.Node) -> str:
    inputs = ["" if value is None else value.name or "" for value in node.inputs]
    while inputs and not inputs[-1]:
        inputs.pop()
    attributes = sorted((attribute.name, attribute_text(attribute)) for attribute in node.attributes.values())
    parts = node.op_identifier()[:2], inputs, [value.name or "" for value in node.outputs], attributes
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def attribute_text(attribute: ir.Attr) -> str:
    """Return a text that is equal for equal attributes. The text of every attribute that contains graphs is `graph`."""
    if attribute.is_ref():
        return f"reference {attribute.ref_attr_name}"
    match attribute.type:
        case ir.AttributeType.GRAPH | ir.AttributeType.GRAPHS:
            return "graph"
        case ir.AttributeType.TENSOR:
            return tensor_digest(attribute.as_tensor())
        case ir.AttributeType.TENSORS:
            return repr([tensor_digest(tensor) for tensor in attribute.as_tensors()])
        case _:
            return repr(attribute.value)


def tensor_digest(tensor: ir.TensorProtocol) -> str:
    """Return a digest of the tensor's type, shape and elements."""
    text = f"{tensor.dtype.name}{[*tensor.shape.numpy()]}"
    return hashlib.sha256(text.encode() + tensor_content(tensor)).hexdigest()
