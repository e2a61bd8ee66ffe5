"""Derivation of rules from other rules, as in `superopt rules derive`.

Read `derive` first. `superopt.discovery.minimal` uses this package to keep the set of core rules minimal.

    `derive`: derives an equality from given rules by saturation over symbolic sizes.
    `chain`: a derivation as a sequence of steps from one side to the other side. The steps are read from the congruence
        closure.
"""
