"""The store of partial rules: substitutions/partial/<family>.rules for people, and for machines <family>.certificates.jsonl
and <family>.proofs.jsonl.

A partial rule `left ~> right` was found by mutants. Its certificate has the sizes at which it was judged, and it is refused
where it, or the definition of one of its operators, is not what was judged. Whoever uses it judges each instance, unless the
ledger has a proof of it as a rule `left => right`, for all sizes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superopt import store
from superopt.errors import NotationError, ShapeError, StoreError, Undecidable
from superopt.graph import Term, size
from superopt.match import Pattern
from superopt.op import registry, substitutions_folder
from superopt.partial.conditions import Stated, together
from superopt.partial.mutate import Mutant
from superopt.partial.sizes import Draw, Family
from superopt.partial.trial import Trial, instance, tried
from superopt.rule import Rule, digest, parse_rules
from superopt.store import Entry, read_ledger, record, replace_file, rule_lines, sealed, sealed_lines, write_ledger
from superopt.text import parse_condition

FOLDER = "partial"
NAME_WIDTH = 28


@dataclass(frozen=True)
class Certificate:
    """How a partial rule was found and judged.

    `key` is the hash of its text and its operators' meaning, `family` and `seed` what it was found in, and by which random
    numbers. `atoms` names what is open in its left side; `sizes` are numbers for these at which every box of the output was
    found equal, with the number of `boxes` beside them; `refused` are those at which its conditions do not hold, and neither
    does the rule. At each size it is wrong with a probability of less than 2 ** `log2_error`, by `tests` random inputs or more
    over prime fields of `prime` elements or more. `specs` has the digest of each operator.
    """

    key: str
    name: str
    family: str
    seed: int
    atoms: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    boxes: tuple[int, ...]
    refused: tuple[tuple[int, ...], ...]
    log2_error: int
    tests: int
    prime: int
    specs: Mapping[str, str]


@dataclass(frozen=True)
class Partial:
    """A partial rule with its certificate, and the ledger line of a proof for all sizes, where there is one."""

    rule: Rule
    certificate: Certificate
    proof: Entry | None = None

    @property
    def proved(self) -> bool:
        """Whether there is such a proof."""
        return self.proof is not None

    @functools.cached_property
    def pattern(self) -> Pattern:
        """The rule from left to right."""
        return Pattern.of(self.rule.equations[0])

    @functools.cached_property
    def family(self) -> Family:
        """The programs that the rule is about."""
        stated = self.rule.statement
        return Family(self.rule.name, stated.left, ", ".join(f"{name}[{rank}]" for name, (rank,) in stated.ranks))

    @functools.cached_property
    def conditions(self) -> tuple[Stated, ...]:
        """What the rule asks for."""
        tensors = {t.name: t for t in self.family.tensors}
        return tuple(Stated(text, parse_condition(text, tensors, ())) for text in self.rule.statement.where)


def exact(rule: Rule) -> Rule:
    """The rule without a doubt, as it is to be proved: of the arrow `=>`."""
    return dataclasses.replace(rule, statement=dataclasses.replace(rule.statement, arrow="=>"))


# ---------------------------------------------------------------- judged again


def objection(partial: Partial) -> str | None:
    """Why the rule's certificate does not hold, judged anew at all its sizes; None if it does."""
    family, certificate = partial.family, partial.certificate
    if certificate.atoms != atoms_of(family):
        return "its certificate is of other programs"
    where = together(partial.conditions)
    right = partial.rule.equations[0].right[0]
    for numbers, boxes in zip(certificate.sizes, certificate.boxes, strict=True):
        draw = Draw(family, numbers)
        trial = tried(family, right, draw)
        if not draw.holds(where) or not trial.holds or not _as_said(trial, boxes, certificate):
            return f"it is not shown to hold at {_at(certificate.atoms, numbers)}"
    for numbers in certificate.refused:
        draw = Draw(family, numbers)
        if draw.holds(where) or tried(family, right, draw).holds:
            return f"it should not hold at {_at(certificate.atoms, numbers)}"
    return None


def _as_said(trial: Trial, boxes: int, certificate: Certificate) -> bool:
    judged = trial.judgement
    return judged is not None and len(judged.equal) == boxes and judged.log2_error <= certificate.log2_error


def atoms_of(family: Family) -> tuple[str, ...]:
    """What is open in the family's program, by name."""
    return tuple(str(size(atom)) for atom in family.atoms)


def specs_of(rule: Rule) -> dict[str, str]:
    """The digests of the rule's operators."""
    return {name: registry()[name].digest for name in rule.operators}


def _at(atoms: Sequence[str], numbers: Sequence[int]) -> str:
    return ", ".join(f"{atom} = {number}" for atom, number in zip(atoms, numbers, strict=True))


def told(partial: Partial) -> str:
    """What the certificate and the proof say, in a line."""
    certificate, proof = partial.certificate, partial.proof
    basis = "" if proof is None else f"proved for all sizes from the {'definitions' if proof.kind == 'index' else 'axioms'}; "
    refused = f", refused at {len(certificate.refused)}" if certificate.refused else ""
    return (
        f"judged equal at {len(certificate.sizes)} sizes{refused}; error below 2**{certificate.log2_error} at each; "
        f"{basis}found in {certificate.family} with seed {certificate.seed}"
    )


def counted(rules: Sequence[Partial]) -> str:
    """How many rules there are, at how many sizes they were judged, and how many are proved, in words."""
    held, refused = (sum(len(getattr(p.certificate, which)) for p in rules) for which in ("sizes", "refused"))
    proofs = sum(p.proved for p in rules)
    return f"{len(rules)} partial rules hold at {held} sizes, and do not at {refused}; {proofs} are proved for all sizes"


# ---------------------------------------------------------------- stored


def write(family: str, about: str, rules: Sequence[Partial], folder: Path | None = None) -> None:
    """The three files of the family hold exactly these rules; each file changes as a whole or not at all.

    Raises:
        StoreError: a file cannot be written, or a rule does not read back as it was written.
    """
    where = _folder(folder)
    width = min(NAME_WIDTH, max((len(p.rule.name) + 2 for p in rules), default=0))
    text = f"# {about}\n\n" + "".join(rule_lines(p.rule, width) for p in rules)
    for partial, read in zip(rules, parse_rules(text), strict=True):
        if digest(read) != partial.certificate.key:
            raise StoreError(f"{partial.rule.name} is not stored: it does not read back as it was written")
    replace_file(where / f"{family}.certificates.jsonl", "".join(map(_line, rules)))
    write_ledger(family, [p.proof for p in rules if p.proof is not None], where)
    replace_file(where / f"{family}.rules", text)


def _line(partial: Partial) -> str:
    return sealed(dataclasses.asdict(partial.certificate))


def load(folder: Path | None = None) -> list[Partial]:
    """Every partial rule of the store, file by file; none where there is no such folder.

    Raises:
        StoreError: a file cannot be read, or a rule is not the one that was judged.
    """
    return [partial for path in sorted(_folder(folder).glob("*.rules")) for partial in _read(path)]


@functools.cache
def library() -> tuple[Partial, ...]:
    """The partial rules that superopt comes with; raises what `load` does."""
    return tuple(load())


# ---------------------------------------------------------------- matched


@dataclass(frozen=True)
class Recalled:
    """What a stored rule makes of a program: a mutant that nothing is left to be solved for in; `proved` as the rule is."""

    term: Term
    rule: str
    proved: bool = False

    def solved(self) -> Mutant:
        """The mutant, made by the rule."""
        return Mutant(self.term, (self.rule,), self.proved)


def recalled(program: Term, rules: Sequence[Partial]) -> Iterator[Recalled]:
    """What those of the rules that match make of the program; none of it is judged."""
    for partial in rules:
        with suppress(Undecidable):
            term = instance(partial.pattern, program)
            if term is not None:
                yield Recalled(term, partial.rule.name, partial.proved)


def _folder(folder: Path | None) -> Path:
    return (substitutions_folder() if folder is None else folder) / FOLDER


def _read(path: Path) -> Iterator[Partial]:
    rows = sealed_lines(path.with_name(f"{path.stem}.certificates.jsonl"))
    known = {certificate.key: certificate for certificate in map(_certificate, rows)}
    proofs = {entry.key: entry for entry in read_ledger(path.stem, path.parent)}
    try:
        rules = parse_rules(path.read_text(encoding="utf-8"))
    except (NotationError, ShapeError, UnicodeDecodeError, OSError) as error:
        raise StoreError(f"{path.parent.name}/{path.name}: {error}") from None
    for rule in rules:
        certificate = known.get(digest(rule))
        if certificate is None or rule.statement.arrow != "~>" or certificate.specs != specs_of(rule):
            raise StoreError(f"{path.parent.name}/{path.name}: {rule.name}: no certificate is of it as it stands")
        proof = proofs.get(digest(exact(rule)))
        if proof is not None and (why := store.objection(exact(rule), proof)) is not None:
            raise StoreError(f"{path.parent.name}/{path.name}: {rule.name}: {why}")
        yield Partial(rule, certificate, proof)


def _certificate(row: Mapping[str, Any]) -> Certificate:
    return record(Certificate, row, f"the certificate of {row.get('name')}")
