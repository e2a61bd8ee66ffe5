"""Layers side by side made one, from the inputs to the outputs: what pays only when the last of a chain is joined.

Equal branches (experts, towers, tables of embeddings) are joined where they begin by rules of several outputs, again and again
until one operator is left; what took their parts is joined next, and so on until the branches end. Each join by itself leaves
slices and concatenations behind, which cancel when the next one is made: so no estimate is asked on the way, but for which of
several rules joins a layer best.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from superopt.graph import Term
from superopt.rewrite.apply import MOVES, State, computed, siblings
from superopt.rewrite.sweeper import Sweeper, Swept, place

LEAST = 4
"""How many siblings of one operator and shape make a layer that is worth joining."""


def layered(start: Swept, sweeper: Sweeper) -> Iterator[Swept]:
    """The state after each layer from the inputs on is joined.

    A layer that no rule joins, or not within the ceiling of the sweeper before what cancels is tidied, is left as it is.
    """
    here, told, level = start, start, 0
    while time.monotonic() < sweeper.deadline and (layers := siblings(computed(here.state)))[level:]:
        joined = _joined(here, sweeper, sorted(layers[level], key=place))
        if joined is None:
            level += 1
            if here is not told:
                yield (told := here)
        else:
            here = joined


def wide(state: State) -> bool:
    """Whether `LEAST` siblings or more are of one operator and shape."""
    layers = ([(term.op, term.shape) for term in layer if term.op not in MOVES] for layer in siblings(computed(state)))
    return any(layer.count(kind) >= LEAST for layer in layers for kind in set(layer))


def _joined(here: Swept, sweeper: Sweeper, layer: Sequence[Term]) -> Swept | None:
    """The state with terms of the layer joined by the rule that leaves the fewest, tidied; None if no rule makes them fewer."""
    found = sweeper.joins([layer], computed(here.state))
    ends = (sweeper.swept(here, rule, matches) for rule, matches in found.items())
    fewest = min((end for end in ends if end is not None), key=_cost, default=here)
    return sweeper.tidied(fewest) if _cost(fewest)[0] < _cost(here)[0] else None


def _cost(swept: Swept) -> tuple[int, float]:
    """How many operators compute something, and what all of them are estimated to take."""
    return sum(term.op not in MOVES for term in computed(swept.state)), swept.estimate
