"""Derivation of rules from other rules, as in `superopt rules derive`.

Read `derive` first, then `core` (the choice of core rules) and `egglog_engine` (a second engine, for audits).
"""
