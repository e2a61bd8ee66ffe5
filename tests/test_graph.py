"""Extents and conditions compared with integer arithmetic, canonical forms, and the interning of terms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from superopt.algebra import terms as graph
from superopt.algebra.operators import apply
from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import Atom, Cond, Dim, Extent, Inverse, Sym, substitute, substitute_cond
from superopt.rules.rule import axiom_laws

ATOMS: tuple[Dim | Sym, ...] = (Dim("x", -1), Dim("x", -2), Dim("y", -1), Sym("s0"), Sym("s1"))
A, B, C = (graph.size(atom) for atom in ATOMS[:3])
ARITHMETIC: dict[str, Callable[[Extent, Extent], Extent]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": graph.floor_divide,
    "%": lambda a, b: a - b * graph.floor_divide(a, b),
}
COMPARISONS: dict[str, Callable[[Extent, Extent], Cond]] = {
    ">=": graph.at_least,
    "<=": lambda a, b: graph.at_least(b, a),
    "==": graph.same,
    "!=": lambda a, b: graph.negation(graph.same(a, b)),
}
INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
TRUTH: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Expression:
    """An arithmetic expression as a tree: an atom, a number, or an operator over two trees.

    `extent` and `integer` evaluate the same tree in two ways.
    """

    symbol: str
    parts: tuple[Expression, ...] = ()
    leaf: Dim | Sym | int = 0

    def extent(self) -> Extent:
        if not self.parts:
            return self.leaf if isinstance(self.leaf, int) else graph.size(self.leaf)
        left, right = (part.extent() for part in self.parts)
        assume(self.symbol not in {"//", "%"} or right != 0)
        return ARITHMETIC[self.symbol](left, right)

    def integer(self, values: Mapping[Atom, int]) -> int:
        if not self.parts:
            return self.leaf if isinstance(self.leaf, int) else values[self.leaf]
        left, right = (part.integer(values) for part in self.parts)
        assume(self.symbol not in {"//", "%"} or right != 0)
        return INTEGERS[self.symbol](left, right)


def nodes(children: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.builds(lambda symbol, a, b: Expression(symbol, (a, b)), st.sampled_from(list(INTEGERS)), children, children)


leaves = st.one_of(st.sampled_from(ATOMS), st.integers(-3, 4)).map(lambda leaf: Expression("", leaf=leaf))
expressions = st.recursive(leaves, nodes, max_leaves=7)
environments = st.fixed_dictionaries({atom: st.integers(1, 9) for atom in ATOMS})
comparisons = st.tuples(st.sampled_from(list(TRUTH)), expressions, expressions)
Comparison = tuple[str, Expression, Expression]


@given(expressions, environments)
def test_extents_compute_what_integers_do(expression: Expression, values: dict[Atom, int]) -> None:
    expected = expression.integer(values)
    assert substitute(expression.extent(), values.get) == expected


@given(expressions, environments, st.sampled_from(ATOMS))
def test_substituting_in_steps_is_substituting_at_once(expression: Expression, values: dict[Atom, int], first: Atom) -> None:
    expected = expression.integer(values)
    partly = substitute(expression.extent(), lambda atom: values[first] if atom == first else None)
    assert substitute(partly, values.get) == expected


@given(expressions, expressions, expressions)
def test_equal_polynomials_are_equal_values(a: Expression, b: Expression, c: Expression) -> None:
    x, y, z = a.extent(), b.extent(), c.extent()
    for left, right in (
        ((x + y) * z, x * z + y * z),
        (x - y, -(y - x)),
        (x + y, y + x),
        (x * y, y * x),
        ((x * y) * z, x * (y * z)),
    ):
        assert left == right
        assert hash(left) == hash(right)
        assert str(left) == str(right)


@given(expressions, expressions)
def test_exact_multiples_leave_no_quotient(a: Expression, b: Expression) -> None:
    x = a.extent()
    assert graph.floor_divide(x * A, A) == x
    assert graph.floor_divide(x * A + B, A) == x + graph.floor_divide(B, A)
    assert (x * A + b.extent()) - x * A == b.extent()


@given(comparisons, environments)
def test_comparisons_say_what_integers_do(comparison: Comparison, values: dict[Atom, int]) -> None:
    symbol, left, right = comparison
    expected = TRUTH[symbol](left.integer(values), right.integer(values))
    assert substitute_cond(COMPARISONS[symbol](left.extent(), right.extent()), values.get) is expected


@given(expressions, expressions, environments)
def test_order_operators_of_sizes(left: Expression, right: Expression, values: dict[Atom, int]) -> None:
    a, b = left.extent(), right.extent()
    assume(isinstance(a, graph.Size))
    x, y = left.integer(values), right.integer(values)
    for condition, truth in ((a < b, x < y), (a <= b, x <= y), (a > b, x > y), (a >= b, x >= y)):
        assert substitute_cond(condition, values.get) is truth


@given(st.lists(comparisons, min_size=1, max_size=3), environments)
def test_connectives_and_their_negations(parts: list[Comparison], values: dict[Atom, int]) -> None:
    truths = [TRUTH[symbol](a.integer(values), b.integer(values)) for symbol, a, b in parts]
    conditions = [COMPARISONS[symbol](a.extent(), b.extent()) for symbol, a, b in parts]
    both, either = graph.conjunction(*conditions), graph.disjunction(*conditions)
    nested = graph.disjunction(graph.conjunction(both, either), conditions[0])
    for condition, truth in ((both, all(truths)), (either, any(truths)), (nested, all(truths) or truths[0])):
        assert substitute_cond(condition, values.get) is truth
        assert substitute_cond(graph.negation(condition), values.get) is not truth


def test_constants_fold_in_conditions() -> None:
    condition = graph.at_least(A, 2)
    assert graph.conjunction(True, condition, condition) == condition
    assert graph.conjunction(condition, False) is False
    assert graph.conjunction() is True
    assert graph.disjunction(False, condition, condition) == condition
    assert graph.disjunction(condition, True) is True
    assert graph.disjunction() is False
    assert graph.same(A + B, B + A) is True
    assert graph.at_least(A + 1, A) is True
    assert graph.at_least(A, A + 1) is False


def test_ampersand_joins_conditions_with_each_other_and_with_truth() -> None:
    condition = graph.at_least(A, 2) & graph.same(B, 3)
    assert condition == graph.conjunction(graph.at_least(A, 2), graph.same(B, 3))
    assert (condition & True) == condition
    assert (False & condition) is False


@given(st.integers(1, 9), st.integers(1, 9))
def test_inverses_are_exact_and_cancel(a: int, b: int) -> None:
    values: dict[Atom, Extent] = {ATOMS[0]: a, ATOMS[1]: b}
    assert substitute(graph.inverse(A) * B, values.get) == Fraction(b, a)
    assert substitute(graph.inverse(A * A) * A, values.get) == Fraction(1, a)
    assert graph.inverse(A) * A == 1
    assert graph.inverse(A * B) * A * B == 1
    assert graph.inverse(a) * a == 1


def test_an_extent_names_all_its_atoms() -> None:
    extent = A * B + graph.floor_divide(C + 1, B) + graph.inverse(C)
    assert set(graph.atoms(extent)) >= {*ATOMS[:3], Inverse(C)}
    assert list(graph.atoms(7)) == []


def test_extents_read_as_they_are_written() -> None:
    assert str(A * A - 2 * B + 1) == "x.shape[-1] * x.shape[-1] - 2 * x.shape[-2] + 1"
    assert graph.show_extent(graph.floor_divide(A + 1, 2)) == "((x.shape[-1] + 1) // (2))"


def test_equal_terms_are_one_object() -> None:
    x, y = graph.variable("x", 2), graph.variable("y", 2)
    assert graph.variable("x", 2) is x
    assert graph.variable("x", 3) is not x
    assert apply("matmul", x, y) is apply("matmul", x, y)
    assert apply("matmul", x, y) is not apply("matmul", y, x)
    assert apply("add", x, y) is apply("add", y, x)
    assert apply("add", apply("add", x, y), x) is apply("add", x, apply("add", x, y))


def test_a_number_makes_one_term_however_it_is_written() -> None:
    x = graph.variable("x", 2)
    assert apply("scale", x, factor=1.0) is apply("scale", x, factor=1)
    assert apply("scale", x, factor=0.5) is apply("scale", x, factor=Fraction(2, 4))
    assert apply("scale", x, factor=0.1) is not apply("scale", x, factor=Fraction(1, 10))


@pytest.mark.slow
def test_what_a_term_requires_speaks_of_what_it_holds() -> None:
    for name, law in axiom_laws().items():
        for equation in law.equations:
            for term in graph.subterms(*equation.left, *equation.right):
                asked = {a.tensor for c in term.requires for a in condition_atoms(c) if isinstance(a, Dim)}
                given = {a.tensor for a in graph.attribute_atoms(term) if isinstance(a, Dim)}
                assert asked <= given | {v.name for v in graph.variables(term)}, f"{name}: {term}"


def test_the_wiring_of_a_term_is_in_its_key() -> None:
    x, y, z = (graph.variable(name, (4, 4)) for name in "xyz")
    chains = {apply("matmul", apply("matmul", a, b), c) for a in (x, y, z) for b in (x, y, z) for c in (x, y, z)}
    assert len({term.key for term in chains}) == len(chains) == 27


def test_subterms_come_before_their_users_and_once() -> None:
    x, y = graph.variable("x", 2), graph.variable("y", 2)
    shared = apply("matmul", x, y)
    root = apply("add", apply("relu", shared), shared)
    order = graph.subterms(root, shared)
    assert len(order) == len(set(order)) == 5
    assert all(order.index(argument) < order.index(term) for term in order for argument in term.args)
    assert graph.operator_count(root, shared) == 3
    assert graph.variables(root) == [x, y]


@pytest.mark.parametrize("names", [("x", "y"), ("y", "x")])
def test_only_what_no_input_reaches_is_constant(names: tuple[str, str]) -> None:
    weight, data = graph.variable(names[0], (2, 2), constant=True), graph.variable(names[1], (2, 2))
    assert apply("relu", weight).constant
    assert not apply("matmul", data, weight).constant
    assert graph.variable(names[0], (2, 2)) is not weight
