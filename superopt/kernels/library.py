"""Shared libraries of kernels: the C source of a library, and the compiler that builds the library."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from superopt.errors import CompilerError, first_line
from superopt.kernels.emit import Target, functions_of
from superopt.kernels.loops import UnsupportedError
from superopt.kernels.schedule import KernelProgram
from superopt.policy import KERNELS
from superopt.protobuf.kernels import KERNEL_DOMAIN

FLAGS = (
    "-O3",
    "-fPIC",
    "-shared",
    "-pthread",
    "-s",
    "-std=gnu11",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
"""The flags of the C compiler. Clang rounds a product before it is added, unless the flags contain `-ffp-contract=fast`."""
QUIET_FLAGS = ("-w", "-Wno-psabi")
"""Flags that switch warnings off."""
TARGETS = {lanes: Target(lanes, registers) for lanes, registers in ((16, 32), (8, 16), (4, 16))}
"""The vectors of the processors for which libraries are made, by their float32 lanes."""
ZIG = (sys.executable, "-m", "ziglang", "cc")
"""The command of the C compiler in the Python package ziglang, which is based on clang."""
LEVELS = {16: "x86-64-v4", 8: "x86-64-v3"}
"""The levels of x86-64 processors, by the float32 lanes of their vectors. For other numbers of lanes, no level is given."""
VECTORS = {16: "AVX-512", 8: "AVX2", 4: "no AVX"}
"""The names of the vector instructions, by the float32 lanes of the vectors."""


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel of a library.

    Attributes:
        name: The name of the operator.
        program: The loop nests.
        unused: The number of further inputs, which come after the weights. Only the nodes in the model file read these inputs.
    """

    name: str
    program: KernelProgram
    unused: int = 0


def source_of(kernels: Sequence[LibraryKernel], target: Target, made_by: str) -> tuple[str, str]:
    """Return the C source of a library, and the operator domain in which the library registers the kernels.

    The domain is `KERNEL_DOMAIN`, a dot and a digest of the source. For the digest, the source contains the domain
    `KERNEL_DOMAIN` without a digest. `made_by` names the compiler and its flags, as `compilation` returns them. There is at
    least one kernel.
    """
    plain = _source(kernels, target, made_by)
    domain = f"{KERNEL_DOMAIN}.{digest_of(plain)}"
    return plain.replace(f'"{KERNEL_DOMAIN}"', f'"{domain}"'), domain


def _source(kernels: Sequence[LibraryKernel], target: Target, made_by: str) -> str:
    parts = [f"/* {made_by} */\n#define W {target.lanes}", text_of("prelude.h"), text_of("glue.h")]
    for kernel in kernels:
        program = kernel.program
        parts.append(functions_of(program, f"run_{kernel.name}", target))
        buffers = (*program.inputs.values(), *program.outputs.values())
        for i, buffer in enumerate(buffers):
            sizes = ", ".join(map(str, buffer.shape)) or "0"
            parts.append(f"static const int64_t sizes_{kernel.name}_{i}[] = {{{sizes}}};")
        shapes = ", ".join(f"{{{len(b.shape)}, sizes_{kernel.name}_{i}}}" for i, b in enumerate(buffers))
        parts.append(f"static const Extents shapes_{kernel.name}[] = {{{shapes}}};")
        kinds = ", ".join("6" if b.bits == 32 else "7" if b.bits else "1" for b in program.inputs.values()) or "0"
        parts.append(f"static const int kinds_{kernel.name}[] = {{{kinds}}};")
    rows = []
    for kernel in kernels:
        p, name = kernel.program, kernel.name
        counts = f"{len(p.inputs)}, {len(p.weights)}, {kernel.unused}, {len(p.outputs)}"
        rows.append(f'{{"{name}", {counts}, kinds_{name}, shapes_{name}, {p.scratch_size}, run_{name}}}')
    parts.append("static const Kernel kernels[] = {\n    " + ",\n    ".join(rows) + "\n};")
    operators = ", ".join(f"OPERATOR(&kernels[{i}])" for i in range(len(kernels)))
    parts.append(f"static const Operator operators[] = {{{operators}}};")
    parts.append(
        '__attribute__((visibility("default"))) Status *RegisterCustomOps(void *options, const ApiBase *base) {\n'
        f'    return register_kernels(options, base, "{KERNEL_DOMAIN}", operators, {len(kernels)});\n}}\n'
    )
    return "\n\n".join(parts)


@dataclass(frozen=True)
class KernelEntry:
    """A kernel, as the source of a library describes it.

    Attributes:
        name: The name of the operator.
        inputs: The shapes of the inputs.
        weights: The number of weights, which follow the inputs.
        outputs: The shapes of the outputs.
        scratch_bytes: The size of the memory for intermediate results.
        code: The C functions. The last function computes the outputs, and calls the other functions for parts of loops.
    """

    name: str
    inputs: tuple[tuple[int, ...], ...]
    weights: int
    outputs: tuple[tuple[int, ...], ...]
    scratch_bytes: int
    code: str


@dataclass(frozen=True)
class LibrarySource:
    """The C source of a library, as `source_of` returns it, and the facts about the library that the source states.

    Attributes:
        text: The C source.
        compiler: The name and the version of the compiler.
        flags: The flags of the compiler.
        target: The vectors of the processors for which the library is made.
        domain: The domain of the operators.
        kernels: The kernels.
    """

    text: str
    compiler: str
    flags: tuple[str, ...]
    target: Target
    domain: str
    kernels: tuple[KernelEntry, ...]

    @property
    def described(self) -> dict[str, str]:
        """The description of the source in a certificate: its SHA-256, the compiler and the flags."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return {"source": digest, "compiler": self.compiler, "flags": " ".join(self.flags)}

    @property
    def made_by(self) -> str:
        """The compiler and its flags, as `compilation` returns them."""
        return f"{self.compiler}, {' '.join(self.flags)}"

    @classmethod
    def of(cls, text: str) -> LibrarySource:
        """Return the source with this text.

        Raises:
            ValueError: The text is not the source of a library.
        """
        made_by = re.match(r"/\* ([^*\n]+?), (-[^*\n]+) \*/\n#define W (\d+)\n", text)
        domain = re.search(r'register_kernels\(options, base, "(.+)", operators, \d+\);', text)
        if made_by is None or domain is None or int(made_by[3]) not in TARGETS:
            raise ValueError("not the source of a library of kernels")
        rows = re.findall(r'(?m)^    \{"(\w+)", (\d+), (\d+), \d+, (\d+), \w+, \w+, (\d+), \w+\},?$', text)
        kernels = tuple(_entry(text, name, *map(int, numbers)) for name, *numbers in rows)
        return cls(text, made_by[1], tuple(made_by[2].split()), TARGETS[int(made_by[3])], domain[1], kernels)


def _entry(text: str, name: str, inputs: int, weights: int, outputs: int, scratch: int) -> KernelEntry:
    """Return the kernel `name`, as the source `text` describes it.

    The other arguments are the numbers of inputs, of weights, of outputs and of elements of scratch memory.
    """
    code = re.search(rf"(?ms)^static void run_{name}(_\d+)?\(.*?^}}\n(?=\n+static const int64_t sizes_{name}_0\[)", text)
    listed = re.search(rf"(?m)^static const Extents shapes_{name}\[\] = (.*);$", text)
    if code is None or listed is None:
        raise ValueError(f"the code of {name} is missing")
    shapes = []
    for rank, sizes in re.findall(r"\{(\d+), (\w+)\}", listed[1]):
        found = re.search(rf"(?m)^static const int64_t {sizes}\[\] = {{(.*)}};$", text)
        shapes.append(tuple(map(int, found[1].split(", ")))[: int(rank)] if found is not None else ())
    return KernelEntry(name, tuple(shapes[:inputs]), weights, tuple(shapes[inputs : inputs + outputs]), 4 * scratch, code[0])


def text_of(name: str) -> str:
    """Return the text of a C header of this package."""
    return resources.files("superopt.kernels").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def compiler() -> tuple[str, ...]:
    """Return the command of a C compiler.

    The result is the first available of: the environment variable `CC`, gcc, clang, the package ziglang.

    Raises:
        CompilerError: None of these compilers is installed.
    """
    if given := tuple(shlex.split(os.environ.get("CC", ""))):
        return given
    for name in ("gcc", "clang"):
        if shutil.which(name):
            return (name,)
    if find_spec("ziglang") is not None:
        return ZIG
    raise CompilerError("--kernels needs a C compiler: install gcc, clang or superopt[kernels]")


@functools.cache
def compiler_version() -> str:
    """Return the name and the version of the C compiler.

    Raises:
        CompilerError: There is no C compiler that works.
    """
    name = "ziglang, " if compiler() == ZIG else ""
    return name + _output_of("--version").splitlines()[0]


def flags_of(target: Target) -> tuple[str, ...]:
    """Return the compiler's flags for a library that runs on processors with these vectors."""
    level = LEVELS.get(target.lanes, "")
    name = level.replace("-", "_") if compiler() == ZIG else level
    return (*FLAGS, f"-march={name}", "-mprefer-vector-width=512") if level else FLAGS


@functools.cache
def native_target() -> Target:
    """Return the vectors of this machine's processor.

    Raises:
        CompilerError: There is no C compiler that works.
    """
    text = _output_of("-march=native", "-dM", "-E", "-x", "c", "/dev/null")
    macros = {line.split()[1] for line in text.splitlines() if line.startswith("#define")}
    if {"__AVX512F__", "__AVX512BW__", "__AVX512DQ__", "__AVX512VL__"} <= macros:
        return TARGETS[16]
    return TARGETS[8] if {"__AVX2__", "__FMA__", "__BMI2__"} <= macros else TARGETS[4]


def compilation(target: Target) -> str:
    """Return the name and the version of the C compiler, and its flags for a library for processors with these vectors.

    Raises:
        CompilerError: There is no C compiler that works.
    """
    return f"{compiler_version()}, {' '.join(flags_of(target))}"


def _output_of(*arguments: str) -> str:
    command = [*compiler(), *arguments]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=KERNELS.max_compile_seconds)
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"--kernels needs a C compiler that works: {first_line(error)}") from error
    return done.stdout


def build(source: str, path: Path, target: Target) -> None:
    """Compile the source to a shared library at `path`, for processors with these vectors. Write the source beside the library.

    Raises:
        CompilerError: There is no C compiler.
        UnsupportedError: The compiler rejects the source, or takes too long.
    """
    text = path.with_suffix(".c")
    text.write_text(source, encoding="utf-8")
    command = [*compiler(), *flags_of(target), *QUIET_FLAGS, str(text), "-o", str(path), "-lm"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=KERNELS.max_compile_seconds)
    except subprocess.TimeoutExpired as error:
        raise UnsupportedError(first_line(error)) from error
    if done.returncode:
        raise UnsupportedError(f"the C compiler failed: {first_line(RuntimeError(done.stderr))}")


def digest_of(source: str) -> str:
    """Return a digest of a library's source."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]
