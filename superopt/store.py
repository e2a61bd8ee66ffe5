"""The rule store: substitutions/ as people read it (<family>.rules) and as machines check it (<family>.proofs.jsonl).

A rule is loaded only if the ledger has a proof of exactly this rule, made with exactly these definitions: the proof is filed
under the hash of the rule's text and of the spec files of its operators, and names the hash of every other spec file that
its axioms come from. What a clock says is never stored, so the same rules always make the same files.
"""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from textwrap import TextWrapper
from typing import Any, TypeVar

from superopt.errors import NotationError, ShapeError, StoreError
from superopt.fp_flags import ALL_FLAGS, FpFlag
from superopt.op import registry, substitutions_folder
from superopt.rule import Rule, digest, law_names, laws, parse_rules, stated_rules
from superopt.verdict import Counterexample, Proved

AXIOMS, REFUTED = "axioms", "refuted.jsonl"
WIDTH, SHOWN = 128, 5
ALL_SIZES, BOUNDED = "all sizes", "bounded"
CORE, SEARCH = "core", "search"


@dataclass(frozen=True)
class Entry:
    """A line of a ledger: what is known about a rule (or an axiom), and what that rests on.

    `key` is the hash of the statement and its operators' spec files; `specs` has the hash of each spec file that the statement
    or an axiom of its proof mentions. `kind` is what was reasoned from, "axioms" or "index". `status` is "all sizes", or
    "bounded" where `bounded` says for which values of what. `instances` are the ground instances of `axioms` that replaying
    needs, `unasked` the digests of questions of arithmetic that it need not ask. `origin` says how the rule was found,
    `samples` on how many random instantiations no difference was, `part` whether it belongs to the minimal "core" or was
    derived from it for the "search". `flags` are the floating-point flags that the rule needs, None where nobody has looked.
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

    @property
    def fp_flags(self) -> frozenset[FpFlag]:
        """The floating-point flags that the rule needs; all of them where nobody has looked."""
        return ALL_FLAGS if self.flags is None else frozenset(map(FpFlag, self.flags))

    @property
    def proof(self) -> Proved:
        """The proof as it was stored, which a clock had no part in."""
        return Proved(0.0, self.bounded, self.axioms, self.instances, self.kind, self.unasked)


@dataclass(frozen=True)
class Stored:
    """A rule of the store with its ledger line."""

    rule: Rule
    family: str
    entry: Entry

    @property
    def core(self) -> bool:
        """Whether no other rules derive this one; the rest of the store is there for the search."""
        return self.entry.part == CORE


@dataclass(frozen=True)
class Rejected:
    """A candidate that was refuted: never tried again, and a regression test."""

    key: str
    rule: str
    counterexample: Counterexample


# ---------------------------------------------------------------- entries


def entry_of(rule: Rule, proof: Proved, *, solver: str, origin: str = "", samples: int = 0, part: str = CORE) -> Entry:
    """The ledger line for a rule that was proved."""
    return Entry(
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
    """The hash of every spec file that the rule or one of these axioms mentions, by the operator's name."""
    names = set(rule.operators)
    for axiom in used:
        names.add(axiom.partition(".")[0])
        stated = laws().get(axiom)
        names.update(stated.operators if stated else ())
    return {name: registry()[name].digest for name in sorted(names)}


def objection(rule: Rule, entry: Entry | None) -> str | None:
    """Why a proof is no proof of this rule as it stands; None if it is one."""
    if entry is None or entry.key != digest(rule):
        return "no proof of it as it is written, with the operators as they are defined, is in the ledger"
    if entry.verdict != "proved":
        return f"the ledger says {entry.verdict}"
    changed = [name for name, known in entry.specs.items() if name not in registry() or registry()[name].digest != known]
    if changed:
        return f"specs/{changed[0]}.py has changed since it was proved"
    missing = [name for name in entry.axioms if name not in law_names()]
    return f"it rests on {missing[0]}, which is gone" if missing else None


# ---------------------------------------------------------------- reading


def families(folder: Path | None = None) -> tuple[str, ...]:
    """The families of rules that are stored, in alphabetical order.

    Raises:
        StoreError: there is no rule store.
    """
    where = substitutions_folder() if folder is None else folder
    if not where.is_dir():
        raise StoreError(f"no rule store at {where}")
    return tuple(sorted(path.stem for path in where.glob("*.rules")))


def read_family(family: str, folder: Path | None = None) -> list[tuple[Rule, Entry | None]]:
    """The rules of a family with their ledger lines, whether or not those still hold.

    A rule that the ledger knows was read when it was proved, and is read again only where its equations are asked for.

    Raises:
        StoreError: a file cannot be read.
    """
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
    return found


def read_ledger(family: str, folder: Path | None = None) -> list[Entry]:
    """The lines of a family's ledger (or of the axioms'); none where there is no such file.

    Raises:
        StoreError: a line cannot be read.
    """
    where = substitutions_folder() if folder is None else folder
    return [_entry(row) for row in json_lines(where / f"{family}.proofs.jsonl")]


def load(folder: Path | None = None) -> list[Stored]:
    """Every rule of the store, each with a proof that holds for it as it stands.

    Raises:
        StoreError: a file cannot be read, or rules are stale or unproved; it says which.
    """
    found: list[Stored] = []
    refused: list[str] = []
    for family in families(folder):
        for rule, entry in read_family(family, folder):
            why = objection(rule, entry)
            if why is not None:
                refused.append(f"{family}.rules: {rule.name}: {why}")
            elif entry is not None:
                found.append(Stored(replace(rule, flags=entry.fp_flags), family, entry))
    if refused:
        more = f"; and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
        raise StoreError(f"{'; '.join(refused[:SHOWN])}{more} (superopt generate writes them anew)")
    return found


def named(rules: Sequence[Stored], name: str) -> Stored:
    """The rule of this name.

    Raises:
        StoreError: there is none; it says which names come near.
    """
    found = next((stored for stored in rules if stored.rule.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name, [stored.rule.name for stored in rules], n=3, cutoff=0.4)
        raise StoreError(f"no rule is called {name!r}" + (f"; near it are {', '.join(near)}" if near else ""))
    return found


def selected(
    rules: Sequence[Stored], *, family: str | None = None, part: str | None = None, operators: Sequence[str] = ()
) -> list[Stored]:
    """The rules of the family and part that mention all of these operators."""
    return [
        stored
        for stored in rules
        if family in (None, stored.family) and part in (None, stored.entry.part) and {*operators} <= {*stored.rule.operators}
    ]


def load_rules(folder: Path | None = None) -> list[Rule]:
    """The rules that optimization uses: as `load`, without the ledger.

    Raises:
        StoreError: as `load`.
    """
    return [stored.rule for stored in load(folder)]


def load_axioms(folder: Path | None = None) -> dict[str, Entry]:
    """The ledger lines of the axioms that are still as they were when it was written, by full name.

    Raises:
        StoreError: a line cannot be read.
    """
    known = laws()
    lines = read_ledger(AXIOMS, folder)
    return {e.name: e for e in lines if e.name in known and e.key == digest(known[e.name])}


def load_refuted(folder: Path | None = None) -> dict[str, Rejected]:
    """The refuted candidates by key; one whose operators were redefined has another key and may be tried again.

    Raises:
        StoreError: a line cannot be read.
    """
    where = substitutions_folder() if folder is None else folder
    return {rejected.key: rejected for rejected in (_rejected(row) for row in json_lines(where / REFUTED))}


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, one a line; none where there is no file. Raises StoreError where a line is none."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise StoreError(f"{path.name}, line {number}: {error}") from None
        if not isinstance(row, dict):
            raise StoreError(f"{path.name}, line {number}: not an entry")
        rows.append(row)
    return rows


def _entry(row: Mapping[str, Any]) -> Entry:
    return _record(Entry, row, f"the ledger line of {row.get('name')}")


def _rejected(row: Mapping[str, Any]) -> Rejected:
    inner = row.get("counterexample")
    where = f"the refutation of {row.get('rule')}"
    if not isinstance(inner, dict):
        raise StoreError(f"{where} has no counterexample")
    return _record(Rejected, {**row, "counterexample": _record(Counterexample, inner, where)}, where)


Record = TypeVar("Record", Entry, Rejected, Counterexample)


def _record(kind: type[Record], row: Mapping[str, Any], where: str) -> Record:
    try:
        return kind(**{name: _tuples(value) for name, value in row.items()})
    except TypeError:
        names = {f.name for f in fields(kind)}
        raise StoreError(f"{where} lacks or has too much: {', '.join(sorted(names ^ set(row)))}") from None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# ---------------------------------------------------------------- writing


def write_family(family: str, about: str, rules: Sequence[tuple[Rule, Entry]], folder: Path | None = None) -> None:
    """The family's two files hold exactly these rules, the core first; each file changes as a whole or not at all.

    Raises:
        StoreError: an entry does not prove its rule, or a file cannot be written.
    """
    where = substitutions_folder() if folder is None else folder
    for rule, entry in rules:
        why = objection(rule, entry)
        if why is not None:
            raise StoreError(f"{rule.name} is not stored: {why}")
    ordered = sorted(rules, key=lambda item: item[1].part != CORE)
    text = rules_text(about, ordered)
    for (rule, entry), read in zip(ordered, parse_rules(text), strict=True):
        if digest(read) != entry.key:
            raise StoreError(f"{rule.name} is not stored: it does not read back as it was written")
    write_ledger(family, [entry for _, entry in ordered], where)
    replace_file(where / f"{family}.rules", text)


def rules_text(about: str, rules: Sequence[tuple[Rule, Entry]]) -> str:
    """The text of a .rules file: a comment, then the rules, those of the core and those derived for the search."""
    titles = {
        CORE: "Core: none was found to follow from the others.",
        SEARCH: "For the search: derived, and proved all the same.",
    }
    text = "".join(f"# {line}".rstrip() + "\n" for line in about.splitlines())
    for part, title in titles.items():
        block = [rule for rule, entry in rules if entry.part == part]
        if block:
            width = min(28, max(len(rule.name) for rule in block) + 2)
            text += f"\n# {title}\n\n" + "".join(rule_lines(rule, width) for rule in block)
    return text


def rule_lines(rule: Rule, width: int) -> str:
    """The rule on one line, its name so wide, or broken before its arrow, its ranks and its conditions."""
    stated = rule.statement
    head = f"{rule.name}:".ljust(width)
    clauses = str(stated)[len(stated.left) :].strip().removeprefix(stated.arrow).strip()[len(stated.right) :].strip()
    line = f"{head} {stated.left}  {stated.arrow}  {stated.right}  {clauses}".rstrip()
    if len(line) <= WIDTH:
        return line + "\n"
    pieces = stated.left, f"{stated.arrow} {stated.right}", clauses
    return f"{rule.name}:\n" + "".join(map(_wrapped, filter(None, pieces)))


def _wrapped(text: str) -> str:
    """The text on as many lines as it needs, broken at spaces, which reading puts back."""
    wrap = TextWrapper(WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
    return wrap.fill(text) + "\n"


def write_ledger(family: str, entries: Iterable[Entry], folder: Path | None = None) -> None:
    """The family's ledger (or the axioms') holds exactly these lines.

    Raises:
        StoreError: the file cannot be written.
    """
    where = substitutions_folder() if folder is None else folder
    replace_file(where / f"{family}.proofs.jsonl", "".join(map(_line, entries)))


def write_axioms(entries: Sequence[Entry], folder: Path | None = None) -> None:
    """The axioms' ledger holds exactly these lines, in alphabetical order; raises what `write_ledger` does."""
    write_ledger(AXIOMS, sorted(entries, key=lambda e: e.name), folder)


def write_refuted(rejected: Iterable[Rejected], folder: Path | None = None) -> None:
    """The file of refuted candidates holds exactly these, each once.

    Raises:
        StoreError: the file cannot be written.
    """
    where = substitutions_folder() if folder is None else folder
    unique = {one.key: one for one in rejected}
    replace_file(where / REFUTED, "".join(map(_line, sorted(unique.values(), key=lambda one: (one.rule, one.key)))))


def _line(record: Entry | Rejected) -> str:
    optional = {"unasked": (), "flags": None}
    kept = {name: value for name, value in asdict(record).items() if name not in optional or value != optional[name]}
    return json.dumps(kept, ensure_ascii=False) + "\n"


def replace_file(path: Path, text: str) -> None:
    """The file holds the text, or is as it was. Raises StoreError where it cannot be written."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="\n", dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror})") from None
    finally:
        if temporary and Path(temporary).exists():
            Path(temporary).unlink()
