"""The index prover: proves that two terms have equal elements, from the index-notation definitions of their operators.

Read `index` first, then `normal` (the normal form of an element), `sums` (sums of products) and `arithmetic` (conditions on
sizes, decided by Z3).
"""
