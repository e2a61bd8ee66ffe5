"""The rule language: parse and print terms, conditions and equations.

The package imports `superopt.algebra` only. Read `parsing` first: its docstring has the grammar. `printing` is its inverse, and
`rank_instances` reads an equation once for each choice of ranks.
"""
