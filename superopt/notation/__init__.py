"""The rule language: parse and print terms, conditions and equations.

The package imports `superopt.algebra` only. Read `parsing` first. Its docstring has the grammar. `printing` is the inverse of
`parsing`, and `rank_instances` reads an equation at each choice of ranks.
"""
