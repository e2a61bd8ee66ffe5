"""Definitions that several files of specs/ share: elementwise operators, reductions, attention, recurrences, composites.

The package imports `superopt.notation` and `superopt.algebra`. Read `elementwise` first, then `composite` (operators defined by
a program of other operators) and `recurrence` (operators that run a step once per element of an axis).
"""
