"""Parsing of certificates for `verify`. The text of a certificate is not trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from superopt.algebra.extent import AllOf, AnyOf, Compare, Dim, Entry, Indicator, Sym, floor_divide, inverse
from superopt.algebra.operators import apply
from superopt.algebra.terms import Atom, Term, size, subterms, variable
from superopt.errors import CertificateError, SuperoptError
from superopt.policy import VERIFY

FORM = 2
"""The version of the certificate format."""
MODES = ("precise", "relaxed", "fast")
"""The floating-point modes that a certificate may name."""
ATOMS: dict[str, Callable[..., Atom]] = {"Dim": Dim, "Sym": Sym, "Entry": Entry, "Indicator": Indicator}
RELATIONS = (">=", "==", "!=")

State = tuple[Term, ...]

Scope: TypeAlias = "tuple[tuple[str, str], ...]"
"""The path to a graph, from the top graph inwards: pairs of a node's first output and the attribute with the next graph."""


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
        scope: The path to the graph: pairs of a node's first output and the attribute that holds the next graph.
        nodes: The first output of each node.
        inputs: For each variable of the segment's terms, the name of the model's value that the variable stands for.
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
        weights: The new weights, as terms over the weights before the pass.
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
        sizes: Sizes of the dynamic dimensions at which the models were run.
        passes: The passes of the search, in order.
        stored: The names of values that the original computes from weights alone, and that the optimized model stores as
            weights.
        opset: The opset that the model was converted to before the passes, or None.
        mode: The floating-point mode.
        flags: The floating-point flags that the steps need, such as `nsz`.
        ordinary: The assumptions on input values that the steps need in this mode.
        assumptions: The assumptions on dynamic dimensions.
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
        record = json.loads(text)
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


def _certificate(record: dict[str, Any]) -> Certificate:
    mode = _text(record["arithmetic"]["mode"])
    if mode not in MODES:
        raise CertificateError(f"the certificate names the floating-point mode {mode!r}, which is none of {', '.join(MODES)}")
    opset = record.get("opset")
    return Certificate(
        original=_text(record["original"]),
        optimized=_text(record["optimized"]),
        rewritten=_boolean(record["rewritten"]),
        opset=None if opset is None else _integer(opset),
        rules={_text(name): _text(value) for name, value in record["rules"].items()},
        sizes=tuple({_text(name): _integer(n) for name, n in numbers.items()} for numbers in record["sizes"]),
        stored=tuple(map(_text, record["stored"])),
        passes=tuple(map(_pass, record["passes"])),
        mode=mode,
        flags=tuple(map(_text, record["arithmetic"]["flags"])),
        ordinary=tuple(map(_text, record["arithmetic"].get("assumptions", ()))),
        assumptions=tuple(map(_text, record.get("assumptions", ()))),
    )


def _pass(record: Any) -> Pass:
    weights = record["weights"]
    terms = _terms(weights["nodes"])
    made = {_text(name): terms[_index(place)] for name, place in weights["terms"].items()}
    return Pass(tuple(map(_rewrite, record["rewrites"])), made)


def _rewrite(record: Any) -> Rewrite:
    terms = _terms(record["nodes"])

    def state(places: Sequence[Any]) -> State:
        return tuple(terms[_index(place)] for place in places)

    steps = tuple(CertifiedStep(_text(rule), state(roots), state(new)) for rule, roots, new in record["steps"])
    return Rewrite(tuple(map(_place, record["places"])), state(record["before"]), steps, state(record["after"]))


def _place(record: Any) -> RewrittenNodes:
    scope = tuple((_text(node), _text(attribute)) for node, attribute in record["scope"])
    inputs = {_text(name): _text(value) for name, value in record["inputs"].items()}
    return RewrittenNodes(scope, tuple(map(_text, record["nodes"])), inputs, tuple(map(_text, record["outputs"])))


def _terms(nodes: Sequence[Any]) -> list[Term]:
    """Parse the terms in a certificate's table. The table has one row for each term, after the rows of the term's operands."""
    terms: list[Term] = []
    for op, operands, attributes in nodes:
        values = {_text(name): _value(value) for name, value in attributes.items()}
        args = [terms[_index(place)] for place in operands]
        terms.append(apply(op, *args, **values) if op else _variable(**values))
    return terms


def _variable(name: Any, shape: Any, constant: Any, condition: Any, position: Any) -> Term:
    if not isinstance(shape, tuple):
        raise CertificateError(f"the certificate has a variable {name!r} without a shape")
    return variable(_text(name), shape, constant=_boolean(constant), condition=_boolean(condition), position=_integer(position))


def _value(value: Any, depth: int = 0) -> Any:
    """Parse an attribute: a number, a text, an expression over sizes, a condition on sizes, or a tuple of attributes."""
    if depth > VERIFY.max_nesting_depth:
        raise CertificateError("a value of the certificate is nested too deeply")
    match value:
        case bool() | int() | float() | str():
            return value
        case {"fraction": [numerator, denominator]}:
            return Fraction(_integer(numerator), _integer(denominator))
        case {"sum": terms}:
            parts = [(coefficient, atoms) for coefficient, *atoms in terms]
            made = [
                math.prod((_atom(a, depth) for a in atoms), start=_value(coefficient, depth + 1))
                for coefficient, atoms in parts
            ]
            return sum(made)
        case {"compare": [str() as relation, left]} if relation in RELATIONS:
            return Compare(relation, _value(left, depth + 1))
        case {"all": list() as parts}:
            return AllOf(tuple(_value(part, depth + 1) for part in parts))
        case {"any": list() as parts}:
            return AnyOf(tuple(_value(part, depth + 1) for part in parts))
        case list():
            return tuple(_value(one, depth + 1) for one in value)
        case _:
            raise CertificateError(f"the certificate has {value!r} instead of the value of an attribute")


def _atom(atom: Any, depth: int) -> Any:
    match atom:
        case ["Floor", numerator, denominator]:
            return floor_divide(_value(numerator, depth + 1), _value(denominator, depth + 1))
        case ["Inverse", of]:
            return inverse(_value(of, depth + 1))
        case [str() as kind, *parts] if kind in ATOMS:
            return size(ATOMS[kind](*(_value(part, depth + 1) for part in parts)))
        case _:
            raise CertificateError(f"the certificate has {atom!r} instead of a part of an extent")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CertificateError(f"the certificate has {value!r} instead of a text")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CertificateError(f"the certificate has {value!r} instead of an integer")
    return value


def _index(value: Any) -> int:
    if _integer(value) < 0:
        raise CertificateError("the certificate has a negative position")
    return int(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CertificateError(f"the certificate has {value!r} instead of true or false")
    return value


def certificate_variables(terms: Sequence[Term]) -> list[Term]:
    """Return the distinct variables in the terms."""
    return [term for term in subterms(*terms) if term.is_variable]
