"""ONNX files as protobuf messages: validation, stored bytes, nested graphs, names, nodes and map types.

The package imports onnx, `superopt.errors`, `superopt.files` and the terms of `superopt.algebra`. The package does not
translate nodes to terms, fold constants or infer shapes, so that `superopt.verification` may use the package. Read `stored`
first, then `validate`.
"""
