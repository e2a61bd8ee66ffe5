"""The notation: parse(render_terms(t)) is t for random terms of every operator, and other text is refused."""

from __future__ import annotations

from typing import Protocol, TypeVar

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from superopt.algebra.operators import Operator, Parameter, apply, registry
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Cond,
    Dim,
    Extent,
    Sym,
    Term,
    at_least,
    attribute_atoms,
    conjunction,
    disjunction,
    floor_divide,
    inverse,
    negation,
    same,
    size,
    variable,
)
from superopt.errors import NotationError, ShapeError, SpecError
from superopt.notation.parsing import equation_at_ranks, parse, parse_condition, parse_statement, render_condition, render_terms
from superopt.notation.rank_instances import equations
from superopt.rules.rule import Rule, axioms
from superopt.speclib.recurrence import recurrences

pytestmark = pytest.mark.slow

T = TypeVar("T")
VARIABLES = {name: variable(name, rank) for name, rank in (("x", 2), ("y", 2), ("b", 1), ("c", 3), ("u", 4), ("w", 4))}
RECURRENT = {name for r in recurrences() for name in (r.every, *r.last)}  # VARIABLES has no shapes that fit their weights
UNFIT = RECURRENT | {"self_attention", "masked_attention", "grouped_query_attention"}
OPERATORS = sorted(name for name, spec in registry().items() if spec.definition is not None and name not in UNFIT)
PAIRS = ("strides", "dilations", "kernel", "at", "output_pads", "tile", "taps")
LENGTHS = {**dict.fromkeys(PAIRS, (2,)), "pads": (4,), "shape": (1, 2, 3, 4)}

dims: st.SearchStrategy[Atom] = st.sampled_from([Dim("x", -1), Dim("x", -2), Dim("u", -3), Dim("b", -1)])
symbols: st.SearchStrategy[Atom] = st.sampled_from([Sym("s"), Sym("k0"), Sym("k1")])
numbers = st.integers(1, 3)
atomic: st.SearchStrategy[Extent] = st.one_of(dims, symbols).map(size)
extents: st.SearchStrategy[Extent] = st.one_of(
    numbers,
    atomic,
    st.builds(lambda a, b: a + b, atomic, st.one_of(numbers, atomic)),
    st.builds(lambda a, b: a * b, atomic, st.one_of(numbers, atomic)),
    st.builds(lambda a, n, m: a * n - m, atomic, numbers, numbers),
    st.builds(lambda a, b, n: floor_divide(a + n, b), atomic, st.one_of(st.integers(2, 3), atomic), numbers),
)
factors: st.SearchStrategy[Extent] = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.125, 1e-05, 3.0]),
    st.fractions(min_value=-2, max_value=2, max_denominator=9),
    st.sampled_from(["f", "g"]).map(lambda name: size(Sym(name, real=True))),
    st.builds(lambda a, b: a * inverse(b), st.sampled_from([1, 2, size(Sym("f", real=True))]), dims.map(size)),
)


class Draw(Protocol):
    """The function that hypothesis passes to a composite strategy, or a test's `data.draw`."""

    def __call__(self, strategy: st.SearchStrategy[T]) -> T: ...


def attribute(draw: Draw, parameter: Parameter, rank: int) -> Attribute:
    """Draw a value of the parameter's kind for operands of this rank. Typing refuses the many values that do not fit."""
    match parameter.kind:
        case "axis":
            return int(draw(st.integers(-rank, -1)))
        case "axes":
            return tuple(draw(st.lists(st.integers(-rank, -1), min_size=1, max_size=rank, unique=True)))
        case "extent":
            return draw(extents)
        case "extents":
            length = rank if parameter.name in {"before", "after"} else draw(st.sampled_from(LENGTHS[parameter.name]))
            return tuple(draw(st.lists(extents, min_size=length, max_size=length)))
        case _:
            return draw(factors)


def application(draw: Draw, spec: Operator, known: list[Term]) -> Term | None:
    """Draw an application of the operator to known terms, or return None if the application is not defined."""
    arity = draw(st.integers(2, 3)) if spec.commutative else spec.arity
    args = [draw(st.sampled_from(known)) for _ in range(arity)]
    rank = max(args[0].rank, 1) if args else 2
    if spec.name == "expand":
        own = args[0].rank
        shape = draw(st.sampled_from([t for t in known if t.rank >= own])).shape
        places = draw(st.lists(st.integers(-len(shape), -1), min_size=own, max_size=own, unique=True))
        given: dict[str, Attribute] = {"shape": shape, "axes": tuple(sorted(places))}
    else:
        given = {p.name: attribute(draw, p, rank) for p in spec.parameters if p.default is None or draw(st.booleans())}
    try:
        return apply(spec.name, *args, **given)
    except ShapeError:
        return None


@st.composite
def applications(draw: st.DrawFn, name: str) -> Term | None:
    """Draw an application of the named operator to variables, or return None if the application is not defined."""
    return application(draw, registry()[name], list(VARIABLES.values()))


@st.composite
def terms(draw: st.DrawFn) -> tuple[Term, ...]:
    """Draw a few terms, which often have common subterms."""
    known = list(VARIABLES.values())
    for _ in range(draw(st.integers(1, 7))):
        found = application(draw, registry()[draw(st.sampled_from(OPERATORS))], known)
        if found is not None:
            known += [found, found]
    return tuple(draw(st.lists(st.sampled_from(known[::-1]), min_size=1, max_size=3)))


@given(terms())
def test_what_is_shown_reads_as_itself(roots: tuple[Term, ...]) -> None:
    again = parse(render_terms(*roots), VARIABLES)
    assert all(a is b for a, b in zip(again, roots, strict=True))


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_among_the_random_terms(name: str) -> None:
    first = settings(max_examples=400, phases=[Phase.generate])
    found = find(applications(name), lambda term: term is not None, settings=first)
    assert found is not None
    assert parse(render_terms(found), VARIABLES) == (found,)


comparisons: st.SearchStrategy[Cond] = st.builds(
    lambda relation, a, b: relation(a, b),
    st.sampled_from([at_least, same, lambda a, b: negation(same(a, b))]),
    extents,
    extents,
)
conditions = st.recursive(
    comparisons,
    lambda parts: st.builds(
        lambda joined, some: joined(*some), st.sampled_from([conjunction, disjunction]), st.lists(parts, max_size=3)
    ),
    max_leaves=5,
)


@given(comparisons)
def test_comparisons_are_shown_as_the_parser_gives_them(condition: Cond) -> None:
    if not isinstance(condition, bool):
        text = render_condition(condition)
        assert parse_statement(f"r: x => x for x[2], y[2] where {text}").where == (text,)


@given(conditions)
def test_conditions_read_as_they_are_shown(condition: Cond) -> None:
    if not isinstance(condition, bool):
        assert parse_condition(render_condition(condition), VARIABLES, set()) == condition


@pytest.mark.parametrize("axiom", axioms().values(), ids=list(axioms()))
def test_axioms_read_as_they_are_shown(axiom: Rule) -> None:
    for equation in axiom.equations:
        declared = {name: variable(name, rank) for name, rank in equation.ranks if rank > 0}
        sides = equation.left + equation.right
        assert parse(render_terms(*sides), declared) == sides
    assert equations(parse_statement(str(axiom.statement))) == list(axiom.equations)


def one(text: str) -> Term:
    (term,) = parse(text, VARIABLES)
    return term


def test_infix_symbols_are_operators() -> None:
    x, y = VARIABLES["x"], VARIABLES["y"]
    assert one("x @ y + x * y - x") is apply("sub", apply("add", apply("matmul", x, y), apply("mul", x, y)), x)


def test_a_name_given_once_stands_for_the_same_term() -> None:
    assert one("relu(t := x @ y) + t") is one("relu(x @ y) + x @ y")


def test_the_shape_of_a_term_is_written_with_it() -> None:
    b = VARIABLES["b"]
    assert one("expand(b, shape=(x @ y).shape, axes=(-1,))") is apply("expand", b, shape=one("x @ y").shape, axes=(-1,))


def test_axes_are_counted_from_the_end() -> None:
    assert one("concat(x, y, axis=0)") is one("concat(x, y, axis=-2)")


def test_a_name_is_real_where_it_is_never_an_integer() -> None:
    assert one("scale(x, factor=a)")["factor"] == size(Sym("a", real=True))
    assert attribute_atoms(one("scale(scale(x, factor=a), factor=a0)")) == {Sym("a", real=True), Sym("a0", real=True)}
    for text in ("scale(ones(shape=(m, 2)), factor=m)", "scale(x, factor=m) @ ones(shape=(m, 2))"):
        assert attribute_atoms(one(text)) == {Sym("m")}


def test_the_parts_of_a_tuple_variable_are_integers() -> None:
    (equation,) = equations(parse_statement("ones(shape=s) == scale(zeros(shape=s), factor=1 / s0) for s[2]"))
    assert attribute_atoms(*equation.right) >= {Sym("s0"), Sym("s1")}
    assert not any(isinstance(a, Sym) and a.real for a in attribute_atoms(*equation.right))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x +",
        "x; y",
        "x / y",
        "x @ q",
        "relu(x)(y)",
        "relu(x, slope=1)",
        "[x for x in y]",
        "lambda: x",
        "x.shape",
        "x[0]",
        "concat(x, y, axis=x)",
        "(x := x @ y)",
        "slice(x, axis=-1, stop=y.shape[-9])",
        "slice(x, axis=-1, stop=True)",
        "slice(x, axis=-1, stop='a')",
        "transpose(x, perm=[-1, -2])",
        "relu(**x)",
        "transpose(x, perm=(-1, -2), **x)",
        "relu(*x)",
        "f'{x}'",
        "x\0",
    ],
)
def test_what_is_not_notation_is_refused(text: str) -> None:
    with pytest.raises((NotationError, ShapeError)):
        parse(text, VARIABLES)


@pytest.mark.parametrize("name", ["tanh3", "__import__", "eval"])
def test_an_unknown_operator_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"no operator is called '{name}'"):
        parse(f"{name}(x)", VARIABLES)


@pytest.mark.parametrize("text", ["x == x", "s0", "s0 >= 1 >= 0", "x.shape[-1] is 3", "s0 in (1, 2)", "s0 >= 'a'"])
def test_what_is_not_a_condition_is_refused(text: str) -> None:
    with pytest.raises(NotationError):
        parse_condition(text, VARIABLES, set())


@pytest.mark.parametrize(
    "line",
    [
        "x @ y",
        "x @ y => y @ x",
        "x => x => x for x[2]",
        "x @ y => x for x[2], y",
        "(x, x) => x for x[2]",
        "relu(x) => x @ x for x[1]",
        "=> x for x[2]",
    ],
)
def test_what_is_not_a_rule_is_refused(line: str) -> None:
    with pytest.raises(NotationError):
        equations(parse_statement(line))


def test_a_statement_is_read_at_every_choice_of_ranks_that_is_well_typed() -> None:
    found = equations(parse_statement("left: x @ y + x @ z => x @ (y + z) for x[1, 2, 3], y[2, 3], z[2, 3]"))
    assert [tuple(dict(e.ranks).values()) for e in found] == [(2, 2, 2), (2, 3, 3), (3, 2, 2), (3, 3, 3)]


def test_conditions_of_a_statement_are_read_with_it() -> None:
    (equation,) = equations(parse_statement("slice(x, axis=-1, start=0, stop=n) => x for x[2] where n == x.shape[-1]"))
    assert equation.where == same(size(Sym("n")), size(Dim("x", -1)))


def test_sizes_may_agree_along_all_axes_but_some() -> None:
    rule = parse_statement(
        "concat(x, y, axis=k) => x for x[1, 2], y[1, 2], k[-1, -2] where x.shape[others(x, k)] == y.shape[others(y, k)]"
    )
    found = {e.ranks: e.where for e in equations(rule)}
    assert found[(("x", 1), ("y", 1), ("k", -1))] is True
    one, other = (size(Dim(name, -1)) for name in "xy")
    assert found[(("x", 2), ("y", 2), ("k", -2))] == same(one, other)
    with pytest.raises(ShapeError):
        equation_at_ranks(rule, {"x": 1, "y": 2, "k": -1})
