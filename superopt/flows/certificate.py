"""Certificates: the rewrite steps of an optimization as JSON. `superopt verify` checks certificates.

A certificate names nodes by their first outputs. For each segment (a part of the model that was rewritten), a certificate
contains the terms before the steps, the terms of each step, and the terms after the steps. A certificate also contains the
terms of new weights. So a certificate can be checked without the code that made the certificate.
`superopt.verification.certificates` reads certificates.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

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
from superopt.protobuf.specialize import Specialization
from superopt.report.optimization import Arithmetic
from superopt.rules.rule import Rule, digest
from superopt.runtime.cache import Json
from superopt.search.apply import PARTLY, Step
from superopt.search.record import record_terms_as_json
from superopt.search.segments import Gain, Passes, Segment
from superopt.verification.certificates import FORM
from superopt.verification.contents import content_digest


@dataclass(frozen=True, eq=False)
class RewriteStage:
    """One pass over a model: the number of the pass (from 1), the rewrites, and the terms of new weights.

    `before` and `after` are the models before and after the pass.
    """

    number: int
    before: Model
    taken: tuple[Gain, ...]
    after: Model
    weights: Mapping[str, Term]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The facts about an optimization that go into its certificate.

    Attributes:
        original: The original model.
        rewritten: Whether the model was rewritten.
        passes: The rewrites of each pass over the model.
        rules: The rules that were available.
        sizes: The sizes of dynamic dimensions at which the model was measured.
        opset: The requested opset.
        arithmetic: The ways in which the rewrites may change floating-point results.
        assumptions: The assumptions about dynamic dimensions.
        specialization: The fixed inputs and sizes, and the branches that were inlined.
    """

    original: Model
    rewritten: bool
    passes: Passes = ()
    rules: Sequence[Rule] = ()
    sizes: Sequence[Mapping[str, int]] = ()
    opset: int | None = None
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    assumptions: Sequence[str] = ()
    specialization: Specialization = field(default_factory=Specialization)

    @functools.cached_property
    def original_digest(self) -> str:
        """The content digest of the original model."""
        return content_digest(self.original)

    def certificate(self, optimized: Model, kernels: Mapping[str, str] | None = None) -> str:
        """Return the text of the certificate for the optimized model: a JSON object and a final newline.

        `kernels` describes the library of the model's kernels, as in `Certificate.kernels`.
        """
        used = {step.rule for taken in self.passes for gain in taken for step in gain.found.steps}
        start = self._start()
        record = {
            "form": FORM,
            "superopt": version_of("superopt"),
            "original": self.original_digest,
            "optimized": content_digest(optimized),
            "rewritten": self.rewritten,
            "opset": self.opset,
            "rules": {rule.name: digest(rule) for rule in self.rules if rule.name in used},
            "sizes": list(map(dict, self.sizes)),
            "arithmetic": asdict(self.arithmetic),
            "assumptions": list(self.assumptions),
            "specialization": self.specialization.as_json(),
            "stored": sorted(start.graph.initializers.keys() - self._special.graph.initializers.keys()),
            "judged": _judged(gain.found.steps for taken in self.passes for gain in taken),
            "passes": list(self._passes(start)),
        }
        if kernels is not None:
            record["kernels"] = dict(kernels)
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"

    def _start(self) -> Model:
        """Return the model with which the search began.

        This model is specialized, and has the requested opset and folded constants.
        """
        if not self.rewritten:
            return self.original
        special = self._special
        return fold_known_values(special if self.opset is None else convert_opset(special, self.opset))

    @functools.cached_property
    def _special(self) -> Model:
        """Return the original with inlined functions, fixed inputs and sizes, and inlined branches."""
        return self.specialization.of(inline_functions(self.original)) if self.rewritten else self.original

    def _passes(self, model: Model) -> Iterator[Json]:
        """Yield a JSON object for each pass: the rewrites of the pass, and the terms of the weights that the pass added.

        `model` is the model with which the search began.
        """
        for stage in self.stages(model):
            nodes, place = record_terms_as_json([*stage.weights.values()])
            weights: Json = {"nodes": nodes, "terms": {name: place(term) for name, term in stage.weights.items()}}
            yield {"rewrites": [_rewrite(gain) for gain in stage.taken], "weights": weights}

    def stages(self, start: Model | None = None) -> Iterator[RewriteStage]:
        """Yield a `RewriteStage` for each pass that rewrote the model, in the order of the passes.

        `start` is the model with which the search began. If `start` is None, this method computes that model.
        """
        model = start
        for number, taken in enumerate(filter(None, self.passes), 1):
            before = self._start() if model is None else model
            model, terms = splice_with_weights(before, [replacement for gain in taken for replacement in gain.replacements()])
            yield RewriteStage(number, before, taken, model, terms)


def _rewrite(gain: Gain) -> Json:
    state, found = gain.copies[0].state, gain.found
    steps = [(step.rule, step.roots, step.replacements) for step in found.steps]
    every = [*state, *found.outputs, *(term for _, roots, new in steps for term in (*roots, *new))]
    nodes, place = record_terms_as_json(every)
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
        "nodes": list(certificate_node_names(island)),
        "inputs": {name: term.name for name, term in segment.form.names.items()},
        "outputs": list(island.outputs),
    }


def certificate_node_names(island: Island) -> tuple[str, ...]:
    """Return the first named output of each node of the island (a rewritable region of a model), in the order of the nodes."""
    return tuple(next(v.name for v in node.outputs if v.name) for node in island.nodes)


def _judged(every: Iterable[Sequence[Step]]) -> list[Json]:
    """Return the JSON of the test results for every distinct mutant in the steps.

    A mutant is a term that replaces a program (an operator, for example) and equals the program at some output positions. A
    test result contains the texts of the mutant and of the program, the numbers of tests and positions, and the bound on the
    error probability.
    """
    found: dict[tuple[Term, Term], str] = {
        step.programs: step.text for steps in every for step in steps if step.rule.startswith(PARTLY)
    }
    rows: list[Json] = []
    for (program, mutant), text in found.items():
        try:
            row = asdict(judge(program, mutant))
        except Undecidable as error:
            rows.append({"programs": text, "undecided": str(error)})
            continue
        kept = {name: row[name] for name in ("tests", "positions", "total", "log2_error", "prime")}
        rows.append({"programs": text, **kept})
    return rows
