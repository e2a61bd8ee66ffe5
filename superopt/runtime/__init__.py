"""ONNX Runtime: sessions, devices, kernel timing, interleaved comparison and the numerical check.

This package and `superopt.verification` are the only homes of onnxruntime. The package imports `superopt.protobuf` and what
lies below. Read `session` first, then `check` (does a candidate compute the same values?) and `compare` (is a candidate
faster?). `child` runs in a process of its own whatever may bring ONNX Runtime down.
"""
