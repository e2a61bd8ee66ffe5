"""Certificates: what an optimization did to a model, step by step, as JSON that `superopt verify` replays.

A certificate names nodes by their first outputs and holds the terms of each step, so it can be checked without what made it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from superopt.errors import CertificateError, SuperoptError, Undecidable
from superopt.figures import version_of
from superopt.graph import Term
from superopt.model.bodies import Scope
from superopt.model.content import content_digest
from superopt.model.islands import Island
from superopt.model.load import Model
from superopt.partial.judge import judge
from superopt.report.optimization import Arithmetic
from superopt.rewrite.apply import PARTLY, Step
from superopt.rewrite.record import steps_recorded, steps_restored
from superopt.rule import Rule, digest
from superopt.segments import Gain, Passes

FORM = 1
"""The version of the form that certificates are in."""


@dataclass(frozen=True)
class Place:
    """Nodes of one graph of a model, each named by its first output, that were rewritten as one segment."""

    scope: Scope
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Rewrite:
    """Segments that are equal up to names, and the steps taken from their common form, over numbered variables."""

    places: tuple[Place, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Certificate:
    """What leads from one model to another.

    `original` and `optimized` are the digests of what the models hold. `rewritten` says whether the second is another model
    than the first: then it was brought to the `opset`, if there is one, known values were stored as weights, and each of the
    `passes` rewrote segments. `rules` has the digest of every stored rule that a step names; `sizes` are the numbers for open
    dimensions at which the models were run; `version` is superopt's.
    """

    original: str
    optimized: str
    version: str
    rewritten: bool
    rules: Mapping[str, str]
    sizes: tuple[Mapping[str, int], ...]
    passes: tuple[tuple[Rewrite, ...], ...]
    opset: int | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a certificate is made of: the original, the gains taken in each pass, the rules that were there, the sizes, the
    opset that was asked for, the freedom taken with floating-point arithmetic, and what is assumed of dynamic dimensions.
    """

    original: Model
    rewritten: bool
    passes: Passes
    rules: Sequence[Rule]
    sizes: Sequence[Mapping[str, int]] = ()
    opset: int | None = None
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    assumptions: Sequence[str] = ()

    def certificate(self, optimized: Model) -> str:
        """The certificate as a JSON object, with a final newline."""
        used = {step.rule for taken in self.passes for gain in taken for step in gain.found.steps}
        record = {
            "form": FORM,
            "superopt": version_of("superopt"),
            "original": content_digest(self.original),
            "optimized": content_digest(optimized),
            "rewritten": self.rewritten,
            "opset": self.opset,
            "rules": {rule.name: digest(rule) for rule in self.rules if rule.name in used},
            "sizes": list(map(dict, self.sizes)),
            "arithmetic": asdict(self.arithmetic),
            "assumptions": list(self.assumptions),
            "judged": _judged(gain.found.steps for taken in self.passes for gain in taken),
            "passes": [[_rewrite(gain) for gain in taken] for taken in self.passes],
        }
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _rewrite(gain: Gain) -> Any:
    places = [{"scope": s.island.scope, "nodes": list(titles(s.island))} for s in gain.copies]
    return {"places": places, **steps_recorded(gain.found.steps)}


def titles(island: Island) -> tuple[str, ...]:
    """The first output of every node of the island that has a name, in order."""
    return tuple(next(v.name for v in node.outputs if v.name) for node in island.nodes)


def _judged(every: Iterable[Sequence[Step]]) -> list[Any]:
    """What was judged of every distinct mutant: the programs, on how many inputs and positions, and the error bound."""
    found: dict[tuple[Term, Term], str] = {
        step.programs: step.text for steps in every for step in steps if step.rule.startswith(PARTLY)
    }
    rows: list[Any] = []
    for (program, mutant), text in found.items():
        try:
            row = asdict(judge(program, mutant))
        except Undecidable as error:
            rows.append({"programs": text, "undecided": str(error)})
            continue
        kept = {name: row[name] for name in ("tests", "positions", "total", "log2_error", "prime")}
        rows.append({"programs": text, **kept})
    return rows


# ---------------------------------------------------------------- reading


def stored(path: Path) -> str:
    """The text of a certificate in a file.

    Raises:
        CertificateError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CertificateError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise CertificateError(f"{path}: not a certificate ({error.reason})") from error


def read(text: str) -> Certificate:
    """The certificate that was written; what it says of mutants is left out, for they are judged anew.

    Raises:
        CertificateError: it cannot be read.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"the certificate is not JSON ({error})") from None
    if not isinstance(record, dict) or record.get("form") != FORM:
        raise CertificateError(f"the certificate is not of form {FORM}")
    try:
        return Certificate(
            original=str(record["original"]),
            optimized=str(record["optimized"]),
            version=str(record["superopt"]),
            rewritten=bool(record["rewritten"]),
            opset=None if record.get("opset") is None else int(record["opset"]),
            rules={str(name): str(value) for name, value in record["rules"].items()},
            sizes=tuple({str(name): int(n) for name, n in numbers.items()} for numbers in record["sizes"]),
            passes=tuple(tuple(map(_read_rewrite, taken)) for taken in record["passes"]),
        )
    except (
        SuperoptError,
        AssertionError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise CertificateError(f"the certificate cannot be read ({type(error).__name__}: {error})") from error


def _read_rewrite(record: Any) -> Rewrite:
    return Rewrite(tuple(map(_read_place, record["places"])), steps_restored(record))


def _read_place(record: Any) -> Place:
    scope = tuple((str(node), str(attribute)) for node, attribute in record["scope"])
    return Place(scope, tuple(map(str, record["nodes"])))
