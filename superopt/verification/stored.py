"""Check of values that the original computes and that the optimized model stores as weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, shape_inference

from superopt.errors import CertificateError
from superopt.policy import VERIFY
from superopt.verification.arrays import Array
from superopt.verification.certificates import Certificate
from superopt.verification.derivation import Tensors, same_bytes, values_of
from superopt.verification.inputs import Feeds
from superopt.verification.models import STANDARD, ModelSource, verified_attribute_bodies

RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose results may be random."""


def check_stored(original: ModelSource, optimized: ModelSource, certificate: Certificate, feeds: Feeds) -> None:
    """Check that each weight in `certificate.stored` equals the original's value of the same name for all inputs.

    The optimized model stores these values as weights. The original must compute the values from weights and fixed shapes
    alone. The values of the original are computed by a run on the inputs `feeds`.

    Raises:
        CertificateError: A weight differs from the value of the same name in the original, or this value depends on inputs.
    """
    tensors = Tensors(optimized)
    stored = {name: tensors.array(name) for name in certificate.stored if name in tensors.protos}
    values = values_of(original, [*stored], feeds) if stored else {}
    for name, array in stored.items():
        known = (
            name in values
            or (certificate.opset is None and not original.proto.functions)
            or array.size > VERIFY.max_untermed_elements
        )
        if known and not (name in values and same_bytes(np.asarray(values[name]), array)):
            raise CertificateError(f"weight {name!r} of the optimized model differs from the original's value of that name")
    if original.proto.functions or not (wrong := _dependent(original, stored, {})):
        return
    others = [name for node in original.proto.graph.node if node.domain not in STANDARD for name in node.output if name]
    if not others or (wrong := _dependent(original, stored, values_of(original, others, feeds))):
        raise CertificateError(
            f"weight {wrong!r} of the optimized model is a value that the original does not compute from weights and fixed "
            "shapes alone"
        )


def _dependent(original: ModelSource, stored: Mapping[str, Array], samples: Mapping[str, Array]) -> str:
    """Return the name of a stored value that may depend on inputs or on chance, or an empty string.

    `stored` contains the stored values, and `samples` contains values of the original whose shapes are fixed.
    """
    producers = {name: node for node in original.proto.graph.node for name in node.output}
    given = {port.name for port in original.inputs}
    fixed = _fixed_shapes(original, stored, samples)
    for start in stored:
        waiting, seen = [start], {""}
        while waiting:
            name = waiting.pop()
            node = producers.get(name)
            if name in given:
                return start
            if name in seen or node is None:
                continue
            seen.add(name)
            if node.domain not in STANDARD or node.op_type in RANDOM or any(map(verified_attribute_bodies, node.attribute)):
                return start
            if node.op_type not in ("Shape", "Size") or node.input[0] not in fixed:
                waiting += node.input
    return ""


def _fixed_shapes(original: ModelSource, stored: Mapping[str, Array], samples: Mapping[str, Array]) -> set[str]:
    """Return the names of the values whose shapes are the same for all inputs, as far as ONNX infers shapes.

    The nodes that compute stored values are replaced by weights. A stored value is never evidence for itself, because the shape
    of a value is inferred only from values on which it depends.
    """
    copy = ModelProto()
    copy.CopyFrom(original.proto)
    graph, tensors = copy.graph, Tensors(original)
    kept = [node for node in graph.node if not any(name in stored for name in node.output)]
    declared = [value for value in graph.value_info if value.name not in samples]
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and tensor.data_type == TensorProto.INT64:
            tensor.CopyFrom(numpy_helper.from_array(tensors.array(tensor.name), tensor.name))
    del graph.node[:], graph.value_info[:]
    graph.node.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items())
    graph.value_info.extend(declared)
    graph.value_info.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in samples.items()
    )
    try:
        inferred = shape_inference.infer_shapes(copy, data_prop=True).graph
    except Exception:  # noqa: BLE001
        return set()
    shapes = {v.name: v.type.tensor_type for v in (*inferred.value_info, *inferred.input, *inferred.output)}
    fixed = {
        name
        for name, kind in shapes.items()
        if kind.HasField("shape") and all(axis.HasField("dim_value") for axis in kind.shape.dim)
    }
    return fixed | tensors.protos.keys() | stored.keys()
