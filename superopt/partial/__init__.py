"""Partial equivalence, as in the optimizer PET: mutants and their corrections.

A mutant is a term that equals a program only at some output positions. A correction makes a mutant equal to the program
everywhere. The package may import `superopt.proof` and the packages below it. Read `mutate` first, then `judge`, `region` and
`correct`. `superopt.search.mutants` uses this package to search for a faster model.

Mutants:

    `mutate`: the enumeration of mutants: change the layout of the data, recognize an operator, compute its weight.
    `places`: which operators of a program are replaced: one operator, or several independent operators.
    `source`: several programs as one program on concatenated data, and parts or copies of a program.
    `layout`: regroupings of axes (fold, exchange, pad) as index maps and as reshapes and transposes.
    `moves`: the layouts that are tried for an operator.
    `access`: which elements a program reads at sampled positions, as a sum of products.
    `forms`: recognizes a convolution (sliding window) in the elements that are read.
    `contraction`: recognizes a matrix product in the elements that are read.
    `arrange`: builds the needed weight as a term over the given weights: views, zeros, concatenations.
    `alter`: mutants from changed attributes, and from rules applied without their conditions.
    `blocks`: mutants that do not compute zero blocks, such as half of a triangular matrix.

Where a mutant is right:

    `judge`: divides the output positions into boxes of equality and of difference, by tests in prime fields.
    `points`: values of programs in prime fields at chosen positions.
    `field`: arrays of residues in several prime fields, with which mutants are judged, and rational reconstruction.
    `degree`: bounds on a program's degree and coefficients. The error probability of the tests depends on these bounds.

Regions:

    `box`: boxes of positions with a start, a step and a count on each axis: merge and cover.
    `region`: divides the output into boxes in which programs read uniformly, and gives the halo that a box reads.
    `reading`: which elements a program reads to compute a box.
    `indices`: affine indices and conditions over a whole box. `reading` uses them as abstract values.

Corrections:

    `correct`: turns a mutant into a term that equals the program: recompute wrong boxes, scale boxes, insert zeros.
    `restrict`: computes a box of a program's output from the needed parts of the inputs.
    `assemble`: joins boxes into a tensor by concatenation and interleaving.
    `spaced`: inserts zeros between images or blocks, so that a window does not read neighbouring images or blocks.
    `closed`: replaces the reciprocals of constant terms in a scaling factor by constant tensors.

From mutants to rules:

    `discover`: rules from mutants: generalise and correct the mutants, and test the results at other sizes.
    `families`: the programs whose mutants are generalised.
    `sizes`: random sizes and attributes of a program with symbolic sizes.
    `generalise`: builds one term over symbolic sizes from mutants at several sizes.
    `fitting`: an expression over sizes that fits observed numbers.
    `conditions`: a condition that holds at exactly those sizes at which a rule is right.
    `trial`: whether a generalised mutant is right at given sizes.
    `phrase`: a generalised mutant as a rule in the rule notation.
"""
