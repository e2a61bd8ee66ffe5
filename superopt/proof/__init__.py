"""Proofs of rules over the reals, for all sizes.

Only this package and `superopt.floating_point` import z3. The package may import `superopt.floating_point`,
`superopt.rules` and the packages below them. Read `verify` first.

    `verify`: the entry point: tries the axioms, then the definitions, then random sampling, and returns a verdict.
    `axioms/`: the e-graph prover: saturation with proved axioms, and Z3's check of the instances used.
    `definitions/`: the index prover: equality of elements from the definitions in index notation.
    `derivation/`: derivation of rules from other rules.
    `sample`: refutes false rules by exact evaluation on random instances.
    `ledger`: `superopt prove`: proves all axioms, and checks or renews the proofs of all stored rules.
    `recheck`: checks a stored proof without a search, also for a rule and its converse together.
    `precondition`: adds the conditions that a rule's right side needs.
    `domains`: whether the right side is defined wherever the left side is: divisors, roots, powers, logarithms.
    `denominators`: the same question for divisions in attributes (`n // a` where `a` may be zero).
    `definedness`: which axiom instances a proof may use for operators that are not defined everywhere.
"""
