"""What a search found as JSON and back, so that it can be kept: searching the same state again gives the same."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from superopt.graph import Term, subterms, variable
from superopt.op import apply
from superopt.rewrite.apply import State, Step
from superopt.rewrite.search import Found

Json: TypeAlias = "Any"


@functools.cache
def code_version() -> str:
    """A digest of the code that searches: what it found is only as good as it is."""
    digest = hashlib.blake2b(digest_size=8)
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *here.parent.glob("partial/*.py"), here.parent / "mutation.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def nodes_of(terms: Sequence[Term]) -> tuple[list[Json], Callable[[Term], int]]:
    """Every term in these, operands first, as an operator, the places of its operands and its attributes; and its place.

    Raises:
        ValueError: an attribute is no number, text or tuple of these: an extent is open.
    """
    order = subterms(*terms)
    place = {term: position for position, term in enumerate(order)}
    return [_node(term, place.__getitem__) for term in order], place.__getitem__


def recorded(found: Found) -> Json:
    """What was found, as JSON values.

    Raises:
        ValueError: an extent is open.
    """
    terms = [*found.outputs, *(term for step in found.steps for term in (*step.roots, *step.replacements))]
    nodes, place = nodes_of(terms)
    steps = [[step.rule, [*map(place, step.roots)], [*map(place, step.replacements)]] for step in found.steps]
    numbers = [found.before, found.after, found.expanded, found.stopped]
    return {"nodes": nodes, "outputs": [*map(place, found.outputs)], "steps": steps, "numbers": numbers}


def terms_of(nodes: Sequence[Json]) -> list[Term]:
    """The terms that `nodes_of` wrote down, each in its place."""
    terms: list[Term] = []
    for op, operands, attributes in nodes:
        values = {name: _value(value) for name, value in attributes.items()}
        terms.append(_variable(values) if op == "" else apply(op, *(terms[n] for n in operands), **values))
    return terms


def restored(record: Json) -> Found:
    """What was recorded."""
    terms = terms_of(record["nodes"])

    def taken(places: Sequence[int]) -> State:
        return tuple(terms[n] for n in places)

    steps = tuple(Step(rule, taken(roots), taken(replacements)) for rule, roots, replacements in record["steps"])
    before, after, expanded, stopped = record["numbers"]
    return Found(taken(record["outputs"]), steps, before, after, expanded, stopped)


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
        case _:
            raise ValueError(f"an open extent: {value}")


def _value(value: Json) -> Any:
    match value:
        case {"fraction": [numerator, denominator]}:
            return Fraction(numerator, denominator)
        case list():
            return tuple(map(_value, value))
        case _:
            return value
