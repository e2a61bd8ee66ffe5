"""Derivation of rules from other rules, as in `superopt rules derive`.

Read `derive` first. `superopt.discovery.minimal` uses it to keep the core of the rules minimal.

    `derive`: derives an equality from given rules by saturation over symbolic sizes.
    `chain`: a derivation as a sequence of steps from one side to the other, read from the congruence closure.
"""
