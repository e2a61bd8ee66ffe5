"""Partial equivalence, as in PET: mutants and their corrections.

A mutant is a term that equals a program at some output positions only. A correction makes a mutant equal to the program
everywhere. The package may import `superopt.proof` and the packages below it. Read `mutate` first, then `judge`, `region` and
`correct`. `superopt.search.mutants` uses this package in the search of a model.

Mutants:

    `mutate`: the enumeration of mutants: change the layout of the data, recognize an operator, solve for its weight.
    `places`: which operators of a program are replaced: one operator, or several independent ones.
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
    `points`: values of programs in prime fields at chosen positions only.
    `field`: arrays of residues in several prime fields, with which mutants are judged, and rational reconstruction.
    `degree`: bounds on a program's degree and coefficients, on which the error probability of the tests depends.

Regions:

    `box`: boxes of positions with a start, a step and a count on each axis: merge and cover.
    `region`: divides the output into boxes in which programs read uniformly, and gives the halo that a box reads.
    `reading`: which elements a program reads to compute a box.
    `indices`: affine indices and conditions over a whole box, the abstract values of `reading`.

Corrections:

    `correct`: turns a mutant into an equal term: recompute wrong boxes, scale boxes, insert zeros.
    `restrict`: computes a box of a program from the needed parts of its inputs.
    `assemble`: joins boxes to a tensor by concatenation and interleaving.
    `spaced`: inserts zeros between images or blocks, so that a window does not read its neighbours.
    `closed`: folds the reciprocals of constant terms in a scaling factor to constant tensors.

From mutants to rules:

    `discover`: rules from mutants: generalise, correct, and try at other sizes.
    `families`: the programs whose mutants are generalised.
    `sizes`: random sizes and attributes of a program with symbolic sizes.
    `generalise`: one term over symbolic sizes from mutants at several sizes.
    `fitting`: an expression over sizes that fits observed numbers.
    `conditions`: a condition on sizes that separates right sizes from wrong sizes.
    `trial`: whether a generalised mutant is right at given sizes.
    `phrase`: a generalised mutant as a rule in the rule notation.
"""
