"""Certificates: the steps of an optimization as JSON that `superopt verify` checks.

A certificate names nodes by their first outputs. It holds the terms of each segment before and after its steps, the terms of
each step and the terms of new weights, so that it can be checked without the code that made it.
`superopt.verification.certificates` reads certificates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from superopt.algebra.terms import Term
from superopt.errors import Undecidable
from superopt.flows.report_fields import version_of
from superopt.model.constant_folding import fold_known_values
from superopt.model.convert_opset import convert_opset
from superopt.model.inline_functions import inline_functions
from superopt.model.islands import Island
from superopt.model.load import Model
from superopt.model.splice import splice_with_weights
from superopt.partial.judge import judge
from superopt.report.optimization import Arithmetic
from superopt.rules.rule import Rule, digest
from superopt.search.apply import PARTLY, Step
from superopt.search.record import Json, terms_to_nodes
from superopt.search.segments import Gain, Passes, Segment
from superopt.verification.certificates import FORM
from superopt.verification.contents import content_digest


@dataclass(frozen=True, eq=False)
class Evidence:
    """The content of a certificate.

    Attributes:
        original: The original model.
        rewritten: Whether the model was rewritten.
        passes: The gains taken in each pass.
        rules: The rules that were available.
        sizes: The sizes of dynamic dimensions.
        opset: The requested opset.
        arithmetic: The freedom taken with floating-point arithmetic.
        assumptions: The assumptions about the values.
    """

    original: Model
    rewritten: bool
    passes: Passes = ()
    rules: Sequence[Rule] = ()
    sizes: Sequence[Mapping[str, int]] = ()
    opset: int | None = None
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    assumptions: Sequence[str] = ()

    def certificate(self, optimized: Model) -> str:
        """Return the certificate as a JSON object, with a final newline."""
        used = {step.rule for taken in self.passes for gain in taken for step in gain.found.steps}
        start = self._start()
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
            "stored": sorted(start.graph.initializers.keys() - self.original.graph.initializers.keys()),
            "judged": _judged(gain.found.steps for taken in self.passes for gain in taken),
            "passes": list(self._passes(start)),
        }
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"

    def _start(self) -> Model:
        """Return the model with which the first pass began."""
        if not self.rewritten:
            return self.original
        plain = inline_functions(self.original)
        return fold_known_values(plain if self.opset is None else convert_opset(plain, self.opset))

    def _passes(self, model: Model) -> Iterator[Json]:
        """Yield each pass, with the terms of the weights that it made."""
        for taken in filter(None, self.passes):
            model, terms = splice_with_weights(model, [replacement for gain in taken for replacement in gain.replacements()])
            nodes, place = terms_to_nodes([*terms.values()])
            weights = {"nodes": nodes, "terms": {name: place(term) for name, term in terms.items()}}
            yield {"rewrites": [_rewrite(gain) for gain in taken], "weights": weights}


def _rewrite(gain: Gain) -> Json:
    state, found = gain.copies[0].state, gain.found
    steps = [(step.rule, step.roots, step.replacements) for step in found.steps]
    every = [*state, *found.outputs, *(term for _, roots, new in steps for term in (*roots, *new))]
    nodes, place = terms_to_nodes(every)
    return {
        "places": [_place(segment) for segment in gain.copies],
        "nodes": nodes,
        "before": [*map(place, state)],
        "steps": [[rule, [*map(place, roots)], [*map(place, new)]] for rule, roots, new in steps],
        "after": [*map(place, found.outputs)],
    }


def _place(segment: Segment) -> Json:
    island = segment.island
    return {
        "scope": island.scope,
        "nodes": list(first_output_names(island)),
        "inputs": {name: term.name for name, term in segment.form.names.items()},
        "outputs": list(island.outputs),
    }


def first_output_names(island: Island) -> tuple[str, ...]:
    """Return the first named output of every node of the island, in order."""
    return tuple(next(v.name for v in node.outputs if v.name) for node in island.nodes)


def _judged(every: Iterable[Sequence[Step]]) -> list[Any]:
    """Return the judgement of every distinct mutant: the programs, numbers of inputs and positions, and the error bound."""
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
