"""The rule notation: parse and print terms, conditions and equations.

The package may import `superopt.algebra` and the packages below it. Read `parsing` first.

    `parsing`: the grammar, and the parser of terms, sizes, conditions and whole statements.
    `printing`: the printer of terms and conditions, the inverse of `parsing`.
    `rank_instances`: a statement parsed at each well-typed combination of ranks and axes of its variables.
"""
