"""Layers side by side made one, from the inputs to the outputs: what pays only when the last of a chain is joined.

Equal branches (experts, towers, tables of embeddings) are joined where they begin by rules of several outputs, again and again
until one operator is left; what took their parts is joined next, and so on until the branches end. Each join by itself leaves
slices and concatenations behind, which cancel when the next one is made: so no estimate is asked on the way, but for which of
several rules joins a layer best.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from superopt.active import expired
from superopt.graph import Shape, Term
from superopt.rewrite.apply import MOVES, State, computed, siblings
from superopt.rewrite.meeting import beneath
from superopt.rewrite.sweeper import Sweeper, Swept

Place: TypeAlias = "tuple[int, str, tuple[float, ...]]"
"""A place in a term: into how many parts that falls, negative; its key; and where in it."""
LEAST = 4
"""How many siblings of one operator and shape make a layer that is worth joining."""


def layered(start: Swept, sweeper: Sweeper) -> Iterator[Swept]:
    """The state after each layer from the inputs on is joined, and what the last was when time was out.

    A layer that no rule joins, or not within the ceiling of the sweeper before what cancels is tidied, is left as it is.
    """
    here, told, level = start, start, 0
    while not expired(sweeper.deadline) and (layers := siblings(computed(here.state)))[level:]:
        joined = _joined(here, sweeper, level, layers[level])
        if joined is None:
            level += 1
            if here is not told:
                yield (told := here)
        else:
            here = joined
    if here is not told:
        yield here


def wide(state: State) -> bool:
    """Whether `LEAST` siblings or more are of one operator and shape."""
    return any(_alike(layer) for layer in siblings(computed(state)))


def _alike(layer: Sequence[Term]) -> list[list[Term]]:
    """The terms of the layer that compute something, by operator and shape, where `LEAST` or more are of one."""
    kinds: dict[tuple[str, Shape], list[Term]] = {}
    for term in layer:
        if term.op not in MOVES:
            kinds.setdefault((term.op, term.shape), []).append(term)
    return [same for same in kinds.values() if len(same) >= LEAST]


def _joined(here: Swept, sweeper: Sweeper, level: int, layer: Sequence[Term]) -> Swept | None:
    """The state with the terms of one operator and shape of the layer joined by the rules that are estimated to join them best;
    None if no rule makes them fewer.
    """
    for same in _alike(layer):
        firsts = _ends(here, sweeper, same)
        best = min((_repeated(first, rule, sweeper, level, same) for rule, first in firsts.items()), key=_cost, default=here)
        if _cost(best)[0] < _cost(here)[0]:
            return best
    return None


def _ends(here: Swept, sweeper: Sweeper, layer: Sequence[Term]) -> dict[str, Swept]:
    """Where each rule leads that joins terms of the layer two by two."""
    live = computed(here.state)
    joined = sweeper.joins([sorted(layer, key=_order(live))], live)
    ends = {rule: sweeper.swept(here, rule, matches) for rule, matches in joined.items()}
    return {rule: sweeper.tidied(end) for rule, end in ends.items() if end is not None}


def _repeated(here: Swept, rule: str, sweeper: Sweeper, level: int, same: Sequence[Term]) -> Swept:
    """Where joining what some of the layer are made into leads, until no two are found: by the rule while it finds any, then by
    the one that leaves the cheapest.
    """
    while not expired(sweeper.deadline):
        layers = siblings(computed(here.state))[level : level + 1]
        ends = _ends(here, sweeper, [term for layer in layers for term in layer if _is_made_of(term, same)])
        after = ends[rule] if rule in ends else min(ends.values(), key=_cost, default=here)
        if _cost(after)[0] >= _cost(here)[0]:
            break
        here = after
    return here


def _is_made_of(term: Term, same: Sequence[Term]) -> bool:
    """Whether some of these, which are of one operator and shape, could have been joined to the term, along some axis or one of
    its own.
    """
    one = same[0]
    if term.op != one.op or term.rank < one.rank:
        return False
    shape = (1,) * (term.rank - one.rank) + one.shape
    wider = [(a, b) for a, b in zip(term.shape, shape, strict=True) if a != b]
    multiples = (not isinstance(a, int) or not isinstance(b, int) or a in range(b, b * len(same) + 1, b) for a, b in wider)
    return len(wider) <= 1 and all(multiples)


def _order(live: Sequence[Term]) -> Callable[[Term], tuple[bool, Place]]:
    """What sorts terms so that parts meet in their order: by the places in what they are put together to, or by the parts
    that stand beside what is made of them; where nothing tells, by the parts of a term that they are applied to. What falls
    into more parts goes before.
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
    """The part that an operator is applied to, of the term that falls into most; None where it is applied to several of one."""
    found: list[Place] = []
    for part in map(beneath, term.args):
        if part.op == "slice" and not part.constant:
            start = part["start"]
            found.append((-pieces[part.args[0]], part.args[0].key, (start if isinstance(start, int) else math.inf,)))
    return min(found) if found and len({whole for _, whole, _ in found}) == len(found) else None


def _cost(swept: Swept) -> tuple[int, float]:
    """How many operators compute something, and what all of them are estimated to take."""
    return sum(term.op not in MOVES for term in computed(swept.state)), swept.estimate
