"""Which matches of a rule a search may use: by the floating-point mode, the rule's flags and the facts of what is matched.

Over the real numbers a rule holds for every tensor that has values. A term that is bound to a variable may have none: 1 / 0. A
match is refused, in every mode, where such an element is absorbed by the left side and reaches the result on the right side.
The modes add what the rule's flags ask for (`fp_flags`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.fp_flags import FpFlag, FpMode
from superopt.graph import Term, subterms
from superopt.match import Match
from superopt.op import operator
from superopt.rule import Rule
from superopt.value_facts import ORDINARY, UNKNOWN, Facts, computed_facts, raw_facts

State: TypeAlias = "tuple[Term, ...]"
EXACT = frozenset({FpFlag.NSZ})
"""The flags that the precise mode admits."""
SUMS = frozenset({"add", "sub"})
SPECIAL = frozenset({FpFlag.NNAN, FpFlag.NINF})


@dataclass(frozen=True)
class Absorption:
    """How the sides of a rule differ in finiteness.

    `exposed` names the variables of which an element that is not finite reaches a finite element of the left side's result on
    the right side alone; `different` those of which it reaches the results of one side alone. `partial` says whether the right
    side has an element that is not finite where the left side's is finite, on finite values, and `repairs` whether it is the
    other way round.
    """

    exposed: frozenset[str]
    different: frozenset[str]
    partial: bool
    repairs: bool


class Gate:
    """The matches that a mode admits, in terms over variables of which facts are given by name.

    `absorption` looks at a rule for variables that one side absorbs. A gate that is not `strict` takes values for finite that
    are so for ordinary inputs. Whoever uses its matches has to run the result on inputs that are not.
    """

    def __init__(
        self, mode: FpMode, facts: Mapping[str, Facts], absorption: Callable[[Rule], Absorption], *, strict: bool = True
    ) -> None:
        self.mode, self.strict, self._absorption = mode, strict, absorption
        self._variables = facts
        self._facts: dict[Term, Facts] = {}
        self._known: dict[tuple[str, tuple[Term, ...], tuple[Term, ...]], bool] = {}

    @functools.cached_property
    def key(self) -> str:
        """What tells this gate from others."""
        return f"{self.mode} {self.strict} {sorted(self._variables.items())}"

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
        stack = [term]
        while term not in self._facts:
            one = stack[-1]
            missing = [arg for arg in one.args if arg not in self._facts]
            if missing:
                stack += missing
                continue
            stack.pop()
            operands = tuple(self._facts[arg] for arg in one.args)
            own = self._variables.get(one.name, UNKNOWN) if one.is_variable else computed_facts(one, operands)
            self._facts[one] = own
        return self._facts[term]

    def permits_polynomial(self, operands: Iterable[Term]) -> bool:
        """Whether the mode admits another program for a polynomial in these operands, which may need every flag."""
        if self.mode is FpMode.PRECISE:
            return False
        known = [self.facts(operand) for operand in operands]
        if self.mode is FpMode.FAST:
            return all(one.defined for one in known)
        return all(one.ordinary and (one.sure or not self.strict) for one in known)

    def rounds_otherwise(self, state: State) -> bool:
        """Whether the state has a sum, of three or more terms, that may be computed in an order which loses what the original
        rounds on purpose: `(x + c) - c` with a large constant, or `((s + y) - s) - y`.
        """
        return self.mode is not FpMode.FAST and any(
            loses_rounding(term, tuple(map(self.facts, term.args))) for term in subterms(*state, constants=False)
        )

    def _admits(self, rule: Rule, match: Match) -> bool:
        bound = {name: self.facts(term) for name, term in match.binding.tensors.items()}
        undefined = {name for name, known in bound.items() if not known.defined}
        if undefined and undefined & self._absorption(rule).exposed:
            return False
        if self.mode is FpMode.FAST:
            new_defined = all(known.defined for known in self._new(match).values())
            return new_defined or not rule.flags & SPECIAL or not self._absorption(rule).partial
        return self._is_special_safe(rule, match, bound) and self._is_bounded(rule, match, bound)

    def _is_special_safe(self, rule: Rule, match: Match, bound: Mapping[str, Facts]) -> bool:
        """Whether NaN and infinities, where the rule needs their absence, cannot occur or do no harm.

        In a strict gate, what the right side alone lets through must be finite whatever the inputs are: an input may have an
        infinity of which the original keeps most elements of its results free.
        """
        if not rule.flags & SPECIAL:
            return True
        unsure = {name for name, known in bound.items() if not (known.finite and (known.sure or not self.strict))}
        if unsure and unsure & self._absorption(rule).exposed:
            return False
        if self._absorption(rule).repairs and not all(self.facts(term).finite for term in _inside(match)):
            return False
        doubtful = {name for name in unsure if not bound[name].finite}
        if not doubtful and all(known.finite for known in self._new(match).values()):
            return True
        return not doubtful & self._absorption(rule).different and not self._absorption(rule).partial

    def _is_bounded(self, rule: Rule, match: Match, bound: Mapping[str, Facts]) -> bool:
        """Whether magnitudes are bounded where the rule needs it, and nothing is dropped that was added to round."""
        if FpFlag.RANGE in rule.flags and not all(known.finite for known in (*bound.values(), *self._new(match).values())):
            return False
        inside = _inside(match)
        constants = [term for term in (*match.binding.tensors.values(), *inside) if term.constant]
        ordinary = all(self.facts(term).ordinary for term in constants)
        cancels = FpFlag.CANCEL in rule.flags
        regroups = match.roots[0].op == "add" and any(match.rests)
        if (cancels or regroups) and not ordinary:
            return False
        if cancels and not all(known.ordinary for known in bound.values()):
            return False
        if not (cancels or regroups or FpFlag.REASSOC in rule.flags):
            return True
        met = set(inside)
        return not any(_rounds(term) for term in subterms(*match.roots) if term in met and term.op in SUMS)

    def _new(self, match: Match) -> Mapping[Term, Facts]:
        """The terms that the match adds, with the facts that those of their operands imply."""
        stop = _outside(match)
        old = set(subterms(*match.roots, stop=stop))
        found: dict[Term, Facts] = {}
        for term in subterms(*match.replacements, stop=stop):
            if term not in old and not term.is_variable:
                operands = tuple(found[arg] if arg in found else self.facts(arg) for arg in term.args)
                found[term] = raw_facts(term, operands)
        return found


def loses_rounding(term: Term, operands: Sequence[Facts]) -> bool:
    """Whether the term is a sum of three or more terms, two of which cancel: large constants of opposite signs, or a term and
    its negative.
    """
    if term.op != "add" or len(term.args) < 3:
        return False
    large = [known for known in operands if known.finite]
    if any(known.low > ORDINARY for known in large) and any(known.high < -ORDINARY for known in large):
        return True
    return any(arg.op == "scale" and arg["factor"] == -1 and arg.args[0] in term.args for arg in term.args)


@functools.lru_cache(maxsize=1 << 12)
def _rounds(term: Term) -> bool:
    """Whether a sum adds and subtracts the same value, which is no constant, as `(x + y) - y` does to round x."""
    signs: dict[Term, list[int]] = {}
    stack = [(term, 1)]
    while stack:
        one, sign = stack.pop()
        if one.op == "add":
            stack += [(arg, sign) for arg in one.args]
        elif one.op == "sub":
            stack += [(one.args[0], sign), (one.args[1], -sign)]
        elif one.op == "scale" and one["factor"] == -1:
            stack.append((one.args[0], -sign))
        elif not one.constant:
            signs.setdefault(one, []).append(sign)
    return any(len(known) > 1 and not sum(known) for known in signs.values())


def _inside(match: Match) -> list[Term]:
    """The terms of both sides down to what the variables stand for, without operands that the match leaves alone."""
    return subterms(*match.roots, *match.replacements, stop=_outside(match))


def _outside(match: Match) -> set[Term]:
    """The terms that variables stand for and the operands that the match leaves alone. A sum or a product among them may have
    become part of a longer one, so its operands are included.
    """
    found = {*match.binding.tensors.values(), *(term for rest in match.rests for term in rest)}
    return found | {part for term in found if not term.is_variable and operator(term.op).commutative for part in term.args}
