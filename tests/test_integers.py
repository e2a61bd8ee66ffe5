"""Integer expressions: verdicts that hold at all sizes, and normal forms."""

from __future__ import annotations

import pytest

from superopt.algebra.extent import Cond, Dim, Extent, at_least, disjunction, same, size
from superopt.algebra.integers import (
    absolute,
    base_atoms,
    choose,
    decide,
    evaluate,
    floor_quotient,
    indicator,
    maximum,
    minimum,
    normal,
    remainder,
    truncated_quotient,
    truncated_remainder,
    unknown_integer,
    unknown_size,
)

N, M = size(Dim("%n", 0)), size(Dim("%m", 0))
U, Z = unknown_size(1), unknown_integer(1)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (remainder(2 * N, 2), 0),
        (remainder(8 * floor_quotient(N + 7, 8), 8), 0),
        (remainder(N + remainder(8 - remainder(N, 8), 8), 8), 0),
        (remainder(N * (N + 1), 2), 0),
        (remainder(N, 2) + remainder(N + 1, 2), 1),
        (minimum(N, N + 3), N),
        (minimum(N, 4) + maximum(N, 4), N + 4),
        (minimum(N, M) + maximum(N, M), N + M),
        (maximum(minimum(N, 4), 7), 7),
        (floor_quotient(floor_quotient(N, 2), 3) - floor_quotient(N, 6), 0),
        (remainder(N + M, 3) - remainder(remainder(N, 3) + remainder(M, 3), 3), 0),
        (absolute(N - M) - absolute(M - N), 0),
        (indicator(at_least(N, 4)) * indicator(at_least(3, N)), 0),
        (truncated_quotient(-N, 2) + floor_quotient(N, 2), 0),
        (truncated_remainder(Z, 4) + truncated_remainder(-Z, 4), 0),
        (floor_quotient(N * M + N, M + 1), N),
        (remainder(Z, 1), 0),
    ],
)
def test_expressions_have_a_normal_form(expression: Extent, expected: Extent) -> None:
    assert normal(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        remainder(N, 2),
        remainder(8 - remainder(N, 8), 8),
        minimum(N, 16384),
        floor_quotient(N, 100_000),
        indicator(at_least(N, 10**9)),
        choose(same(N, 123_456), 1, 0),
        remainder(N * M, 2),
    ],
)
def test_what_differs_at_rare_sizes_is_not_constant(expression: Extent) -> None:
    found = normal(expression)
    assert not isinstance(found, int)
    assert base_atoms(found)


@pytest.mark.parametrize(
    ("condition", "least", "verdict"),
    [
        (at_least(remainder(N, 2), 0) & at_least(1, remainder(N, 2)), 0, True),
        (at_least(N, 2 * floor_quotient(N, 2)), 0, True),
        (at_least(N, 1), 0, None),
        (at_least(N, 1), 1, True),
        (at_least(U, 1), 1, None),
        (at_least(U, 0), 1, True),
        (at_least(Z, 0), 1, None),
        (at_least(Z * Z, Z), 0, True),
        (at_least(N * M, N), 1, True),
        (at_least(N * M, N), 0, None),
        (same(N, M), 1, None),
        (same(2 * N + 1, 2 * M), 0, False),
        (same(remainder(N, 2), 2), 0, False),
        (disjunction(same(remainder(N, 2), 0), same(remainder(N, 2), 1)), 0, True),
        (at_least(maximum(minimum(N, 5), 2), 2) & at_least(5, maximum(minimum(N, 5), 2)), 0, True),
        (at_least(floor_quotient(N - 1, 2) + 1, 1), 1, True),
        (at_least(floor_quotient(N - 1, 2) + 1, 1), 0, None),
    ],
)
def test_verdicts_are_about_all_sizes(condition: Cond, least: int, verdict: bool | None) -> None:
    assert decide(condition, least) is verdict


def test_expressions_compute_what_they_are_named_after() -> None:
    (n,), (z,) = base_atoms(N), base_atoms(Z)
    for a in range(-9, 10):
        for b in (-7, -4, -1, 1, 2, 5):
            values = {n: a + 9, z: a}
            assert evaluate(floor_quotient(Z, b), values) == a // b
            assert evaluate(truncated_quotient(Z, b), values) == int(a / b)
            assert evaluate(remainder(Z, b), values) == a % b
            assert evaluate(truncated_remainder(Z, b), values) == a - b * int(a / b)
            assert evaluate(minimum(Z, b), values) == min(a, b)
            assert evaluate(maximum(N, Z), values) == max(a + 9, a)
            assert evaluate(absolute(Z), values) == abs(a)
