"""Partial equivalence, as in PET: mutants that agree with a program at some output positions only, and their corrections.

The package imports `superopt.proof` and what lies below. Read `mutate` first (enumerate mutants), then `judge` (multilinear
testing), `region` (where a mutant agrees) and `correct` (repair the rest). `library` stores the proved results.
"""
