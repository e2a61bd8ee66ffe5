"""Partial equivalence: programs that agree with another program at some output positions only, and their correction."""
