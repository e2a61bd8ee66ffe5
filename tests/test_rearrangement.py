"""Recognition of operators that move, repeat or pool the elements of one tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from superopt.algebra.extent import Dim, size
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.algebra.value_analysis import ORDINARY_INPUT, UNBOUNDED, Facts
from superopt.errors import ShapeError
from superopt.notation.parsing import parse
from superopt.notation.printing import render_terms
from superopt.rules.fp_flags import FpMode
from superopt.search.absorption import absorption
from superopt.search.backtracking import SearchResult
from superopt.search.fuse import with_single_operators
from superopt.search.gate import Gate
from superopt.search.rearrangement import _evaluated_elements, _values, rearrangements
from superopt.search.ruleset import RuleSet

X = variable("x", (2, 8, 6, 4))
UPSAMPLED = "reshape(expand(x, shape=(2, 8, 6, 2, 4, 3), axes=(-6, -5, -4, -2)), shape=(2, 8, 12, 12))"
WINDOWS = "reshape(x, shape=(2, 8, 3, 2, 2, 2))"
ROWS = [f"stride(slice(x, axis=-2, start={row}, stop=6), axis=-2, step=2)" for row in (0, 1)]
CORNERS = [f"stride(slice({row}, axis=-1, start={start}, stop=4), axis=-1, step=2)" for row in ROWS for start in (0, 1)]


def gate(known: Facts = ORDINARY_INPUT, mode: FpMode = FpMode.RELAXED) -> Gate:
    return Gate(mode, {"x": known}, absorption, strict=False)


def term(text: str, x: Term = X) -> Term:
    (found,) = parse(text, {"x": x})
    return found


def replacement(root: Term, filter_: Gate | None = None) -> str | None:
    """Return the text of the single operator that replaces the term, or None."""
    found = {old: new for pairs in rearrangements((root,), filter_ or gate()).values() for old, new in pairs.items()}
    return render_terms(found[root]) if root in found else None


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        (UPSAMPLED, "upsample(x, rows=2, columns=3)"),
        ("concat(reshape(x, shape=(2, 8, 6, 4)), x, axis=-1)", "tile(x, axis=-1, times=2)"),
        (f"reshape(transpose({WINDOWS}, perm=(-6, -3, -1, -5, -4, -2)), shape=(2, 32, 3, 2))", "space_to_depth(x, block=2)"),
        (f"reduce_max({WINDOWS}, axes=(-3, -1))", "max_pool(x, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))"),
        (f"reduce_mean({WINDOWS}, axes=(-3, -1))", "avg_pool(x, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))"),
        (
            f"maximum(maximum({CORNERS[0]}, {CORNERS[1]}), maximum({CORNERS[2]}, {CORNERS[3]}))",
            "max_pool(x, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))",
        ),
    ],
)
def test_a_spelled_out_operator_is_recognized(text: str, operator: str) -> None:
    assert replacement(term(text)) == operator


@pytest.mark.parametrize(
    "text",
    [
        f"reshape(transpose({WINDOWS}, perm=(-6, -1, -3, -5, -4, -2)), shape=(2, 32, 3, 2))",
        f"maximum(maximum({CORNERS[0]}, {CORNERS[1]}), maximum({CORNERS[2]}, {CORNERS[2]}))",
        f"{CORNERS[0]} + {CORNERS[1]} + {CORNERS[2]} + {CORNERS[3]}",
        "concat(x, reverse(x, axis=-1), axis=-1)",
    ],
)
def test_a_different_function_is_not_recognized(text: str) -> None:
    assert replacement(term(text)) is None


def test_operators_that_are_not_defined_for_a_rank_are_left_out() -> None:
    x = variable("x", (6, 8))
    halves = [f"slice(x, axis=-1, start={start}, stop={start + 4})" for start in (0, 4)]
    assert replacement(term(f"maximum({halves[0]}, {halves[1]})", x)) is None


def test_pooling_is_not_recognized_where_kernels_may_treat_nan_differently() -> None:
    pooled = term(f"reduce_max({WINDOWS}, axes=(-3, -1))")
    assert replacement(pooled, gate(replace(UNBOUNDED, nan=True))) is None
    assert replacement(term(UPSAMPLED), gate(replace(UNBOUNDED, nan=True))) is not None


def test_a_mean_is_not_reordered_in_the_precise_mode() -> None:
    averaged = term(f"reduce_mean({WINDOWS}, axes=(-3, -1))")
    assert replacement(averaged, gate(mode=FpMode.PRECISE)) is None
    assert replacement(term(UPSAMPLED), gate(mode=FpMode.PRECISE)) is not None


def test_a_dynamic_extent_is_recognized_at_two_sizes() -> None:
    rows, columns = size(Dim("image", -2)), size(Dim("image", -1))
    x = variable("x", (2, 8, rows, columns))
    wide = apply("expand", x, shape=(2, 8, rows, 2, columns, 2), axes=(-6, -5, -4, -2))
    assert replacement(apply("reshape", wide, shape=(2, 8, 2 * rows, 2 * columns))) == "upsample(x, rows=2, columns=2)"


def test_a_pool_whose_windows_have_too_many_elements_is_not_evaluated() -> None:
    x = variable("x", (1, 8, 128, 128))
    for kernel, small in ((3, True), (7, False)):
        pads = (kernel // 2,) * 4
        pool = apply("max_pool", x, kernel=(kernel, kernel), strides=(1, 1), pads=pads)
        assert _evaluated_elements(pool, {}) == kernel**2 * 8 * 128**2
        if small:
            assert _values(pool, x, {}).shape == (1, 8, 128, 128, 3)
        else:
            with pytest.raises(ShapeError, match="too large"):
                _values(pool, x, {})


def test_the_operator_is_used_where_it_is_faster() -> None:
    state = (term(UPSAMPLED),)
    found = SearchResult(state, (), 1.0, 1.0, 0, "")
    others = lambda one: rearrangements(one, gate())  # noqa: E731
    faster = with_single_operators(found, RuleSet(()), faster=lambda *_: 2.0, others=others)
    assert render_terms(*faster.outputs) == "upsample(x, rows=2, columns=3)"
    assert [step.rule for step in faster.steps] == ["upsample.recognized"]
    assert not with_single_operators(found, RuleSet(()), faster=lambda *_: 1.0, others=others).steps
