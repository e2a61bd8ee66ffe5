"""A canonical form for states that differ only in the names of their variables, so that repeated blocks are searched once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from superopt.algebra.operators import operator, replace_subterms
from superopt.algebra.terms import Term, subterms, variable
from superopt.policy import SEARCH

State = tuple[Term, ...]


@dataclass(frozen=True)
class Canonical:
    """A state over numbered variables, and the original variables.

    Variables are named `x0`, `x1` and so on. Constant variables are named `w0`, `w1` and so on. `names` maps each of these
    names to the original variable.
    """

    outputs: State
    names: Mapping[str, Term]

    def restored(self, outputs: Sequence[Term]) -> State:
        """Return `outputs` with each numbered variable, such as `x0`, replaced by the original variable."""
        return _renamed(outputs, {t: self.names[t.name] for t in subterms(*outputs) if t.is_variable})


def canonical(outputs: State) -> Canonical:
    """Rename the variables of the state to `x0`, `x1`, ... and the weights of the state to `w0`, `w1`, ...

    States that differ only in names have equal outputs after renaming, with one exception: if two operands of a sum or product
    differ only in names, the numbers in these operands may depend on the order of the operands.
    """
    colours = _colours(outputs)
    order: dict[Term, None] = {}
    stack = list(reversed(outputs))
    seen: set[Term] = set()
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        if term.is_variable:
            order[term] = None
        args = sorted(term.args, key=colours.__getitem__) if _commutes(term) else term.args
        stack.extend(reversed(args))
    numbered: dict[Term, Term] = {}
    counts = {"x": 0, "w": 0}
    for term in order:
        kind = "w" if term.constant else "x"
        name = f"{kind}{counts[kind]}"
        numbered[term] = variable(name, term.shape, constant=term.constant, condition=term.condition, position=term.position)
        counts[kind] += 1
    return Canonical(_renamed(outputs, numbered), {new.name: old for old, new in numbered.items()})


def _renamed(outputs: Sequence[Term], replacement: Mapping[Term, Term]) -> State:
    cache: dict[Term, Term] = {}
    return tuple(replace_subterms(root, replacement, cache) for root in outputs)


def _commutes(term: Term) -> bool:
    return not term.is_variable and operator(term.op).commutative


def _colours(outputs: State) -> dict[Term, str]:
    """Return a mapping from each term to a hash that does not depend on names.

    The hash covers the operators below the term and the uses of the term.
    """
    order = subterms(*outputs)
    colours: dict[Term, str] = {}
    for term in order:
        shown = (term.shape, term.constant, term.condition, term.position) if term.is_variable else term.attributes
        colours[term] = _hash(term.op, shown, _operands(term, colours))
    for _ in range(SEARCH.canonical_round_count):
        uses: dict[Term, list[str]] = {term: [] for term in order}
        for position, root in enumerate(outputs):
            uses[root].append(f"output {position}")
        for term in order:
            for position, arg in enumerate(term.args):
                uses[arg].append(f"{colours[term]} {0 if _commutes(term) else position}")
        refined = {term: _hash(colours[term], sorted(uses[term])) for term in order}
        colours = {term: _hash(refined[term], _operands(term, refined)) for term in order}
    return colours


def _operands(term: Term, colours: Mapping[Term, str]) -> list[str]:
    found = [colours[a] for a in term.args]
    return sorted(found) if _commutes(term) else found


def _hash(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=10).hexdigest()
