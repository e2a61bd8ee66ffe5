"""Recognition of operators that rearrange, repeat or pool the elements of one tensor.

Exporters write nearest upsampling as Unsqueeze, Expand and Reshape, and pooling as Reshape and ReduceMax. These functions
change the shape of the operand. `superopt.search.recognition` does not find functions that change the shape. This module
evaluates the function, and each operator with integer attributes, at the sizes of the model on a tensor of distinct numbers. If
the function only moves elements and the values are equal, the function equals the operator at these sizes. Functions with
dynamic dimensions are evaluated for two choices of sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from superopt.algebra.evaluate import Array, Floats, evaluate_terms
from superopt.algebra.operators import Operator, apply, registry, replace_subterms
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Shape,
    Size,
    Term,
    substitute,
    substitute_attribute,
    subterms,
    variable,
    variables,
)
from superopt.budget import expired
from superopt.errors import ShapeError
from superopt.model.facts import MOVING
from superopt.policy import SEARCH
from superopt.rules.fusion import RECOGNIZED
from superopt.rules.work import work
from superopt.search.apply import MOVES, State, run_time_terms
from superopt.search.gate import Gate

SELECTING = frozenset({"max_pool", "max_pool1d", "maximum", "minimum", "reduce_max", "reduce_min"})
AVERAGING = frozenset({"add", "avg_pool", "avg_pool1d", "reduce_mean", "reduce_sum", "scale"})
REARRANGING = MOVING | {"pad", "upsample"}
OPERATORS = REARRANGING | SELECTING | AVERAGING
"""The operators that a recognized function may contain."""
KINDS = frozenset({"axis", "extent", "extents"})
"""The kinds of attributes that a recognized operator may have."""
SIZES = (12, 24, 36, 48, 60), (24, 12, 60, 36, 48)
"""Two choices of sizes for the dynamic dimensions. Common factors of dimensions, such as block sizes, divide these sizes."""


def rearrangements(state: State, gate: Gate, deadline: float = math.inf) -> dict[str, dict[Term, Term]]:
    """Find terms of the state that equal a single operator. Return a mapping from the names of steps to replacements.

    The replacements are mappings from terms of the state to terms with a single operator.

    Args:
        state: The output terms.
        gate: The filter for the floating-point mode.
        deadline: The active time at which the search ends.
    """
    targets = tuple(name for name, spec in registry().items() if _is_target(spec))
    found: dict[str, dict[Term, Term]] = {}
    for operand, term in _functions(state):
        if expired(deadline):
            break
        x = variable("x", operand.shape)
        general = replace_subterms(term, {operand: x})
        equal = _equal(general, x, targets)
        if equal is not None and gate.permits_rearrangement(operand, _arithmetic(general, equal)):
            found.setdefault(equal.op + RECOGNIZED, {}).setdefault(term, replace_subterms(equal, {x: operand}))
    return found


def _arithmetic(*terms: Term) -> frozenset[str]:
    """Return the names of the operators in the terms, except operators that only move or repeat elements."""
    return frozenset(part.op for part in subterms(*terms) if not part.is_variable) - REARRANGING


def _is_target(spec: Operator) -> bool:
    kinds = {parameter.kind for parameter in spec.parameters}
    known = spec.name in OPERATORS - MOVES and spec.definition is not None and spec.lower is not None and spec.arity == 1
    return known and kinds <= KINDS and bool(kinds & {"extent", "extents"})


def _functions(state: State) -> Iterator[tuple[Term, Term]]:
    """Find the terms of the state that rearrange or pool a single tensor. Yield pairs (tensor, term), users before operands.

    A term that is a function of a tensor t may also be a function of a tensor that is computed from t. The longest function
    comes first.
    """
    sources: dict[Term, frozenset[Term]] = {}
    for term in subterms(*state, constants=False):
        moving = [arg for arg in term.args if not arg.constant]
        literal = not any(variables(arg) for arg in term.args if arg.constant)
        inside = not term.is_variable and term.op in OPERATORS and bool(moving) and literal
        shared = frozenset.intersection(*(sources[arg] | {arg} for arg in moving)) if inside else frozenset[Term]()
        sources[term] = shared if len(shared) <= SEARCH.max_recognized_terms else frozenset()
    order = {term: place for place, term in enumerate(sources)}
    for term in reversed(run_time_terms(state)):
        for operand in sorted(sources[term], key=order.__getitem__):
            if len(subterms(term, stop={operand})) > 1:
                yield operand, term


@functools.lru_cache(maxsize=1 << 12)
def _equal(term: Term, x: Term, targets: tuple[str, ...]) -> Term | None:
    """Apply the operators `targets` to `x`, and return the first result that equals the term.

    If no result equals the term, return None.
    """
    sizes = size_choices(term)
    if term.rank != x.rank or term.shape == x.shape:
        return None
    try:
        values = [_values(term, x, at) for at in sizes]
    except ShapeError:
        return None
    arithmetic = _arithmetic(term)
    alike = next(kind for kind in (REARRANGING, SELECTING, AVERAGING, OPERATORS) if arithmetic <= kind)
    for name in (name for name in targets if name in alike):
        for plain in _applications(name, x, term.shape, tuple(sizes[0].items())):
            try:
                if all(_are_equal(own, _values(plain, x, at)) for own, at in zip(values, sizes, strict=True)):
                    return plain
            except ShapeError:
                continue
    return None


def size_choices(term: Term) -> list[dict[Atom, int]]:
    """Return the choices of sizes for comparing the term with operators. A choice maps each dynamic dimension to a size.

    If the term has no dynamic dimension, the only choice is an empty dict.
    """
    extents = (extent for part in subterms(term) for extent in part.shape if isinstance(extent, Size))
    atoms = [*dict.fromkeys(atom for extent in extents for atom in sorted(extent.atoms(), key=str))]
    return [dict(zip(atoms, itertools.cycle(numbers), strict=False)) for numbers in (SIZES if atoms else SIZES[:1])]


def _values(term: Term, x: Term, sizes: Mapping[Atom, int]) -> Array:
    """Return the values of a term on a tensor of distinct integers and on two random tensors, stacked along the last axis.

    Raises:
        ShapeError: The term is not defined at these sizes, or its evaluation needs too much memory.
    """
    if any(_evaluated_elements(part, sizes) > SEARCH.max_rearranged_elements for part in subterms(term)):
        raise ShapeError("the tensors are too large for a comparison of rearrangements")
    shape = numbers_of(x.shape, sizes)
    return evaluate_terms((term,), {x.name: _samples(shape)}, sizes.get, Floats(tail=1))[0]


def _evaluated_elements(term: Term, sizes: Mapping[Atom, int]) -> int:
    """Return the number of elements that the evaluation of the term's root operator keeps in memory.

    A pooling operator is evaluated for all elements of all windows at once.

    Raises:
        ShapeError: The term is not defined at these sizes.
    """
    elements = math.prod(numbers_of(term.shape, sizes))
    if term.is_variable:
        return elements
    operands = [variable(f"x{place}", numbers_of(arg.shape, sizes)) for place, arg in enumerate(term.args)]
    attributes = {name: substitute_attribute(value, sizes.get) for name, value in term.attributes}
    return max(elements, work(apply(term.op, *operands, **attributes)).flops)


@functools.lru_cache(maxsize=len(SIZES))
def _samples(shape: tuple[int, ...]) -> Array:
    count, rng = math.prod(shape), np.random.default_rng(0)
    drawn = np.arange(1.0, count + 1), rng.standard_normal(count), rng.standard_normal(count)
    return np.stack(drawn, axis=-1).reshape(*shape, len(drawn))


def _are_equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-9, atol=1e-9)


def numbers_of(shape: Shape, sizes: Mapping[Atom, int]) -> tuple[int, ...]:
    """Return the shape with these sizes in place of the dynamic dimensions.

    Raises:
        ShapeError: An extent is not a positive number at these sizes.
    """
    extents = tuple(substitute(extent, sizes.get) if isinstance(extent, Size) else extent for extent in shape)
    numbers = tuple(extent for extent in extents if isinstance(extent, int) and extent > 0)
    if len(numbers) < len(shape):
        raise ShapeError(f"an extent of the shape {shape} is not a positive number")
    return numbers


@functools.lru_cache(maxsize=1 << 10)
def _applications(name: str, x: Term, shape: Shape, sizes: tuple[tuple[Atom, int], ...]) -> tuple[Term, ...]:
    """Apply the operator to `x` with each plausible choice of attributes. Return the results that have the shape `shape`."""
    spec, found = registry()[name], list[Term]()
    for choice in _choices(spec, x.rank, _plausible(numbers_of(x.shape, dict(sizes)), numbers_of(shape, dict(sizes)))):
        try:
            made = apply(name, x, **choice)
        except ShapeError:
            continue
        if made.shape == shape:
            found.append(made)
    return tuple(found)


def _plausible(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Return plausible integer attributes of an operator that turns the shape `before` into the shape `after`."""
    found = {0: None, 1: None, 2: None, 3: None}
    for one, other in zip(reversed(before), reversed(after), strict=False):
        low, high = sorted((one, other))
        if low < high:
            found |= dict.fromkeys([high // low] if high % low == 0 else []) | {high - low: None, (high - low) // 2: None}
    return [number for number in found if number <= SEARCH.max_rearranging_number]


def _choices(spec: Operator, rank: int, numbers: Sequence[int]) -> Iterator[dict[str, Attribute]]:
    """Yield choices of the operator's attributes.

    In each choice, one tuple attribute has a value that `_tuples` yields. The remaining tuple attributes have the value of this
    attribute, or contain only zeros, only ones or only twos.
    """
    lengths = _tuple_lengths(spec, rank)
    if lengths is None:
        return
    for free in lengths or [""]:
        for chosen in _tuples(lengths[free], numbers) if free else [()]:
            options: list[Sequence[Attribute]] = []
            for parameter in spec.parameters:
                if parameter.kind == "axis":
                    options.append(range(-rank, 0))
                elif parameter.default is not None:
                    options.append([parameter.default])
                elif parameter.kind == "extent":
                    options.append(numbers)
                elif parameter.name == free:
                    options.append([chosen])
                else:
                    length = lengths[parameter.name]
                    options.append([*dict.fromkeys([*([chosen] if len(chosen) == length else []), *_uniform(length)])])
            names = [parameter.name for parameter in spec.parameters]
            yield from (dict(zip(names, choice, strict=True)) for choice in itertools.product(*options))


@functools.cache
def _tuple_lengths(spec: Operator, rank: int) -> dict[str, int] | None:
    """Return the length of each tuple attribute that has no default value, for an operand of this rank.

    The result is None if the operator is not defined for the rank.
    """
    x = variable("x", (60,) * rank)
    names = [parameter.name for parameter in spec.parameters if parameter.kind == "extents" and parameter.default is None]
    plain = {p.name: p.default if p.default is not None else -1 if p.kind == "axis" else 1 for p in spec.parameters}
    possible = [*dict.fromkeys(length for length in (rank - 2, 2 * (rank - 2), rank) if length > 0)]
    for lengths in itertools.product(possible, repeat=len(names)):
        for fill in itertools.product((1, 0), repeat=len(names)):
            tuples = {name: (number,) * length for name, number, length in zip(names, fill, lengths, strict=True)}
            try:
                apply(spec.name, x, **plain | tuples)
            except ShapeError:
                continue
            return dict(zip(names, lengths, strict=True))
    return None


def _uniform(length: int) -> list[tuple[int, ...]]:
    return [(number,) * length for number in (0, 1, 2)]


def _tuples(length: int, numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield tuples of this length. The last two elements are taken from `numbers`, and all earlier elements are 0.

    A tuple of length 4 may describe both ends of two axes, such as the padding before and after each axis. For length 4, the
    tuples (a, b, a, b) and (a, b, 0, 0) are therefore yielded too, where a and b are any of the numbers.
    """
    for pair in itertools.product(numbers, repeat=min(length, 2)):
        yield (0,) * (length - len(pair)) + pair
        if length == 4:
            yield pair + pair
            yield (*pair, 0, 0)
