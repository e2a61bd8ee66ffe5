"""The command line: commands, arguments and signals. Only this package prints or exits.

The package may import every package. Read `main` first, then `arguments`.

    `main`: a function for each command, error lines, exit codes, broken pipes, files that no option may overwrite.
    `arguments`: the argument parser: all commands and options with their help texts.
    `types`: parsers of option values: durations with units, numbers, seeds, sizes of dimensions, lists of choices.
    `display`: the progress of a run on the standard error stream, as a panel in a terminal and otherwise as lines.
    `signals`: SIGINT and SIGTERM: a command ends at once, or a search ends early with its best result.
"""
