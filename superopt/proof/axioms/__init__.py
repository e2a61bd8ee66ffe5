"""The axiomatic prover. The prover saturates an e-graph with proved axioms. Z3 then checks the axiom instances that the prover
used.

Read `axiomatic` first, then `saturate` and `replay`.

    `axiomatic`: proves a rule at all of its ranks. The module searches for axiom instances, and then checks these instances.
    `saturate`: equality saturation, which fills a congruence closure with instances of axioms.
    `closure`: the proof-producing congruence closure (e-graph), modulo associativity and commutativity.
    `ematch`: e-matching, which matches one side of an axiom against terms modulo the known equalities.
    `ground`: the text form of axiom instances in the ledger, and its parser.
    `replay`: the trusted check, in which Z3 shows that the instances imply the rule. The module also finds minimal sets of
        instances.
    `standing`: decides whether an axiom is proved: from the ledger (the file of stored verdicts), or by a new proof.
"""
