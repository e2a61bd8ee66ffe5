"""The index prover: proves that two terms have equal elements, from the index-notation definitions of their operators.

Read `index` first, then `normal`, `sums` and `arithmetic`.

The proof:

    `index`: the entry point: proves or refutes an axiom or equation at all ranks.
    `compare`: whether two symbolic tensors are equal at one position that stands for all positions.
    `batching`: proves an equation with a batch axis from the equation without the axis (vmap).
    `assumptions`: what a rule may assume about its sizes, solved into substitutions.

Normal forms:

    `normal`: the value at one position as a decision tree over sums of products.
    `sums`: the data types of sums of products (reads, powers, calls, guards), and substitution in them.
    `simplify`: simplifies summands: guards, quotients, bound indices that nothing depends on.
    `functions`: canonical forms of functions, powers and exponentials, and merged factors of a product.
    `maxima`: canonical forms of maxima.
    `forms`: small recognizers: step functions, 1 + exp(v), -|v|, rational powers.
    `content`: common divisors of summands.
    `tables`: products of constant tables, as in Toom-Cook and Winograd algorithms.
    `alpha`: equality up to names of bound indices and order (alpha equivalence).

Zero tests:

    `cancel`: whether a sum is zero: summands cancel where their index domains overlap.
    `align`: reindexings that map one product to another; solves linear equations for a bound index.
    `pointwise`: cached zero tests of sums without bound indices.
    `clearing`: multiplies a sum by its denominators.
    `cases`: case splits on maxima and signs.
    `signs`: signs of values from their structure and from facts.
    `values`: Z3 decides whether a value is zero where other values have given signs.

Arithmetic of sizes:

    `arithmetic`: Z3 decides whether conditions on sizes and indices imply another condition.
    `products`: lemmas about products and floor quotients, for linear arithmetic.
    `formulas`: a fast writer of Z3 formulas through the C interface.
"""
