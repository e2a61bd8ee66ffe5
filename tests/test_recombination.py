"""Recognition of operators that combine elements of a tensor with elements of further tensors."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from superopt.algebra.extent import Dim, size
from superopt.algebra.operators import apply, registry
from superopt.algebra.terms import Term, subterms, variable
from superopt.algebra.value_analysis import UNBOUNDED, Facts
from superopt.notation.parsing import parse
from superopt.notation.printing import render_terms
from superopt.rules.fp_flags import FpMode
from superopt.search.absorption import absorption
from superopt.search.gate import Gate
from superopt.search.recombination import _between, recombinations

X = variable("x", (2, 3, 5, 8))
C, S = (variable(name, (1, 5, 4), constant=True) for name in "cs")
HALVES = [f"slice(x, axis=-1, start={start}, stop={start + 4})" for start in (0, 4)]
PAIRS = [f"stride(slice(x, axis=-1, start={start}, stop={start + 7}), axis=-1, step=2)" for start in (0, 1)]


def wide(name: str, shape: str = "(2, 3, 5, 4)") -> str:
    return f"expand(reshape({name}, shape=(5, 4)), shape={shape}, axes=(-2, -1))"


def twice(name: str) -> str:
    return f"expand(reshape(concat({name}, {name}, axis=-1), shape=(5, 8)), shape=(2, 3, 5, 8), axes=(-2, -1))"


def rotated(one: str, other: str) -> tuple[str, str]:
    return f"{one} * {wide('c')} - {other} * {wide('s')}", f"{one} * {wide('s')} + {other} * {wide('c')}"


def replacement(text: str, mode: FpMode = FpMode.RELAXED, x: Term = X, known: Facts = UNBOUNDED) -> str | None:
    """Return the text of the operator that replaces the term, or None."""
    (root,) = parse(text, {"x": x, "c": C, "s": S})
    gate = Gate(mode, {"x": known}, absorption, strict=False)
    found = {old: new for pairs in recombinations((root,), ["rope"], gate).values() for old, new in pairs.items()}
    return render_terms(found[root]) if root in found else None


def stacked(one: str, other: str) -> str:
    parts = (f"reshape({part}, shape=(2, 3, 5, 4, 1))" for part in (one, other))
    return f"reshape(concat({', '.join(parts)}, axis=-1), shape=(2, 3, 5, 8))"


TABLES = ", ".join(f"expand(reshape({name}, shape=(5, 4)), shape=(2, 5, 4), axes=(-2, -1))" for name in "cs")
SPELLINGS = [
    (f"concat({', '.join(rotated(*HALVES))}, axis=-1)", 0),
    (f"x * {twice('c')} + concat(scale({HALVES[1]}, factor=-1), {HALVES[0]}, axis=-1) * {twice('s')}", 0),
    (stacked(*rotated(*PAIRS)), 1),
]


@pytest.mark.parametrize(("text", "interleaved"), SPELLINGS)
def test_a_rotary_embedding_is_recognized(text: str, interleaved: int) -> None:
    assert replacement(text) == f"rope(x, {TABLES}, heads=3, interleaved={interleaved})".replace(", interleaved=0", "")


def test_a_rotary_embedding_with_the_heads_after_the_positions_is_recognized() -> None:
    x = variable("x", (1, 5, 3, 8))
    of_heads = [f"expand(reshape({name}, shape=(5, 4)), shape=(1, 5, 3, 4), axes=(-3, -1))" for name in "cs"]
    one, other = HALVES
    text = f"concat({one} * {of_heads[0]} - {other} * {of_heads[1]}, {other} * {of_heads[0]} + {one} * {of_heads[1]}, axis=-1)"
    assert replacement(text, x=x) == "reshape(rope(reshape(x, shape=(1, 5, 24)), c, s, heads=3), shape=(1, 5, 3, 8))"


def test_a_part_of_each_head_may_stay_as_it_is() -> None:
    x = variable("x", (2, 3, 5, 12))
    text = f"concat({SPELLINGS[0][0]}, slice(x, axis=-1, start=8, stop=12), axis=-1)"
    assert replacement(text, x=x) == f"rope(x, {TABLES}, heads=3)"


@pytest.mark.parametrize(
    "text",
    [
        f"concat({', '.join(reversed(rotated(*HALVES)))}, axis=-1)",
        f"concat({', '.join(rotated(*HALVES)).replace(' - ', ' + ')}, axis=-1)",
        f"x * {twice('c')} + concat({HALVES[1]}, {HALVES[0]}, axis=-1) * {twice('s')}",
    ],
)
def test_a_different_function_is_not_recognized(text: str) -> None:
    assert replacement(text) is None


def test_the_precise_mode_permits_no_replacement() -> None:
    assert replacement(SPELLINGS[0][0], FpMode.PRECISE) is None


def test_a_rotary_embedding_of_dynamic_length_is_recognized() -> None:
    length = size(Dim("tokens", -1))
    x, c, s = (
        variable(name, shape) for name, shape in (("x", (1, 3, length, 8)), ("c", (1, length, 4)), ("s", (1, length, 4)))
    )
    one, other = (apply("slice", x, axis=-1, start=start, stop=start + 4) for start in (0, 4))
    cosines, sines = (apply("expand", t, shape=one.shape, axes=(-4, -2, -1)) for t in (c, s))
    along = apply("sub", apply("mul", one, cosines), apply("mul", other, sines))
    across = apply("add", apply("mul", other, cosines), apply("mul", one, sines))
    root = apply("concat", along, across, axis=-1)
    gate = Gate(FpMode.RELAXED, {}, absorption, strict=False)
    assert recombinations((root,), ["rope"], gate) == {"rope.recognized": {root: apply("rope", x, c, s, heads=3)}}


def test_the_terms_below_the_tensor_are_not_visited() -> None:
    deep = functools.reduce(lambda x, _: apply("tanh", x), range(300), X)
    (root,) = parse(SPELLINGS[1][0], {"x": deep, "c": C, "s": S})
    visited: list[Term] = []

    class Visited(dict[Term, int]):
        def get(self, term: Term, default: Any = None) -> Any:
            visited.append(term)
            return super().get(term, default)

    inside = _between(root, deep, Visited(dict.fromkeys(subterms(root, constants=False), 1)), 0)
    assert root in inside
    assert deep not in inside
    assert len(visited) < 20


def test_only_fitting_parameters_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """All operators of the registry are tried. `conv1d` alone has 100,000 choices of attributes for these extents."""
    tried = 0

    @functools.wraps(apply)
    def counted(*arguments: Any, **attributes: Any) -> Term:
        nonlocal tried
        tried += 1
        return apply(*arguments, **attributes)

    x, c, s = (variable(name, shape) for name, shape in (("x", (1, 7, 11, 26)), ("c", (1, 11, 13)), ("s", (1, 11, 13))))
    one, other = (apply("slice", x, axis=-1, start=start, stop=start + 13) for start in (0, 13))
    cosines, sines = (apply("expand", t, shape=one.shape, axes=(-4, -2, -1)) for t in (c, s))
    along = apply("sub", apply("mul", one, cosines), apply("mul", other, sines))
    across = apply("add", apply("mul", other, cosines), apply("mul", one, sines))
    root = apply("reshape", apply("concat", along, across, axis=-1), shape=(7, 11, 26))
    gate = Gate(FpMode.RELAXED, {}, absorption, strict=False)
    monkeypatch.setattr("superopt.search.recombination.apply", counted)
    (found,) = recombinations((root,), sorted(registry()), gate).values()
    assert [term.op for term in found.values()] == ["rope"]
    assert tried < 1000
