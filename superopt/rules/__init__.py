"""Rewrite rules: what a rule is, how rules match terms, and the store of rules and their proofs.

The package may import `superopt.speclib` and the packages below it. The package does not prove or search. Read `rule` first,
then `match` and `store`.

    `rule`: a rule or an axiom: its equations at all ranks, its digest; files of rules; all axioms and laws of specs/.
    `signature`: outlines of rules (operators without attributes), which decide quickly which rules may match.
    `match`: pattern matching of terms modulo associativity and commutativity, and the instantiated right side.
    `instances`: all conditions of an equation, solved, and random sizes and attributes at which they hold.
    `store`: the files in substitutions/: rules and their ledgers (JSON), seals, stale proofs, refuted candidates.
    `user_rules`: rules that a user wrote, with a ledger of their own, for use beside the rules of the store.
    `verdict`: Proved, Refuted, Unknown and counterexamples.
    `fusion`: fusion rules from specs/: a term of small operators becomes one operator; they are not in the store.
    `fp_flags`: the floating-point flags of rules and the floating-point modes.
    `accuracy`: how much a rule lets rounding errors grow, as with Winograd's algorithm.
    `work`: arithmetic and memory traffic of a term, computed from the definitions (FLOPs and bytes).
"""
