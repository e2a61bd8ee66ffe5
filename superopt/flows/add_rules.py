"""Add rules that a user wrote: read a file of rules, prove every rule, and write the file's ledger and witnesses.

The ledger records the proofs. Witnesses are inputs that show that a rule needs a floating-point flag. A user's rules are
treated like the rules that `superopt generate` finds. Each rule is tested on random instances in exact arithmetic, proved for
all sizes, and given the floating-point flags that the rule needs. The results are written only if all rules of the file are
proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from superopt.algebra.operators import substitutions_folder
from superopt.errors import InstantiationError, NotationError, ShapeError, StoreError, SuperoptError, UnprovedError
from superopt.files import cause
from superopt.floating_point.flags import flags_of
from superopt.floating_point.witnesses import StoredWitness, to_store, write_witnesses
from superopt.policy import DISCOVERY, REPORT
from superopt.proof.definitions.arithmetic import z3_solver_version
from superopt.proof.recheck import prove_and_record
from superopt.proof.sample import mismatch
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.report.reading import AddedRule, AddedRules
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule, parse_rules
from superopt.rules.store import StoredRule, entry_of, replace_store_file, write_ledger
from superopt.rules.user_rules import SUFFIX, require_free_family, require_free_rule_names
from superopt.rules.verdict import Proved, Refuted, Unknown, Verdict

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The exceptions that the parser raises for a text that is not in the notation of rules."""


def add_rules(file: Path, folder: Path | None = None, *, seed: int = 0, progress: Listener = ignore_progress) -> AddedRules:
    """Prove the rules of a file, and write the files that `superopt optimize --rules` reads.

    Args:
        file: The file of rules, in the notation of substitutions/*.rules.
        folder: The folder for the ledger, the witnesses and a copy of the file. By default, the ledger and the witnesses are
            written beside the file.
        seed: The seed of random samples.
        progress: Receives progress reports.

    Raises:
        StoreError: The file cannot be read, a name is already in use, or the results cannot be written.
        NotationError: The file contains no rules, or contains a text that is not a rule.
        UnprovedError: A rule was refuted, or no proof of a rule was found. No file is written.
    """
    target = file.parent if folder is None else folder
    text, rules = _read(file)
    if target.resolve() == substitutions_folder().resolve():
        raise StoreError(f"{target}: this folder contains superopt's own rules; only `superopt generate` may change them")
    added: list[AddedRule] = []
    witnesses: list[StoredWitness] = []
    refused: list[str] = []
    for number, rule in enumerate(rules):
        progress(Progress("prove", number, len(rules), rule.name))
        verdict = _judged(rule, seed)
        if isinstance(verdict, Proved):
            flagged = flags_of(rule, seed)
            entry = entry_of(rule, verdict, solver=z3_solver_version(), origin=file.name, samples=DISCOVERY.proof_sample_count)
            entry = replace(entry, flags=flagged.names, flags_basis=flagged.basis)
            added.append(AddedRule(StoredRule(rule, file.stem, entry), _unused(rule)))
            witnesses += (to_store(rule, witness) for witness in flagged.witnesses)
        else:
            refused.append(f"{rule.name} is {_refusal(verdict)}")
    if refused:
        raise UnprovedError(_summary(file, refused, len(rules)))
    write_ledger(file.stem, [one.stored.entry for one in added], target)
    write_witnesses(file.stem, witnesses, target)
    copy = target / file.name
    if copy.resolve() != file.resolve():
        replace_store_file(copy, text)
    return AddedRules(str(copy), tuple(added))


def _read(file: Path) -> tuple[str, list[Rule]]:
    """Return the text of the file, and its rules."""
    if file.suffix != SUFFIX:
        raise StoreError(f"{file}: the name of a file of rules must end in {SUFFIX}")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} cannot be read ({cause(error) if isinstance(error, OSError) else error.reason})") from None
    try:
        rules = parse_rules(text)
    except (NotationError, ShapeError) as error:
        raise type(error)(f"{file}: {error}") from None
    except SuperoptError as error:
        raise NotationError(f"{file}: {error}") from None
    except UNREADABLE as error:
        raise NotationError(f"{file}: a line is not a rule ({type(error).__name__}: {error})") from None
    if not rules:
        raise NotationError(f"{file}: the file has no rules")
    for rule in rules:
        if rule.statement.arrow != "=>":
            raise NotationError(
                f"{file}: {rule.name}: write the rule as `left => right`; an equality needs two rules, one for each direction"
            )
    require_free_family(file.stem)
    require_free_rule_names(rule.name for rule in rules)
    return text, rules


def _judged(rule: Rule, seed: int) -> Verdict:
    """Test the rule on random instances at all choices of ranks, and then search for a proof that covers all sizes."""
    each = max(2, DISCOVERY.proof_sample_count // len(rule.equations))
    try:
        for equation in rule.equations:
            counterexample = mismatch(equation, instances=each, seed=seed)
            if counterexample is not None:
                return Refuted(counterexample)
        return prove_and_record(rule, seed=seed)
    except InstantiationError as error:
        return Unknown(str(error))


def _refusal(verdict: Verdict) -> str:
    return str(verdict) if isinstance(verdict, Refuted) else f"not proved: {getattr(verdict, 'reason', verdict)}"


def _summary(file: Path, refused: Sequence[str], count: int) -> str:
    shown = "; ".join(refused[: REPORT.max_refused_rules])
    more = len(refused) - REPORT.max_refused_rules
    rest = f"; and {more} more" if more > 0 else ""
    return f"{file}: nothing was written, because {len(refused)} of {count} rules are refused: {shown}{rest}"


def _unused(rule: Rule) -> str:
    """Return the reason why no search can apply the rule. If a search can apply the rule, return an empty text."""
    if rule.equations[0].left[0].is_variable:
        return "the left side is a variable"
    if not any(Pattern.of(equation).usable for equation in rule.equations):
        return "the left side does not determine all variables of the right side"
    return ""
