"""Derivation of rules from the core rules, by `superopt rules derive`.

Read `derive` first, then `core` (the choice of core rules) and `egglog_engine`.
"""
