"""Rewrite rules: what a rule is, how rules match terms, and the store of rules and their proofs.

The package may import `superopt.speclib` and the packages below it. The package neither proves rules nor searches for rewrites.
Read `rule` first, then `match` and `store`.

    `rule`: rules and axioms, with their equations at all ranks and their digests. The module reads rule files and the axioms in
        specs/.
    `signature`: outlines of rules (operators without attributes), which quickly show which rules cannot match a term.
    `match`: pattern matching of terms modulo associativity and commutativity, and instantiation of right sides.
    `instances`: solves the conditions of an equation, and draws random sizes and attributes at which the conditions hold.
    `store`: reads, checks and writes the files in substitutions/: rules, ledgers of their proofs (JSON), refuted candidates.
    `user_rules`: rules that a user wrote. User rules have their own ledger and are used together with the rules of the store.
    `verdict`: the verdicts of a prover (`Proved`, `Refuted` and `Unknown`), and counterexamples.
    `fusion`: fusion rules, which replace a term of small operators by one operator. Fusion rules are in specs/ and not in the
        store.
    `fp_flags`: the floating-point flags of rules and the floating-point modes.
    `accuracy`: estimates how much a rule, such as Winograd's algorithm, increases rounding errors.
    `work`: the arithmetic (FLOPs) and the memory traffic (bytes) of a term, computed from the definitions of its operators.
"""
