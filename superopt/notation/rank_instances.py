"""The equations of a rule or an axiom, one for each well-typed combination of its variables' ranks and axes.

A statement with many variables has many combinations of ranks. In nearly all combinations, some small subterm is ill typed.
Small subterms are therefore type-checked first. The result of each check is cached by the ranks of the subterm's variables.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from superopt.algebra.terms import variable
from superopt.errors import NotationError, ShapeError
from superopt.notation.parsing import Equation, Statement, equation_at_ranks, expression, parse, real_names
from superopt.policy import RULE


def equations(statement: Statement) -> list[Equation]:
    """Parse the statement at each combination of its variables' ranks, and return the well-typed equations.

    The equations are in the order in which `Statement.rank_choices` yields the combinations.

    Raises:
        NotationError: The statement is not valid notation, or it is not well typed at any combination of its variables' ranks.
    """
    many = math.prod(len(ranks) for _, ranks in statement.ranks) > RULE.max_plain_combinations
    pieces = _Pieces(statement) if many else None
    found: list[Equation] = []
    why: ShapeError | None = None
    for ranks in statement.rank_choices():
        try:
            if pieces is not None:
                pieces.require(ranks)
            found.append(equation_at_ranks(statement, ranks))
        except ShapeError as error:
            why = error
    if not found:
        raise NotationError(f"{statement.name}: the rule is not well typed at any of its ranks ({why})")
    return found


class _Pieces:
    """The operator applications in a statement, with a cache that records at which ranks each application is well typed."""

    def __init__(self, statement: Statement) -> None:
        self.reals = real_names(statement.left, statement.right)
        declared = frozenset(name for name, _ in statement.ranks)
        sides = (statement.left, statement.right)
        self.pieces = [piece for side in sides for piece in _applications(expression(side), declared)]
        self.known: list[dict[tuple[int, ...], ShapeError | None]] = [{} for _ in self.pieces]

    def require(self, ranks: dict[str, int]) -> None:
        """Check that all operator applications are well typed at these ranks.

        Raises:
            ShapeError: An application is ill typed.
        """
        for (text, names), known in zip(self.pieces, self.known, strict=True):
            here = tuple(ranks[name] for name in names)
            if here not in known:
                known[here] = self._objection(text, dict(zip(names, here, strict=True)))
            error = known[here]
            if error is not None:
                raise error

    def _objection(self, text: str, ranks: dict[str, int]) -> ShapeError | None:
        declared = {name: variable(name, rank) for name, rank in ranks.items() if rank >= 0}
        try:
            parse(text, declared, self.reals, {name: axis for name, axis in ranks.items() if axis < 0})
        except ShapeError as error:
            return error
        return None


def _applications(tree: ast.expr, declared: frozenset[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a pair for each operator application in the tree: its text, and the declared names in the text.

    Operands come before the application that uses them. An application that contains a name defined by `:=` is left out,
    because the text of the application cannot be parsed by itself.
    """
    bound = {n.target.id for n in ast.walk(tree) if isinstance(n, ast.NamedExpr)}
    for node in _terms(tree):
        inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        names = tuple(sorted(inside & declared))
        if names and not inside & bound:
            yield ast.unparse(node), names


def _terms(tree: ast.expr) -> Iterator[ast.expr]:
    """Yield the syntax tree of each operator application. Applications inside attributes are left out.

    Operands come before the application that uses them.
    """
    match tree:
        case ast.Tuple(parts) | ast.Call(_, parts):
            pass
        case ast.BinOp(left, _, right):
            parts = [left, right]
        case ast.NamedExpr(_, value):
            parts = [value]
        case _:
            return
    for part in parts:
        yield from _terms(part)
    if isinstance(tree, ast.Call | ast.BinOp):
        yield tree
