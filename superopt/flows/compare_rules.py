"""Comparison of a file of rules with another set of rules: which rules of each set follow from the other set, and how.

Every rule of the file gets a result. A rule with a counterexample on random instances is wrong, and nothing is derived from a
wrong rule. A rule that follows from the other set is tested too, but on fewer random instances. Each rule is restricted to
ranks and sizes at which both of its sides are well typed. The conditions that express this restriction are printed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from superopt.algebra.terms import subterms, variables
from superopt.errors import NotationError, SuperoptError
from superopt.notation.parsing import Equation, parse_statement
from superopt.policy import PROOF, REPORT, RULE
from superopt.proof.axioms.saturate import SaturationLimits
from superopt.proof.derivation.chain import Chain, ChainStep
from superopt.proof.derivation.derive import LIMITS, Laws, derivations, restrict_to_typed
from superopt.proof.sample import refute_rule
from superopt.proof.verify import prove_rule
from superopt.rules.rule import Rule, axioms
from superopt.rules.store import load
from superopt.rules.verdict import Counterexample, Proved
from superopt.runtime.cache import Json

ASKED = SaturationLimits(PROOF.max_requested_rounds, PROOF.max_requested_terms, PROOF.max_requested_steps, LIMITS.growth)
"""Limits of a search for a derivation that a user requests.

The search that decides whether a rule leaves the core (the minimal rule set) has smaller limits (`LIMITS`).
"""

FOLLOWS = "follows"
PARTLY = "follows in part"
NOTATION = "same term"
CONSTANT = "constant"
OPEN = "not derived"
WRONG = "wrong"
UNREADABLE = "unreadable"

NAMED = re.compile(r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)\s*:(?=\s|$)(?P<rest>.*)$", re.DOTALL)
MALFORMED = (SuperoptError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Line:
    """A rule of a file: a name, the text, and the parsed rule or the reason why the text cannot be read.

    If a rule has no name in the file, the rule is named after its position, as in `rule-3`.
    """

    name: str
    text: str
    rule: Rule | None
    why: str = ""


@dataclass(frozen=True)
class Finding:
    """The result for one equality of a file of rules: whether the equality follows from other rules, and how.

    Attributes:
        added: The conditions that were added so that both sides are well typed.
        proof: For an equality that was not derived, a text that says whether the prover proved the equality.
    """

    name: str
    text: str
    word: str
    chains: tuple[Chain, ...] = ()
    counterexample: Counterexample | None = None
    added: tuple[str, ...] = ()
    why: str = ""
    proof: str = ""

    @property
    def chain(self) -> Chain | None:
        """The first derivation of this equality in the order of the choices of ranks, or None if there is no derivation."""
        return self.chains[0] if self.chains else None

    def lines(self, *, chains: bool = True) -> Iterator[str]:
        """Yield the finding as lines of text. The first line has the name and the result."""
        match self.word:
            case "follows":
                by = ", ".join(dict.fromkeys(r for c in self.chains for r in c.rules))
                yield f"{self.name}: follows, by {by}"
            case "follows in part":
                by = ", ".join(dict.fromkeys(r for c in self.chains for r in c.rules))
                yield f"{self.name}: follows in part, {self.why}, by {by or 'notation'}"
            case "same term":
                yield f"{self.name}: follows, both sides are the same term"
            case "constant":
                yield f"{self.name}: follows, both sides are constants and computed ({self.proof})"
            case "wrong":
                yield f"{self.name}: wrong: {self.counterexample}"
            case "not derived":
                yield f"{self.name}: not derived{f' ({self.proof})' if self.proof else ''}"
            case _:
                yield f"{self.name}: unreadable: {self.why}"
        if self.added:
            yield f"    where {', '.join(self.added)}"
        if chains and self.chain is not None and self.word in (FOLLOWS, PARTLY):
            yield from (f"    {line}" for line in self.chain.lines())

    def record(self) -> dict[str, Json]:
        """Return the finding as a JSON object."""
        shown: list[Json] = [
            {"ranks": dict(c.ranks), "outputs": [_output(*output) for output in c.outputs]} for c in self.chains
        ]
        return {
            "name": self.name,
            "rule": self.text,
            "result": self.word,
            "conditions": list(self.added),
            "counterexample": None if self.counterexample is None else str(self.counterexample),
            "reason": self.why,
            "proof": self.proof,
            "chains": shown,
        }


def _output(start: str, steps: Sequence[ChainStep]) -> dict[str, Json]:
    return {"start": start, "steps": [{"rule": s.instance, "forwards": s.forwards, "term": s.term} for s in steps]}


@dataclass(frozen=True)
class FileComparison:
    """The result of a comparison of a file of rules with another set of rules.

    Attributes:
        theirs: The result for each equality of the file: whether the equality follows from the set.
        ours: The result for each equality of the set: whether the equality follows from the file.
    """

    theirs: tuple[Finding, ...]
    ours: tuple[Finding, ...] = field(default=())

    @property
    def unreadable(self) -> tuple[Finding, ...]:
        """The results for the lines of the compared file that could not be read."""
        return tuple(f for f in self.theirs if f.word == UNREADABLE)

    def totals(self) -> Mapping[str, int]:
        """Return a mapping from each result, such as "wrong", to the count of the file's equalities with this result."""
        counts = Counter(f.word for f in self.theirs)
        return {word: counts[word] for word in (FOLLOWS, NOTATION, CONSTANT, PARTLY, OPEN, WRONG, UNREADABLE)}

    def ours_following(self, *, partly: bool = False) -> int:
        """Return how many of the equalities in `ours` follow from the file.

        If `partly` is True, count only the equalities that follow at some choices of ranks but not at all choices.
        """
        return sum(f.word == PARTLY if partly else f.word in (FOLLOWS, NOTATION, CONSTANT) for f in self.ours)

    def record(self) -> dict[str, Json]:
        """Return the comparison as a JSON object."""
        return {
            "totals": {**self.totals(), "rules": len(self.theirs)},
            "ours": {"rules": len(self.ours), "follow": self.ours_following(), "in part": self.ours_following(partly=True)},
            "from_ours": [f.record() for f in self.theirs],
            "from_theirs": [f.record() for f in self.ours],
        }


# ---------------------------------------------------------------- reading


def read_rules_to_derive(path: Path) -> list[Line]:
    """Return every rule of a file, including rules that cannot be parsed. A rule starts at a name or at an unindented line.

    Raises:
        NotationError: The file cannot be read as text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotationError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    taken: Counter[str] = Counter()
    found: list[Line] = []
    for position, stated in enumerate(split_rules_to_derive(text)):
        named = NAMED.match(stated)
        name = re.sub(r"[^a-z0-9]+", "-", named["name"].lower()).strip("-") if named else f"rule-{position + 1}"
        taken[name] += 1
        name = name if taken[name] == 1 else f"{name}-{taken[name]}"
        found.append(_line(name, (named["rest"] if named else stated).strip()))
    return found


def split_rules_to_derive(text: str) -> list[str]:
    """Split the text of a rule file into statements, one for each rule. Comments and empty lines end a statement."""
    found: list[str] = []
    fresh = True
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            fresh = True
        elif fresh or NAMED.match(line) or not line[0].isspace():
            found.append(line.strip())
            fresh = False
        else:
            found[-1] += " " + line.strip()
    return found


def _line(name: str, text: str) -> Line:
    try:
        statement = parse_statement(f"{name}: {text}")
        if statement.arrow not in ("=>", "=="):
            raise NotationError(f"the arrow of a rule must be => or ==, not {statement.arrow}")
        rule = Rule(name, statement)
        return Line(name, text, replace(rule, given=rule.equations))
    except MALFORMED as error:
        why = " ".join(str(error).split()) or type(error).__name__
        return Line(name, text, None, why.removeprefix(f"{name}: "))


# ---------------------------------------------------------------- comparing


def compare_rules(
    lines: Sequence[Line],
    rules: Sequence[Rule],
    *,
    backwards: Sequence[Rule] = (),
    notation: Sequence[Rule] = (),
    seed: int = 0,
    progress: Callable[[Finding], None] = lambda _: None,
) -> FileComparison:
    """Derive the rules of a file from `rules`, and derive the rules in `backwards` from the rules of the file.

    `lines` contains the rules of the file. If a counterexample to one of these rules is found, nothing is derived from this
    rule. All derivations may also use the rules in `notation`, such as definitions of operators by other operators.
    """
    laws = Laws([*rules, *notation])
    theirs: list[Finding] = []
    sound: list[Rule] = []
    for line in lines:
        finding, rule = examine_line(line, laws, seed)
        theirs.append(finding)
        progress(finding)
        if rule is not None and finding.word != WRONG:
            sound.append(rule)
    given = Laws([*sound, *notation])
    ours: list[Finding] = []
    for rule in backwards:
        ours.append(_derived(rule.name, str(rule.statement), rule, given, ()))
        progress(ours[-1])
    return FileComparison(tuple(theirs), tuple(ours))


def examine_line(line: Line, laws: Laws, seed: int) -> tuple[Finding, Rule | None]:
    """Return the result for one line of a rule file, and the rule of the line.

    The rule is restricted to sizes at which both sides are well typed. The rule is None if the line is unreadable or wrong.
    """
    if line.rule is None:
        return Finding(line.name, line.text, UNREADABLE, why=line.why), None
    try:
        rule, added = restrict_to_typed(line.rule)
        finding = _derived(line.name, line.text, rule, laws, added)
        settled = finding.word in (FOLLOWS, NOTATION)
        counterexample = refute_rule(line.rule, seed, PROOF.settled_instance_count if settled else PROOF.file_instance_count)
    except MALFORMED as error:
        return Finding(line.name, line.text, UNREADABLE, why=" ".join(str(error).split())), None
    if counterexample is not None:
        return Finding(line.name, line.text, WRONG, counterexample=counterexample), None
    return finding if settled else _proved(finding, rule, seed), rule


def _derived(name: str, text: str, rule: Rule, laws: Laws, added: tuple[str, ...]) -> Finding:
    each = list(derivations(rule, laws, ASKED))
    chains = tuple(chain for chain in each if chain is not None)
    if not chains:
        return Finding(name, text, OPEN, added=added)
    if len(chains) < len(each):
        return Finding(name, text, PARTLY, chains, added=added, why=f"at {len(chains)} of {len(each)} choices of ranks")
    word = FOLLOWS if any(chain.steps for chain in chains) else NOTATION
    return Finding(name, text, word, chains, added=added)


def _proved(finding: Finding, rule: Rule, seed: int) -> Finding:
    """Add the prover's result to the finding: the equality is proved from axioms or definitions, or not proved.

    A proved equality without variables counts as derived, because the optimizer folds constants and needs no rule.
    """
    verdict = prove_rule(rule, seed=seed)
    if isinstance(verdict, Proved):
        by = ", ".join(verdict.axioms) if verdict.axioms else "the definitions"
        word = finding.word if variables(*rule.terms) else CONSTANT
        return replace(finding, word=word, proof=f"true, proved from {by}"[: REPORT.max_proof_characters])
    return replace(finding, proof="agrees on random instantiations, not proved")


def choose_laws(*, given: Path | None = None, core_alone: bool = False, axioms_alone: bool = False) -> list[Rule]:
    """Return the rules from which other rules are derived: the axioms, the rules of a file, or the stored rules.

    If `core_alone` is True, return only the stored core rules, which together imply all stored rules.

    Raises:
        NotationError: The file, or a rule in the file, cannot be read.
        StoreError: The store cannot be used.
    """
    if axioms_alone:
        return list(axioms().values())
    if given is None:
        return [stored.rule for stored in load() if stored.core or not core_alone]
    rules: list[Rule] = []
    for line in read_rules_to_derive(given):
        if line.rule is None:
            raise NotationError(f"{given.name}: {line.name}: {line.why}")
        rules.append(line.rule)
    return rules


def definition_axioms_for_derivation() -> list[Rule]:
    """Return the axioms that define composite operators, such as `softmax`. Every derivation of `superopt rules derive` may use
    these axioms.
    """
    return [rule for name, rule in axioms().items() if name.endswith(".definition")]


def rearrangement_axioms() -> list[Rule]:
    """Return the axioms that rearrange many operators. Both sides of such an axiom contain the same operators. Every derivation
    of `superopt rules derive` may use these axioms.

    The store does not contain these axioms as rules, because these axioms do not improve any search.
    """
    return [rule for rule in axioms().values() if _rearranges(rule.equations[0])]


def _rearranges(equation: Equation) -> bool:
    one, other = (sorted(t.op for t in subterms(*s) if not t.is_variable) for s in (equation.left, equation.right))
    return one == other and len(one) >= RULE.min_neutral_operators


def comparison_text(comparison: FileComparison, *, chains: bool = True) -> Iterator[str]:
    """Yield the lines that `superopt rules derive` prints: results for the file's rules, results for the other set's rules, and
    totals.
    """
    for finding in comparison.theirs:
        yield from finding.lines(chains=chains)
    if comparison.ours:
        yield ""
        yield "From the file:"
        for finding in comparison.ours:
            if chains or finding.word != OPEN:
                yield from finding.lines(chains=chains)
    counts = comparison.totals()
    followed = sum(counts[word] for word in (FOLLOWS, NOTATION, CONSTANT))
    parts = [f"{followed} follow ({counts[NOTATION]} of them are one term by notation)"]
    parts += [f"{counts[PARTLY]} follow in part"] if counts[PARTLY] else []
    parts += [f"{counts[word]} {word}" for word in (OPEN, WRONG, UNREADABLE)]
    open_ = [f for f in comparison.theirs if f.word in (OPEN, PARTLY)]
    proved = sum(f.proof.startswith("true") for f in open_)
    yield ""
    yield f"{len(comparison.theirs)} equalities of the file: {', '.join(parts)}"
    if open_:
        yield f"of the {len(open_)} not derived as a whole, {proved} are proved"
    if comparison.ours:
        whole, partly = comparison.ours_following(), comparison.ours_following(partly=True)
        yield f"{len(comparison.ours)} equalities to derive from: {whole} follow from the file, {partly} more in part"
