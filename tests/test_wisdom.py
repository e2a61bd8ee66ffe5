"""Published rewrites of tensor programs, each of which the enumeration finds.

For each rewrite, there is a stored rule that makes the step and states its origin. The statements here are not rules, but
instances that the rules rewrite.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from superopt.algebra.operators import replace_subterms
from superopt.algebra.terms import Term, subterms
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation
from superopt.rules.instances import instantiations, term_at
from superopt.rules.match import Pattern
from superopt.rules.rule import parse_rule
from superopt.rules.store import StoredRule, load

pytestmark = pytest.mark.slow

CONV = "strides=s, pads=p, dilations=d, group=g"
SLIDING = "x[4], w[4], v[4], s[2], p[4], d[2]"
IDENTITY = "identity_kernel(shape=w.shape, at=(p0, p1))"

WISDOM = {
    "parallel convolutions added are one convolution": f"""
        conv(x, w, {CONV}) + conv(x, v, {CONV}) => conv(x, w + v, {CONV})
        for {SLIDING} where v.shape[-2] == w.shape[-2], v.shape[-1] == w.shape[-1]""",
    "a scale per channel (batch normalization) goes into the kernel": f"""
        conv(x, w, {CONV}) * expand(b, shape=(conv(x, w, {CONV})).shape, axes=(-3,))
        => conv(x, w * expand(b, shape=w.shape, axes=(-4,)), {CONV})  for x[4], w[4], b[1], s[2], p[4], d[2]""",
    "an identity branch goes into the convolution": f"""
        x + conv(x, w, pads=p, group=g)
        => conv(x, w + {IDENTITY}, pads=p, group=g)
        for x[4], w[4], p[4] where p0 + p2 == w.shape[-2] - 1, p1 + p3 == w.shape[-1] - 1, w.shape[-4] == x.shape[-3]""",
    "a smaller kernel is enlarged and merged": """
        conv(x, u, pads=(0, 0, 0, 0), group=g) + conv(x, w, pads=(1, 1, 1, 1), group=g)
        => conv(x, pad(u, before=(0, 0, 1, 1), after=(0, 0, 1, 1)) + w, pads=(1, 1, 1, 1), group=g)
        for x[4], u[4], w[4] where u.shape[-1] == 1, u.shape[-2] == 1, w.shape[-1] == 3, w.shape[-2] == 3""",
    "products that share an input are one product": """
        (x @ y, x @ z) => (slice(m := x @ concat(y, z, axis=-1), axis=-1, start=0, stop=y.shape[-1]),
                           slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1]))  for x[2], y[2], z[2]""",
    "convolutions that share an input are one convolution": """
        (conv(x, w, strides=s, pads=p, dilations=d), conv(x, v, strides=s, pads=p, dilations=d))
        => (slice(m := conv(x, concat(w, v, axis=-4), strides=s, pads=p, dilations=d), axis=-3, start=0, stop=w.shape[-4]),
            slice(m, axis=-3, start=w.shape[-4], stop=w.shape[-4] + v.shape[-4]))
        for x[4], w[4], v[4], s[2], p[4], d[2] where v.shape[-2] == w.shape[-2], v.shape[-1] == w.shape[-1]""",
    "grouped convolutions beside each other are one with more groups": f"""
        concat(conv(x, w, {CONV}), conv(y, v, {CONV}), axis=-3)
        => conv(concat(x, y, axis=-3), concat(w, v, axis=-4), strides=s, pads=p, dilations=d, group=2 * g)
        for x[4], y[4], w[4], v[4], s[2], p[4], d[2] where v.shape[-1] == w.shape[-1], v.shape[-2] == w.shape[-2],
        v.shape[-3] == w.shape[-3], v.shape[-4] == w.shape[-4], y.shape[-1] == x.shape[-1], y.shape[-2] == x.shape[-2],
        y.shape[-3] == x.shape[-3]""",
    "products are reassociated": "x @ w @ v => x @ (w @ v)  for x[2], w[2], v[2]",
    "products are reassociated, the other way": "x @ (w @ v) => x @ w @ v  for x[2], w[2], v[2]",
    "a product is factored out of a sum": "x @ w + x @ v => x @ (w + v)  for x[2], w[2], v[2]",
    "a product is distributed over a sum": "x @ (w + v) => x @ w + x @ v  for x[2], w[2], v[2]",
    "a slice goes before a linear map": """
        slice(x @ w, axis=-2, start=a, stop=b) => slice(x, axis=-2, start=a, stop=b) @ w  for x[2], w[2]""",
    "a gather goes before a linear map": "gather(x @ w, i, axis=-2) => gather(x, i, axis=-2) @ w  for x[2], w[2], i[1]",
    "a mean goes before a linear map": "reduce_mean(x @ w, axes=(-2,)) => reduce_mean(x, axes=(-2,)) @ w  for x[3], w[2]",
    "average pooling goes before a pointwise convolution": """
        avg_pool(conv(x, w, group=g), kernel=k, strides=s, pads=p, include_pads=1)
        => conv(avg_pool(x, kernel=k, strides=s, pads=p, include_pads=1), w, group=g)
        for x[4], w[4], k[2], s[2], p[4] where w.shape[-1] == 1, w.shape[-2] == 1""",
    "a pointwise convolution goes before nearest upsampling": """
        conv(upsample(x, rows=r, columns=c), w, group=g) => upsample(conv(x, w, group=g), rows=r, columns=c)
        for x[4], w[4] where w.shape[-1] == 1, w.shape[-2] == 1""",
    "a scale goes through a linear map into its weight": "scale(x, factor=a) @ w => x @ scale(w, factor=a)  for x[2], w[2]",
    "a bias goes through a linear map": """
        (x + expand(b, shape=x.shape, axes=(-1,))) @ w => x @ w + expand(b, shape=x.shape, axes=(-1,)) @ w
        for x[2], b[1], w[2]""",
    "the scale of a layer normalization goes into the next product": """
        (layer_norm(x, epsilon=e) * expand(s, shape=x.shape, axes=(-1,))) @ w
        => layer_norm(x, epsilon=e) @ (w * expand(s, shape=w.shape, axes=(-2,)))  for x[2], s[1], w[2]""",
    "softmax does not see a shift": """
        softmax(x + expand(r, shape=x.shape, axes=(-2,)), axis=-1) => softmax(x, axis=-1)  for x[2], r[1]""",
    "softmax over one position is one": """
        softmax(x, axis=-1) => ones(shape=x.shape)  for x[2] where x.shape[-1] == 1""",
    "layers that are added up are a sum over their axis": """
        slice(x, axis=-3, start=0, stop=1) + slice(x, axis=-3, start=1, stop=2)
        => reshape(reduce_sum(slice(x, axis=-3, start=0, stop=2), axes=(-3,)), shape=(1, x.shape[-2], x.shape[-1]))
        for x[3] where x.shape[-3] >= 3""",
    "transposes cancel": "transpose(transpose(x, perm=(-1, -2)), perm=(-1, -2)) => x  for x[2]",
    "a slice of a concatenation is what was there": """
        slice(concat(x, y, axis=-1), axis=-1, start=0, stop=x.shape[-1]) => x  for x[2], y[2]""",
    "slices put together again are what was cut": """
        concat(slice(x, axis=-1, start=0, stop=a), slice(x, axis=-1, start=a, stop=x.shape[-1]), axis=-1) => x  for x[2]""",
    "a product over a concatenation is a sum of products": """
        concat(x, y, axis=-1) @ w => x @ slice(w, axis=-2, start=0, stop=x.shape[-1])
                                     + y @ slice(w, axis=-2, start=x.shape[-1], stop=w.shape[-2])  for x[2], y[2], w[2]""",
    "a product over a concatenation of what is repeated is a product of each before it is repeated": """
        concat(expand(x, shape=(y.shape[-2], x.shape[-2], x.shape[-1]), axes=(-2, -1)),
               expand(y, shape=(y.shape[-2], x.shape[-2], y.shape[-1]), axes=(-3, -1)), axis=-1) @ w
        => expand(x @ slice(w, axis=-2, start=0, stop=x.shape[-1]),
                  shape=(y.shape[-2], x.shape[-2], w.shape[-1]), axes=(-2, -1))
           + expand(y @ slice(w, axis=-2, start=x.shape[-1], stop=w.shape[-2]),
                    shape=(y.shape[-2], x.shape[-2], w.shape[-1]), axes=(-3, -1))  for x[2], y[2], w[2]""",
    "parallel products are one batched product": """
        (x @ w, y @ v)
        => (reshape(slice(m := concat(reshape(x, shape=(1, x.shape[-2], x.shape[-1])), reshape(y, shape=(1, y.shape[-2],
            y.shape[-1])), axis=-3) @ concat(reshape(w, shape=(1, w.shape[-2], w.shape[-1])), reshape(v, shape=(1, v.shape[-2],
            v.shape[-1])), axis=-3), axis=-3, start=0, stop=1), shape=(x.shape[-2], w.shape[-1])),
            reshape(slice(m, axis=-3, start=1, stop=2), shape=(x.shape[-2], w.shape[-1])))
        for x[2], y[2], w[2], v[2] where x.shape[-1] == y.shape[-1], x.shape[-2] == y.shape[-2], w.shape[-1] == v.shape[-1]""",
    "a product at every time step is one product of all steps": """
        (x @ w, y @ w) => (slice(m := concat(x, y, axis=-2) @ w, axis=-2, start=0, stop=x.shape[-2]),
                           slice(m, axis=-2, start=x.shape[-2], stop=x.shape[-2] + y.shape[-2]))  for x[2], y[2], w[2]""",
}


@functools.cache
def stored() -> tuple[StoredRule, ...]:
    return tuple(load())


def steps(roots: Sequence[Term]) -> Iterator[tuple[tuple[Term, ...], StoredRule]]:
    """Yield every result of one application of a stored rule anywhere in the roots, with the rule."""
    present = {t.op for t in subterms(*roots) if not t.is_variable}
    for found in stored():
        for equation in found.rule.equations:
            pattern = Pattern.of(equation)
            if not {t.op for t in subterms(*equation.left) if not t.is_variable} <= present:
                continue
            if len(pattern.left) > 1:
                for match in pattern.matches(roots[0], lambda op: [t for t in roots[1:] if t.op == op]):
                    if match.roots == tuple(roots):
                        yield match.replacements, found
                continue
            for place in subterms(*roots):
                for match in pattern.matches(place, lambda _: ()):
                    try:
                        yield tuple(replace_subterms(root, {place: match.replacements[0]}) for root in roots), found
                    except ShapeError:
                        continue


def instance_of(equation: Equation) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """Return both sides at sizes that are as different as possible."""
    rng = np.random.default_rng(3)
    drawn = [instance for instance, _ in zip(instantiations(equation, rng), range(60), strict=False)]
    best = max(drawn, key=lambda i: (len({n for shape in i.shapes.values() for n in shape}), sorted(i.shapes.items())))
    return tuple(term_at(t, best) for t in equation.left), tuple(term_at(t, best) for t in equation.right)


def chain(left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[str, list[StoredRule]]:
    """Return how stored rules lead from the left side to the right side, and the rules.

    The ways are: by one rule, by one rule read backwards, or by two rules.
    """
    first = list(steps(left))
    if found := [rule for result, rule in first if result == right]:
        return "one rule", found[:1]
    if found := [rule for result, rule in steps(right) if result == left]:
        return "one rule, backwards", found[:1]
    for middle, rule in {result: (result, rule) for result, rule in first}.values():
        if found := [after for result, after in steps(middle) if result == right]:
            return "two rules", [rule, found[0]]
    return "", []


BACKWARDS = frozenset(
    {
        "a product is distributed over a sum",
        "a bias goes through a linear map",
    }
)
"""The equalities that are stored only as the step in the other direction, because this direction serves no search."""


@pytest.mark.parametrize("name", WISDOM)
def test_is_found_and_not_typed(name: str) -> None:
    """Stored rules that the enumeration found lead from the left side to the right side."""
    (equation,) = parse_rule(f"wisdom: {' '.join(WISDOM[name].split())}").equations
    how, rules = chain(*instance_of(equation))
    assert rules, "no stored rule makes this step"
    assert how == ("one rule, backwards" if name in BACKWARDS else "one rule")
    origins = [rule.entry.origin for rule in rules]
    assert all(origin.startswith(("enumerated in", "joined in")) for origin in origins), origins
