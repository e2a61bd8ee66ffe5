"""Write the large tensors of models to files, and replace these tensors in the ModelProto by references to the files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from superopt.errors import TargetError, first_line
from superopt.files import remove_scratch, scratch_folder
from superopt.model.load import Model, as_proto
from superopt.policy import MODEL
from superopt.protobuf.stored import StoredModel

_KNOWN = frozenset({ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64})
"""The types of conditions and indices. Tensors of these types are moved to files only if they are especially large, because
programs that load the model need the elements.
"""
_PAGE = 1 << 12


def externalize_tensors(model: Model, scratch: Scratch | None = None) -> StoredModel:
    """Return the model as a serialized ModelProto that refers to files for large tensors.

    The paths of the files are relative to the `folder` of the result. Tensors that are already in files stay there. If
    `scratch`, a temporary folder, is given, all other large tensors are written to files in this folder. For this purpose,
    Constant nodes with large tensors become initializers, because only initializers can be in files. ONNX Runtime itself makes
    the same conversion when it loads a model.

    Raises:
        TargetError: a file cannot be written.
    """
    copy = model.clone()
    if scratch is not None:
        for graph in copy.graphs():
            _store_constants(graph)
    values = [value for graph in copy.graphs() for value in graph.initializers.values()]
    laid_out = scratch.files([v.const_value for v in values if v.const_value is not None]) if scratch is not None else {}
    stored = [(value, laid_out.get(id(value.const_value), value.const_value)) for value in values]
    found = [(value, tensor) for value, tensor in stored if isinstance(tensor, ir.ExternalTensor)]
    files = [Path(tensor.path).resolve() for _, tensor in found]
    folder = Path(os.path.commonpath([file.parent for file in files])) if files else Path()
    for (value, tensor), file in zip(found, files, strict=True):
        value.const_value = ir.ExternalTensor(
            file.relative_to(folder),
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=value.name or "",
            base_dir=folder,
        )
    return StoredModel(as_proto(copy).SerializeToString(), folder)


class Scratch:
    """A temporary folder for the large tensors of models. A tensor that several models share is written once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = 0
        self._written: dict[int, tuple[ir.TensorProtocol, ir.ExternalTensor]] = {}

    def files(self, tensors: Sequence[ir.TensorProtocol]) -> dict[int, ir.ExternalTensor]:
        """Write each large tensor that is not yet in a file. Return a mapping from the `id` of each large tensor to the
        external tensor that replaces it.

        Raises:
            TargetError: the files cannot be written.
        """
        large = {id(tensor): tensor for tensor in tensors if _is_large(tensor)}
        known = {key: self._written[key][1] for key in large if key in self._written}
        new = {key: tensor for key, tensor in large.items() if key not in known}
        written = dict(zip(new, self._write([*new.values()]), strict=True))
        self._written |= {key: (new[key], file) for key, file in written.items() if not isinstance(new[key], ir.LazyTensor)}
        return known | written

    def _write(self, tensors: list[ir.TensorProtocol]) -> list[ir.ExternalTensor]:
        """Write the tensors to one file. Each tensor begins at the start of a page, so that ONNX Runtime can map it into
        memory.
        """
        if not tensors:
            return []
        self._files += 1
        try:
            return ir.external_data.convert_tensors_to_external(
                tensors,
                self.folder,
                f"{self._files}.data",
                alignment=_PAGE,
                align_threshold=MODEL.min_external_tensor_bytes - 1,
            )
        except OSError as error:
            raise TargetError(f"{self.folder}: cannot write: {error.strerror or first_line(error)}") from error


@contextmanager
def temporary_scratch() -> Iterator[Scratch]:
    """Yield a `Scratch` (temporary folder for large tensors), and remove it afterwards. Folders that were left behind by killed
    runs are removed first.

    Raises:
        TargetError: a temporary folder cannot be made.
    """
    remove_scratch()
    with scratch_folder() as folder:
        yield Scratch(folder)


def _is_large(tensor: ir.TensorProtocol) -> bool:
    if isinstance(tensor, ir.ExternalTensor) or tensor.dtype == ir.DataType.STRING:
        return False
    least = MODEL.min_external_integers_bytes if tensor.dtype in _KNOWN else MODEL.min_external_tensor_bytes
    return tensor.nbytes >= least


def _store_constants(graph: ir.Graph) -> None:
    """Replace each Constant node that contains a large tensor by an initializer with the name of the node's result."""
    for node in list(graph):
        attribute = node.attributes.get("value")
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or attribute is None:
            continue
        (old,), tensor = node.outputs, attribute.as_tensor()
        if old.is_graph_output() or not old.name or not _is_large(tensor):
            continue
        new = ir.Value(
            name=old.name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        ir.convenience.replace_all_uses_with(old, new)
        graph.remove(node, safe=True)
        graph.register_initializer(new)
