"""The rule notation: a subset of Python expressions, parsed with `ast` and never evaluated.

Parsing is the inverse of printing: parsing the output of `render_terms` gives the printed terms again.

    x @ y + relu(z)                                    Operators are written as infix symbols or as calls.
    concat(x, y, axis=-1)                              Attributes are given by name. Axes are counted from the end.
    slice(x, axis=-1, start=0, stop=y.shape[-1])       Sizes are arithmetic expressions over extents of variables.
    conv(x, w, strides=(s0, s1), ...)                  The attribute variables s0 and s1 stand for numbers.
    slice(m := x @ concat(y, z, axis=-1), ...)         A shared subterm is named at its first occurrence.
    expand(b, shape=(x @ w).shape, axes=(-1,))         A term followed by `.shape` denotes the shape of the term.
    expand(y, shape=x.shape, axes=others(x, k))        `others` denotes all axes of a term except the listed axes.

    x.shape[others(x, k)] == y.shape[others(y, k)]     This condition states that the sizes agree along these axes.

A rule is `lhs => rhs for x[2, 3], y[2] where condition, condition`. `for` lists every tensor variable with its possible ranks.
The rule is stated for all well-typed combinations of these ranks. A rule without variables has no `for` clause. If a side has
several outputs, the outputs are written as a tuple. The `for` clause can also list axis variables and tuples of attribute
variables:

    k[-1, -2]                                          The axis variable k is -1 or -2, for example in concat(x, y, axis=k).
    s[2]                                               The tuple s is (s0, s1), for example in conv(x, w, strides=s, ...).
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from superopt.algebra.operators import Operator, apply, operator, registry
from superopt.algebra.terms import (
    Attribute,
    Cond,
    Extent,
    Sym,
    Term,
    at_least,
    conjunction,
    disjunction,
    floor_divide,
    inverse,
    negation,
    same,
    size,
    variable,
)
from superopt.errors import NotationError, ShapeError
from superopt.notation.printing import render_condition, render_terms

__all__ = [
    "Equation",
    "Statement",
    "equation_at_ranks",
    "expression",
    "parse",
    "parse_condition",
    "parse_extent",
    "parse_statement",
    "real_names",
    "render_condition",
    "render_terms",
]

INFIX: dict[type[ast.operator], str] = {ast.MatMult: "matmul", ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}


@dataclass
class Scope:
    """The names in scope while an expression is parsed.

    Attributes:
        variables: The tensor variables.
        named: The subterms that `:=` has named so far.
        reals: The names of the real attribute variables.
        numbers: Known values of attribute variables and axis variables.
    """

    variables: Mapping[str, Term]
    named: dict[str, Term] = field(default_factory=dict)
    reals: Collection[str] = ()
    numbers: Mapping[str, Attribute] = field(default_factory=dict)


def parse(
    text: str,
    variables: Mapping[str, Term],
    reals: Collection[str] | None = None,
    numbers: Mapping[str, Attribute] | None = None,
) -> tuple[Term, ...]:
    """Return the terms that `text` denotes, one for each output.

    Args:
        text: One or more terms in the rule notation.
        variables: The tensor variables, by name.
        reals: The names of the real attribute variables. The default is `real_names(text)`.
        numbers: Values for attribute variables and axis variables. An attribute variable without a value remains a symbol.

    Raises:
        NotationError: The text is not valid notation.
        ShapeError: A term is not well typed.
        SpecError: No file in specs/ defines one of the operators.
    """
    scope = Scope(variables, reals=real_names(text) if reals is None else reals, numbers=numbers or {})
    tree = expression(text)
    nodes = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return tuple(_term(node, scope) for node in nodes)


@functools.lru_cache(maxsize=4096)
def real_names(*texts: str) -> frozenset[str]:
    """Return the names of the real attribute variables in the texts.

    A name stands for a real number if it occurs in a real-valued attribute of an operator, such as `factor=a`, and in no
    integer attribute.
    """
    reals: set[str] = set()
    integers: set[str] = set()
    tuples: set[str] = set()
    for call in (node for text in texts for node in ast.walk(expression(text)) if isinstance(node, ast.Call)):
        spec = registry().get(ast.unparse(call.func))
        kinds = {p.name: p.kind for p in spec.parameters} if spec else {}
        for keyword in call.keywords:
            names = set(_names_outside_calls(keyword.value))
            match kinds.get(keyword.arg or ""):
                case "real":
                    reals |= names
                case "extents" if isinstance(keyword.value, ast.Name):
                    tuples |= names
                case _:
                    integers |= names
    return frozenset(name for name in reals - integers if name.rstrip("0123456789") not in tuples)


def _names_outside_calls(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression, except names inside calls."""
    if isinstance(node, ast.Name):
        yield node.id
    elif not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from _names_outside_calls(child)


@functools.lru_cache(maxsize=4096)
def expression(text: str) -> ast.expr:
    """Return the Python syntax tree of an expression in the rule notation.

    Raises:
        NotationError: The text is not a Python expression.
    """
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise NotationError(f"not an expression: {text.strip()!r} ({error})") from None


def _fail(node: ast.AST, why: str) -> NotationError:
    return NotationError(f"{why}: {ast.unparse(node)}")


def _term(node: ast.expr, scope: Scope) -> Term:
    match node:
        case ast.Name(name):
            found = scope.named.get(name) or scope.variables.get(name)
            if found is None:
                raise _fail(node, "the tensor is not declared")
            return found
        case ast.NamedExpr(ast.Name(name), value):
            if name in scope.named or name in scope.variables:
                raise _fail(node, "the name is already in use")
            scope.named[name] = _term(value, scope)
            return scope.named[name]
        case ast.BinOp(left, symbol, right) if type(symbol) in INFIX:
            return apply(INFIX[type(symbol)], _term(left, scope), _term(right, scope))
        case ast.Call(ast.Name(name), args, keywords):
            spec = operator(name)
            operands = [_term(a, scope) for a in args]
            attributes = {str(k.arg): _attribute(k, spec, scope) for k in keywords}
            return apply(name, *operands, **attributes)
        case _:
            raise _fail(node, "not a term")


def _attribute(keyword: ast.keyword, spec: Operator, scope: Scope) -> Attribute:
    for parameter in spec.parameters:
        if parameter.name == keyword.arg:
            if parameter.kind in ("axes", "extents"):
                return _extents(keyword.value, scope)
            return _extent(keyword.value, scope)
    raise _fail(keyword.value, f"{spec.name} has no attribute {keyword.arg}")


def _extents(node: ast.expr, scope: Scope) -> tuple[Extent, ...]:
    match node:
        case ast.Tuple(elements):
            return tuple(_extent(e, scope) for e in elements)
        case ast.Attribute(value, "shape"):
            return _term(value, scope).shape
        case ast.Name(name) if isinstance(scope.numbers.get(name), tuple):
            return cast(tuple[Extent, ...], scope.numbers[name])
        case ast.Call(ast.Name("others"), [value, *axes]):
            rank = _term(value, scope).rank
            named = [axis for a in axes for axis in _axes(a, rank, scope)]
            return tuple(a for a in range(-rank, 0) if a not in named)
        case ast.Subscript(ast.Attribute(value, "shape"), ast.Call() as axes):
            shape = _term(value, scope).shape
            return tuple(shape[axis] for axis in _extents(axes, scope) if isinstance(axis, int))
        case ast.Name(name) if name in scope.variables:
            return tuple(size(Sym(f"{name}{position}")) for position in range(scope.variables[name].rank))
        case _:
            raise _fail(node, "not a tuple of sizes")


def _axes(node: ast.expr, rank: int, scope: Scope) -> tuple[Extent, ...]:
    listed = isinstance(node, ast.Name) and isinstance(scope.numbers.get(node.id), tuple)
    return _extents(node, scope) if listed else (_axis(node, rank, scope),)


def _axis(node: ast.expr, rank: int, scope: Scope) -> int:
    axis = _extent(node, scope)
    if not isinstance(axis, int) or not -rank <= axis < 0:
        raise ShapeError(f"no such axis: {ast.unparse(node)}")
    return axis


def _extent(node: ast.expr, scope: Scope) -> Extent:
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(name) if name in scope.numbers:
            known = scope.numbers[name]
            if isinstance(known, tuple | str):
                raise _fail(node, "a tuple where a number is expected")
            return known
        case ast.Name(name):
            if name in scope.variables or name in scope.named:
                raise _fail(node, "a tensor where a number is expected")
            return size(Sym(name, name in scope.reals))
        case ast.Subscript(ast.Attribute(value, "shape"), axis):
            shape = _term(value, scope).shape
            position = _extent(axis, scope)
            if not isinstance(position, int) or not -len(shape) <= position < len(shape):
                raise ShapeError(f"no such axis: {ast.unparse(node)}")
            return shape[position]
        case ast.UnaryOp(ast.USub(), operand):
            return -_extent(operand, scope)
        case ast.BinOp(left, symbol, right):
            return _arithmetic(node, symbol, _extent(left, scope), _extent(right, scope))
        case _:
            raise _fail(node, "not a size")


def _arithmetic(node: ast.expr, symbol: ast.operator, a: Extent, b: Extent) -> Extent:
    match symbol:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.FloorDiv():
            return floor_divide(a, b)
        case ast.Mod():
            return a - b * floor_divide(a, b)
        case ast.Div():
            return a * inverse(b)
        case _:
            raise _fail(node, "not arithmetic of sizes")


def parse_condition(
    text: str, variables: Mapping[str, Term], reals: Collection[str], numbers: Mapping[str, Attribute] | None = None
) -> Cond:
    """Parse `text` as a condition on sizes and attribute variables, and return the condition.

    `variables`, `reals` and `numbers` are as in `parse`.

    Raises:
        NotationError: The text is not a condition.
    """
    return _condition(expression(text), Scope(variables, reals=reals, numbers=numbers or {}))


def parse_extent(text: str, variables: Mapping[str, Term], reals: Collection[str]) -> Extent:
    """Return the size or number that `text` denotes. Names in `reals` are real attribute variables.

    Raises:
        NotationError: The text is not a size.
    """
    return _extent(expression(text), Scope(variables, reals=reals))


def _condition(node: ast.expr, scope: Scope) -> Cond:
    match node:
        case ast.BoolOp(ast.And(), values):
            return conjunction(*(_condition(v, scope) for v in values))
        case ast.BoolOp(ast.Or(), values):
            return disjunction(*(_condition(v, scope) for v in values))
        case ast.UnaryOp(ast.Not(), operand):
            return negation(_condition(operand, scope))
        case ast.Compare(ast.Subscript(_, ast.Call()) as left, [ast.Eq()], [right]):
            one, other = _extents(left, scope), _extents(right, scope)
            return len(one) == len(other) and conjunction(*map(same, one, other))
        case ast.Compare(left, [symbol], [right]):
            a, b = _extent(left, scope), _extent(right, scope)
            match symbol:
                case ast.Eq():
                    return same(a, b)
                case ast.NotEq():
                    return negation(same(a, b))
                case ast.GtE():
                    return at_least(a, b)
                case ast.LtE():
                    return at_least(b, a)
                case ast.Gt() if not scope.reals:
                    return at_least(a, b + 1)
                case ast.Lt() if not scope.reals:
                    return at_least(b, a + 1)
    raise _fail(node, "not a condition")


# ---------------------------------------------------------------- rules


@dataclass(frozen=True)
class Statement:
    """A rule or an axiom, split into its parts. Both sides and the conditions are texts that are not parsed yet.

    Attributes:
        arrow: `==` if both sides are defined on the same inputs, or `=>` if the right side may be defined on more inputs.
        ranks: Pairs (name, ranks), one for each name in the `for` clause. For an axis variable, the second entry contains the
            possible axes (negative integers).
        where: The conditions.
    """

    name: str
    left: str
    arrow: str
    right: str
    ranks: tuple[tuple[str, tuple[int, ...]], ...]
    where: tuple[str, ...]

    def __str__(self) -> str:
        ranks = ", ".join(f"{v}[{', '.join(map(str, r))}]" for v, r in self.ranks)
        where = f" where {', '.join(self.where)}" if self.where else ""
        return f"{self.left} {self.arrow} {self.right}{f' for {ranks}' if ranks else ''}{where}"

    def rank_choices(self) -> Iterator[dict[str, int]]:
        """Yield every combination of ranks and axes that the `for` clause allows, including ill-typed combinations."""
        names = [name for name, _ in self.ranks]
        for choice in itertools.product(*(ranks for _, ranks in self.ranks)):
            yield dict(zip(names, choice, strict=True))


@dataclass(frozen=True)
class Equation:
    """A rule or an axiom at fixed ranks of its variables: the typed terms of both sides, and the conditions."""

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    where: Cond
    ranks: tuple[tuple[str, int], ...]


_LINE = re.compile(r"^\s*(?:(?P<name>[a-z0-9][a-z0-9-]*)\s*:\s)?(?P<rest>.*)$", re.DOTALL)


def parse_statement(line: str) -> Statement:
    """Split a line `name: left => right for ranks where conditions` into its parts. The arrow is `=>` or `==`.

    Raises:
        NotationError: The line does not have this form.
    """
    matched = _LINE.match(line)
    assert matched is not None
    rest = matched["rest"]
    rest, _, where = rest.partition(" where ")
    rest, _, ranks = rest.partition(" for ")
    parts = re.split(r"\s(=>|==)\s", rest)
    if len(parts) != 3:
        raise NotationError(f"a rule must have the form 'name: left => right for x[2] where ...': {line.strip()}")
    left, arrow, right = (p.strip() for p in parts)
    return Statement(matched["name"] or "", left, arrow, right, _ranks(ranks.strip()), _conditions(where.strip()))


@functools.lru_cache(maxsize=4096)
def _ranks(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Parse a `for` clause. Return the names in the clause, each paired with its possible ranks."""
    return tuple(map(_ranked, _separated(text)))


@functools.lru_cache(maxsize=4096)
def _conditions(text: str) -> tuple[str, ...]:
    """Return the conditions in a `where` clause."""
    return tuple(map(ast.unparse, _separated(text)))


def _separated(text: str) -> list[ast.expr]:
    """Return the expressions in `text`, which are separated by commas."""
    return cast(ast.Tuple, expression(f"({text},)")).elts if text else []


def _ranked(node: ast.expr) -> tuple[str, tuple[int, ...]]:
    match node:
        case ast.Subscript(ast.Name(name), ast.Tuple(elements)):
            return name, tuple(map(_rank, elements))
        case ast.Subscript(ast.Name(name), rank):
            return name, (_rank(rank),)
    raise _fail(node, "not a variable with its ranks")


def _rank(node: ast.expr) -> int:
    match node:
        case ast.Constant(int() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
            return -value
    raise _fail(node, "not a rank or an axis")


def equation_at_ranks(statement: Statement, ranks: Mapping[str, int]) -> Equation:
    """Return the statement, parsed at the given ranks of its variables.

    `ranks` maps each tensor variable to its rank, each tuple of attribute variables to its length, and each axis variable to
    its axis, a negative integer.

    Raises:
        NotationError: The statement is not valid notation.
        ShapeError: The statement is not well typed at these ranks and axes.
    """
    declared = {name: variable(name, rank) for name, rank in ranks.items() if rank >= 0}
    axes = {name: axis for name, axis in ranks.items() if axis < 0}
    reals = real_names(statement.left, statement.right)
    left, right = parse(statement.left, declared, reals, axes), parse(statement.right, declared, reals, axes)
    if len(left) != len(right):
        raise NotationError(
            f"{statement.name}: the left side has {len(left)} outputs, but the right side has {len(right)} outputs"
        )
    if any(a.rank != b.rank for a, b in zip(left, right, strict=True)):
        raise ShapeError(f"{statement.name}: the two sides have different ranks")
    where = conjunction(*(parse_condition(c, declared, reals, axes) for c in statement.where))
    if where is False:
        raise ShapeError(f"{statement.name}: the conditions are false at the given ranks and axes")
    return Equation(left, right, where, tuple(ranks.items()))
