"""Rewrite rules: what a rule is, how rules match terms, and the store of rules and their proofs.

The package may import `superopt.speclib` and the packages below it. The package does not prove or search. Read `rule` first,
then `match` (matches of a pattern in a term), `instances` (sizes at which a rule can be tried), `store` (the files in
substitutions/) and `fp_flags` (the fast-math flags that a rule needs).
"""
