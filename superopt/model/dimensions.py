"""Dynamic dimensions of a model's inputs: symbolic extents for the algebra, and sizes for tests and measurements."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from superopt.algebra.dim_binding import DimBinding, Numbers, dimension
from superopt.algebra.terms import (
    Size,
)
from superopt.errors import DimensionError
from superopt.model.load import Model
from superopt.policy import MODEL
from superopt.protobuf.names import dimension_key, is_unnamed


def dimension_name(value: ir.Value, axis: int, extent: object) -> str:
    """Return the name that the model gives to an input's dynamic dimension, or `input[axis]` if the dimension has no name.

    A placeholder that exporters write for unnamed dimensions does not count as a name.
    """
    return dimension_key(value.name or "", axis, declared_name(extent))


def declared_name(extent: object) -> str:
    """Return the name that the model gives to a dynamic dimension, or an empty string if the dimension has no name."""
    return (extent.value if isinstance(extent, ir.SymbolicDim) else None) or ""


def remove_placeholder_names(values: Iterable[ir.Value]) -> None:
    """Remove the placeholder names that exporters write for unnamed dimensions.

    For ONNX Runtime, equal names mean equal sizes, so equal placeholders could make ONNX Runtime reuse memory wrongly.
    """
    for value in values:
        if value.shape is not None and any(is_unnamed(declared_name(d)) for d in value.shape if not isinstance(d, int)):
            named = [d if isinstance(d, int) or not is_unnamed(declared_name(d)) else None for d in value.shape]
            value.shape = ir.Shape(named)


def _dynamic(model: Model) -> Iterator[tuple[ir.Value, int, object]]:
    """Yield each dynamic dimension of an input: the input, the axis, and the model's entry for the dimension."""
    for value in model.graph.inputs:
        if not value.is_initializer():
            for axis, extent in enumerate(value.shape or ()):
                if not isinstance(extent, int) or extent < 0:
                    yield value, axis, extent


def dynamic_dimension_names(model: Model) -> dict[str, bool]:
    """Return a mapping from the name of each dynamic dimension to a flag: whether the dimension is the height or width of an
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
    """Return a mapping from each dynamic dimension of an input, given by input name and axis, to the symbolic extent.

    Dimensions with the same name have the same extent, unless the name is a placeholder that exporters write for unnamed
    dimensions.
    """
    return {(v.name or "", axis): dimension(dimension_name(v, axis, extent)) for v, axis, extent in _dynamic(model)}


def trust_assumptions(model: Model) -> list[str]:
    """Return a sentence for each name that several dimensions share. The sentence says that the dimensions are assumed to be
    equal.

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
    """Return a few choices of sizes for the dynamic dimensions. Statements about all sizes are tested at these sizes.

    Each choice gives different sizes to different dimensions.
    """
    starts = [MODEL.first_image_size if image else MODEL.first_size for image in dynamic_dimension_names(model).values()]
    names = [*dynamic_dimension_names(model)]
    return tuple(
        DimBinding({name: start + turn + 5 * place for place, (name, start) in enumerate(zip(names, starts, strict=True))})
        for turn in range(MODEL.tested_sizing_count)
    )


def dimension_spellings(model: Model) -> dict[str, list[str]]:
    """Return the names of dynamic dimensions that each spelling of a dimension means.

    A spelling is the name of a dimension, `input[axis]`, or the older `input.axis`. A placeholder name, such as "?", means all
    dimensions with this placeholder.
    """
    names = dynamic_dimension_names(model)
    found: dict[str, list[str]] = {name: [name] for name in names}
    for value, axis, extent in _dynamic(model):
        name = dimension_name(value, axis, extent)
        for spelling in (declared_name(extent), f"{value.name}.{axis}", f"{value.name}[{axis}]"):
            if spelling and spelling not in names:
                found.setdefault(spelling, []).append(name)
    return found


def named_sizes(model: Model, given: Sequence[Numbers]) -> list[dict[str, int]]:
    """Return the mappings from dimensions to sizes, with the dimensions' own names in place of other spellings.

    Raises:
        DimensionError: a name does not belong to a dynamic dimension.
    """
    spellings = dimension_spellings(model)
    if unknown := sorted({name for numbers in given for name in numbers} - spellings.keys()):
        found = dynamic_dimension_names(model)
        open_ones = f"its dynamic dimensions are {', '.join(found)}" if found else "all of its dimensions are fixed"
        raise DimensionError(f"the model has no dynamic dimension {unknown[0]!r}: {open_ones}")
    return [{own: n for name, n in numbers.items() for own in spellings[name]} for numbers in given]


def representative_sizings(model: Model, given: Sequence[Numbers]) -> list[DimBinding]:
    """Return the choices of sizes for the dynamic dimensions at which the model is measured.

    Each mapping from names to sizes in `given` makes one choice. Default sizes are added for dimensions that the mapping does
    not contain. If `given` is empty, one choice with only default sizes is returned. Names may be any `dimension_spellings`.

    Raises:
        DimensionError: a name does not belong to a dynamic dimension.
    """
    firsts = {dimension_name(value, axis, extent) for value, axis, extent in _dynamic(model) if axis == 0}
    usual = {
        n: MODEL.default_image_size if image else MODEL.default_batch_size if n in firsts else MODEL.default_length_size
        for n, image in dynamic_dimension_names(model).items()
    }
    return [DimBinding({**usual, **numbers}) for numbers in named_sizes(model, given or [{}])]


def size_combinations(choices: Mapping[str, int | Sequence[int]]) -> list[dict[str, int]]:
    """Return every way to choose one size for each name. `choices` maps a name to one size or to several sizes."""
    listed = [(sizes,) if isinstance(sizes, int) else sizes for sizes in choices.values()]
    return [dict(zip(choices, row, strict=True)) for row in itertools.product(*listed)]
