"""The minimal core of a set of rules: the rules that remain when derivable rules are removed one after another.

First, each rule is tried against all other rules. A rule that does not follow from all others stays in the core, because it
does not follow from fewer rules. Each of the remaining rules is then tried against the rules that are not yet removed. Large
rules are tried and removed first. Limits count steps and not time. The core therefore depends on the rules alone, and not on
the number of workers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

from superopt.algebra.terms import operator_count, subterms, variables
from superopt.notation.parsing import Statement
from superopt.policy import PROOF
from superopt.proof.axioms.saturate import SaturationLimits
from superopt.proof.derivation.chain import Chain
from superopt.proof.derivation.derive import LIMITS, Laws, derive_rule
from superopt.rules.rule import Rule

Chains = tuple[Chain, ...]
Stated = tuple[tuple[str, Statement], ...]


def derive_chains(
    rules: Sequence[Rule], executor: Executor | None = None, limits: SaturationLimits = LIMITS
) -> Mapping[int, Chains]:
    """Choose a core: rules from which all others follow. Return the others' derivations, by the rule's position in `rules`.

    A derivation is a chain of rule applications. Each rule has one chain for each choice of its ranks. The steps of a chain use
    rules of the core. If no such chain is found within the limits, the steps may also use rules that were removed from the core
    after the derived rule. Steps name rules by `Laws.labels`.
    """
    laws = Laws(rules)
    everyone = range(len(rules))
    found = _tried(laws, [(p, frozenset({p})) for p in everyone], executor, limits)
    position = {label: p for p, label in enumerate(laws.labels)}
    removed: dict[int, Chains] = {}
    for candidate in sorted(found, key=lambda p: _wanted(rules[p]), reverse=True):
        chains: Chains | None = found[candidate]
        if any(position[name] in removed for chain in chains or () for name in chain.rules):
            chains = derive_rule(rules[candidate], laws, limits, {candidate, *removed})
        if chains is not None:
            removed[candidate] = chains
    stale = [p for p, chains in removed.items() if any(position[name] in removed for c in chains for name in c.rules)]
    again = _tried(laws, [(p, frozenset(removed)) for p in stale], executor, limits)
    return {p: again.get(p, removed[p]) for p in sorted(removed)}


def distinct_rules_to_derive(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules, without each rule that is an instance of another rule, read in either direction."""
    found: dict[frozenset[tuple[str, ...]], list[Rule]] = {}
    for rule in rules:
        same = found.setdefault(_sides(rule), [])
        if not any(_says(one, rule) for one in same):
            same[:] = [*(one for one in same if not _says(rule, one)), rule]
    return [rule for same in found.values() for rule in same]


def _sides(rule: Rule) -> frozenset[tuple[str, ...]]:
    """Return a key of the rule: the operators of each side. The key is the same if the sides are exchanged."""
    equation = rule.equations[0]
    return frozenset(tuple(sorted(t.op for t in subterms(*roots) if t.args)) for roots in (equation.left, equation.right))


def _says(one: Rule, other: Rule) -> bool:
    """Return whether the rule `other` is an instance of the rule `one`, read in either direction."""
    chains = derive_rule(other, Laws([one]))
    return chains is not None and all(len(chain.steps) == len(chain.outputs) for chain in chains)


def _wanted(rule: Rule) -> tuple[int, int, int, int, str]:
    """Return a sort key. Rules that should stay in the core, from which all other rules are derived, come first.

    Rules with few operators come first, then rules with many choices of ranks, then rules with few conditions.
    """
    first = rule.equations[0]
    roots = first.left + first.right
    return operator_count(*roots), -len(rule.equations), len(rule.statement.where), -len(variables(*roots)), rule.text


def _tried(
    laws: Laws, tasks: Sequence[tuple[int, frozenset[int]]], executor: Executor | None, limits: SaturationLimits
) -> dict[int, Chains]:
    """Try to derive one rule for each task. Return the derivation chains of the derived rules, by the rule's position.

    A task has the position of the rule and the positions of the rules that its derivation must not use.
    """
    if executor is None:
        results = [(p, derive_rule(laws.rules[p], laws, limits, without)) for p, without in tasks]
    else:
        stated = tuple((rule.name, rule.statement) for rule in laws.rules)
        batches = [tasks[i : i + PROOF.tried_rule_count] for i in range(0, len(tasks), PROOF.tried_rule_count)]
        futures = [executor.submit(_batch, stated, tuple(batch), limits) for batch in batches]
        results = [result for future in futures for result in future.result()]
    return {p: chains for p, chains in results if chains is not None}


def _batch(
    stated: Stated, tasks: Sequence[tuple[int, frozenset[int]]], limits: SaturationLimits
) -> list[tuple[int, Chains | None]]:
    laws = laws_of(stated)
    return [(p, derive_rule(laws.rules[p], laws, limits, without)) for p, without in tasks]


@functools.lru_cache(maxsize=1)
def laws_of(stated: Stated) -> Laws:
    """Return the rules as `Laws`. The result is cached, so that each worker parses the rules once."""
    return Laws([Rule(name, statement) for name, statement in stated])
