"""Proofs of rules over the reals, for all sizes. No other package imports z3 or egglog.

The package may import `superopt.floating_point`, `superopt.rules` and the packages below them. Read `verify` first, which tries
the provers in order. Then read `definitions/` (the index prover), `axioms/` (search in an e-graph, and the check of its result
by Z3) and `derivation/` (derivation of rules from other rules). `sample` refutes false rules in exact arithmetic. `ledger`
proves or checks all axioms and stored rules.
"""
