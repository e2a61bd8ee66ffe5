"""Generation of partial rules: families of programs are explored one after the other, and the rules found are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from superopt.errors import StoreError
from superopt.partial.discover import discover_mutants
from superopt.partial.families import ABOUT, FAMILIES
from superopt.partial.library import PartialRule, write
from superopt.partial.phrase import name_partial_rules


def generate_partial_rules(
    *,
    seed: int = 0,
    files: Sequence[str] = (),
    folder: Path | None = None,
    proved: Callable[[PartialRule], PartialRule] = lambda partial: partial,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> dict[str, list[PartialRule]]:
    """Find the partial rules of these files, or of all files, and write the files. The same seed writes the same files.

    Args:
        seed: The random seed.
        files: The names of the files, or empty for all.
        folder: The folder of the rule store, or None for the default.
        proved: A function that adds a proof to a rule, if there is one.
        progress: A function that is called with the name of each finished family and its number of rules.

    Returns:
        The rules by file.

    Raises:
        StoreError: There is no such file of rules, or a file cannot be written.
    """
    unknown = [file for file in files if file not in FAMILIES]
    if unknown:
        raise StoreError(f"unknown family {unknown[0]!r}: the families of partial rules are {', '.join(FAMILIES)}")
    found: dict[str, list[PartialRule]] = {}
    for file in (file for file in FAMILIES if file in (files or FAMILIES)):
        rules: list[PartialRule] = []
        for family in FAMILIES[file]:
            more = name_partial_rules(discover_mutants(family, seed), seed)
            progress(family.name, len(more))
            rules += map(proved, more)
        write(file, ABOUT[file], rules, folder)
        found[file] = rules
    return found
