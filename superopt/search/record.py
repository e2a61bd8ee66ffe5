"""Conversion of search results to JSON and back.

Two searches of one state give equal results, so a result can be stored and used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from fractions import Fraction

from superopt.algebra.extent import AllOf, AnyOf, Compare, Dim, Entry, Indicator, Sym, floor_divide, inverse
from superopt.algebra.operators import apply
from superopt.algebra.terms import Atom, Attribute, Cond, Extent, Size, Term, size, subterms, variable
from superopt.runtime.cache import Json, json_integer, json_list, json_number, json_object, json_text
from superopt.search.apply import State, Step
from superopt.search.backtracking import SearchResult


def record_terms_as_json(terms: Sequence[Term]) -> tuple[list[Json], Callable[[Term], int]]:
    """Convert terms to JSON nodes.

    A node is a JSON list of an operator, the positions of the operands, and the attributes. The operands of a node come before
    the node.

    Returns:
        The list of nodes, and a function. The function maps a term to the position of the term's node in the list.
    """
    order = subterms(*terms)
    place = {term: position for position, term in enumerate(order)}
    return [_node(term, place.__getitem__) for term in order], place.__getitem__


def result_to_json(found: SearchResult) -> Json:
    """Return the search result as JSON values."""
    nodes, place, steps = _steps(found.steps, found.outputs)
    numbers: list[Json] = [found.before, found.after, found.expanded, found.stopped]
    return {"nodes": nodes, "outputs": [*map(place, found.outputs)], "steps": steps, "numbers": numbers}


def result_from_json(record: Json) -> SearchResult:
    """Convert JSON values from `result_to_json` to the original search result."""
    parts = json_object(record)
    terms = terms_from_nodes(parts["nodes"])
    steps = _restored(parts["steps"], terms)
    before, after, expanded, stopped = json_list(parts["numbers"])
    numbers = json_number(before), json_number(after), json_integer(expanded)
    return SearchResult(_taken(parts["outputs"], terms), steps, *numbers, json_text(stopped))


def steps_recorded(steps: Sequence[Step]) -> Json:
    """Return the steps of a search as JSON values."""
    nodes, _, recorded_steps = _steps(steps, ())
    return {"nodes": nodes, "steps": recorded_steps}


def steps_restored(record: Json) -> tuple[Step, ...]:
    """Convert JSON values from `steps_recorded` to the original steps of a search."""
    parts = json_object(record)
    return _restored(parts["steps"], terms_from_nodes(parts["nodes"]))


def _steps(steps: Sequence[Step], outputs: State) -> tuple[list[Json], Callable[[Term], int], list[Json]]:
    """Convert the steps and outputs for JSON. Return three values: nodes, a function from terms to positions, and converted
    steps.

    The nodes represent all terms (see `record_terms_as_json`). The function returns the position of a term's node. In the
    converted steps, these positions stand for terms.
    """
    nodes, place = record_terms_as_json([*outputs, *(term for step in steps for term in (*step.roots, *step.replacements))])
    return nodes, place, [[step.rule, [*map(place, step.roots)], [*map(place, step.replacements)]] for step in steps]


def terms_from_nodes(nodes: Json) -> list[Term]:
    """Return the terms that the nodes from `record_terms_as_json` represent, in the same order."""
    terms: list[Term] = []
    for op, operands, attributes in map(json_list, json_list(nodes)):
        values = {name: _attribute(value) for name, value in json_object(attributes).items()}
        terms.append(_variable(**values) if op == "" else apply(json_text(op), *_taken(operands, terms), **values))
    return terms


def _restored(steps: Json, terms: Sequence[Term]) -> tuple[Step, ...]:
    return tuple(
        Step(json_text(rule), _taken(roots, terms), _taken(replacements, terms))
        for rule, roots, replacements in map(json_list, json_list(steps))
    )


def _taken(places: Json, terms: Sequence[Term]) -> State:
    return tuple(terms[json_integer(place)] for place in json_list(places))


def _node(term: Term, place: Callable[[Term], int]) -> Json:
    if term.is_variable:
        given: dict[str, Attribute] = {"name": term.name, "shape": term.shape, "constant": term.constant}
        given |= {"condition": term.condition, "position": term.position}
        return ["", [], {name: _json(value) for name, value in given.items()}]
    return [term.op, [*map(place, term.args)], {name: _json(value) for name, value in term.attributes}]


def _variable(name: Attribute, shape: Attribute, constant: Attribute, condition: Attribute, position: Attribute) -> Term:
    if not isinstance(name, str) or not isinstance(shape, tuple) or not isinstance(position, int):
        raise TypeError(f"{name!r} is not a variable with a shape")
    return variable(name, shape, constant=constant is True, condition=condition is True, position=position)


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


def _attribute(value: Json) -> Attribute:
    match value:
        case str():
            return value
        case list():
            return tuple(map(_extent, value))
        case _:
            return _extent(value)


def _extent(value: Json) -> Extent:
    match value:
        case int() | float():
            return value
        case {"fraction": [int() as numerator, int() as denominator]}:
            return Fraction(numerator, denominator)
        case {"sum": list() as terms}:
            total: Extent = 0
            for coefficient, *atoms in map(json_list, terms):
                product = _extent(coefficient)
                for atom in atoms:
                    product = product * _made(atom)
                total = total + product
            return total
        case _:
            raise ValueError(f"{value} is not a number or an extent")


def _condition(value: Json) -> Cond:
    match value:
        case bool():
            return value
        case {"compare": [str() as relation, left]}:
            extent = _extent(left)
            if isinstance(extent, Size):
                return Compare(relation, extent)
        case {"all": list() as parts}:
            return AllOf(tuple(map(_condition, parts)))
        case {"any": list() as parts}:
            return AnyOf(tuple(map(_condition, parts)))
    raise ValueError(f"{value} is not a condition on sizes")


def _made(atom: Json) -> Extent:
    """Return the atom (a factor in the expression of a dynamic extent) that `_atom` wrote, as a simplified expression."""
    match atom:
        case ["Floor", numerator, denominator]:
            return floor_divide(_extent(numerator), _extent(denominator))
        case ["Inverse", of]:
            return inverse(_extent(of))
        case ["Dim", str() as tensor, int() as axis]:
            return size(Dim(tensor, axis))
        case ["Sym", str() as name, bool() as real]:
            return size(Sym(name, real))
        case ["Entry", str() as tensor, list() as indices, extent]:
            return size(Entry(tensor, tuple(map(_extent, indices)), _extent(extent)))
        case ["Indicator", condition]:
            return size(Indicator(_condition(condition)))
        case _:
            raise ValueError(f"{atom} is not an atom of an extent")
