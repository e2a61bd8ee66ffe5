"""Compare the nodes and the weights of two models without running the models."""

from __future__ import annotations

from collections import Counter

from superopt.model.contents import comparable_initializers, comparable_nodes
from superopt.model.coverage import operator_title
from superopt.model.load import Model, Source, load, opset_of, weight_bytes
from superopt.report.difference import ModelDifference, NodeSummary, WeightSummary


def diff_models(first: Source, second: Source) -> ModelDifference:
    """Return a report of the nodes and weights that both models have, and of the nodes and weights that only one model has.

    Nodes are paired by the names of their first outputs. Initializers are paired by their names. superopt does not rename the
    nodes and initializers that stay in a model.

    Raises:
        ModelNotFoundError, InvalidModelError: A model cannot be loaded.
    """
    loaded = load(first), load(second)
    (old, old_digests), (new, new_digests) = (_nodes(one.model) for one in loaded)
    (old_weights, old_elements), (new_weights, new_elements) = (_weights(one.model) for one in loaded)
    both = [key for key in old if key in new]
    weights_both = [key for key in new_weights if key in old_weights]
    counts = [Counter(node.operator for node in nodes.values()) for nodes in (old, new)]
    return ModelDifference(
        first=loaded[0].label,
        second=loaded[1].label,
        opsets=(opset_of(loaded[0].model), opset_of(loaded[1].model)),
        kept=sum(old_digests[key] == new_digests[key] for key in both),
        changed=tuple((old[key], new[key]) for key in both if old_digests[key] != new_digests[key]),
        removed=tuple(node for key, node in old.items() if key not in new),
        added=tuple(node for key, node in new.items() if key not in old),
        operators={name: (counts[0][name], counts[1][name]) for name in sorted({*counts[0], *counts[1]})},
        weights_kept=sum(old_elements[key] == new_elements[key] for key in weights_both),
        weights_changed=tuple(new_weights[key] for key in weights_both if old_elements[key] != new_elements[key]),
        weights_removed=tuple(weight for key, weight in old_weights.items() if key not in new_weights),
        weights_added=tuple(weight for key, weight in new_weights.items() if key not in old_weights),
        weight_bytes=(weight_bytes(loaded[0].model), weight_bytes(loaded[1].model)),
    )


def _nodes(model: Model) -> tuple[dict[tuple[str, str], NodeSummary], dict[tuple[str, str], str]]:
    """Return two mappings with equal keys.

    The first maps each key to a node, and the second maps the key to a digest of this node. A key is a pair (path of the node's
    graph, name of the node's first output).
    """
    nodes: dict[tuple[str, str], NodeSummary] = {}
    digests: dict[tuple[str, str], str] = {}
    for key, node, digest in comparable_nodes(model):
        inputs = tuple("" if value is None else value.name or "" for value in node.inputs)
        outputs = tuple(value.name or "" for value in node.outputs)
        nodes[key], digests[key] = NodeSummary(operator_title(node), inputs, outputs, key[0]), digest
    return nodes, digests


def _weights(model: Model) -> tuple[dict[tuple[str, str], WeightSummary], dict[tuple[str, str], str]]:
    """Return two mappings with equal keys.

    The first maps each key to an initializer, and the second maps the key to a digest of the initializer's elements. A key is a
    pair (path of the initializer's graph, name of the initializer).
    """
    weights: dict[tuple[str, str], WeightSummary] = {}
    digests: dict[tuple[str, str], str] = {}
    for key, tensor, digest in comparable_initializers(model):
        shape = tuple(map(int, tensor.shape.numpy()))
        weights[key], digests[key] = WeightSummary(key[1], tensor.dtype.name.lower(), shape, tensor.nbytes), digest
    return weights, digests
