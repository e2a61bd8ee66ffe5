"""The algebra: symbolic extents, terms, operators in index notation, and evaluation of terms on arrays.

The package imports only the standard library, numpy, `superopt.errors` and `superopt.policy`. The definitions in specs/ and
almost all packages of superopt use this package. Read `terms` first, then `index` and `operators`.

Expressions and operators:

    `terms`: hash-consed expression DAGs: variables, operator applications, traversal of subterms, operator counts.
    `index`: index notation (the language of operator definitions), and the interface for interpretations of definitions.
    `operators`: the registry of the operators in specs/, types of attributes and terms, `apply`, replacement of subterms.
    `evaluate`: evaluates terms on numpy arrays by the operators' definitions, in float64 or in exact arithmetic.
    `exact`: exact arithmetic in prime fields for tests of equations. Tables define sqrt, exp and other functions.

Sizes and conditions:

    `extent`: symbolic sizes as polynomials in canonical form, floor quotients, and conditions that compare sizes.
    `substitution`: replaces dimensions and attribute variables by sizes, and negates conditions.
    `integers`: integer expressions (min, max, remainder) in normal form, and proofs of conditions for all sizes.
    `tautology`: tests whether a condition on sizes holds for all sizes (each dimension is at least 1).
    `dim_binding`: symbolic extents of dynamic dimensions, and the substitution of numbers for these extents.

Analyses of operators, computed from their definitions:

    `traits`: tests whether an operator is elementwise.
    `linearity`: finds the operands in which an operator is linear or multilinear, and the degree of a term in a variable.
    `value_analysis`: finds the interval of each term's values, and whether an element may be 0, infinite, NaN or undefined.
    `bilinear`: Toom-Cook and Winograd algorithms: the exact matrices of fast convolution.
    `digests`: a hash of each operator's definition and axioms. If the hash changes, stored proofs are stale.
"""
