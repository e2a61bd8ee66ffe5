"""Floating-point flags: find and check which fast-math freedoms each rule needs.

The package imports `superopt.report`, `superopt.rules` and what lies below. Read `flags` first, then `small` (all inputs of an
8-bit format), `floats` (SMT at small formats), `environments` (special float32 values) and `witnesses` (stored inputs that need
a flag).
"""
