"""Join the operators of equal parallel branches, layer by layer from the inputs to the outputs.

Equal branches are, for example, experts, towers or embedding tables. Rules with several outputs join two operators into one.
The rules first join the first operators of all branches, until one operator is left. Then the rules join the operators that
read parts of this operator's result. The layers are joined one by one in this way, until the branches end. Each join adds
slices and concatenations, which cancel only when the next layer is joined. A chain of joins therefore saves time only at its
end. For this reason, estimated times are used only to choose between rules that join the same layer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from superopt.algebra.terms import Shape, Term
from superopt.budget import expired
from superopt.policy import SEARCH
from superopt.search.apply import MOVES, State, run_time_terms, siblings
from superopt.search.meeting import below_reshapes
from superopt.search.sweeper import Sweeper, Swept

Place: TypeAlias = "tuple[int, str, tuple[float, ...]]"
"""A sort key of a slice: minus the number of slices of the sliced term, the key of the sliced term, and the slice's start."""


def join_layers(start: Swept, sweeper: Sweeper) -> Iterator[Swept]:
    """Join the operators of each layer, starting at the inputs. Yield the state after each joined layer.

    A layer contains the terms at one distance from the inputs. A layer stays unchanged if no rule joins its operators. A layer
    also stays unchanged if the estimated time after a join exceeds the sweeper's ceiling. The time is estimated before slices
    and concatenations cancel. When time runs out, the last state is yielded.
    """
    here, told, level = start, start, 0
    while not expired(sweeper.deadline) and (layers := siblings(run_time_terms(here.state)))[level:]:
        joined = _joined(here, sweeper, level, layers[level])
        if joined is None:
            level += 1
            if here is not told:
                yield (told := here)
        else:
            here = joined
    if here is not told:
        yield here


def has_wide_layer(state: State) -> bool:
    """Return whether a layer of the state has at least `SEARCH.min_layer_siblings` equal operators with results of equal shape.

    A layer contains the terms at one distance from the inputs.
    """
    return any(_alike(layer) for layer in siblings(run_time_terms(state)))


def _alike(layer: Sequence[Term]) -> list[list[Term]]:
    """Group the layer's terms by operator and shape, and return the groups.

    Groups that are too small, and operators that only move elements, are left out.
    """
    kinds: dict[tuple[str, Shape], list[Term]] = {}
    for term in layer:
        if term.op not in MOVES:
            kinds.setdefault((term.op, term.shape), []).append(term)
    return [same for same in kinds.values() if len(same) >= SEARCH.min_layer_siblings]


def _joined(here: Swept, sweeper: Sweeper, level: int, layer: Sequence[Term]) -> Swept | None:
    """Join terms with equal operators and shapes in `layer`, by the rule that leaves the fewest operators.

    `layer` contains the terms at the distance `level` from the inputs. Return the new state, or None if no rule reduces the
    operator count.
    """
    for same in _alike(layer):
        firsts = _ends(here, sweeper, same)
        best = min((_repeated(first, rule, sweeper, level, same) for rule, first in firsts.items()), key=_cost, default=here)
        if _cost(best)[0] < _cost(here)[0]:
            return best
    return None


def _ends(here: Swept, sweeper: Sweeper, layer: Sequence[Term], only: str = "") -> dict[str, Swept]:
    """Join terms in `layer` by each applicable rule. Return a mapping from rule names to the resulting states.

    If `only` is not empty, only the rule with this name is used.
    """
    live = run_time_terms(here.state)
    joined = sweeper.joins([sorted(layer, key=_order(live))], live, only)
    ends = {rule: sweeper.swept(here, rule, matches) for rule, matches in joined.items()}
    return {rule: sweeper.tidied(end) for rule, end in ends.items() if end is not None}


def _repeated(here: Swept, rule: str, sweeper: Sweeper, level: int, same: Sequence[Term]) -> Swept:
    """Join the terms in the list `same`, and join the results again, as long as each join removes operators.

    `rule` is used as long as `rule` matches. After that, each join uses the rule that leaves the fewest operators. Return the
    last state.
    """
    while not expired(sweeper.deadline):
        layers = siblings(run_time_terms(here.state))[level : level + 1]
        terms = [term for layer in layers for term in layer if _is_made_of(term, same)]
        ends = _ends(here, sweeper, terms, rule) or _ends(here, sweeper, terms)
        after = min(ends.values(), key=_cost, default=here)
        if _cost(after)[0] >= _cost(here)[0]:
            break
        here = after
    return here


def _is_made_of(term: Term, same: Sequence[Term]) -> bool:
    """Return whether `term` may be the result of joining terms in the list `same`.

    All terms in the list have the same operator and shape. Terms are joined along one of their axes or along a new axis.
    """
    one = same[0]
    if term.op != one.op or term.rank < one.rank:
        return False
    shape = (1,) * (term.rank - one.rank) + one.shape
    wider = [(a, b) for a, b in zip(term.shape, shape, strict=True) if a != b]
    multiples = (not isinstance(a, int) or not isinstance(b, int) or a in range(b, b * len(same) + 1, b) for a, b in wider)
    return len(wider) <= 1 and all(multiples)


def _order(live: Sequence[Term]) -> Callable[[Term], tuple[bool, Place]]:
    """Return a function that gives each term a sort key. Terms that are made from slices of one term are sorted in the order of
    the slices.

    A term gets the key of one of its users. If the user is a concatenation, the position in the concatenation is added to the
    key. A term whose users have no key gets the key of a slice among its operands (see `Place`). Slices of the term with the
    most slices come first.
    """
    pieces = Counter(term.args[0] for term in live if term.op == "slice")
    joints: dict[Term, int] = {}
    for term in live:
        if term.op == "concat":
            joints[term] = sum(joints.get(operand, 1) for operand in term.args)
    places: dict[Term, Place] = {}
    for term in reversed(live):
        if term not in places and term.op not in MOVES and (part := _part(term, pieces)) is not None:
            places[term] = part
        place = places.get(term, (-joints[term], term.key, ()) if term.op == "concat" else None)
        if place is None:
            continue
        count, whole, path = place
        for position, operand in enumerate(term.args):
            if whole != operand.key:
                here = count, whole, (*path, position) if term.op == "concat" else path
                places[operand] = min(places.get(operand, here), here)
    return lambda term: (term not in places, places.get(term, (0, "", ())))


def _part(term: Term, pieces: Mapping[Term, int]) -> Place | None:
    """Return the sort key (see `Place`) of the slice among the operands of `term`.

    `pieces` contains the number of slices of each sliced term. If several operands are slices, the result is the sort key of
    the slice whose sliced term has the most slices. The result is None if no operand is a slice, or if two operands are slices
    of the same term. Slices of constants do not count.
    """
    found: list[Place] = []
    for part in map(below_reshapes, term.args):
        if part.op == "slice" and not part.constant:
            start = part["start"]
            found.append((-pieces[part.args[0]], part.args[0].key, (start if isinstance(start, int) else math.inf,)))
    return min(found) if found and len({whole for _, whole, _ in found}) == len(found) else None


def _cost(swept: Swept) -> tuple[int, float]:
    """Return a sort key of the state: the number of operators that do arithmetic, and the estimated seconds of one run."""
    return sum(term.op not in MOVES for term in run_time_terms(swept.state)), swept.estimate
