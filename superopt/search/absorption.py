"""Find the NaN and infinite inputs that reach or change the result of only one side of a rule.

Both sides are evaluated in IEEE arithmetic, by the definitions of their operators, at random small sizes. The inputs are random
numbers, in which some elements of one variable are replaced by NaN or an infinity. The file of an operator may contain a term
`KERNEL`, which states how kernels compute the operator. This term is then evaluated instead of the operator's definition.

For example, `where(c, x * y, 0)` is 0 wherever `c` is false, even if `y` is NaN there. Over the real numbers,
`where(c, x, 0) * y` equals this term. However, `where(c, x, 0) * y` is NaN wherever `y` is NaN.
"""

from __future__ import annotations

import functools
import itertools
import zlib

import numpy as np

from superopt.algebra.evaluate import Array, Floats, evaluate_terms
from superopt.algebra.operators import apply, registry
from superopt.algebra.terms import Term, subterms
from superopt.errors import InstantiationError, ShapeError
from superopt.notation.parsing import Equation, parse
from superopt.policy import SEARCH
from superopt.rules.instances import Instance, instantiations
from superopt.rules.rule import Rule
from superopt.search.gate import SPECIAL_VALUES, Absorption

POISONS = tuple(float(value) for value in SPECIAL_VALUES)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0)


@functools.cache
def absorption(rule: Rule) -> Absorption:
    """Return which NaN and infinite inputs reach the result of only one side of the rule.

    A comparison operator may turn NaN and infinite elements into finite numbers. If the finite elements of the two sides differ
    for this reason, the returned value says that NaN or infinities reach the right side.

    Both sides are evaluated on random values, some of which are NaN or infinite. The values depend only on the rule, so every
    call for a rule returns an equal result. If no random instance of the rule is found, the returned value says that the sides
    may differ for every variable.
    """
    rng = np.random.default_rng(zlib.crc32(str(rule).encode()))
    equations = rule.equations
    names = frozenset(name for equation in equations for name, _ in equation.ranks)
    exposed, different = set[tuple[str, str]](), set[tuple[str, str]]()
    partial, changes, evaluated = False, False, 0
    step = max(1, len(equations) // SEARCH.max_absorption_equations)
    for equation in equations[::step][: SEARCH.max_absorption_equations]:
        try:
            for instance in itertools.islice(instantiations(equation, rng), SEARCH.absorption_instance_count):
                one = _at(equation, instance, rng)
                exposed |= one.exposed
                different |= one.different
                partial |= one.partial
                changes |= one.changes
                evaluated += 1
        except (InstantiationError, ShapeError):
            continue
    if not evaluated:
        every = frozenset((name, value) for name in names for value in SPECIAL_VALUES)
        return Absorption(every, every, partial=True, changes=True)
    return Absorption(frozenset(exposed), frozenset(different), partial, changes)


def _at(equation: Equation, instance: Instance, rng: np.random.Generator) -> Absorption:
    """Return, for one instance of the equation, which NaN and infinite inputs reach the result of only one side.

    Several cases are evaluated at once, along an additional last axis of the values. In a case, either all values are finite,
    or some elements of one variable are NaN or infinite.
    """
    names = sorted(instance.shapes)
    cases = [("", 0.0)] * SEARCH.absorption_draw_count + [
        (name, poison) for name in names for poison in POISONS for _ in range(SEARCH.absorption_draw_count)
    ]
    arrays = {name: _drawn(name, instance.shapes[name], cases, rng) for name in names}
    roots = _as_kernels(equation.left + equation.right)
    with np.errstate(all="ignore"):
        values = evaluate_terms(roots, arrays, instance.value(), Floats(tail=1))
        values = tuple(np.broadcast_to(value, (*value.shape[:-1], len(cases))) for value in values)
    half = len(equation.left)
    worse, differs, changes = (np.zeros(len(cases), bool) for _ in range(3))
    for left, right in zip(values[:half], values[half:], strict=True):
        one, other = (_special(side).reshape(-1, side.shape[-1]) for side in (left, right))
        apart = _apart(*(side.reshape(-1, side.shape[-1]) for side in (left, right)))
        apart[:, : SEARCH.absorption_draw_count] = False
        worse |= (((one == 0) & (other != 0)) | apart).any(axis=0)
        differs |= ((one == 0) != (other == 0)).any(axis=0)
        changes |= (one != other).any(axis=0)
    exposed, different = (
        frozenset((name, str(poison)) for (name, poison), found in zip(cases, mask, strict=True) if found and name)
        for mask in (worse, differs)
    )
    changed = changes & ~worse
    return Absorption(
        exposed,
        different,
        partial=bool(worse[: SEARCH.absorption_draw_count].any()),
        changes=bool(changed[: SEARCH.absorption_draw_count].any()),
    )


def _as_kernels(roots: tuple[Term, ...]) -> tuple[Term, ...]:
    """Replace every operator that has a `KERNEL` term by this term, and return the new terms.

    A `KERNEL` term states how kernels compute an operator. A `KERNEL` term exists only if the operator's kernels and definition
    give NaN or infinities for different inputs.
    """
    done: dict[Term, Term] = {}
    for term in subterms(*roots):
        args = [done[arg] for arg in term.args]
        done[term] = term if args == [*term.args] else apply(term.op, *args, **dict(term.attributes))
        spec = registry().get(term.op) if args else None
        if spec is not None and spec.kernel:
            operands = dict(zip(spec.operands, args, strict=True))
            (done[term],) = parse(spec.kernel, operands, numbers=dict(term.attributes))
    return tuple(done[root] for root in roots)


def _apart(left: Array, right: Array) -> Array:
    """Return a mask of the elements at which both sides are finite and differ by more than rounding."""
    finite = np.isfinite(left) & np.isfinite(right)
    one, other = (np.where(finite, side, 0.0) for side in (left, right))
    scale = 1.0 + np.maximum(np.abs(one), np.abs(other)).max(axis=0, initial=0.0)
    return np.asarray(np.abs(one - other) > SEARCH.max_absorption_difference_share * scale)


def _special(values: Array) -> Array:
    """Return 0 for each finite element, 1 for infinity, -1 for minus infinity, and 2 for NaN."""
    return np.where(np.isnan(values), 2.0, np.where(np.isinf(values), np.sign(values), 0.0))


def _drawn(name: str, shape: tuple[int, ...], cases: list[tuple[str, float]], rng: np.random.Generator) -> Array:
    """Return random values of one variable for all cases.

    A case is a pair: the name of a variable, and NaN or an infinity. In a case with the name `name`, some elements of the
    variable are set to NaN or to this infinity. All other elements are finite.
    """
    size = (*shape, len(cases))
    values = np.where(rng.random(size) < 0.3, rng.choice(SPECIAL, size), rng.standard_normal(size))
    positive = rng.random(len(cases)) < 0.5
    values = np.where(positive, np.abs(values), values)
    for place, (poisoned, poison) in enumerate(cases):
        if poisoned == name:
            chosen = rng.random(shape) < rng.choice((0.1, 0.3, 0.6))
            if shape and not chosen.any():
                chosen.flat[rng.integers(chosen.size)] = True
            values[..., place] = np.where(chosen if shape else True, poison, values[..., place])
    return np.asarray(values, dtype=np.float64)
