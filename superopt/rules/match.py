"""Match the left side of an equation with the terms of a graph, and compute the terms that can replace each match.

Patterns are the typed terms of an `Equation`. The extents of graphs are numbers, or polynomials in the dynamic dimensions of a
model. Sums and products are matched modulo associativity and commutativity. If the root of a pattern is a sum or product, the
pattern can match only some of the operands of a term. Below the root, all operands must match, and one variable of the pattern
can match several operands together. A match is accepted only if the instantiated left side is identical to the matched term.
All conditions of the rule and of its right side must hold for all values of the dynamic dimensions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.algebra.operators import apply, operator
from superopt.algebra.tautology import is_tautology
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Cond,
    Dim,
    Extent,
    Size,
    Sym,
    Term,
    at_least,
    atoms,
    attribute_atoms,
    size,
    substitute,
    substitute_attribute,
    substitute_cond,
    subterms,
)
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation

Pending = tuple[tuple[Size, Extent], ...]


@dataclass(frozen=True)
class Binding:
    """The values of a pattern's variables.

    Attributes:
        tensors: The terms of the tensor variables.
        symbols: The values of the attribute variables.
        pending: Unsolved equations. Each equation is a pair of an expression in the pattern's attribute variables and its
            required value.
    """

    tensors: Mapping[str, Term]
    symbols: Mapping[str, Extent]
    pending: Pending = ()

    def value(self, atom: Atom) -> Extent | None:
        """Return the value of a dimension or an attribute variable of the pattern. Return None if no value is bound yet."""
        if isinstance(atom, Dim):
            tensor = self.tensors.get(atom.tensor)
            return tensor.shape[atom.axis] if tensor is not None else None
        return self.symbols.get(atom.name) if isinstance(atom, Sym) else None


EMPTY = Binding({}, {})


@dataclass(frozen=True)
class Match:
    """A match of a pattern with terms.

    Attributes:
        roots: The matched terms, one for each output of the pattern.
        replacements: For each root, the term that can replace the root.
        binding: The values of the pattern's variables.
        rests: For each root, the operands that the pattern does not match. A root has such operands only if its operator is
            commutative.
    """

    roots: tuple[Term, ...]
    replacements: tuple[Term, ...]
    binding: Binding
    rests: tuple[tuple[Term, ...], ...]

    @property
    def covered(self) -> Counter[Term]:
        """The multiset of those operands of the first term in `roots` that the pattern matches."""
        return Counter(self.roots[0].args) - Counter(self.rests[0])

    def at(self, root: Term) -> Term | None:
        """Apply the match to the sum or product `root`, which may differ from the matched term, and return the replacement.

        Return None if `root` lacks an operand that the pattern matches. The match must have a single root.

        Raises:
            ShapeError: The replacement is not well typed.
        """
        (first,), (new,), (rest,) = self.roots, self.replacements, self.rests
        left = Counter(root.args) - self.covered
        if root.op != first.op or not operator(root.op).commutative or left + self.covered != Counter(root.args):
            return None
        made = Counter(new.args if new.op == root.op else (new,)) - Counter(rest)
        operands = [*(left + made).elements()]
        return apply(root.op, *operands) if len(operands) > 1 else operands[0]


def match_term(pattern: Term, term: Term, binding: Binding = EMPTY) -> Iterator[Binding]:
    """Yield an extension of `binding` for every way in which the whole `pattern` matches `term`.

    If an equation between attributes cannot be solved yet, the equation is added to `Binding.pending`.
    """
    if pattern.is_variable:
        yield from _match_variable(pattern, term, binding)
    elif pattern.op == term.op:
        bound = match_attributes(pattern, term, binding)
        if bound is None:
            return
        if operator(pattern.op).commutative:
            for matched, rest in _match_operands(pattern, term, bound, absorb=True):
                if not rest:
                    yield matched
        else:
            yield from _match_args(pattern.args, term.args, bound)


def _match_variable(pattern: Term, term: Term, binding: Binding) -> Iterator[Binding]:
    known = binding.tensors.get(pattern.name)
    if known is term:
        yield binding
    elif known is None and term.rank == pattern.rank:
        yield Binding({**binding.tensors, pattern.name: term}, binding.symbols, binding.pending)


def _match_args(patterns: Sequence[Term], terms: Sequence[Term], binding: Binding) -> Iterator[Binding]:
    if not patterns:
        yield binding
        return
    for bound in match_term(patterns[0], terms[0], binding):
        yield from _match_args(patterns[1:], terms[1:], bound)


def match_attributes(pattern: Term, term: Term, binding: Binding) -> Binding | None:
    """Extend `binding` so that the attributes of `pattern` and `term` agree, and return the extended binding. Return None if
    the attributes cannot agree.

    If an attribute of the pattern is an expression, such as `a + 1`, the equation between the expression and the term's value
    is added to `Binding.pending`.
    """
    symbols, pending = binding.symbols, binding.pending
    for (_, wanted), (_, found) in zip(pattern.attributes, term.attributes, strict=True):
        if isinstance(wanted, tuple):
            if not isinstance(found, tuple) or len(wanted) != len(found):
                return None
            pairs: Sequence[tuple[Attribute, Attribute]] = list(zip(wanted, found, strict=True))
        else:
            pairs = [(wanted, found)]
        for want, have in pairs:
            if not isinstance(want, Size):
                if want != have:
                    return None
                continue
            assert not isinstance(have, str | tuple)
            name = _bare_symbol(want)
            if name is None:
                pending = (*pending, (want, have))
            elif name not in symbols:
                symbols = {**symbols, name: have}
            elif symbols[name] != have:
                return None
    return Binding(binding.tensors, symbols, pending)


def _bare_symbol(extent: Size) -> str | None:
    """Return the name of the attribute variable if the extent is a single attribute variable, and None otherwise."""
    (monomial, coefficient), *more = extent.terms
    if more or coefficient != 1 or len(monomial) != 1 or not isinstance(monomial[0], Sym):
        return None
    return monomial[0].name


def _match_operands(pattern: Term, term: Term, binding: Binding, *, absorb: bool) -> Iterator[tuple[Binding, tuple[Term, ...]]]:
    """Match the pattern's operands with operands of a sum or product in any order. Yield pairs (binding, unmatched operands).

    If `absorb` is True, the last unbound variable of the pattern matches the sum or product of all remaining operands.
    """
    wanted = sorted(pattern.args, key=lambda p: (p.is_variable, p.is_variable and p.name not in binding.tensors))
    if len(wanted) > len(term.args):
        return
    yield from _assign(pattern.op, wanted, term.args, binding, absorb)


def _assign(
    op: str, wanted: Sequence[Term], operands: tuple[Term, ...], binding: Binding, absorb: bool
) -> Iterator[tuple[Binding, tuple[Term, ...]]]:
    if not wanted:
        yield binding, operands
        return
    first, *others = wanted
    last_free = first.is_variable and not others and first.name not in binding.tensors
    if absorb and last_free and len(operands) > 1:
        for bound in match_term(first, apply(op, *operands), binding):
            yield bound, ()
        return
    tried: set[Term] = set()
    for position, operand in enumerate(operands):
        if operand in tried:
            continue
        tried.add(operand)
        rest = operands[:position] + operands[position + 1 :]
        for bound in match_term(first, operand, binding):
            yield from _assign(op, others, rest, bound, absorb)


def _match_root(pattern: Term, term: Term, binding: Binding) -> Iterator[tuple[Binding, tuple[Term, ...]]]:
    """Match as `match_term` does, but accept a sum or product with further operands that the pattern does not match.

    Yield pairs (binding, operands that the pattern does not match).
    """
    if not pattern.is_variable and pattern.op == term.op and operator(pattern.op).commutative:
        yield from _match_operands(pattern, term, binding, absorb=False)
    else:
        for bound in match_term(pattern, term, binding):
            yield bound, ()


def solve_pending(binding: Binding) -> Binding | None:
    """Solve the pending attribute equations of the binding, and return the new binding. Return None if an equation is false or
    cannot be solved.

    An equation can be solved if it has only one unknown attribute variable, if the variable occurs linearly, and if the
    solution is exact.
    """
    symbols = dict(binding.symbols)
    known = Binding(binding.tensors, symbols)
    waiting = list(binding.pending)
    while waiting:
        left: list[tuple[Size, Extent]] = []
        for want, have in waiting:
            reduced = substitute(want, known.value)
            if not any(isinstance(a, Sym) for a in atoms(reduced)):
                if reduced != have:
                    return None
                continue
            assert isinstance(reduced, Size)
            solution = _solution(reduced, have)
            if solution is None:
                left.append((want, have))
            else:
                name, value = solution
                symbols[name] = value
        if len(left) == len(waiting):
            return None
        waiting = left
    return known


def _solution(extent: Size, value: Extent) -> tuple[str, Extent] | None:
    unknown = {a for a in extent.atoms() if isinstance(a, Sym)}
    if len(unknown) != 1:
        return None
    atom = unknown.pop()
    rest = substitute(extent, lambda a: 0 if a == atom else None)
    slope = substitute(extent - rest, lambda a: 1 if a == atom else None)
    if isinstance(slope, Size) or extent - rest != slope * size(atom):
        return None
    product = value - rest
    if isinstance(product, Size):
        return (atom.name, product * slope) if abs(slope) == 1 and not atom.real else None
    if atom.real:
        return atom.name, product / slope
    quotient, remainder = divmod(product, slope)
    return (atom.name, int(quotient)) if remainder == 0 else None


def instantiate(term: Term, binding: Binding, cache: dict[Term, Term] | None = None) -> Term:
    """Return the pattern `term` with its variables replaced by their values in `binding`.

    Raises:
        ShapeError: The result is not well typed.
    """
    return _built(subterms(term), binding, {} if cache is None else cache)


def _built(parts: Sequence[Term], binding: Binding, done: dict[Term, Term]) -> Term:
    """Instantiate a term. `parts` contains all subterms in topological order, arguments first, and the term itself last.

    `done` caches the instances of subterms.
    """
    for part in parts:
        if part in done:
            continue
        if part.is_variable:
            done[part] = binding.tensors[part.name]
        else:
            attributes = {k: substitute_attribute(v, binding.value) for k, v in part.attributes}
            done[part] = apply(part.op, *(done[a] for a in part.args), **attributes)
    return done[parts[-1]]


class Pattern:
    """A directed equation whose left side is matched and whose right side is the replacement.

    A pattern is `usable` if the left side determines every variable of the right side.
    """

    def __init__(self, left: tuple[Term, ...], right: tuple[Term, ...], where: Cond) -> None:
        self.left, self.right, self.where = left, right, where
        known = {t.name for t in subterms(*left) if t.is_variable}
        needed = {t.name for t in subterms(*right) if t.is_variable}
        symbols = {a for a in attribute_atoms(*left) if isinstance(a, Sym)}
        self.usable = needed <= known and {a for a in attribute_atoms(*right) if isinstance(a, Sym)} <= symbols
        self.roots = tuple(root.op for root in left)
        self._sides = [subterms(root) for root in left], [subterms(root) for root in right]

    @staticmethod
    def of(equation: Equation) -> Pattern:
        """Return the pattern that replaces the left side of the equation by the right side."""
        return Pattern(equation.left, equation.right, equation.where)

    def matches(self, root: Term, candidates: Callable[[str], Sequence[Term]]) -> Iterator[Match]:
        """Yield every match in which the first output of the pattern matches `root`.

        `candidates(op)` lists the terms with the operator `op`. The second and later outputs of the pattern can match these
        terms.
        """
        for binding, rest in _match_root(self.left[0], root, EMPTY):
            for found, roots, rests in self._others(1, binding, (root,), (rest,), candidates):
                match = self._accepted(found, roots, rests)
                if match is not None:
                    yield match

    def _others(
        self,
        position: int,
        binding: Binding,
        roots: tuple[Term, ...],
        rests: tuple[tuple[Term, ...], ...],
        candidates: Callable[[str], Sequence[Term]],
    ) -> Iterator[tuple[Binding, tuple[Term, ...], tuple[tuple[Term, ...], ...]]]:
        if position == len(self.left):
            yield binding, roots, rests
            return
        pattern = self.left[position]
        for term in candidates(pattern.op):
            if term in roots or not _plausible(pattern, term, binding):
                continue
            for bound, rest in _match_root(pattern, term, binding):
                yield from self._others(position + 1, bound, (*roots, term), (*rests, rest), candidates)

    def _accepted(self, binding: Binding, roots: tuple[Term, ...], rests: tuple[tuple[Term, ...], ...]) -> Match | None:
        cache: dict[Term, Term] = {}
        try:
            solved = solve_pending(binding)
            if solved is None or not is_tautology(substitute_cond(self.where, solved.value)):
                return None
            left, right = ([_built(parts, solved, cache) for parts in side] for side in self._sides)
            instances, results = (tuple(map(_with_rest, self.roots, side, rests)) for side in (left, right))
        except (ShapeError, ZeroDivisionError):
            return None
        if instances != roots:
            return None
        if any(new.shape != old.shape for new, old in zip(results, roots, strict=True)) or results == roots:
            return None
        if not _sound(results, roots, solved):
            return None
        return Match(roots, results, solved, rests)


def _sound(results: Sequence[Term], roots: Sequence[Term], binding: Binding) -> bool:
    """Return whether the new terms `results` are well typed and not empty for all values of the dynamic dimensions.

    The old terms `roots` are assumed to be well typed.
    """
    extents = itertools.chain(binding.symbols.values(), *(t.shape for t in binding.tensors.values()))
    if not any(isinstance(n, Size) for n in extents):
        return True
    old = set(subterms(*roots))
    given = {c for t in old for c in t.requires}
    new = [t for t in subterms(*results) if t not in old]
    return all(c in given or is_tautology(c) for t in new for c in (*t.requires, *(at_least(n, 1) for n in t.shape)))


def _with_rest(op: str, term: Term, rest: tuple[Term, ...]) -> Term:
    return apply(op, term, *rest) if rest else term


def _plausible(pattern: Term, term: Term, binding: Binding) -> bool:
    """Return False if a quick test shows that `term` does not match `pattern`.

    The test examines those operands of the pattern that are variables with a value in `binding`. The value must equal the
    operand of `term` at the same position.
    """
    if operator(pattern.op).commutative:
        return True
    return all(not p.is_variable or binding.tensors.get(p.name, a) is a for p, a in zip(pattern.args, term.args, strict=True))
