"""The rule notation: parse and print terms, conditions and equations.

The package imports `superopt.algebra` only. Read `parsing` first. The docstring of `parsing` has the grammar. `printing` is the
inverse of `parsing`, and `rank_instances` parses a rule for each combination of its variables' ranks.
"""
