"""Describe the library of kernels beside a model, or generate and compile the library again to check it."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from superopt.errors import CertificateError, CompilerError
from superopt.flows.optimized import library_files
from superopt.kernels.groups import Group, kernel_program
from superopt.kernels.install import with_kernels
from superopt.kernels.library import build, target_of
from superopt.kernels.loops import UnsupportedError
from superopt.model.islands import Chart
from superopt.model.load import ModelProto, as_model, as_proto, load
from superopt.protobuf.kernels import is_kernel_domain, without_kernels


def check_library(optimized: str | os.PathLike[str]) -> str:
    """Return a sentence about the library of the model's kernels. If the model calls no kernels, return an empty text.

    The C source is generated again from the nodes in the model's functions, and is compiled again.

    Raises:
        CertificateError: The source or the library beside the model differs from the newly generated source or library.
        ModelNotFoundError, InvalidModelError: The model cannot be read.
    """
    model = as_proto(load(optimized).model)
    functions = sorted((f for f in model.functions if is_kernel_domain(f.domain)), key=lambda f: int(f.name.split("_")[1]))
    if not functions:
        return ""
    file, text = library_files(optimized)
    if not (file.exists() and text.exists()):
        return f"{file.name} or {text.name} is missing, and was not checked"
    source = text.read_text(encoding="utf-8")
    try:
        made = _source_of(model, [{v for node in f.node for v in node.output if v} for f in functions], source)
    except (UnsupportedError, ValueError) as error:
        raise CertificateError(f"{text}: the source of the kernels cannot be generated again: {error}") from error
    if made.partition("\n")[2] != source.partition("\n")[2]:
        raise CertificateError(f"{text} is not the source of the kernels that {optimized} calls")
    if made != source:
        return f"{text.name} is generated from the nodes of the functions; {file.name} was made by another compiler"
    with tempfile.TemporaryDirectory(prefix="superopt-verify-") as folder:
        again = Path(folder) / "again.so"
        try:
            build(source, again, target_of(source))
        except (CompilerError, UnsupportedError) as error:
            return f"{text.name} is generated from the nodes of the functions; it could not be compiled: {error}"
        if again.read_bytes() != file.read_bytes():
            raise CertificateError(f"{file} is not the library that the compiler builds from {text}")
    return f"{text.name} is generated from the nodes of the functions, and {file.name} is compiled from it"


def library_lines(optimized: str | os.PathLike[str]) -> list[str]:
    """Return lines about the model's kernels: the nodes of each kernel, the library beside the model, and the compiler.

    Raises:
        ModelNotFoundError, InvalidModelError: The model cannot be read.
    """
    model = as_proto(load(optimized).model)
    functions = {(f.domain, f.name): f for f in model.functions if is_kernel_domain(f.domain)}
    if not functions:
        return [f"{optimized} calls no kernels"]
    lines: list[str] = []
    for call in model.graph.node:
        function = functions.get((call.domain, call.op_type))
        if function is not None:
            count = Counter(node.op_type for node in function.node)
            operators = ", ".join(f"{name} {n}" if n > 1 else name for name, n in count.most_common())
            lines.append(f"{call.op_type}: {len(function.node)} nodes ({operators}); writes {', '.join(call.output)}")
    file, text = library_files(optimized)
    size = f"{file.stat().st_size / 1024:.0f} KiB" if file.exists() else "missing"
    lines.append(f"library: {file} ({size})")
    if text.exists():
        source = text.read_text(encoding="utf-8")
        made_by = source.partition("\n")[0].removeprefix("/* ").removesuffix(" */")
        lines.append(f"source: {text} ({target_of(source).lanes} numbers in a vector), compiled by {made_by}")
    return lines


def _source_of(model: ModelProto, functions: Sequence[set[str]], stored: str) -> str:
    """Return the C source of kernels for the functions.

    The source is for the processor that is named in `stored`, the stored source. Each element of `functions` contains the names
    of the values that one function computes.
    """
    plain = as_model(without_kernels(model))
    chart, target = Chart(plain), target_of(stored)
    nodes = [node for island in chart.islands() for node in island.nodes]
    groups: list[Group] = []
    for values in functions:
        island = chart.island([node for node in nodes if any(v.name in values for v in node.outputs)])
        groups.append(Group(island, kernel_program(island, target, 1 << 62)))
    return with_kernels(plain, groups, target).source
