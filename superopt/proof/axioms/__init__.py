"""The axiomatic prover: saturate an e-graph with proved axioms, then check in Z3 the instances of axioms that were used.

Read `axiomatic` first, then `saturate` and `replay`.
"""
