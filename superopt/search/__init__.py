"""The search for a cheaper equivalent of a model: rewriting, sweeps, windows, mutants, passes and selection.

The package imports `superopt.partial`, `superopt.cost`, `superopt.model` and the packages that these import. Read `passes`
first (the search over a whole model), then `segment_search`, `backtracking` (the search in one part of a model), `apply` (one
rewriting step) and `gate` (which matches of a rule a floating-point mode allows).
"""
