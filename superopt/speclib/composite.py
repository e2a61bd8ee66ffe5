"""Composite operators: operators that are defined by a term of simpler operators.

The definition is the only axiom of a composite operator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from superopt.algebra.index import Index, Tensor, Value, tensor
from superopt.algebra.operators import apply, interpret, operator
from superopt.algebra.terms import Attribute, Shape, Term, subterms, variable
from superopt.notation.parsing import parse


def composed(text: str, operands: Mapping[str, Tensor], **attributes: Attribute) -> Tensor:
    """Return the value of a composite operator under the active interpretation of index notation.

    Args:
        text: The operator's definition, a term in the rule notation. A clause after " for " is ignored.
        operands: The values of the term's variables, by name.
        attributes: The values of the term's attribute variables, by name.
    """
    shapes = tuple((name, operand.shape) for name, operand in operands.items())
    body, leaves = _body(text.partition(" for ")[0], shapes, tuple(attributes.items()))
    return _meant(body, dict(zip(leaves, operands.values(), strict=True)))


def written_out(body: Callable[..., Term], shape: Shape, **operands: Tensor) -> Tensor:
    """Return the value of the term `body(*variables)` under the active interpretation of index notation.

    There is one variable for each operand. `shape` is the shape of the term. The term is built only when an element is
    requested. All sizes must be numbers at that time.
    """

    def at(*position: Index) -> Value:
        leaves = {variable(name, operand.shape): operand for name, operand in operands.items()}
        return _meant(body(*leaves), leaves)[position]

    return tensor(shape, at)


def _meant(body: Term, leaves: Mapping[Term, Tensor]) -> Tensor:
    """Return the value of the term under the active interpretation of index notation, given the values of its variables."""
    known = dict(leaves)
    for term in subterms(body):
        if term not in known:
            known[term] = _remembered(interpret(term, [known[a] for a in term.args]))
    return known[body]


def _remembered(x: Tensor) -> Tensor:
    """Return the tensor with a cache of its elements. A tensor whose elements are in an array is returned unchanged.

    The cache saves time in a recurrence, where many terms read the same element.
    """
    return x if x.data is not None else Tensor(x.shape, functools.cache(x.at))


@functools.lru_cache(maxsize=65536)
def _body(
    text: str, shapes: tuple[tuple[str, Shape], ...], attributes: tuple[tuple[str, Attribute], ...]
) -> tuple[Term, tuple[Term, ...]]:
    terms = {name: variable(name, shape) for name, shape in shapes}
    (body,) = parse(" ".join(text.split()), terms, numbers=dict(attributes))
    return body, tuple(terms.values())


def unfolded(term: Term) -> Term | None:
    """Return the definition of the term's root operator, applied to the operands.

    The operator must be a composite (defined by a term of simpler operators) or a recurrence (defined by repeated steps, such
    as LSTM). Otherwise, the result is None. The definition of a composite is the constant `COMPOSITE` in the operator's file,
    or the function `body` if the definition depends on sizes.
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
    """Return the terms with every application of the composite `name` replaced by its definition."""
    done: dict[Term, Term] = {}
    for term in subterms(*roots):
        args = tuple(done[a] for a in term.args)
        same = term if args == term.args else apply(term.op, *args, **dict(term.attributes))
        done[term] = (unfolded(same) if term.op == name else None) or same
    return [done[r] for r in roots]
