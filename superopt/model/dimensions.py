"""Dynamic dimensions of a model's inputs: symbolic extents for the algebra, and sizes for tests and measurements."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from superopt.algebra.dim_binding import DimBinding, Numbers, dimension
from superopt.algebra.terms import (
    Size,
)
from superopt.errors import DimensionError
from superopt.model.lift import FLOATS
from superopt.model.load import Model
from superopt.policy import MODEL
from superopt.protobuf.names import dimension_key, is_unnamed

CACHE_INPUTS: Mapping[tuple[str, str], tuple[int, int]] = {
    ("", "Attention"): (4, 5),
    ("com.microsoft", "GroupQueryAttention"): (3, 4),
    ("com.microsoft", "MultiHeadAttention"): (6, 7),
}
"""The operators that read a key cache and a value cache. The domain and name of each operator are mapped to the positions of
these two inputs.

A cache has the shape [batch, heads, length, size of a head]. The second and third results of an operator are the caches,
extended by the new keys and values.
"""


def dimension_name(value: ir.Value, axis: int, extent: object) -> str:
    """Return the name of a dynamic dimension of a model's input, or `input[axis]` if the dimension has no name.

    A placeholder that exporters write for unnamed dimensions does not count as a name.
    """
    return dimension_key(value.name or "", axis, _declared_name(extent))


def _declared_name(extent: object) -> str:
    """Return the name that the model gives to a dynamic dimension, or an empty string if the dimension has no name."""
    return (extent.value if isinstance(extent, ir.SymbolicDim) else None) or ""


def remove_placeholder_names(values: Iterable[ir.Value]) -> None:
    """Remove the placeholder names that exporters write for unnamed dimensions.

    For ONNX Runtime, equal names mean equal sizes, so equal placeholders could make ONNX Runtime reuse memory wrongly.
    """
    for value in values:
        if value.shape is not None and any(is_unnamed(_declared_name(d)) for d in value.shape if not isinstance(d, int)):
            named = [d if isinstance(d, int) or not is_unnamed(_declared_name(d)) else None for d in value.shape]
            value.shape = ir.Shape(named)


def _dynamic(model: Model) -> Iterator[tuple[ir.Value, int, object]]:
    """Yield a triple for each dynamic dimension of an input: the input, the axis, and the dimension in the input's shape."""
    for value in model.graph.inputs:
        if not value.is_initializer():
            for axis, extent in enumerate(value.shape or ()):
                if not isinstance(extent, int) or extent < 0:
                    yield value, axis, extent


def dynamic_dimension_names(model: Model) -> dict[str, bool]:
    """Return a mapping from the name of each dynamic dimension to a boolean: True if the dimension is the height or width of an
    image.

    Only dimensions of inputs are included. A dimension counts as the height or width of an image if an input of rank 4 has the
    dimension at axis 2 or 3.
    """
    found: dict[str, bool] = {}
    for value, axis, extent in _dynamic(model):
        name = dimension_name(value, axis, extent)
        found[name] = found.get(name, False) or (len(value.shape or ()) == 4 and axis >= 2)
    return found


def dynamic_dimensions(model: Model) -> dict[tuple[str, int], Size]:
    """Return the symbolic extent of each dynamic dimension, by input name and axis.

    Dimensions with the same name have the same extent, unless the name is a placeholder that exporters write for unnamed
    dimensions.
    """
    return {(v.name or "", axis): dimension(dimension_name(v, axis, extent)) for v, axis, extent in _dynamic(model)}


def dimension_assumptions(model: Model) -> list[str]:
    """Return a sentence for each name that several dynamic dimensions share. Each sentence says that these dimensions are
    assumed to be equal.

    The ONNX standard says that dimensions of the same name are equal.
    """
    places: dict[str, list[str]] = {}
    for value, axis, extent in _dynamic(model):
        places.setdefault(dimension_name(value, axis, extent), []).append(f"{value.name}[{axis}]")
    return [
        f"Dimensions of one name are equal, as the ONNX standard says: {name} is {' = '.join(found)}."
        for name, found in places.items()
        if len(found) > 1
    ]


def sample_sizings(model: Model) -> tuple[DimBinding, ...]:
    """Choose sizes for the model's dynamic dimensions, in order to test statements that must hold at all sizes.

    Return a few choices. Each choice gives different sizes to different dimensions.
    """
    starts = [MODEL.first_image_size if image else MODEL.first_size for image in dynamic_dimension_names(model).values()]
    names = [*dynamic_dimension_names(model)]
    return tuple(
        DimBinding({name: start + turn + 5 * place for place, (name, start) in enumerate(zip(names, starts, strict=True))})
        for turn in range(MODEL.tested_sizing_count)
    )


def dimension_spellings(model: Model) -> dict[str, list[str]]:
    """Map each spelling of a dimension to the names of the dynamic dimensions with this spelling, and return the mapping.

    A spelling is the name of a dimension, `input[axis]`, or the older form `input.axis`. A placeholder name, such as "?",
    refers to all dimensions with this placeholder.
    """
    names = dynamic_dimension_names(model)
    found: dict[str, list[str]] = {name: [name] for name in names}
    for value, axis, extent in _dynamic(model):
        name = dimension_name(value, axis, extent)
        for spelling in (_declared_name(extent), f"{value.name}.{axis}", f"{value.name}[{axis}]"):
            if spelling and spelling not in names:
                found.setdefault(spelling, []).append(name)
    return found


def named_sizes(model: Model, given: Sequence[Numbers]) -> list[dict[str, int]]:
    """Replace each spelling of a dimension in the mappings `given` by the dimension's own name, and return the new mappings.

    Raises:
        DimensionError: a name does not belong to a dynamic dimension, or two spellings of one dimension have different sizes.
    """
    spellings = dimension_spellings(model)
    if unknown := sorted({name for numbers in given for name in numbers} - spellings.keys()):
        found = dynamic_dimension_names(model)
        open_ones = f"its dynamic dimensions are {', '.join(found)}" if found else "all of its dimensions are fixed"
        raise DimensionError(f"the model has no dynamic dimension {unknown[0]!r}: {open_ones}")
    named: list[dict[str, int]] = []
    for numbers in given:
        sizes: dict[str, int] = {}
        for name, size in numbers.items():
            for own in spellings[name]:
                if sizes.setdefault(own, size) != size:
                    raise DimensionError(f"dimension {own!r} is given two sizes, {sizes[own]} and {size}")
        named.append(sizes)
    return named


def representative_sizings(model: Model, given: Sequence[Numbers]) -> list[DimBinding]:
    """Return the choices of sizes at which the model is measured. A choice contains one size for each dynamic dimension.

    Each mapping from names to sizes in `given` makes one choice. Default sizes are added for dimensions that the mapping does
    not contain. If `given` is empty, one choice with only default sizes is returned. A dimension may be given by any of its
    `dimension_spellings`. If the model reads a key-value cache, the default number of tokens is 1.

    Raises:
        DimensionError: a name does not belong to a dynamic dimension.
    """
    firsts = {dimension_name(value, axis, extent) for value, axis, extent in _dynamic(model) if axis == 0}
    lengths, tokens, sums = decoded_dimensions(model)
    usual = {
        n: MODEL.default_batch_size
        if n in firsts | tokens
        else MODEL.default_image_size
        if image and n not in lengths
        else MODEL.default_length_size
        for n, image in dynamic_dimension_names(model).items()
    }
    chosen = [{**usual, **numbers} for numbers in named_sizes(model, given or [{}])]
    for numbers, asked in zip(chosen, named_sizes(model, given or [{}]), strict=True):
        for name in sums - asked.keys():
            numbers[name] = max((numbers[n] for n in lengths), default=0) + max((numbers[n] for n in tokens), default=0)
    return [DimBinding(numbers) for numbers in chosen]


def decoded_dimensions(model: Model) -> tuple[set[str], set[str], set[str]]:
    """Return three sets of names of dynamic dimensions, for a model that decodes tokens with key-value caches.

    Dimensions in the first set are lengths of caches that the model reads. Dimensions in the second set are numbers of tokens,
    which are dimensions of integer inputs. Dimensions in the third set are lengths of caches that the model returns. Each
    length in the third set is the sum of a length that the model reads and a number of tokens. The sets are empty if the model
    reads no cache or no tokens.
    """
    names = {(value, axis): dimension_name(value, axis, extent) for value, axis, extent in _dynamic(model)}
    caches = [*_growing_caches(model)]
    lengths = {names[cache, axis] for cache, axis, _ in caches if (cache, axis) in names}
    longer = {_declared_name(grown.shape[axis]) for _, axis, grown in caches if grown is not None and grown.shape is not None}
    rest = {
        name
        for (value, axis), name in names.items()
        if axis > 0 and value.dtype in (ir.DataType.INT64, ir.DataType.INT32) and name not in lengths
    }
    return (lengths, rest - longer, rest & longer) if lengths and rest - longer else (set(), set(), set())


def _growing_caches(model: Model) -> Iterator[tuple[ir.Value, int, ir.Value | None]]:
    """Yield a triple for each cache that the model reads and extends: the input, the axis of the length, and the extended
    cache.

    A floating-point input is a cache in two cases: an attention operator reads the input as a cache, or the model concatenates
    the input with a computed value to form an output. The third entry is None if an attention operator does not return the
    extended cache.
    """
    for value in model.graph.inputs:
        for node, position in value.uses() if value.dtype in FLOATS and value.shape is not None else ():
            if position in (places := CACHE_INPUTS.get((node.domain, node.op_type), ())):
                results = node.outputs[1 + places.index(position) :]
                yield value, 2, results[0] if results else None
            elif node.op_type == "Concat" and position == 0 and node.outputs[0].is_graph_output() and "axis" in node.attributes:
                axis = node.attributes["axis"].as_int() % len(value.shape or (0,))
                if axis > 0 and all(v is not None and v.producer() is not None for v in node.inputs[1:]):
                    yield value, axis, node.outputs[0]


def size_combinations(choices: Mapping[str, int | Sequence[int]]) -> list[dict[str, int]]:
    """Return a mapping from names to sizes for every way to choose one size for each name. `choices` maps a name to one size or
    to several sizes.

    Raises:
        ValueError: a size is not a whole number of at least 0.
    """
    listed = [_sizes(name, given) for name, given in choices.items()]
    return [dict(zip(choices, row, strict=True)) for row in itertools.product(*listed)]


def _sizes(name: str, given: object) -> list[int]:
    sizes = [given] if isinstance(given, int | np.integer) else given
    if isinstance(sizes, Iterable) and not isinstance(sizes, str):
        listed = [*sizes]
        numbers = [int(n) for n in listed if isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 0]
        if len(numbers) == len(listed):
            return numbers
    raise ValueError(f"a size of dimension {name!r} must be a whole number of at least 0, not {given!r}")
