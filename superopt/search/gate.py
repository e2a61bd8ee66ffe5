"""The gate: a filter that decides which matches of a rule a search may use.

The decision depends on the floating-point mode, the rule's flags, and the known facts about the values of the matched terms.
Over the real numbers, a rule holds for tensors whose elements all have a value. An element of a matched term may have no value,
such as 1 / 0. In every mode, the gate rejects a match if an element without a value can reach the result on the rule's right
side but not on the left side. In addition, each mode has conditions for the rule's flags (`fp_flags`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from superopt.algebra.operators import operator
from superopt.algebra.terms import Term, subterms, variables
from superopt.algebra.value_analysis import OVERFLOW, UNKNOWN, Facts, computed_facts, large_summands_cancel, raw_facts
from superopt.model.facts import MOVING, folded_literal_facts
from superopt.rules.fp_flags import FpFlag, FpMode
from superopt.rules.match import Match
from superopt.rules.rule import Rule

State: TypeAlias = "tuple[Term, ...]"
EXACT = frozenset({FpFlag.NSZ})
"""The floating-point flags (freedoms to change results) that the precise mode admits."""
SUMS = frozenset({"add", "sub"})
ROUNDING_SUMS = frozenset(
    {"avg_pool", "avg_pool1d", "conv", "conv1d", "div", "matmul", "mul", "reduce_mean", "reduce_sum", "scale"}
)
"""Operators that are linear in an operand and round their results: sums of products, and products with numbers."""
# fmt: off
CORRECTLY_ROUNDED = MOVING | {
    "abs", "add", "clip", "div", "equal", "less", "less_equal", "logical_and", "logical_not", "logical_or", "lower_triangle",
    "max_pool", "max_pool1d", "maximum", "minimum", "mul", "pad", "pad_with", "reduce_max", "reduce_min", "relu", "scale",
    "sqrt", "sub", "upper_triangle", "where",
}
# fmt: on
"""Operators whose results are selected elements, or exact results that are rounded once. All kernels of such an operator give
equal bits.
"""
SPECIAL = frozenset({FpFlag.NNAN, FpFlag.NINF})
DROPS_NAN = frozenset({"max_pool", "max_pool1d", "reduce_max", "reduce_min"})
"""Operators whose kernels in ONNX Runtime either drop or return a NaN, depending on the position of the NaN."""
SPECIAL_VALUES = ("nan", "inf", "-inf")
"""The names of the values that are not finite."""


@dataclass(frozen=True)
class Absorption:
    """Describes which NaN and infinite elements reach the result of only one side of a rule.

    Attributes:
        exposed: pairs of a variable and a value from `SPECIAL_VALUES`. If an element of the variable has this value, a result
            element may become non-finite on the right side only.
        different: pairs of a variable and a value from `SPECIAL_VALUES`. If an element of the variable has this value, a result
            element may become non-finite on one side only.
        partial: whether finite values can make a result element non-finite on the right side only.
        changes: whether finite values can make a result element NaN or infinite on the left side, while the right side gives a
            different value. The right side may give a finite value, the opposite infinity, or NaN instead of an infinity. If a
            comparison operator reads these values, its finite results may differ between the two sides.
    """

    exposed: frozenset[tuple[str, str]]
    different: frozenset[tuple[str, str]]
    partial: bool
    changes: bool


class MatchedTerms:
    """The terms that correspond to the operators in a rule, on both sides of a match.

    Terms that are bound to the rule's variables are left out. If the rule matches only some operands of a sum, the remaining
    operands are left out too. If a sum or a product is left out, the operands of this sum or product are also left out, because
    the sum or product may have become part of a longer sum or product.

    Args:
        match: the match.
        facts: a function that returns the facts (bounds and other properties) of a term.
    """

    def __init__(self, match: Match, facts: Callable[[Term], Facts]) -> None:
        self._facts = facts
        bound = {*match.binding.tensors.values(), *(term for rest in match.rests for term in rest)}
        sums = (term for term in bound if not term.is_variable and operator(term.op).commutative)
        stop = bound.union(*(term.args for term in sums))
        self.replaced = subterms(*match.roots, stop=stop)
        """The terms of the rule's left side."""
        self.replacing = subterms(*match.replacements, stop=stop)
        """The terms of the rule's right side."""

    @property
    def inside(self) -> list[Term]:
        """The terms of both sides. A term that is on both sides is contained twice."""
        return [*self.replaced, *self.replacing]

    @functools.cached_property
    def added(self) -> Mapping[Term, Facts]:
        """A mapping from the terms that are only on the right side to their facts.

        The facts of a term are derived from the facts of its operands.
        """
        old = set(self.replaced)
        found: dict[Term, Facts] = {}
        for term in self.replacing:
            if term not in old and not term.is_variable:
                operands = tuple(found[arg] if arg in found else self._facts(arg) for arg in term.args)
                found[term] = raw_facts(term, operands)
        return found

    @property
    def bring_in_rounding(self) -> bool:
        """Whether the right side has an additional operator whose kernel may round differently from the replaced operators.

        For example, ONNX Runtime's ReduceL2 in float16 gives different bits from the square root of ReduceSumSquare.
        """
        replaced = {term.op for term in self.replaced}
        return not {term.op for term in self.added if not term.constant} <= replaced | CORRECTLY_ROUNDED


class Gate:
    """A filter that decides which matches of rules a floating-point mode permits.

    Args:
        mode: the floating-point mode.
        facts: bounds and other facts about the values of variables, by the name of the variable.
        absorption: a function that returns the `Absorption` of a rule: which NaN and infinite elements reach the result of only
            one side.
        strict: whether values must be proved finite on all inputs. If False, a proof for ordinary inputs is enough. The caller
            must then also run the result on inputs that are not ordinary.
        signed_zeros: whether the sign of a zero may decide the sign of an infinity, because the zero reaches a divisor. If so,
            only the fast mode permits rules that change signs of zeros.
        relative: whether values need a small relative error, because a logarithm or a quotient is computed from them. If so,
            only the fast mode permits rules that introduce operators whose kernels turn tiny results into 0.
    """

    def __init__(
        self,
        mode: FpMode,
        facts: Mapping[str, Facts],
        absorption: Callable[[Rule], Absorption],
        *,
        strict: bool = True,
        signed_zeros: bool = False,
        relative: bool = False,
    ) -> None:
        self._relative = relative
        self.mode, self.strict, self._absorption, self._signed_zeros = mode, strict, absorption, signed_zeros
        self._variables = facts
        self._facts: dict[Term, Facts] = {}
        self._known: dict[tuple[str, tuple[Term, ...], tuple[Term, ...]], bool] = {}

    @functools.cached_property
    def key(self) -> str:
        """A key of the cache of results. Gates with equal keys permit the same matches."""
        return f"{self.mode} {self.strict} {self._signed_zeros} {self._relative} {sorted(self._variables.items())}"

    def permits(self, rule: Rule, match: Match) -> bool:
        """Return whether the floating-point mode permits the rule to be applied at this match."""
        if self.mode is FpMode.PRECISE and not rule.flags <= EXACT:
            return False
        if self._signed_zeros and self.mode is not FpMode.FAST and FpFlag.NSZ in rule.flags:
            return False
        key = rule.name, match.roots, match.replacements
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._admits(rule, match)
        return known

    def facts(self, term: Term) -> Facts:
        """Return the known bounds and other facts of the values of a term."""
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
            literal = one.constant and not own.finite and not variables(one)
            self._facts[one] = folded_literal_facts(one) if literal else own
        return self._facts[term]

    def permits_polynomial(self, operands: Iterable[Term]) -> bool:
        """Return whether the floating-point mode permits replacing a polynomial in these operands by an equal polynomial.

        The equal polynomial may round differently, and may change which results are NaN or infinite.
        """
        if self.mode is FpMode.PRECISE:
            return False
        known = [self.facts(operand) for operand in operands]
        if self.mode is FpMode.FAST:
            return all(one.defined for one in known)
        return all(one.ordinary and (one.sure or not self.strict) for one in known)

    def permits_rearrangement(self, operand: Term, arithmetic: AbstractSet[str]) -> bool:
        """Return whether the mode permits replacing a term by a different term that rearranges or pools `operand`.

        Both terms must move, select or add the same elements of `operand`.

        `arithmetic` contains the operators in the two terms, except operators that only move or repeat elements. ONNX Runtime's
        kernels of maximum pooling either drop or return a NaN, depending on the position of the NaN. Terms with maximum or
        minimum operators may be replaced only if no element of `operand` may be NaN.
        """
        if not arithmetic:
            return True
        if arithmetic <= DROPS_NAN | {"maximum"}:
            return not self._may_be_nan(self.facts(operand))
        return self.permits_polynomial([operand])

    def rounds_otherwise(self, state: State) -> bool:
        """Return whether reordering a sum or product in the state may remove rounding that the floating-point mode preserves.

        The relaxed mode preserves the rounding of sums of three or more terms such as `((s + y) - s) - y`, or `(x + c) - c`
        with a large constant. The precise mode preserves the rounding of all sums and products of three or more terms.
        """
        if self.mode is FpMode.PRECISE:
            computed = (term for term in subterms(*state) if not term.is_variable)
            return any(operator(term.op).commutative and len(term.args) > 2 for term in computed)
        return self.mode is FpMode.RELAXED and any(
            sum_cancels_in_state(term, tuple(map(self.facts, term.args))) for term in subterms(*state, constants=False)
        )

    def _admits(self, rule: Rule, match: Match) -> bool:
        bound = {name: self.facts(term) for name, term in match.binding.tensors.items()}
        undefined = {(name, value) for name, known in bound.items() if not known.defined for value in SPECIAL_VALUES}
        if undefined and undefined & self._absorption(rule).exposed:
            return False
        terms = MatchedTerms(match, self.facts)
        if self.mode is FpMode.PRECISE and terms.bring_in_rounding:
            return False
        if self.mode is FpMode.FAST:
            added_defined = all(known.defined for known in terms.added.values())
            return added_defined or not rule.flags & SPECIAL or not self._absorption(rule).partial
        if self._relative and any(operator(term.op).absolute_error for term in terms.added):
            replaced = (term for term in terms.replaced if not term.is_variable)
            if rule.flags or not any(operator(term.op).absolute_error for term in replaced):
                return False
        return self._is_special_safe(rule, terms, bound) and self._is_bounded(rule, match, terms, bound)

    def _is_special_safe(self, rule: Rule, terms: MatchedTerms, bound: Mapping[str, Facts]) -> bool:
        """Return whether the match is safe even if its rule assumes that there is no NaN or infinity.

        The match is safe if NaN and infinities cannot occur, or if they reach the result at the same positions on both sides.
        If only the right side lets non-finite elements of an operand reach the result, the operand must be finite. If the gate
        is strict, the operand must be finite for all inputs. Otherwise, the operand must be finite for inputs that are finite
        and of ordinary magnitude. If an operator of the rule drops NaN, no operand may contain NaN.
        """
        if DROPS_NAN.intersection(rule.operators) and any(map(self._may_be_nan, bound.values())):
            return False
        if not rule.flags & SPECIAL:
            return True
        unsure = {(name, value) for name, known in bound.items() for value in self._special_values(known)}
        if unsure and unsure & self._absorption(rule).exposed:
            return False
        if self._absorption(rule).changes and not all(self.facts(term).finite for term in terms.inside):
            return False
        doubtful = {(name, value) for name, value in unsure if not bound[name].finite}
        if not doubtful and all(known.finite for known in terms.added.values()):
            return True
        return not doubtful & self._absorption(rule).different and not self._absorption(rule).partial

    def _may_be_nan(self, known: Facts) -> bool:
        """Return whether an element may be NaN. In the precise mode or if the gate is strict, any input may contain NaN."""
        return known.nan or (not known.sure and (self.strict or self.mode is FpMode.PRECISE))

    def _special_values(self, known: Facts) -> tuple[str, ...]:
        """Return the values of `SPECIAL_VALUES` that an element may have.

        If the gate is strict, an element that depends on the inputs may have any of these values.
        """
        if self.strict and not known.sure:
            return SPECIAL_VALUES
        possible = known.nan, known.high >= OVERFLOW, known.low <= -OVERFLOW
        return tuple(value for value, is_possible in zip(SPECIAL_VALUES, possible, strict=True) if is_possible)

    def _is_bounded(self, rule: Rule, match: Match, terms: MatchedTerms, bound: Mapping[str, Facts]) -> bool:
        """Return whether the match keeps all intentional rounding and satisfies the rule's bounds on magnitudes.

        For example, `(x + c) - c` with a large constant c rounds x on purpose.
        """
        if FpFlag.RANGE in rule.flags and not all(known.finite for known in (*bound.values(), *terms.added.values())):
            return False
        constants = [term for term in (*match.binding.tensors.values(), *terms.inside) if term.constant]
        ordinary = all(self.facts(term).ordinary for term in constants)
        cancels = FpFlag.CANCEL in rule.flags
        regroups = match.roots[0].op == "add" and any(match.rests)
        if FpFlag.REASSOC in rule.flags and (
            self._moves_large_constant(terms) or self._distributes_over_difference(match, terms)
        ):
            return False
        if (cancels or regroups) and not ordinary:
            return False
        if cancels and not all(known.ordinary for known in bound.values()):
            return False
        if not (cancels or regroups or FpFlag.REASSOC in rule.flags):
            return True
        return not any(_rounds(term) for term in terms.replaced if term.op in SUMS)

    def _moves_large_constant(self, terms: MatchedTerms) -> bool:
        """Return whether the match replaces a sum that contains a large constant by a different sum.

        For example, `(x - c) * y => x * y - c * y` moves the constant c. A sum that becomes part of an operator does not count.
        An example is the sum of attention scores and a mask, which becomes part of an attention operator.
        """
        old, new = ({term for term in side if term.op in SUMS} for side in (terms.replaced, terms.replacing))
        large = (term for term in old - new if any(arg.constant and not self.facts(arg).ordinary for arg in term.args))
        return len(new - old) > 0 and next(large, None) is not None

    def _distributes_over_difference(self, match: Match, terms: MatchedTerms) -> bool:
        """Return whether the match distributes products over a sum whose operands may cancel.

        For example, `(x - y) @ w => x @ w - y @ w` loses digits of `x - y` if x is near y. A match counts only if the new sum
        has at least two non-constant operands. The sum in `layer_norm(x) * gamma + beta` has only one non-constant operand,
        because `beta` is constant.
        """
        old, new = {*terms.replaced}, {*terms.replacing}
        sums = ([arg for arg in term.args if not arg.constant] for term in new - old if term.op in SUMS)
        if not any(len(moving) > 1 and any(arg.op in ROUNDING_SUMS for arg in moving) for moving in sums):
            return False
        return any(
            term.op in SUMS
            and term not in match.roots
            and not all(arg.op in ROUNDING_SUMS for arg in term.args)
            and self._cancels(term)
            for term in old - new
        )

    def _cancels(self, term: Term) -> bool:
        """Return whether two non-constant operands of a sum or difference may have opposite signs in the sum."""
        signs = (1, -1) if term.op == "sub" else (1,) * len(term.args)
        known = [(sign, self.facts(arg)) for sign, arg in zip(signs, term.args, strict=True) if not arg.constant]
        ends = [sorted((sign * facts.low, sign * facts.high)) for sign, facts in known]
        return len(known) > 1 and any(low < 0 for low, _ in ends) and any(high > 0 for _, high in ends)


def sum_cancels_in_state(term: Term, operands: Sequence[Facts]) -> bool:
    """Return whether the term is a sum of three or more operands, of which two may cancel.

    Two constants may cancel if both are large and have opposite signs at some elements. A term and its negative cancel, unless
    the term is a constant of ordinary magnitude.
    """
    if term.op != "add" or len(term.args) < 3:
        return False
    known = dict(zip(term.args, operands, strict=True))
    if large_summands_cancel([facts.large_signs(constant=arg.constant) for arg, facts in known.items()]):
        return True
    negated = (arg.args[0] for arg in term.args if arg.op == "scale" and arg["factor"] == -1)
    return any(arg in known and not (arg.constant and known[arg].ordinary) for arg in negated)


@functools.lru_cache(maxsize=1 << 12)
def _rounds(term: Term) -> bool:
    """Return whether a sum adds and subtracts the same non-constant value. For example, `(x + y) - y` rounds x."""
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
    return any(not sum(known) for known in signs.values())
