"""Sizes of dynamic dimensions at which the numerical check runs both models.

A rewrite may be right at some sizes and wrong at other sizes. So the check uses the sizes 0 to 4, sizes with different
residues, and unequal sizes for dimensions with different names. The check also uses sizes just below and above every constant
that the model compares with or slices at.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.policy import CHECK
from superopt.protobuf.graphs import all_graphs
from superopt.protobuf.names import dimension_key

_DECIDES = frozenset(
    {"Slice", "Min", "Max", "Mod", "Div", "Clip", "Where", "TopK", "Split", "Range", "Equal", "Less", "Greater"}
    | {"LessOrEqual", "GreaterOrEqual"}
)
"""Operators whose constants may be thresholds. Models may behave differently for sizes below and above a threshold."""
_SHIFTS_SIZES = frozenset({"Add", "Sub", "Mul", "Pad", "Gather", "Expand", "Tile", "Resize", "Reshape", "ConstantOfShape"})
_FACTORS = frozenset({"Mul", "Div", "Mod"})
_ATTRIBUTES = ("starts", "ends", "strides", "kernel_shape", "split", "pads", "blocksize")


def dynamic_dimension_keys(model: ModelProto) -> list[str]:
    """Return the keys of the dynamic dimensions of a model's inputs, without repetitions."""
    weights = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, None] = {}
    for port in model.graph.input:
        if port.name not in weights:
            for axis, extent in enumerate(port.type.tensor_type.shape.dim):
                if not extent.HasField("dim_value") or extent.dim_value < 0:
                    found[dimension_key(port.name, axis, extent.dim_param)] = None
    return list(found)


def sizes_to_check(model: ModelProto, start: Mapping[str, int], fixed: Container[str] = ()) -> Iterator[dict[str, int]]:
    """Yield mappings from some or all dynamic dimensions to sizes, the most significant mapping first.

    A dimension that a mapping leaves out may have any size at which the model runs.

    Args:
        model: the model. Weights may be in other files.
        start: sizes of all dynamic dimensions at which the model runs.
        fixed: dimensions that keep their size from `start`. The mappings leave them out.
    """
    names = [name for name in dynamic_dimension_keys(model) if name not in fixed]
    if not names:
        return
    constants = telling_constants(model)
    kinds: list[Iterator[dict[str, int]]] = [
        _unequal(names),
        _around(names, constants),
        _empty(names),
        ({name: size} for size in CHECK.small_sizes for name in names),
        (dict.fromkeys(names, size) for size in (*CHECK.mixed_sizes[:6], *CHECK.small_sizes)),
        (
            {name: size}
            for size in (*CHECK.mixed_sizes[:4], CHECK.large_size // CHECK.ladder_factor, CHECK.large_size)
            for name in names
        ),
        _growing_together(names, start),
    ]
    seen: set[tuple[tuple[str, int], ...]] = set()
    for sizes in _by_turns(kinds):
        if (key := tuple(sizes.items())) not in seen:
            seen.add(key)
            yield sizes


def _growing_together(names: Sequence[str], start: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield copies of `start` in which two dimensions are increased by the same number.

    If a dimension of the model is the sum of two others, the model may run only at such sizes.
    """
    for shift in CHECK.paired_size_increases:
        for pair in itertools.combinations(names, 2):
            yield {name: start[name] + (shift if name in pair else 0) for name in names}


def _unequal(names: Sequence[str]) -> Iterator[dict[str, int]]:
    for turn in range(len(CHECK.mixed_sizes)):
        yield {name: CHECK.mixed_sizes[(turn + 3 * place) % len(CHECK.mixed_sizes)] for place, name in enumerate(names)}


def _empty(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield sizes in which one or two dimensions are 0, and the other dimensions have unequal sizes.

    The size 0 must be tested, because proofs of rules hold only for sizes of at least 1.
    """
    for sizes, count in itertools.product(itertools.islice(_unequal(names), 3), (1, 2)):
        for chosen in itertools.combinations(names, count) if count < len(names) else ():
            yield sizes | dict.fromkeys(chosen, 0)


def _around(names: Sequence[str], constants: Sequence[int]) -> Iterator[dict[str, int]]:
    """Yield sizes near each of the model's constants: the constant, the constant plus 1, and the constant minus 1.

    Either one dimension or all dimensions have this size. Before the sizes near a large constant, an eighth of the constant is
    yielded as the size of one dimension.
    """
    for constant in constants:
        if constant > CHECK.min_laddered_size:
            yield from ({name: constant // CHECK.ladder_factor} for name in names)
        for size in (constant, constant + 1, constant - 1):
            yield from ({name: size} for name in names)
            if len(names) > 1:
                yield dict.fromkeys(names, size)


def _by_turns(kinds: Sequence[Iterator[dict[str, int]]]) -> Iterator[dict[str, int]]:
    for row in itertools.zip_longest(*kinds):
        yield from (sizes for sizes in row if sizes is not None)


def telling_constants(model: ModelProto) -> list[int]:
    """Return positive integers with which the model compares, slices or computes, the most significant first.

    If the model also multiplies or divides by constants, the products of these factors and of thresholds (such as constants in
    comparisons) are included. For example, `N // 2 > 100` becomes true near N = 200, so 200 is included.
    """
    ranks: dict[int, int] = {}
    factors: dict[int, None] = {}
    found_in = list(all_graphs(model))
    values = dict(itertools.chain.from_iterable(map(_integers, found_in)))
    for graph in found_in:
        for node in graph.node:
            for value in itertools.chain(*(values.get(name, ()) for name in node.input), _attributes(node)):
                size = abs(value)
                if 1 < size <= CHECK.max_size:
                    rank = 0 if node.op_type in _DECIDES else 1 if node.op_type in _SHIFTS_SIZES else 2
                    ranks[size] = min(rank, ranks.get(size, rank))
                    if node.op_type in _FACTORS:
                        factors[size] = None
    found = sorted(ranks, key=lambda size: (ranks[size], size <= max(CHECK.small_sizes), size))
    scaled = [size * factor for size in found if not ranks[size] for factor in factors if size != factor]
    return list(dict.fromkeys((*found[: CHECK.max_constants], *(size for size in scaled if size <= CHECK.max_size))))[
        : 2 * CHECK.max_constants
    ]


def _integers(graph: GraphProto) -> Iterator[tuple[str, list[int]]]:
    """Yield the name of each small constant of a graph, with the elements of the constant that are whole numbers."""
    for tensor in graph.initializer:
        yield tensor.name, _whole(tensor)
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                value = helper.get_attribute_value(attribute)
                if attribute.name == "value":
                    yield node.output[0], _whole(value)
                elif attribute.name.startswith(("value_int", "value_float")):
                    yield node.output[0], _whole_numbers(value if isinstance(value, list) else [value])


def _whole(tensor: TensorProto) -> list[int]:
    """Return the elements of a tensor that are whole numbers.

    The result is empty if the tensor has many elements or is stored outside the ModelProto.
    """
    kinds = (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE)
    count = 1
    for extent in tensor.dims:
        count *= extent
    if tensor.data_type not in kinds or count > CHECK.max_constant_elements or tensor.data_location == TensorProto.EXTERNAL:
        return []
    return _whole_numbers(numpy_helper.to_array(tensor).ravel().tolist())


def _whole_numbers(values: Sequence[float]) -> list[int]:
    return [int(value) for value in values if abs(value) <= CHECK.max_size and value == int(value)]


def _attributes(node: NodeProto) -> Iterator[int]:
    for attribute in node.attribute:
        if attribute.name in _ATTRIBUTES:
            value = helper.get_attribute_value(attribute)
            yield from value if isinstance(value, list) else [value]
