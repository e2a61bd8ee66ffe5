"""The values that a page about one optimization shows. `superopt.flows.report_page` computes these values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from superopt.model.node_graphs import DrawnPart
from superopt.policy import REPORT
from superopt.report.html.layered import LayeredDrawing, draw_part
from superopt.report.number_texts import duration
from superopt.report.optimization import AppliedRule, Report
from superopt.rules.fusion import RECOGNIZED, fusions, recognized_operator
from superopt.rules.rule import axiom_laws
from superopt.rules.store import StoredRule

MOVES = frozenset({"concat", "expand", "pad", "reshape", "slice", "transpose"})
"""Operators that only move elements. Rules that contain only these operators come last."""
CORRECTED = "~>"
"""The prefix of the name of a step to a corrected mutant, and the arrow in its text (`superopt.search.apply.PARTLY`)."""


@dataclass(frozen=True)
class UsedRule:
    """A rule of a rewritten part, in the form that a page shows.

    Attributes:
        name: The name of the rule.
        times: The number of steps that apply the rule in one copy of the part.
        left: The left side in the rule notation, or a description of the step.
        arrow: The arrow between the sides. The text is empty if the step has only a description.
        right: The right side.
        kind: The reason why the step is right, in a few words.
        proved: Whether the rule is a stored rule, which has a proof.
        moves: Whether the rule only moves elements.
        facts: Further facts of the proof, as pairs of a name and a text.
        axioms: The axioms of the proof, as pairs of a name and a statement.
    """

    name: str
    times: int
    left: str
    arrow: str
    right: str
    kind: str
    proved: bool
    moves: bool = False
    facts: tuple[tuple[str, str], ...] = ()
    axioms: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PartFigure:
    """One side of a rewritten part: two drawings (None if the part is too large), and the count of nodes of each operator.

    `drawing` is read from top to bottom, and `sideways` from left to right.
    """

    drawing: LayeredDrawing | None
    sideways: LayeredDrawing | None
    nodes: int
    operators: tuple[tuple[str, int], ...]

    def changes(self, before: PartFigure) -> dict[str, int]:
        """Return a mapping from operators to the change of their node counts from `before` to this figure.

        Operators with equal counts are left out.
        """
        own, other = dict(self.operators), dict(before.operators)
        gaps = {name: own.get(name, 0) - other.get(name, 0) for name in (*own, *other)}
        return {name: gap for name, gap in gaps.items() if gap}


@dataclass(frozen=True)
class RewrittenPart:
    """A rewritten part of the model: the part before the rewrite, the part after the rewrite, and the rules that were applied.

    Attributes:
        number: The number of the pass that rewrote the part, or 0 if only one pass rewrote the model.
        copies: The number of equal parts with equal rewrites.
        before_seconds: The predicted time of one copy before the rewrite.
        after_seconds: The predicted time of one copy after the rewrite.
        saved: The predicted saving in seconds per run of the model, for all copies together.
        rules: The applied rules, without repetitions.
    """

    title: str
    number: int
    copies: int
    before_seconds: float
    after_seconds: float
    saved: float
    before: PartFigure
    after: PartFigure
    rules: tuple[UsedRule, ...]

    @property
    def main_rules(self) -> tuple[UsedRule, ...]:
        """The first few rules, which are shown without a click. Rules with arithmetic come before rules that move elements."""
        return tuple(sorted(self.rules, key=lambda rule: rule.moves))[: REPORT.max_shown_rules]

    @property
    def other_rules(self) -> tuple[UsedRule, ...]:
        """The remaining rules, which are shown after a click."""
        return tuple(sorted(self.rules, key=lambda rule: rule.moves))[REPORT.max_shown_rules :]


@dataclass(frozen=True)
class PageContent:
    """Everything that a page about one optimization shows.

    Attributes:
        report: The report of the optimization.
        parts: The rewritten parts to draw, in descending order of saving.
        savings: Pairs of a rewritten part's title and the predicted saving. The pairs include parts that are not drawn.
        times: The seconds of each operator in a run of the original, and in a run of the optimized model. The mapping is empty
            if operators were not timed.
        times_note: A note on how the operators were timed, or on why no operator was timed.
        counts: The counts of nodes of each operator in both models.
        command: A command that repeats the optimization.
        source: The file of the original, for commands. The text is empty if the file is not known.
        target: The file of the result, for commands. The text is empty if the file is not known.
        certificate: The file of the certificate. The text is empty if no certificate was written.
        rules: The rules of all applied steps, without repetitions.
    """

    report: Report
    parts: tuple[RewrittenPart, ...] = ()
    savings: tuple[tuple[str, float], ...] = ()
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    times_note: str = ""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    command: str = ""
    source: str = ""
    target: str = ""
    certificate: str = ""
    rules: tuple[UsedRule, ...] = ()


def figure_of(part: DrawnPart) -> PartFigure:
    """Draw a part of a model from top to bottom and from left to right, and count the nodes of each operator."""
    operators = Counter(part.operators)
    return PartFigure(draw_part(part), draw_part(part, sideways=True), operators.total(), tuple(operators.most_common()))


def used_rule(applied: AppliedRule, times: int, stored: StoredRule | None) -> UsedRule:
    """Return the values that the templates of the HTML page show for an applied rule: its sides, its proof and facts about it.

    `times` is the number of steps that apply the rule. `stored` is the rule with its ledger entry from the rule store. The
    argument is None if the store does not contain the rule.
    """
    text = (
        applied.text
        if len(applied.text) <= REPORT.max_page_rule_characters
        else f"{applied.text[: REPORT.max_page_rule_characters]} …"
    )
    arrow = next((a for a in (f" {CORRECTED} ", " => ") if a in text), "")
    left, _, right = text.partition(arrow) if arrow else (text, "", "")
    right, _, conditions = right.partition(" for ") if arrow == " => " else (right, "", "")
    sides = left.strip(), "⟿" if CORRECTED in arrow else "⟹" if arrow else "", right.strip()
    if stored is not None:
        rule, entry = stored.rule, stored.entry
        sides = rule.statement.left, "⟹", rule.statement.right
        laws = axiom_laws()
        axioms = tuple((name, str(laws[name].statement)) for name in entry.axioms[: REPORT.max_listed_axioms] if name in laws)
        kind, moves = _proof_kind(stored), set(rule.operators) <= MOVES
        return UsedRule(applied.name, times, *sides, kind, proved=True, moves=moves, facts=_facts(stored), axioms=axioms)
    facts = (("for", conditions),) if conditions else ()
    shown = applied.name.removeprefix(CORRECTED).strip()
    return UsedRule(shown, times, *sides, _step_kind(applied.name), proved=False, facts=facts)


def _proof_kind(stored: StoredRule) -> str:
    entry = stored.entry
    holds = "for all sizes" if not entry.bounded else f"for {'; '.join(entry.bounded)}"
    if entry.kind == "axioms":
        count = len(entry.axioms)
        return f"proved {holds} from {count} axiom{'s' * (count != 1)} (Z3 checks the instances)"
    return f"proved {holds} from the definitions of its operators (index prover)"


def _facts(stored: StoredRule) -> tuple[tuple[str, str], ...]:
    entry, statement = stored.entry, stored.rule.statement
    ranks = ", ".join(f"{name} of rank {' or '.join(map(str, ranks))}" for name, ranks in statement.ranks)
    flags = "not determined" if entry.flags is None else " ".join(entry.flags) or "none"
    rows = (
        ("for", ranks),
        ("where", "; ".join(statement.where)),
        ("floating-point flags", f"{flags}{f' ({entry.flags_basis})' if entry.flags_basis else ''}"),
        ("found by", entry.origin),
        ("also tested", f"{entry.samples} random instances, no difference" if entry.samples else ""),
        ("family", f"{stored.family}, {entry.part} rule"),
        ("ledger key", entry.key),
    )
    return tuple((name, text) for name, text in rows if text)


def _step_kind(name: str) -> str:
    """Return the reason why a step without a stored rule is right."""
    if name.startswith(CORRECTED):
        return "a corrected mutant: equal in exact tests in prime fields (an error is less likely than 2⁻⁶⁰)"
    if name.endswith(RECOGNIZED):
        return f"the operator {recognized_operator(name) or ''} was recognized by its values, and is checked by evaluation"
    if name in fusions():
        return f"the definition of the operator {name.partition('.')[0]}, read backwards"
    return "the definition of a recurrence, read backwards"


def time_text(seconds: float) -> str:
    """Return a time as text with a unit, such as `2.5 µs`."""
    return duration(seconds).replace(" us", " µs")


def change_text(before: float, after: float) -> str:
    """Return the change from the time `before` to the time `after` as text, such as `2 ms → 1.5 ms`."""
    return f"{time_text(before)} → {time_text(after)}"
