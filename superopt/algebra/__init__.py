"""The algebra: symbolic extents, terms, operators given in index notation, and their evaluation on arrays.

The package imports only the standard library, numpy and `superopt.errors`. The definitions in specs/ and every other package
use this package. Read `terms` first (what a term is), then `index` (index notation) and `operators` (how a file of specs/
becomes an operator). `terms` also has the substitution of extents. `evaluate` computes terms on arrays. `integers` decides
conditions on sizes, and `tautology` decides whether a condition holds for all sizes. `digests` hashes the meaning of operators.
"""
