"""Partial equivalence, as in PET: mutants that equal a program at some output positions only, and corrections of mutants.

The package may import `superopt.proof` and the packages below `superopt.proof`. Read `mutate` first (enumeration of mutants),
then `judge` (multilinear testing), `region` (boxes in which programs read uniformly) and `correct` (recomputation or scaling of
wrong boxes). `discover` generalises mutants to rules.
"""
