"""Files of witnesses. A witness contains inputs at which a rule needs a floating-point flag.

The file `<family>.witnesses.jsonl` in the folder of the rules contains one line for each flag of each rule of the family.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

from superopt.algebra.operators import substitutions_folder
from superopt.algebra.terms import Extent
from superopt.errors import StoreError, SuperoptError
from superopt.floating_point.differences import needs
from superopt.floating_point.elements import ElementPair, RuleCase, pair_at
from superopt.floating_point.environments import Environments, environments_of
from superopt.floating_point.flags import Witness
from superopt.floating_point.scalars import ProgramTooLongError
from superopt.rules.fp_flags import FpFlag
from superopt.rules.instances import Instance
from superopt.rules.rule import Rule
from superopt.rules.store import StoredRule, replace_store_file, sealed_line, sealed_lines, stored_record


@dataclass(frozen=True)
class StoredWitness:
    """A line of a witness file: inputs at which a rule needs a floating-point flag.

    `row` contains all fields of the line except `rule` and `flag`.
    """

    rule: str
    flag: FpFlag
    row: Mapping[str, object]


@dataclass(frozen=True)
class _Row:
    """The fields of a line of a witness file, except `rule` and `flag`. A field with a default value may be left out."""

    shapes: Mapping[str, tuple[int, ...]]
    element: tuple[int, ...]
    values: Mapping[str, str]
    attributes: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    choice: int = 0
    turned: bool = False
    output: int = 0


def witness_file_path(family: str, folder: Path | None = None) -> Path:
    """Return the path of a family's witness file, which contains inputs at which the family's rules need flags."""
    return (substitutions_folder() if folder is None else folder) / f"{family}.witnesses.jsonl"


def write_witnesses(family: str, witnesses: Iterable[StoredWitness], folder: Path | None = None) -> None:
    """Replace the contents of the family's file by these witnesses. A witness contains inputs at which a rule needs a flag.

    Raises:
        StoreError: The file cannot be written.
    """
    lines = (sealed_line({"rule": one.rule, "flag": str(one.flag), **one.row}) for one in witnesses)
    replace_store_file(witness_file_path(family, folder), "".join(lines))


def read_witnesses(family: str, folder: Path | None = None) -> list[StoredWitness]:
    """Read the witnesses (inputs at which a rule needs a flag) in the family's file. Without a file, return an empty list.

    Raises:
        StoreError: A line is not a witness.
    """
    path = witness_file_path(family, folder)
    try:
        return [StoredWitness(str(row.pop("rule")), FpFlag(str(row.pop("flag"))), row) for row in sealed_lines(path)]
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path.name}: a line is not a witness ({error})") from None


def is_witness(rule: Rule, stored: StoredWitness) -> bool:
    """Return whether the rule needs the stored flag at the stored inputs. If the inputs do not fit the rule, return False."""
    try:
        row = stored_record(_Row, stored.row, f"the witness of {stored.rule}")
        pair, environments = _again(rule, row)
        return bool(needs(pair, environments, stored.flag)[0])
    except (SuperoptError, ProgramTooLongError, KeyError, ValueError, IndexError, TypeError):
        return False


def _again(rule: Rule, row: _Row) -> tuple[ElementPair, Environments]:
    attributes = {name: _number(text) for name, text in row.attributes.items()}
    case = RuleCase(rule.equations[row.choice], row.choice, Instance(row.shapes, attributes), row.positions, row.turned)
    pair = pair_at(case, row.output, row.element)
    values = {_input(text): float(np.float32(value)) for text, value in row.values.items()}
    return pair, environments_of([{one: values[one] for one in pair.inputs}])


def to_store(rule: Rule, witness: Witness) -> StoredWitness:
    """Convert a witness (inputs at which the rule needs a floating-point flag) to a line of a witness file."""
    case = witness.case
    row: dict[str, object] = {}
    optional = {
        "choice": case.choice,
        "attributes": {name: str(value) for name, value in sorted(case.instance.attributes.items())},
        "positions": {name: list(at) for name, at in case.positions.items()},
        "turned": case.turned,
        "output": witness.output,
    }
    row.update({name: value for name, value in optional.items() if value})
    row["shapes"] = {name: list(shape) for name, shape in sorted(case.instance.shapes.items())}
    row["element"] = list(witness.element)
    row["values"] = {f"{name}[{','.join(map(str, at))}]": _text(v) for (name, at), v in sorted(witness.values.items())}
    return StoredWitness(rule.name, witness.flag, row)


def _text(value: float) -> str:
    """Return the shortest decimal text that denotes this number in float32."""
    return str(np.float32(value)).removesuffix(".0")


def _input(text: str) -> tuple[str, tuple[int, ...]]:
    name, at = re.fullmatch(r"(.*)\[([0-9,]*)\]", text).groups()  # type: ignore[union-attr]
    return name, tuple(int(i) for i in at.split(",") if i)


def _number(text: str) -> Extent:
    value = Fraction(text)
    return int(value) if value.denominator == 1 else value


def flag_sets(rules: Iterable[StoredRule]) -> str:
    """Return a Markdown table that shows how many rules need each set of floating-point flags."""
    found = Counter(tuple(flag for flag in FpFlag if flag in (one.entry.flags or ())) for one in rules)
    rows = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"| {' '.join(f'`{flag}`' for flag in flags) or 'none'} | {count:,} |" for flags, count in rows]
    return "\n".join(["| flags | rules |", "| --- | ---: |", *lines])
