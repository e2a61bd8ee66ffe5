"""Fingerprints: exact values of terms in a few random environments, computed in batches.

An environment assigns numbers to symbols and arrays to variables. If the enumerated terms consist only of sums, products and
choices (such as maxima), the inputs are small integers divided by 8. For these inputs, float64 arithmetic is exact. Otherwise,
terms are evaluated in the exact arithmetic of `superopt.algebra.exact`. Equal fingerprints only suggest that two terms are
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra import index
from superopt.algebra.evaluate import Floats, Grid
from superopt.algebra.exact import Fields, drawn, fields_for, required_arithmetic
from superopt.algebra.operators import POSITIVE, interpret_operator, operator
from superopt.algebra.terms import Atom, Attribute, Extent, Inverse, Size, Sym, Term, substitute, substitute_attribute, subterms
from superopt.discovery.universe import Universe
from superopt.errors import InstantiationError, ShapeError
from superopt.policy import DISCOVERY

Array = npt.NDArray[Any]
Hashes = npt.NDArray[np.uint64]
LARGEST = 2.0**31
GRAIN = 2.0**20
MOST, PARTS = 12, 8
FIRST, SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def comparison_domain(universe: Universe) -> Floats | Fields:
    """Return the arithmetic in which terms over the operators of `universe` are evaluated and compared.

    The arithmetic is float64 under two conditions: all operators are sums, products or choices (such as maxima), and float64
    represents each attribute exactly (unlike 1/3). In all other cases, the arithmetic is the exact arithmetic of
    `superopt.algebra.exact`.
    """
    terms = [t for c in universe.constants for t in subterms(c.term)]
    names = {t.op for t in universe.templates} | {t.op for t in terms if not t.is_variable}
    known = frozenset[str]().union(*map(required_arithmetic, sorted(names)))
    numbers = [v for t in universe.templates for v in t.attributes.values()] + [v for t in terms for _, v in t.attributes]
    numbers += [*universe.ranges.values()]
    rounded = any(_rounds(e) for v in numbers for e in (v if isinstance(v, tuple) else (v,)))
    return Floats(tail=1) if known <= {"ring", "order"} and not rounded else fields_for(known)


def _rounds(value: Attribute) -> bool:
    """Return whether float64 products with the attribute `value` may be inexact, as products with 1/3 are."""
    if isinstance(value, Size):
        return any(isinstance(a, Inverse) for a in value.atoms())
    return isinstance(value, Fraction) and value.denominator & (value.denominator - 1) != 0


def environment_count(universe: Universe) -> int:
    """Return the count of random inputs on which terms over the operators of `universe` are evaluated.

    Operators that choose between operands, such as maxima, need more inputs. With few inputs, an operator might choose the same
    operand on all inputs. If `universe` has variables whose elements are all 0 or 1, the count is
    `DISCOVERY.condition_environment_count`.
    """
    order = any("order" in required_arithmetic(t.op) for t in universe.templates)
    many = DISCOVERY.order_environment_count if order else DISCOVERY.environment_count
    return DISCOVERY.condition_environment_count if universe.conditions else many


def is_positive_only(universe: Universe) -> bool:
    """Return whether some operator in `universe` is defined only for positive numbers."""
    return any(operator(t.op).domain == POSITIVE for t in universe.templates)


@dataclass(frozen=True)
class Environment:
    """An assignment of numbers to symbols and of arrays to variables."""

    symbols: Mapping[str, Extent]
    arrays: Mapping[str, Array]

    def value(self, atom: Atom) -> Extent | None:
        """Return the number of a symbol, or None for any other atom. This method can be passed to `substitute`."""
        return self.symbols.get(atom.name) if isinstance(atom, Sym) else None


def draw_environment(
    universe: Universe, legal: Callable[[Environment], bool], rng: np.random.Generator, *, positive: bool = False
) -> Environment:
    """Return a random environment (numbers for symbols, arrays for variables) that `legal` accepts.

    The number of each symbol is chosen from the symbol's range. All elements of variables in `universe.conditions` are 0 or 1,
    and all elements of variables in `universe.positive` are positive. The elements of all other variables have both signs, or
    are positive if `positive` is True.

    Raises:
        InstantiationError: `legal` accepts none of the sampled numbers.
    """
    domain = comparison_domain(universe)
    for _ in range(DISCOVERY.max_environment_tries):
        found = Environment(symbols_of(universe, rng), {})
        if legal(found):
            break
    else:
        raise InstantiationError(
            f"universe {universe.name!r}: no random values of the symbols satisfied the conditions of the operators"
        )
    arrays = {}
    for v in (v for row in universe.variables for v in row):
        shape = tuple(int(substitute(n, found.value)) for n in v.shape)  # type: ignore[arg-type]
        if v.name in universe.conditions:
            flags = rng.integers(0, 2, shape)
            arrays[v.name] = domain.number(flags).array[..., 0] if isinstance(domain, Fields) else flags.astype(np.float64)
        else:
            above = positive or v.name in universe.positive
            if isinstance(domain, Fields):
                arrays[v.name] = drawn(domain, shape, rng, positive=above)
            else:
                arrays[v.name] = rng.integers(1 if above else -MOST, MOST + 1, shape) / PARTS
    return Environment(found.symbols, arrays)


def symbols_of(universe: Universe, rng: np.random.Generator) -> dict[str, Extent]:
    """Return a mapping from each symbol in `universe.ranges` to a random number from the symbol's range."""
    return {name: values[int(rng.integers(len(values)))] for name, values in universe.ranges.items()}


def environments(universe: Universe, legal: Callable[[Environment], bool], rng: np.random.Generator) -> list[Environment]:
    """Return random environments. An environment assigns numbers to symbols and arrays to variables.

    If the range of a symbol has more than two numbers, the symbol has different numbers in at least two environments. If an
    operator in `universe` is defined only for positive numbers, all inputs in the first half of the environments are positive.

    Raises:
        InstantiationError: no environments with these properties are found.
    """
    varied = [name for name, values in universe.ranges.items() if len(values) > 2]
    count = environment_count(universe)
    some = count // 2 if is_positive_only(universe) else 0
    for _ in range(DISCOVERY.max_environment_tries):
        found = [draw_environment(universe, legal, rng, positive=number < some) for number in range(count)]
        if all(len({e.symbols[name] for e in found}) > 1 for name in varied):
            return found
    raise InstantiationError(
        f"universe {universe.name!r}: no attempt gave every symbol at least two values in its random environments"
    )


class Fingerprints:
    """Evaluates operators on batches of operands in several environments (random inputs), and computes digests of values."""

    def __init__(self, universe: Universe, environments_: Sequence[Environment]) -> None:
        self.domain = comparison_domain(universe)
        self.environments = environments_
        self.positive = len(environments_) // 2 if is_positive_only(universe) else len(environments_)
        self._salts = [np.random.default_rng([number, 7]) for number in range(len(environments_))]
        self._keys: list[Hashes] = [np.empty(0, np.uint64) for _ in environments_]

    def leaf(self, term: Term, number: int) -> Array:
        """Return the value of a variable in the environment (random input) with the index `number`.

        The array has an additional last axis of size 1, because the last axis of every operand is the batch axis.
        """
        return self.environments[number].arrays[term.name][..., None]

    def applied(self, op: str, attributes: Mapping[str, Attribute], operands: Sequence[Array], number: int) -> Array | None:
        """Return the values of an operator for batches of operands. The last axis of each array is the batch axis.

        Symbols in attributes are replaced by their numbers in the environment (random input) with the index `number`. Returns
        None if the operator is not defined for these numbers and the operands' shapes.
        """
        lookup = self.environments[number].value
        grid = Grid(self.domain)
        try:
            with index.interpreted(grid), np.errstate(all="ignore"):
                numeric = {k: substitute_attribute(v, lookup) for k, v in attributes.items()}
                found = interpret_operator(operator(op), [grid.leaf(a) for a in operands], numeric)
        except (ShapeError, IndexError):
            return None
        return np.asarray(found.data)

    def digests(self, values: Array, number: int) -> tuple[Hashes, npt.NDArray[np.bool_]]:
        """Return two arrays with an entry for each term of a batch. The first array contains digests of the terms' values.

        The second array states whether the values are defined and exact. The last axis of `values` is the batch axis. The
        values were computed in the environment (random input) with the index `number`.
        """
        if isinstance(self.domain, Fields):
            own = np.ascontiguousarray(self.domain.identities(values)).reshape(-1, values.shape[-1])
            exact = ~np.isnan(own).any(axis=0)
        else:
            own = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
            with np.errstate(invalid="ignore"):
                exact = ((np.abs(own) < LARGEST) & (np.rint(own * GRAIN) == own * GRAIN)).all(axis=0)
        keys = self._keys_of(number, len(own))
        mixed = (own + 0.0).view(np.uint64) * FIRST
        mixed ^= mixed >> np.uint64(32)
        mixed *= SECOND
        mixed ^= mixed >> np.uint64(29)
        mixed *= keys[:, None]
        return mixed.sum(axis=0, dtype=np.uint64), np.asarray(exact)

    def _keys_of(self, number: int, count: int) -> Hashes:
        known = self._keys[number]
        if len(known) < count:
            more = self._salts[number].integers(0, 2**63, max(count - len(known), 256), dtype=np.uint64)
            known = self._keys[number] = np.concatenate([known, more * np.uint64(2) + np.uint64(1)])
        return known[:count]


def mixed_ids(ids: Array, position: int) -> Hashes:
    """Return a pseudo-random number for each identifier in `ids`. The number depends on the identifier and on `position`."""
    found = (ids.astype(np.uint64) + np.uint64(1 + 0x9E3779B97F4A7C15 * (position + 1) % 2**64)) * FIRST
    found ^= found >> np.uint64(32)
    found *= SECOND
    found ^= found >> np.uint64(29)
    return found * np.uint64(0x9E3779B97F4A7C15)
