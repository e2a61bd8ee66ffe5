"""Layers side by side made one, from the inputs to the outputs: what pays only when the last of a chain is joined.

Equal branches (experts, towers, tables of embeddings) are joined where they begin by rules of several outputs, again and again
until one operator is left; what took their parts is joined next, and so on until the branches end. Each join by itself leaves
slices and concatenations behind, which cancel when the next one is made: so no estimate is asked on the way, but for which of
several rules joins a layer best.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from superopt.graph import Term
from superopt.match import Match
from superopt.rewrite.apply import MOVES, computed, siblings
from superopt.rewrite.sweeper import Swept, Sweeper, place

LEAST = 4
"""How many siblings of one operator and shape make a layer that is worth joining."""


def layered(start: Swept, sweeper: Sweeper) -> Iterator[Swept]:
    """The state after each layer from the inputs on is joined; nothing where there are no layers of `LEAST` siblings.

    A layer that no rule joins, or not within the ceiling of the sweeper, is left as it is.
    """
    here, level = start, 0
    while time.monotonic() < sweeper.deadline and (layers := siblings(computed(here.state)))[level:]:
        if level == 0 and not any(_wide(layer) for layer in layers):
            return
        joined = _joined(here, sweeper, sorted(layers[level], key=place))
        if joined is None:
            level += 1
            if here is not start:
                yield here
        else:
            here = joined


def _wide(layer: Sequence[Term]) -> bool:
    kinds = [(term.op, term.shape) for term in layer]
    return any(kinds.count(kind) >= LEAST for kind in set(kinds))


def _joined(here: Swept, sweeper: Sweeper, layer: Sequence[Term]) -> Swept | None:
    """The state with terms of the layer joined by the rule that leaves the cheapest one; None if no rule makes them fewer."""
    found: Mapping[str, list[Match]] = sweeper.joins([layer], computed(here.state))
    ends = (sweeper.swept(here, rule, matches) for rule, matches in found.items())
    fewer = [end for end in ends if end is not None and _computing(end) < _computing(here)]
    return min(map(sweeper.tidied, fewer), key=lambda end: end.estimate, default=None)


def _computing(swept: Swept) -> int:
    return sum(term.op not in MOVES for term in computed(swept.state))
