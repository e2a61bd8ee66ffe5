"""Parsing of certificates for `verify`. The text of a certificate is not trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np

from superopt.algebra.extent import AllOf, AnyOf, Compare, Cond, Dim, Entry, Extent, Indicator, Size, Sym, floor_divide, inverse
from superopt.algebra.operators import apply
from superopt.algebra.terms import Attribute, Term, size, subterms, variable
from superopt.errors import CertificateError, SuperoptError
from superopt.policy import VERIFY
from superopt.protobuf.specialize import Specialization

FORM = 2
"""The version of the certificate format."""
MODES = ("precise", "relaxed", "fast")
"""The floating-point modes that a certificate may name."""
RELATIONS = (">=", "==", "!=")

State = tuple[Term, ...]

Scope: TypeAlias = "tuple[tuple[str, str], ...]"
"""The path from the top graph to a nested graph.

Each element of the path is a pair: the first output of a node, and the name of the node's attribute that holds the next graph.
"""


@dataclass(frozen=True)
class CertifiedStep:
    """A rewrite step in a certificate: a rule, the replaced terms (`roots`), and the new terms (`replacements`)."""

    rule: str
    roots: State
    replacements: State


@dataclass(frozen=True)
class RewrittenNodes:
    """A segment: a group of nodes in one graph that the optimizer rewrote together.

    Attributes:
        scope: The path from the top graph to the graph. Each element of the path is a pair: the first output of a node, and the
            name of an attribute of this node. The attribute holds the next graph.
        nodes: The first output of each node.
        inputs: A mapping from variables of the segment's terms to names of values. A variable stands for the value with this
            name.
        outputs: The names of the values that the terms compute.
    """

    scope: Scope
    nodes: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Rewrite:
    """The rewrite of a group of nodes, or of several groups of nodes that compute equal terms.

    Attributes:
        places: The groups of nodes in the model.
        before: The terms that each group computes before the rewrite steps.
        steps: The rewrite steps.
        after: The terms that each group computes after the rewrite steps.
    """

    places: tuple[RewrittenNodes, ...]
    before: State
    steps: tuple[CertifiedStep, ...]
    after: State


@dataclass(frozen=True)
class Pass:
    """One pass of the search over the model.

    Attributes:
        rewrites: The rewrites, which are independent of each other.
        weights: The new weights, as terms over the weights that existed before the pass.
    """

    rewrites: tuple[Rewrite, ...]
    weights: Mapping[str, Term]


@dataclass(frozen=True)
class Certificate:
    """The record of the changes that lead from one model to another.

    Attributes:
        original: The content digest of the original model.
        optimized: The content digest of the optimized model.
        rewritten: Whether the models differ.
        rules: The digest of every stored rule that a step names.
        sizes: The sizes of dynamic dimensions at which the models were run.
        passes: The passes of the search, in order.
        stored: Names of values. The original computes these values from weights alone, and the optimized model stores the
            values as weights.
        opset: The opset to which the model was converted before the passes, or None if the opset was kept.
        mode: The floating-point mode.
        flags: The floating-point flags that the steps need, such as `nsz`.
        ordinary: The assumptions about input values on which the steps rely in this mode.
        assumptions: The assumptions on dynamic dimensions.
        specialization: The fixed inputs and sizes, and the branches of the original that are always taken.
        kernels: The description of the library of kernels: the SHA-256 of the `library` and of its `source`, the `compiler` and
            the `flags`. Without a library, the mapping is empty.
    """

    original: str
    optimized: str
    rewritten: bool
    rules: Mapping[str, str]
    sizes: tuple[Mapping[str, int], ...]
    passes: tuple[Pass, ...]
    stored: tuple[str, ...] = ()
    opset: int | None = None
    mode: str = "relaxed"
    flags: tuple[str, ...] = ()
    ordinary: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    specialization: Specialization = field(default_factory=Specialization)
    kernels: Mapping[str, str] = field(default_factory=dict)


def read_certificate_text(path: Path) -> str:
    """Read the text of a certificate from a file.

    Raises:
        CertificateError: The file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CertificateError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise CertificateError(f"{path}: not a certificate ({error.reason})") from error


def parse_certificate(text: str) -> Certificate:
    """Parse a certificate, ignoring unknown fields.

    Raises:
        CertificateError: The text cannot be parsed.
    """
    try:
        record: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"the certificate is not JSON ({type(error).__name__})") from None
    if not isinstance(record, dict) or record.get("form") != FORM or isinstance(record.get("form"), bool):
        raise CertificateError(f"the certificate is not of format version {FORM}; optimize the model again")
    try:
        return _certificate(record)
    except CertificateError:
        raise
    except (
        SuperoptError,
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise CertificateError(f"the certificate cannot be read ({type(error).__name__}: {error})") from error


def _certificate(record: Mapping[str, object]) -> Certificate:
    arithmetic = _object(record["arithmetic"])
    mode = _text(arithmetic["mode"])
    if mode not in MODES:
        raise CertificateError(f"the certificate names an unknown mode {mode!r}: expected one of {', '.join(MODES)}")
    opset = record.get("opset")
    return Certificate(
        original=_text(record["original"]),
        optimized=_text(record["optimized"]),
        rewritten=_boolean(record["rewritten"]),
        opset=None if opset is None else _integer(opset, least=1),
        rules=_texts_by_name(record["rules"]),
        sizes=tuple(map(_sizes, _list(record["sizes"]))),
        stored=_texts(record["stored"]),
        passes=tuple(map(_pass, _list(record["passes"]))),
        mode=mode,
        flags=_texts(arithmetic["flags"]),
        ordinary=_texts(arithmetic.get("assumptions", [])),
        assumptions=_texts(record.get("assumptions", [])),
        specialization=_specialization(_object(record["specialization"])) if "specialization" in record else Specialization(),
        kernels=_texts_by_name(record.get("kernels", {})),
    )


def _specialization(record: Mapping[str, object]) -> Specialization:
    values = {name: _object(value) for name, value in _object(record["values"]).items()}
    arrays = {
        name: np.array(_list(value["elements"]), _text(value["type"])).reshape(
            [_integer(extent, least=0) for extent in _list(value["shape"])]
        )
        for name, value in values.items()
    }
    branches = [[None if taken is None else _boolean(taken) for taken in _list(row)] for row in _list(record["branches"])]
    return Specialization(arrays, _sizes(record["sizes"]), branches)


def _pass(value: object) -> Pass:
    record = _object(value)
    weights = _object(record["weights"])
    terms = _terms(weights["nodes"])
    made = {name: terms[_integer(place, least=0)] for name, place in _object(weights["terms"]).items()}
    return Pass(tuple(map(_rewrite, _list(record["rewrites"]))), made)


def _rewrite(value: object) -> Rewrite:
    record = _object(value)
    terms = _terms(record["nodes"])

    def state(places: object) -> State:
        return tuple(terms[_integer(place, least=0)] for place in _list(places))

    rows = map(_list, _list(record["steps"]))
    steps = tuple(CertifiedStep(_text(rule), state(roots), state(new)) for rule, roots, new in rows)
    return Rewrite(tuple(map(_place, _list(record["places"]))), state(record["before"]), steps, state(record["after"]))


def _place(value: object) -> RewrittenNodes:
    record = _object(value)
    scope = tuple((_text(node), _text(attribute)) for node, attribute in map(_list, _list(record["scope"])))
    return RewrittenNodes(scope, _texts(record["nodes"]), _texts_by_name(record["inputs"]), _texts(record["outputs"]))


def _terms(nodes: object) -> list[Term]:
    """Parse the terms in a certificate's table.

    The table has one row for each term. The rows of a term's operands come before the row of the term.
    """
    terms: list[Term] = []
    for op, operands, attributes in map(_list, _list(nodes)):
        values = {name: _attribute(value) for name, value in _object(attributes).items()}
        args = [terms[_integer(place, least=0)] for place in _list(operands)]
        terms.append(apply(_text(op), *args, **values) if op else _variable(**values))
    return terms


def _variable(name: Attribute, shape: Attribute, constant: Attribute, condition: Attribute, position: Attribute) -> Term:
    if not isinstance(shape, tuple):
        raise CertificateError(f"the certificate has a variable {name!r} without a shape")
    return variable(_text(name), shape, constant=_boolean(constant), condition=_boolean(condition), position=_integer(position))


def _attribute(value: object) -> Attribute:
    """Parse an attribute: a text, a number, an expression over sizes, or a list of numbers and expressions."""
    match value:
        case str():
            return value
        case list():
            return tuple(_extent(one, 1) for one in value)
        case _:
            return _extent(value, 0)


def _extent(value: object, depth: int) -> Extent:
    """Parse a number or an expression over sizes. `depth` is the nesting depth of the value in the certificate."""
    _require_shallow(depth)
    match value:
        case int() | float():
            return value
        case {"fraction": [numerator, denominator]}:
            return Fraction(_integer(numerator), _integer(denominator))
        case {"sum": list() as terms}:
            total: Extent = 0
            for coefficient, *factors in map(_list, terms):
                product = _extent(coefficient, depth + 1)
                for factor in factors:
                    product = product * _factor(factor, depth + 1)
                total = total + product
            return total
        case _:
            raise CertificateError(f"the certificate has {value!r} where the value of an attribute is expected")


def _factor(value: object, depth: int) -> Extent:
    """Parse a factor in an expression over sizes. `depth` is the nesting depth of the factor's parts."""
    match value:
        case ["Floor", numerator, denominator]:
            return floor_divide(_extent(numerator, depth), _extent(denominator, depth))
        case ["Inverse", of]:
            return inverse(_extent(of, depth))
        case ["Dim", tensor, axis]:
            return size(Dim(_text(tensor), _integer(axis)))
        case ["Sym", name, real]:
            return size(Sym(_text(name), _boolean(real)))
        case ["Entry", tensor, indices, extent]:
            return size(Entry(_text(tensor), tuple(_extent(n, depth + 1) for n in _list(indices)), _extent(extent, depth)))
        case ["Indicator", condition]:
            return size(Indicator(_condition(condition, depth)))
        case _:
            raise CertificateError(f"the certificate has {value!r} where a part of an extent is expected")


def _condition(value: object, depth: int) -> Cond:
    """Parse a condition on sizes. `depth` is the nesting depth of the condition in the certificate."""
    _require_shallow(depth)
    match value:
        case bool():
            return value
        case {"compare": [str() as relation, side]} if relation in RELATIONS:
            left = _extent(side, depth + 1)
            if isinstance(left, Size):
                return Compare(relation, left)
        case {"all": list() as parts}:
            return AllOf(tuple(_condition(part, depth + 1) for part in parts))
        case {"any": list() as parts}:
            return AnyOf(tuple(_condition(part, depth + 1) for part in parts))
    raise CertificateError(f"the certificate has {value!r} where a condition on sizes is expected")


def _require_shallow(depth: int) -> None:
    if depth > VERIFY.max_nesting_depth:
        raise CertificateError("a value of the certificate is nested too deeply")


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise CertificateError(f"the certificate has {value!r} where an object is expected")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise CertificateError(f"the certificate has {value!r} where a list is expected")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _texts_by_name(value: object) -> dict[str, str]:
    return {name: _text(text) for name, text in _object(value).items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CertificateError(f"the certificate has {value!r} where a text is expected")
    return value


def _integer(value: object, *, least: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CertificateError(f"the certificate has {value!r} where an integer is expected")
    if least is not None and value < least:
        raise CertificateError(f"the certificate has {value} where an integer of at least {least} is expected")
    return value


def _sizes(value: object) -> dict[str, int]:
    return {name: _integer(size, least=0) for name, size in _object(value).items()}


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise CertificateError(f"the certificate has {value!r} where true or false is expected")
    return value


def certificate_variables(terms: Sequence[Term]) -> list[Term]:
    """Return the distinct variables in the terms."""
    return [term for term in subterms(*terms) if term.is_variable]
