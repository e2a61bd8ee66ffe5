"""Replay: decide whether recorded rewrite steps are permitted for a model with different weights.

The steps of a search are correct over the real numbers for all weights. However, a floating-point mode may permit a step for
some weights and reject this step for different weights. The gate (the filter for the mode) reads bounds that follow from the
values of the weights. A recorded step was permitted for the weights of an earlier model. Each step is therefore derived anew
with the gate for the present weights:

- The rule of a step is matched again at each replaced term, and the gate must permit the match.
- A recognized operator is recognized again. The resulting rule is matched again, and the gate must permit the match.
- The search for unrolled recurrences and padded tensors is repeated, and must find the recorded terms.
- A corrected mutant (a cheaper term that replaces an operator) is judged again. The gate must permit the operator to be
  replaced by an equal polynomial in its operands.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from superopt.algebra.operators import replace_subterms
from superopt.algebra.terms import Term
from superopt.errors import ShapeError, Undecidable
from superopt.partial.families import MUTANTS
from superopt.partial.judge import judge
from superopt.rules.accuracy import is_fast_algorithm_rule
from superopt.rules.fp_flags import FpMode
from superopt.rules.fusion import RECOGNIZED, fusions, recognized_operator
from superopt.rules.match import Match
from superopt.rules.rule import Rule
from superopt.search.apply import PARTLY, State, Step, replaced_terms, run_time_terms
from superopt.search.corrected_mutant import mutant_search_program
from superopt.search.fuse import order_keeping_replacements
from superopt.search.gate import Gate
from superopt.search.rearrangement import rearrangements
from superopt.search.recognition import recognized_rules
from superopt.search.recombination import recombinations
from superopt.search.reroll import reroll_recurrences
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import states
from superopt.search.widen import widened_states
from superopt.speclib.recurrence import recurrences


class StepReplay:
    """Decides whether recorded steps may be repeated for segments (parts of a model) with different weights.

    Args:
        rules: The stored rules.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._stored = tuple(rules)
        self._rules = {rule.name: rule for rule in (*rules, *fusions().values())}
        self._recurrences = frozenset(rule.name for rule in recurrences())
        self._sets: dict[str, RuleSet] = {}

    def refusal(self, start: State, steps: Sequence[Step], after: State, gate: Gate) -> str:
        """Return the reason why the recorded steps must not be repeated. If the steps may be repeated, return an empty text.

        `start` contains the terms before the steps, and `after` contains the terms after the steps. The gate is the filter for
        the floating-point mode, with facts about the present weights.
        """
        state, following = start, list[Step]()
        for step, then in zip(steps, _states(start, steps), strict=False):
            if step.roots or step.replacements:
                if following[:1] == [step]:
                    del following[0]
                elif step.rule in self._recurrences:
                    _, again = reroll_recurrences(state, self._every.gated(gate))
                    if again[:1] != (step,):
                        return f"the recurrence {step.rule} is not found again"
                    following = [*again[1:]]
                elif why := self._refusal(state, step, gate):
                    return why
            if gate.mode is FpMode.PRECISE and then != start and gate.rounds_otherwise(then):
                return f"step {step.rule} reorders a sum or a product"
            state = then
        if state != after:
            return "the recorded steps do not lead to the recorded terms"
        return "a sum loses a rounding step" if after != start and gate.rounds_otherwise(after) else ""

    @functools.cached_property
    def _every(self) -> RuleSet:
        """The rule set that a search uses. Rules for algorithms and rules for mutants are matched separately."""
        mutants = [rule for rule in self._stored if rule.family == MUTANTS]
        algorithms = [rule for rule in self._stored if is_fast_algorithm_rule(rule)]
        apart = {rule.name for rule in (*algorithms, *mutants)}
        return RuleSet([rule for rule in self._stored if rule.name not in apart], algorithms, mutants)

    def _alone(self, rule: Rule) -> RuleSet:
        if rule.name not in self._sets:
            self._sets[rule.name] = RuleSet([rule])
        return self._sets[rule.name]

    def _refusal(self, state: State, step: Step, gate: Gate) -> str:
        """Return the reason why one step must not be repeated. If the step may be repeated, return an empty text.

        `state` contains the terms before the step.
        """
        live = run_time_terms(state)
        distinct = len({*step.roots}) == len(step.roots) == len(step.replacements)
        if not distinct or not {*step.roots} <= {*live} or any(a.shape != b.shape for a, b in _pairs(step)):
            return f"step {step.rule} does not replace terms of the segment"
        if step.rule.startswith(PARTLY):
            return _mutant_refusal(step, gate)
        recognized = step.roots and recognized_operator(step.rule) is not None
        name = step.rule.removesuffix(RECOGNIZED)
        moved = rearrangements(state, gate) | recombinations(state, [name], gate) if recognized else {}
        if recognized and {*_pairs(step)} <= {*moved.get(step.rule, {}).items()}:
            return ""
        found = self._rules_of(step, state)
        if not found:
            return f"no rule is called {step.rule}"
        for rule in found:
            rules = self._alone(rule)
            if matches_reproduce_step(rules.gated(gate), step, live):
                return ""
            operands = [arg for root in step.roots for arg in root.args]
            if _is_of_one_operator(rule) and gate.permits_polynomial(operands) and matches_reproduce_step(rules, step, live):
                return ""
        if step.roots == state and step.rule in {undoing.rule for undoing in self._every.undoing()}:
            if any(wide == step.replacements for wide, _ in widened_states(state, self._every.gated(gate))):
                return ""
            return f"the padding by {step.rule} is not found again"
        if any(matches_reproduce_step(self._alone(rule), step, live) for rule in found):
            return f"the floating-point mode does not permit {step.rule} for these weights"
        return f"step {step.rule} is not a match of the rule"

    def _rules_of(self, step: Step, state: State) -> Sequence[Rule]:
        """Return the rules to which the name of a step may refer. Rules of recognized operators are derived from the state."""
        recognized = recognized_operator(step.rule)
        if recognized is not None:
            return [rule for rule in recognized_rules(state, [recognized]) if rule.name == step.rule]
        return [self._rules[step.rule]] if step.rule in self._rules else []


def _is_of_one_operator(rule: Rule) -> bool:
    """Return whether the rule replaces a single operator, applied to variables, by a different algorithm or by a mutant.

    A mutant is a cheaper term. A search applies a rule of this kind only if the values of the operands are bounded.
    """
    known = rule.family == MUTANTS or is_fast_algorithm_rule(rule)
    return known and all(arg.is_variable for equation in rule.equations for root in equation.left for arg in root.args)


def matches_reproduce_step(rules: RuleSet, step: Step, live: Sequence[Term]) -> bool:
    """Return whether the rules make all replacements of a step that an earlier search recorded.

    All terms are replaced at once, so the replacement of one term may contain the replacements of further terms. `live`
    contains the run-time terms of the state before the step.
    """
    wanted = dict(_pairs(step))
    shown: dict[Term, Term] = {}
    for root in step.roots:
        if root not in shown:
            for pairs in _results(rules, root, live):
                if all(one in wanted and _is(new, wanted[one], wanted) for one, new in pairs if one is not new):
                    shown.update((one, new) for one, new in pairs if one is not new)
                    break
    if {*shown} != {*wanted}:
        return False
    if all(shown[root] is wanted[root] for root in wanted):
        return True
    done = replaced_terms(step.roots, shown)
    return done is not None and all(done[root] is wanted[root] for root in wanted)


def _results(rules: RuleSet, root: Term, live: Sequence[Term]) -> Iterator[list[tuple[Term, Term]]]:
    """For each match whose first replaced term is `root`, yield a list of pairs (replaced term, new term).

    If a chain of reshapes and transposes ends at `root` and does not change the order of the elements, also yield a list with
    one pair: `root` and the reshape that replaces the chain.
    """

    def candidates(op: str) -> list[Term]:
        return [term for term in live if term.op == op]

    matches: Iterator[tuple[str, Match]] = rules.matches(root, candidates)
    for _, match in matches:
        yield [*zip(match.roots, match.replacements, strict=True)]
    yield from ([pair] for pair in order_keeping_replacements((root,)).items() if pair[0] is root)


def _is(new: Term, replacement: Term, wanted: Mapping[Term, Term]) -> bool:
    """Return whether `new` is `replacement`, or becomes `replacement` if terms inside `new` are replaced as in `wanted`."""
    if new is replacement:
        return True
    try:
        return replace_subterms(new, dict(wanted)) is replacement
    except ShapeError:
        return False


def _mutant_refusal(step: Step, gate: Gate) -> str:
    """Return the reason why the step's mutant must not replace the operator, or an empty text if the mutant may replace the
    operator.
    """
    root, *more = step.roots
    if more or mutant_search_program(root) is None:
        return f"{root.op} is not an operator that mutants may replace"
    if not gate.permits_polynomial(root.args):
        return f"the floating-point mode does not permit a mutant of {root.op} for these weights"
    try:
        program, mutant = step.programs
        return f"the mutant of {root.op} is wrong at some positions" if judge(program, mutant).unequal else ""
    except Undecidable as error:
        return f"the mutant of {root.op} cannot be judged: {error}"


def _pairs(step: Step) -> list[tuple[Term, Term]]:
    return [*zip(step.roots, step.replacements, strict=False)]


def _states(start: State, steps: Sequence[Step]) -> Iterator[State]:
    """Yield the state after each step, and stop before a step whose replacements have shapes that do not fit."""
    try:
        yield from states(start, steps)
    except ShapeError:
        return
