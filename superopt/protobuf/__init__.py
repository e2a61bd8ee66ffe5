"""ONNX files as protobuf messages: validation, stored bytes, nested graphs, names, nodes and map types.

The package imports onnx, `superopt.errors` and the terms of `superopt.algebra`. The package does not translate nodes to terms,
fold constants or infer shapes, so that `superopt.verification` may use the package. Read `stored` first, then `validate`.

    `stored`: a serialized model with its external data: size in bytes, digest, data files, parsing.
    `validate`: structural checks of a ModelProto that was read: text, tensor data, names defined once.
    `graphs`: all nested graphs of a model.
    `nodes`: lowered nodes and initializers as Python values, shorter chains of Reshape nodes, models of such nodes, schemas.
    `tensors`: the content of a tensor as bytes.
    `sparse`: dense tensors in place of sparse ones.
    `map_types`: map types (ZipMap), which onnx_ir cannot represent.
    `normalization`: the constants by which a model shifts and scales its inputs.
    `specialize`: fixes inputs and sizes of a model, and replaces Ifs by the nodes of one branch.
    `names`: placeholder names of unnamed dimensions.
"""
