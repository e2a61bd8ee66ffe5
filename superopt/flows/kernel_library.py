"""Describe the library of kernels beside a model, or generate and compile the library again to check it."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from superopt.errors import CertificateError, CompilerError, InvalidModelError, ShapeError, first_line
from superopt.kernels.groups import Group, kernel_program
from superopt.kernels.install import Replaced, differing_call, library_source, with_kernels
from superopt.kernels.library import VECTORS, LibrarySource, build, compilation
from superopt.kernels.loops import UnsupportedError
from superopt.model.islands import Chart
from superopt.model.load import Model, as_model, as_proto, load
from superopt.protobuf.kernels import is_kernel_domain, library_files, model_of_library, without_kernels
from superopt.report.number_texts import counted


def check_library(optimized: str | os.PathLike[str], certified: Mapping[str, str]) -> str:
    """Return a sentence about the library of the model's kernels, or an empty text if the model calls no kernels.

    The C source is generated again from the nodes in the model's functions. If this machine has the compiler that made the
    library, the source is compiled again with the same flags. The library is not run. `certified` is the certificate's
    description of the library and its source (`Certificate.kernels`).

    Raises:
        CertificateError: The source or the library cannot be read, or is not the file that the certificate or the model names.
            Or the source differs from the generated source. Or a call passes other values to its kernel than the values for
            which the source is generated. Or the library differs from the compiled library.
        ModelNotFoundError, InvalidModelError: The model cannot be read.
    """
    loaded = load(optimized).model
    model = as_proto(loaded)
    functions = {(f.domain, f.name): f for f in model.functions if is_kernel_domain(f.domain)}
    if not functions:
        return ""
    file, text = library_files(optimized)
    content = _content(file) if file.exists() else None
    if content is not None and certified.get("library") not in (None, sha256(content).hexdigest()):
        raise CertificateError(f"{file} is not the library that the certificate names")
    if not text.exists():
        return f"{text.name} is missing, so the kernels were not checked"
    try:
        source = LibrarySource.of(_content(text).decode())
    except ValueError as error:
        raise CertificateError(f"{text}: {first_line(error)}") from error
    if any(certified.get(key, value) != value for key, value in source.described.items()):
        raise CertificateError(f"{text} is not the source that the certificate names")
    if {source.domain} != {domain for domain, _ in functions}:
        raise CertificateError(f"{text} is not the source of the kernels that {optimized} calls")
    bodies = [functions.get((source.domain, f"island_{i}")) for i in range(len(functions))]
    values = [{v for node in f.node for v in node.output if v} for f in bodies if f is not None]
    plain = as_model(without_kernels(model))
    again, made = _generated(plain, values, source)
    if made != (source.text, source.domain):
        raise CertificateError(f"{text} is not the source that this superopt generates from the functions of {optimized}")
    if name := differing_call(loaded, plain, again):
        raise CertificateError(f"the call of {name} in {optimized} passes other values than its kernel reads and writes")
    generated = f"{text.name} is generated from the nodes of the functions"
    if content is None:
        return f"{generated}; {file.name} is missing"
    if different := _not_compiled(source, content, file):
        named = f"{file.name} is the library that the certificate names, but" if "library" in certified else f"{file.name}"
        return f"{generated}; {named} was not compiled again: {different}"
    return f"{generated}, and {file.name} is compiled from it"


def _not_compiled(source: LibrarySource, content: bytes, file: Path) -> str:
    """Compile the source and compare the result with the library. If they are equal, return an empty text.

    If the library cannot be compared with the result, return the reason.

    Raises:
        CertificateError: The library differs from the result of the compiler.
    """
    try:
        if (here := compilation(source.target)) != source.made_by:
            other = here.partition(", -")[0]
            same = source.compiler == other
            return "it was made with other flags" if same else f"it was made by {source.compiler}, and here is {other}"
        with tempfile.TemporaryDirectory(prefix="superopt-verify-") as folder:
            again, once_more = (Path(folder) / f"{name}.so" for name in ("again", "once_more"))
            build(source.text, again, source.target)
            if again.read_bytes() == content:
                return ""
            build(source.text, once_more, source.target)
            if again.read_bytes() != once_more.read_bytes():
                return "the compiler makes other bytes each time"
    except (CompilerError, UnsupportedError) as error:
        return str(error)
    raise CertificateError(f"{file} is not the library that the compiler builds from its source")


def library_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return lines about kernels: the nodes that each kernel replaces, the kernel's tensors, and the library's compiler and
    flags.

    `path` is a model that calls kernels, the library beside the model, or the library's C source.

    Raises:
        ModelNotFoundError, InvalidModelError: The model, the library or its source cannot be read.
    """
    file, text, model = _read(path)
    source = None if text is None else _library_source(text)
    calls = [] if model is None else [node for node in model.graph if is_kernel_domain(node.domain)]
    if source is None and model is None:
        raise InvalidModelError(f"{path}: the folder contains neither the source of the library nor the model")
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
        raise InvalidModelError(f"{path}: the folder does not contain the source of the kernels")
    codes = {entry.name: entry.code for entry in _library_source(text).kernels}
    if name not in codes:
        raise InvalidModelError(f"{text} has no kernel {name!r}; its kernels are {', '.join(codes)}")
    return codes[name]


def _read(path: str | os.PathLike[str]) -> tuple[Path, Path | None, Model | None]:
    """Return the path of a library, the path of its source if the source exists, and the model if the model exists.

    `path` is the path of the library, of the source or of the model.
    """
    given = Path(path)
    beside = model_of_library(given)
    if beside is None and given.suffix in (".so", ".c"):
        raise InvalidModelError(f"{given}: a library of kernels must have the name that superopt gave to the library")
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


def _content(file: Path) -> bytes:
    """Return the content of the file.

    Raises:
        CertificateError: The file cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise CertificateError(f"{file}: {(error.strerror or str(error)).lower()}") from error


def _generated(plain: Model, functions: Sequence[set[str]], stored: LibrarySource) -> tuple[Model, tuple[str, str]]:
    """Generate kernels again, for the processor of the stored source. Return the model that calls the kernels, and a pair: the
    library's source and the operators' domain.

    `plain` is the model without kernels, and `functions` contains the names of the values that each function of the model
    computes.

    Raises:
        CertificateError: There are no kernels for the nodes of a function.
    """
    chart = Chart(plain)
    nodes = [node for island in chart.islands() for node in island.nodes]
    groups: list[Group] = []
    try:
        for values in functions:
            island = chart.island([node for node in nodes if any(v.name in values for v in node.outputs)])
            groups.append(Group(island, kernel_program(island, stored.target, 1 << 62)))
        made = library_source(plain, groups, stored.target, stored.made_by)
        names = {group: f"island_{i}" for i, group in enumerate(groups)}
        return with_kernels(plain, groups, stored.target, Replaced(plain, *made, names)).model, made
    except (ShapeError, LookupError) as error:
        raise CertificateError(f"the source of the kernels cannot be generated again: {first_line(error)}") from error
