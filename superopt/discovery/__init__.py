"""Rule discovery: enumerate terms, group them by value, generalise and prove equalities, and remove redundant rules.

The package imports `superopt.proof`, `superopt.partial` and the packages that these import. Read `job` first (a whole run),
then `enumerate`, `fingerprint`, `generalise` and `prune`. The modules in `universes/` only list which operators and variables
are enumerated together.
"""
