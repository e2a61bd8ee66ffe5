"""Render rules as text for a terminal: a list with one line per rule, or one rule in detail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from superopt.rules.store import StoredRule


@dataclass(frozen=True)
class AddedRule:
    """A user's rule that was proved. `unused` is the reason why a search never applies the rule. The text is empty if a search
    may apply the rule.
    """

    stored: StoredRule
    unused: str


@dataclass(frozen=True)
class AddedRules:
    """The result of `superopt rules add`: the path for `superopt optimize --rules`, and the rules in the file at this path."""

    path: str
    rules: tuple[AddedRule, ...]

    def lines(self) -> Iterator[str]:
        """Yield one line for each rule, and a line that says how to use the rules."""
        for one in self.rules:
            entry = one.stored.entry
            basis = f"from {', '.join(entry.axioms)}" if entry.axioms else "from the definitions"
            flags = ", ".join(entry.flags or ()) or "none"
            yield f"{entry.name}: proved for all sizes {basis}, {entry.samples} samples agree; floating-point flags: {flags}"
            if one.unused:
                yield f"    the search never applies this rule, because {one.unused}"
        yield f"rules added: {len(self.rules)}. To use them: superopt optimize --rules {self.path} in.onnx out.onnx"


class AxiomUse(Protocol):
    """The use of an axiom in a proof: the axiom's name, its statement, and the values of its variables as text."""

    @property
    def axiom(self) -> str: ...

    @property
    def statement(self) -> str: ...

    @property
    def values(self) -> str: ...


class RuleExample(Protocol):
    """A rule at concrete sizes, attributes and values.

    `left` and `right` are the sides of the rule as text. `flops` contains the number of floating-point operations of each side.
    `difference` is the largest difference between the float64 values of the two sides.
    """

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    @property
    def attributes(self) -> Mapping[str, str]: ...

    @property
    def left(self) -> str: ...

    @property
    def right(self) -> str: ...

    @property
    def flops(self) -> tuple[int, int]: ...

    @property
    def difference(self) -> float: ...


class RuleExplanation(Protocol):
    """A stored rule with the conditions on its sizes and attributes, the steps of its proof, and an example.

    `typing` contains the conditions under which the left side is well typed. `conditions` contains the rule's own
    preconditions.
    """

    @property
    def stored(self) -> StoredRule: ...

    @property
    def typing(self) -> Sequence[str]: ...

    @property
    def conditions(self) -> Sequence[str]: ...

    @property
    def steps(self) -> Sequence[AxiomUse]: ...

    @property
    def example(self) -> RuleExample | None: ...


def rule_listing(rules: Sequence[StoredRule]) -> Iterable[Text]:
    """Yield one line per rule, in the notation of the rule files."""
    for stored in rules:
        yield Text.assemble((f"{stored.rule.name}: ", "bold"), str(stored.rule.statement))


def render_rule(explanation: RuleExplanation) -> RenderableType:
    """Return the text of a rule: its statement, its conditions, its origin, and a summary of its proof."""
    stored = explanation.stored
    rule, entry = stored.rule, stored.entry
    statement = rule.statement
    outside = [f"{name}[{', '.join(map(str, ranks))}]" for name, ranks in statement.ranks]
    rows = [
        ("for", ", ".join(outside)),
        ("where", "; ".join(explanation.conditions)),
        ("typed where", "; ".join(explanation.typing)),
        (
            "part",
            f"{entry.part} ({'derived, it crosses a hill of cost' if not stored.core else 'not derived from other rules'})",
        ),
        ("found", entry.origin),
        ("proved", f"for {'; '.join(entry.bounded) or entry.status}, from {_grounds(entry.kind, entry.axioms)}"),
        ("sampled", f"{entry.samples} random instantiations, no difference" if entry.samples else ""),
        ("flags", "" if entry.flags is None else f"{' '.join(entry.flags) or 'none'} ({entry.flags_basis})"),
        ("ranks", f"{len(entry.ranks)}: {'; '.join(entry.ranks[:6])}{' …' if len(entry.ranks) > 6 else ''}"),
    ]
    lines = [Text.assemble((f"{name:<12}", "cyan"), text) for name, text in rows if text]
    return Group(
        Text(rule.name, style="bold"),
        Padding(Group(Text(statement.left), Text.assemble(("=>  ", "bold green"), statement.right)), (0, 0, 0, 4)),
        *lines,
    )


def _grounds(kind: str, axioms: Sequence[str]) -> str:
    if kind != "axioms":
        return "the definitions of its operators, by the index prover"
    return f"{len(axioms)} axiom{'s' * (len(axioms) != 1)}"


def render_explanation(explanation: RuleExplanation) -> RenderableType:
    """Return the text of `render_rule`, with the proof step by step and a numerical example."""
    parts: list[RenderableType] = [render_rule(explanation)]
    if explanation.steps:
        parts.append(Text(f"proof: {len(explanation.steps)} instances of axioms", style="bold"))
        parts += [_step(number, step) for number, step in enumerate(explanation.steps, 1)]
    if explanation.example is not None:
        parts += _example(explanation.example)
    return Group(*parts)


def _step(number: int, step: AxiomUse) -> RenderableType:
    head = Text.assemble(f"{number:>3}. ", (step.axiom, "cyan"), f"  {step.statement}")
    return Group(head, Padding(Text(f"with {step.values}", style="dim"), (0, 0, 0, 9)))


def _example(example: RuleExample) -> list[RenderableType]:
    shapes = ", ".join(f"{name}{list(shape)}" for name, shape in example.shapes.items())
    attributes = "".join(f", {name} = {value}" for name, value in example.attributes.items())
    before, after = example.flops
    return [
        Text(f"example: {shapes}{attributes}", style="bold"),
        Padding(Group(Text(example.left), Text.assemble(("=>  ", "bold green"), example.right)), (0, 0, 0, 4)),
        Text(
            f"    {before} floating-point operations become {after}; float64 values differ by at most {example.difference:.1g}"
        ),
    ]
