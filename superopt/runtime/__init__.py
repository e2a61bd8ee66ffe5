"""ONNX Runtime: sessions, devices, kernel timing, interleaved comparison and the numerical check.

Only this package and `superopt.verification` import onnxruntime. The package imports `superopt.protobuf` and the packages that
`superopt.protobuf` imports. Read `session` first, then `check` (does a candidate compute the same values?) and `compare` (is a
candidate faster?). `feasible` finds sizes and inputs at which a model runs. `child` runs models in a separate process, so that
a crash of ONNX Runtime does not end superopt.
"""
