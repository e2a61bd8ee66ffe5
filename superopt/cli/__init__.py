"""The command line: commands, arguments and signals. Only this package prints or exits.

The package may import every package. Read `main` first, then `arguments`.
"""
