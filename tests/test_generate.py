"""Generation: it finds the rules that speed models up, stores them with proofs, and gives the same bytes for the same seed."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superopt import worker_pool as execute
from superopt.algebra.terms import Term, variable, variables
from superopt.discovery import explore
from superopt.discovery.candidates import FoundRule
from superopt.discovery.enumerate import enumerated_term_size
from superopt.discovery.explore import Findings, examine_slice, explore_universe, prove_definition
from superopt.discovery.job import discovery_code_version, merge_findings, universe_text
from superopt.discovery.minimal import find_redundant_generated_laws
from superopt.discovery.universe import FACTOR, FACTORS, Template, Universe, binary, split_parts, unary
from superopt.discovery.universe_order import foundations
from superopt.discovery.universes import convolution, matrix
from superopt.discovery.universes.families import UNIVERSES
from superopt.errors import SchedulerError
from superopt.flows import generate as generation
from superopt.flows.generate import Generation
from superopt.notation.parsing import Equation
from superopt.policy import DISCOVERY, PROCESS
from superopt.proof.sample import instantiations
from superopt.rules import store
from superopt.rules.match import Binding, Pattern, instantiate
from superopt.rules.rule import Rule, parse_rule, parse_rules
from superopt.worker_pool import Tasks

pytestmark = pytest.mark.slow

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
    """Return both sides of the equation at random legal sizes."""
    instance = next(instantiations(equation, np.random.default_rng(seed)))
    tensors = {v.name: variable(v.name, instance.shapes[v.name]) for v in variables(*equation.left, *equation.right)}
    binding = Binding(tensors, dict(instance.attributes))
    cache: dict[Term, Term] = {}
    left = tuple(instantiate(t, binding, cache) for t in equation.left)
    return left, tuple(instantiate(t, binding, cache) for t in equation.right)


def one_step(rules: list[Rule], left: tuple[Term, ...], right: tuple[Term, ...]) -> bool:
    """Return whether one rule rewrites the left terms to the right terms at their roots."""
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
def findings(name: str) -> Findings:
    return explore_universe(next(u for u in UNIVERSES if u.name == name), [], 0)


def rules_of(name: str, *, large: bool = False) -> list[FoundRule]:
    """Return the rules that a universe finds by itself. With `large`, include rules between more than three operators."""
    small = findings(name)
    tasks = [small, *(examine_slice(part, [small.known], 0) for part in small.rest if large)]
    return [found for one in tasks for equality in one.equalities for found in equality.rules]


@pytest.mark.parametrize(
    ("universe", "name"),
    [
        ("low rank", "reassociate-right"),
        ("square", "residual-weight"),
        ("enlarged", "merge-branches"),
        ("residual", "residual-kernel"),
        ("residual", "residual-scaled"),
        ("residual", "point-depthwise"),
        pytest.param("dense", "share-image", marks=pytest.mark.long),
    ],
)
def test_it_is_the_enumeration_that_finds_them(universe: str, name: str) -> None:
    rules = [found.rule for found in rules_of(universe, large=name == "residual-scaled")]
    left, right = numeric(STATED[name].equations[0], 0)
    assert one_step(rules, left, right)


def test_every_rule_kept_is_proved_and_serves() -> None:
    for found in rules_of("residual"):
        assert found.proof.axioms or found.proof.kind == "index"
        assert Pattern.of(found.rule.equations[0]).usable
        assert not all(t.is_variable for t in found.rule.equations[0].left)


def test_the_counts_add_up() -> None:
    counts = findings("enlarged").counts
    assert counts.candidates == counts.idle + counts.redundant + counts.proved + counts.refuted + counts.unknown
    assert counts.kept == len(rules_of("enlarged"))
    assert 0 < counts.classes < counts.built <= counts.graphs
    assert counts.peak_bytes > 1 << 20


def test_what_is_known_is_not_found_again() -> None:
    universe = convolution.ENLARGED
    again = explore_universe(universe, [findings("enlarged").known], 0)
    assert again.counts.candidates == findings("enlarged").counts.candidates
    assert again.equalities == ()


@pytest.mark.long
def test_larger_candidates_are_examined_after_all_small_ones_and_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "DISCOVERY", replace(DISCOVERY, max_slice_candidates=1_000_000))
    alone = explore_universe(convolution.ENLARGED, [], 0)
    assert all(enumerated_term_size(*e.candidate.left) <= DISCOVERY.small_operator_count for e in alone.equalities)
    (rest,) = alone.rest
    whole = examine_slice(rest, [alone.known], 0)
    monkeypatch.setattr(explore, "DISCOVERY", replace(DISCOVERY, max_slice_candidates=12))
    first = explore_universe(convolution.ENLARGED, [], 0)
    parts = [examine_slice(part, [first.known], 0) for part in first.rest]
    assert len(parts) > 1
    assert sum(p.counts.candidates for p in parts) == whole.counts.candidates
    sliced = [e.rule.text for e in merge_findings({"enlarged": [first, *parts]})]
    assert len(sliced) >= len(merge_findings({"enlarged": [alone, whole]}))
    assert len(set(sliced)) == len(sliced)


def test_a_universe_waits_for_what_says_much_of_what_it_says() -> None:
    before = foundations(UNIVERSES)
    names = [u.name for u in UNIVERSES]
    assert len({*names}) == len(names)
    assert before[names[0]] == ()
    assert "grouped" in before["dense"]
    for name, earlier in before.items():
        assert [n for n in names if n in earlier] == list(earlier)
        assert all(names.index(other) < names.index(name) and set(before[other]) <= set(earlier) for other in earlier)


# ---------------------------------------------------------------- the core


def test_the_core_says_nothing_twice() -> None:
    texts = (
        "three: relu(relu(relu(x))) => relu(x) for x[2]",
        "sum: relu(relu(x) + relu(y)) => relu(x) + relu(y) for x[2], y[2]",
        "two: relu(relu(x)) => relu(x) for x[2]",
        "again: relu(relu(x)) => relu(x) for x[1, 2]",
    )
    laws = [parse_rule(text) for text in texts]
    with Tasks() as tasks:
        left_out, _ = find_redundant_generated_laws(laws, range(len(laws)), tasks, "")
    assert [laws[i].name for i in left_out] == ["two", "three"]
    with Tasks() as tasks:
        assert find_redundant_generated_laws(laws, [3], tasks, "")[0] == []


def test_what_leaves_the_core_stays_where_a_search_gains_by_it() -> None:
    equality = next(e for e in findings("residual").equalities if len({r.shortens for r in e.rules}) == 2)
    demoted = equality.demoted()
    assert demoted.rules
    assert len(demoted.rules) < len(equality.rules)
    assert {r.part for r in demoted.rules} == {store.SEARCH}


@pytest.mark.parametrize(
    ("operator", "directions"), [("softmax", 1), ("silu", 1), ("conv1d", 2), ("upsample", 2), ("leaky_relu", 1)]
)
def test_composites_are_folded_and_written_out_where_that_is_safe(operator: str, directions: int) -> None:
    found = prove_definition(operator, 0)
    assert found.undecided == ()
    assert len(found.definitions) == directions
    assert {d.origin for d in found.definitions} == {f"definition of {operator}"}
    assert found.definitions[0].rule.equations[0].right[0].op == operator
    assert all(d.rule.equations[0].left[0].op == operator for d in found.definitions[1:])


# ---------------------------------------------------------------- processes that run the tasks


def tiny(family: str, name: str, *templates: Template) -> Universe:
    """Return a universe of at most two operators over two matrices."""
    ranges = {"n": matrix.SMALL, "k": matrix.SMALL, "a": FACTORS}
    return Universe(family, name, ((matrix.X, matrix.Y),), (), templates, ranges, limit=2)


FEW = (
    tiny("matrix", "sums", unary("relu"), unary("scale", factor=FACTOR), binary("add")),
    tiny("matrix", "moves", unary("relu"), unary("transpose", perm=(-1, -2)), binary("concat", axis=-1), split_parts(-1)),
    tiny("convolution", "more sums", unary("scale", factor=FACTOR), unary("relu"), binary("add"), binary("sub")),
)


def generated(folder: Path, **where: Any) -> Generation:
    """Run the generation over few universes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "UNIVERSES", FEW)
        return generation.generate(seed=3, families=("matrix", "convolution"), folder=folder, **where)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serial")
    generated(folder)
    return folder


def kill_one(killed: list[int]) -> None:
    """Send SIGKILL to one process that runs tasks, but only once."""
    if not killed:
        victim = min(multiprocessing.active_children(), key=lambda process: process.pid or 0)
        assert victim.pid is not None
        killed.append(victim.pid)
        os.kill(victim.pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("where", [{"workers": 2}, {"scheduler": "local:2"}], ids=str)
def test_the_files_are_the_same_wherever_tasks_run_though_a_worker_is_killed(
    where: dict[str, Any], serial: Path, tmp_path: Path
) -> None:
    killed: list[int] = []
    run = generated(tmp_path, progress=lambda _: kill_one(killed), **where)
    assert killed
    assert run.processes == 2
    assert run.total_bytes > run.peak_bytes
    assert bytes_of(tmp_path) == bytes_of(serial)


class Forgetful(ProcessPoolExecutor):
    """A process pool that breaks while a task is submitted, as if a process died at that moment."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future = super().submit(time.sleep, 60)
        self._broken = True
        assert not future.done()
        return Future()


def test_a_task_that_a_broken_pool_forgot_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = iter([Forgetful(2, mp_context=multiprocessing.get_context("spawn")), execute._pool(2)])
    monkeypatch.setattr(execute, "_pool", lambda _: next(pools))
    monkeypatch.setattr(execute, "PROCESS", replace(PROCESS, pool_patience_seconds=0.1))
    with execute.Tasks(workers=2) as tasks:
        tasks.start("power", "power", pow, 2, 10)
        assert list(tasks.results(int)) == [("power", 1024)]
    assert not multiprocessing.active_children()


def test_results_come_in_order_though_a_worker_is_killed() -> None:
    killed: list[int] = []
    powers = execute.map_in_order(pow, [(2, n) for n in range(40)], workers=2, chunk=3)
    for n, power in enumerate(powers):
        kill_one(killed)
        assert power == 2**n
    assert n == 39
    assert not multiprocessing.active_children()


def test_a_stopped_run_goes_on_from_what_is_on_disk(serial: Path, tmp_path: Path) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated(tmp_path / "rules", resume=tmp_path / "tasks", progress=stop)
    assert not (tmp_path / "rules").exists()
    half = next(iter((tmp_path / "tasks").iterdir()))
    run = generated(tmp_path / "rules", resume=tmp_path / "tasks")
    assert run.resumed == 1
    assert bytes_of(tmp_path / "rules") == bytes_of(serial)
    stored = len(list((tmp_path / "tasks").iterdir()))
    half.write_bytes(half.read_bytes()[:-1])
    (tmp_path / "tasks" / "other.task").write_bytes(b"of another run")
    (tmp_path / "tasks" / "old.task").touch()
    os.utime(tmp_path / "tasks" / "old.task", (0, 0))
    again = generated(tmp_path / "again", resume=tmp_path / "tasks")
    assert again.resumed == stored - 1
    assert [f.rule.text for f in again.rules] == [f.rule.text for f in run.rules]
    assert len(list((tmp_path / "tasks").iterdir())) == stored + 1


def test_rules_are_read_back_as_they_were_found(serial: Path) -> None:
    loaded = store.load(serial)
    assert {stored_rule.family for stored_rule in loaded} == {"matrix", "convolution"}
    assert len({(stored_rule.family, stored_rule.rule.name) for stored_rule in loaded}) == len(loaded)


@pytest.mark.long
def test_a_family_alone_writes_that_family_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "UNIVERSES", (matrix.LOW_RANK, convolution.ENLARGED))
    seen: list[str] = []
    report = generation.generate(families=["matrix"], folder=tmp_path, progress=lambda counts: seen.append(counts.universe))
    assert set(seen) == {"low rank"}
    assert {f.family for f in report.rules} == {"matrix"}
    assert not (tmp_path / "convolution.rules").exists()


def test_every_task_has_a_key_of_its_own() -> None:
    texts = [universe_text(universe) for universe in UNIVERSES]
    assert len(set(texts)) == len(texts)
    assert universe_text(replace(matrix.LOW_RANK, limit=4)) != universe_text(matrix.LOW_RANK)
    assert universe_text(replace(matrix.LOW_RANK)) == universe_text(matrix.LOW_RANK)
    assert discovery_code_version() == discovery_code_version()


# ---------------------------------------------------------------- tasks


def doubled(number: int, marker: Path | None = None) -> int:
    """Return twice the number. The first process that gets the number 3 dies."""
    if marker is not None and number == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def test_a_task_whose_process_dies_is_run_again(tmp_path: Path) -> None:
    with Tasks(workers=2) as tasks:
        for number in range(5):
            tasks.start(str(number), str(number), doubled, number, tmp_path / "marker")
        found = dict(tasks.results(int))
    assert found == {str(number): 2 * number for number in range(5)}
    assert (tmp_path / "marker").exists()


def test_a_task_that_always_kills_its_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "PROCESS", replace(PROCESS, max_task_attempts=1))
    with Tasks(workers=2) as tasks:
        tasks.start("deadly", "key", os._exit, 1)
        with pytest.raises(SchedulerError, match="worked on deadly died"):
            list(tasks.results(type(None)))


def test_tasks_may_be_started_while_results_come() -> None:
    with Tasks() as tasks:
        tasks.start("1", "1", doubled, 1)
        found: list[int] = []
        for name, result in tasks.results(int):
            found.append(result)
            if result < 20:
                tasks.start(f"{name}x", f"{name}x", doubled, result)
    assert found == [2, 4, 8, 16, 32]


def test_a_cluster_that_is_not_there_is_said_to_be_not_there() -> None:
    with pytest.raises(SchedulerError, match="no Dask cluster at nowhere"):
        Tasks(scheduler="nowhere")


def test_a_rule_names_its_universe_and_its_samples() -> None:
    entries = [stored_rule.entry for stored_rule in store.load()]
    assert all(
        e.origin.startswith(("enumerated in ", "axiom ", "definition of ", "algorithm ", "mutants of ")) and e.samples >= 24
        for e in entries
    )
    assert {e.part for e in entries} == {store.CORE, store.SEARCH}
