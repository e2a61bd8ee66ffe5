"""Which matches of a rule a search may use: by the floating-point mode, the rule's flags and the facts of what is matched.

Over the real numbers a rule holds for every tensor that has values. A term that is bound to a variable may have none: 1 / 0. A
match is refused, in every mode, where such an element is absorbed by the left side and reaches the result on the right side.
The modes add what the rule's flags ask for (`fp_flags`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from superopt.fp_flags import FpFlag, FpMode
from superopt.graph import Term, subterms
from superopt.match import Match
from superopt.rule import Rule
from superopt.value_facts import UNKNOWN, Facts, computed_facts, raw_facts

EXACT = frozenset({FpFlag.NSZ})
"""The flags that the precise mode admits."""
SPECIAL = frozenset({FpFlag.NNAN, FpFlag.NINF})


@dataclass(frozen=True)
class Absorption:
    """How the sides of a rule differ in finiteness.

    `exposed` names the variables of which an element that is not finite reaches a finite element of the left side's result on
    the right side alone; `different` those of which it reaches the results of one side alone. `partial` says whether the right
    side has an element that is not finite where the left side's is finite, on finite values.
    """

    exposed: frozenset[str]
    different: frozenset[str]
    partial: bool


class Gate:
    """The matches that a mode admits, in terms over variables of which facts are given by name.

    `absorption` looks at a rule for variables that one side absorbs.
    """

    def __init__(self, mode: FpMode, facts: Mapping[str, Facts], absorption: Callable[[Rule], Absorption]) -> None:
        self.mode, self._absorption = mode, absorption
        self._variables = facts
        self._facts: dict[Term, Facts] = {}
        self._known: dict[tuple[str, tuple[Term, ...], tuple[Term, ...]], bool] = {}

    @property
    def key(self) -> str:
        """What tells this gate from others."""
        return f"{self.mode} {sorted(self._variables.items())}"

    def permits(self, rule: Rule, match: Match) -> bool:
        """Whether the mode admits the rule at this match."""
        if self.mode is FpMode.PRECISE and not rule.flags <= EXACT:
            return False
        key = rule.name, match.roots, match.replacements
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._admits(rule, match)
        return known

    def facts(self, term: Term) -> Facts:
        """The facts of a term of a state."""
        known = self._facts.get(term)
        if known is None:
            for one in subterms(term):
                if one not in self._facts:
                    operands = tuple(self._facts[arg] for arg in one.args)
                    own = self._variables.get(one.name, UNKNOWN) if one.is_variable else computed_facts(one, operands)
                    self._facts[one] = own
            known = self._facts[term]
        return known

    def permits_polynomial(self, operands: Iterable[Term]) -> bool:
        """Whether the mode admits another program for a polynomial in these operands, which may need every flag."""
        if self.mode is FpMode.PRECISE:
            return False
        known = [self.facts(operand) for operand in operands]
        return all(one.ordinary for one in known) if self.mode is FpMode.RELAXED else all(one.defined for one in known)

    def _admits(self, rule: Rule, match: Match) -> bool:
        bound = {name: self.facts(term) for name, term in match.binding.tensors.items()}
        undefined = {name for name, known in bound.items() if not known.defined}
        if undefined and undefined & self._absorption(rule).exposed:
            return False
        if self.mode is FpMode.FAST:
            return not rule.flags & SPECIAL or not self._absorption(rule).partial or all(f.defined for _, f in self._new(match))
        return self._is_special_safe(rule, match, bound) and self._is_bounded(rule, match, bound)

    def _is_special_safe(self, rule: Rule, match: Match, bound: Mapping[str, Facts]) -> bool:
        """Whether NaN and infinities, where the rule needs their absence, cannot occur."""
        if not rule.flags & SPECIAL:
            return True
        doubtful = {name for name, known in bound.items() if not known.finite}
        if doubtful and doubtful & self._absorption(rule).different:
            return False
        return not self._absorption(rule).partial or all(known.finite for _, known in self._new(match))

    def _is_bounded(self, rule: Rule, match: Match, bound: Mapping[str, Facts]) -> bool:
        """Whether magnitudes are bounded, where the rule needs it."""
        if FpFlag.RANGE in rule.flags:
            if not all(known.finite for known in bound.values()):
                return False
            if not all(known.finite for _, known in self._new(match)):
                return False
        if FpFlag.CANCEL in rule.flags:
            constants = (term for side in (match.roots, match.replacements) for term in _inside(side, match))
            read = [*bound.values(), *(self.facts(term) for term in constants if term.constant)]
            return all(known.ordinary for known in read)
        return True

    def _new(self, match: Match) -> Sequence[tuple[Term, Facts]]:
        """The terms that the match adds, with the facts that those of its operands imply."""
        old = set(subterms(*match.roots))
        found: dict[Term, Facts] = {}
        for term in subterms(*match.replacements):
            if term not in old:
                operands = tuple(found[arg] if arg in found else self.facts(arg) for arg in term.args)
                found[term] = raw_facts(term, operands) if not term.is_variable else self.facts(term)
        return [*found.items()]


def _inside(side: Sequence[Term], match: Match) -> list[Term]:
    """The terms of one side of a match down to what its variables stand for."""
    stop = set(match.binding.tensors.values())
    found: dict[Term, None] = {}
    stack = [*side]
    while stack:
        term = stack.pop()
        if term not in found and term not in stop:
            found[term] = None
            stack += term.args
    return [*found]
