"""Reports of runs as frozen values, rendered as terminal tables or as JSON.

The package imports `superopt.cost` and the packages that `superopt.cost` imports. The package only renders results, and
computes none. Read `optimization` first.
"""
