"""The roofline estimate of a state's time, computed only from arithmetic, memory traffic and kernel launches.

The estimate orders candidates before they are measured. Searches also use the estimate to skip candidates that are likely to be
much slower than the start.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass

from superopt.algebra.operators import operator
from superopt.algebra.terms import Term
from superopt.policy import COST
from superopt.rules.work import work
from superopt.search.apply import run_time_terms
from superopt.speclib.gather_nd import unflattened


@dataclass(frozen=True)
class Machine:
    """The speed of a machine.

    Attributes:
        operations: operations per second that kernels achieve.
        traffic: bytes per second that kernels achieve.
        launch: seconds that a kernel launch takes.
        element: the size of an element in bytes.
        lanes: the number of channels that a grouped convolution computes at once.
    """

    operations: float
    traffic: float
    launch: float
    element: int = 4
    lanes: int = COST.convolution_lane_count


ACTIVATIONS = ("relu", "sigmoid", "tanh", "leaky_relu", "clip", "hard_sigmoid")
"""Activations that ONNX Runtime computes in the kernel of a convolution, or of a product with a bias (Gemm)."""

CPU = Machine(COST.cpu_operations_per_second, COST.cpu_bytes_per_second, COST.cpu_launch_seconds)
"""One AVX-512 core."""
CUDA = Machine(COST.gpu_operations_per_second, COST.gpu_bytes_per_second, COST.gpu_launch_seconds)
"""A GPU at batch size 1. At this batch size, kernels do not reach the GPU's peak rates."""


def estimate_seconds(state: tuple[Term, ...], machine: Machine) -> float:
    """Return the estimated seconds of one run of the state.

    Terms that depend only on weights cost nothing. Operands that ONNX broadcasts also cost nothing, unless the operands are
    reshaped. Terms that one kernel computes count as one launch: a product with its bias and activation, all slices of one
    operand, a concatenation of concatenations, a Gather with the reshape of its indices, and the constants of one sum or
    product.
    """
    live = run_time_terms(state)
    free = _taken_in(live, state)
    return sum(_term(t, machine) for t in live if t not in free) - _together(live, state) * machine.launch


def _together(live: list[Term], state: tuple[Term, ...]) -> float:
    """Return the number of kernel launches that a run of the state saves because one kernel computes several terms."""
    uses = Counter(itertools.chain(state, *(t.args for t in live)))
    parts = Counter((t.args[0], t["axis"]) for t in live if t.op == "slice")
    joined = {a for t in live if t.op == "concat" for a in t.args if a.op == "concat" and a["axis"] == t["axis"]}
    biased = {t for t in live if _is_bias(t) and any(_takes_bias(a) and uses[a] == 1 for a in t.args)}
    hosts = {t for t in live if t.op == "conv"} | biased
    activated = sum(t.op in ACTIVATIONS and t.args[0] in hosts and uses[t.args[0]] == 1 for t in live)
    shaped = [t for t in live if t.op == "reshape" and unflattened(t, lambda x: uses[x] == 1)]
    flat = sum(1 + (uses[t.args[0].args[1]] == 1) for t in shaped)
    moved = sum(parts.values()) - len(parts) + sum(not a.constant for a in joined)
    return len(biased) + activated + COST.reshape_launch_share * flat + COST.split_launch_share * moved


def _taken_in(live: list[Term], state: tuple[Term, ...]) -> set[Term]:
    """Return the transposes that cost nothing because only matrix products read them.

    ONNX Runtime fuses such transposes into the products (MatmulTransposeFusion). A reshape between a transpose and its product
    may add leading axes of extent 1.
    """
    moved = {t for t in live if t.op == "transpose" and _is_read_through(t.integers("perm"))}
    if not moved:
        return moved
    wider = {t for t in live if t.op == "reshape" and t.args[0] in moved and t.sizes[-t.args[0].rank :] == t.args[0].sizes}
    apart = {a for t in live if t.op != "matmul" for a in t.args if a in wider or (a in moved and t not in wider)}
    apart.update(state)
    return {t for t in moved if t not in apart} - {w.args[0] for w in wider if w in apart}


def _is_read_through(perm: tuple[int, ...]) -> bool:
    """Return whether the permutation moves the first axis to the place directly before or directly after the last axis.

    A matrix product can also read an operand whose last two axes are swapped. This function returns False for the swap, so that
    the swap has a cost. The operand of a swap is often a copy. Rules that move the transpose below the copy make the copy
    disappear.
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
        return COST.reshape_launch_share * machine.launch + (
            _copied(term.args[0], machine) if term.args[0].op == "expand" else 0.0
        )
    counted = work(term, machine.element)
    unread = sum(math.prod(a.sizes) - math.prod(a.args[0].sizes) for a in term.args if a.op == "expand")
    starts = max(len(_combined(term)) - 1, 1) if operator(term.op).commutative else 1
    bytes_moved = max(counted.bytes - unread * machine.element, 0)
    full = _fullness(term, machine.lanes)
    moves = 0.0 if full == 1 else _moved(term.args[0], machine) + _moved(term, machine)
    computing = counted.flops / full / machine.operations
    return max(computing, bytes_moved / machine.traffic) + starts * machine.launch + moves


def _fullness(term: Term, lanes: int) -> float:
    """Return the share of the vector lanes that the channels of one group of the convolution `term` occupy.

    The share is less than 1 only for convolutions that have several groups and more than one channel in each group.
    """
    if term.op != "conv" or term.integer("group") == 1 or (depth := term.args[1].sizes[1]) == 1:
        return 1.0
    return depth / (math.ceil(depth / lanes) * lanes)


def _moved(term: Term, machine: Machine) -> float:
    """Return the seconds of copying the term to a different layout.

    A convolution needs these copies if its groups leave vector lanes empty: ONNX Runtime does not compute such groups in blocks
    of channels.
    """
    return _moving(2 * math.prod(term.sizes), machine)


def _combined(term: Term) -> list[Term]:
    """Return the operands of a sum or product. All constants count as one operand, because the constants are folded before the
    run.
    """
    constant = [a for a in term.args if a.constant]
    return [a for a in term.args if not a.constant] + constant[:1]


def _copied(term: Term, machine: Machine) -> float:
    """Return the seconds of a separate operator that writes the broadcast operand `term` in full."""
    return _moving(math.prod(term.sizes) + math.prod(term.args[0].sizes), machine)


def _moving(elements: int, machine: Machine) -> float:
    """Return the seconds of an operator that reads and writes `elements` elements in total."""
    return machine.launch + elements * machine.element / machine.traffic
