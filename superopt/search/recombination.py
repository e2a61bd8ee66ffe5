"""Recognition of operators that combine elements of a tensor at several positions with elements of further tensors.

An example is the rotary embedding, which exporters write with slices, products, sums and concatenations. The tensor is the
first operand of the operator. The remaining operands are the *parameters*: terms that do not depend on the tensor, such as the
tables of cosines and sines. The function and the operator are evaluated at the sizes of the model, on random numbers, on
numbers that are not finite, and on zeros. Functions with dynamic dimensions are evaluated for two choices of sizes.

Only functions with at most one sum and one product on each path are recognized, so the function and the operator add in the
same order.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.algebra.evaluate import Array, Floats, evaluate_terms
from superopt.algebra.extent import Cond, sides
from superopt.algebra.integers import base_atoms, prove
from superopt.algebra.operators import Operator, apply, registry, replace_subterms
from superopt.algebra.substitution import substitute_cond
from superopt.algebra.terms import Atom, Attribute, Extent, Shape, Term, subterms, variable, variables
from superopt.budget import expired
from superopt.errors import ShapeError
from superopt.policy import SEARCH
from superopt.rules.fp_flags import FpMode
from superopt.rules.fusion import RECOGNIZED
from superopt.search.apply import State, run_time_terms
from superopt.search.gate import Gate
from superopt.search.rearrangement import numbers_of, size_choices
from superopt.search.sequence import reshape_rewritten_term
from superopt.speclib.composite import unfolded

SELECTING = frozenset({"gather", "reverse", "slice", "stride"})
MOVES = SELECTING | {"concat", "expand", "repeat", "reshape", "tile", "transpose"}
SUMS, PRODUCTS = frozenset({"add", "sub"}), frozenset({"mul"})
ALLOWED = MOVES | SUMS | PRODUCTS | {"scale"}
"""The operators by which a recognized function may depend on its tensor."""
KINDS = frozenset({"extent"})
"""The kinds of attributes that a recognized operator may have."""
OPERAND_RANKS = range(1, SEARCH.max_recombined_rank + 1)
"""The ranks of the operands of a recognized operator."""


def recombinations(state: State, names: Iterable[str], gate: Gate, deadline: float = math.inf) -> dict[str, dict[Term, Term]]:
    """Find terms of the state that equal an operator of several operands.

    Return a mapping from the names of steps to replacements. The replacements are mappings from terms of the state to terms
    with a single operator.

    Args:
        state: The output terms.
        names: The operators that may replace terms.
        gate: The filter for the floating-point mode. The precise mode permits no replacement.
        deadline: The active time at which the search ends.
    """
    targets = tuple(name for name in names if _is_target(registry()[name]))
    found: dict[str, dict[Term, Term]] = {}
    if not targets or gate.mode is FpMode.PRECISE:
        return found
    inner: set[Term] = set()
    for term, operand, inside in _functions(state, deadline):
        function = _function(term, operand, inside) if term not in inner else None
        equal = _equal(function.term, function.parameters, targets) if function is not None else None
        if function is not None and equal is not None:
            name, whole = equal
            found.setdefault(name + RECOGNIZED, {})[term] = replace_subterms(whole, dict(function.places))
            inner |= inside
    return found


@functools.cache
def _is_target(spec: Operator) -> bool:
    """Return whether the operator combines elements of several tensors as a recognized function does."""
    kinds = {parameter.kind for parameter in spec.parameters}
    stated = bool(spec.composite) or hasattr(spec.module, "body")
    if not stated or spec.definition is None or spec.lower is None or spec.arity == 1 or not kinds <= KINDS:
        return False
    return any(_ranks(spec, rank) is not None for rank in OPERAND_RANKS)


# ---------------------------------------------------------------- functions of one tensor and parameters


@dataclass(frozen=True)
class ParameterizedFunction:
    """A function of a tensor and parameters.

    Attributes:
        term: The function's value. The variable `x` is the tensor. The remaining variables stand for the terms from which
            data-movement operators (and `scale`) compute the parameters.
        parameters: The parameters and their subterms, as terms over the variables.
        places: The term of the state for which each variable stands.
    """

    term: Term
    parameters: tuple[Term, ...]
    places: tuple[tuple[Term, Term], ...]


def _functions(state: State, deadline: float) -> Iterator[tuple[Term, Term, frozenset[Term]]]:
    """Yield triples (term, tensor, terms between the tensor and the term). The term may recombine elements of the tensor.

    Terms near the outputs come first. The search ends at the active time `deadline`.
    """
    live = run_time_terms(state)
    order = {term: place for place, term in enumerate(subterms(*state, constants=False))}
    sources: dict[Term, frozenset[Term]] = {}
    depends: dict[Term, int] = {}
    for term, place in order.items():
        moving = [arg for arg in term.args if not arg.constant]
        depends[term] = functools.reduce(lambda a, b: a | b, (depends[arg] for arg in moving), 1 << place)
        near = frozenset[Term]().union(*({arg} | sources[arg] for arg in moving)) if term.op in ALLOWED else frozenset[Term]()
        sources[term] = near if len(near) <= SEARCH.max_recognized_terms else frozenset()
    for term in reversed(live):
        for operand in sorted(sources[term], key=order.__getitem__):
            if expired(deadline):
                return
            if operand.shape == term.shape and not operand.condition and not operand.position:
                inside = _between(term, operand, depends, order[operand])
                if _is_flat(inside, operand):
                    yield term, operand, inside


def _between(term: Term, operand: Term, depends: Mapping[Term, int], place: int) -> frozenset[Term]:
    """Return the terms from the operand (excluded) to `term` (included) that depend on the operand.

    The search ends at the first operator that is not in `ALLOWED`. A number in `depends` has bit `place` set if the term
    depends on the operand.
    """
    inside: set[Term] = set()
    stack = [term]
    while stack:
        one = stack.pop()
        if one == operand or one in inside:
            continue
        inside.add(one)
        if one.op not in ALLOWED:
            break
        stack += [arg for arg in one.args if depends.get(arg, 0) >> place & 1]
    return frozenset(inside)


def _is_flat(inside: frozenset[Term], operand: Term) -> bool:
    """Return whether the terms select elements of the operand, and each path has at most one product and one sum.

    The terms must contain a product and a sum. Sums and products must have two operands.
    """
    ops = {term.op for term in inside}
    if not ops <= ALLOWED or ops.isdisjoint(SELECTING) or ops.isdisjoint(SUMS) or ops.isdisjoint(PRODUCTS):
        return False
    for kind in (SUMS, PRODUCTS):
        depth: dict[Term, int] = {}
        for term in subterms(*inside, stop={operand}):
            above = max((depth.get(arg, 0) for arg in term.args), default=0)
            depth[term] = above + (term.op in kind) if term in inside else 0
            if depth[term] > 1 or (term in inside and term.op in kind and len(term.args) > 2):
                return False
    return True


def _function(term: Term, operand: Term, inside: frozenset[Term]) -> ParameterizedFunction | None:
    """Return the term as a function of the operand and of parameters. Equal functions at different places of a model have equal
    variables.
    """
    roots = dict.fromkeys(arg for one in subterms(term) if one in inside for arg in one.args if arg not in {operand, *inside})
    leaves: dict[Term, Term] = {operand: variable("x", operand.shape)}
    views: dict[Term, None] = {}
    stack = [*reversed(roots)]
    while stack:
        one = stack.pop()
        if one in views:
            continue
        views[one] = None
        if one.op in MOVES or one.op == "scale":
            stack += reversed(one.args)
        elif one.args or one.is_variable:
            leaves.setdefault(one, variable(f"p{len(leaves)}", one.shape))
    cache: dict[Term, Term] = {}
    try:
        general = replace_subterms(term, leaves, cache)
        parameters = tuple(dict.fromkeys(replace_subterms(view, leaves, cache) for view in reversed(views)))
    except ShapeError:
        return None
    return ParameterizedFunction(general, parameters, tuple((new, old) for old, new in leaves.items()))


# ---------------------------------------------------------------- equal operators


@functools.lru_cache(maxsize=1 << 12)
def _equal(term: Term, parameters: tuple[Term, ...], targets: tuple[str, ...]) -> tuple[str, Term] | None:
    """Apply the operators `targets` to the variable `x` and parameters.

    Return the first result that equals the term, with the name of its operator. Return None if no result equals the term.
    """
    sizes = size_choices(term)
    try:
        values = [_values(term, at) for at in sizes]
    except ShapeError:
        return None
    x = next(v for v in variables(term) if v.name == "x")
    extents = dict.fromkeys(n for one in subterms(term) if x in subterms(one) for n in one.shape)
    for name in targets:
        results = _applications(registry()[name], x, parameters, [0, 1, *extents])
        for whole in itertools.islice(results, SEARCH.max_recognition_attributes):
            shaped = reshape_rewritten_term(whole, term.shape)
            try:
                if all(_are_equal(own, _values(shaped, at)) for own, at in zip(values, sizes, strict=True)):
                    return name, shaped
            except ShapeError:
                continue
    return None


def _applications(spec: Operator, x: Term, parameters: Sequence[Term], numbers: Sequence[Attribute]) -> Iterator[Term]:
    """Yield the operator applied to `x` and to each choice of parameters, with each choice of numbers as attributes."""
    names = [parameter.name for parameter in spec.parameters]
    for first in _tensors(x):
        ranks = _ranks(spec, first.rank)
        if ranks is None:
            continue
        columns = [[*dict.fromkeys(view for one in parameters for view in _views(one, rank, x.shape))] for rank in ranks]
        for choice in itertools.product(*([*dict.fromkeys(numbers)] for _ in names)):
            required = _requirements(spec, first.shape, ranks, choice)
            if required is None:
                continue
            places = zip(_operands(ranks), required, columns, strict=True)
            fitting = [[view for view in column if _fits(view, one, conditions)] for one, conditions, column in places]
            for rest in itertools.product(*fitting):
                try:
                    whole = apply(spec.name, first, *rest, **dict(zip(names, choice, strict=True)))
                except ShapeError:
                    continue
                body = unfolded(whole) if all(map(prove, whole.requires)) and whole.shape == first.shape else None
                if body is not None and _is_flat(frozenset(_inside(body, first)), first):
                    yield whole


def _inside(body: Term, operand: Term) -> Iterator[Term]:
    """Yield the terms between the operand and `body` that depend on the operand."""
    met = {operand}
    for term in subterms(body, stop={operand}):
        if not met.isdisjoint(term.args):
            met.add(term)
            yield term


def _tensors(x: Term) -> Iterator[Term]:
    """Yield the tensor, and the tensor with its last two axes merged into one axis."""
    yield x
    if x.rank > 3:
        yield apply("reshape", x, shape=(*x.shape[:-2], x.sizes[-2] * x.sizes[-1]))


@functools.cache
def _ranks(spec: Operator, rank: int) -> tuple[int, ...] | None:
    """Return the ranks of the operator's parameters if its first operand has this rank.

    Return None if no ranks are possible, or if the operator is not flat (see `_is_flat`).
    """
    first = variable("x", rank)
    fixed: dict[str, Attribute] = {p.name: 1 if p.default is None else p.default for p in spec.parameters}
    for ranks in itertools.product(OPERAND_RANKS, repeat=spec.arity - 1):
        try:
            body = unfolded(apply(spec.name, first, *_operands(ranks), **fixed))
        except ShapeError:
            continue
        return ranks if body is not None and _is_flat(frozenset(_inside(body, first)), first) else None
    return None


@functools.cache
def _operands(ranks: tuple[int, ...]) -> tuple[Term, ...]:
    """Return variables with symbolic extents and these ranks."""
    return tuple(variable(f"o{place}", rank) for place, rank in enumerate(ranks))


@functools.lru_cache(maxsize=1 << 12)
def _requirements(
    spec: Operator, shape: Shape, ranks: tuple[int, ...], choice: tuple[Attribute, ...]
) -> tuple[tuple[Cond, ...], ...] | None:
    """Return the conditions on each parameter if the operator has these attributes and its first operand has this shape.

    The conditions are about the extents of the variables `_operands(ranks)`, in the order of these variables. Conditions
    that involve several parameters are left out. Return None if the operator is not defined for any parameters.
    """
    operands, names = _operands(ranks), [parameter.name for parameter in spec.parameters]
    try:
        whole = apply(spec.name, variable("x", shape), *operands, **dict(zip(names, choice, strict=True)))
    except ShapeError:
        return None
    atoms = [frozenset(base_atoms(*operand.sizes)) for operand in operands]
    met = [(condition, [not own.isdisjoint(base_atoms(*sides(condition))) for own in atoms]) for condition in whole.requires]
    alone = [(condition, places.index(True)) for condition, places in met if sum(places) == 1]
    return tuple(tuple(condition for condition, place in alone if place == here) for here in range(len(ranks)))


def _fits(view: Term, symbols: Term, conditions: Iterable[Cond]) -> bool:
    """Return whether the extents of the view satisfy the conditions, which are about the extents of the variable `symbols`."""
    extents = {atom: n for symbol, n in zip(symbols.sizes, view.sizes, strict=True) for atom in base_atoms(symbol)}
    return all(prove(substitute_cond(condition, extents.get)) for condition in conditions)


def _views(parameter: Term, rank: int, shape: Shape) -> Iterator[Term]:
    """Yield the parameter with axes of extent 1 inserted or removed, so that it has the given rank.

    If the new first axis has extent 1, also yield the parameter with this axis repeated up to the first extent of `shape`.
    """
    core = [n for n in parameter.shape if n != 1]
    for places in itertools.combinations(range(rank), len(core)):
        wanted: list[Extent] = [1] * rank
        for place, n in zip(places, core, strict=True):
            wanted[place] = n
        yield reshape_rewritten_term(parameter, (*wanted,))
        if wanted[0] == 1 != shape[0]:
            inner = reshape_rewritten_term(parameter, (*wanted[1:],))
            yield apply("expand", inner, shape=(shape[0], *wanted[1:]), axes=tuple(range(1 - rank, 0)))


# ---------------------------------------------------------------- values


def _values(term: Term, sizes: Mapping[Atom, int]) -> Array:
    """Return the values of a term on random numbers, and on zeros and numbers that are not finite.

    Raises:
        ShapeError: The term is not defined at these sizes, or its evaluation needs too much memory.
    """
    if any(math.prod(numbers_of(part.shape, sizes)) > SEARCH.max_rearranged_elements for part in subterms(term)):
        raise ShapeError("the tensors are too large for a comparison of functions")
    arrays = {v.name: _samples(v.name, numbers_of(v.shape, sizes)) for v in variables(term)}
    with np.errstate(all="ignore"):
        return evaluate_terms((term,), arrays, sizes.get, Floats(tail=1))[0]


@functools.lru_cache(maxsize=16)
def _samples(name: str, shape: tuple[int, ...]) -> Array:
    """Return random numbers with a last axis for two draws. In the second draw, some numbers are special.

    The special numbers of the tensor `x` are not finite. The special numbers of parameters are 0.
    """
    rng = np.random.default_rng([*name.encode()])
    drawn = rng.standard_normal((*shape, 2))
    special = rng.choice((np.inf, -np.inf, np.nan) if name == "x" else (0.0,), shape)
    drawn[..., 1] = np.where(rng.random(shape) < 0.25, special, drawn[..., 1])
    return drawn


def _are_equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)
