"""Partial equivalence, as in the optimizer PET: mutants and their corrections.

A mutant is a term that equals a program only at some output positions. A correction makes a mutant equal to the program
everywhere. The package may import `superopt.proof` and the packages in lower layers. Read `mutate` first, then `judge`,
`region` and `correct`. `superopt.search.mutants` uses this package to search for a faster model.

Mutants:

    `mutate`: enumerates mutants. The module changes the layout of the data, recognizes an operator and computes the weight of
        the operator.
    `places`: chooses the operators that a mutant replaces in a program: one operator, or several independent operators.
    `source`: combines several programs into one program on concatenated data, and builds parts or copies of a program.
    `layout`: regroups axes by folds, exchanges and pads, as a map of indices and as a term of reshapes and transposes.
    `moves`: enumerates the layouts to try for an operator.
    `access`: expresses a program at chosen output positions as a sum of products of the elements that the program reads.
    `forms`: recognizes a convolution (sliding window) in the elements that are read.
    `contraction`: recognizes a matrix product in the elements that are read.
    `arrange`: builds a new weight from elements of the program's weights, by views, zeros and concatenations.
    `alter`: makes mutants by changing attributes, and by applying rules without their conditions.
    `blocks`: makes mutants that do not compute zero blocks, such as the zero half of a triangular matrix.

Where a mutant equals the program:

    `judge`: divides the output into boxes of equal positions and boxes of unequal positions, by tests in prime fields.
    `points`: values of programs in prime fields at chosen positions.
    `field`: arrays of residues in several prime fields, and the reconstruction of rational numbers from residues.
    `degree`: bounds on a program's degree and coefficients, which determine the error probability of the tests.

Regions:

    `box`: boxes of positions, with a start, a step and a count on each axis, and functions that merge and cover boxes.
    `region`: divides the output into boxes. In each box, the positions of all reads are affine functions of the output
        position.
    `reading`: finds the elements that a program reads to compute a box of its output.
    `indices`: represents an index, or a condition on indices, at all positions of a box at once.

Corrections:

    `correct`: turns a mutant into a term that equals the program. The module recomputes or scales wrong boxes, or inserts
        zeros.
    `restrict`: computes a box of a program's output from the needed parts of the inputs.
    `assemble`: joins boxes into a tensor by concatenation and interleaving.
    `spaced`: inserts zeros between images or blocks, so that a window does not read neighbouring images or blocks.
    `closed`: replaces the reciprocals of constant terms in a scaling factor by constant tensors.

From mutants to rules:

    `discover`: derives rules from mutants. The module generalises and corrects mutants, and tests the results at further sizes.
    `families`: the programs whose mutants are generalised.
    `sizes`: chooses random sizes and attributes for a program with symbolic sizes.
    `generalise`: builds one term over symbolic sizes from mutants at several sizes.
    `fitting`: finds an expression over sizes that fits observed numbers.
    `conditions`: finds a condition that is true at exactly those tested sizes at which a rule is correct.
    `trial`: tests whether a generalised mutant equals the program at chosen sizes.
    `phrase`: writes a generalised mutant as a rule in the rule notation.
"""
