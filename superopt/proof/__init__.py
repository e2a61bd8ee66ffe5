"""Proofs of rules over the reals, for all sizes. The only home of z3 and egglog.

The package imports `superopt.floating_point`, `superopt.rules` and what lies below. Read `verify` first, which tries the
provers in order, then `definitions/` (the index prover), `axioms/` (the e-graph and its Z3 check) and `derivation/` (rules from
core rules). `sample` refutes false candidates in exact arithmetic, and `ledger` reads proofs back.
"""
