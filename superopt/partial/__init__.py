"""Partial equivalence: programs that agree with another at some output positions only, and how they are put right."""
