"""The explanation at the end of a run: the reasons for the result, and next steps for the user."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from superopt.algebra.operators import Operator, registry
from superopt.budget import active_time, expired
from superopt.model.available_fusions import exists_at_opset, fusions_at_opset, newest_opset
from superopt.model.coverage import CONTROL, UNDEFINED, UNSIZED, OperatorShare, UncoveredNodes
from superopt.policy import OPTIMIZATION, REPORT
from superopt.protobuf.nodes import schema_of
from superopt.report.number_texts import counted, duration, percent
from superopt.search.apply import first_rewrite
from superopt.search.judging import ModelOutcome
from superopt.search.passes import SearchedModel
from superopt.search.recognition import recognized_rules
from superopt.search.ruleset import RuleSet
from superopt.search.segments import Segment

BY_CHECK, BY_NOISE, BY_MEMORY, IN_CONTEXT = "check", "noise", "memory", "whole model"
"""The names in the report of the reasons for which improvements were refused."""


@dataclass(frozen=True)
class RunFacts:
    """The facts about a run that its explanation needs.

    Attributes:
        budget: The time limit of the search in seconds.
        accepted: Whether the rewritten model is returned.
        cut_short: Whether the search ended before every part was searched.
        seconds: The seconds of the search.
        improvements: A pair of numbers for each improvement of the best result. The first number is the time of the
            improvement, in seconds since the start of the search. The second number is the predicted saving of the improved
            result in seconds per run.
        measured: The number of measured candidates for parts of the model.
        refused: The number of improvements that were found but not used, by reason.
        noise: The noise of the last comparison of whole models, as a share, or 0 if nothing was compared.
        contrib_seconds: The seconds per run that ONNX Runtime's own operators would save.
        run_seconds: The seconds of one run of the original, or 0 if this time is not known.
        lacks_kernels: Whether kernels were requested, but the result has no kernels.
        unused: Options that may lead to a gain and were not given, each with its effect.
    """

    budget: float
    accepted: bool = False
    cut_short: bool = False
    seconds: float = 0.0
    improvements: Sequence[tuple[float, float]] = ()
    measured: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    noise: float = 0.0
    contrib_seconds: float = 0.0
    run_seconds: float = 0.0
    lacks_kernels: bool = False
    unused: Mapping[str, str] = field(default_factory=dict)

    @property
    def saved(self) -> float:
        """The predicted seconds per run that the final result of the search saves."""
        return self.improvements[-1][1] if self.improvements else 0.0

    @property
    def found_at(self) -> float:
        """The seconds from the start of the search until the search found a result as good as the final result."""
        later = itertools.takewhile(lambda improvement: improvement[1] >= self.saved, reversed(self.improvements))
        return min((seconds for seconds, _ in later), default=0.0)

    @property
    def saved_early(self) -> float:
        """The predicted saving, in seconds per run, of the best result from the early part of the search.

        The early part of a search ends when the share `REPORT.late_improvement_share` of the search time has passed.
        """
        until = REPORT.late_improvement_share * self.seconds
        return next((saved for seconds, saved in reversed(self.improvements) if seconds <= until), 0.0)

    @property
    def is_still_improving(self) -> bool:
        """Whether the search was cut short while it was still finding improvements.

        The property is True if two conditions hold. First, the search ended before every part was searched. Second, after the
        early part of the search (see `saved_early`), the saving grew by more than the share `REPORT.min_hint_share` of the
        final saving. If a run measured nothing, its results come from an earlier search, and the times of its improvements are
        not known. In this case, the property is False.
        """
        return self.cut_short and self.measured > 0 and self.saved - self.saved_early > REPORT.min_hint_share * self.saved


def refused_improvements(outcomes: Sequence[ModelOutcome], searched: SearchedModel) -> dict[str, int]:
    """Count the improvements that were found but not used, and return a mapping from the reason to the count.

    Candidates (rewritten whole models) and rewrites of parts of the model are counted. A candidate is counted if it failed the
    numerical check, or was not faster by more than the noise and the margin. A rewrite of a part is counted if the weights
    would grow too much, or if the rewrite does not make the whole model faster.
    """
    best, own = searched.best, [outcome for outcome in outcomes if outcome.candidate.searched is searched]
    useful = sum(bool(gain.found.steps) and gain.seconds > 0 for gain in best.searched)
    relowered = bool(searched.relowered)
    taken = sum(map(len, best.passes[relowered:]))
    counts = {
        BY_CHECK: sum(outcome.failed is not None for outcome in own),
        BY_NOISE: sum(outcome.compared is not None and not outcome.accepted for outcome in own),
        BY_MEMORY: best.too_large,
        IN_CONTEXT: max(useful - taken - best.too_large, 0),
    }
    return {reason: count for reason, count in counts.items() if count}


def reasons(operators: Sequence[OperatorShare], uncovered: Sequence[UncoveredNodes], facts: RunFacts) -> tuple[str, ...]:
    """Return sentences on operators with long run times, nodes that cannot be rewritten, and improvements that were refused."""
    return (*_reasons_by_time(operators, uncovered), *_reasons_by_search(facts))


def _reasons_by_time(operators: Sequence[OperatorShare], uncovered: Sequence[UncoveredNodes]) -> Iterator[str]:
    if operators:
        first = [row for row in operators[: REPORT.max_time_operators] if row.share >= REPORT.min_hint_share]
        yield f"most of the original's time goes to {', '.join(f'{row.operator} ({percent(row.share)})' for row in first)}"
        outside = [row for row in uncovered if row.share >= REPORT.min_hint_share]
        if outside:
            names = ", ".join(dict.fromkeys(row.operator for row in outside[: REPORT.max_uncovered_operators]))
            more = ", …" if len(outside) > REPORT.max_uncovered_operators else ""
            share = percent(sum(row.share for row in uncovered))
            yield f"{share} of the time goes to nodes that cannot be rewritten: {names}{more}"
        else:
            yield "nearly all of the time goes to operators that can be rewritten"


def _reasons_by_search(facts: RunFacts) -> Iterator[str]:
    slow = f"not faster by more than the noise ({percent(facts.noise)}) or the margin, and was refused"
    sentences = {
        BY_CHECK: ("rewritten model", "did not pass the numerical check, and was refused"),
        BY_NOISE: ("rewritten model", f"was {slow}"),
        BY_MEMORY: ("improvement", "was refused, because the weights would grow too much"),
        IN_CONTEXT: ("improvement", "of a part was refused, because it does not make the whole model faster"),
    }
    for reason, count in facts.refused.items():
        what, sentence = sentences[reason]
        yield f"{counted(count, what)}{'' if count == 1 else ', each of which'} {sentence}"
    if facts.saved > 0 and facts.accepted and facts.measured:
        yield f"the best result was found after {duration(facts.found_at)} of search"
    elif facts.saved > 0 and not facts.accepted:
        yield f"the search predicted that {duration(facts.saved)} a run would be saved"
    elif facts.measured and not (facts.refused or facts.accepted):
        yield f"none of the {facts.measured:,} measured candidates was faster than the part of the model that it replaces"


def hints(
    uncovered: Sequence[UncoveredNodes],
    islands: Sequence[Segment],
    opset: int,
    dimensions: Sequence[str],
    facts: RunFacts,
) -> tuple[str, ...]:
    """Return sentences with next steps for the user, such as options that may lead to a gain.

    Args:
        uncovered: The nodes that the search cannot rewrite.
        islands: The parts of the model in which terms are compared with operators of newer opsets.
        opset: The opset of the model.
        dimensions: The names of the dynamic dimensions.
        facts: The facts about the run.
    """
    found = [*_hints_by_search(facts), *_hints_by_coverage(uncovered, dimensions)]
    if facts.lacks_kernels and dimensions:
        found.append(f"--fix NAME=SIZE for dimensions that never change ({_listed(dimensions)}) may allow kernels")
    newer = _newer_operators(islands, opset)
    if newer:
        found.append(f"--opset {newer[0]} would allow {', '.join(newer[1])}, of which the model has other forms")
    if not facts.accepted and not found:
        found += [f"{option} {effect}" for option, effect in facts.unused.items()]
    return (*found,)


def _hints_by_search(facts: RunFacts) -> Iterator[str]:
    more = "more" if facts.accepted else "a gain"
    budget = f"--budget {2 * max(1, round(facts.budget))}s or more may find {more}"
    if facts.is_still_improving:
        at = duration(REPORT.late_improvement_share * facts.seconds)
        saved = f"it saved {duration(facts.saved_early)} a run after {at}, and {duration(facts.saved)} after all of its time"
        yield f"{budget}: the search was still improving at its end ({saved})"
    elif facts.cut_short:
        yield f"{budget}: the search was not finished"
    if facts.refused.get(BY_NOISE) and facts.noise > OPTIMIZATION.max_remembered_noise:
        yield f"the machine was noisy ({percent(facts.noise)}): a run while nothing else runs may show a smaller gain"
    if facts.refused.get(BY_CHECK) and not facts.accepted:
        yield "--tolerance FACTOR allows larger rounding errors, and --fp precise avoids rewrites that change rounding"
    if facts.refused.get(BY_MEMORY):
        yield "--growth SHARE allows weights to grow more"
    if facts.contrib_seconds > 0:
        share = f" ({percent(facts.contrib_seconds / facts.run_seconds)})" if facts.run_seconds else ""
        saved = f"{duration(facts.contrib_seconds)} a run{share}"
        yield f"--allow-contrib would save about {saved}, with a model that runs in ONNX Runtime only"


def _hints_by_coverage(uncovered: Sequence[UncoveredNodes], dimensions: Sequence[str]) -> Iterator[str]:
    unsized = [row for row in uncovered if row.reason in (UNSIZED, CONTROL)]
    share, count = sum(row.share for row in unsized), sum(row.nodes for row in unsized)
    if unsized and share >= REPORT.min_hint_share:
        sizes = f"--fix NAME=SIZE for dimensions that never change ({_listed(dimensions)}), or " if dimensions else ""
        fixed = f"{sizes}--fix NAME=VALUE for inputs that never change"
        yield f"{fixed}, may open {count} nodes whose sizes or conditions are not known ({share:.0%} of the time)"
    undefined = [row for row in uncovered if row.reason == UNDEFINED and row.share >= REPORT.min_hint_share]
    if undefined:
        names = ", ".join(row.operator for row in undefined[: REPORT.max_uncovered_operators])
        time = percent(sum(row.share for row in undefined))
        yield f"superopt does not know {names} ({time} of the time); docs/contributing.md says how to define an operator"


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[: REPORT.max_reasons], *(["…"] if len(names) > REPORT.max_reasons else [])])


def _newer_operators(islands: Sequence[Segment], opset: int) -> tuple[int, list[str]] | None:
    """Return a newer opset and the names of new ONNX operators that the model could use. If there are none, return None.

    The operators exist in the newer opset, but not in `opset`. For each operator, the model contains an equal term.
    """
    newest = newest_opset()
    newer = [spec for spec in registry().values() if _exists(spec, newest) and not _exists(spec, opset)]
    rules = RuleSet([rule for rule in fusions_at_opset(newest) if _fused_operator(rule.name) in newer])
    until = active_time() + REPORT.hint_seconds
    found: dict[Operator, None] = {}
    for island in islands:
        if not expired(until):
            stated = first_rewrite(island.state, rules)
            names = [rule.name for rule in recognized_rules(island.state, [spec.name for spec in newer], until)]
            found |= dict.fromkeys(map(_fused_operator, [*names, *([stated[0]] if stated else [])]))
    titles = [name for spec in found for name in spec.onnx if "." not in name]
    return (max(schema_of(name, newest).since_version for name in titles), titles) if titles else None


def _fused_operator(name: str) -> Operator:
    """Return the operator that a fusion or recognition puts in place of a term. `name` is a name such as `gelu.recognized`."""
    return registry()[name.partition(".")[0]]


def _exists(spec: Operator, opset: int) -> bool:
    """Return whether a standard ONNX operator of this opset computes the operator."""
    return any(exists_at_opset(name, opset) for name in spec.onnx)
