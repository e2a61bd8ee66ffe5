"""The command line: commands, arguments, signals. The only code that prints or exits.

The package may import every package. Read `main` first, then `arguments`.
"""
