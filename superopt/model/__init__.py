"""ONNX models in and out: load a model, translate its nodes to terms of the algebra, write terms as nodes, save the model.

The package imports `superopt.runtime` and the packages that `superopt.runtime` imports. Read `load` first, then `islands` (the
parts of a model that the algebra can express), `lift` (from nodes to terms), `lower` (from terms to nodes) and `splice` (which
replaces nodes of a model). `dimensions` and `shape_values` keep dynamic sizes as exact expressions.
"""
