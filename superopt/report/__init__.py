"""Reports of runs as frozen values, rendered as terminal tables or as JSON.

The package imports `superopt.cost` and what lies below. It computes no result. Read `optimization` first.
"""
