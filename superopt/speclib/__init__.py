"""Code that several files of specs/ share: elementwise operators, reductions, attention, recurrences, composites.

The package imports `superopt.notation` and `superopt.algebra`. Read `elementwise` first, then `composite` (operators that are
defined as a term of other operators) and `recurrence` (operators that apply a step once for each element of a sequence).
"""
