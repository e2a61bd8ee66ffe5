"""Programs of any operators tested over prime fields, with oracles for functions: what agrees is equal."""

from __future__ import annotations

import pytest

from superopt.algebra.dim_binding import dimension
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.errors import Undecidable
from superopt.partial.oracle import agreement
from superopt.policy import MUTANT

X = variable("x", (6, 4))
W, V = (variable(name, (4, 8), constant=True) for name in "wv")
IMAGE = variable("i", (1, 3, 7, 7))


def pooled(x: Term, pads: tuple[int, ...] = (1, 1, 1, 1)) -> Term:
    return apply("max_pool", x, kernel=(3, 3), strides=(1, 1), pads=pads)


def cut(x: Term, axis: int, start: int, stop: int) -> Term:
    return apply("slice", x, axis=axis, start=start, stop=stop)


def layer(x: Term) -> Term:
    return apply("softmax", apply("tanh", apply("matmul", x, W)), axis=-1)


EQUAL = [
    (layer(X), apply("concat", layer(cut(X, 0, 0, 2)), layer(cut(X, 0, 2, 6)), axis=-2)),
    (
        apply("relu", apply("add", apply("matmul", X, W), apply("matmul", X, V))),
        apply("relu", apply("matmul", X, apply("add", W, V))),
    ),
    (
        pooled(IMAGE),
        apply("concat", pooled(cut(IMAGE, -3, 0, 1)), pooled(cut(IMAGE, -3, 1, 3)), axis=-3),
    ),
]
UNEQUAL = [
    (apply("relu", X), apply("abs", X)),
    (apply("relu", X), X),
    (apply("exp", apply("scale", X, factor=2)), apply("exp", X)),
    (layer(X), apply("concat", layer(cut(X, 0, 0, 2)), layer(cut(X, 0, 1, 5)), axis=-2)),
    (pooled(IMAGE), pooled(apply("reverse", IMAGE, axis=-1))),
    (apply("maximum", X, apply("scale", X, factor=2)), apply("maximum", X, apply("scale", X, factor=3))),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_what_is_equal_agrees(one: Term, other: Term) -> None:
    found = agreement([one], [other])
    assert found.equal
    assert found.log2_error <= MUTANT.log2_error


@pytest.mark.parametrize(("one", "other"), UNEQUAL)
def test_what_differs_is_told_apart(one: Term, other: Term) -> None:
    assert not agreement([one], [other]).equal


def test_all_programs_have_to_agree() -> None:
    assert not agreement([X, apply("relu", X)], [X, apply("exp", X)]).equal


def test_operands_of_a_maximum_may_change_places() -> None:
    a, b = apply("relu", X), apply("exp", X)
    both = [apply("concat", *pair, axis=0) for pair in ((a, b), (b, a))]
    one, other = (apply("reduce_max", t, axes=(-2,)) for t in both)
    assert agreement([one], [other]).equal


def test_a_multiple_of_a_prime_is_not_zero() -> None:
    many = apply("scale", X, factor=2**31)
    assert not agreement([apply("tanh", many)], [apply("tanh", X)]).equal


def test_what_cannot_be_tested_is_refused() -> None:
    with pytest.raises(Undecidable, match="different shapes"):
        agreement([X], [apply("transpose", X, perm=(1, 0))])
    wide = variable("x", (dimension("batch"), 4))
    with pytest.raises(Undecidable, match="not an integer"):
        agreement([wide], [apply("relu", wide)])
    large = variable("x", (4096, 4096))
    with pytest.raises(Undecidable, match="operations"):
        agreement([apply("matmul", large, large)], [large])
