"""The algebra: symbolic extents, terms, operators in index notation, and evaluation of terms on arrays.

The package imports only the standard library, numpy, `superopt.errors` and `superopt.policy`. The definitions in specs/ and
every other package use this package. Read `terms` first, then `index` and `operators`.

Expressions and operators:

    `terms`: hash-consed expression DAGs: variables, operator applications, traversal of subterms, operator counts.
    `index`: index notation, the language of operator definitions: tensors, sums, maxima, selections; the interpreter interface.
    `operators`: the registry that loads operators from specs/: attributes, typing, `apply`, replacement of subterms.
    `evaluate`: the values of terms on numpy arrays by the definitions, in float64 or in a different number domain.
    `exact`: exact arithmetic for the tests of `discovery`: prime fields in which sqrt, exp and other functions have tables.

Sizes and conditions:

    `extent`: symbolic sizes as polynomials in canonical form, floor quotients, and conditions that compare sizes.
    `substitution`: substitution of sizes for dimensions and attribute variables, and the negation of a condition.
    `integers`: integer expressions (min, max, remainder), unknown integers, a normal form, a decision procedure for all sizes.
    `tautology`: whether a condition on sizes holds for all sizes (each dimension is at least 1).
    `dim_binding`: the extent of a model's dynamic dimension, and terms with numbers in place of dynamic dimensions.

Analyses of operators, computed from their definitions:

    `traits`: whether an operator is elementwise.
    `linearity`: in which operands an operator is linear or multilinear, and of which degree.
    `value_analysis`: abstract interpretation: `Facts` (interval of values; may be 0, infinite, NaN, undefined), large summands.
    `bilinear`: Toom-Cook and Winograd algorithms: the exact matrices of fast convolution.
    `digests`: hashes of the code of each operator's definition and axioms; a change makes stored proofs stale.
"""
