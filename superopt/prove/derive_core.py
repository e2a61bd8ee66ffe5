"""The minimal core of a set of rules: what is left when rules that the others derive are taken out, one after the other.

First every rule is tried against all others; most follow from nothing, and fewer rules derive no more, so those are settled.
The rest is gone through from the least wanted on, each against what is left. Limits are in steps, never in time, so that the
same rules always have the same core, and any number of workers finds it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

from superopt.graph import operators, subterms, variables
from superopt.prove.derive import LIMITS, Laws, derivable
from superopt.prove.derive_chain import Chain
from superopt.prove.saturate import Limits
from superopt.rule import Rule
from superopt.text import Statement

BATCH = 12

Chains = tuple[Chain, ...]
Stated = tuple[tuple[str, Statement], ...]


def minimal(rules: Sequence[Rule], executor: Executor | None = None, limits: Limits = LIMITS) -> Mapping[int, Chains]:
    """For every rule that is not in the core, by its position: its chains, one for each choice of its ranks.

    The steps of a chain are by rules of the core or, where those do not get there within the limits, by rules that were still
    left when this one was taken out. Steps name rules by `Laws.labels`.
    """
    laws = Laws(rules)
    everyone = range(len(rules))
    found = _tried(laws, [(p, frozenset({p})) for p in everyone], executor, limits)
    position = {label: p for p, label in enumerate(laws.labels)}
    removed: dict[int, Chains] = {}
    for candidate in sorted(found, key=lambda p: _wanted(rules[p]), reverse=True):
        chains: Chains | None = found[candidate]
        if any(position[name] in removed for chain in chains or () for name in chain.rules):
            chains = derivable(rules[candidate], laws, limits, {candidate, *removed})
        if chains is not None:
            removed[candidate] = chains
    stale = [p for p, chains in removed.items() if any(position[name] in removed for c in chains for name in c.rules)]
    again = _tried(laws, [(p, frozenset(removed)) for p in stale], executor, limits)
    return {p: again.get(p, removed[p]) for p in sorted(removed)}


def once(rules: Iterable[Rule]) -> list[Rule]:
    """Every equality once: of rules that say it in two directions, the more general one."""
    found: dict[frozenset[tuple[str, ...]], list[Rule]] = {}
    for rule in rules:
        same = found.setdefault(_sides(rule), [])
        if not any(_says(one, rule) for one in same):
            same[:] = [*(one for one in same if not _says(rule, one)), rule]
    return [rule for same in found.values() for rule in same]


def _sides(rule: Rule) -> frozenset[tuple[str, ...]]:
    """The operators of either side, whichever is the left one."""
    equation = rule.equations[0]
    return frozenset(tuple(sorted(t.op for t in subterms(*roots) if t.args)) for roots in (equation.left, equation.right))


def _says(one: Rule, other: Rule) -> bool:
    """Whether the other rule is an instance of the one, read from either side."""
    chains = derivable(other, Laws([one]))
    return chains is not None and all(len(chain.steps) == len(chain.outputs) for chain in chains)


def _wanted(rule: Rule) -> tuple[int, int, int, int, str]:
    """Small rules come first, then general ones, then those of few conditions."""
    first = rule.equations[0]
    roots = first.left + first.right
    return operators(*roots), -len(rule.equations), len(rule.statement.where), -len(variables(*roots)), rule.text


def _tried(
    laws: Laws, tasks: Sequence[tuple[int, frozenset[int]]], executor: Executor | None, limits: Limits
) -> dict[int, Chains]:
    """The chains of those rules that follow from the rules that are not left out with them."""
    if executor is None:
        results = [(p, derivable(laws.rules[p], laws, limits, without)) for p, without in tasks]
    else:
        stated = tuple((rule.name, rule.statement) for rule in laws.rules)
        batches = [tasks[i : i + BATCH] for i in range(0, len(tasks), BATCH)]
        futures = [executor.submit(_batch, stated, tuple(batch), limits) for batch in batches]
        results = [result for future in futures for result in future.result()]
    return {p: chains for p, chains in results if chains is not None}


def _batch(stated: Stated, tasks: Sequence[tuple[int, frozenset[int]]], limits: Limits) -> list[tuple[int, Chains | None]]:
    laws = laws_of(stated)
    return [(p, derivable(laws.rules[p], laws, limits, without)) for p, without in tasks]


@functools.lru_cache(maxsize=1)
def laws_of(stated: Stated) -> Laws:
    """The rules, read once in each worker."""
    return Laws([Rule(name, statement) for name, statement in stated])
