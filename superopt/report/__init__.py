"""Reports of runs as frozen values, rendered as terminal tables or as JSON.

The package imports `superopt.cost` and the packages that `superopt.cost` imports. It computes no results. Read `optimization`
first.
"""
