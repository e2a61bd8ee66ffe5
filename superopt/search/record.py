"""Conversion of search results to JSON and back.

Searching the same state again gives the same result, so results can be stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any, TypeAlias

from superopt.algebra.extent import AllOf, AnyOf, Compare, Dim, Entry, Indicator, Sym, floor_divide, inverse
from superopt.algebra.operators import apply
from superopt.algebra.terms import Atom, Extent, Size, Term, size, subterms, variable
from superopt.search.apply import State, Step
from superopt.search.backtracking import SearchResult

Json: TypeAlias = "Any"
ATOMS: dict[str, Callable[..., Atom]] = {"Dim": Dim, "Sym": Sym, "Entry": Entry, "Indicator": Indicator}
"""The constructors of symbolic atoms of extents, by the name of the kind."""


def record_terms_as_json(terms: Sequence[Term]) -> tuple[list[Json], Callable[[Term], int]]:
    """Return the nodes of all terms, operands before users, and a function that returns the position of a term's node.

    A node is a JSON list of an operator, the positions of the operands, and the attributes.
    """
    order = subterms(*terms)
    place = {term: position for position, term in enumerate(order)}
    return [_node(term, place.__getitem__) for term in order], place.__getitem__


def result_to_json(found: SearchResult) -> Json:
    """Return the search result as JSON values."""
    nodes, place, steps = _steps(found.steps, found.outputs)
    numbers = [found.before, found.after, found.expanded, found.stopped]
    return {"nodes": nodes, "outputs": [*map(place, found.outputs)], "steps": steps, "numbers": numbers}


def result_from_json(record: Json) -> SearchResult:
    """Return the search result from its JSON values."""
    terms = terms_from_nodes(record["nodes"])
    steps = _restored(record["steps"], terms)
    before, after, expanded, stopped = record["numbers"]
    return SearchResult(tuple(terms[n] for n in record["outputs"]), steps, before, after, expanded, stopped)


def steps_recorded(steps: Sequence[Step]) -> Json:
    """Return the steps of a search as JSON values."""
    nodes, _, recorded_steps = _steps(steps, ())
    return {"nodes": nodes, "steps": recorded_steps}


def steps_restored(record: Json) -> tuple[Step, ...]:
    """Return the steps from their JSON values."""
    return _restored(record["steps"], terms_from_nodes(record["nodes"]))


def _steps(steps: Sequence[Step], outputs: State) -> tuple[list[Json], Callable[[Term], int], list[Json]]:
    """Return the steps and outputs in parts that JSON can store: nodes, positions of terms, and steps.

    The first part has the nodes of all terms (see `record_terms_as_json`). The second part is a function that returns the
    position of a term's node. The third part has the steps, in which these positions stand for terms.
    """
    nodes, place = record_terms_as_json([*outputs, *(term for step in steps for term in (*step.roots, *step.replacements))])
    return nodes, place, [[step.rule, [*map(place, step.roots)], [*map(place, step.replacements)]] for step in steps]


def terms_from_nodes(nodes: Sequence[Json]) -> list[Term]:
    """Return the terms from nodes that `record_terms_as_json` returned, in the same order."""
    terms: list[Term] = []
    for op, operands, attributes in nodes:
        values = {name: _value(value) for name, value in attributes.items()}
        terms.append(_variable(values) if op == "" else apply(op, *(terms[n] for n in operands), **values))
    return terms


def _restored(steps: Sequence[Json], terms: Sequence[Term]) -> tuple[Step, ...]:
    def taken(places: Sequence[int]) -> State:
        return tuple(terms[n] for n in places)

    return tuple(Step(rule, taken(roots), taken(replacements)) for rule, roots, replacements in steps)


def _node(term: Term, place: Callable[[Term], int]) -> Json:
    if term.is_variable:
        given = {"name": term.name, "shape": term.shape, "constant": term.constant}
        given |= {"condition": term.condition, "position": term.position}
        return ["", [], {name: _json(value) for name, value in given.items()}]
    return [term.op, [*map(place, term.args)], {name: _json(value) for name, value in term.attributes}]


def _variable(values: dict[str, Any]) -> Term:
    return variable(values.pop("name"), values.pop("shape"), **values)


def _json(value: object) -> Json:
    match value:
        case bool() | int() | float() | str():
            return value
        case Fraction():
            return {"fraction": [value.numerator, value.denominator]}
        case tuple():
            return [_json(v) for v in value]
        case Size():
            return {"sum": [[_json(coefficient), *map(_atom, monomial)] for monomial, coefficient in value.terms]}
        case Compare(relation, left):
            return {"compare": [relation, _json(left)]}
        case AllOf(parts) | AnyOf(parts):
            return {"all" if isinstance(value, AllOf) else "any": [*map(_json, parts)]}
        case _:
            raise ValueError(f"{value} is not a number, a text or an extent")


def _atom(atom: Atom) -> Json:
    """Return an atom (a factor in the expression of a dynamic extent) as a JSON list of its kind and its parts."""
    return [type(atom).__name__, *(_json(getattr(atom, f.name)) for f in fields(atom))]


def _value(value: Json) -> Any:
    match value:
        case {"fraction": [numerator, denominator]}:
            return Fraction(numerator, denominator)
        case {"sum": terms}:
            return sum(math.prod((_made(a) for a in atoms), start=_value(coefficient)) for coefficient, *atoms in terms)
        case {"compare": [relation, left]}:
            return Compare(relation, _value(left))
        case {"all": parts}:
            return AllOf(tuple(map(_value, parts)))
        case {"any": parts}:
            return AnyOf(tuple(map(_value, parts)))
        case list():
            return tuple(map(_value, value))
        case _:
            return value


def _made(atom: Json) -> Extent:
    """Return the atom (a factor in the expression of a dynamic extent) that `_atom` wrote, as a simplified expression."""
    match atom:
        case ["Floor", numerator, denominator]:
            return floor_divide(_value(numerator), _value(denominator))
        case ["Inverse", of]:
            return inverse(_value(of))
        case [kind, *parts]:
            return size(ATOMS[kind](*map(_value, parts)))
        case _:
            raise ValueError(f"{atom} is not an atom of an extent")
