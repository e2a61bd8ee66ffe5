"""The roofline estimate of a state: what arithmetic, memory traffic and kernel launches alone would cost.

The estimate orders candidates before anything is measured, and says how much dearer than its origin one may be.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from superopt.graph import Term, subterms
from superopt.op import operator
from superopt.work import work


@dataclass(frozen=True)
class Machine:
    """Operations and bytes per second that kernels reach, and the seconds that starting one takes."""

    operations: float
    traffic: float
    launch: float
    element: int = 4


CPU = Machine(operations=2.5e11, traffic=1e11, launch=2e-6)
"""One AVX-512 core: fitted to the measured times of 262 segments of seven models, half of them within 10 %."""
CUDA = Machine(operations=1e13, traffic=1e12, launch=5e-6)
"""A GPU at batch 1, which is far from its peak."""


def seconds(state: tuple[Term, ...], machine: Machine) -> float:
    """The estimated time of one run of the state; weight-only terms cost nothing, nor does what ONNX broadcasts by itself."""
    return sum(_term(t, machine) for t in subterms(*state) if not t.is_variable and not t.constant)


@functools.lru_cache(maxsize=1 << 18)
def _term(term: Term, machine: Machine) -> float:
    if term.op == "expand":
        return 0.0
    if term.op == "reshape":
        return machine.launch
    counted = work(term, machine.element)
    unread = sum(math.prod(a.sizes) - math.prod(a.args[0].sizes) for a in term.args if a.op == "expand")
    starts = max(len(term.args) - 1, 1) if operator(term.op).commutative else 1
    bytes_moved = max(counted.bytes - unread * machine.element, 0)
    return max(counted.flops / machine.operations, bytes_moved / machine.traffic) + starts * machine.launch
