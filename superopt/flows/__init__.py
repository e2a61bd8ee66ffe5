"""The flows: optimize, generate, verify and profile, one module each, which say what happens in which order.

The package may import every package but `superopt.cli`. Read `optimize` first.
"""
