"""What was shown of an optimization, for a terminal: a line for each kind of step, then the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Steps that were shown to be right in one way: how many, at how many roots, by which rules; `log2_error` bounds the
    probability that one of them is wrong all the same, where they are not proved.
    """

    how: str
    steps: int
    roots: int
    rules: tuple[str, ...]
    log2_error: float | None = None


@dataclass(frozen=True)
class Verification:
    """All that there is to say of an optimization that holds.

    `rounded` counts weights that differ in their last places from what this machine makes of them; `errors` are those of both
    models, relative to the output's largest magnitude, against `reference` on `inputs`, where both were run.
    """

    original: str
    optimized: str
    kinds: Sequence[Kind]
    segments: int
    rounded: int
    errors: tuple[float, float] | None
    reference: str
    inputs: Sequence[str]


SHOWN = 4


def verified(found: Verification) -> list[str]:
    """One line for each kind of step, one for the run of both models, and the verdict."""
    lines = [_kind(kind) for kind in found.kinds]
    if found.rounded:
        lines.append(f"weights: {found.rounded} differ in their last places from what this machine makes of them")
    if found.errors is not None:
        before, after = (f"{error:.1e}" for error in found.errors)
        on = f"on {len(found.inputs)} inputs, against {found.reference}"
        lines.append(f"run: errors of {after} of the output's magnitude, the original's {before}, {on}")
    steps = sum(kind.steps for kind in found.kinds)
    what = f"{steps} steps in {found.segments} segments hold" if found.errors is not None else "it is the same model"
    return [*lines, f"{found.optimized} computes what {found.original} does: {what}"]


def _kind(kind: Kind) -> str:
    steps = f"{kind.how}: {_count(kind.steps, 'step')} at {_count(kind.roots, 'place')}"
    named = ", ".join(kind.rules[:SHOWN]) + (", …" if len(kind.rules) > SHOWN else "")
    bound = "" if kind.log2_error is None else f", each wrong with a probability of 2 ** {kind.log2_error:.0f} at most"
    return f"{steps}{bound} ({named})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
