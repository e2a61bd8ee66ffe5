"""Partial rules generated: the families' programs explored one after the other, and what is found stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from superopt.errors import StoreError
from superopt.partial.discover import discovered
from superopt.partial.families import ABOUT, FAMILIES
from superopt.partial.library import Partial, write
from superopt.partial.phrase import named


def generate(
    *,
    seed: int = 0,
    files: Sequence[str] = (),
    folder: Path | None = None,
    proved: Callable[[Partial], Partial] = lambda partial: partial,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> dict[str, list[Partial]]:
    """Finds and stores the partial rules of these files, of all without any; the same seed writes the same files.

    `proved` adds a proof to a rule, where there is one. `progress` is told each family of programs, and how many rules were
    found about it.

    Raises:
        StoreError: there is no such file of rules, or one cannot be written.
    """
    unknown = [file for file in files if file not in FAMILIES]
    if unknown:
        raise StoreError(f"unknown family {unknown[0]!r}: partial rules are of {', '.join(FAMILIES)}")
    found: dict[str, list[Partial]] = {}
    for file in (file for file in FAMILIES if file in (files or FAMILIES)):
        rules: list[Partial] = []
        for family in FAMILIES[file]:
            more = named(discovered(family, seed), seed)
            progress(family.name, len(more))
            rules += map(proved, more)
        write(file, ABOUT[file], rules, folder)
        found[file] = rules
    return found
