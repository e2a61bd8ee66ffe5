"""Helpers that compare generated kernels with the definitions of operators, exactly over a prime field or in float32."""

from __future__ import annotations

import ctypes
import functools
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from superopt.algebra.evaluate import Array, Floats, evaluate_operator
from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Term, subterms, variables
from superopt.kernels.emit import PRIME, Target, functions_of
from superopt.kernels.library import compiler, text_of
from superopt.kernels.loops import PRODUCTS
from superopt.kernels.schedule import FUNCTIONS, KernelProgram, expanded

FIELD = ("-DFIELD", "-O0")
"""Flags for arithmetic in the prime field. This arithmetic is exact, so an optimized library would give the same results."""
SMALL = Target(4, 16)
"""A target with short vectors, so that small tensors have whole tiles, overlapping tiles and remainders of vectors."""
SHARED_WORK = 200.0
"""An amount of work so small that threads share small tensors."""
WORKERS = """
static void run_backwards(Workers *w, Share *share, const number *const *in, number *const *out, number *s, long n, long each) {
    for (long i = n / each; i-- > 0;) share(in, out, s, i * each, i == n / each - 1 ? n : (i + 1) * each);
}
static Workers backwards = {run_backwards};
"""
"""Code for one thread that takes the last iterations of a loop nest first."""
SALTS = {"exp": 101, "log": 103, "erf": 107, "sqrt": 109, "rsqrt": 113, "reciprocal": 127, "sigmoid": 131, "tanh": 137}


class Residue:
    """An array of residues modulo PRIME."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array, np.int64) % PRIME

    def __add__(self, other: Residue) -> Residue:
        return Residue(self.array + other.array)

    def __sub__(self, other: Residue) -> Residue:
        return Residue(self.array - other.array)

    def __mul__(self, other: Residue) -> Residue:
        return Residue(self.array * other.array)


def hashed(x: Residue, salt: int) -> Residue:
    return (x * x + Residue(salt)) * (x + Residue(3 * salt))


class Modular:
    """The arithmetic of `prelude.h` with FIELD: nonlinear functions are hashes, and comparisons compare residues."""

    tail = 0

    def read(self, array: Array) -> Residue:
        return Residue(array)

    def array(self, value: Residue) -> Array:
        return value.array

    def ndim(self, value: Residue) -> int:
        return value.array.ndim

    def sum(self, value: Residue) -> Residue:
        return Residue(value.array.sum(axis=0))

    def max(self, value: Residue) -> Residue:
        return Residue(value.array.max(axis=0))

    def select(self, condition: Any, then: Residue, other: Residue) -> Residue:
        return Residue(np.where(condition, then.array, other.array))

    def number(self, value: Any) -> Residue:
        if isinstance(value, np.ndarray):
            return Residue(value)
        if math.isinf(value):
            return Residue(5 if value > 0 else 0)
        exact = Fraction(value)
        return Residue(exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME)

    def lowest(self) -> Residue:
        return Residue(0)

    def call(self, function: str, *values: Residue) -> Residue:
        return FIELD_FUNCTIONS[function](*values)


def _larger(a: Residue, b: Residue) -> Residue:
    return Residue(np.maximum(a.array, b.array))


def _power(v: Residue, exponent: Residue) -> Residue:
    found = hashed(v, 139) + hashed(exponent, 149)
    product = v
    for n in PRODUCTS:
        product = product * v
        found = Residue(np.where(exponent.array == n, product.array, found.array))
    return found


FIELD_FUNCTIONS: dict[str, Callable[..., Residue]] = {
    **{name: functools.partial(hashed, salt=salt) for name, salt in SALTS.items()},
    "relu": lambda v: v,
    "larger": _larger,
    "power": _power,
    "positive": lambda v: Residue(v.array > 0),
    "zero": lambda v: Residue(v.array == 0),
    "position": lambda v, n: Residue(v.array % n.array),
    "choose": lambda c, v, w: Residue(np.where(c.array != 0, v.array, w.array)),
}


def defined(roots: Sequence[Term], arrays: Mapping[str, Array], *, field: bool) -> list[Array]:
    """Evaluate the terms by their definitions, over the field or in float64."""
    domain: Any = Modular() if field else Floats()
    known: dict[Term, Array] = {}
    done: dict[Term, Term] = {}
    whole = [_without_recurrences(expanded(root, done)) for root in roots]
    for term in subterms(*whole):
        operands = tuple(known[a] for a in term.args)
        if term.is_variable:
            known[term] = arrays[term.name]
        elif term.op in FUNCTIONS and field:
            known[term] = FIELD_FUNCTIONS[term.op](Residue(operands[0])).array
        else:
            known[term] = evaluate_operator(term.op, operands, dict(term.attributes), domain)
    return [known[root] for root in whole]


def _without_recurrences(root: Term) -> Term:
    """Return the term with each recurrence replaced by its steps."""
    done: dict[Term, Term] = {}
    for term in subterms(root):
        args = tuple(done[a] for a in term.args)
        unrolled = operator(term.op).unrolled if not term.is_variable else None
        if unrolled is not None:
            done[term] = expanded(unrolled(*args), {})
        else:
            done[term] = term if args == term.args else apply(term.op, *args, **dict(term.attributes))
    return done[root]


def random_arrays(roots: Sequence[Term], seed: int, *, field: bool) -> dict[str, Array]:
    """Return random values of the variables: residues or float32 numbers."""
    rng = np.random.default_rng(seed)
    if field:
        return {x.name: rng.integers(0, PRIME, x.sizes) for x in variables(*roots)}
    return {x.name: rng.standard_normal(x.sizes).astype(np.float32) for x in variables(*roots)}


def source_of(programs: Sequence[KernelProgram], target: Target) -> str:
    """Return C source with one function for each program: `kernel0`, `kernel1` and so on."""
    parts = [f"#define W {target.lanes}", text_of("prelude.h"), WORKERS]
    for i, program in enumerate(programs):
        parts.append(functions_of(program, f"run{i}", target, SHARED_WORK))
        parts.append(
            f"void kernel{i}(const number *const *in, number *const *out, number *s) {{ run{i}(in, out, s, &backwards); }}"
        )
    return "\n".join(parts)


def compiled(programs: Sequence[KernelProgram], target: Target, folder: Path, flags: Sequence[str]) -> ctypes.CDLL:
    """Compile the source of the programs to a library."""
    path = folder / f"kernels{len(list(folder.iterdir()))}.so"
    path.with_suffix(".c").write_text(source_of(programs, target))
    command = [*compiler(), "-O1", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-w", "-Wno-psabi", *flags]
    subprocess.run([*command, str(path.with_suffix(".c")), "-o", str(path), "-lm"], check=True)
    return ctypes.CDLL(str(path))


def operands_of(program: KernelProgram, arrays: Mapping[str, Array], *, field: bool) -> list[Array]:
    """Return the arrays that the kernel reads, in the element type of the library: inputs first, then weights."""
    kind = np.int64 if field else np.float32
    weights = [defined([term], arrays, field=field)[0] for term in program.weights]
    return [np.ascontiguousarray(a, kind) for a in (*(arrays[name] for name in program.inputs), *weights)]


def ran(library: ctypes.CDLL, number: int, program: KernelProgram, arrays: Mapping[str, Array], *, field: bool) -> list[Array]:
    """Run one kernel and return its outputs. Elements that the kernel does not write are 77."""
    inputs = operands_of(program, arrays, field=field)
    kind = np.int64 if field else np.float32
    outputs = [np.full(buffer.shape, 77, kind) for buffer in program.outputs.values()]
    scratch = np.zeros(program.scratch_size + 1, kind)
    pointers = [(ctypes.c_void_p * (len(some) + 1))(*(a.ctypes.data for a in some)) for some in (inputs, outputs)]
    getattr(library, f"kernel{number}")(*pointers, ctypes.c_void_p(scratch.ctypes.data))
    return outputs


def sanitized(programs: Sequence[KernelProgram], target: Target, folder: Path) -> str:
    """Run the kernels with the address and undefined-behaviour sanitizers, and return the error output.

    Each buffer has exactly the size that the kernel needs.
    """
    lines = ["#include <stdlib.h>", source_of(programs, target), "int main(void) {"]
    for i, program in enumerate(programs):
        for letter, buffers in (
            ("in", [*program.inputs.values(), *program.weights.values()]),
            ("out", [*program.outputs.values()]),
        ):
            calls = ", ".join(f"calloc({math.prod(b.shape)}, sizeof(number))" for b in buffers)
            lines.append(f"number *{letter}{i}[] = {{{calls}}};")
        lines.append(f"number *s{i} = calloc({program.scratch_size}, sizeof(number));")
        lines.append(f"run{i}((const number *const *)in{i}, out{i}, s{i}, &backwards);")
    lines.append("return 0; }")
    file = folder / "sanitized.c"
    file.write_text("\n".join(lines))
    flags = ["-O0", "-g", "-march=native", "-std=gnu11", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([*compiler(), *flags, str(file), "-o", str(folder / "sanitized"), "-lm"], check=True)
    done = subprocess.run(
        [str(folder / "sanitized")], capture_output=True, text=True, check=False, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    return done.stderr if done.returncode else ""
