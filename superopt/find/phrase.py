"""A general equation as text of the notation, at as many ranks and along as many axes as it is true.

Axes are counted from the end and shapes are named (`x.shape`, `(x @ w).shape`), so one text can be read at many ranks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from superopt.choices import equations
from superopt.errors import NotationError, ShapeError
from superopt.graph import Sym, attribute_atoms, operators, show_extent, subterms
from superopt.rule import Rule
from superopt.text import Equation, Statement, read, show, show_condition

Ranks = tuple[tuple[str, tuple[int, ...]], ...]

RANKS = ((1, 2, 3, 4), (2, 3, 4))
AXES = ((-1, -2, -3, -4), (-2, -3, -4))
TUPLES = {"s": 2, "p": 4, "d": 2, "k": 2, "n": 0}
KINDS = ("xyzq", "wv", "u", "n")
GIVEN_SHAPE = frozenset({"expand", "reshape", "zeros", "ones", "eye", "identity_kernel", "mean_kernel"})


class Judge(Protocol):
    """What says which forms of a rule may be true; the proof comes later."""

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Whether sampling finds no difference between the sides of any of them."""

    def completed(self, rule: Rule) -> Rule | None:
        """The rule with every condition that its right side needs; None if there are none that leave all its ranks."""


@dataclass(frozen=True)
class Phrase:
    """Both sides as text, the ranks of the variables and of the tuples of attribute variables, and the conditions."""

    left: str
    right: str
    ranks: Ranks
    where: tuple[str, ...]

    def replaced(self, substitution: Callable[[str], str]) -> Phrase:
        """The phrase with both sides and the conditions put through a substitution."""
        where = tuple(map(substitution, self.where))
        return replace(self, left=substitution(self.left), right=substitution(self.right), where=where)

    @property
    def statement(self) -> Statement:
        """The phrase as a nameless rule, not yet read."""
        return Statement("", self.left, "=>", self.right, self.ranks, self.where)

    def rule(self) -> Rule | None:
        """The rule read from the text, or None if it cannot be read at any choice of ranks."""
        try:
            return Rule("", self.statement, tuple(equations(self.statement)))
        except (NotationError, ShapeError):
            return None


def phrase(equation: Equation) -> Phrase:
    """The equation in the notation, shapes and tuples of attribute variables by their names where they have one."""
    parts = getattr(equation.where, "parts", () if equation.where is True else (equation.where,))
    where = tuple(show_condition(c) for c in parts)
    plain = Phrase(show(*equation.left), show(*equation.right), tuple((v, (rank,)) for v, rank in equation.ranks), where)
    for shape, name in _named_shapes(equation):
        plain = plain.replaced(lambda text, shape=shape, name=name: text.replace(shape, name))  # type: ignore[misc]
    return _with_tuples(plain, equation)


def _named_shapes(equation: Equation) -> Iterator[tuple[str, str]]:
    """Shapes as they are printed, and the terms they may be named after: variables first, then small terms."""
    terms = sorted(
        (
            t
            for t in subterms(*equation.left, *equation.right)
            if t.rank > 1 and not any(p.op in GIVEN_SHAPE for p in subterms(t))
        ),
        key=operators,
    )
    for term in terms:
        text = f"shape=({', '.join(map(show_extent, term.shape))})"
        name = term.name if term.is_variable else f"({show(term)})"
        yield text, f"shape={name}.shape"


def _with_tuples(plain: Phrase, equation: Equation) -> Phrase:
    """The phrase with `(s0, s1)` written `s` and `s[2]` declared, for every such tuple."""
    names = {a.name for a in attribute_atoms(*equation.left, *equation.right) if isinstance(a, Sym)}
    taken = {v for v, _ in plain.ranks}
    for stem, length in TUPLES.items():
        count = length or sum(1 for n in names if re.fullmatch(rf"{stem}\d", n))
        listed = "(" + ", ".join(f"{stem}{i}" for i in range(count)) + ")"
        if count > 1 and stem not in taken | names and {f"{stem}{i}" for i in range(count)} <= names and listed in plain.left:
            plain = replace(
                plain.replaced(lambda text, listed=listed, stem=stem: text.replace(f"={listed}", f"={stem}")),  # type: ignore[misc]
                ranks=(*plain.ranks, (stem, (count,))),
            )
    return plain


def written(equation: Equation) -> Rule | None:
    """The rule at the equation's own ranks, or None if it cannot be written down."""
    return phrase(equation).rule()


# ---------------------------------------------------------------- more ranks, more axes


def widest(equation: Equation, judge: Judge) -> Iterator[Rule]:
    """The rule at every rank of its matrices, and along every axis, at which it may be true; then at its own alone."""
    narrow = phrase(equation)
    rule = narrow.rule()
    if rule is None:
        return
    complete = judge.completed(rule)
    explicit = complete.statement.where if complete is not None else narrow.where
    for where in dict.fromkeys([narrow.where, explicit]):
        wide = next(filter(None, (_accepted(w, judge) for w in _wider(replace(narrow, where=where)))), None)
        if wide is not None:
            yield wide
            break
    yield rule


def _wider(narrow: Phrase) -> Iterator[Phrase]:
    for turned in _turned(narrow):
        for wide in _ranked(turned):
            if wide != narrow:
                yield wide


def _accepted(wide: Phrase, judge: Judge) -> Rule | None:
    rule = wide.rule()
    if rule is None or not _reaches(rule, wide) or not judge.plausible(rule.equations) or judge.completed(rule) is None:
        return None
    return rule


def _turned(narrow: Phrase) -> Iterator[Phrase]:
    """The phrase with its axes as variables, then as it is."""
    literal = sorted(
        {int(a) for a in re.findall(r"axis=(-\d)|axes=\((-\d),\)", f"{narrow.left} {narrow.right}") for a in a if a}
    )
    if literal and not re.search(r"perm=|@|reshape", narrow.left + narrow.right):
        names = dict(zip(literal, "kj", strict=False))
        different = ("j != k",) if len(names) == 2 else ()
        for axes, shapes in itertools.product(AXES, (True, False)):
            turned = narrow
            for axis, variable in names.items():
                turned = turned.replaced(lambda text, a=axis, v=variable, s=shapes: _axis_named(text, a, v, s))  # type: ignore[misc]
            yield replace(
                turned,
                ranks=(*narrow.ranks, *((v, axes) for v in names.values())),
                where=(*narrow.where, *different),
            )
    yield narrow


def _axis_named(text: str, axis: int, variable: str, shapes: bool) -> str:
    text = text.replace(f"axis={axis}", f"axis={variable}").replace(f"axes=({axis},)", f"axes=({variable},)")
    return text.replace(f".shape[{axis}]", f".shape[{variable}]") if shapes else text


def _ranked(narrow: Phrase) -> Iterator[Phrase]:
    """The phrase with ever fewer of its matrices (and of its shapes) at more ranks; at last none.

    Activations go together, and so do weights that are of one kind.
    """
    matrices = [v for v, ranks in narrow.ranks if ranks == (2,) and (v == "n" or v not in TUPLES)]
    kinds = [kind for row in KINDS if (kind := [v for v in matrices if v in row])]
    for count in range(len(kinds), 0, -1):
        for some in itertools.combinations(kinds, count):
            chosen = [v for kind in some for v in kind]
            for ranks in RANKS:
                if all(_typed_at(narrow, chosen, rank) for rank in ranks):
                    yield replace(narrow, ranks=tuple((v, ranks if v in chosen else old) for v, old in narrow.ranks))
    yield narrow


def _typed_at(narrow: Phrase, chosen: Sequence[str], rank: int) -> bool:
    """Whether the phrase can be read with all of the chosen variables at this rank, all others at their first."""
    try:
        read(narrow.statement, {v: rank if v in chosen else ranks[0] for v, ranks in narrow.ranks})
    except (NotationError, ShapeError):
        return False
    return True


def _reaches(rule: Rule, wide: Phrase) -> bool:
    """Whether each variable occurs at every rank, and each axis variable at every axis, in some well-typed reading."""
    reached = {(v, rank) for e in rule.equations for v, rank in e.ranks}
    return all((v, rank) in reached for v, ranks in wide.ranks for rank in ranks)


def backwards(rule: Rule) -> Rule:
    """The rule from right to left, without the conditions on extents: those are for the new left side to ask."""
    old = rule.statement
    where = tuple(c for c in old.where if ".shape" not in c)
    return Rule("", replace(old, left=old.right, right=old.left, where=where), tuple(_turned_round(rule, where)))


def _turned_round(rule: Rule, where: tuple[str, ...]) -> list[Equation]:
    old = rule.statement
    return equations(replace(old, left=old.right, right=old.left, where=where))
