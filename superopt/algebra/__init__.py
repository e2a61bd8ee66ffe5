"""The algebra: symbolic extents, terms, operators given in index notation, and their evaluation on arrays.

The package imports only the standard library, numpy and `superopt.errors`. The definitions in specs/ and every other package
use this package. Read `terms` first (expressions of operators over variables), then `index` (index notation) and `operators`
(the registry that loads the operators from specs/). `terms` also re-exports the substitution of extents. `evaluate` computes
terms on arrays. `integers` decides conditions on sizes, and `tautology` returns whether a condition holds for all sizes.
`digests` hashes the definition and the axioms of each operator.
"""
