"""Mutants that do not compute the zero blocks of an operator's result, such as padding or the zero half of a triangular matrix.

A mutant is a term that equals the original term at some output positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms
from superopt.errors import ShapeError, Undecidable
from superopt.partial.access import product_reads
from superopt.partial.arrange import concat_parts
from superopt.partial.box import Box, Run
from superopt.partial.places import place
from superopt.partial.restrict import restrict_program
from superopt.policy import MUTANT

Span = tuple[int, int]


def skip_zero_blocks(outputs: Sequence[Term]) -> Iterator[tuple[Term, Term, tuple[str, ...]]]:
    """Yield triples (term, mutant, description). Each term is a part of the program. Its rows are divided into blocks, and some
    of the blocks have columns of zeros.

    A mutant is a term that equals the original term at some positions. In each block of rows, the mutant computes only the
    columns that may be nonzero, and pads the block with zeros. If the term is the left factor of a matrix product, a mutant of
    the product is yielded too. The mutant of the product omits the rows of the right factor that the zeros would multiply.
    """
    live = [t for t in subterms(*outputs) if not t.is_variable and not t.constant and t.rank >= 2]
    for masked in live:
        users = [t for t in live if t.op == "matmul" and t.args[0] is masked and t.rank == masked.rank == t.args[1].rank]
        for count in (n for n in MUTANT.row_block_counts if n <= masked.sizes[-2]):
            blocks = _blocks(masked, count)
            if blocks is None:
                continue
            made = (f"{count} blocks of rows without what {masked.op} leaves out",)
            try:
                yield masked, concat_parts([_padded(masked, *b) for b in blocks], -2), made
                for user in users:
                    parts = [_multiplied(masked, user.args[1], *b) for b in blocks]
                    yield user, concat_parts(parts, -2), made
            except (ShapeError, Undecidable):
                continue


def _blocks(masked: Term, count: int) -> list[tuple[Span, Span]] | None:
    """Divide the rows of the matrix (or batch of matrices) `masked` into `count` blocks. Return a pair for each block: the
    range of rows, and the range of columns that may be nonzero.

    Return None if all columns of all blocks may be nonzero. Return None if `_columns` returns None for a block.
    """
    rows, columns = masked.sizes[-2:]
    edges = sorted({round(k * rows / count) for k in range(count + 1)})
    spans = list(itertools.pairwise(edges))
    held = [_columns(masked, rows_of) for rows_of in spans]
    if any(h is None for h in held) or all(h == (0, columns) for h in held):
        return None
    return [(r, h) for r, h in zip(spans, held, strict=True) if h is not None]


def _columns(masked: Term, rows: Span) -> Span | None:
    """Return the range of columns that may be nonzero in the given rows. Only some of the rows are inspected.

    Return None if the root operator of `masked` sums several products, is not a polynomial, or has only zeros in the inspected
    rows.
    """
    (cut,) = place((masked,)).cuts
    looked = np.unique(np.linspace(rows[0], rows[1] - 1, MUTANT.block_row_count).astype(np.int64))
    row, column = (a.ravel() for a in np.meshgrid(looked, np.arange(masked.sizes[-1]), indexing="ij"))
    lead = [np.zeros_like(row)] * (masked.rank - 2)
    try:
        found = product_reads(cut, (*lead, row, column))
    except Undecidable:
        return None
    if sum(len(r.seen) for r in found) != 1:
        return None
    held = np.unique(column[found[0].seen[0]])
    return (int(held[0]), int(held[-1]) + 1) if len(held) else None


def _part(masked: Term, rows: Span, columns: Span) -> Term:
    """Return a term that computes these rows and columns of `masked`, a matrix or a batch of matrices. The term reads only the
    needed parts of the inputs.
    """
    whole = (Run(0, n) for n in masked.sizes[:-2])
    return restrict_program(masked, Box((*whole, *(Run(a, b - a) for a, b in (rows, columns)))))


def _padded(masked: Term, rows: Span, columns: Span) -> Term:
    part, zero = _part(masked, rows, columns), (0,) * (masked.rank - 1)
    after = masked.sizes[-1] - columns[1]
    return apply("pad", part, before=(*zero, columns[0]), after=(*zero, after)) if columns[0] or after else part


def _multiplied(masked: Term, right: Term, rows: Span, columns: Span) -> Term:
    part = _part(masked, rows, columns)
    if columns == (0, right.sizes[-2]):
        return apply("matmul", part, right)
    return apply("matmul", part, apply("slice", right, axis=-2, start=columns[0], stop=columns[1]))
