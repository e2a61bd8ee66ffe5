"""The algebra: symbolic extents, terms, operators in index notation, and evaluation of terms on arrays.

The package imports only the standard library, numpy, `superopt.errors` and `superopt.policy`. The definitions in specs/ and
every other package use this package. Read `terms` first, then `index` and `operators`.

Expressions and operators:

    `terms`: hash-consed expression DAGs: variables, operator applications, traversal of subterms, operator counts.
    `index`: index notation, the language of operator definitions, and the interface of its interpretations.
    `operators`: the registry that loads operators from specs/: attributes, typing, `apply`, replacement of subterms.
    `evaluate`: the values of terms on numpy arrays by the definitions, in float64 or in a different number domain.
    `exact`: exact arithmetic in prime fields, where sqrt, exp and other functions are tables; used to test equations.

Sizes and conditions:

    `extent`: symbolic sizes as polynomials in canonical form, floor quotients, and conditions that compare sizes.
    `substitution`: substitution of sizes for dimensions and attribute variables, and the negation of a condition.
    `integers`: integer expressions (min, max, remainder), unknown integers, a normal form, a decision procedure for all sizes.
    `tautology`: tests whether a condition on sizes holds for all sizes (each dimension is at least 1).
    `dim_binding`: the extent of a model's dynamic dimension, and terms with numbers in place of dynamic dimensions.

Analyses of operators, computed from their definitions:

    `traits`: tests whether an operator is elementwise.
    `linearity`: finds the operands in which an operator is linear or multilinear, and the degree of a term in a variable.
    `value_analysis`: finds the interval of each term's values, and whether an element may be 0, infinite, NaN or undefined.
    `bilinear`: Toom-Cook and Winograd algorithms: the exact matrices of fast convolution.
    `digests`: hashes of the code of each operator's definition and axioms; a change makes stored proofs stale.
"""
