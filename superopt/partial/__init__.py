"""Partial equivalence, as in PET: mutants and their corrections.

A mutant is a term that equals a program at some output positions only. A correction makes a mutant equal to the program
everywhere. The package may import `superopt.proof` and the packages below `superopt.proof`. Read `mutate` first (enumeration of
mutants), then `judge` (multilinear testing), `region` (boxes in which programs read uniformly) and `correct` (recomputation or
scaling of wrong boxes). `discover` generalises mutants to rules.
"""
