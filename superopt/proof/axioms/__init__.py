"""The axiomatic prover: saturate an e-graph with proved axioms, then check in Z3 the instances of axioms that were used.

Read `axiomatic` first, then `saturate` and `replay`.

    `axiomatic`: proves a rule at all of its ranks: search, then check.
    `saturate`: equality saturation, which fills a congruence closure with instances of axioms.
    `closure`: the congruence closure (e-graph) with explanations (proof-producing), modulo associativity and commutativity.
    `ematch`: e-matching: matches of an axiom's side modulo the known equalities.
    `ground`: the text form of axiom instances in the ledger, and its parser.
    `replay`: the trusted check: Z3 shows that the instances imply the rule; minimal sets of instances.
    `standing`: whether an axiom is proved, from the ledger or by a new proof.
"""
