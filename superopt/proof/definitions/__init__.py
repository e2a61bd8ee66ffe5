"""The index prover, which proves that two terms have equal elements from the index-notation definitions of their operators.

Read `index` first, then `normal`, `sums` and `arithmetic`.

The proof:

    `index`: the entry point, which proves or refutes an axiom or equation at all ranks.
    `compare`: decides whether two symbolic tensors are equal at one position that stands for all positions.
    `batching`: proves an equation with a batch axis from the equation without the axis (vmap).
    `assumptions`: the conditions that a rule may assume about its sizes. Equalities are solved for single sizes.

Normal forms:

    `normal`: the value at one position as a decision tree over sums of products.
    `sums`: the data types of sums of products (reads, powers, calls, guards), and substitution in them.
    `simplify`: simplifies guards and quotients in summands, and removes bound indices on which no factor depends.
    `functions`: canonical forms of functions, powers and exponentials. The module also merges the factors of a product.
    `maxima`: canonical forms of maxima.
    `forms`: recognizers of special forms, such as step functions, 1 + exp(v), -|v| and rational powers.
    `content`: common divisors of summands.
    `tables`: products of constant tables, as in Toom-Cook and Winograd algorithms.
    `alpha`: equality up to the names of bound indices and the order of parts (alpha equivalence).

Zero tests:

    `cancel`: decides whether a sum is zero. Summands cancel where their index domains overlap.
    `align`: finds substitutions of bound indices that turn one product into another, and solves linear equations.
    `pointwise`: cached zero tests of sums without bound indices.
    `clearing`: multiplies a sum by a denominator of its summands.
    `cases`: case splits on maxima and signs.
    `signs`: signs of values from their structure and from facts.
    `values`: decides with Z3 whether a value is zero where other values have given signs.

Arithmetic of sizes:

    `arithmetic`: decides with Z3 whether conditions on sizes and indices imply another condition.
    `products`: lemmas about products and floor quotients, for linear arithmetic.
    `formulas`: builds Z3 formulas quickly, through Z3's C interface.
"""
