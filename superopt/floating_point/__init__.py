"""Floating-point flags: find and check the fast-math flags that each rule needs.

The package may import `superopt.report`, `superopt.rules` and the packages below them. Read `flags` first, then `scalars`
(terms as scalar code), `floats` (evaluation of scalar code in binary formats), `environments` (special float32 values), `small`
(all inputs of a small format) and `witnesses` (stored inputs at which a rule needs a flag).
"""
