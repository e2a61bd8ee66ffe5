"""The roofline estimate of a state: what arithmetic, memory traffic and kernel launches alone would cost.

The estimate orders candidates before anything is measured, and says how much dearer than its origin one may be.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass

from superopt.graph import Term
from superopt.op import operator
from superopt.rewrite.apply import computed
from superopt.rows import unflattened
from superopt.work import work


@dataclass(frozen=True)
class Machine:
    """Operations and bytes per second that kernels reach, and the seconds that starting one takes; how many channels of a
    convolution's group are computed at once.
    """

    operations: float
    traffic: float
    launch: float
    element: int = 4
    lanes: int = 16


ACTIVATIONS = ("relu", "sigmoid", "tanh", "leaky_relu", "clip", "hard_sigmoid")
"""What ONNX Runtime computes in the kernel of a convolution, or of a product with a bias (Gemm)."""
ALONGSIDE = 0.8
"""The share of a start that is saved where one Split makes many parts, or one Concat joins many."""
RENAMING = 0.25
"""The share of a start that a reshape takes, which moves nothing."""

CPU = Machine(operations=2.5e11, traffic=1e11, launch=2e-6)
"""One AVX-512 core: fitted to the measured times of 262 segments of seven models, half of them within 10 %."""
CUDA = Machine(operations=1e13, traffic=1e12, launch=5e-6)
"""A GPU at batch 1, which is far from its peak."""


def seconds(state: tuple[Term, ...], machine: Machine) -> float:
    """The estimated time of one run of the state.

    Weight-only terms cost nothing, nor does what ONNX broadcasts by itself, unless that is reshaped. What one kernel does
    together is started once: a bias and an activation with the product before them, all parts of an operand, a concatenation
    of concatenations, a lookup and the shape of its positions; the constants of one sum or product.
    """
    live = computed(state)
    free = _taken_in(live, state)
    return sum(_term(t, machine) for t in live if t not in free) - _together(live, state) * machine.launch


def _together(live: list[Term], state: tuple[Term, ...]) -> float:
    """How many starts of operators are saved, as others do what they do."""
    uses = Counter(itertools.chain(state, *(t.args for t in live)))
    parts = Counter((t.args[0], t["axis"]) for t in live if t.op == "slice")
    joined = {a for t in live if t.op == "concat" for a in t.args if a.op == "concat" and a["axis"] == t["axis"]}
    biased = {t for t in live if _is_bias(t) and any(_takes_bias(a) and uses[a] == 1 for a in t.args)}
    hosts = {t for t in live if t.op == "conv"} | biased
    activated = sum(t.op in ACTIVATIONS and t.args[0] in hosts and uses[t.args[0]] == 1 for t in live)
    shaped = [t for t in live if t.op == "reshape" and unflattened(t, lambda x: uses[x] == 1)]
    flat = sum(1 + (uses[t.args[0].args[1]] == 1) for t in shaped)
    moved = sum(parts.values()) - len(parts) + sum(not a.constant for a in joined)
    return len(biased) + activated + RENAMING * flat + ALONGSIDE * moved


def _taken_in(live: list[Term], state: tuple[Term, ...]) -> set[Term]:
    """Transposes that only products read, which do so without them (ONNX Runtime's MatmulTransposeFusion); so they do where
    axes of extent 1 are added in front.
    """
    moved = {t for t in live if t.op == "transpose" and _is_read_through(t.integers("perm"))}
    if not moved:
        return moved
    wider = {t for t in live if t.op == "reshape" and t.args[0] in moved and t.sizes[-t.args[0].rank :] == t.args[0].sizes}
    apart = {a for t in live if t.op != "matmul" for a in t.args if a in wider or (a in moved and t not in wider)}
    apart.update(state)
    return {t for t in moved if t not in apart} - {w.args[0] for w in wider if w in apart}


def _is_read_through(perm: tuple[int, ...]) -> bool:
    """Whether the first axis comes to stand before the last, or behind it. Where the last two trade places products read
    through that as well, but there it counts: what it stands on is often a copy, which goes where it moves inwards.
    """
    first, *others = range(-len(perm), 0)
    return len(perm) > 2 and perm in ((*others[:-1], first, -1), (*others, first))


def _takes_bias(term: Term) -> bool:
    return term.op == "conv" or (term.op == "matmul" and term.rank == 2)


def _is_bias(term: Term) -> bool:
    return term.op == "add" and len(term.args) == 2 and any(a.constant and a.op == "expand" for a in term.args)


@functools.lru_cache(maxsize=1 << 18)
def _term(term: Term, machine: Machine) -> float:
    if term.op == "expand":
        return 0.0
    if term.op == "reshape":
        return RENAMING * machine.launch + (_copied(term.args[0], machine) if term.args[0].op == "expand" else 0.0)
    counted = work(term, machine.element)
    unread = sum(math.prod(a.sizes) - math.prod(a.args[0].sizes) for a in term.args if a.op == "expand")
    starts = max(len(_combined(term)) - 1, 1) if operator(term.op).commutative else 1
    bytes_moved = max(counted.bytes - unread * machine.element, 0)
    full = _fullness(term, machine.lanes)
    moves = 0.0 if full == 1 else _moved(term.args[0], machine) + _moved(term, machine)
    computing = counted.flops / full / machine.operations
    return max(computing, bytes_moved / machine.traffic) + starts * machine.launch + moves


def _fullness(term: Term, lanes: int) -> float:
    """The share of the lanes that the channels of a convolution's group fill, where there are groups of several channels."""
    if term.op != "conv" or term.integer("group") == 1 or (depth := term.args[1].sizes[1]) == 1:
        return 1.0
    return depth / (math.ceil(depth / lanes) * lanes)


def _moved(term: Term, machine: Machine) -> float:
    """The time for a copy in another layout: groups that leave lanes empty are not convolved in blocks of channels."""
    return _moving(2 * math.prod(term.sizes), machine)


def _combined(term: Term) -> list[Term]:
    """The operands of a sum or product, of those that are constant one: they are combined beforehand."""
    constant = [a for a in term.args if a.constant]
    return [a for a in term.args if not a.constant] + constant[:1]


def _copied(term: Term, machine: Machine) -> float:
    """The time for writing what is the same along some axes as often as that, by an operator of its own."""
    return _moving(math.prod(term.sizes) + math.prod(term.args[0].sizes), machine)


def _moving(elements: int, machine: Machine) -> float:
    """The time of an operator that reads and writes so many elements together."""
    return machine.launch + elements * machine.element / machine.traffic
