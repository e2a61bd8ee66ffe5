"""Compilation of rules at small sizes to scalar code.

Each output element is compiled separately. The code of both sides is in one program.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from superopt.algebra import index
from superopt.algebra.terms import Sym, Term, attribute_atoms, subterms, variable, variables
from superopt.errors import InstantiationError
from superopt.floating_point.scalars import (
    CONDITIONS,
    POSITIONS,
    Compute,
    Input,
    Instruction,
    LoadInput,
    Program,
    ProgramTooLongError,
    ScalarCode,
    scalar_code_at,
)
from superopt.notation.parsing import Equation
from superopt.policy import FLOATING_POINT
from superopt.rules.instances import Instance, instantiations
from superopt.rules.match import Binding, instantiate
from superopt.rules.rule import Rule


@dataclass(frozen=True, eq=False)
class RuleCase:
    """A rule at fixed ranks and sizes.

    Attributes:
        equation: The rule at these ranks.
        choice: The index of `equation` in the rule's list of equations.
        instance: The shapes of variables and the values of attributes.
        positions: The elements of each variable that holds indices, such as the indices of a gather.
        turned: Whether the right side's sums and products of three or more operands are computed from the last operand to the
            first. Terms keep these operands in an arbitrary order, and a model may use a different order.
    """

    equation: Equation
    choice: int
    instance: Instance
    positions: Mapping[str, tuple[int, ...]]
    turned: bool = False

    @property
    def wide(self) -> bool:
        """Whether the equation has sums or products of three or more operands."""
        terms = subterms(*self.equation.left, *self.equation.right)
        return any(t.op in ("add", "mul") and len(t.args) > 2 for t in terms)

    @property
    def sides(self) -> tuple[list[Term], list[Term]]:
        """The terms of the left side and of the right side at these sizes."""
        tensors = {name: variable(name, shape) for name, shape in self.instance.shapes.items()}
        binding = Binding(tensors, self.instance.attributes)
        return [instantiate(t, binding) for t in self.equation.left], [instantiate(t, binding) for t in self.equation.right]


@dataclass(frozen=True, eq=False)
class ElementPair:
    """The scalar code of one output element of a rule: the code of the left side, and the code of the right side.

    Attributes:
        program: The program that contains the instructions of both sides.
        left: The number of the instruction that computes the left side.
        right: The number of the instruction that computes the right side.
        output: The index of the output.
        element: The position of the element in the output.
        conditions: The names of the boolean variables.
    """

    program: Program
    left: int
    right: int
    output: int
    element: tuple[int, ...]
    conditions: frozenset[str]

    @property
    def identical(self) -> bool:
        """Whether both sides of the rule have the same code for the element, and therefore agree bit for bit on all inputs."""
        return self.left == self.right

    @functools.cached_property
    def numbers(self) -> list[int]:
        """The numbers of the instructions of both sides, in execution order."""
        return self.program.under([self.left, self.right])

    @property
    def code(self) -> list[Instruction]:
        """The instructions of both sides, in execution order."""
        return [self.program.instructions[n] for n in self.numbers]

    @functools.cached_property
    def form(self) -> tuple[object, ...]:
        """The code of both sides, with inputs renumbered by first use. Elements of equal form differ only in their inputs."""
        places = {number: place for place, number in enumerate(self.numbers)}
        names: dict[Input, int] = {}
        found: list[object] = [places[self.left], places[self.right]]
        for instruction in self.code:
            match instruction:
                case LoadInput((name, _) as element):
                    found.append((name in self.conditions, names.setdefault(element, len(names))))
                case Compute(op, operands):
                    found.append((op, *(places[n] for n in operands)))
                case _:
                    found.append(instruction)
        return tuple(found)

    @property
    def inputs(self) -> list[Input]:
        """The elements of variables that either side reads."""
        return [i.element for i in self.code if isinstance(i, LoadInput)]


def rule_cases(
    rule: Rule, rng: np.random.Generator, *, instances: int = FLOATING_POINT.max_rule_instances
) -> Iterator[RuleCase]:
    """Yield the rule at several choices of small sizes. If the rule allows several ranks, the ranks differ too.

    An instance is a choice of sizes and attribute values. Extents are 2 or 3 where possible, because sums and reshapes of a
    single element reveal few differences. Every fifth instance is chosen at random, without any preference. Some of the
    remaining instances have real attributes that are not powers of 2. Other instances have real attributes that are 0, or have
    larger extents.
    """
    count = len(rule.equations)
    taken: list[Instance] = []
    for turn in range(instances):
        choice = turn * (count - 1) // max(instances - 1, 1)
        equation = rule.equations[choice]
        reals = _reals(equation)
        try:
            drawn = list(itertools.islice(instantiations(equation, rng, stubborn=True), FLOATING_POINT.instance_draw_count))
        except InstantiationError:
            continue
        new = [one for one in drawn if one not in taken] or drawn
        best = min(new, key=functools.partial(_awkwardness, reals=reals, turn=turn % 5)) if turn % 5 != 4 else new[0]
        taken.append(best)
        yield RuleCase(equation, choice, best, _looked_up(equation, best, rng))


def _awkwardness(instance: Instance, reals: Collection[str], turn: int) -> tuple[int, float]:
    """Return a sort key of an instance.

    `rule_cases` repeatedly draws several instances and chooses the instance with the smallest key. The first part of the key is
    the number of real attributes that lack a desired property. The property depends on the argument `turn`. If `turn` is 0 or
    2, a real attribute should be neither 0 nor a power of 2. If `turn` is 1, a real attribute should be 0. If `turn` is 3, a
    real attribute should not be positive. The second part of the key is the size of the instance, with a penalty for extents of
    1. If `turn` is 2, extents of 2 have a penalty too.
    """
    extents = [n for shape in instance.shapes.values() for n in shape]
    elements = sum(int(np.prod(shape)) for shape in instance.shapes.values())
    integers = sum(3 * abs(Fraction(str(v))) for n, v in instance.attributes.items() if n not in reals)
    size = elements + float(integers) + 30 * sum(n == 1 for n in extents)
    values = [Fraction(str(instance.attributes[name])) for name in reals]
    exact = sum(not v or bool(np.log2(abs(float(v))) % 1 == 0) for v in values)
    match turn:
        case 0:
            return exact, size
        case 1:
            return sum(bool(v) for v in values), size
        case 2:
            return exact, size + 30 * sum(n == 2 for n in extents)
        case _:
            return sum(v > 0 for v in values), size


def _reals(equation: Equation) -> frozenset[str]:
    """Return the names of the equation's real attribute variables."""
    named = attribute_atoms(*equation.left, *equation.right)
    return frozenset(a.name for a in named if isinstance(a, Sym) and a.real)


def _looked_up(equation: Equation, instance: Instance, rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    names = sorted(_reached(equation, {name: (at,) for name, at in POSITIONS.items()}))
    return {n: tuple(rng.integers(-2, 4, int(np.prod(instance.shapes[n]))).tolist()) for n in names}


def _reached(equation: Equation, operands: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Return the names of the variables that are a listed operand, or become a listed operand by moves such as reshapes.

    `operands` maps each operator to the positions of the listed operands. A move is an operator that only moves elements.
    """
    found: set[str] = set()
    for term in subterms(*equation.left, *equation.right):
        for at in operands.get(term.op, ()):
            found |= {v.name for v in variables(term.args[at]) if _moved(term.args[at])}
    return found


def _moved(term: Term) -> bool:
    return all(t.is_variable or t.op in MOVES for t in subterms(term))


MOVES = frozenset(
    {"concat", "expand", "pad", "repeat", "reshape", "reverse", "slice", "stride", "tile", "transpose", "upsample"}
    | {"logical_and", "logical_not", "logical_or", "zeros", "ones"}
)


def pairs(case: RuleCase, rng: np.random.Generator, *, elements: int = FLOATING_POINT.element_count) -> Iterator[ElementPair]:
    """Yield the scalar code of some output elements of the rule. For each output, equal code is yielded only once.

    Raises:
        ProgramTooLongError: The elements take too many instructions.
    """
    code, left, right = compile_sides(case)
    conditions = frozenset(_reached(case.equation, CONDITIONS))
    for output, (one, other) in enumerate(zip(left, right, strict=True)):
        places = list(np.ndindex(*(int(n) for n in one.shape)))  # type: ignore[arg-type]
        if len(places) > FLOATING_POINT.max_element_positions:
            places = [
                places[i]
                for i in sorted(
                    {0, len(places) - 1, *rng.integers(0, len(places), FLOATING_POINT.max_element_positions - 2).tolist()}
                )
            ]
        forms: set[tuple[object, ...]] = set()
        for place in places:
            here, there = scalar_code_at(one, place).number, scalar_code_at(other, place).number
            pair = ElementPair(code.program, here, there, output, place, conditions)
            if len(forms) < max(elements // len(left), 2) and pair.form not in forms:
                forms.add(pair.form)
                yield pair


def compile_sides(case: RuleCase) -> tuple[ScalarCode, list[index.Tensor], list[index.Tensor]]:
    """Return a tuple: the code of both sides, the tensors of the left side, and the tensors of the right side.

    Reading an element of a tensor emits the instructions that compute the element.
    """
    code = ScalarCode(Program())
    leaves = {}
    for name, shape in case.instance.shapes.items():
        numbers = case.positions.get(name)
        known = dict(zip(np.ndindex(*shape), map(float, numbers), strict=True)) if numbers is not None else None
        leaves[variable(name, shape)] = code.read(name, shape, known)
    left, right = case.sides
    return code, code.tensors(left, leaves, turned=False), code.tensors(right, leaves, turned=case.turned)


def pair_at(case: RuleCase, output: int, element: tuple[int, ...]) -> ElementPair:
    """Compile the element at the position `element` of the output with the index `output`.

    Raises:
        ProgramTooLongError: The element takes too many instructions.
    """
    code, left, right = compile_sides(case)
    conditions = frozenset(_reached(case.equation, CONDITIONS))
    here, there = (scalar_code_at(side[output], element).number for side in (left, right))
    return ElementPair(code.program, here, there, output, element, conditions)


def elements_of(
    rule: Rule, rng: np.random.Generator, *, instances: int = FLOATING_POINT.max_rule_instances
) -> Iterator[tuple[RuleCase, ElementPair]]:
    """Yield the scalar code of output elements of the rule at some sizes. Equal code is yielded only once."""
    met: set[tuple[object, ...]] = set()
    for case in rule_cases(rule, rng, instances=instances):
        for turned in (False, True) if case.wide else (False,):
            one = replace(case, turned=turned)
            try:
                found = list(pairs(one, rng))
            except ProgramTooLongError:
                continue
            for pair in found:
                form = pair.form
                if form not in met:
                    met.add(form)
                    yield one, pair


def flag_search_generator(rule: Rule, seed: int) -> np.random.Generator:
    """Return the random number generator for a search for the flags of a rule.

    The generator depends only on the seed and the rule's text.
    """
    return np.random.default_rng([seed, int(hashlib.sha256(rule.text.encode()).hexdigest()[:12], 16)])
