"""Generation: the rules that speed models up are found, stored with their proofs, and the same seed gives the same bytes."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import numpy as np
import pytest

from superopt import generate as generation
from superopt import store
from superopt.discovery import Discovery
from superopt.find import convolution, matrix
from superopt.find.families import UNIVERSES
from superopt.generate import explore, generate
from superopt.graph import Term, variable, variables
from superopt.match import Binding, Pattern, instantiate
from superopt.prove.sample import instantiations
from superopt.rule import Rule, parse_rule, parse_rules
from superopt.text import Equation

NARROW = "strides=s, pads=p, dilations=d, group=g"
WIDE = "strides=s, pads=(p0 + d0 * a, p1 + d1 * b, p2 + d0 * c, p3 + d1 * e), dilations=d, group=g"
CENTRED = "pads=(d0 * i, d1 * j, d0 * l, d1 * m), dilations=d, group=g"
CENTRED_WHERE = "where w.shape[-2] == i + l + 1, w.shape[-1] == j + m + 1, i >= 0, j >= 0, l >= 0, m >= 0"

WANTED = f"""
    reassociate-right:  x @ w @ u => x @ (w @ u)                                        for x[2, 3, 4], w[2], u[2]
    reassociate-left:   x @ (w @ u) => x @ w @ u                                        for x[2, 3, 4], w[2], u[2]
    add-weights:        x @ w + x @ v => x @ (w + v)                                    for x[2, 3, 4], w[2], v[2]
    low-rank:           x @ w + x @ u @ v => x @ (w + u @ v)                            for x[2, 3, 4], w[2], u[2], v[2]
    scale-weight:       scale(x @ w, factor=a) => x @ scale(w, factor=a)                for x[2, 3, 4], w[2]
    scale-columns:      (x @ w) * expand(t, shape=(x @ w).shape, axes=(-1,)) => x @ (w * expand(t, shape=w.shape, axes=(-1,)))
                        for x[2, 3, 4], w[2], t[1]
    scale-rows:         (x * expand(t, shape=x.shape, axes=(-1,))) @ w => x @ (w * expand(t, shape=w.shape, axes=(-2,)))
                        for x[2, 3, 4], w[2], t[1]
    residual-weight:    x @ w + x => x @ (w + eye(n=x.shape[-1]))                       for x[2, 3, 4], w[2]
    share-input:        (x @ w, x @ v) => (slice(m := x @ concat(w, v, axis=-1), axis=-1, stop=w.shape[-1]),
                        slice(m, axis=-1, start=w.shape[-1], stop=w.shape[-1] + v.shape[-1]))  for x[2, 3, 4], w[2], v[2]
    stack-rows:         (x @ w, y @ w) => (slice(m := concat(x, y, axis=-2) @ w, axis=-2, stop=x.shape[-2]),
                        slice(m, axis=-2, start=x.shape[-2], stop=x.shape[-2] + y.shape[-2]))  for x[2], y[2], w[2]
    share-relu:         (relu(x), relu(y)) => (slice(m := relu(concat(x, y, axis=-1)), axis=-1, stop=x.shape[-1]),
                        slice(m, axis=-1, start=x.shape[-1], stop=x.shape[-1] + y.shape[-1]))  for x[2], y[2]
    inner-concat:       concat(x, y, axis=-1) @ concat(w, v, axis=-2) => x @ w + y @ v  for x[2, 3], y[2, 3], w[2], v[2]
    fold-biases:        expand(b, shape=n, axes=(k,)) + expand(c, shape=n, axes=(k,)) => expand(b + c, shape=n, axes=(k,))
                        for b[1], c[1], n[2, 3, 4], k[-1, -2, -3, -4]
    relu-concat:        concat(relu(x), relu(y), axis=k) => relu(concat(x, y, axis=k))
                        for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    relu-transpose:     relu(transpose(x, perm=(-1, -2))) => transpose(relu(x), perm=(-1, -2))  for x[2]
    slice-of-concat:    slice(concat(x, y, axis=k), axis=k, stop=x.shape[k]) => x
                        for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    channels-last-relu: transpose(relu(x), perm=(-4, -2, -1, -3)) => relu(transpose(x, perm=(-4, -2, -1, -3)))  for x[4]
    add-kernels:        conv(x, w, {NARROW}) + conv(x, v, {NARROW}) => conv(x, w + v, {NARROW})
                        for x[4], w[4], v[4], s[2], p[4], d[2] where w.shape[-2] == v.shape[-2], w.shape[-1] == v.shape[-1]
    scale-kernel:       conv(x, w, {NARROW}) * expand(t, shape=conv(x, w, {NARROW}).shape, axes=(-3,))
                        => conv(x, w * expand(t, shape=w.shape, axes=(-4,)), {NARROW})  for x[4], w[4], t[1], s[2], p[4], d[2]
    merge-branches:     conv(x, u, {NARROW}) + conv(x, w, {WIDE})
                        => conv(x, pad(u, before=(0, 0, a, b), after=(0, 0, c, e)) + w, {WIDE})
                        for x[4], w[4], u[4], s[2], p[4], d[2] where a >= 0, b >= 0, c >= 0, e >= 0
    unpad-kernel:       conv(x, pad(u, before=(0, 0, a, b), after=(0, 0, c, e)), {WIDE}) => conv(x, u, {NARROW})
                        for x[4], u[4], s[2], p[4], d[2] where p0 >= 0, p1 >= 0, p2 >= 0, p3 >= 0
    absorb-pad:         conv(pad(x, before=(0, 0, a, b), after=(0, 0, c, e)), w, {NARROW})
                        => conv(x, w, strides=s, pads=(p0 + a, p1 + b, p2 + c, p3 + e), dilations=d, group=g)
                        for x[4], w[4], s[2], p[4], d[2]
    residual-kernel:    x + conv(x, w, {CENTRED}) => conv(x, w + identity_kernel(shape=w.shape, at=(i, j)), {CENTRED})
                        for x[4], w[4], d[2] {CENTRED_WHERE}
    residual-scaled:    x * expand(t, shape=x.shape, axes=(-3,)) + conv(x, w, {CENTRED})
                        => conv(x, w + identity_kernel(shape=w.shape, at=(i, j)) * expand(t, shape=w.shape, axes=(-4,)),
                        {CENTRED})
                        for x[4], w[4], t[1], d[2] {CENTRED_WHERE}
    point-dense:        x * expand(t, shape=x.shape, axes=(-3,))
                        => conv(x, identity_kernel(shape=(t.shape[-1], t.shape[-1], 1, 1), at=(0, 0))
                        * expand(t, shape=(t.shape[-1], t.shape[-1], 1, 1), axes=(-4,)))  for x[4], t[1]
    point-depthwise:    x * expand(t, shape=x.shape, axes=(-3,))
                        => conv(x, identity_kernel(shape=(t.shape[-1], 1, 1, 1), at=(0, 0))
                        * expand(t, shape=(t.shape[-1], 1, 1, 1), axes=(-4,)), group=t.shape[-1])  for x[4], t[1]
    pool-as-kernel:     avg_pool(x, kernel=k, strides=s, pads=p, include_pads=1)
                        => conv(x, mean_kernel(shape=(x.shape[-3], 1, k0, k1)), strides=s, pads=p, group=x.shape[-3])
                        for x[4], k[2], s[2], p[4]
    share-image:        (conv(x, w, strides=s, pads=p, dilations=d), conv(x, v, strides=s, pads=p, dilations=d))
                        => (slice(m := conv(x, concat(w, v, axis=-4), strides=s, pads=p, dilations=d), axis=-3,
                        stop=w.shape[-4]), slice(m, axis=-3, start=w.shape[-4], stop=w.shape[-4] + v.shape[-4]))
                        for x[4], w[4], v[4], s[2], p[4], d[2] where w.shape[-2] == v.shape[-2], w.shape[-1] == v.shape[-1]
"""
STATED = {rule.name: rule for rule in parse_rules(WANTED)}


@functools.cache
def stored() -> list[Rule]:
    return store.load_rules()


def numeric(equation: Equation, seed: int) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """Both sides at random legal sizes."""
    instance = next(instantiations(equation, np.random.default_rng(seed)))
    tensors = {v.name: variable(v.name, instance.shapes[v.name]) for v in variables(*equation.left, *equation.right)}
    binding = Binding(tensors, dict(instance.attributes))
    cache: dict[Term, Term] = {}
    left = tuple(instantiate(t, binding, cache) for t in equation.left)
    return left, tuple(instantiate(t, binding, cache) for t in equation.right)


def one_step(rules: list[Rule], left: tuple[Term, ...], right: tuple[Term, ...]) -> bool:
    """Whether some rule rewrites the left terms to the right ones at their roots."""
    for equation in (e for rule in rules for e in rule.equations):
        if len(equation.left) == len(left) and all(
            p.op == t.op and p.rank == t.rank for p, t in zip(equation.left, left, strict=True)
        ):
            for match in Pattern.of(equation).matches(left[0], lambda op: [t for t in left[1:] if t.op == op]):
                if (match.roots, match.replacements) == (left, right):
                    return True
    return False


@pytest.mark.parametrize("name", STATED)
def test_what_speeds_models_up_is_one_rule_away(name: str) -> None:
    for equation, seed in itertools.product(STATED[name].equations, range(2)):
        left, right = numeric(equation, seed)
        assert left == right or one_step(stored(), left, right), f"{left} does not become {right}"


def test_a_step_that_is_not_true_is_no_rule_away() -> None:
    wrong = parse_rule("wrong: x @ w + x @ v => x @ (w * v) for x[2], w[2], v[2]").equations[0]
    assert not one_step(stored(), *numeric(wrong, 0))


@functools.cache
def explored(name: str) -> Discovery:
    discovery = Discovery(0)
    explore(next(u for u in UNIVERSES if u.name == name), discovery)
    return discovery


@pytest.mark.parametrize(
    ("universe", "name"),
    [
        ("low rank", "reassociate-right"),
        ("square", "residual-weight"),
        ("enlarged", "merge-branches"),
        ("residual", "residual-kernel"),
        ("residual", "residual-scaled"),
        ("residual", "point-depthwise"),
        ("dense", "share-image"),
    ],
)
def test_it_is_the_enumeration_that_finds_them(universe: str, name: str) -> None:
    rules = [found.rule for found in explored(universe).found]
    left, right = numeric(STATED[name].equations[0], 0)
    assert one_step(rules, left, right)


def test_every_rule_kept_is_proved_and_serves() -> None:
    for found in explored("residual").found:
        assert found.proof.axioms or found.proof.kind == "index"
        assert Pattern.of(found.rule.equations[0]).usable
        assert not all(t.is_variable for t in found.rule.equations[0].left)


def test_the_counts_add_up() -> None:
    discovery = Discovery(0)
    counts = explore(convolution.ENLARGED, discovery)
    assert counts.candidates == counts.redundant + counts.proved + counts.refuted + counts.unknown
    assert counts.kept == len(discovery.found)
    assert 0 < counts.classes < counts.built <= counts.graphs


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "UNIVERSES", (matrix.LOW_RANK, convolution.ENLARGED))
    reports = [generate(seed=3, folder=tmp_path / name) for name in ("one", "two")]
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    assert [f.rule.text for f in reports[0].rules] == [f.rule.text for f in reports[1].rules]
    loaded = store.load(tmp_path / "one")
    assert {(s.family, str(s.rule)) for s in loaded} == {(f.family, str(f.rule)) for f in reports[0].rules}


def test_a_family_alone_writes_that_family_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "UNIVERSES", (matrix.LOW_RANK, convolution.ENLARGED))
    seen: list[str] = []
    report = generate(families=["matrix"], folder=tmp_path, progress=lambda counts: seen.append(counts.universe))
    assert seen == ["low rank"]
    assert {f.family for f in report.rules} == {"matrix"}
    assert not (tmp_path / "convolution.rules").exists()


def test_a_rule_names_its_universe_and_its_samples() -> None:
    entries = [stored_rule.entry for stored_rule in store.load()]
    assert all(e.origin.startswith("enumerated in ") and e.samples >= 24 for e in entries)
    assert {e.part for e in entries} == {store.CORE, store.SEARCH}


def test_found_rules_carry_their_family() -> None:
    found = explored("enlarged").named("convolution")
    assert found
    assert all(f.family == "convolution" for f in found)
    assert len({f.rule.name for f in found}) == len(found)
