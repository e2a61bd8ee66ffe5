"""Egglog as a second engine, which decides at concrete sizes whether rules make two terms equal. It gives no proofs.

Every size and every attribute variable has a number. A term is a constructor applied to terms and numbers. Axes are part of the
constructor's name. The rank and the extents of terms are functions. Rules that are generated from the definitions compute these
functions, and rewrites query them in their conditions.

Two terms may become equal because of a coincidence of the numbers. Callers therefore ask at several choices of numbers. If the
terms stay in different classes after saturation, the answer is final. At these numbers, no sequence of rule applications then
leads from one term to the other with the given operators.

Raises:
    EgglogMissingError: On import, if egglog is not installed. No other module needs egglog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from superopt.algebra.operators import Operator, apply, operator
from superopt.algebra.terms import (
    AllOf,
    AnyOf,
    Atom,
    Attribute,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Inverse,
    Size,
    Sym,
    Term,
    at_least,
    size,
    subterms,
    variable,
)
from superopt.errors import EgglogMissingError, ShapeError
from superopt.notation.parsing import Equation
from superopt.policy import PROOF
from superopt.proof.axioms.ematch import Direction
from superopt.rules.instances import Instance
from superopt.rules.match import Binding, instantiate

try:
    from egglog.bindings import EggSmolError, EGraph, PrintAllFunctionsSize
except ImportError as error:
    raise EgglogMissingError("egglog is not installed: pip install 'superopt[generate]'") from error


PRELUDE = """
(sort T)
(constructor Var (String) T)
(function rank (T) i64 :merge (max old new))
(function dim (T i64) i64 :merge (max old new))
(ruleset shapes)
(ruleset regroup)
"""


class Outcome(Enum):
    """Whether rules make two terms equal: JOINED (equal), APART (saturation ended, not equal) or LIMIT (stopped early)."""

    JOINED = "joined"
    APART = "apart"
    LIMIT = "limit"


class UnencodableError(Exception):
    """Raised when a rule, read in one direction, cannot be written as an egglog rule with concrete numbers."""


@dataclass(frozen=True)
class Constructor:
    """An egglog constructor for an operator with fixed axes.

    `reals` has a boolean for each number in the operator's attributes that is not an axis: whether the number is real and not
    an integer.
    """

    name: str
    arity: int
    reals: tuple[bool, ...]

    def declaration(self) -> str:
        numbers = " ".join("Rational" if real else "i64" for real in self.reals)
        return f"(constructor {self.name} ({' '.join(['T'] * self.arity)} {numbers}) T)"


def constructor(term: Term) -> Constructor:
    """Return the constructor of a term's root."""
    spec = operator(term.op)
    name, reals = f"op_{term.op}", list[bool]()
    for parameter, (_, value) in zip(spec.parameters, term.attributes, strict=True):
        extents = _extents(value)
        if parameter.kind in ("axis", "axes"):
            name += f"_{parameter.name}" + "".join(str(a).replace("-", "m") for a in extents)
        else:
            name += f"_{len(extents)}"
            reals += [parameter.kind == "real"] * len(extents)
    return Constructor(name, 2 if spec.commutative else len(term.args), tuple(reals))


def _extents(value: Attribute) -> Sequence[Extent]:
    assert not isinstance(value, str)
    return value if isinstance(value, tuple) else (value,)


def egglog_attribute_numbers(term: Term) -> list[Extent]:
    """Return the numbers among the attributes of the term's root, without axes."""
    spec = operator(term.op)
    pairs = zip(spec.parameters, term.attributes, strict=True)
    return [n for parameter, (_, value) in pairs if parameter.kind not in ("axis", "axes") for n in _extents(value)]


# ---------------------------------------------------------------- writing


@dataclass
class Writer:
    """A writer of terms, extents and conditions as s-expressions.

    `dims` and `symbols` collect the extents of tensors and the attribute variables that occur in the written text.
    """

    dims: dict[Dim, str] = field(default_factory=dict)
    symbols: dict[str, bool] = field(default_factory=dict)
    constructors: dict[str, Constructor] = field(default_factory=dict)

    def term(self, term: Term, leaf: Mapping[Term, str], attributes: Mapping[tuple[Term, int], str] | None = None) -> str:
        """Return the term as text. `leaf` has the texts of variables.

        `attributes` has texts that replace some of the numbers in attributes.
        """
        if term in leaf:
            return leaf[term]
        built = constructor(term)
        self.constructors[built.name] = built
        written = [
            (attributes or {}).get((term, i)) or self.extent(n, real=real)
            for i, (n, real) in enumerate(zip(egglog_attribute_numbers(term), built.reals, strict=True))
        ]
        args = [self.term(a, leaf, attributes) for a in term.args]
        while len(args) > built.arity:
            args[-2:] = [f"({built.name} {args[-2]} {args[-1]})"]
        return f"({' '.join([built.name, *args, *written])})"

    def extent(self, extent: Extent, *, real: bool = False) -> str:
        """Return a number, size or attribute as an egglog expression over integers, or over rationals if `real` is True."""
        if not isinstance(extent, Size):
            return _literal(extent, real)
        total = ""
        for monomial, coefficient in extent.terms:
            product = _literal(coefficient, real)
            for atom in monomial:
                product = f"(* {product} {self._atom(atom, real)})"
            total = f"(+ {total} {product})" if total else product
        return total

    def _atom(self, atom: Atom, real: bool) -> str:
        match atom:
            case Dim():
                name = self.dims.setdefault(atom, f"d_{atom.tensor}_{-atom.axis}")
                return f"(rational {name} 1)" if real else name
            case Sym(name=name):
                self.symbols[name] = atom.real
                if atom.real != real:
                    raise UnencodableError(f"the attribute variable {name} is used both as an integer and as a real number")
                return f"s_{name}"
            case Floor(numerator, denominator) if not real:
                return f"(/ {self.extent(numerator)} {self.extent(denominator)})"
            case Inverse(of) if real:
                return f"(/ {_literal(1, real=True)} {self.extent(of, real=True)})"
        raise UnencodableError(
            f"the extent {atom} cannot be encoded as {'a rational number' if real else 'an integer'} of egglog"
        )

    def facts(self, condition: Cond) -> Iterator[str]:
        """Yield the condition as facts of an egglog query."""
        match condition:
            case True:
                return
            case Compare(relation, left):
                real = any(isinstance(a, Inverse) or (isinstance(a, Sym) and a.real) for a in left.atoms())
                zero = _literal(0, real)
                value = self.extent(left, real=real)
                yield f"({'=' if relation == '==' else relation} {value} {zero})"
            case AllOf(parts):
                for part in parts:
                    yield from self.facts(part)
            case AnyOf() | False:
                raise UnencodableError("a condition with alternatives cannot be encoded in egglog")


def _literal(number: Extent, real: bool) -> str:
    assert not isinstance(number, Size)
    fraction = Fraction(number)
    if real:
        return f"(rational {fraction.numerator} {fraction.denominator})"
    if fraction.denominator != 1:
        raise UnencodableError(f"the number {fraction} is not an integer")
    return str(fraction.numerator)


def rewrite(direction: Direction, writer: Writer) -> str:
    """Return the egglog rule that applies `direction`: facts and actions, to which the caller adds the name of a ruleset.

    Raises:
        UnencodableError: An attribute variable is never an attribute by itself on the matched side, or a condition cannot be
            written in egglog's arithmetic.
    """
    own = Writer(constructors=writer.constructors)
    tensors = [t for t in subterms(direction.source) if t.is_variable]
    leaf = {t: f"v_{t.name}" for t in tensors}
    places: dict[tuple[Term, int], str] = {}
    later: list[tuple[str, Extent, bool]] = []
    bound: set[str] = set()
    for term in subterms(direction.source):
        if term.is_variable:
            continue
        for i, (number, real) in enumerate(zip(egglog_attribute_numbers(term), constructor(term).reals, strict=True)):
            if not isinstance(number, Size):
                continue
            name = _bare(number)
            if name is not None and name not in bound:
                bound.add(name)
                places[term, i] = f"s_{name}"
            else:
                places[term, i] = f"q_{len(later)}"
                later.append((places[term, i], number, real))
    source = own.term(direction.source, leaf, places)
    checks = [f"(= {name} {own.extent(number, real=real)})" for name, number, real in later]
    checks += own.facts(direction.where)
    for term in subterms(direction.target):
        for condition in (*term.requires, *(at_least(e, 1) for e in term.shape)):
            checks += own.facts(condition)
    target = own.term(direction.target, {variable(t.name, t.rank): f"v_{t.name}" for t in tensors} | leaf)
    if not set(own.symbols) <= bound:
        raise UnencodableError(
            f"no attribute of the matched side determines the attribute variable {min(set(own.symbols) - bound)}"
        )
    facts = [f"(= t {source})", *(f"(= {t.rank} (rank v_{t.name}))" for t in tensors)]
    facts += [f"(= {name} (dim v_{d.tensor} {d.axis}))" for d, name in own.dims.items()]
    return f"({' '.join([*facts, *checks])}) ((union t {target}))"


def _bare(extent: Size) -> str | None:
    (monomial, coefficient), *more = extent.terms
    alone = not more and coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Sym)
    return monomial[0].name if alone and isinstance(monomial[0], Sym) else None


def egglog_shape_rule(like: Term) -> str:
    """Return the egglog rule that computes the rank and extents of any term with the same constructor as `like`."""
    spec = operator(like.op)
    built = constructor(like)
    operands = [variable(f"a{i}", a.rank) for i, a in enumerate(like.args[: built.arity])]
    symbolic, names = _symbolic(spec, like)
    term = apply(like.op, *operands, **symbolic)
    writer = Writer()
    actions = [f"(set (rank t) {term.rank})"]
    actions += [f"(set (dim t {a}) {writer.extent(term.shape[a])})" for a in range(-term.rank, 0)]
    source = f"({' '.join([built.name, *(f'v_a{i}' for i in range(built.arity)), *names])})"
    facts = [f"(= t {source})", *(f"(= {o.rank} (rank v_a{i}))" for i, o in enumerate(operands))]
    facts += [f"(= {name} (dim v_{d.tensor} {d.axis}))" for d, name in writer.dims.items()]
    return f"(rule ({' '.join(facts)}) ({' '.join(actions)}) :ruleset shapes)"


def _symbolic(spec: Operator, like: Term) -> tuple[dict[str, Attribute], list[str]]:
    """Return the attributes of `like` with a variable in place of each number, and the names of the variables."""
    given: dict[str, Attribute] = {}
    names: list[str] = []
    for parameter, (name, value) in zip(spec.parameters, like.attributes, strict=True):
        if parameter.kind in ("axis", "axes"):
            given[name] = value
            continue
        fresh = [Sym(f"n{len(names) + i}", parameter.kind == "real") for i in range(len(_extents(value)))]
        names += [f"s_{s.name}" for s in fresh]
        given[name] = tuple(map(size, fresh)) if isinstance(value, tuple) else size(fresh[0])
    return given, names


def egglog_regrouping_rules(name: str) -> str:
    """Return the egglog rules for associativity and commutativity of the constructor with this name."""
    return f"""(rewrite ({name} a b) ({name} b a) :ruleset regroup)
(rewrite ({name} a ({name} b c)) ({name} ({name} a b) c) :ruleset regroup)"""


# ---------------------------------------------------------------- running


def reachable(readings: Iterable[Direction], terms: Iterable[Term]) -> list[Direction]:
    """Return the directed laws that may apply to the terms, or to terms that such laws produce.

    A law may apply if every operator of the law's matched side occurs in such terms, with a result of the same rank.
    """
    present = egglog_operator_ranks(terms)
    waiting = [(d, egglog_operator_ranks(subterms(d.source)), egglog_operator_ranks(subterms(d.target))) for d in readings]
    found: list[Direction] = []
    while True:
        ready = [w for w in waiting if w[1] <= present]
        if not ready:
            return found
        waiting = [w for w in waiting if not w[1] <= present]
        for direction, _, after in ready:
            found.append(direction)
            present |= after


def egglog_operator_ranks(terms: Iterable[Term]) -> set[tuple[str, int]]:
    """Return pairs of an operator in the terms and the rank of the operator's result."""
    return {(t.op, t.rank) for t in terms if not t.is_variable}


def outcome(
    equation: Equation, instance: Instance, readings: Iterable[Direction], rounds: int = PROOF.max_egglog_rounds
) -> Outcome:
    """Return whether the directed laws `readings` make the two sides of the equation equal at this instance.

    Raises:
        ShapeError: A side is not well typed at this instance.
    """
    tensors = {name: variable(name, shape) for name, shape in instance.shapes.items()}
    binding = Binding(tensors, instance.attributes)
    sides = [[instantiate(t, binding) for t in side] for side in (equation.left, equation.right)]
    writer = Writer()
    leaf = {t: f'(Var "{name}")' for name, t in tensors.items()}
    goals = [[writer.term(t, leaf) for t in side] for side in sides]
    laws: list[str] = []
    patterns: list[Term] = [*sides[0], *sides[1]]
    for direction in reachable(readings, subterms(*sides[0], *sides[1])):
        try:
            laws.append(rewrite(direction, writer))
            patterns += [direction.source, direction.target]
        except UnencodableError:
            continue
    like = {(constructor(t).name, tuple(a.rank for a in t.args[:2])): t for t in subterms(*patterns) if not t.is_variable}
    lines = [PRELUDE, *(c.declaration() for c in writer.constructors.values())]
    lines += [_shape_rule(t) for t in like.values()]
    lines += [
        egglog_regrouping_rules(name)
        for name in dict.fromkeys(constructor(t).name for t in like.values() if operator(t.op).commutative)
    ]
    distinct = [*dict.fromkeys(laws)]
    rulesets = [f"laws{first}" for first in range(0, len(distinct), PROOF.egglog_law_count)]
    lines += [f"(ruleset {name})" for name in rulesets]
    lines += [f"(rule {law} :ruleset {rulesets[place // PROOF.egglog_law_count]})" for place, law in enumerate(distinct)]
    for name, term in tensors.items():
        lines.append(f'(set (rank (Var "{name}")) {term.rank})')
        lines += [f'(set (dim (Var "{name}") {a}) {term.shape[a]})' for a in range(-term.rank, 0)]
    for side, terms in zip("lr", goals, strict=True):
        lines += [f"(let ${side}{i} {text})" for i, text in enumerate(terms)]
    commands = dict.fromkeys("\n".join(lines).splitlines())
    return _run([command for command in commands if command], len(goals[0]), rulesets, rounds)


def _shape_rule(like: Term) -> str:
    try:
        return egglog_shape_rule(like)
    except (UnencodableError, ShapeError):
        return ""


def _run(commands: Iterable[str], outputs: int, rulesets: Sequence[str], rounds: int) -> Outcome:
    graph = EGraph()
    for command in commands:  # one command at a time, because every node of a parsed program copies the program's whole text
        graph.run_program(*graph.parse_program(command))
    check = "(check " + " ".join(f"(= $l{i} $r{i})" for i in range(outputs)) + ")"
    steps = [f"(run-schedule (saturate (run shapes)) (run {name}))" for name in (*rulesets, "regroup")]
    size, before = _tuples(graph), -1
    for _ in range(rounds):
        if _holds(graph, check):
            return Outcome.JOINED
        if size == before:
            return Outcome.APART
        before = size
        for step in steps:
            try:
                graph.run_program(*graph.parse_program(step))
            except EggSmolError:  # a number is too large for egglog
                return Outcome.LIMIT
            size = _tuples(graph)
            if size > PROOF.max_egglog_rows:
                return Outcome.JOINED if _holds(graph, check) else Outcome.LIMIT
    return Outcome.JOINED if _holds(graph, check) else Outcome.LIMIT


def _holds(graph: EGraph, check: str) -> bool:
    try:
        graph.run_program(*graph.parse_program(check))
    except EggSmolError:
        return False
    return True


def _tuples(graph: EGraph) -> int:
    outputs = graph.run_program(*graph.parse_program("(print-size)"))
    return sum(count for output in outputs if isinstance(output, PrintAllFunctionsSize) for _, count in output.sizes)
