"""Proofs of rules over the reals, for all sizes.

Only this package and `superopt.floating_point` import z3. This package may import `superopt.floating_point`, `superopt.rules`
and the packages below them. Read `verify` first.

    `verify`: the entry point. The module tries the axioms, then the definitions, then random sampling, and returns a verdict.
    `axioms/`: the e-graph prover, which saturates an e-graph with proved axioms. Z3 checks the axiom instances that a proof
        uses.
    `definitions/`: the index prover, which proves that elements are equal from operator definitions in index notation.
    `derivation/`: derivation of rules from other rules.
    `sample`: refutes false rules by exact evaluation on random instances.
    `ledger`: implements `superopt prove`, which proves all axioms and checks or renews the proofs of all stored rules.
    `recheck`: checks stored proofs without a search. The module can also check the proofs of a rule and its converse together.
    `precondition`: adds to a rule the conditions under which the rule's right side is well typed.
    `domains`: checks that the right side of a rule is defined wherever the left side is defined. Divisions, roots, powers and
        logarithms can be undefined.
    `denominators`: finds the denominators in attributes such as `1 / a`, and checks that the denominators are not zero.
    `definedness`: selects the axiom instances that a proof may use if the terms of the proof are not defined everywhere.
"""
