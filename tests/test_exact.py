"""Exact semantics: equal terms are never distinguished, different terms are, and each operator states the arithmetic it
needs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superopt.algebra.exact import CHAIN, MEANS, exponentials, required_arithmetic
from superopt.algebra.index import Tensor, interpreted
from superopt.algebra.operators import interpret, operator, registry
from superopt.algebra.terms import Inverse, Size, Term
from superopt.notation.parsing import Equation
from superopt.proof.sample import mismatch
from superopt.rules.rule import parse_rule
from tests.operator_cases import DEFINED, concrete, forms

pytestmark = pytest.mark.slow


@functools.cache
def equation(text: str) -> Equation:
    return parse_rule(f"law: {text}").equations[0]


TRUE = [
    "exp(x + y) => exp(x) * exp(y) for x[2], y[2]",
    "exp(exp(x + y)) => exp(exp(x) * exp(y)) for x[2], y[2]",
    "log(abs(x) * abs(y)) => log(abs(x)) + log(abs(y)) for x[2], y[2]",
    "log(exp(x)) => x for x[2]",
    "exp(log(x)) => x for x[2]",
    "exp(log(x + y)) => x + y for x[2], y[2]",
    "sqrt(abs(x) * abs(y)) => sqrt(abs(x)) * sqrt(abs(y)) for x[2], y[2]",
    "sqrt(x) * sqrt(x) => x for x[2]",
    "sqrt(x + y) * sqrt(x + y) => x + y for x[2], y[2]",
    "sqrt(exp(x)) => exp(scale(x, factor=1 / 2)) for x[2]",
    "reciprocal(x * y) => reciprocal(x) * reciprocal(y) for x[2], y[2]",
    "reduce_max(exp(x), axes=(-1,)) => exp(reduce_max(x, axes=(-1,))) for x[2]",
    "relu(exp(x)) => exp(x) for x[2]",
    "softmax(x + expand(y, shape=x.shape, axes=(-2,)), axis=-1) => softmax(x, axis=-1) for x[2], y[1]",
    "sigmoid(scale(x, factor=-1)) => sigmoid(x) * exp(scale(x, factor=-1)) for x[2]",
    "erf(scale(x, factor=-1)) => scale(erf(x), factor=-1) for x[2]",
    "maximum(x, y) + minimum(x, y) => x + y for x[2], y[2]",
    "abs(x * y) => abs(x) * abs(y) for x[2], y[2]",
    "sqrt(x * x) => abs(x) for x[2]",
    "power(x, exponent=3) => x * x * x for x[2]",
    "power(exp(x), exponent=a) => exp(scale(x, factor=a)) for x[2]",
]
FALSE = [
    "exp(x + y) => exp(x) + exp(y) for x[2], y[2]",
    "exp(x * y) => exp(x) * exp(y) for x[2], y[2]",
    "log(x + y) => log(x) + log(y) for x[2], y[2]",
    "sqrt(x + y) => sqrt(x) + sqrt(y) for x[2], y[2]",
    "sqrt(x * x) => x for x[2]",
    "reciprocal(x + y) => reciprocal(x) + reciprocal(y) for x[2], y[2]",
    "sigmoid(scale(x, factor=-1)) => scale(sigmoid(x), factor=-1) for x[2]",
    "erf(x + y) => erf(x) + erf(y) for x[2], y[2]",
    "erf(x) => tanh(x) for x[2]",
    "maximum(x, y) => x + y for x[2], y[2]",
    "relu(x + y) => relu(x) + relu(y) for x[2], y[2]",
    "softmax(scale(x, factor=2), axis=-1) => softmax(x, axis=-1) for x[2]",
    "equal(x, y) => zeros(shape=x.shape) for x[2], y[2]",
]


@pytest.mark.parametrize("law", TRUE)
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_what_is_equal_is_never_told_apart(law: str, seed: int) -> None:
    assert mismatch(equation(law), instances=2, seed=seed) is None


@pytest.mark.parametrize("law", FALSE)
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_what_differs_is_told_apart(law: str, seed: int) -> None:
    assert mismatch(equation(law), instances=16, seed=seed) is not None


# ---------------------------------------------------------------- required arithmetic


class _Words:
    """An interpretation of index notation in which a value is the set of kinds of arithmetic that it needs."""

    functions: ClassVar = {
        "relu": "order", "larger": "order", "positive": "order", "zero": "order", "choose": "order", "reciprocal": "field",
        "sqrt": "root", "rsqrt": "root", "power": "root", "exp": "exponential", "log": "logarithm", "erf": "uninterpreted",
    }  # fmt: skip

    def tensor(self, shape: Any, at: Callable[..., Any]) -> Tensor:
        return Tensor(shape, at)

    def require(self, condition: Any, message: str) -> None:
        """Do nothing, because terms are already well typed."""

    def total(self, extent: Any, body: Callable[[Any], Any]) -> Any:
        return body(0)

    def maximum(self, extent: Any, body: Callable[[Any], Any]) -> Any:
        return body(0) + _Means({"order"})

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return then + other

    def call(self, function: str, *arguments: Any) -> Any:
        return sum(arguments, _Means({self.functions[function]}))

    def number(self, value: Any) -> Any:
        divided = isinstance(value, Size) and any(isinstance(a, Inverse) for a in value.atoms())
        return _Means({"quotient"} if divided or isinstance(value, Fraction) else set())

    def entry(self, matrix: Any, row: Any, column: Any) -> Any:
        return _Means({"quotient"})

    def picked(self, value: Any, extent: Any, body: Any) -> Any:
        return value + body(0) + _Means({"order"})

    def lowest(self) -> Any:
        return _Means({"order"})


class _Means(frozenset[str]):
    def __add__(self, other: frozenset[str]) -> _Means:
        return _Means(self | other)

    def __sub__(self, other: object) -> _Means:
        assert isinstance(other, frozenset)
        return self + other

    __mul__ = __sub__


def read_off(form: Term) -> frozenset[str]:
    operands = [Tensor(a.shape, lambda *_: _Means()) for a in form.args]
    with interpreted(_Words()):
        result = interpret(form, operands)
        found: frozenset[str] = result.at(*(0,) * result.rank)
    return found


@pytest.mark.parametrize("field", [0, 1])
def test_what_exp_makes_of_small_numbers_is_no_small_number(field: int) -> None:
    small = {p * pow(q, -1, CHAIN[field]) % CHAIN[field] for p in range(-20, 21) for q in range(1, 21)}
    numbers = [p * pow(q, -1, CHAIN[field + 1]) % CHAIN[field + 1] for p in (-3, -2, -1, 1, 2, 3) for q in (1, 2)]
    assert not small & {int(exponentials(field)[n]) for n in numbers}


@pytest.mark.parametrize("name", DEFINED)
def test_the_means_stated_are_those_of_the_definition(name: str) -> None:
    stated = required_arithmetic(name)
    assert stated <= MEANS.keys()
    steps = operator(name).unrolled is not None or hasattr(operator(name).module, "body")  # only defined at fixed sizes
    taken = frozenset().union(*(read_off(concrete(form, 0) if steps else form) for form in forms(name)[-12:]))
    assert taken | {"ring"} == stated


def test_composites_have_the_means_of_their_parts() -> None:
    assert required_arithmetic("sigmoid") == {"ring", "field", "exponential"}
    assert required_arithmetic("gelu") >= {"uninterpreted"}
    for name, spec in registry().items():
        assert not (spec.composite and hasattr(spec.module, "EXACT")), f"{name} states what its parts say"


def test_the_table_of_means_says_what_is_so() -> None:
    lines = (Path(__file__).parent.parent / "docs" / "exactness.md").read_text(encoding="utf-8").splitlines()
    rows = {cells[1].strip(): cells for line in lines if len(cells := line.split("|")) > 4 and cells[1].strip() in MEANS}
    assert rows.keys() == MEANS.keys()
    for name, cells in rows.items():
        for listed in re.findall(r"`(\w+)`", cells[2]):
            assert name in required_arithmetic(listed)
