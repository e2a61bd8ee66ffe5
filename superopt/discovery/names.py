"""Names of rules: the operators of the left side, the operators of the right side, and a number if needed for uniqueness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from superopt.algebra.terms import Term
from superopt.notation.parsing import parse_statement
from superopt.policy import DISCOVERY
from superopt.rules.rule import Rule


def name_rules(rules: Sequence[Rule], before: Sequence[Rule] = ()) -> list[Rule]:
    """Return the rules in the given order, each with a unique name such as `add-to-mul-2`.

    The names differ from the names of all rules in `before`.
    """
    stems = [_stem(rule) for rule in rules]
    counts = Counter(_stem(rule) for rule in before)
    uses = counts + Counter(stems)
    result: list[Rule] = []
    for rule, stem in zip(rules, stems, strict=True):
        counts[stem] += 1
        name = stem if uses[stem] == 1 else f"{stem}-{counts[stem]}"
        result.append(Rule(name, parse_statement(f"{name}: {rule.statement}"), rule.equations))
    return result


def _stem(rule: Rule) -> str:
    first = rule.equations[0]
    return f"{_words(first.left)}-to-{_words(first.right)}"


def _words(roots: tuple[Term, ...]) -> str:
    """Return the names of the operators of a graph, joined by `-`, from the outputs to the inputs.

    Each operator occurs once. At most `DISCOVERY.max_name_operators` operators are used. The name of a graph without operators
    is `x`.
    """
    found: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        term = waiting.pop(0)
        if not term.is_variable:
            found[term.op.replace("_", "-")] = None
            waiting.extend(sorted(term.args, key=lambda t: (t.op, t.key)) if len(term.args) > 1 else term.args)
    return "-".join(list(found)[: DISCOVERY.max_name_operators]) or "x"
