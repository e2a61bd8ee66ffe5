"""ONNX models in and out: load, find islands, lift to terms, lower to nodes, splice, save.

The package imports `superopt.runtime` and the packages that `superopt.runtime` imports. Read `load` first, then `islands` (the
parts of a model that the algebra can express), `lift`, `lower` and `splice`. `dimensions` and `shape_values` keep dynamic sizes
as exact expressions.
"""
