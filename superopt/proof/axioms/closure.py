"""Congruence closure over ground terms with proofs: every equality can be traced to the steps that imply it.

The algorithm is from Nieuwenhuis and Oliveras, "Proof-producing congruence closure" (RTA 2005). Two sums (or products) are
congruent if their operands are equal in some order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from superopt.algebra.operators import operator
from superopt.algebra.terms import Size, Term, subterms

Pairs: TypeAlias = "tuple[tuple[Term, Term], ...]"
Signature: TypeAlias = "tuple[object, ...]"


@dataclass(frozen=True)
class Congruence:
    """A reason for the equality of two terms: both apply the same operator, and their operands are pairwise equal."""

    pairs: Pairs


@dataclass(frozen=True)
class Regrouping:
    """A reason for the equality of two sums (or products): associativity and commutativity.

    Attributes:
        sums: The sums (or products) that are regrouped.
        pairs: Pairs of terms that must be equal for the regrouping to be correct.
    """

    sums: tuple[Term, ...]
    pairs: Pairs


@dataclass(frozen=True)
class Given:
    """A reason for the equality of two terms: an asserted axiom instance, given as text and as its two sides."""

    text: str
    left: Term
    right: Term


Reason: TypeAlias = Congruence | Regrouping | Given


def _length(extent: object) -> int:
    """Return the writing cost (a measure of complexity) of an extent. The cost of -1, 0, 1 and each single symbol is 0.

    The cost of a nonzero fraction p / q is |p| - 1 + q - 1. The cost of a symbolic size grows with the number of its symbols
    and with the magnitude of its coefficients.
    """
    match extent:
        case int() | Fraction():
            return max(0, abs(extent.numerator) - 1) + extent.denominator - 1
        case Size(terms=terms):
            return sum(max(1, len(monomial)) + _length(coefficient) for monomial, coefficient in terms) - 1
        case _:
            return 0


def egraph_attribute_values(term: Term) -> Iterator[object]:
    """Yield every number, size and axis among the term's attributes."""
    for _, value in term.attributes:
        yield from value if isinstance(value, tuple) else (value,)


class Closure:
    """Classes of equal terms, closed under congruence: terms with the same operator and equal operands are in one class.

    Attributes:
        familiar: Extents that add nothing to a term's writing cost (see `weight`).
        merges: The number of times that two classes were merged.
    """

    def __init__(self, familiar: Iterable[object] = ()) -> None:
        self.familiar = frozenset(familiar)
        self._parent: dict[Term, Term] = {}
        self._members: dict[Term, list[Term]] = {}
        self._users: dict[Term, list[Term]] = {}
        self._table: dict[Signature, Term] = {}
        self._edges: dict[Term, tuple[Term, Reason]] = {}
        self._weight: dict[Term, int] = {}
        self._best: dict[Term, Term] = {}
        self.by_operator: dict[str, list[Term]] = {}
        self.merges = 0

    def __len__(self) -> int:
        return len(self._parent)

    def __contains__(self, term: Term) -> bool:
        return term in self._parent

    def find(self, term: Term) -> Term:
        """Return the representative of the term's class, or the term itself if the term is in no class."""
        parent = self._parent
        root = term
        while (above := parent.get(root, root)) is not root:
            root = above
        while term is not root:
            parent[term], term = root, parent[term]
        return root

    def members(self, term: Term) -> Sequence[Term]:
        """Return all terms in the same class as the term."""
        return self._members[self.find(term)]

    def best(self, term: Term) -> Term:
        """Return the term with the least writing cost (see `weight`) in the term's class."""
        return self._best.get(self.find(term), term)

    def equal(self, one: Term, other: Term) -> bool:
        return self.find(one) is self.find(other)

    def weight(self, term: Term) -> int:
        """Return the cost of a term: the number of its operators and variables, plus the costs of its attributes.

        An operator with n > 2 operands counts as n - 1 operators. A shared operand counts at each of its occurrences. Each
        extent in an attribute has its own cost, which is 0 if the extent is in `familiar`.
        """
        known = self._weight.get(term)
        if known is not None:
            return known
        numbers = sum(_length(extent) for extent in egraph_attribute_values(term) if extent not in self.familiar)
        own = len(term.args) - 1 if len(term.args) > 2 else 1
        return own + numbers + sum(map(self.weight, term.args))

    def signature(self, term: Term) -> Signature:
        """Return a key that is equal for congruent terms: terms with the same operator and pairwise equal operands."""
        operands = [self.find(a) for a in term.args]
        if operator(term.op).commutative:
            operands.sort(key=lambda t: t.key)
        return (term.op, term.attributes, *operands)

    def canonical(self, term: Term) -> bool:
        """Return whether the term is the representative of all terms with the same operator and pairwise equal operands."""
        return self._table.get(self.signature(term)) is term

    def lookup(self, term: Term) -> Term | None:
        """Return the representative of the term's class.

        If the term is in no class, but is congruent to a term in a class, return the representative of this class. Return None
        if the term is in no class and is congruent to no term in a class.
        """
        if term in self._parent:
            return self.find(term)
        operands = [self.lookup(a) for a in term.args]
        if term.is_variable or None in operands:
            return None
        if operator(term.op).commutative:
            operands.sort(key=lambda t: t.key if t is not None else "")
        known = self._table.get((term.op, term.attributes, *operands))
        return None if known is None else self.find(known)

    def add(self, term: Term) -> Term:
        """Add the term with its subterms and return the term."""
        if term not in self._parent:
            for part in subterms(term):
                if part not in self._parent:
                    self._register(part)
        return term

    def _register(self, term: Term) -> None:
        self._parent[term] = self._best[term] = term
        self._members[term] = [term]
        self._users[term] = []
        self._weight[term] = self.weight(term)
        if term.is_variable:
            return
        self.by_operator.setdefault(term.op, []).append(term)
        for operand in dict.fromkeys(self.find(a) for a in term.args):
            self._users[operand].append(term)
        known = self._table.setdefault(self.signature(term), term)
        if known is not term:
            self.merge(term, known, Congruence(self._paired(term, known)))

    def merge(self, one: Term, other: Term, reason: Reason) -> None:
        """Merge the classes of the two terms and record the reason. Then merge all classes that are now equal by congruence."""
        pending = [(one, other, reason)]
        while pending:
            one, other, reason = pending.pop()
            root, into = self.find(one), self.find(other)
            if root is into:
                continue
            if len(self._members[root]) > len(self._members[into]):
                one, other, root, into = other, one, into, root
            self.merges += 1
            self._hang(one, other, reason)
            self._parent[root] = into
            self._members[into] += self._members.pop(root)
            rival = self._best.pop(root)
            self._best[into] = min(self._best[into], rival, key=lambda t: (self._weight[t], t.key))
            users = self._users.pop(root)
            self._users[into] += users
            for user in users:
                known = self._table.setdefault(self.signature(user), user)
                if not self.equal(known, user):
                    pending.append((user, known, Congruence(self._paired(user, known))))

    def _hang(self, one: Term, other: Term, reason: Reason) -> None:
        """Make `one` the root of its tree in the proof forest, then add an edge from `one` to `other`."""
        while True:
            above = self._edges.get(one)
            self._edges[one] = (other, reason)
            if above is None:
                return
            other, one, reason = one, above[0], above[1]

    def _paired(self, one: Term, other: Term) -> Pairs:
        if not operator(one.op).commutative:
            return tuple(zip(one.args, other.args, strict=True))
        return self.matched(one.args, other.args)

    def matched(self, some: Sequence[Term], others: Sequence[Term]) -> Pairs:
        """Pair each term of `some` with an equal term of `others`. No term of `others` is used twice.

        The two sequences must contain equal terms, in any order.
        """
        left = list(others)
        pairs: list[tuple[Term, Term]] = []
        for term in some:
            partner = next(t for t in left if self.equal(t, term))
            left.remove(partner)
            pairs.append((term, partner))
        return tuple(pairs)

    def reasons(self) -> Iterator[Reason]:
        """Yield the reason of every merge of two classes."""
        yield from (reason for _, reason in self._edges.values())

    def explain(self, goals: Pairs) -> tuple[list[Given], list[Regrouping]]:
        """Return a set of asserted equations and regroupings that implies every goal by congruence.

        A regrouping changes the grouping and order of a sum or product. Each goal is a pair of terms. The two terms must
        already be in the same class.
        """
        given: dict[Given, None] = {}
        regrouped: dict[Regrouping, None] = {}
        done: set[tuple[Term, Term]] = set()
        pending = list(goals)
        while pending:
            one, other = pending.pop()
            if one is other or (one, other) in done:
                continue
            done.add((one, other))
            for reason in self._path(one, other):
                match reason:
                    case Given():
                        given[reason] = None
                    case Regrouping(_, pairs):
                        regrouped[reason] = None
                        pending.extend(pairs)
                    case Congruence(pairs):
                        pending.extend(pairs)
        return list(given), list(regrouped)

    def _path(self, one: Term, other: Term) -> Iterator[Reason]:
        """Yield the reasons along the path between the two terms in the proof forest.

        The path leads through the lowest common ancestor of the two terms. The reasons between `other` and this ancestor come
        first.
        """
        above, below = self._halves(one, other)
        yield from (reason for _, _, reason in below)
        yield from (reason for _, _, reason in above)

    def path(self, one: Term, other: Term) -> list[tuple[Term, Term, Reason]]:
        """Return the edges of the path between the two terms in the proof forest, each with its reason."""
        above, below = self._halves(one, other)
        return [*above, *((there, here, reason) for here, there, reason in reversed(below))]

    def _halves(self, one: Term, other: Term) -> tuple[list[tuple[Term, Term, Reason]], list[tuple[Term, Term, Reason]]]:
        """Return two lists of edges in the proof forest.

        Each list leads from one of the terms to the lowest common ancestor.
        """
        above = {one: None}
        walk = one
        while walk in self._edges:
            walk = self._edges[walk][0]
            above[walk] = None
        meet = other
        while meet not in above:
            meet = self._edges[meet][0]
        return self._climb(one, meet), self._climb(other, meet)

    def _climb(self, term: Term, top: Term) -> list[tuple[Term, Term, Reason]]:
        edges: list[tuple[Term, Term, Reason]] = []
        while term is not top:
            parent, reason = self._edges[term]
            edges.append((term, parent, reason))
            term = parent
        return edges
