"""Find sizes and random inputs at which a model runs.

A model may use integer inputs as sizes, counts or positions. Such a model fails on random integers outside the valid range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from superopt.budget import active_time
from superopt.errors import InvalidModelError
from superopt.policy import CHECK
from superopt.runtime.bounds import IndexRange
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Array, Port, is_floating


class RunnableModel(Protocol):
    """A loaded model that can be run."""

    inputs: tuple[Port, ...]

    def run(self, feeds: Mapping[str, Array], /) -> object:
        """Run the model once.

        Raises:
            InvalidModelError: The run fails.
        """


@dataclass(frozen=True)
class Feasible:
    """Sizes of dynamic dimensions at which a model runs, and a source of inputs on which the model runs.

    If every attempt fails, `error` is the error of the first attempt. Otherwise, `seconds` is the time to make the inputs and
    run the model once at each choice of sizes.
    """

    sizes: Sequence[Mapping[str, int]]
    source: InputSource
    error: str = ""
    seconds: float = 0.0


def find_feasible(
    session: RunnableModel, sizes: Sequence[Mapping[str, int]], source: InputSource, *, chosen: bool = True
) -> Feasible:
    """Find bounds for random inputs such that the model runs at all of the `sizes`.

    An example is used if its arrays have these sizes. If the model runs with none of the tried bounds, and the user did not
    choose the sizes, other sizes are tried.

    Args:
        session: The model.
        sizes: Sizes of the model's dynamic dimensions.
        source: The source of the inputs, with the bounds to try first.
        chosen: Whether the user chose the sizes, so that no other sizes may be tried.

    Raises:
        InvalidModelError: No values can be made for the type of an input.
    """
    error, deadline = "", active_time() + CHECK.feasible_seconds
    for where, ways in _attempts(session.inputs, sizes, source.bounds, chosen=chosen):
        for way in (replace(source, bounds=bounds) for bounds in ways):
            if error and active_time() > deadline:
                return Feasible(sizes, source, error)
            began = active_time()
            try:
                for numbers in where:
                    if sum(math.prod(port.concrete(numbers)) for port in session.inputs) > CHECK.max_input_elements:
                        raise InvalidModelError(
                            "the inputs of the model have too many elements to fill them with random values"
                        )
                    session.run(way.values(session.inputs, sizes=numbers))
            except InvalidModelError as failed:
                error = error or str(failed)
            else:
                return Feasible(where, way, seconds=active_time() - began)
    return Feasible(sizes, source, error)


def feasible_source(session: RunnableModel, sizes: Mapping[str, int] | None, source: InputSource) -> InputSource:
    """Add bounds to a copy of the source so that the model runs at these sizes, and return the copy (see `find_feasible`).

    The bounds apply to integer inputs. If the model has no integer inputs, or if all attempts fail, the result is `source`.
    """
    if not any(port.dtype.kind in "iu" for port in session.inputs):
        return source
    return find_feasible(session, [sizes or {}], source).source


def _attempts(
    ports: Sequence[Port], sizes: Sequence[Mapping[str, int]], high: Mapping[str, int], *, chosen: bool
) -> Iterator[tuple[Sequence[Mapping[str, int]], list[Mapping[str, int]]]]:
    """Yield choices of sizes to try, each with a list of bounds to try. The given sizes come first.

    Other sizes are yielded only if the user did not choose the sizes (`chosen`).
    """
    ways = [*_bounds(ports, high)]
    yield sizes, ways
    names = [*sizes[0]] if sizes else []
    if chosen or not names:
        return
    for size in CHECK.feasible_sizes:
        yield [dict.fromkeys(names, size)], ways[:3]
        if len(names) > 1:
            yield [{name: 1 if place == 0 else size for place, name in enumerate(names)}], ways[:1]


def _bounds(ports: Sequence[Port], high: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """Yield bounds for random inputs to try, starting with the bounds in `high`.

    Small bounds for the integer inputs without a bound in `high` come next, followed by small bounds for all integer inputs.
    The last bounds set float inputs of rank 0 or 1, which may be scales, to the value 1.
    """
    integers = [port.name for port in ports if port.dtype.kind in "iu"]
    scales = [port.name for port in ports if is_floating(port.dtype) and len(port.shape) <= 1]
    free = [name for name in integers if name not in high]
    yield high
    if free:
        for low, end in ((0, 1), (1, 2), (1, 3), (2, 3), (4, 5), (8, 9), (-1, 0)):
            yield {**high, **{name: IndexRange(end, low) for name in free}}
    if integers and high:
        yield {name: IndexRange(1) for name in integers}
        yield {name: IndexRange(2, 1) for name in integers}
    if scales:
        ones = {name: IndexRange(1, 1) for name in scales}
        yield {**high, **ones}
        if free:
            yield {**high, **ones, **{name: IndexRange(2, 1) for name in free}}
