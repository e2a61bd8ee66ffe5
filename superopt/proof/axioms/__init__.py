"""The axiomatic prover: saturate an e-graph with proved axioms, then replay the instances that were used in Z3.

Read `axiomatic` first, then `saturate` and `replay`.
"""
