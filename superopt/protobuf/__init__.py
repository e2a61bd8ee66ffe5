"""ONNX files as protobuf messages: validation, stored bytes, nested graphs, names, nodes and map types.

The package imports onnx and `superopt.errors`, `superopt.files` and the algebra's terms. It does not lift, fold or infer
shapes, so that `superopt.verification` may use it. Read `stored` first, then `validate`.
"""
