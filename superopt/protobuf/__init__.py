"""ONNX files as protobuf messages: validation, stored bytes, nested graphs, names, nodes and map types.

The package imports onnx, `superopt.errors` and the terms of `superopt.algebra`. The package does not translate nodes to terms,
fold constants or infer shapes, so that `superopt.verification` may use it. Read `stored` first, then `validate`.

    `stored`: parses a serialized model, and finds its data files, its size in bytes and its digest.
    `validate`: checks the structure of a ModelProto, for example its text, its tensor data, and the uniqueness of its names.
    `graphs`: finds all nested graphs of a model.
    `nodes`: represents lowered nodes and initializers as Python values, shortens chains of Reshape nodes, and builds models of
    nodes. In these models, `Hollow` arrays can stand in for weights. The module also looks up the schemas of ONNX operators.
    `tensors`: returns the content of a tensor as bytes.
    `sparse`: replaces sparse tensors by dense tensors.
    `kernels`: recognizes calls of compiled kernels, replaces each call by the nodes of the called function, and names the files
        of a library.
    `map_types`: stores map types (of ZipMap nodes) in metadata, because onnx_ir cannot represent map types.
    `normalization`: finds the constants by which a model shifts and scales inputs, and the constants with which inputs are
        compared.
    `specialize`: fixes inputs and sizes of a model, finds its Ifs, and inlines the branches that are taken.
    `names`: recognizes placeholder names of unnamed dimensions, and replaces the placeholders by keys such as `x[0]`.
"""
