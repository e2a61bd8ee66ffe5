"""Value analysis: an abstract interpretation of terms that bounds the possible values of their elements.

The abstract value of a term is a `Facts`: an interval that contains all elements, and properties of the elements, such as
whether an element may be 0, undefined or NaN. An operator's definition in `specs/` is interpreted over `Facts`. The resulting
interval is imprecise if an operand occurs several times in the definition. For example, a softmax divides an exponential by a
sum that contains this exponential. `TABLE` contains more precise functions for such operators.

The analysis makes two assumptions, which reports and certificates state (`ASSUMPTIONS`):

- An input that cannot be an attention mask is ordinary: each element's magnitude is at most `MODEL.max_ordinary_magnitude`.
- A value is also ordinary if the original model computes the value from ordinary values by sums, products, roots, and quotients
  whose divisor cannot be 0. Exponentials are not assumed to be ordinary. The bounds of an exponential follow only from the
  interval of its argument.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from superopt.algebra import index
from superopt.algebra.bilinear import Matrix
from superopt.algebra.operators import interpret, operator
from superopt.algebra.tautology import is_tautology
from superopt.algebra.terms import Cond, Extent, Term, at_least, subterms
from superopt.policy import MODEL

OVERFLOW = 2.0**128 - 2.0**103
"""Real numbers of this magnitude or more are rounded to infinity in float32."""
ROUNDING = 2.0**-22
"""A bound on the relative rounding error of one float32 operation."""
ASSUMPTIONS = (
    f"elements of inputs that cannot be masks are finite and at most {MODEL.max_ordinary_magnitude:g} in magnitude",
    "sums, products, roots and quotients that the original computes of such values are so too",
)


@dataclass(frozen=True)
class Facts:
    """Bounds and properties that are true for every element of a tensor.

    Attributes:
        low: A lower bound of all elements that are not NaN, in IEEE arithmetic. If the bound is infinite, an element may be
            infinite.
        high: An upper bound of all elements that are not NaN, in IEEE arithmetic. If the bound is infinite, an element may be
            infinite.
        zero: Whether an element may be 0 in real arithmetic.
        defined: Whether every element is defined in real arithmetic.
        nan: Whether an element may be NaN in IEEE arithmetic.
        sure: Whether the other attributes are also correct for inputs with NaN or infinite elements. `sure` is True if the
            tensor depends on floating-point inputs only through comparisons, or not at all.
    """

    low: float = -math.inf
    high: float = math.inf
    zero: bool = True
    defined: bool = True
    nan: bool = False
    sure: bool = True

    @property
    def large_sign(self) -> int:
        """The common sign of all elements if all elements are finite and larger in magnitude than ordinary inputs.

        Otherwise, 0.
        """
        if not self.finite:
            return 0
        return (self.low > MODEL.max_ordinary_magnitude) - (self.high < -MODEL.max_ordinary_magnitude)

    def large_signs(self, *, constant: bool, ordinary: float = MODEL.max_ordinary_magnitude) -> set[int]:
        """Return the signs of elements that are larger in magnitude than ordinary inputs.

        For a constant tensor whose elements are all defined, the result contains the sign of each element whose magnitude is
        greater than `ordinary`. For any other tensor, the result contains `large_sign` unless this sign is 0.
        """
        if not constant or not self.defined:
            return {self.large_sign} - {0}
        high, low = (bound > ordinary for bound in (self.high, -self.low))
        return {sign for sign, large in ((1, high), (-1, low)) if large}

    @property
    def magnitude(self) -> float:
        """An upper bound of the magnitude of every element."""
        return max(abs(self.low), abs(self.high))

    @property
    def infinite(self) -> bool:
        """Whether an element may be infinite."""
        return self.magnitude >= OVERFLOW

    @property
    def finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not self.nan and not self.infinite

    @property
    def ordinary(self) -> bool:
        """Whether every element is a finite number with a magnitude of at most `MODEL.max_ordinary_magnitude`."""
        return not self.nan and self.magnitude <= MODEL.max_ordinary_magnitude

    def __add__(self, other: Facts) -> Facts:
        low, high = self.low + other.low, self.high + other.high
        if self.low < 0 < other.high or other.low < 0 < self.high:
            low -= ROUNDING * min(max(-self.low, other.high, 0.0), max(-other.low, self.high, 0.0), OVERFLOW)
        one_sided = max(self.high, other.high) <= 0 or min(self.low, other.low) >= 0
        never = one_sided and not (self.zero and other.zero)
        opposite = (self._minus and other._plus) or (self._plus and other._minus)
        return _facts(low, high, zero=not never, of=(self, other), nan=opposite)

    def __neg__(self) -> Facts:
        return replace(self, low=-self.high, high=-self.low)

    def __sub__(self, other: Facts) -> Facts:
        return self + -other

    def __mul__(self, other: Facts) -> Facts:
        ends = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        absorbed = (self._vanishes and other.infinite) or (other._vanishes and self.infinite)
        return _facts(min(ends), max(ends), zero=self.zero or other.zero, of=(self, other), nan=absorbed)

    def __or__(self, other: Facts) -> Facts:
        """Return the `Facts` that are true for the elements of both operands."""
        return Facts(
            min(self.low, other.low),
            max(self.high, other.high),
            self.zero or other.zero,
            self.defined and other.defined,
            self.nan or other.nan,
            self.sure and other.sure,
        )

    def through(self, function: Callable[[float], float]) -> Facts:
        """Return the `Facts` of `function` applied to each element. The function must be increasing and defined everywhere."""
        return _facts(function(self.low), function(self.high), zero=True, of=(self,))

    @property
    def _minus(self) -> bool:
        return self.low <= -OVERFLOW

    @property
    def _plus(self) -> bool:
        return self.high >= OVERFLOW

    @property
    def _vanishes(self) -> bool:
        """Whether an element may be 0 in IEEE arithmetic, for example by underflow."""
        return self.low <= 0 <= self.high


def large_summands_cancel(signs: Sequence[AbstractSet[int]]) -> bool:
    """Return whether one summand may be large and positive at a position at which another summand is large and negative.

    `signs` contains, for each summand, the signs of its large elements (`Facts.large_signs`).
    """
    positive, negative = (sum(sign in known for known in signs) for sign in (1, -1))
    return bool(positive and negative and positive + negative > max(map(len, signs)))


ORDINARY_INPUT = Facts(-MODEL.max_ordinary_magnitude, MODEL.max_ordinary_magnitude, sure=False)
"""The `Facts` of an input that cannot be an attention mask."""
UNBOUNDED = Facts(sure=False)
"""The `Facts` of an input that may be an attention mask. An element is any number or an infinity."""
ANYTHING = Facts(nan=True, sure=False)
"""The `Facts` of an input whose elements may be replaced by a Where operator. An element is any number, an infinity or NaN."""
UNKNOWN = Facts(defined=False, nan=True, sure=False)
"""The `Facts` of a value about which nothing is known."""
ZERO_OR_ONE = Facts(0.0, 1.0)
_NOTHING = Facts(math.inf, -math.inf, zero=False)
"""The `Facts` of a tensor without elements, the identity element of `|`."""


def _facts(low: float, high: float, *, zero: bool, of: tuple[Facts, ...], nan: bool = False) -> Facts:
    low, high = (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)
    defined = all(one.defined for one in of)
    nan, sure = nan or any(one.nan for one in of), all(one.sure for one in of)
    return Facts(low, high, zero and low <= 0 <= high, defined, nan, sure)


def _product(a: float, b: float) -> float:
    return a * b if a and b else 0.0


def _times(count: float, bound: float) -> float:
    return count * bound if bound else 0.0


class _Interpretation:
    """The interpretation of index notation in which values are `Facts`, indices are 0, and conditions are undecided."""

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Do nothing, because terms are well typed."""

    def total(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        one: Facts = body(0)
        many, few = (extent, extent) if isinstance(extent, int) else (MODEL.assumed_summand_count, 1)
        low = _times(few if one.low > 0 else many, one.low)
        high = _times(few if one.high < 0 else many, one.high)
        zero = one.zero or one.low < 0 < one.high
        opposite = many > 1 and one.low <= -OVERFLOW and one.high >= OVERFLOW
        return _facts(low, high, zero=zero, of=(one,), nan=opposite)

    def maximum(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return body(0)

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return then | other

    def picked(self, value: Any, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return body(0) if value.defined else UNKNOWN

    def call(self, function: str, *arguments: Any) -> Any:
        known = FUNCTIONS.get(function)
        return UNKNOWN if known is None else known(*arguments)

    def number(self, value: Extent) -> Any:
        if isinstance(value, int | float | Fraction):
            return _facts(float(value), float(value), zero=True, of=())
        low = (
            1.0
            if is_tautology(at_least(value, 1))
            else 0.0
            if is_tautology(at_least(value, 0))
            else -float(MODEL.assumed_summand_count)
        )
        return _facts(low, float(MODEL.assumed_summand_count), zero=True, of=())

    def entry(self, matrix: Callable[[], Matrix], row: Any, column: Any) -> Any:
        entries = [float(number) for numbers in matrix() for number in numbers]
        return Facts(min(entries), max(entries))

    def lowest(self) -> Any:
        return _NOTHING


def _power(base: Facts, exponent: Facts) -> Facts:
    if not (base.defined and exponent.defined):
        return UNKNOWN
    if exponent.low != exponent.high:
        known = base.low > 0 or (base.low >= 0 and not base.zero)
        ends = [_raised(b, e) for b in (base.low, base.high) for e in (exponent.low, exponent.high)] if known else []
        return _facts(min(ends), max(ends), zero=False, of=(base, exponent)) if known else UNKNOWN
    e = exponent.low
    whole = math.isfinite(e) and e == int(e)
    if not whole and base.low < 0:
        return UNKNOWN
    if e < 0:
        inverse = _reciprocal(base)
        return _power(inverse, -exponent) if inverse.defined else UNKNOWN
    ends = [_raised(base.low, e), _raised(base.high, e)]
    even = whole and int(e) % 2 == 0
    low = 0.0 if even and base.low <= 0 <= base.high else min(ends)
    return _facts(low, max(ends), zero=base.zero, of=(base,))


def _raised(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf if base > 0 or exponent % 2 == 0 else -math.inf
    except ValueError:
        return math.inf


def _reciprocal(base: Facts) -> Facts:
    if not base.defined or base.zero:
        return UNKNOWN
    if base.low >= 0 or base.high <= 0:
        low, high = sorted((_inverse(base.low, base.high > 0), _inverse(base.high, base.high > 0)))
        return _facts(low, high, zero=False, of=(base,))
    return _facts(-math.inf, math.inf, zero=False, of=(base,))


def _inverse(number: float, positive: bool) -> float:
    if not number:
        return math.inf if positive else -math.inf
    return 1.0 / number


def _root(base: Facts) -> Facts:
    return _facts(math.sqrt(base.low), math.sqrt(base.high), zero=base.zero, of=(base,)) if base.low >= 0 else UNKNOWN


def _exp(a: Facts) -> Facts:
    low, high = (math.exp(x) if x < math.log(OVERFLOW) else math.inf for x in (a.low, a.high))
    return _facts(low, high, zero=False, of=(a,))


def _log(a: Facts) -> Facts:
    if a.low < 0 or a.zero:
        return UNKNOWN
    low, high = (math.log(x) if 0 < x < math.inf else math.inf if x else -math.inf for x in (a.low, a.high))
    return _facts(low, high, zero=True, of=(a,))


def _compared(*of: Facts) -> Facts:
    """Return the `Facts` of a comparison, whose elements are 0 or 1 and never NaN."""
    return replace(ZERO_OR_ONE, defined=all(one.defined for one in of))


FUNCTIONS: Mapping[str, Callable[..., Facts]] = {
    "relu": lambda a: a.through(lambda x: max(x, 0.0)),
    "larger": lambda a, b: _facts(max(a.low, b.low), max(a.high, b.high), zero=True, of=(a, b)),
    "rsqrt": lambda a: _reciprocal(_root(a)) if a.defined and a.low >= 0 else UNKNOWN,
    "reciprocal": _reciprocal,
    "exp": _exp,
    "log": _log,
    "sqrt": _root,
    "erf": lambda a: a.through(math.erf),
    "power": _power,
    "positive": _compared,
    "zero": _compared,
    "position": lambda *of: replace(Facts(0.0, float(MODEL.assumed_summand_count)), defined=all(one.defined for one in of)),
    "choose": lambda _, then, other: then | other,
}
"""A mapping from each nonlinear function in operator definitions (see `evaluate.FUNCTIONS`) to a function that computes the
`Facts` of the result from the `Facts` of the operands.
"""


def _bounded(low: float, high: float, *, zero: bool = True) -> Callable[[Term, tuple[Facts, ...]], Facts]:
    """Return a function for `TABLE` that computes the `Facts` of an operator whose results are between `low` and `high`.

    The operator must be continuous on the extended reals.
    """
    return lambda _, operands: _facts(low, high, zero=zero, of=operands)


def _softmax(_: Term, operands: tuple[Facts, ...]) -> Facts:
    """Return the `Facts` of a softmax.

    Kernels subtract the largest element from all elements. If the operand may be infinite, the softmax may therefore be NaN.
    """
    return _facts(0.0, 1.0, zero=False, of=operands, nan=operands[0].infinite)


def _log_softmax(_: Term, operands: tuple[Facts, ...]) -> Facts:
    (x,) = operands
    return _facts(-2.0 * x.magnitude - math.log(MODEL.assumed_summand_count), 0.0, zero=True, of=operands, nan=x.infinite)


def _normed(_: Term, operands: tuple[Facts, ...]) -> Facts:
    """Return the `Facts` of a normalization.

    The result may be NaN if the operand may be infinite. The magnitude of the result is at most the square root of the
    normalized extent.
    """
    bound = math.sqrt(MODEL.assumed_summand_count)
    return _facts(-bound, bound, zero=True, of=operands, nan=operands[0].infinite)


def _within_operands(_: Term, operands: tuple[Facts, ...]) -> Facts:
    """Return the `Facts` of an attention, which computes weighted averages of the elements of one operand."""
    bound = max(one.magnitude for one in operands)
    return _facts(-bound, bound, zero=True, of=operands, nan=any(one.infinite for one in operands))


def _average(_: Term, operands: tuple[Facts, ...]) -> Facts:
    (x,) = operands
    both = x.low <= -OVERFLOW and x.high >= OVERFLOW
    return _facts(x.low, x.high, zero=x.zero or x.low < 0 < x.high, of=operands, nan=both)


def _length(_: Term, operands: tuple[Facts, ...]) -> Facts:
    return _facts(0.0, math.sqrt(MODEL.assumed_summand_count) * operands[0].magnitude, zero=operands[0].zero, of=operands)


def _log_sum_exp(_: Term, operands: tuple[Facts, ...]) -> Facts:
    (x,) = operands
    return _facts(x.low, x.high + math.log(MODEL.assumed_summand_count), zero=True, of=operands, nan=x.infinite)


def _gated(_: Term, operands: tuple[Facts, ...]) -> Facts:
    """Return the `Facts` of an operator, such as silu, that multiplies x by a factor between 0 and 1.

    If x is infinite, IEEE arithmetic may multiply x by 0, which gives NaN.
    """
    (x,) = operands
    return _facts(min(x.low, 0.0), max(x.high, 0.0), zero=True, of=operands, nan=x.infinite)


TABLE: Mapping[str, Callable[[Term, tuple[Facts, ...]], Facts]] = {
    "abs": lambda _, of: _facts(max(of[0].low, -of[0].high, 0.0), of[0].magnitude, zero=of[0].zero, of=of),
    "avg_pool": _average,
    "reduce_l2": _length,
    "reduce_log_sum_exp": _log_sum_exp,
    "scaled_dot_product_attention": _within_operands,
    "multi_head_attention": _within_operands,
    "grouped_query_attention": _within_operands,
    "masked_attention": _within_operands,
    "self_attention": _within_operands,
    "sigmoid": _bounded(0.0, 1.0, zero=False),
    "tanh": _bounded(-1.0, 1.0),
    "softsign": _gated,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "softplus": lambda _, of: _facts(max(of[0].low, 0.0), max(of[0].high, 0.0) + 1.0, zero=False, of=of),
    "layer_norm": _normed,
    "instance_norm": _normed,
    "group_norm": _normed,
    "rms_norm": _normed,
    "silu": _gated,
    "gelu": _gated,
    "gelu_tanh": _gated,
    "quick_gelu": _gated,
    "mish": _gated,
}
"""A mapping from some operators to functions that return the `Facts` of the result. The definitions of these operators use an
operand several times, so that an interpretation of the definition would be imprecise.
"""


def join_facts(*known: Facts) -> Facts:
    """Return the bounds and properties (`Facts`) that are true for the elements of all given tensors."""
    return functools.reduce(lambda one, other: one | other, known)


def facts_of(
    root: Term,
    variables: Mapping[str, Facts],
    weights: Callable[[Term], Facts] = lambda _: UNKNOWN,
) -> Facts:
    """Return the `Facts` of a term by abstract interpretation: the definitions of its operators are interpreted over `Facts`.

    The original model must compute the term (see `ASSUMPTIONS`).

    Args:
        root: The term.
        variables: The `Facts` of variables, by name. The `Facts` of any other variable are `UNKNOWN`.
        weights: A function that returns the `Facts` of a constant term. The function is called if the interpretation does not
            prove that the term's elements are finite.
    """

    def found(term: Term, operands: tuple[Facts, ...]) -> Facts:
        facts = computed_facts(term, operands)
        return weights(term) if term.constant and not facts.finite else facts

    return _interpreted(root, {x: variables.get(x.name, UNKNOWN) for x in subterms(root) if x.is_variable}, found)


def _interpreted(root: Term, known: Mapping[Term, Facts], found: Callable[[Term, tuple[Facts, ...]], Facts]) -> Facts:
    """Return the `Facts` of a term. `known` has the `Facts` of subterms, and `found` returns those of the terms above them."""
    every = dict(known)
    for term in subterms(root, stop=known):
        every[term] = found(term, tuple(every[arg] for arg in term.args))
    return every[root]


@functools.lru_cache(maxsize=1 << 15)
def computed_facts(term: Term, operands: tuple[Facts, ...]) -> Facts:
    """Derive the `Facts` of a term from the `Facts` of the term's operands.

    The original model must compute the term. A finite result of ordinary operands is assumed to be ordinary: the magnitude of
    the result is at most `MODEL.max_ordinary_magnitude`. An exponential is not assumed to be ordinary.
    """
    found = raw_facts(term, operands)
    if found.ordinary or not found.finite or term.op == "exp" or not all(one.ordinary for one in operands):
        return found
    low, high = max(found.low, -MODEL.max_ordinary_magnitude), min(found.high, MODEL.max_ordinary_magnitude)
    return replace(found, low=low, high=high) if low <= high else found


@functools.lru_cache(maxsize=1 << 15)
def raw_facts(term: Term, operands: tuple[Facts, ...]) -> Facts:
    """Return the bounds and properties (`Facts`) of the term that follow from the operands' `Facts` alone.

    Unlike `computed_facts`, this function does not assume that magnitudes of results are at most
    `MODEL.max_ordinary_magnitude`.
    """
    if not all(operand.defined for operand in operands):
        return UNKNOWN
    if term.op in TABLE:
        return TABLE[term.op](term, operands)
    if term.op == "mul" and term.args[0] is term.args[1] and len(term.args) == 2:
        return _power(operands[0], Facts(2.0, 2.0, zero=False))
    unrolled = operator(term.op).unrolled
    if unrolled is not None:
        steps = term.args[0].shape[0]
        if not isinstance(steps, int) or steps > MODEL.max_analysed_steps:
            return UNKNOWN
        return _interpreted(unrolled(*term.args), dict(zip(term.args, operands, strict=True)), raw_facts)
    tensors = [index.Tensor(arg.shape, _everywhere(operand)) for arg, operand in zip(term.args, operands, strict=True)]
    with index.interpreted(_Interpretation()):
        result = interpret(term, tensors)
        found: Facts = result.at(*(0,) * result.rank)
    return found


def _everywhere(value: Facts) -> Callable[..., Facts]:
    return lambda *_: value
