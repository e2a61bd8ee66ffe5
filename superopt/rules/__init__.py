"""Rewrite rules: what a rule is, how rules match terms, and the rule store with its ledger of proofs.

The package imports `superopt.speclib` and what lies below. It does not prove or search. Read `rule` first, then `match` (bind a
pattern in a term), `instances` (sizes at which a rule can be tried), `store` (the files in substitutions/) and `fp_flags` (the
floating-point freedoms that a rule uses).
"""
