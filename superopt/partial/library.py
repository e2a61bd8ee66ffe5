"""The store of partial rules, in substitutions/partial/.

A family is a program of one operator at variable sizes. For each family, <family>.rules has the text of the rules,
<family>.certificates.jsonl has a certificate for each rule, and <family>.proofs.jsonl is the ledger of proofs.

A partial rule `left ~> right` was found by generalising mutants. The certificate of the rule lists the sizes at which the rule
was judged. `load_partial_rules` raises an error if the rule, or the definition of one of its operators, has changed since.
Callers must judge each instance of the rule, unless the ledger proves `left => right` for all sizes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superopt.algebra.operators import registry, substitutions_folder
from superopt.algebra.terms import Term, size
from superopt.errors import NotationError, ShapeError, StoreError, Undecidable
from superopt.notation.parsing import parse_condition
from superopt.partial.conditions import StatedCondition, conjoin_stated
from superopt.partial.mutate import Mutant
from superopt.partial.sizes import FamilyDraw, ProgramFamily
from superopt.partial.trial import Trial, instance, judge_draw
from superopt.rules import store
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule, digest, parse_rules
from superopt.rules.store import (
    LedgerEntry,
    read_ledger,
    record,
    replace_file,
    rule_lines,
    sealed_line,
    sealed_lines,
    write_ledger,
)

FOLDER = "partial"
NAME_WIDTH = 28


@dataclass(frozen=True)
class PartialCertificate:
    """The record of how a partial rule was found and judged.

    Attributes:
        key: The hash of the rule's text and its operators' definitions.
        name: The name of the rule.
        family: The family of programs that the rule was found in.
        seed: The random seed.
        atoms: The names of the variable extents and attributes in the left side.
        sizes: Values of the atoms at which every box of the output was found equal.
        boxes: The number of equal boxes at each of these sizes.
        refused: Values of the atoms at which the conditions fail and the rule does not hold.
        log2_error: At each size, the probability that the judgement is wrong is below 2 ** `log2_error`.
        tests: The smallest number of random inputs used at any size.
        prime: The size of the smallest prime field.
        specs: The digest of each operator.
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
class PartialRule:
    """A partial rule with its certificate, and the ledger entry of its proof for all sizes, if there is one."""

    rule: Rule
    certificate: PartialCertificate
    proof: LedgerEntry | None = None

    @property
    def proved(self) -> bool:
        """Whether the rule is proved for all sizes."""
        return self.proof is not None

    @functools.cached_property
    def pattern(self) -> Pattern:
        """The pattern that matches the rule's left side and builds its right side."""
        return Pattern.of(self.rule.equations[0])

    @functools.cached_property
    def family(self) -> ProgramFamily:
        """The programs that the rule applies to."""
        stated = self.rule.statement
        return ProgramFamily(self.rule.name, stated.left, ", ".join(f"{name}[{rank}]" for name, (rank,) in stated.ranks))

    @functools.cached_property
    def conditions(self) -> tuple[StatedCondition, ...]:
        """The conditions of the rule."""
        tensors = {t.name: t for t in self.family.tensors}
        return tuple(StatedCondition(text, parse_condition(text, tensors, ())) for text in self.rule.statement.where)


def exact(rule: Rule) -> Rule:
    """Return the rule with the arrow `=>`, as a statement to prove."""
    return dataclasses.replace(rule, statement=dataclasses.replace(rule.statement, arrow="=>"))


# ---------------------------------------------------------------- judging again


def certificate_objection(partial: PartialRule) -> str | None:
    """Judge the rule again at all sizes of its certificate. Return why the certificate is wrong, or None if it is right."""
    family, certificate = partial.family, partial.certificate
    if certificate.atoms != family_atom_names(family):
        return "its certificate is of other programs"
    where = conjoin_stated(partial.conditions)
    right = partial.rule.equations[0].right[0]
    for numbers, boxes in zip(certificate.sizes, certificate.boxes, strict=True):
        draw = FamilyDraw(family, numbers)
        trial = judge_draw(family, right, draw)
        if not draw.holds(where) or not trial.holds or not _as_said(trial, boxes, certificate):
            return f"it is not shown to hold at {_at(certificate.atoms, numbers)}"
    for numbers in certificate.refused:
        draw = FamilyDraw(family, numbers)
        if draw.holds(where) or judge_draw(family, right, draw).holds:
            return f"it should not hold at {_at(certificate.atoms, numbers)}"
    return None


def _as_said(trial: Trial, boxes: int, certificate: PartialCertificate) -> bool:
    judged = trial.judgement
    return judged is not None and len(judged.equal) == boxes and judged.log2_error <= certificate.log2_error


def family_atom_names(family: ProgramFamily) -> tuple[str, ...]:
    """Return the names of the variable extents and attributes of the family's program."""
    return tuple(str(size(atom)) for atom in family.atoms)


def specs_of(rule: Rule) -> dict[str, str]:
    """Return the digests of the rule's operators."""
    return {name: registry()[name].digest for name in rule.operators}


def _at(atoms: Sequence[str], numbers: Sequence[int]) -> str:
    return ", ".join(f"{atom} = {number}" for atom, number in zip(atoms, numbers, strict=True))


def describe_partial_rule(partial: PartialRule) -> str:
    """Summarize the certificate and the proof in a line."""
    certificate, proof = partial.certificate, partial.proof
    basis = "" if proof is None else f"proved for all sizes from the {'definitions' if proof.kind == 'index' else 'axioms'}; "
    refused = f", refused at {len(certificate.refused)}" if certificate.refused else ""
    return (
        f"judged equal at {len(certificate.sizes)} sizes{refused}; error below 2**{certificate.log2_error} at each; "
        f"{basis}found in {certificate.family} with seed {certificate.seed}"
    )


def partial_rules_summary(rules: Sequence[PartialRule]) -> str:
    """Summarize in a line how many rules there are, at how many sizes they were judged, and how many are proved."""
    held, refused = (sum(len(getattr(p.certificate, which)) for p in rules) for which in ("sizes", "refused"))
    proofs = sum(p.proved for p in rules)
    return f"{len(rules)} partial rules hold at {held} sizes, and do not at {refused}; {proofs} are proved for all sizes"


# ---------------------------------------------------------------- storage


def write(family: str, about: str, rules: Sequence[PartialRule], folder: Path | None = None) -> None:
    """Write the three files of the family, which then hold exactly these rules. Each file is replaced as a whole.

    Raises:
        StoreError: A file cannot be written, or a rule does not parse back to the same rule.
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


def _line(partial: PartialRule) -> str:
    return sealed_line(dataclasses.asdict(partial.certificate))


def load_partial_rules(folder: Path | None = None) -> list[PartialRule]:
    """Return every partial rule of the store, file by file. If the folder is missing, return an empty list.

    Raises:
        StoreError: A file cannot be read, or a rule or one of its operators has changed since the rule was judged or proved.
    """
    return [partial for path in sorted(_folder(folder).glob("*.rules")) for partial in _read(path)]


@functools.cache
def shipped_partial_rules() -> tuple[PartialRule, ...]:
    """Return the partial rules shipped with superopt.

    Raises:
        StoreError: See `load_partial_rules`.
    """
    return tuple(load_partial_rules())


# ---------------------------------------------------------------- matching


@dataclass(frozen=True)
class Recalled:
    """A mutant that a stored rule gives for a program. It has no weights to solve for. `proved` is the rule's `proved`."""

    term: Term
    rule: str
    proved: bool = False

    def solved(self) -> Mutant:
        """Return the mutant, with the rule as its origin."""
        return Mutant(self.term, (self.rule,), self.proved)


def recall_mutants(program: Term, rules: Sequence[PartialRule]) -> Iterator[Recalled]:
    """Yield the results of the rules that match the program. The results are not judged."""
    for partial in rules:
        with suppress(Undecidable):
            term = instance(partial.pattern, program)
            if term is not None:
                yield Recalled(term, partial.rule.name, partial.proved)


def _folder(folder: Path | None) -> Path:
    return (substitutions_folder() if folder is None else folder) / FOLDER


def _read(path: Path) -> Iterator[PartialRule]:
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
            raise StoreError(
                f"{path.parent.name}/{path.name}: {rule.name}: there is no certificate of the rule in its present form"
            )
        proof = proofs.get(digest(exact(rule)))
        if proof is not None and (why := store.ledger_objection(exact(rule), proof)) is not None:
            raise StoreError(f"{path.parent.name}/{path.name}: {rule.name}: {why}")
        yield PartialRule(rule, certificate, proof)


def _certificate(row: Mapping[str, Any]) -> PartialCertificate:
    return record(PartialCertificate, row, f"the certificate of {row.get('name')}")
