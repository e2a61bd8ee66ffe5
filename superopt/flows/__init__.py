"""What superopt does for its user: optimize, generate, verify and profile. Each has a module that shows its stages in order.

The package may import every package but `superopt.cli`. Read `optimize` first.
"""
