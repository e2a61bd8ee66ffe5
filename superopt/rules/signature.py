"""The outline of a statement: the operators and the nesting of its sides, without ranks or attributes.

Parsing a statement at all of its ranks takes milliseconds. Computing its outline takes microseconds. Outlines therefore decide
which statements are parsed: a rule whose outline does not match a term cannot match the term.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass

from superopt.algebra.operators import registry
from superopt.errors import NotationError
from superopt.notation.parsing import INFIX, Statement, expression


@dataclass(frozen=True)
class Outline:
    """A term without attributes: an operator's name and operands. The outline of a variable has an empty `op`."""

    op: str
    args: tuple[Outline, ...] = ()

    @functools.cached_property
    def operators(self) -> frozenset[str]:
        """The names of the operators in the outline."""
        here = frozenset({self.op}) if self.op else frozenset[str]()
        return here.union(*(a.operators for a in self.args))


ANY = Outline("")


@functools.lru_cache(maxsize=1 << 16)
def outlines(text: str) -> tuple[Outline, ...]:
    """Return the outline (operators and nesting, without attributes) of each term in a text of the rule notation.

    Nested sums and nested products are flattened.

    Raises:
        NotationError: The text is not valid notation.
    """
    tree = expression(text)
    named = {n.target.id: n.value for n in ast.walk(tree) if isinstance(n, ast.NamedExpr)} if ":=" in text else {}
    nodes = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return tuple(_outline(node, named) for node in nodes)


def statement_signature_operators(statement: Statement) -> tuple[str, ...]:
    """Return the names of the operators in the statement's terms, sorted.

    Raises:
        NotationError: The statement is not valid notation.
    """
    return tuple(sorted(frozenset().union(*(o.operators for o in (*outlines(statement.left), *outlines(statement.right))))))


def _outline(node: ast.expr, named: Mapping[str, ast.expr]) -> Outline:
    match node:
        case ast.Name(name):
            return _outline(named[name], named) if name in named else ANY
        case ast.NamedExpr(_, value):
            return _outline(value, named)
        case ast.BinOp(left, symbol, right) if type(symbol) in INFIX:
            return _applied(INFIX[type(symbol)], (left, right), named)
        case ast.Call(ast.Name(name), args) if name in registry():
            return _applied(name, tuple(args), named)
    raise NotationError(f"{ast.unparse(node)} is not a term")


def _applied(name: str, nodes: tuple[ast.expr, ...], named: Mapping[str, ast.expr]) -> Outline:
    operands = tuple(_outline(node, named) for node in nodes)
    if registry()[name].commutative:
        operands = tuple(inner for o in operands for inner in (o.args if o.op == name else (o,)))
    return Outline(name, operands)
