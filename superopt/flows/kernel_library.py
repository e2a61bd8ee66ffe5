"""Describe the library of kernels beside a model, or generate and compile the library again to check it."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from superopt.errors import CertificateError, CompilerError, InvalidModelError, first_line
from superopt.kernels.groups import Group, kernel_program
from superopt.kernels.install import with_kernels
from superopt.kernels.library import VECTORS, LibrarySource, build
from superopt.kernels.loops import UnsupportedError
from superopt.model.islands import Chart
from superopt.model.load import Model, ModelProto, as_model, as_proto, load
from superopt.protobuf.kernels import is_kernel_domain, library_files, model_of_library, without_kernels
from superopt.report.number_texts import counted


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
            build(source, again, LibrarySource.of(source).target)
        except (CompilerError, UnsupportedError) as error:
            return f"{text.name} is generated from the nodes of the functions; it could not be compiled: {error}"
        if again.read_bytes() != file.read_bytes():
            raise CertificateError(f"{file} is not the library that the compiler builds from {text}")
    return f"{text.name} is generated from the nodes of the functions, and {file.name} is compiled from it"


def library_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return lines about kernels: the nodes that each kernel replaces, its tensors, and how the library was compiled.

    `path` is a model that calls kernels, the library beside the model, or the library's C source.

    Raises:
        ModelNotFoundError, InvalidModelError: The model, the library or its source cannot be read.
    """
    file, text, model = _read(path)
    source = None if text is None else _library_source(text)
    calls = [] if model is None else [node for node in model.graph if is_kernel_domain(node.domain)]
    if source is None and model is None:
        raise InvalidModelError(f"{path}: neither its source nor its model is beside it")
    if source is None and not calls:
        return [f"{path} calls no kernels"]
    entries = {} if source is None else {entry.name: entry for entry in source.kernels}
    called = {call.op_type: call for call in calls if source is None or call.domain == source.domain}
    lines: list[str] = []
    for name in entries or called:
        call, entry = called.get(name), entries.get(name)
        count = Counter(() if call is None or model is None else (n.op_type for n in model.functions[call.op_identifier()]))
        operators = ", ".join(f"{operator} {n}" if n > 1 else operator for operator, n in count.most_common())
        nodes = counted(count.total(), "node")
        lines.append(f"{name}: {nodes} ({operators})" if count else f"{name}: no model beside the library calls it")
        read, written = ([], []) if call is None else (_tensors(call.inputs), _tensors(call.outputs))
        if entry is not None:
            first, last = len(entry.inputs), len(entry.inputs) + entry.weights
            lines.append(f"    inputs: {', '.join(read[:first] or map(str, entry.inputs))}")
            lines.append(f"    weights: {', '.join(read[first:last]) or entry.weights}")
        lines.append(f"    outputs: {', '.join(written or map(str, entry.outputs if entry is not None else ()))}")
        lines += [f"    scratch memory: {entry.scratch_bytes:,} bytes"] if entry is not None else []
    lines.append(f"library: {file} ({f'{file.stat().st_size / 1024:.0f} KiB' if file.exists() else 'missing'})")
    if source is None:
        return [*lines, f"source: {library_files(path)[1]} (missing)"]
    if calls and not called:
        lines.append(f"the model calls kernels of another library: {calls[0].domain}")
    lines.append(f"source: {text}, digest {source.domain.rpartition('.')[2]}")
    lines.append(f"compiler: {source.compiler}")
    lines.append(f"flags: {' '.join(source.flags)}")
    lines.append(f"vectors: {source.target.lanes} float32 numbers ({VECTORS[source.target.lanes]})")
    return lines


def kernel_code(path: str | os.PathLike[str], name: str) -> str:
    """Return the C functions of a kernel. `path` is a model, its library, or the library's C source.

    Raises:
        ModelNotFoundError, InvalidModelError: A file cannot be read, or there is no source, or no kernel with this name.
    """
    _, text, _ = _read(path)
    if text is None:
        raise InvalidModelError(f"{path}: the source of its kernels is not beside it")
    codes = {entry.name: entry.code for entry in _library_source(text).kernels}
    if name not in codes:
        raise InvalidModelError(f"{text} has no kernel {name!r}; its kernels are {', '.join(codes)}")
    return codes[name]


def _read(path: str | os.PathLike[str]) -> tuple[Path, Path | None, Model | None]:
    """Return the path of a library, the path of its source if it exists, and the model if it exists. `path` is one of these."""
    given = Path(path)
    beside = model_of_library(given)
    if beside is None and given.suffix in (".so", ".c"):
        raise InvalidModelError(f"{given}: neither a model nor a library of kernels with the name that superopt gave it")
    model = given if beside is None else beside
    file, text = library_files(model)
    return file, text if text.exists() else None, load(model).model if beside is None or model.exists() else None


def _library_source(text: Path) -> LibrarySource:
    try:
        return LibrarySource.of(text.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidModelError(f"{text}: {first_line(error)}") from error


def _tensors(values: Iterable[Any]) -> list[str]:
    return ["" if v is None else f"{v.name} {'' if v.shape is None else tuple(v.shape)}".strip() for v in values]


def _source_of(model: ModelProto, functions: Sequence[set[str]], stored: str) -> str:
    """Return the C source of kernels for the functions.

    The source is for the processor that is named in `stored`, the stored source. Each element of `functions` contains the names
    of the values that one function computes.
    """
    plain = as_model(without_kernels(model))
    chart, target = Chart(plain), LibrarySource.of(stored).target
    nodes = [node for island in chart.islands() for node in island.nodes]
    groups: list[Group] = []
    for values in functions:
        island = chart.island([node for node in nodes if any(v.name in values for v in node.outputs)])
        groups.append(Group(island, kernel_program(island, target, 1 << 62)))
    return with_kernels(plain, groups, target).source
