"""Floating-point flags: the search for the fast-math flags that each rule needs, and checks of these flags.

The package may import `superopt.rules` and the packages below it. Read `flags` first. `superopt.rules.fp_flags` defines the
flags, and `superopt.search.gate` applies them in a search.

    `flags`: the search for the flags of a rule, on special values and on all inputs of a small format.
    `elements`: compiles both sides of a rule to scalar code, at small sizes and separately for each output element.
    `scalars`: straight-line scalar code of one element of a term, in the order in which kernels compute.
    `floats`: the evaluation of scalar code in binary floating-point formats, and the scale of rounding errors.
    `environments`: batches of inputs with special float32 values: zeros, infinities, NaN, subnormals, extreme numbers.
    `differences`: determines which flags allow the differences between a rule's sides at given inputs.
    `small`: checks a rule on all inputs in a format with 3 exponent bits, by evaluation or with Z3's floating-point theory.
    `witnesses`: writes, reads and checks witness files (inputs at which a rule needs a flag), and counts rules by their flags.
"""
