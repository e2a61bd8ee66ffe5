"""Enumeration of representatives: terms built bottom-up by size, one kept per value, every other one a candidate equality."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from superopt.errors import ShapeError
from superopt.find.fingerprint import Environment, Fingerprints, environment
from superopt.find.universe import WEIGHTS, Template, Universe
from superopt.graph import Attribute, Compare, Extent, Size, Term, at_least, substitute_cond, subterms, variables
from superopt.op import apply, operator, requirements

ENVIRONMENTS = 4
COLLAPSING = frozenset({"relu", "scale"})
Operators = frozenset[Term]


@dataclass(frozen=True)
class Candidate:
    """Terms of a universe that have the same values in every environment, output by output.

    With one output, `right` is the representative of the class that `left` fell into.
    """

    universe: Universe
    left: tuple[Term, ...]
    right: tuple[Term, ...]


@dataclass
class Enumeration:
    """What one universe holds up to its limit: how many terms were built, a representative per class, and the candidates."""

    universe: Universe
    built: int = 0
    representatives: list[Term] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    class_of: dict[Term, Term] = field(default_factory=dict)

    @property
    def graphs(self) -> int:
        """How many graphs up to the limit the terms stand for: an argument may be any graph of its class.

        Of graphs that share work between arguments, only the terms themselves are counted.
        """
        limit = self.universe.limit
        members = {representative: [0] * (limit + 1) for representative in self.representatives}
        for operators in range(limit + 1):
            for term, representative in self.class_of.items():
                members[representative][operators] += _graphs(
                    [members[self.class_of[a]] for a in term.args], operators - weight(term)
                )
        unshared: dict[Term, int] = {}
        for term in self.class_of:
            unshared[term] = weight(term) + sum(unshared[a] for a in term.args)
        return sum(map(sum, members.values())) + sum(count > limit for count in unshared.values())


def _graphs(members: Sequence[Sequence[int]], operators: int) -> int:
    """In how many ways one graph for each argument holds so many operators together."""
    if not members:
        return int(operators == 0)
    if operators < 0:
        return 0
    return sum(n * _graphs(members[1:], operators - i) for i, n in enumerate(members[0][: operators + 1]) if n)


def weight(term: Term) -> int:
    """How many binary or unary operators a node stands for: none for variables and constants, n - 1 for a sum of n."""
    if not term.args:
        return 0
    return len(term.args) - 1 if operator(term.op).commutative else 1


def candidate_order(candidate: Candidate) -> tuple[int, int, int]:
    """Sorts candidates: small ones first, and among those of one size the more general, which have more variables."""
    left, right = candidate.left, candidate.right
    return term_size(*left), term_size(*right), -len(variables(*left, *right))


def term_size(*roots: Term) -> int:
    """The operators of a graph, shared ones counted once."""
    return sum(weight(t) for t in subterms(*roots))


def enumerate_universe(universe: Universe, seed: int) -> Enumeration:
    """Every class of terms of the universe up to its limit, and every equality that its representatives suggest."""
    return _Enumerator(universe, seed).run()


class _Enumerator:
    def __init__(self, universe: Universe, seed: int) -> None:
        self.universe = universe
        self.result = Enumeration(universe)
        self.leaves = [v for row in universe.variables for v in row] + [c.term for c in universe.constants]
        rng = np.random.default_rng(seed)
        self.environments = _environments(universe, _legality(universe, self.leaves), rng)
        self.under = {c.term: c.under for c in universe.constants}
        self.fingerprints = Fingerprints(self.environments)
        self.class_by_digest: dict[bytes, Term] = {}
        self.levels: list[list[Term]] = []
        self.operators: dict[Term, Operators] = {}
        self.seen: set[Term] = set()
        self.extents = {n for leaf in self.leaves for n in leaf.shape}
        self.typed: dict[tuple[object, ...], bool] = {}

    def run(self) -> Enumeration:
        self._classify(self.leaves, 0)
        for level in range(1, self.universe.limit + 1):
            self._classify(self._terms(level), level)
        return self.result

    def _classify(self, terms: Iterable[Term], level: int) -> None:
        last = level == self.universe.limit
        fresh = [t for t in terms if t not in self.seen]
        self.seen.update(fresh)
        self.result.built += len(fresh)
        digests = self.fingerprints.of(fresh, remember=not last)
        kept: list[Term] = []
        for term in fresh:
            digest = digests.get(term)
            if digest is None:
                continue
            known = self.class_by_digest.setdefault(digest, term)
            self.result.class_of[term] = known
            if known is term:
                kept.append(term)
                self.operators[term] = frozenset(t for t in subterms(term) if t.args)
            elif _prefix(self.universe, term, known):
                self.result.candidates.append(Candidate(self.universe, (term,), (known,)))
        self.levels.append(kept)
        self.result.representatives.extend(kept)

    def _terms(self, level: int) -> Iterator[Term]:
        """Terms of exactly this size over the representatives, each once."""
        last = level == self.universe.limit
        built: dict[Term, None] = {}
        for operands in itertools.chain(((t,) for t in self.levels[level - 1]), self._pairs(level - 1)):
            if last and not _prefix(self.universe, *operands):
                continue
            for template in self.universe.templates:
                if template.operands == len(operands):
                    for term in self._applied(template, operands):
                        if term_size(term) == level:
                            built[term] = None
        yield from built

    def _pairs(self, together: int) -> Iterator[tuple[Term, Term]]:
        """Ordered pairs of representatives that hold `together` operators between them."""
        for term in self.levels[together]:
            inside = [t for t in subterms(term) if t.args or not together]
            for other in dict.fromkeys([*self.levels[0], *inside]):
                yield term, other
                if other is not term and together:
                    yield other, term
        for i, j in itertools.product(range(1, together), repeat=2):
            if i + j >= together:
                for term, other in itertools.product(self.levels[i], self.levels[j]):
                    if len(self.operators[term] | self.operators[other]) == together:
                        yield term, other

    def _applied(self, template: Template, operands: tuple[Term, ...]) -> Iterator[Term]:
        if operator(template.op).commutative and len(operands) == 2 and operands[0].key > operands[1].key:
            return
        if template.first and operands[0].shape[:1] != (template.first,):
            return
        if any(template.op not in self.under.get(t, (template.op,)) for t in operands):
            return
        if template.beside and all(t.op != template.beside for t in operands):
            return
        if template.weighted and not (_weights(operands[1]) and not _weights(operands[0])):
            return
        if not self.universe.repeats and (
            _collapses(template, operands[0]) or (len(operands) > 1 and operands[0] is operands[1])
        ):
            return
        if template.cut:
            for start, stop in self._parts(operands[0], template.cut):
                yield from self._well_typed(template.op, operands, {"axis": template.cut, "start": start, "stop": stop})
        else:
            yield from self._well_typed(template.op, operands, template.attributes)

    def _parts(self, term: Term, axis: int) -> Iterator[tuple[Extent, Extent]]:
        """Both parts of an axis at every boundary between two extents of the universe."""
        if term.rank < -axis:
            return
        whole = term.shape[axis]
        if term.op == "concat" and term["axis"] == axis:
            first = term.args[0].shape[axis]
            yield from ((0, first), (first, whole))
            return
        for first in sorted((e for e in self.extents if isinstance(e, Size)), key=str):
            if whole - first in self.extents:
                yield 0, first
                yield first, whole

    def _well_typed(self, op: str, operands: tuple[Term, ...], attributes: Mapping[str, Attribute]) -> Iterator[Term]:
        """The operator applied, if it is typed in every environment: no equality of extents is asked for."""
        kind = (op, tuple(t.shape for t in operands), tuple(attributes.values()))
        if self.typed.get(kind) is False:
            return
        try:
            term = apply(op, *operands, **attributes)
        except ShapeError:
            self.typed[kind] = False
            return
        if kind not in self.typed:
            self.typed[kind] = term.rank > 0 and all(isinstance(c, Compare) and c.relation == ">=" for c in term.requires)
        if self.typed[kind] and (self.universe.repeats or len(set(term.args)) == len(term.args)):
            yield term


def _environments(universe: Universe, legal: Callable[[Environment], bool], rng: np.random.Generator) -> list[Environment]:
    """Environments between which every symbol of more than two numbers differs at least once."""
    named = [v for row in universe.variables for v in row]
    varied = [name for name, values in universe.ranges.items() if len(values) > 2]
    while True:
        drawn = [environment(named, universe.ranges, universe.divisors, legal, rng) for _ in range(ENVIRONMENTS)]
        if all(len({e.symbols[name] for e in drawn}) > 1 for name in varied):
            return drawn


def _legality(universe: Universe, leaves: Sequence[Term]) -> Callable[[Environment], bool]:
    """Whether numbers for the symbols meet the conditions of every operator applied to variables and constants alone."""
    conditions = set(requirements(*(c.term for c in universe.constants)))
    for template in universe.templates:
        if not template.cut:
            for operands in itertools.product(leaves, repeat=template.operands):
                try:
                    term = apply(template.op, *operands, **template.attributes)
                except ShapeError:
                    continue
                if all(isinstance(c, Compare) and c.relation == ">=" for c in term.requires):
                    conditions.update(term.requires)
                    conditions.update(at_least(n, 1) for n in term.shape)
    return lambda env: all(substitute_cond(c, env.value) is True for c in conditions)


def _weights(term: Term) -> bool:
    """Whether no activation can reach the term."""
    return all(v.name in WEIGHTS for v in variables(term))


def _collapses(template: Template, operand: Term) -> bool:
    """Whether the template is one that applied twice is applied once, and the operand is made by it already."""
    return template.op in COLLAPSING and operand.op == template.op


def _prefix(universe: Universe, *terms: Term) -> bool:
    """Whether of interchangeable variables the terms use the first ones: all others are renamings of such terms."""
    used = set(variables(*terms))
    return all(
        not (later in used and earlier not in used) for row in universe.variables for earlier, later in itertools.pairwise(row)
    )
