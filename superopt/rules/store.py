"""The rule store in substitutions/: files of rules, and ledgers that record the proof of each rule.

Each family (group of rules) has two files. The file `<family>.rules` contains the text of the rules, and
`<family>.proofs.jsonl` is the ledger. A rule is loaded only if the ledger contains a proof of exactly this rule for all sizes,
with the present definitions of the operators. A proof is stored under the hash of the rule's text and of its operators'
definitions and axioms (`superopt.algebra.digests`). The proof also lists the digest of every operator that occurs in an axiom
of the proof. Every line of a ledger ends with a seal, which is the hash of the rest of the line. A line that was damaged or
edited by hand is therefore rejected. Times are not stored, so the same rules always give the same files.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import TextWrapper
from types import NoneType, UnionType
from typing import TypeVar, get_args, get_origin, get_type_hints

from superopt.algebra.operators import registry, substitutions_folder
from superopt.errors import NotationError, ShapeError, StoreError, TargetError
from superopt.files import cause, write_text_atomically
from superopt.policy import REPORT
from superopt.rules.fp_flags import ALL_FLAGS, FpFlag
from superopt.rules.rule import Rule, axiom_law_names, axiom_laws, digest, parse_rules, stated_rules
from superopt.rules.verdict import Counterexample, Proved

AXIOMS, REFUTED = "axioms", "refuted.jsonl"
WIDTH = 128
ALL_SIZES, BOUNDED = "all sizes", "bounded"
CORE, SEARCH = "core", "search"


@dataclass(frozen=True)
class LedgerEntry:
    """A line of a ledger: a rule (or an axiom) with its proof, and the definitions on which the proof rests.

    Attributes:
        key: The hash of the statement and of its operators' definitions and axioms.
        kind: "axioms" for a proof from axioms, or "index" for a proof from the definitions.
        status: "all sizes" or "bounded". A rule with a bounded proof is not loaded.
        bounded: The values for which a bounded proof holds.
        axioms: The axioms that the proof uses.
        instances: The ground instances of `axioms` that a check of the proof needs.
        unasked: The digests of arithmetic questions (whether conditions imply a condition) that a check of the proof can skip.
        specs: The digest of each operator in the statement or in an axiom of its proof.
        origin: A text that says how the rule was found.
        samples: The number of random instances at which both sides were evaluated and were equal.
        part: "core" for a rule that the other core rules do not imply, or "search" for a rule that the core rules imply.
        flags: The floating-point flags that the rule needs, or None if they were not determined.
        flags_basis: The evidence that the rule needs no other flags.
    """

    key: str
    name: str
    verdict: str
    kind: str
    status: str
    bounded: tuple[str, ...]
    ranks: tuple[str, ...]
    axioms: tuple[str, ...]
    instances: tuple[str, ...]
    solver: str
    specs: Mapping[str, str]
    origin: str = ""
    samples: int = 0
    part: str = CORE
    unasked: tuple[str, ...] = ()
    flags: tuple[str, ...] | None = None
    flags_basis: str = ""

    @property
    def fp_flags(self) -> frozenset[FpFlag]:
        """The floating-point flags that the rule needs, or all flags if they were not determined."""
        return ALL_FLAGS if self.flags is None else frozenset(map(FpFlag, self.flags))

    @property
    def proof(self) -> Proved:
        """The stored proof. Its time is 0, because times are not stored."""
        return Proved(0.0, self.bounded, self.axioms, self.instances, self.kind, self.unasked)


@dataclass(frozen=True)
class StoredRule:
    """A rule of the store with its ledger line."""

    rule: Rule
    family: str
    entry: LedgerEntry

    @property
    def core(self) -> bool:
        """Whether the rule is a core rule: a rule that the other core rules do not imply."""
        return self.entry.part == CORE


@dataclass(frozen=True)
class Rejected:
    """A conjectured rule that was refuted. The conjecture is not tried again, and its counterexample is a regression test."""

    key: str
    rule: str
    counterexample: Counterexample


# ---------------------------------------------------------------- entries


def entry_of(rule: Rule, proof: Proved, *, solver: str, origin: str = "", samples: int = 0, part: str = CORE) -> LedgerEntry:
    """Return the ledger entry that records the proof of the rule."""
    return LedgerEntry(
        key=digest(rule),
        name=rule.name,
        verdict="proved",
        kind=proof.kind,
        status=BOUNDED if proof.bounded else ALL_SIZES,
        bounded=proof.bounded,
        ranks=rule.choices,
        axioms=proof.axioms,
        instances=proof.instances,
        solver=solver,
        specs=spec_digests(rule, proof.axioms),
        origin=origin,
        samples=samples,
        part=part,
        unasked=proof.unasked,
    )


def spec_digests(rule: Rule, used: Iterable[str]) -> dict[str, str]:
    """Return a mapping from names to digests for all operators that occur in the rule or in one of the axioms `used`."""
    names = set(rule.operators)
    for axiom in used:
        names.add(axiom.partition(".")[0])
        stated = axiom_laws().get(axiom)
        names.update(stated.operators if stated else ())
    return {name: registry()[name].digest for name in sorted(names)}


def ledger_objection(rule: Rule, entry: LedgerEntry | None) -> str | None:
    """Return the reason why the store rejects the ledger entry as a proof of the rule. Return None if the store accepts the
    entry.

    The proof must be valid for all sizes, with the present definitions of the rule's operators.
    """
    if entry is None or entry.key != digest(rule):
        return "the ledger has no proof for the present text of the rule and the present definitions of its operators"
    if entry.verdict != "proved":
        return f"the ledger has the verdict {entry.verdict!r}"
    if entry.name != rule.name:
        return f"the proof of the rule is stored under the name {entry.name}"
    if entry.bounded or entry.status != ALL_SIZES:
        limits = "; ".join(entry.bounded) or "sizes that the ledger does not state"
        return f"the rule is not proved for all sizes, but only for {limits}"
    missing = [name for name in entry.axioms if name not in axiom_law_names()]
    if missing:
        return f"the proof uses the axiom {missing[0]}, which no longer exists"
    if {text.partition("(")[0] for text in entry.instances} != {*entry.axioms} or (entry.kind == "axioms") != bool(
        entry.axioms
    ):
        return "the axioms and the instances of the proof in the ledger do not match"
    return _stale(spec_digests(rule, entry.axioms), entry.specs)


def _stale(now: Mapping[str, str], then: Mapping[str, str]) -> str | None:
    """Return the reason why a proof is outdated, or None if the proof is valid.

    `now` contains the present digests of operators, and `then` contains the stored digests. A proof is outdated if the
    definition of an operator has changed, or if the digest of an operator is not stored.
    """
    names = [name for name in sorted({*now, *then}) if now.get(name) != then.get(name)]
    if not names:
        return None
    what = "has changed since the rule was proved" if names[0] in then else "is not among the definitions that the proof names"
    return f"specs/{names[0]}.py, or code that it uses, {what}"


# ---------------------------------------------------------------- reading


def families(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of the stored families (groups of rules), in alphabetical order.

    Raises:
        StoreError: There is no rule store.
    """
    where = substitutions_folder() if folder is None else folder
    if not where.is_dir():
        raise StoreError(f"the folder of the rule store, {where}, does not exist")
    return tuple(sorted(path.stem for path in where.glob("*.rules")))


def read_family(family: str, folder: Path | None = None) -> list[tuple[Rule, LedgerEntry | None]]:
    """Return pairs (rule, ledger entry) for a family. The entry is None if the ledger contains no proof of exactly this rule.

    An entry may be outdated. A rule with an entry is parsed only when its equations are requested.

    Raises:
        StoreError: A file cannot be read, or a rule without an entry is not valid notation.
    """
    return _with_ledger(family, folder)[0]


def _with_ledger(family: str, folder: Path | None) -> tuple[list[tuple[Rule, LedgerEntry | None]], Mapping[str, LedgerEntry]]:
    """Return the result of `read_family`, and a mapping from `LedgerEntry.key` to the family's ledger entries."""
    where = substitutions_folder() if folder is None else folder
    path = where / f"{family}.rules"
    ledger = {entry.key: entry for entry in read_ledger(family, where)}
    try:
        rules = stated_rules(path.read_text(encoding="utf-8"))
        found = [(rule, ledger.get(digest(rule))) for rule in rules]
        for rule, entry in found:
            if entry is None:
                _ = rule.equations
    except (NotationError, ShapeError, UnicodeDecodeError, OSError) as error:
        raise StoreError(f"{path.name}: {error}") from None
    return found, ledger


def read_ledger(family: str, folder: Path | None = None) -> list[LedgerEntry]:
    """Return the ledger entries of a family, or of the axioms if `family` is `AXIOMS`.

    If the file does not exist, the list is empty.

    Raises:
        StoreError: A line is not a valid entry.
    """
    where = substitutions_folder() if folder is None else folder
    return [_entry(row) for row in sealed_lines(where / f"{family}.proofs.jsonl")]


def load(folder: Path | None = None) -> list[StoredRule]:
    """Return every rule of the store, after checking that the ledger contains a valid proof of each rule.

    A proof is valid only if the definitions of the rule's operators have not changed since the proof. In one process, the files
    are read again only if a file or the definition of an operator has changed since the last call.

    Raises:
        StoreError: A file cannot be read, or a rule has no valid proof. The message names the rules without a valid proof.
    """
    where = substitutions_folder() if folder is None else folder
    contents = hashlib.blake2b()
    for path in (where / f"{family}{suffix}" for family in families(where) for suffix in (".rules", ".proofs.jsonl")):
        with contextlib.suppress(OSError):  # `load_families` raises an error for a file that cannot be read
            contents.update(path.read_bytes())
    return list(_load(where, contents.digest(), tuple(operator.digest for operator in registry().values())))


@functools.lru_cache(maxsize=1)
def _load(folder: Path, _contents: bytes, _definitions: tuple[str, ...]) -> tuple[StoredRule, ...]:
    """Return the rules of a store. The rules depend on the contents of the store's files and on the definitions of the
    operators.
    """
    return tuple(load_families(families(folder), folder, "superopt generate writes the store again"))


def load_families(names: Iterable[str], folder: Path | None, remedy: str) -> list[StoredRule]:
    """Return the rules of these families, with the same checks as in `load`. An error message ends with the hint `remedy`.

    Raises:
        StoreError: A file cannot be read, or a rule has no valid proof. The message names the rules without a valid proof.
    """
    found: list[StoredRule] = []
    refused: list[str] = []
    for family in names:
        rules, ledger = _with_ledger(family, folder)
        stated = {rule.name for rule, _ in rules}
        gone = [entry.name for entry in ledger.values() if entry.name not in stated]
        refused += [
            f"{family}.rules: {name}: the ledger has a proof of this rule, but the file does not contain the rule"
            for name in gone
        ]
        for rule, entry in rules:
            why = ledger_objection(rule, entry)
            if why is not None:
                refused.append(f"{family}.rules: {rule.name}: {why}")
            elif entry is not None:
                found.append(StoredRule(replace(rule, flags=entry.fp_flags, family=family), family, entry))
    if refused:
        more = f"; and {len(refused) - REPORT.max_refused_rules} more" if len(refused) > REPORT.max_refused_rules else ""
        raise StoreError(f"{'; '.join(refused[: REPORT.max_refused_rules])}{more} ({remedy})")
    return found


def rule_named(rules: Sequence[StoredRule], name: str) -> StoredRule:
    """Return the rule with this name.

    Raises:
        StoreError: No rule has this name. The message suggests similar names.
    """
    found = next((stored for stored in rules if stored.rule.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name, [stored.rule.name for stored in rules], n=3, cutoff=0.4)
        raise StoreError(f"no rule is called {name!r}" + (f"; similar names are {', '.join(near)}" if near else ""))
    return found


def select_rules(
    rules: Sequence[StoredRule], *, family: str | None = None, part: str | None = None, operators: Sequence[str] = ()
) -> list[StoredRule]:
    """Return the rules of this family and this part that contain all of these operators.

    `part` is "core" or "search". If `family` or `part` is None, rules of every family or part are returned.
    """
    return [
        stored
        for stored in rules
        if family in (None, stored.family) and part in (None, stored.entry.part) and {*operators} <= {*stored.rule.operators}
    ]


def load_rules(folder: Path | None = None) -> list[Rule]:
    """Return the rules that optimization uses: the rules of `load`, without their ledger entries.

    Raises:
        StoreError: See `load`.
    """
    return [stored.rule for stored in load(folder)]


def load_axioms(folder: Path | None = None) -> dict[str, LedgerEntry]:
    """Return a mapping from the full names of axioms to their ledger entries.

    Axioms that have changed since their proof are left out.

    Raises:
        StoreError: A line is not a valid entry.
    """
    known = axiom_laws()
    lines = read_ledger(AXIOMS, folder)
    return {e.name: e for e in lines if e.name in known and e.key == digest(known[e.name])}


def load_refuted(folder: Path | None = None) -> dict[str, Rejected]:
    """Return a mapping from keys to the refuted candidate rules.

    A key is a hash of the rule's text and of its operators' definitions and axioms. If an operator is redefined, the keys of
    candidates with this operator change. These candidates can therefore be tried again.

    Raises:
        StoreError: A line is not a valid entry.
    """
    where = substitutions_folder() if folder is None else folder
    return {rejected.key: rejected for rejected in (_rejected(row) for row in sealed_lines(where / REFUTED))}


def sealed_lines(path: Path) -> list[dict[str, object]]:
    """Return the JSON objects of a file with one object on each line. If the file does not exist, return an empty list.

    Each object contains a seal, which is the hash of the rest of the object. Seals are checked and removed.

    Raises:
        StoreError: A line is not an object, or its seal does not match its content.
    """
    if not path.exists():
        return []
    rows: list[dict[str, object]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path.name} cannot be read ({error})") from None
    for number, line in enumerate(lines, 1):
        try:
            row: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{path.name}, line {number}: {error}") from None
        if not isinstance(row, dict):
            raise StoreError(f"{path.name}, line {number}: the line is not a JSON object")
        if row.pop("seal", None) != content_seal(row):
            raise StoreError(f"{path.name}, line {number}: the entry of {row.get('name', row.get('rule'))} was edited")
        rows.append(row)
    return rows


def sealed_line(row: Mapping[str, object]) -> str:
    """Return the object as a line of JSON that ends with a seal, which is the hash of the object."""
    return json.dumps({**row, "seal": content_seal(row)}, ensure_ascii=False) + "\n"


def content_seal(row: Mapping[str, object]) -> str:
    """Return the hash of an object's content."""
    return hashlib.sha256(json.dumps(row, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:16]


def _entry(row: Mapping[str, object]) -> LedgerEntry:
    entry = stored_record(LedgerEntry, row, f"the ledger line of {row.get('name')}")
    known = {flag.value for flag in FpFlag}
    if unknown := [flag for flag in entry.flags or () if flag not in known]:
        raise StoreError(f"the ledger line of {entry.name} has {unknown[0]!r}, which is not a floating-point flag")
    if entry.verdict == "proved" and entry.status != (BOUNDED if entry.bounded else ALL_SIZES):
        raise StoreError(
            f"the ledger line of {entry.name} has the status {entry.status!r}, but lists {len(entry.bounded)} bounds"
        )
    return entry


def _rejected(row: Mapping[str, object]) -> Rejected:
    inner = row.get("counterexample")
    where = f"the refutation of {row.get('rule')}"
    if not isinstance(inner, dict):
        raise StoreError(f"{where} has no counterexample")
    return stored_record(Rejected, {**row, "counterexample": stored_record(Counterexample, inner, where)}, where)


Record = TypeVar("Record")


def stored_record(kind: Callable[..., Record], row: Mapping[str, object], where: str) -> Record:
    """Convert a JSON object from a ledger or another file of the store to an instance of the dataclass `kind`.

    Raises:
        StoreError: A field is missing, is unknown or has a value of the wrong type.
    """
    known = _fields(kind)
    values = {name: _tuples(value) for name, value in row.items()}
    wrong = [name for name, value in values.items() if name not in known or not known[name](value)]
    if wrong:
        raise StoreError(f"{where}: the field {wrong[0]!r} is unknown or has a value of the wrong type")
    try:
        return kind(**values)
    except TypeError:
        raise StoreError(f"{where} has no value for {', '.join(sorted(known.keys() - values.keys()))}") from None


@functools.cache
def _fields(kind: Callable[..., object]) -> Mapping[str, Callable[[object], bool]]:
    """Return a mapping from the names of the dataclass's fields to functions that test whether a JSON value has the field's
    type.
    """
    return {name: _fits(hint) for name, hint in get_type_hints(kind).items()}


def _fits(hint: object) -> Callable[[object], bool]:
    kind, inner = get_origin(hint), get_args(hint)
    parts = [_fits(one) for one in inner if one is not Ellipsis]
    if kind is UnionType:
        return lambda value: any(fits(value) for fits in parts)
    if kind is tuple and inner[-1] is Ellipsis:
        return lambda value: isinstance(value, tuple) and all(map(parts[0], value))
    if kind is tuple:
        return lambda value: (
            isinstance(value, tuple) and len(value) == len(parts) and all(f(v) for f, v in zip(parts, value, strict=True))
        )
    if kind is Mapping:
        return lambda value: isinstance(value, dict) and all(map(parts[0], value)) and all(map(parts[1], value.values()))
    return lambda value: type(value) is (NoneType if hint is None else hint)


def _tuples(value: object) -> object:
    """Return the JSON value with tuples instead of lists."""
    match value:
        case list():
            return tuple(map(_tuples, value))
        case dict():
            return {name: _tuples(one) for name, one in value.items()}
        case _:
            return value


# ---------------------------------------------------------------- writing


def write_family(family: str, about: str, rules: Sequence[tuple[Rule, LedgerEntry]], folder: Path | None = None) -> None:
    """Replace the family's stored rules and ledger by these rules and entries, core rules first.

    `about` becomes the comment at the top of the file of rules. Each file is replaced as a whole.

    Raises:
        StoreError: An entry does not prove its rule, or a file cannot be written.
    """
    where = substitutions_folder() if folder is None else folder
    for rule, entry in rules:
        why = ledger_objection(rule, entry)
        if why is not None:
            raise StoreError(f"{rule.name} is not stored: {why}")
    ordered = sorted(rules, key=lambda item: item[1].part != CORE)
    text = rules_file_text(about, ordered)
    for (rule, entry), read in zip(ordered, parse_rules(text), strict=True):
        if digest(read) != entry.key:
            raise StoreError(f"{rule.name} is not stored: the written text does not parse back to the same rule")
    write_ledger(family, [entry for _, entry in ordered], where)
    replace_store_file(where / f"{family}.rules", text)


def rules_file_text(about: str, rules: Sequence[tuple[Rule, LedgerEntry]]) -> str:
    """Return the text of a family's .rules file in the store.

    The text contains the comment `about`, the core rules, and then the rules that the core rules imply.
    """
    titles = {
        CORE: "Core: none was found to follow from the others.",
        SEARCH: "For the search: derived, and proved all the same.",
    }
    text = "".join(f"# {line}".rstrip() + "\n" for line in about.splitlines())
    for part, title in titles.items():
        block = [rule for rule, entry in rules if entry.part == part]
        if block:
            width = min(28, max(len(rule.name) for rule in block) + 2)
            text += f"\n# {title}\n\n" + "".join(rules_file_lines(rule, width) for rule in block)
    return text


def rules_file_lines(rule: Rule, width: int) -> str:
    """Return the text of the rule, with the name padded to `width` characters. The text is on one line if it fits.

    A rule that is too long for one line is broken after the name, before the arrow and before `for`.
    """
    stated = rule.statement
    head = f"{rule.name}:".ljust(width)
    clauses = str(stated)[len(stated.left) :].strip().removeprefix(stated.arrow).strip()[len(stated.right) :].strip()
    line = f"{head} {stated.left}  {stated.arrow}  {stated.right}  {clauses}".rstrip()
    if len(line) <= WIDTH:
        return line + "\n"
    pieces = stated.left, f"{stated.arrow} {stated.right}", clauses
    return f"{rule.name}:\n" + "".join(map(_wrapped, filter(None, pieces)))


def _wrapped(text: str) -> str:
    """Return the text wrapped at spaces. `parse_rules` joins the lines again."""
    wrap = TextWrapper(WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
    return wrap.fill(text) + "\n"


def write_ledger(family: str, entries: Iterable[LedgerEntry], folder: Path | None = None) -> None:
    """Replace the ledger of a family, or of the axioms if `family` is `AXIOMS`, by these entries.

    Raises:
        StoreError: The file cannot be written.
    """
    where = substitutions_folder() if folder is None else folder
    replace_store_file(where / f"{family}.proofs.jsonl", "".join(map(_line, entries)))


def write_axioms(entries: Sequence[LedgerEntry], folder: Path | None = None) -> None:
    """Replace the axioms' ledger by these entries, in alphabetical order.

    Raises:
        StoreError: The file cannot be written.
    """
    write_ledger(AXIOMS, sorted(entries, key=lambda e: e.name), folder)


def write_refuted(rejected: Iterable[Rejected], folder: Path | None = None) -> None:
    """Replace the file of refuted candidate rules by these candidates, without duplicates.

    Raises:
        StoreError: The file cannot be written.
    """
    where = substitutions_folder() if folder is None else folder
    unique = {one.key: one for one in rejected}
    replace_store_file(where / REFUTED, "".join(map(_line, sorted(unique.values(), key=lambda one: (one.rule, one.key)))))


def _line(line: LedgerEntry | Rejected) -> str:
    optional = {"unasked": (), "flags": None, "flags_basis": ""}
    kept = {name: value for name, value in asdict(line).items() if name not in optional or value != optional[name]}
    return sealed_line(kept)


def replace_store_file(path: Path, text: str) -> None:
    """Replace the contents of the file by the text.

    Raises:
        StoreError: The file cannot be written. In this case, the old contents stay unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(text, path)
    except (OSError, TargetError) as error:
        raise StoreError(f"{path} cannot be written ({cause(error)})") from None
