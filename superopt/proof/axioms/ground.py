"""Ground instances of axioms, as the ledger stores them: an axiom's name and the values of its variables.

    matmul.associativity(x=a, y=b, z=c)
    concat.slice-first(x=a @ b, y=c, k=-1)
    add.regroup(a + b + c)

The last example says that all groupings and orders of the sum a + b + c are equal.

The values of the variables are terms over the variables of the proved rule. The ranks of these terms determine the ranks of the
axiom.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from superopt.algebra.terms import Extent, Inverse, Size, Sym, Term, attribute_atoms, show_extent, substitute_cond, variables
from superopt.errors import NotationError, ShapeError
from superopt.notation.parsing import Equation, equation_at_ranks, parse, parse_extent, render_terms
from superopt.policy import PROOF
from superopt.proof.definitions.assumptions import Assumptions
from superopt.rules.match import Binding, instantiate
from superopt.rules.rule import REGROUP, Rule, axioms

_FORM = re.compile(r"^([a-z_0-9]+\.[a-z0-9-]+)\((.*)\)$", re.DOTALL)


@dataclass(frozen=True)
class Ground:
    """An equation between terms that an axiom implies.

    For an instance of a regrouping law (associativity and commutativity together), `left` and `right` are the same sum or
    product. The instance says that all groupings and orders of this sum or product are equal. If `directed` is True, the
    equation holds where the left side is defined, and the right side may be defined on more inputs than the left side.
    """

    text: str
    axiom: str
    left: Term
    right: Term
    directed: bool = False


def write_ground(axiom: str, equation: Equation, tensors: Mapping[str, Term], symbols: Mapping[str, Extent]) -> str:
    """Return an instance of an axiom as text, such as `matmul.associativity(x=a, y=b, z=c)`."""
    axes = {name: axis for name, axis in equation.ranks if axis < 0}
    given = [f"{name}={render_terms(term)}" for name, term in tensors.items()]
    given += [f"{name}={show_extent(extent)}" for name, extent in symbols.items()]
    given += [f"{name}={axis}" for name, axis in axes.items()]
    return f"{axiom}({', '.join(given)})"


def regrouping_axiom_instance(term: Term) -> str:
    """Return the text of the axiom instance that allows any grouping and order in this sum (or product)."""
    return f"{term.op}.{REGROUP}({render_terms(term)})"


def read_ground(text: str, assumptions: Assumptions) -> Ground:
    """Parse an instance of an axiom from its text. `assumptions` contains the variables and conditions of the proved rule.

    The form of the instance is checked, and the axiom's `where` clause must follow from the assumptions. The function does not
    check whether the sides of the instance are defined and have the same shape.

    Raises:
        NotationError: The text does not name an axiom, or does not give all of the axiom's variables.
        ShapeError: The instance is not well typed, or the axiom's `where` clause does not follow.
    """
    matched = _FORM.match(text)
    if matched is None:
        raise NotationError(f"{text} is not an instance of an axiom")
    axiom, inside = matched[1], matched[2]
    if axiom.endswith("." + REGROUP):
        (term,) = parse(inside, assumptions.variables, set(assumptions.reals))
        return Ground(text, axiom, term, term)
    rule = axioms().get(axiom)
    if rule is None:
        raise NotationError(f"no axiom is called {axiom}")
    given = _arguments(text, inside)
    tensors = _tensors(rule, given, assumptions)
    equation = _read_at(axiom, _ranks(rule, given, tensors))
    binding = None if equation is None else _binding(equation, given, tensors, assumptions)
    if equation is not None and binding is not None:
        (left,), (right,) = equation.left, equation.right
        if assumptions.holds(substitute_cond(equation.where, binding.value)):
            return Ground(text, axiom, instantiate(left, binding), instantiate(right, binding))
    raise ShapeError(
        f"the axiom instance {text} is ill typed at the ranks of the rule's variables, or violates the axiom's condition"
    )


@functools.lru_cache(maxsize=PROOF.ground_argument_cache_count)
def _arguments(text: str, inside: str) -> Mapping[str, str]:
    """Return a mapping from the name of each variable to the text of its value.

    `inside` is the part of `text` in parentheses.
    """
    try:
        call = ast.parse(f"_({inside})", mode="eval").body
    except SyntaxError:
        raise NotationError(f"{text} is not an instance of an axiom") from None
    if not isinstance(call, ast.Call) or call.args:
        raise NotationError(f"{text} is not an instance of an axiom")
    return {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg is not None}


def _tensors(rule: Rule, given: Mapping[str, str], assumptions: Assumptions) -> dict[str, Term]:
    """Return a mapping from the name of each tensor variable of the axiom to its value, which is a term."""
    reals = set(assumptions.reals)
    named = [name for name, options in rule.statement.ranks if name in given and min(options) >= 0]
    return {name: parse(given[name], assumptions.variables, reals)[0] for name in named}


def _ranks(rule: Rule, given: Mapping[str, str], tensors: Mapping[str, Term]) -> tuple[tuple[str, int], ...]:
    """Return a pair (name, value) for each name in the axiom's `for` clause.

    The value is the rank, axis or tuple length that the name has in this instance of the axiom.
    """
    chosen: list[tuple[str, int]] = []
    for name, options in rule.statement.ranks:
        if name in tensors:
            chosen.append((name, tensors[name].rank))
        elif name in given:
            chosen += [(name, axis) for axis in options if str(axis) == given[name]]
        else:
            chosen.append((name, next(p for p in itertools.count() if f"{name}{p}" not in given)))
    return tuple(chosen)


@functools.lru_cache(maxsize=PROOF.ground_argument_cache_count)
def _read_at(axiom: str, ranks: tuple[tuple[str, int], ...]) -> Equation | None:
    """Return the axiom at one choice of ranks. Return None if the axiom excludes these ranks or is ill typed at these ranks."""
    statement = axioms()[axiom].statement
    if [name for name, _ in ranks] != [name for name, _ in statement.ranks]:
        return None
    if any(rank not in options for (_, rank), (_, options) in zip(ranks, statement.ranks, strict=True)):
        return None
    try:
        return equation_at_ranks(statement, dict(ranks))
    except ShapeError:
        return None


def _binding(
    equation: Equation, given: Mapping[str, str], tensors: Mapping[str, Term], assumptions: Assumptions
) -> Binding | None:
    """Return the values of the axiom's variables.

    Return None if the names in `given` are not exactly the names of the axiom's variables, or if the value of an integer
    variable is not an integer.
    """
    symbols = axiom_attribute_symbols(equation)
    axes = {name for name, axis in equation.ranks if axis < 0}
    if {v.name for v in variables(*equation.left, *equation.right)} | set(symbols) | axes != set(given):
        return None
    reals = set(assumptions.reals)
    extents = {name: assumptions.normal(parse_extent(given[name], assumptions.variables, reals)) for name in symbols}
    if not all(symbol.real or is_integral_axiom_argument(extents[name]) for name, symbol in symbols.items()):
        return None
    return Binding(tensors, extents)


def is_integral_axiom_argument(extent: Extent) -> bool:
    """Return whether the extent is built only from integers, without fractions and real attribute variables."""
    if not isinstance(extent, Size):
        return isinstance(extent, int)
    real = any(isinstance(a, Inverse) or (isinstance(a, Sym) and a.real) for a in extent.atoms())
    return not real and all(isinstance(coefficient, int) for _, coefficient in extent.terms)


def axiom_attribute_symbols(equation: Equation) -> dict[str, Sym]:
    """Return the attribute variables of the equation, by name."""
    found = sorted(a for a in attribute_atoms(*equation.left, *equation.right) if isinstance(a, Sym))
    return {a.name: a for a in found}
