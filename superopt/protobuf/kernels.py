"""Calls of compiled kernels in a model: recognize calls, replace calls by nodes, and name the files of the library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from onnx import FunctionProto, ModelProto, NodeProto

from superopt.errors import CertificateError

KERNEL_DOMAIN = "superopt.kernels"
"""The beginning of the domain of each call. The domain continues with a dot and a digest of the kernels' source."""
ENDS = (".so", ".c")
"""The suffixes of a library of kernels and of its C source."""


def library_files(model: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return the path of the library of kernels that is saved with the model, and the path of the library's C source.

    The library of `m.onnx` is `m.kernels.so`. The library of any other file `m` is `m-kernels.so`, so that no two models in a
    folder have the same library.
    """
    path = Path(model)
    stem = f"{path.stem}.kernels" if path.suffix == ".onnx" else f"{path.name}-kernels"
    library, source = (path.with_name(stem + end) for end in ENDS)
    return library, source


def model_of_library(path: Path) -> Path | None:
    """Return the path of the model that is saved with the library of kernels, or with the C source, at this path.

    Return None if the path is not the path of a library or of its source.
    """
    for end, suffix in ((".kernels", ".onnx"), ("-kernels", "")):
        if path.suffix in ENDS and path.stem.endswith(end) and path.stem != end:
            return path.with_name(path.stem.removesuffix(end) + suffix)
    return None


def without_kernels(model: ModelProto) -> ModelProto:
    """Return the model with each call of a kernel replaced by the nodes of the called function.

    A model without such calls is returned unchanged. A value in a function has the name that the value had in the graph.
    Weights that only kernels read are left out.

    Raises:
        CertificateError: A call and its function have different names of values, or different opsets.
    """
    functions = {(f.domain, f.name): f for f in model.functions if is_kernel_domain(f.domain)}
    if not functions:
        return model
    opsets = {o.domain: o.version for o in model.opset_import}
    for node in model.graph.node:
        function = functions.get((node.domain, node.op_type))
        if function is None:
            continue
        same = [*function.input] == [*node.input] and [*function.output] == [*node.output]
        if not same or any(opsets.get(o.domain) != o.version for o in function.opset_import):
            raise CertificateError(f"{node.op_type}: the function of the kernel is not the one that superopt wrote")
    changed = ModelProto()
    changed.CopyFrom(model)
    del changed.functions[:], changed.opset_import[:], changed.graph.node[:]
    changed.functions.extend(f for f in model.functions if not is_kernel_domain(f.domain))
    changed.opset_import.extend(o for o in model.opset_import if not is_kernel_domain(o.domain))
    changed.graph.node.extend(_inlined(model, functions))
    read = {name for node in changed.graph.node for name in _names(node)} | {value.name for value in changed.graph.output}
    calls = [node for node in model.graph.node if (node.domain, node.op_type) in functions]
    private = {name for node in calls for name in node.input} - read
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in private]
    del changed.graph.initializer[:]
    changed.graph.initializer.extend(kept)
    return changed


def is_kernel_domain(domain: str) -> bool:
    """Return whether the domain is a domain of nodes that call kernels."""
    return domain.startswith(f"{KERNEL_DOMAIN}.")


def _inlined(model: ModelProto, functions: dict[tuple[str, str], FunctionProto]) -> Iterator[NodeProto]:
    for node in model.graph.node:
        function = functions.get((node.domain, node.op_type))
        yield from [node] if function is None else function.node


def _names(node: NodeProto) -> Iterator[str]:
    """Yield the names that the node reads, including names that its subgraphs read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _names(inner)
            yield from (value.name for value in graph.output)
