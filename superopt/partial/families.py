"""The programs whose mutants are turned into rules. Each program is a single operator that sums numbers or products.

A mutant is a term that equals a program at some output positions.
"""

from __future__ import annotations

from superopt.partial.sizes import ProgramFamily

MUTANTS = "mutants"
"""The name of the rule family that stores the rules found from mutants of `PROGRAMS`."""
IMAGE = "x.shape[-4] >= 2, x.shape[-3] >= 2, x.shape[-2] >= 7, x.shape[-1] >= 7"
KERNEL = "w.shape[-4] >= 2, w.shape[-2] <= 3, w.shape[-1] <= 3"
FILLED = "(x.shape[-2] + p0 + p2 - k0) % s0 == 0, (x.shape[-1] + p1 + p3 - k1) % s1 == 0, p0 + p1 + p2 + p3 >= 1"
LATTICE = "p0 % d == 0, p1 % d == 0, p2 % d == 0, p3 % d == 0, x.shape[-2] % d == 0, x.shape[-1] % d == 0"
POINTS = "x.shape[-4] >= 2, x.shape[-3] >= 2, x.shape[-2] >= 3, x.shape[-1] >= 3, w.shape[-4] >= 2"

PROGRAMS: tuple[ProgramFamily, ...] = (
    ProgramFamily(
        "average",
        "avg_pool(x, kernel=k, strides=s, pads=p)",
        "x[4], k[2], s[2], p[4]",
        typical=f"{IMAGE}, k0 >= 2, k1 >= 2, {FILLED}",
    ),
    ProgramFamily(
        "counted-average",
        "avg_pool(x, kernel=k, strides=s, pads=p, include_pads=1)",
        "x[4], k[2], s[2], p[4]",
        typical=f"{IMAGE}, k0 >= 2, k1 >= 2, {FILLED}",
    ),
    ProgramFamily(
        "dilated",
        "conv(x, w, pads=p, dilations=(d, d))",
        "x[4], w[4], p[4]",
        ("w",),
        f"{IMAGE}, {KERNEL}, w.shape[-2] >= 2, w.shape[-1] >= 2, d >= 2, {LATTICE}",
    ),
    ProgramFamily(
        "pointwise",
        "conv(x, w)",
        "x[4], w[4]",
        ("w",),
        f"{POINTS}, w.shape[-2] == 1, w.shape[-1] == 1",
    ),
)
