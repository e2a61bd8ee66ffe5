"""Derivation of rules from other rules, as in `superopt rules derive`.

Read `derive` first, then `core`.

    `derive`: derives an equality from given rules by saturation over symbolic sizes.
    `chain`: a derivation as a sequence of steps from one side to the other, read from the congruence closure.
    `core`: the minimal core of any set of rules; `superopt.discovery.minimal` does this while rules are generated.
    `egglog_engine`: egglog at concrete sizes, as a second engine: encoding of rules and the outcome of saturation.
    `audit`: a second opinion on a core by egglog, with delta debugging of the laws needed.
"""
