"""Composite operators. Each is defined by a term of smaller operators. This definition is the operator's only axiom."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from superopt.algebra.index import Index, Tensor, Value, tensor
from superopt.algebra.operators import apply, interpret, operator
from superopt.algebra.terms import Attribute, Shape, Term, subterms, variable
from superopt.notation.parsing import parse


def composed(text: str, operands: Mapping[str, Tensor], **attributes: Attribute) -> Tensor:
    """Return the meaning, under the active interpretation, of the term that `text` denotes.

    `text` is the definition of a composite. The part after " for " belongs to the axiom and is not read.
    """
    shapes = tuple((name, operand.shape) for name, operand in operands.items())
    body, leaves = _body(text.partition(" for ")[0], shapes, tuple(attributes.items()))
    return _meant(body, dict(zip(leaves, operands.values(), strict=True)))


def written_out(body: Callable[..., Term], shape: Shape, **operands: Tensor) -> Tensor:
    """Return the tensor of this shape that the term `body(*variables)` means under the active interpretation.

    The variables stand for the operands. The term is built when a value is requested. All sizes must be numbers at that time.
    """

    def at(*position: Index) -> Value:
        leaves = {variable(name, operand.shape): operand for name, operand in operands.items()}
        return _meant(body(*leaves), leaves)[position]

    return tensor(shape, at)


def _meant(body: Term, leaves: Mapping[Term, Tensor]) -> Tensor:
    """Return the meaning of the term under the active interpretation, given the meaning of its variables."""
    known = dict(leaves)
    for term in subterms(body):
        if term not in known:
            known[term] = _remembered(interpret(term, [known[a] for a in term.args]))
    return known[body]


def _remembered(x: Tensor) -> Tensor:
    """Return the tensor with cached values, unless an array holds its values. In a recurrence, many terms share a value."""
    return x if x.data is not None else Tensor(x.shape, functools.cache(x.at))


@functools.lru_cache(maxsize=65536)
def _body(
    text: str, shapes: tuple[tuple[str, Shape], ...], attributes: tuple[tuple[str, Attribute], ...]
) -> tuple[Term, tuple[Term, ...]]:
    terms = {name: variable(name, shape) for name, shape in shapes}
    (body,) = parse(" ".join(text.split()), terms, numbers=dict(attributes))
    return body, tuple(terms.values())


def unfolded(term: Term) -> Term | None:
    """Return the term with its root operator expanded by the definition of a composite or a recurrence.

    Return None for any other root operator. The definition of a composite is a text or, if it depends on sizes, the function
    `body` of its spec.
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
    """Return the terms with every application of the composite `name` expanded by its definition."""
    done: dict[Term, Term] = {}
    for term in subterms(*roots):
        args = tuple(done[a] for a in term.args)
        same = term if args == term.args else apply(term.op, *args, **dict(term.attributes))
        done[term] = (unfolded(same) if term.op == name else None) or same
    return [done[r] for r in roots]
