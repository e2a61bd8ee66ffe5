"""Composite operators: defined as a term of smaller ones, which is their one axiom and all that interpretations need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from superopt.graph import Attribute, Shape, Term, subterms, variable
from superopt.index import Index, Tensor, Value, tensor
from superopt.op import apply, interpret, operator
from superopt.text import parse


def composed(text: str, operands: Mapping[str, Tensor], **attributes: Attribute) -> Tensor:
    """What the term that `text` denotes is under the interpretation in force: the body of a composite's definition.

    What follows " for " in the text is for its axiom and not read.
    """
    shapes = tuple((name, operand.shape) for name, operand in operands.items())
    body, leaves = _body(text.partition(" for ")[0], shapes, tuple(attributes.items()))
    return _meant(body, dict(zip(leaves, operands.values(), strict=True)))


def written_out(body: Callable[..., Term], shape: Shape, **operands: Tensor) -> Tensor:
    """The tensor of this shape that is the term that `body` makes of variables in the operands' places, under the
    interpretation in force. The term is made where a value is asked for, so sizes must be numbers there.
    """

    def at(*position: Index) -> Value:
        leaves = {variable(name, operand.shape): operand for name, operand in operands.items()}
        return _meant(body(*leaves), leaves)[position]

    return tensor(shape, at)


def _meant(body: Term, leaves: Mapping[Term, Tensor]) -> Tensor:
    """What the term is under the interpretation in force, given what its variables are."""
    known = dict(leaves)
    for term in subterms(body):
        if term not in known:
            known[term] = _remembered(interpret(term, [known[a] for a in term.args]))
    return known[body]


def _remembered(x: Tensor) -> Tensor:
    """The tensor, whose value at a position is worked out once where no array holds it: in a recurrence many terms share it."""
    return x if x.data is not None else Tensor(x.shape, functools.cache(x.at))


@functools.lru_cache(maxsize=65536)
def _body(
    text: str, shapes: tuple[tuple[str, Shape], ...], attributes: tuple[tuple[str, Attribute], ...]
) -> tuple[Term, tuple[Term, ...]]:
    terms = {name: variable(name, shape) for name, shape in shapes}
    (body,) = parse(" ".join(text.split()), terms, numbers=dict(attributes))
    return body, tuple(terms.values())


def unfolded(term: Term) -> Term | None:
    """The term with its root written out by the composite's definition, or a recurrence's; None where the root is neither.

    A composite's definition is its text or, where that would depend on sizes, the function `body` of its spec.
    """
    spec = operator(term.op) if term.args else None
    if spec is None or spec.definition is None:
        return None
    if spec.unrolled is not None:
        return spec.unrolled(*term.args)
    if hasattr(spec.module, "body"):
        body: Term = spec.module.body(*term.args, **dict(term.attributes))
        return body
    if not spec.composite:
        return None
    operands = dict(zip(spec.operands, term.args, strict=True))
    (body,) = parse(spec.composite.partition(" for ")[0], operands, numbers=dict(term.attributes))
    return body


def without(name: str, roots: tuple[Term, ...]) -> list[Term]:
    """The terms with every application of the composite `name` written out by its definition."""
    done: dict[Term, Term] = {}
    for term in subterms(*roots):
        args = tuple(done[a] for a in term.args)
        same = term if args == term.args else apply(term.op, *args, **dict(term.attributes))
        done[term] = (unfolded(same) if term.op == name else None) or same
    return [done[r] for r in roots]
