"""Recognition: finds subterms of any form that compute the function of a single operator.

Exporters write a function in many ways, such as `x * clip(x + 3, 0, 6) / 6` for hard swish. A subterm whose only run-time
operand is `x` is a function of `x`. The function is compared with each operator of one operand, on values that distinguish
functions. These values include ordinary values, magnitudes from 1e-12 to 1e6, and values near each number in the subterm. A
piecewise function may have a breakpoint near a number in the subterm. The function may also be a multiple of the operator's
result, or may scale and shift this result by weights.

The numbers of an exported model are rounded to float32. Therefore, values are compared in float64 up to the effect of this
rounding. Two equal functions give a rule for tensors of all sizes. The rule is matched in the same way as fusions, and the gate
(the filter for the floating-point mode) decides which matches are used. `superopt verify` tests both sides of each step again.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from superopt.algebra.evaluate import Array, Floats, evaluate_operator, evaluate_terms
from superopt.algebra.operators import Operator, apply, fraction_of, registry
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Dim,
    Extent,
    Shape,
    Size,
    Term,
    conjunction,
    same,
    size,
    substitute,
    subterms,
    variable,
    variables,
)
from superopt.budget import expired
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation, Statement
from superopt.notation.printing import render_terms
from superopt.policy import SEARCH
from superopt.rules.fusion import FLAGS, RECOGNIZED
from superopt.rules.rule import Rule
from superopt.search.apply import MOVES, State, run_time_terms

SIZES: Mapping[int, Sequence[tuple[int, ...]]] = {
    1: ((5,), (7,)),
    2: ((3, 5), (4, 7)),
    3: ((2, 3, 5), (4, 5, 3)),
    4: ((2, 3, 5, 4), (3, 4, 2, 5)),
}
"""For each rank of the operand, the two shapes at which functions are compared. Functions must agree at both shapes."""
KINDS = frozenset({"axes", "axis", "real"})
"""The kinds of attributes that a recognized operator may have."""
TRANSCENDENTAL = frozenset({"erf", "exp", "log"})
PIECEWISE = frozenset({"choose", "larger", "positive", "relu", "zero"})
ROOTS = frozenset({"power", "reciprocal", "rsqrt", "sqrt"})


def recognized_rules(state: State, names: Iterable[str], deadline: float = math.inf) -> tuple[Rule, ...]:
    """Return rules that replace subterms of the state by single operators that compute the same functions.

    Rules for larger subterms come first.

    Args:
        state: The output terms.
        names: The operators that may replace subterms. Operators with more than one operand are ignored.
        deadline: The active time at which the search for functions ends.
    """
    targets = tuple(name for name in names if _may_replace(registry()[name]))
    found: dict[Term, Rule] = {}
    known: dict[Term, Term] = {}
    for operand in reversed(subterms(*state, constants=False)):
        if operand.rank not in SIZES or operand.condition or operand.position:
            continue
        for root, function in _functions_of(operand, state):
            if expired(deadline):
                return _largest_first(found)
            if root in known and not _mixes(function.term) and not _is_affine_step(known[root]):
                continue
            equal = _scaled(function, found) or _equal(function, targets)
            sized = _at_size(function, operand.shape) if equal is None else None
            equal = equal if sized is None else _equal(sized, targets)
            if equal is not None:
                known[root] = operand
                found.setdefault(function.term, _rule(*equal, sized or function))
    return _largest_first(found)


def _largest_first(found: Mapping[Term, Rule]) -> tuple[Rule, ...]:
    """Return the rules for the given functions. The functions with the most operators come first.

    If a rule for a part of a function came first, the rule for the whole function could no longer match.
    """
    return tuple(rule for _, rule in sorted(found.items(), key=lambda pair: -_operators(pair[0])))


def _operators(term: Term) -> int:
    return sum(bool(part.args) for part in subterms(term))


@functools.lru_cache(maxsize=1 << 14)
def _mixes(term: Term) -> bool:
    """Return whether an element of the term may depend on operand elements at different positions."""
    moving = [part for part in subterms(term) if part.args and not _is_weight(part)]
    return any(
        part.shape != term.shape or any(p.kind in {"axis", "axes"} for p in registry()[part.op].parameters) for part in moving
    )


def _may_replace(spec: Operator) -> bool:
    kinds = {parameter.kind for parameter in spec.parameters}
    boolean = spec.name.startswith("logical_")
    return spec.definition is not None and spec.arity == 1 and not boolean and spec.name not in MOVES and kinds <= KINDS


# ---------------------------------------------------------------- functions of one operand


@dataclass(frozen=True)
class Function:
    """A function of one tensor, as a term for all sizes.

    Attributes:
        term: The function's value. The variable `x` is the tensor, and other variables are weights.
        weights: The name of each weight, and its shape in terms of the dimensions of `x`.
        extents: Axes of `x` that have fixed extents, and these extents. The function is compared only at these extents.
    """

    term: Term
    weights: tuple[tuple[str, Shape], ...]
    extents: tuple[tuple[int, int], ...] = ()

    @property
    def operand(self) -> Term:
        """The variable `x`."""
        return next(v for v in variables(self.term) if v.name == "x")


@dataclass
class _Generalized:
    """The general forms of terms whose only run-time operand is `operand`.

    In a general form, a variable `x` replaces the operand. The extents of `x` are symbols.
    """

    operand: Term
    terms: dict[Term, Term] = field(default_factory=dict)
    shapes: dict[Shape, Shape] = field(default_factory=dict)
    weights: dict[Term, tuple[str, Shape]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        x = variable("x", self.operand.rank)
        self.terms[self.operand], self.shapes[self.operand.shape] = x, x.shape

    def of(self, term: Term) -> Term | None:
        """Return the general form of a term. If the term has no general form, return None.

        A term has a general form only if all of its run-time operands have general forms.
        """
        if term not in self.terms:
            made = self._made(term)
            if made is None:
                return None
            self.terms[term] = made
            self.shapes.setdefault(term.shape, made.shape)
        return self.terms[term]

    def operands_of(self, term: Term) -> list[Term]:
        """Return the operands of a term. If `operand` is a part of a longer sum, the sum is split into `operand` and the
        remaining operands.

        For example, if `operand` is `a + b`, the operands of `a + b + c` are `a + b` and `c`. Products are split like sums.
        """
        if term.op != self.operand.op or not term.args or not registry()[term.op].commutative:
            return [*term.args]
        rest = Counter(term.args) - Counter(self.operand.args)
        whole = rest.total() == len(term.args) - len(self.operand.args)
        return [self.operand, *rest.elements()] if whole and rest else [*term.args]

    def _made(self, term: Term) -> Term | None:
        if term.is_variable or (term.constant and variables(term)):
            return self._weight(term) if term.constant else None
        args = [self.of(arg) for arg in self.operands_of(term)]
        if None in args:
            return None
        return self.applied(term, [arg for arg in args if arg is not None])

    def applied(self, term: Term, args: Sequence[Term]) -> Term | None:
        """Apply the operator of `term` to operands in general form, and return the result.

        If the result has no general form, return None.

        Extents in the attributes are replaced by symbols.
        """
        attributes = dict(term.attributes)
        if "shape" in attributes:
            shape = self.shapes.get(term.shape)
            if shape is None and term.shape:
                return None
            attributes["shape"] = shape or ()
        try:
            return apply(term.op, *args, **attributes)
        except ShapeError:
            return None

    def _weight(self, term: Term) -> Term | None:
        shape = self.shapes.get(term.shape)
        if shape is None:
            return None
        name, _ = self.weights.setdefault(term, (f"w{len(self.weights)}", shape))
        return variable(name, term.rank)


def _functions_of(operand: Term, state: State) -> Iterator[tuple[Term, Function]]:
    """Find the subterms of the state whose only run-time operand is `operand`. Yield each subterm with its function.

    In a sum or product, the operands that depend only on `operand` form one function. A function is left out if its last step
    multiplies by a weight or adds a weight. A function is also left out if its first steps multiply by constants or add
    constants. In these cases, the function without these steps is examined instead.
    """
    general = _Generalized(operand)
    inside = {operand}
    for term in _users(state).get(operand, ()):
        if len(inside) > SEARCH.max_recognized_terms:
            return
        operands = general.operands_of(term)
        own = [arg for arg in operands if arg.constant or arg in inside]
        made = None
        if len(own) == len(operands):
            made = general.of(term)
            if made is not None:
                inside.add(term)
        elif registry()[term.op].commutative and len(own) > 1 and not inside.isdisjoint(own):
            args = [general.of(arg) for arg in own]
            made = None if None in args else general.applied(term, [arg for arg in args if arg is not None])
        if made is not None and not _ends_with_weight(made) and not _starts_affine(made):
            yield term, _function(general, made)


def _is_affine_step(term: Term) -> bool:
    """Return whether a term of the model multiplies a run-time term by a constant, or adds a constant to a run-time term."""
    return term.op == "scale" or (term.op in {"add", "mul", "sub"} and sum(not arg.constant for arg in term.args) == 1)


def _is_affine(term: Term) -> bool:
    """Return whether the term multiplies an operand by a constant, or adds a constant to an operand."""
    moving = [arg for arg in term.args if not (arg.constant or _is_weight(arg))]
    return term.op == "scale" or (term.op in {"add", "mul", "sub"} and len(moving) == 1)


def _ends_with_weight(term: Term) -> bool:
    """Return whether the last step of a function of `x` multiplies by a weight, or adds a weight."""
    return _is_affine(term) and any(_is_weight(arg) and variables(arg) for arg in term.args)


def _is_weight(term: Term) -> bool:
    return all(v.name != "x" for v in variables(term))


@functools.lru_cache(maxsize=1 << 14)
def _starts_affine(term: Term) -> bool:
    """Return whether a function of `x` begins with a chain of affine steps, and does not read `x` elsewhere.

    An affine step multiplies by a constant or adds a constant. Two affine steps are enough if one of the two constants is a
    weight. If both constants are numbers, three affine steps are needed, because an operator such as HardSigmoid can express
    two steps by its attributes.
    """
    users: dict[Term, list[Term]] = {}
    for part in subterms(term):
        for arg in dict.fromkeys(part.args):
            users.setdefault(arg, []).append(part)
    here = next(v for v in variables(term) if v.name == "x")
    for count in range(1, 4):
        after = users.get(here, [])
        if len(after) != 1 or not _is_affine(after[0]):
            return False
        here = after[0]
        if count > 1 and len(variables(here)) > 1:
            break
    return here is not term


def _function(general: _Generalized, made: Term) -> Function:
    used = {v.name for v in variables(made)}
    return Function(made, tuple(sorted(known for known in general.weights.values() if known[0] in used)))


@functools.lru_cache(maxsize=4)
def _users(state: State) -> Mapping[Term, Sequence[Term]]:
    """Return a mapping from each run-time term to the terms that depend on this term, operands before users.

    For each run-time term, the search for dependent terms ends after `SEARCH.max_recognized_terms` terms.
    """
    live = run_time_terms(state)
    direct: dict[Term, list[Term]] = {}
    for term in live:
        for arg in dict.fromkeys(term.args):
            direct.setdefault(arg, []).append(term)
    for term in live:
        if registry()[term.op].commutative:
            longer = [user for user in direct.get(term.args[0], ()) if user.op == term.op and user is not term]
            direct.setdefault(term, []).extend(user for user in longer if not Counter(term.args) - Counter(user.args))
    order = {term: place for place, term in enumerate(live)}
    found: dict[Term, list[Term]] = {}
    for start, users in direct.items():
        met = dict.fromkeys(users)
        frontier = list(met)
        while frontier and len(met) < SEARCH.max_recognized_terms:
            frontier = [*dict.fromkeys(user for term in frontier for user in direct.get(term, ()) if user not in met)]
            met.update(dict.fromkeys(frontier))
        found[start] = sorted(met, key=order.__getitem__)
    return found


def _at_size(function: Function, shape: Shape) -> Function | None:
    """Return the function for operands whose reduced axes have the extents in `shape`, or None if these extents do not matter.

    The extents matter if a number in the function may depend on the count of reduced elements. An example is a mean that is
    written as a sum and a division.
    """
    x = function.operand
    reduced = (
        part.integers("axes")
        for part in subterms(function.term)
        if part.args and part.args[0].shape == x.shape and part.op.startswith("reduce_")
    )
    axes = sorted({axis for some in reduced for axis in some})
    extents = [shape[axis] for axis in axes]
    fixed = tuple((axis, n) for axis, n in zip(axes, extents, strict=True) if isinstance(n, int))
    count = math.prod(n for _, n in fixed)
    if not axes or len(fixed) < len(axes) or count > SEARCH.max_extent_elements:
        return None
    related = [count**power for power in (1, -1, 0.5, -0.5)]
    numbers = [abs(number) for number in _numbers(function.term)]
    depends = any(math.isclose(*pair, rel_tol=1e-6) for pair in itertools.product(numbers, related))
    return replace(function, extents=fixed) if depends else None


# ---------------------------------------------------------------- equal functions


class _Recorder(Floats):
    """float64 arithmetic that records the functions that are called."""

    def __init__(self) -> None:
        super().__init__(tail=1)
        self.called: set[str] = set()

    def call(self, function: str, *values: object) -> object:
        self.called.add(function)
        return super().call(function, *values)


@functools.lru_cache(maxsize=4096)
def _primitives(name: str, attributes: tuple[tuple[str, Attribute], ...], arity: int, rank: int) -> frozenset[str]:
    """Return the functions of index notation that the operator's definition calls."""
    term = apply(name, *(variable(f"x{n}", SIZES[rank][0]) for n in range(arity)), **dict(attributes))
    domain = _Recorder()
    with np.errstate(all="ignore"):
        evaluate_terms((term,), {v.name: np.ones((*SIZES[rank][0], 1)) for v in variables(term)}, lambda _: None, domain)
    return frozenset(domain.called)


Kind: TypeAlias = "tuple[frozenset[str], bool, bool]"
"""The transcendental functions of a term, whether the term is defined piecewise, and whether the term contains roots or
quotients.
"""


def _kind(term: Term) -> Kind:
    """Return the kind of the term. Two terms are compared only if their kinds are alike (see `_are_alike`)."""
    called: set[str] = set()
    for part in subterms(term):
        if part.args and part.op not in MOVES and part.rank in SIZES:
            try:
                called |= _primitives(part.op, part.attributes, len(part.args), part.rank)
            except ShapeError:
                called |= PIECEWISE
    return TRANSCENDENTAL & called, bool(PIECEWISE & called), bool(ROOTS & called)


def _are_alike(operator: Kind, function: Kind) -> bool:
    """Return whether an operator of the first kind may compute a function of the second kind.

    If one of the kinds contains transcendental functions, the two kinds need only one common transcendental function, because
    terms with transcendental functions have many equivalent forms. A piecewise function may equal an operator that is not
    defined piecewise. For example, the maximum of a variance and 0 is the variance.
    """
    if operator[0] or function[0]:
        return bool(operator[0] & function[0])
    return operator[1] <= function[1] and operator[2] == function[2]


def _numbers(term: Term) -> tuple[float, ...]:
    """Return the values of all attributes of the kind `real` in the term."""
    found: dict[float, None] = {}
    for part in subterms(term):
        for parameter in registry()[part.op].parameters if part.args else ():
            if parameter.kind == "real":
                found.setdefault(part.real(parameter.name))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _samples(rank: int, numbers: tuple[float, ...] | None = None, extents: tuple[tuple[int, int], ...] = ()) -> Array:
    """Return values of a tensor, with a last axis for independent draws.

    Without `numbers`, the tensor has the first shape of `SIZES[rank]`. With `numbers`, the tensor has the second shape, and
    additional draws have values near these numbers, and near the sums, products and quotients of these numbers. Further draws
    have values that are much smaller than each of these numbers. Some draws contain only zeros, only tiny elements, or only
    elements far below zero. A clamp, or a bias in a denominator, may matter only for these elements. If `extents` is not empty,
    the axes in `extents` have the given extents instead of the extents in `SIZES`.
    """
    rng, usual, fixed = np.random.default_rng(rank), SIZES[rank][0 if numbers is None else 1], dict(extents)
    rows = (2, 1, 1) if numbers is None else (1, 2, 1)
    shape = tuple(fixed.get(axis, rows[axis]) for axis in range(-rank, 0)) if fixed else usual

    def signs(draws: int) -> Array:
        return rng.choice((-1.0, 1.0), (*shape, draws))

    drawn = [
        rng.standard_normal((*shape, 1)) * 10.0**power for power in (-12, -9, -7, -5, -4, -3, -2, -1, 0, 0, 0, 0.5, 1, 1.5)
    ]
    drawn += [np.zeros((*shape, 1)), np.abs(drawn[8]), -np.abs(drawn[8])]
    drawn += [-rng.uniform(low, high, (*shape, 1)) for low, high in ((3, 20), (20, 80), (100, 300), (300, 600))]
    drawn += [signs(4) * 10.0 ** rng.uniform(-6, 6, (*shape, 4)), np.where(rng.random((*shape, 1)) < 0.5, 0.0, drawn[8])]
    if numbers:
        picks = rng.choice(_near(numbers), (*shape, 12))
        drawn.append(signs(12) * picks * rng.choice((0.5, 0.9, 1.0, 1.1, 2.0, 10.0), picks.shape))
        drawn += [rng.standard_normal((*shape, 1)) * math.sqrt(abs(n)) * factor for n in numbers for factor in (0.3, 1.0, 3.0)]
        drawn += [rng.standard_normal((*shape, 1)) * abs(n) / (1e3 * math.prod(shape)) for n in numbers]
    return np.concatenate(drawn, axis=-1)


def _near(numbers: Sequence[float]) -> tuple[float, ...]:
    """Return magnitudes near which a piecewise function with these numbers may have a breakpoint."""
    pairs = [*itertools.product(numbers, numbers)]
    combined = {*numbers, *(a / b for a, b in pairs if b), *(a * b for a, b in pairs), *(a + b for a, b in pairs)}
    combined |= {(a + b) / c for a, b in pairs[: SEARCH.max_number_pairs] for c in numbers if c}
    return tuple(sorted({abs(n) for n in combined if 0 < abs(n) < 1e12})) or (1.0,)


def _values(term: Term, x: Array, weights: Sequence[tuple[str, Shape]] = (), domain: Floats | None = None) -> Array:
    """Evaluate a function's term at samples of `x` in float64, and return the values.

    The last axis of `x` and of the values is the axis of independent draws.
    """
    sizes: dict[Atom, int] = {Dim("x", axis - (x.ndim - 1)): n for axis, n in enumerate(x.shape[:-1])}
    arrays = {"x": x}
    for number, (name, shape) in enumerate(weights):
        extents = tuple(_integer(substitute(n, sizes.get) if isinstance(n, Size) else n) for n in shape)
        sizes |= {Dim(name, axis - len(extents)): n for axis, n in enumerate(extents)}
        arrays[name] = _drawn_weight(number, (*extents, x.shape[-1]))
    with np.errstate(all="ignore"):
        return evaluate_terms((term,), arrays, sizes.get, domain or Floats(tail=1))[0]


def _drawn_weight(seed: int, shape: tuple[int, ...]) -> Array:
    """Return random values of a weight, with a last axis for independent draws.

    In every third draw, all elements are 0 or 1, because a weight may be a mask.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal(shape)
    drawn[..., ::3] = rng.integers(0, 2, drawn[..., ::3].shape)
    return drawn


class _Randomized(Floats):
    """float64 arithmetic with a random generator."""

    def __init__(self, seed: int) -> None:
        super().__init__(tail=1)
        self.rng = np.random.default_rng(seed)


class _Rounded(_Randomized):
    """float64 arithmetic in which results are rounded up or down at random."""

    def array(self, value: object) -> Array:
        exact = super().array(value)
        return np.asarray(exact * (1 + self.rng.choice((-1, 1), exact.shape) * np.finfo(np.float64).eps))

    def call(self, function: str, *values: object) -> object:
        return self.array(super().call(function, *values))


class _RoundedNumbers(_Randomized):
    """float64 arithmetic that adds random errors, of the size of float32 rounding, to the non-integer numbers of a model."""

    def number(self, value: object) -> object:
        exact = super().number(value)
        rounds = isinstance(value, float) and not value.is_integer()
        return np.asarray(exact) * (1 + self.rng.choice((-1, 1)) * np.finfo(np.float32).eps / 2) if rounds else exact


def _rounding_errors(term: Term, x: Array, weights: Sequence[tuple[str, Shape]], values: Array) -> Array:
    """Estimate a bound on the rounding error of each value of a function's term. The term is evaluated with random rounding.

    Results are rounded to float64, and numbers of the model are rounded to float32. The rounding of numbers moves the
    breakpoints of a piecewise function.
    """

    def spread(kind: type[_Randomized]) -> Array:
        drawn = (_values(term, x, weights, kind(seed)) for seed in range(SEARCH.random_rounding_count))
        return functools.reduce(np.maximum, (np.abs(one - values) for one in drawn))

    with np.errstate(all="ignore"):
        bound: Array = SEARCH.recognition_rounding_factor * spread(_Rounded)
        return bound + SEARCH.recognition_number_factor * spread(_RoundedNumbers)


def _integer(extent: Extent) -> int:
    if not isinstance(extent, int):
        raise ShapeError(f"the extent {extent} is not a number")
    return extent


def _agree(one: Array, other: Array, scale: Array) -> bool:
    """Return whether the arrays `one` and `other` agree up to the rounding of numbers to float32, wherever `one` is finite.

    In draws with a magnitude of at least `SEARCH.min_overflow_magnitude`, a definition may overflow where a kernel does not
    overflow. In these draws, values are compared only where both values are finite. Constant values never agree, because
    constant values do not identify a function. Differences that are small relative to the samples are allowed.
    `_Comparison.agrees` decides whether rounding explains these differences.
    """
    if one.shape != other.shape:
        return False
    finite = np.isfinite(one) & (np.isfinite(other) | (scale < SEARCH.min_overflow_magnitude))
    if finite.mean() < SEARCH.min_comparable_share or np.ptp(one[finite]) == 0:
        return False
    with np.errstate(all="ignore"):
        bound = SEARCH.recognition_tolerance_share * np.maximum(np.abs(one), np.abs(other))
        bound = bound + SEARCH.coarse_tolerance_share * np.maximum(scale, SEARCH.min_coarse_scale)
        return bool(np.all(~finite | (np.isfinite(other) & (np.abs(one - other) <= bound))))


def _scaled(function: Function, found: Mapping[Term, Rule]) -> tuple[str, Term] | None:
    """Return an operator's name, and a term with this operator that equals the function.

    The function must be a multiple of a function with a known rule, and the operator comes from this rule. Otherwise, the
    result is None.
    """
    term = function.term
    rule = found.get(term.args[0]) if term.op == "scale" else None
    if rule is None or rule.statement.where:
        return None
    (inner,) = rule.equations[0].right
    factor = term.real("factor")
    if inner.op == "scale":
        inner, factor = inner.args[0], factor * inner.real("factor")
    number = fraction_of(factor)
    return rule.name.removesuffix(RECOGNIZED), inner if number == 1 else apply("scale", inner, factor=number)


@functools.lru_cache(maxsize=1 << 14)
def _equal(function: Function, targets: tuple[str, ...]) -> tuple[str, Term] | None:
    """Return the first operator of `targets` that computes the function, and the term that applies the operator.

    The term may also contain a factor and a bias. The result is None if no operator computes the function. Values are compared
    first on samples that all functions share, and then on samples near the function's numbers.
    """
    term = function.term
    count = _operators(term)
    if count > SEARCH.max_recognized_terms or (count < 2 and not _has_numbers(term)):
        return None
    numbers = _numbers(term)
    try:
        usual, near = (_Comparison.of(function, own) for own in (None, numbers))
    except ShapeError:
        return None
    kind = _kind(term)
    for name in targets:
        for plain in _applications(registry()[name], function, numbers, kind, near) if name != term.op or count > 1 else ():
            whole = usual.completed(plain)
            if whole is not None and usual.agrees(whole) and near.agrees(whole) and _operators(whole) < max(count, 2):
                return name, whole
    return None


def _has_numbers(term: Term) -> bool:
    """Return whether the term's operator has a number as an attribute. The term may then be a special case of another operator.

    For example, a power with the exponent -1/2 is an inverse square root.
    """
    return term.op != "scale" and any(parameter.kind == "real" for parameter in registry()[term.op].parameters)


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The values of a function on samples.

    Attributes:
        term: The function's term.
        numbers: Numbers that determine where some samples lie. None if all functions are evaluated on equal samples.
        weights: See `Function`.
        extents: See `Function`.
        x: The samples.
        values: The values of the function.
        scale: For each draw, the largest magnitude of its samples.
    """

    term: Term
    numbers: tuple[float, ...] | None
    weights: tuple[tuple[str, Shape], ...]
    extents: tuple[tuple[int, int], ...]
    x: Array
    values: Array
    scale: Array

    @classmethod
    def of(cls, function: Function, numbers: tuple[float, ...] | None) -> _Comparison:
        """Evaluate a function on samples.

        Raises:
            ShapeError: The function is not defined for the shape of the samples.
        """
        x = _samples(function.operand.rank, numbers, function.extents)
        values = _values(function.term, x, function.weights)
        scale = np.abs(x).max(axis=tuple(range(x.ndim - 1)))
        return cls(function.term, numbers, function.weights, function.extents, x, values, scale)

    def agrees(self, whole: Term) -> bool:
        """Return whether a term equals the function, up to the rounding of numbers to float32 and of results to float64.

        Rounding to float64 matters where a term adds 1 to a value near -1, as some forms of GELU do at inputs far below zero.
        """
        own = _values(whole, self.x, self.weights)
        if not _agree(self.values, own, self.scale):
            return False
        both = np.isfinite(self.values) & np.isfinite(own)
        difference = np.abs(np.subtract(self.values, own, where=both, out=np.zeros_like(own)))
        bound = SEARCH.recognition_tolerance_share * np.maximum(np.abs(self.values), np.abs(own))
        if np.all(~both | (difference <= bound)):
            return True
        bound += self.rounding_errors + _rounding_errors(whole, self.x, self.weights, own)
        return bool(np.all(~both | (difference <= bound)))

    @functools.cached_property
    def rounding_errors(self) -> Array:
        """A bound on the effect of rounding on the values."""
        return _rounding_errors(self.term, self.x, self.weights, self.values)

    def completed(self, plain: Term) -> Term | None:
        """Return a term that computes the function: the operator's result `plain`, with a factor and a bias if necessary.

        Return None if the function cannot be expressed in this way.
        """
        own = _evaluated(plain, self.numbers, self.extents)
        if own is None or own.shape != self.values.shape:
            return None
        if _agree(self.values, own, self.scale):
            return plain
        with np.errstate(all="ignore"):
            known = np.isfinite(self.values) & np.isfinite(own) & (np.abs(own) > 1e-3) & (np.abs(own) < 1e3)
            factor = float(np.median(self.values[known] / own[known])) if known.any() else 0.0
        if factor and np.isfinite(factor) and _agree(self.values, factor * own, self.scale):
            return apply("scale", plain, factor=fraction_of(factor))
        return self._with_weights(plain, own)

    def _with_weights(self, plain: Term, own: Array) -> Term | None:
        arrays = {v: _values(v, self.x, self.weights) for v, shape in self._variables() if shape == plain.shape}
        for factor, bias in itertools.product((None, *arrays), (None, *arrays)):
            if factor is bias:
                continue
            with np.errstate(all="ignore"):
                product = own if factor is None else own * arrays[factor]
            for sign in (1, -1) if bias is not None else (1,):
                total = product if bias is None else product + sign * arrays[bias]
                if _agree(self.values, total, self.scale):
                    scaled = plain if factor is None else apply("mul", plain, factor)
                    return scaled if bias is None else apply("add" if sign == 1 else "sub", scaled, bias)
        return None

    def _variables(self) -> Iterator[tuple[Term, Shape]]:
        return ((variable(name, len(shape)), shape) for name, shape in self.weights)


@functools.lru_cache(maxsize=1 << 12)
def _evaluated(plain: Term, numbers: tuple[float, ...] | None, extents: tuple[tuple[int, int], ...]) -> Array | None:
    """Evaluate an operator that is applied to `x`, at samples of `x`. Return the values.

    The result is None if the operator is not defined for the shape of the samples.
    """
    try:
        return _values(plain, _samples(variables(plain)[0].rank, numbers, extents))
    except ShapeError:
        return None


def _applications(
    spec: Operator, function: Function, numbers: Sequence[float], kind: Kind, known: _Comparison
) -> Iterator[Term]:
    """Apply the operator to the function's operand, with each plausible choice of attributes, and yield the results.

    For an attribute of the kind `real`, four kinds of values are plausible: the default value, 0, the numbers in the function,
    and the quotients and differences of two numbers in the function. A quotient or difference that is 0 in float32 is left out.
    """
    pairs = [(a, b) for a in numbers for b in numbers if a != b]
    with np.errstate(over="ignore"):
        combined = [n for n in (*(a / b for a, b in pairs if b), *(a - b for a, b in pairs)) if np.float32(n) or not n]
    axes = range(-1, -1 - function.operand.rank, -1)
    choices: list[Sequence[Attribute]] = []
    for parameter in spec.parameters:
        if parameter.kind == "real":
            own = () if parameter.default is None else (parameter.default,)
            choices.append([*dict.fromkeys([*own, *map(fraction_of, (0.0, *numbers, *combined))])])
        elif parameter.kind == "axis":
            choices.append([*axes])
        else:
            choices.append([*((axis,) for axis in axes), *itertools.combinations(reversed(axes), 2)])
    names = tuple(parameter.name for parameter in spec.parameters)
    every = [*itertools.islice(itertools.product(*choices), SEARCH.max_recognition_attributes)]
    if not _may_be_alike(spec, function.operand, names, every, kind):
        return
    if all(parameter.kind == "real" for parameter in spec.parameters) and not function.weights and len(every) > 1:
        if _has_plain_attributes(spec.name):
            every = [every[number] for number in _plausible(spec, every, known.x, known.values)]
        else:
            every = every[: SEARCH.max_unfiltered_attributes]
    for choice in every:
        try:
            yield apply(spec.name, function.operand, **dict(zip(names, choice, strict=True)))
        except ShapeError:
            continue


def _may_be_alike(
    spec: Operator, operand: Term, names: Sequence[str], every: Iterable[Sequence[Attribute]], kind: Kind
) -> bool:
    """Return whether the operator is of a kind like `kind`, at the first choice of attributes that defines the operator."""
    for choice in every:
        try:
            return _are_alike(_kind(apply(spec.name, operand, **dict(zip(names, choice, strict=True)))), kind)
        except ShapeError:
            continue
    return False


class _Choices(Floats):
    """float64 arithmetic in which placeholders stand for arrays.

    An array contains one number for each choice of attributes and each draw.
    """

    def __init__(self, arrays: Mapping[float, Array]) -> None:
        super().__init__(tail=1)
        self.arrays = arrays

    def number(self, value: object) -> object:
        return self.arrays[value] if isinstance(value, float) and value in self.arrays else super().number(value)


@functools.cache
def _has_plain_attributes(name: str) -> bool:
    """Return whether the operator's definition uses each attribute unchanged, and computes no number from an attribute."""
    spec, x = registry()[name], _samples(2)
    choices = [[0.25 + place for place in range(len(spec.parameters))], [0.75 + place for place in range(len(spec.parameters))]]
    try:
        values = _values(
            apply(name, variable("x", 2), **dict(zip((p.name for p in spec.parameters), choices[1], strict=True))), x
        )
    except ShapeError:
        return False
    return 1 in _plausible(spec, choices, x, values)


def _plausible(spec: Operator, every: Sequence[Sequence[Attribute]], x: Array, values: Array) -> list[int]:
    """Return the indices of the plausible attribute choices. `every` lists the choices.

    A choice gives a number for each attribute of the operator. The choice is plausible if the operator's result may be
    proportional to `values`. All choices are evaluated at once. If the operator's definition computes a number from an
    attribute, the result is empty.
    """
    count = len(every)
    arrays = {
        0.1234567 + place: np.repeat([float(choice[place]) for choice in every], x.shape[-1])  # type: ignore[arg-type]
        for place in range(len(spec.parameters))
    }
    attributes = {parameter.name: number for parameter, number in zip(spec.parameters, arrays, strict=True)}
    with np.errstate(all="ignore"):
        try:
            own = evaluate_operator(spec.name, (np.tile(x, count),), attributes, _Choices(arrays))
        except ShapeError:
            return []
        if own.size != values.size * count:
            return []
        own = np.moveaxis(own.reshape(*x.shape[:-1], count, x.shape[-1]), -2, 0).reshape(count, -1)
        flat = values.reshape(1, -1)
        usual = np.isfinite(flat) & np.isfinite(own) & (np.abs(own) > 1e-3) & (np.abs(own) < 1e3)
        most = np.max(flat / own, axis=1, where=usual, initial=-np.inf)
        least = np.min(flat / own, axis=1, where=usual, initial=np.inf)
        found = most - least <= SEARCH.plausible_spread_share * np.maximum(np.abs(most), np.abs(least))
    return [int(number) for number in np.flatnonzero(found & np.isfinite(most))]


def _rule(name: str, whole: Term, function: Function) -> Rule:
    ranks = tuple((v.name, v.rank) for v in variables(function.term))
    sized = [(size(Dim("x", axis)), extent) for axis, extent in function.extents]
    equation = Equation((function.term,), (whole,), where=conjunction(*itertools.starmap(same, sized)), ranks=ranks)
    statement = Statement(
        name + RECOGNIZED,
        render_terms(function.term),
        "=>",
        render_terms(whole),
        tuple((variable_name, (rank,)) for variable_name, rank in ranks),
        tuple(f"{axis} == {extent}" for axis, extent in sized),
    )
    return Rule(statement.name, statement, (equation,), FLAGS)
