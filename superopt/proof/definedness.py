"""The selection of axiom instances for proofs with operators that are not defined everywhere, such as division.

The sides of an `==` axiom are defined on the same inputs. The right side of a `=>` axiom is defined wherever the left side is
defined. Congruence closure treats both kinds of axiom as equalities. Congruence closure is therefore sound only on inputs on
which every term of the axiom instances is defined. These inputs must include all inputs on which both sides of the rule are
defined. A term that divides (or takes a root, a power or a logarithm) is known to be defined in two cases:

- the term is part of a side of the rule, and the result of this side depends on every element of the term;
- the term is on one side of an axiom instance whose other side is known to be defined. If the axiom is a `=>` axiom, the term
  must be on the right side.

A separate check shows that the rule's right side is defined wherever its left side is defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from superopt.algebra import index
from superopt.algebra.operators import interpret
from superopt.algebra.terms import Term, at_least, size, subterms
from superopt.proof.axioms.closure import Closure, Given
from superopt.proof.axioms.ground import Ground
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.definitions.normal import Normal, TreeValue, flatten_tree, has_partial_function
from superopt.proof.definitions.sums import Call, Guard, Largest, Power, Read, Sum
from superopt.proof.denominators import denominators, is_nonzero, nonzero
from superopt.proof.domains import is_undefined
from superopt.rules.rule import axioms

STRICT = frozenset(
    {"concat", "expand", "matmul", "reduce_max", "reduce_mean", "reduce_sum", "repeat", "reshape", "reverse", "tile"}
)
"""Operators that are not elementwise, but whose results depend on every element of the operands."""


def undefined_somewhere(assumptions: Assumptions) -> bool:
    """Return whether the rule's right side may be undefined where its left side is defined.

    False means that the right side is shown to be defined wherever the left side is defined.
    """
    given = (*assumptions.facts, *nonzero(denominators(*assumptions.left)))
    divisors = [[d for d in denominators(side) if not is_nonzero(given, d)] for side in assumptions.right]
    if not any(divisors) and not any(map(is_partial, subterms(*assumptions.right))):
        return False
    notation = Normal()
    tensors: dict[Term, index.Tensor] = {}
    with index.interpreted(notation):
        for term in subterms(*assumptions.left, *assumptions.right):
            operands = [tensors[a] for a in term.args]
            read = term.is_variable
            tensors[term] = notation.read(term.name, term.shape) if read else interpret(term, operands)
        for left, right, open_ in zip(assumptions.left, assumptions.right, divisors, strict=True):
            at = tuple(size(notation.fresh("i")) for _ in left.shape)
            facts: Guard = given
            for i, extent in zip(at, left.shape, strict=True):
                facts += tuple(c for c in (at_least(i, 0), at_least(extent - 1, i)) if c is not True)
            if is_undefined(
                facts, flatten_tree(tensors[left][at].tree), flatten_tree(tensors[right][at].tree), notation, open_
            ):
                return True
    return False


def defined_instances(assumptions: Assumptions, grounds: Sequence[Ground]) -> list[Ground]:
    """Return each axiom instance whose terms are shown to be defined wherever both sides of the rule are defined."""
    goals = (*assumptions.left, *assumptions.right)
    sides = [side for g in grounds for side in (g.left, g.right)]
    if not any(map(is_partial, subterms(*goals, *sides))) and not denominators(*sides):
        return list(grounds)
    facts = [*assumptions.facts, *nonzero(denominators(*goals))]
    closure = Closure()
    defined: dict[Term, None] = {}
    for term in goals:
        closure.add(term)
        defined.update(dict.fromkeys(_counting(term)))
    accepted: list[Ground] = []
    left = list(grounds)
    while True:
        found = [(g, side) for g in left for side in _sources(g) if _all_defined(side, closure, defined, tuple(facts))]
        if not found:
            return [g for g in grounds if g in accepted]
        for ground, _ in found:
            if ground in left:
                left.remove(ground)
                accepted.append(ground)
                closure.merge(
                    closure.add(ground.left), closure.add(ground.right), Given(ground.text, ground.left, ground.right)
                )
                defined.update(dict.fromkeys(t for side in (ground.left, ground.right) for t in _counting(side)))
                facts += nonzero(denominators(ground.left, ground.right))


def _sources(ground: Ground) -> tuple[Term, ...]:
    """Return the sides of the axiom instance that must be checked. If a returned side is defined, the opposite side is defined
    too.

    For a `=>` axiom, the left side is returned. For an `==` axiom, both sides are returned.
    """
    axiom = axioms().get(ground.axiom)
    directed = ground.directed or (axiom is not None and axiom.statement.arrow == "=>")
    return (ground.left,) if directed else (ground.left, ground.right)


def _all_defined(side: Term, closure: Closure, defined: Iterable[Term], facts: Guard) -> bool:
    if not all(is_nonzero(facts, d) for d in denominators(side)):
        return False
    known = {closure.find(t) for t in defined}
    return all(closure.lookup(t) in known for t in subterms(side) if is_partial(t))


def _counting(term: Term) -> Iterator[Term]:
    """Yield subterms that must be defined if the term is defined. The term depends on all elements of each yielded subterm.

    Only subterms with a partial operator, such as division, are yielded. The term itself can be one of these subterms.
    """
    if is_partial(term):
        yield term
    if term.op in STRICT or _is_pointwise(term):
        for operand in term.args:
            yield from _counting(operand)


# ---------------------------------------------------------------- operators


def is_partial(term: Term) -> bool:
    """Return whether the term's operator is partial, that is, undefined for some values of its operands' elements."""
    return not term.is_variable and _facts_of(term)[0]


def _is_pointwise(term: Term) -> bool:
    """Return whether each element of the result depends only on the elements of the operands at the same position."""
    return not term.is_variable and _facts_of(term)[1]


_known: dict[object, tuple[bool, bool]] = {}


def _facts_of(term: Term) -> tuple[bool, bool]:
    """Return whether the term's operator is partial, and whether the operator is elementwise.

    Both answers hold for the attributes of the term and the ranks of its operands.
    """
    identity = term.op, term.attributes, tuple(a.rank for a in term.args)
    known = _known.get(identity)
    if known is None:
        value, at = _value(term)
        known = _known[identity] = has_partial_function(value), _reads_only(value, at)
    return known


def _value(term: Term) -> tuple[Sum, tuple[object, ...]]:
    """Apply the operator to unknown operands. Return one element of the result, and the symbolic position of this element."""
    notation = Normal()
    with index.interpreted(notation):
        operands = [notation.read(f"e{place}", a.shape) for place, a in enumerate(term.args)]
        at = tuple(size(notation.fresh("i")) for _ in term.shape)
        value: TreeValue = interpret(term, operands)[at]
        return flatten_tree(value.tree), at


def _reads_only(value: Sum, at: tuple[object, ...]) -> bool:
    for summand in value:
        if summand.bound or summand.guard:
            return False
        for factor in summand.factors:
            match factor:
                case Read(_, indices):
                    if indices != at:
                        return False
                case Call(function, arguments):
                    if function == "choose" or not all(_reads_only(a, at) for a in arguments):
                        return False
                case Power(base):
                    if not _reads_only(base, at):
                        return False
                case Largest(candidates):
                    if not all(_reads_only(c.value, at) and not c.bound and not c.guard for c in candidates):
                        return False
    return True
