"""Write equations in the rule notation, and generalise each equation to all ranks and axes at which the equation holds.

Axes are counted from the end, and shapes are written as names (`x.shape`, `(x @ w).shape`). The same text can therefore be read
at many ranks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from superopt.algebra.operators import operator
from superopt.algebra.terms import Sym, attribute_atoms, operator_count, show_extent, subterms
from superopt.discovery.rule_conditions import ConditionJudge
from superopt.errors import NotationError, ShapeError
from superopt.notation.parsing import Equation, Statement, equation_at_ranks, render_condition, render_terms
from superopt.notation.rank_instances import equations
from superopt.policy import DISCOVERY
from superopt.rules.rule import Rule

Ranks = tuple[tuple[str, tuple[int, ...]], ...]

Kinds = tuple[tuple[str, ...], ...]

RANKS = ((1, 2, 3, 4), (2, 3, 4), (3, 4))
AXES = ((-1, -2, -3, -4), (-2, -3, -4), (-3, -4))
AXIS_NAMES = "kjihlm"


@dataclass(frozen=True)
class Phrase:
    """An equation as text of the rule notation.

    Attributes:
        left: the left side.
        right: the right side.
        ranks: the possible ranks of each variable, and the possible lengths of each tuple of attribute variables.
        where: the conditions.
        fixed: the names of the tuples whose length is determined by an operator. Every other tuple is a shape.
    """

    left: str
    right: str
    ranks: Ranks
    where: tuple[str, ...]
    fixed: frozenset[str] = frozenset()

    def replaced(self, substitution: Callable[[str], str]) -> Phrase:
        """Return the equation with the text substitution applied to both sides and the conditions."""
        where = tuple(map(substitution, self.where))
        return replace(self, left=substitution(self.left), right=substitution(self.right), where=where)

    @property
    def statement(self) -> Statement:
        """The equation as a rule statement with an empty name. The sides are not parsed yet."""
        return Statement("", self.left, "=>", self.right, self.ranks, self.where)

    def rule(self) -> Rule | None:
        """Parse the equation and return the rule. Return None if the rule is ill typed at every choice of ranks."""
        try:
            return Rule("", self.statement, tuple(equations(self.statement)))
        except (NotationError, ShapeError):
            return None


def phrase(equation: Equation) -> Phrase:
    """Return the equation as text of the rule notation. Shapes and tuples of attribute variables are written as names where
    possible.
    """
    parts = getattr(equation.where, "parts", () if equation.where is True else (equation.where,))
    where = tuple(render_condition(c) for c in parts)
    plain = Phrase(
        render_terms(*equation.left), render_terms(*equation.right), tuple((v, (rank,)) for v, rank in equation.ranks), where
    )
    for shape, name in _named_shapes(equation):
        plain = plain.replaced(lambda text, shape=shape, name=name: text.replace(shape, name))  # type: ignore[misc]
    return _with_tuples(plain, equation)


def _named_shapes(equation: Equation) -> Iterator[tuple[str, str]]:
    """Yield pairs of a text and a shorter text for the shape of a term.

    An example is `shape=(x.shape[-2], x.shape[-1])` and `shape=x.shape`. Variables come first, then small terms. Terms whose
    shape is an attribute are left out.
    """
    terms = sorted(
        (
            t
            for t in subterms(*equation.left, *equation.right)
            if t.rank > 1 and not any(not p.is_variable and operator(p.op).told_shape for p in subterms(t))
        ),
        key=operator_count,
    )
    for term in terms:
        text = f"shape=({', '.join(map(show_extent, term.shape))})"
        name = term.name if term.is_variable else f"({render_terms(term)})"
        yield text, f"shape={name}.shape"


def _with_tuples(plain: Phrase, equation: Equation) -> Phrase:
    """Replace each tuple of attribute variables by one name.

    For example, `(s0, s1)` becomes `s`, which is declared as `s[2]`.
    """
    names = {a.name for a in attribute_atoms(*equation.left, *equation.right) if isinstance(a, Sym)}
    taken = {v for v, _ in plain.ranks} | names
    for stem in sorted({match[1] for n in names if (match := re.fullmatch(r"(.*\D)\d", n))}):
        count = sum(1 for n in names if re.fullmatch(rf"{stem}\d", n))
        listed = "(" + ", ".join(f"{stem}{i}" for i in range(count)) + ")"
        if count > 1 and stem not in taken and {f"{stem}{i}" for i in range(count)} <= names and f"={listed}" in plain.left:
            shape = f"shape={listed}" in plain.left
            plain = replace(
                plain.replaced(lambda text, listed=listed, stem=stem: text.replace(f"={listed}", f"={stem}")),  # type: ignore[misc]
                ranks=(*plain.ranks, (stem, (count,))),
                fixed=plain.fixed if shape else plain.fixed | {stem},
            )
    return plain


def phrase_equation_as_rule(equation: Equation) -> Rule | None:
    """Return a rule that states the equation at the ranks that its variables have.

    Returns None if the equation cannot be written in the rule notation.
    """
    return phrase(equation).rule()


# ---------------------------------------------------------------- more ranks, more axes


def generalise_ranks(equation: Equation, judge: ConditionJudge, kinds: Kinds = ()) -> Iterator[Rule]:
    """Yield a rule that covers as many ranks and axes as the judge's tests allow, followed by a rule for fixed ranks.

    The fixed ranks are the ranks of the variables in `equation`. Variables in the same tuple of `kinds` have the same rank.
    """
    narrow = phrase(equation)
    rule = narrow.rule()
    if rule is None:
        return
    complete = judge.completed(rule)
    explicit = complete.statement.where if complete is not None else narrow.where
    forms = [replace(narrow, where=where) for where in dict.fromkeys([narrow.where, _aligned(narrow, explicit), explicit])]
    turned = itertools.chain.from_iterable(_turned(form, judge, _equalities(complete)) for form in forms)
    wider = (wide for some in itertools.chain(turned, forms) for wide in _ranked(some, kinds) if wide not in forms)
    wide = next(filter(None, (_accepted(w, judge) for w in wider)), None)
    if wide is not None:
        yield wide
    yield rule


def _aligned(narrow: Phrase, where: Sequence[str]) -> tuple[str, ...]:
    """Rewrite the conditions `where` of the equation `narrow`, so that the new conditions can be read at other ranks.

    A condition is widened in one case. The condition states that two variables have equal sizes along an axis a, and all
    concatenations on the right side are along one axis b other than a. The widened condition requires that the two variables
    have equal sizes along all axes except b. All other conditions stay unchanged.
    """
    joined = set(re.findall(r"concat\([^=]*axis=(-\d)", narrow.right))
    axis = min(joined) if len(joined) == 1 else ""
    return tuple(dict.fromkeys(_agreeing(condition, axis) for condition in where))


def _agreeing(condition: str, axis: str) -> str:
    agrees = re.fullmatch(r"(\w+)\.shape\[(-\d)\] == (\w+)\.shape\[\2\]", condition)
    if agrees is None or not axis or agrees[2] == axis:
        return condition
    return " == ".join(f"{v}.shape[others({v}, {axis})]" for v in sorted(agrees.group(1, 3)))


def _accepted(wide: Phrase, judge: ConditionJudge) -> Rule | None:
    rule = wide.rule()
    if rule is None or not _reaches(rule, wide) or not judge.plausible(rule.equations) or judge.completed(rule) is None:
        return None
    return rule


def _equalities(rule: Rule | None) -> int:
    """Return how many of the rule's conditions are equalities. Return 0 if `rule` is None."""
    return sum(" == " in condition for condition in rule.statement.where) if rule is not None else 0


def _turned(narrow: Phrase, judge: ConditionJudge, equalities: int) -> Iterator[Phrase]:
    """Yield the equation `narrow` with its axes replaced by axis variables.

    An axis variable stands for any axis in one of the tuples in `AXES`. Equations with a longer tuple come first.

    If there are two axes, a variable k may replace only the first or only the second axis. The remaining axis is then replaced
    by `others(E, k)`, which means all axes of a term E except k. A yielded equation passes random tests at the ranks in
    `narrow`, for every choice of axes at which the equation is well typed. For each of these choices, the equation needs at
    most `equalities` equality conditions.
    """
    literal = sorted({int(a) for a in re.findall(r"axis=(-\d)|axes=\((-\d),\)", narrow.left + narrow.right) for a in a if a})
    words = set(re.findall(r"\w+", " ".join((narrow.left, narrow.right, *narrow.where)))) | {v for v, _ in narrow.ranks}
    names = [name for name in AXIS_NAMES if name not in words]
    for axes, shapes in itertools.product(AXES, (True, False)) if 0 < len(literal) <= 2 <= len(names) else ():
        for turned in _namings(narrow, literal, names, shapes=shapes):
            used = [name for name in names[:2] if re.search(rf"\b{name}\b", f"{turned.left} {turned.right}")]
            wide = replace(turned, ranks=(*turned.ranks, *((name, axes) for name in used)))
            if _turns(wide, used, judge, equalities):
                yield wide


def _namings(narrow: Phrase, literal: Sequence[int], names: Sequence[str], *, shapes: bool) -> Iterator[Phrase]:
    """Yield the equation with the axes in `literal` replaced by the variables in `names`.

    If `shapes` is True, axes in sizes such as `x.shape[-1]` are replaced too. If there are two axes, the first equations have
    only one axis variable k. The remaining axis is replaced by `others(E, k)`, which means all axes of a term E except k.
    """
    for axis, other in ((literal[0], literal[-1]), (literal[-1], literal[0])) if len(literal) == 2 else ():
        apart = [_apart(text, other, names[0]) for text in (narrow.left, narrow.right)]
        if None not in apart:
            left, right = (str(text) for text in apart)
            yield replace(narrow, left=left, right=right).replaced(lambda t, a=axis: _axis_named(t, a, names[0], shapes))  # type: ignore[misc]
    turned = narrow
    for axis, variable in zip(literal, names, strict=False):
        turned = turned.replaced(lambda t, a=axis, v=variable: _axis_named(t, a, v, shapes))  # type: ignore[misc]
    yield replace(turned, where=(*turned.where, *((f"{names[1]} != {names[0]}",) if len(literal) == 2 else ())))


def _axis_named(text: str, axis: int, variable: str, shapes: bool) -> str:
    text = text.replace(f"axis={axis}", f"axis={variable}").replace(f"axes=({axis},)", f"axes=({variable},)")
    text = re.sub(rf"others\((\w+), {axis}\)", rf"others(\1, {variable})", text)
    return text.replace(f".shape[{axis}]", f".shape[{variable}]") if shapes else text


def _apart(text: str, axis: int, variable: str) -> str | None:
    """Replace `shape=E.shape, axes=(axis,)` by `shape=E.shape, axes=others(E, k)` in the text, for every expression E.

    `others(E, k)` means all axes of E except k. `variable` is the name k of the excluded axis. Returns None if `axis` also
    occurs elsewhere in the text.
    """
    written = f".shape, axes=({axis},)"
    while (at := text.find(written)) >= 0:
        start = _operand(text, at)
        if text[:start][-6:] != "shape=":
            return None
        text = f"{text[:at]}.shape, axes=others({text[start:at]}, {variable}){text[at + len(written) :]}"
    return None if f"={axis}" in text or f"axes=({axis},)" in text else text


def _operand(text: str, end: int) -> int:
    """Return the start position of the name or parenthesised expression that ends at the position `end` of `text`."""
    depth, start = 0, end
    while start > 0 and (depth or re.fullmatch(r"[\w)]", text[start - 1])):
        start -= 1
        depth += (text[start] == ")") - (text[start] == "(")
        if depth == 0 and text[start] == "(":
            break
    return start


def _turns(turned: Phrase, names: Sequence[str], judge: ConditionJudge, equalities: int) -> bool:
    """Return whether the equation passes random tests for every choice of axes at which the equation is well typed.

    The first possible rank of each variable is used. At least one choice must be well typed. The result is False if a choice of
    axes needs more than `equalities` equality conditions, because a rule with more conditions would rarely match.
    """
    own = {v: ranks[0] for v, ranks in turned.ranks if v not in names}
    typed = False
    for choice in itertools.product(*(choices for v, choices in turned.ranks if v in names)):
        try:
            equation = equation_at_ranks(turned.statement, {**own, **dict(zip(names, choice, strict=True))})
        except (NotationError, ShapeError):
            continue
        rule = phrase_equation_as_rule(equation)
        if not judge.plausible([equation]) or rule is None or _equalities(judge.completed(rule)) > equalities:
            return False
        typed = True
    return typed


def _ranked(narrow: Phrase, kinds: Kinds) -> Iterator[Phrase]:
    """Yield the equation `narrow` with more possible ranks for some tensors and shapes, and finally the unchanged equation.

    Tensors and shapes that have the same rank in `narrow` form a group. In the first equations, all members of a group get the
    same additional ranks. In later equations, fewer and fewer members of the group get additional ranks. Tensors of one group
    that are in the same tuple of `kinds` always get the additional ranks together.
    """
    native = {v: ranks[0] for v, ranks in narrow.ranks if len(ranks) == 1 and ranks[0] > 1 and v not in narrow.fixed}
    known = {v for kind in kinds for v in kind}
    rows = [*kinds, *((v,) for v in native if v not in known)]
    for rank in sorted(set(native.values())):
        groups = [group for row in rows if (group := [v for v in row if native.get(v) == rank])]
        for count in range(len(groups), 0, -1):
            for some in itertools.combinations(groups, count):
                chosen = [v for group in some for v in group]
                for ranks in RANKS:
                    if rank in ranks and all(_typed_at(narrow, chosen, r) for r in ranks):
                        yield replace(narrow, ranks=tuple((v, ranks if v in chosen else old) for v, old in narrow.ranks))
    yield narrow


def _typed_at(narrow: Phrase, chosen: Sequence[str], rank: int) -> bool:
    """Return whether the equation is well typed if all variables in `chosen` have rank `rank`.

    Each remaining variable can have any rank that `narrow` lists for it.
    """
    others = [(v, ranks) for v, ranks in narrow.ranks if v not in chosen]
    for choice in itertools.islice(itertools.product(*(ranks for _, ranks in others)), DISCOVERY.max_rank_choices):
        try:
            equation_at_ranks(
                narrow.statement, {**dict.fromkeys(chosen, rank), **dict(zip((v for v, _ in others), choice, strict=True))}
            )
        except (NotationError, ShapeError):
            continue
        return True
    return False


def _reaches(rule: Rule, wide: Phrase) -> bool:
    """Return whether the rule is well typed at each rank of every variable and for each axis of every axis variable in
    `wide`.
    """
    reached = {(v, rank) for e in rule.equations for v, rank in e.ranks}
    return all((v, rank) in reached for v, ranks in wide.ranks for rank in ranks)


def phrase_converse(rule: Rule, *, anew: bool = True) -> Rule:
    """Return the rule that rewrites the right side of `rule` to its left side.

    If `anew` is True, the conditions on shapes are left out. The caller then adds the conditions that the new rule needs.
    """
    old = rule.statement
    where = tuple(c for c in old.where if ".shape" not in c) if anew else old.where
    turned = replace(old, left=old.right, right=old.left, where=where)
    return Rule("", turned, tuple(equations(turned)))
