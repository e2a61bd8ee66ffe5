"""Rules and axioms: statements in the rule notation, parsed at every combination of ranks at which they are well typed."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from superopt.algebra.operators import Operator, apply, registry
from superopt.algebra.terms import Term, intern_term, subterms, variable
from superopt.errors import NotationError
from superopt.notation.parsing import Equation, Statement, parse_statement
from superopt.notation.rank_instances import equations
from superopt.rules.fp_flags import ALL_FLAGS, FpFlag
from superopt.rules.signature import statement_signature_operators

REGROUP = "regroup"
RANKS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Rule:
    """A rewrite `left => right` or an axiom `left == right`.

    Attributes:
        name: The name.
        statement: The text of the rule, split into its parts.
        given: The equations, if the statement is already parsed. Otherwise, the statement is parsed when its equations are
            first requested.
        flags: The floating-point flags that the rule needs, or all flags if the needed flags were not determined.
        family: The name of the file that stores the rule, or the empty string if the rule is not stored.
    """

    name: str
    statement: Statement
    given: tuple[Equation, ...] | None = field(default=None, compare=False, repr=False)
    flags: frozenset[FpFlag] = field(default=ALL_FLAGS, compare=False, repr=False)
    family: str = field(default="", compare=False, repr=False)

    @functools.cached_property
    def equations(self) -> tuple[Equation, ...]:
        """The rule, parsed at every combination of its variables' ranks at which the rule is well typed.

        Raises:
            NotationError: The rule is not valid notation, or is well typed at no combination.
        """
        return tuple(equations(self.statement)) if self.given is None else self.given

    @functools.cached_property
    def text(self) -> str:
        """The canonical text of the rule without its name. Proofs are stored under a hash of this text."""
        return str(self.statement)

    @property
    def choices(self) -> tuple[str, ...]:
        """The combinations of ranks, axes and tuple lengths at which the rule is well typed, as texts such as "x[2] k[-1]"."""
        return tuple(" ".join(f"{name}[{rank}]" for name, rank in e.ranks) for e in self.equations)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the left side, followed by the terms of the right side, at the first combination of ranks."""
        first = self.equations[0]
        return first.left + first.right

    @functools.cached_property
    def operators(self) -> tuple[str, ...]:
        """The names of the operators in the rule, sorted.

        Raises:
            NotationError: The rule is not valid notation.
        """
        if self.given is None:
            return statement_signature_operators(self.statement)
        return tuple(sorted({t.op for t in subterms(*self.terms) if not t.is_variable}))

    def __str__(self) -> str:
        return f"{self.name}: {self.statement}"


def parse_rule(line: str) -> Rule:
    """Parse a line `name: left => right for ranks where conditions`.

    Raises:
        NotationError: The line is not valid notation, has no name, or is well typed at no combination of ranks.
    """
    rule = _stated(line)
    return replace(rule, given=rule.equations)


def parse_rules(text: str) -> list[Rule]:
    """Parse the rules of a file. Each line contains one rule. A long rule can be wrapped. `#` starts a comment line.

    Raises:
        NotationError: A line is not a valid rule, or two rules have the same name.
    """
    return [replace(rule, given=rule.equations) for rule in stated_rules(text)]


def stated_rules(text: str) -> list[Rule]:
    """Return the rules of a file, like `parse_rules`. The terms of a rule are parsed only when the rule's equations are
    requested.

    Raises:
        NotationError: A line does not have the form of a rule, or two rules have the same name.
    """
    rules = [_stated(line) for line in _joined(text.splitlines())]
    for name, count in Counter(rule.name for rule in rules).items():
        if count > 1:
            raise NotationError(f"two rules are called {name}")
    return rules


def _stated(line: str) -> Rule:
    statement = parse_statement(line)
    if not statement.name:
        raise NotationError(f"a rule needs a name: {line.strip()}")
    return Rule(statement.name, statement)


def _joined(lines: Iterable[str]) -> list[str]:
    joined: list[str] = []
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if re.match(r"\s*[a-z0-9][a-z0-9-]*\s*:(\s|$)", line) or not joined:
            joined.append(line.strip())
        else:
            joined[-1] += " " + line.strip()
    return joined


@functools.cache
def axioms() -> Mapping[str, Rule]:
    """Return a mapping from the full name `operator.name` of every axiom in specs/ to the axiom."""
    return {
        f"{spec.name}.{rule.name}": replace(rule, name=f"{spec.name}.{rule.name}")
        for spec in registry().values()
        for rule in stated_rules(spec.axioms)
    }


@functools.cache
def axiom_laws() -> Mapping[str, Rule]:
    """Return a mapping from full names to rules: the axioms in specs/ and the laws of commutative operators.

    Proofs may use these rules. For each commutative operator, a law states its commutativity and associativity.
    """
    return {**axioms(), **{f"{name}.{REGROUP}": _regrouping(spec) for name, spec in registry().items() if spec.commutative}}


@functools.cache
def axiom_law_names() -> frozenset[str]:
    """Return the names of all `axiom_laws`, without parsing the laws."""
    specs = registry().values()
    stated = {f"{spec.name}.{line.partition(':')[0].strip()}" for spec in specs for line in _joined(spec.axioms.splitlines())}
    return frozenset(stated | {f"{spec.name}.{REGROUP}" for spec in specs if spec.commutative})


def _regrouping(spec: Operator) -> Rule:
    """Return the rule that states that the operator is commutative and associative.

    The rule's terms keep the nesting and order of their operands. In all other terms, nested applications of a commutative
    operator are flattened, and its operands are sorted.
    """
    stated = Statement(f"{spec.name}.{REGROUP}", "(x, y, z) grouped one way", "==", "the other way", (("x", RANKS),), ())
    found: list[Equation] = []
    for rank in RANKS:
        x, y, z = (variable(name, rank) for name in "xyz")
        three = apply(spec.name, x, y, z)

        def nested(one: Term, other: Term, like: Term = three) -> Term:
            if one.is_variable and other.is_variable:
                like = apply(spec.name, one, other)
            return intern_term(spec.name, (one, other), (), like.shape, like.requires)

        ranks = tuple((v.name, rank) for v in (x, y, z))
        sides = [(nested(x, y), nested(y, x)), (nested(nested(x, y), z), nested(x, nested(y, z)))]
        found += [Equation((left,), (right,), where=True, ranks=ranks) for left, right in sides]
    return Rule(stated.name, stated, tuple(found))


def digest(rule: Rule) -> str:
    """Return a hash of the rule's text and of its operators' definitions and axioms. Proofs are stored under this hash."""
    parts = [rule.text, *(f"{name}={registry()[name].digest}" for name in rule.operators)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
