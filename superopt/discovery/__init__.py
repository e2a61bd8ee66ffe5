"""Rule discovery: enumerate terms, group them by value, generalise and join equalities, and prune.

The package imports `superopt.proof`, `superopt.partial` and what lies below. Read `job` first (a whole run), then `enumerate`,
`fingerprint`, `generalise` and `prune`. `universes/` is data: which operators and variables are enumerated together.
"""
