"""Checks of a certificate's steps: each step matches a stored rule, or both sides of the step are equal on random inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from superopt.algebra.operators import replace_subterms
from superopt.algebra.terms import Atom, Extent, Term, substitute_attribute, subterms, variable
from superopt.errors import CertificateError, ShapeError
from superopt.policy import VERIFY
from superopt.rules.fp_flags import FpFlag
from superopt.rules.fusion import fusions, recognized_operator
from superopt.rules.rule import Rule, digest
from superopt.speclib.recurrence import recurrences
from superopt.verification.arrays import Array, UndecidedError, evaluate_certificate_terms
from superopt.verification.certificates import Certificate, CertifiedStep, Rewrite, State, certificate_variables
from superopt.verification.instances import is_instance

PARTLY = "~>"
"""The prefix of the names of steps that replace an operator with a corrected mutant.

A mutant is a term that equals the operator at some output positions. No stored rule states the equality of an operator and a
corrected mutant.
"""


class StepEvidence(Enum):
    """The evidence that a rewrite step is right: the step matches a proved rule, or both of its sides agree in tests."""

    PROVED = "proved"
    TESTED = "tested"


@dataclass(frozen=True)
class CheckedStep:
    """A rewrite step that passed its check: the name of the rule, the kind of evidence, and the number of replaced terms."""

    rule: str
    means: StepEvidence
    roots: int


@dataclass
class StepChecker:
    """A checker of the steps of a certificate.

    Attributes:
        rules: The stored rules.
        digests: The digests of the rules that a certificate names.
        seed: The seed of the random inputs.
    """

    rules: Mapping[str, Rule]
    digests: Mapping[str, str]
    seed: int = 0
    _known: dict[tuple[str, State, State], StepEvidence] = field(default_factory=dict)

    def follow(self, rewrite: Rewrite) -> list[CheckedStep]:
        """Check the steps of a rewrite, and return the checked steps.

        The steps must lead from the terms `rewrite.before` to the terms `rewrite.after`.

        Raises:
            CertificateError: A step replaces a missing term, names no stored rule, or fails its check.
        """
        state, shown = rewrite.before, list[CheckedStep]()
        for step in rewrite.steps:
            self._require_known(step.rule)
            if not step.roots and not step.replacements:
                continue
            _require_there(step, state)
            shown.append(CheckedStep(step.rule, self._means(step, state), len(step.roots)))
            wanted, cache = dict(zip(step.roots, step.replacements, strict=True)), dict[Term, Term]()
            try:
                state = tuple(replace_subterms(root, wanted, cache) for root in state)
            except ShapeError as error:
                raise CertificateError(f"step {step.rule!r} leads to ill-typed terms") from error
        if state != rewrite.after:
            raise CertificateError("the steps do not lead to the final terms in the certificate")
        return shown

    def require_flags(self, shown: Sequence[CheckedStep], certificate: Certificate) -> None:
        """Check the floating-point flags (like LLVM's fast-math flags) that the certificate states.

        The certificate must state the flags of the rules of all proved steps. In the precise mode, a certificate may state no
        flag except `nsz` (no signed zeros).

        Raises:
            CertificateError: A needed flag is not stated. Or a flag is stated, but the precise mode forbids the flag.
        """
        for one in shown:
            needed = self.rules[one.rule].flags if one.means is StepEvidence.PROVED else frozenset[FpFlag]()
            if missing := sorted(needed - {*certificate.flags}):
                raise CertificateError(
                    f"rule {one.rule!r} needs the floating-point flag {missing[0]}, which the certificate does not state"
                )
        if certificate.mode == "precise" and {*certificate.flags} - {FpFlag.NSZ}:
            raise CertificateError(
                "the certificate states a floating-point flag that the precise mode forbids (the mode permits only nsz)"
            )

    def _require_known(self, name: str) -> None:
        if name.startswith(PARTLY) or name in fusions() or recognized_operator(name) is not None:
            return
        if any(name == r.name for r in recurrences()):
            return
        rule = self.rules.get(name)
        if rule is None:
            raise CertificateError(f"no stored rule is called {name!r} (to use your own rules, pass --rules)")
        if self.digests.get(name) != digest(rule):
            raise CertificateError(f"the stored rule {name!r} differs from the rule that the certificate names")

    def _means(self, step: CertifiedStep, state: State) -> StepEvidence:
        key = step.rule, step.roots, step.replacements
        if key not in self._known:
            rule = self.rules.get(step.rule)
            live = [term for term in subterms(*state) if not term.is_variable]
            proved = rule is not None and is_instance(rule, step.roots, step.replacements, live)
            if not proved:
                self._test(step)
            self._known[key] = StepEvidence.PROVED if proved else StepEvidence.TESTED
        return self._known[key]

    def _test(self, step: CertifiedStep) -> None:
        """Check that both sides of a step are equal at random sizes and values.

        To save time, terms that occur on both sides are first replaced by variables. If this check fails, the sides are
        compared without the replacement.

        Raises:
            CertificateError: The values of the sides differ, or cannot be computed.
        """
        try:
            self._evaluate(step, *cut_common_step_terms(step.roots, step.replacements))
        except CertificateError:
            self._evaluate(step, [*step.roots], [*step.replacements])

    def _evaluate(self, step: CertifiedStep, roots: list[Term], replacements: list[Term]) -> None:
        variables = certificate_variables([*roots, *replacements])
        worked, why = 0, ""
        for turn in range(VERIFY.step_draw_count):
            rng = np.random.default_rng((self.seed, turn))
            arrays, sizes = draw_arrays(variables, rng, turn)
            try:
                left, right = (
                    evaluate_certificate_terms(roots, arrays, sizes),
                    evaluate_certificate_terms(replacements, arrays, sizes),
                )
            except UndecidedError as error:
                raise CertificateError(f"step {step.rule!r} matches no rule and cannot be tested: {error}") from error
            except ShapeError as error:
                why = str(error)
                continue
            worked += 1
            if not all(map(equal_up_to_rounding, left, right)):
                raise CertificateError(f"step {step.rule!r} is wrong: the values of its two sides differ")
            if worked >= VERIFY.step_draw_count // 2 or (
                worked >= VERIFY.min_step_draws and all(isinstance(n, int) for v in variables for n in v.shape)
            ):
                return
        if worked < VERIFY.min_step_draws:
            raise CertificateError(f"step {step.rule!r} matches no rule and cannot be tested ({why})")


def equal_up_to_rounding(one: Array, other: Array) -> bool:
    """Return whether two float64 arrays have the same shape, and elements that are equal up to rounding.

    Positions at which the array `one` is infinite or NaN are not compared.
    """
    if one.shape != other.shape:
        return False
    finite = np.isfinite(one)
    scale = np.max(np.abs(np.where(finite, one, 0)), axis=-1, keepdims=True, initial=0.0) if one.ndim else np.abs(one)
    with np.errstate(invalid="ignore"):
        return bool(np.all(~finite | (np.abs(one - other) <= VERIFY.float64_tolerance_share * (scale + 1e-3))))


def draw_arrays(variables: Sequence[Term], rng: np.random.Generator, turn: int) -> tuple[dict[str, Array], dict[Atom, int]]:
    """Draw small sizes of the dynamic dimensions, and an array of random numbers for each variable.

    An array for a condition contains zeros and ones. An array of positions contains integers from 0 to 3. Any other array
    contains numbers of magnitude around 1, which are positive if `turn` is odd. In every fourth turn, the numbers are far below
    zero instead.
    """
    sizes: dict[Atom, int] = {}

    def at(atom: Atom) -> Extent | None:
        return sizes.setdefault(atom, int(rng.integers(1, 9)) if turn else 4)

    found: dict[str, Array] = {}
    for term in variables:
        extents = [substitute_attribute(extent, at) for extent in term.shape]
        shape = tuple(extent if isinstance(extent, int) and extent > 0 else 1 for extent in extents)
        if term.condition:
            found[term.name] = (rng.random(shape) < 0.5).astype(np.float64)
        elif term.position:
            found[term.name] = rng.integers(0, 4, shape).astype(np.float64)
        elif turn % 4 == 2:
            found[term.name] = -rng.uniform(20, 300, shape)
        else:
            found[term.name] = np.abs(rng.standard_normal(shape)) + 0.1 if turn % 2 else rng.standard_normal(shape)
    return found, sizes


def cut_common_step_terms(roots: State, replacements: State) -> tuple[list[Term], list[Term]]:
    """Return both sides of a step with common terms replaced by variables, so that fewer operators are evaluated.

    If the step replaces several terms, both sides are returned unchanged.
    """
    if len(roots) > 1:
        return [*roots], [*replacements]
    inside = {*subterms(*roots)} - {*roots}
    names: dict[Term, Term] = {}
    stack = [*replacements]
    while stack:
        term = stack.pop()
        if term in inside:
            names.setdefault(
                term, term if term.is_variable else variable(f"part {len(names)}", term.shape, constant=term.constant)
            )
        else:
            stack += term.args
    return [replace_subterms(r, dict(names)) for r in roots], [replace_subterms(r, dict(names)) for r in replacements]


def _require_there(step: CertifiedStep, state: State) -> None:
    there = {*subterms(*state)}
    if len(step.roots) != len(step.replacements) or len({*step.roots}) < len(step.roots):
        raise CertificateError(f"step {step.rule!r} does not have exactly one replacement for each root")
    for root, new in zip(step.roots, step.replacements, strict=True):
        if root not in there:
            raise CertificateError(f"step {step.rule!r} replaces a {root.op} term that is not among the current terms")
        if root.shape != new.shape:
            raise CertificateError(f"step {step.rule!r} replaces a {root.op} term with a term of a different shape")
        if root.constant:
            raise CertificateError(f"step {step.rule!r} replaces a weight, although steps must not replace weights")
    if not there.issuperset(certificate_variables(step.replacements)):
        raise CertificateError(f"step {step.rule!r} reads a variable that the current terms do not contain")
