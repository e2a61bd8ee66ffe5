"""Rules that a user wrote, and that `superopt rules add` proved.

A file of such rules has the same form as the files in substitutions/, and a ledger with the proofs is stored in the same
folder. Like the rules of the store, these rules are loaded only if the ledger contains a valid proof of exactly these rules.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from superopt.errors import StoreError
from superopt.rules.fusion import fusions, recognized_operator
from superopt.rules.rule import Rule
from superopt.rules.store import families, load_families, read_family
from superopt.speclib.recurrence import recurrences

SUFFIX = ".rules"
REMEDY = "superopt rules add proves the rules of a file"


def load_user_rules(paths: Sequence[str | os.PathLike[str]]) -> list[Rule]:
    """Return the user's rules in these files and folders, after checking that each rule has a valid proof.

    Args:
        paths: Files of rules, or folders. All files of rules in a folder are read.

    Raises:
        StoreError: A file cannot be read, a rule has no valid proof, or a name is already in use.
    """
    found: list[Rule] = []
    for path in map(Path, paths):
        folder, names = (path, families(path)) if path.is_dir() else (path.parent, (_family_of(path),))
        if not names:
            raise StoreError(f"{path}: the folder has no file of rules")
        for name in names:
            require_free_family(name)
        found += [stored.rule for stored in load_families(names, folder, REMEDY)]
    if found:
        require_free_rule_names(rule.name for rule in found)
    return found


def _family_of(path: Path) -> str:
    if path.suffix != SUFFIX:
        raise StoreError(f"{path}: neither a folder nor a file whose name ends in {SUFFIX}")
    if not path.is_file():
        raise StoreError(f"{path}: no such file")
    return path.stem


def require_free_family(name: str) -> None:
    """Check that the name of a user's file of rules is not the name of a family in the rule store.

    Raises:
        StoreError: The store has a family with this name.
    """
    if name in families():
        raise StoreError(f"{name}{SUFFIX}: superopt's own rules already use this file name; rename your file")


def require_free_rule_names(names: Iterable[str]) -> None:
    """Check that the names of rules are distinct, and that no rule or other rewrite of superopt has one of these names.

    Raises:
        StoreError: A name is in use.
    """
    own = {rule.name for family in families() for rule, _ in read_family(family)}
    own |= {*fusions(), *(recurrence.name for recurrence in recurrences())}
    for name, count in Counter(names).items():
        if count > 1:
            raise StoreError(f"two rules are called {name!r}")
        if name in own or recognized_operator(name) is not None:
            raise StoreError(f"superopt itself has a rewrite called {name!r}; rename the rule")
