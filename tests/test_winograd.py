"""Bilinear algorithms: their exactness, their cost, their proofs, and the settings that allow them."""

from __future__ import annotations

import importlib
import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import superopt
from superopt.algebra import bilinear
from superopt.algebra.bilinear import Matrix, ToomCook
from superopt.algebra.operators import apply
from superopt.algebra.terms import Sym, Term, at_least, same, size, variable
from superopt.cli import main as cli
from superopt.errors import CheckFailedError, ShapeError
from superopt.model.lower import lower
from superopt.policy import CHECK, OPTIMIZATION
from superopt.proof.definitions.index import Attempt, prove_axiom
from superopt.proof.definitions.sums import Read, Summand, TableElement
from superopt.proof.definitions.tables import contract_table
from superopt.protobuf.stored import Loadable, parse_model
from superopt.rules.accuracy import admit_by_growth, growth
from superopt.rules.rule import axioms, parse_rule
from superopt.rules.store import load_rules
from superopt.rules.verdict import Refuted
from superopt.rules.work import work
from superopt.runtime.check import Check
from superopt.runtime.compare import Comparison
from superopt.runtime.multi_shape import check_all_sizes
from tests.models import model, weight
from tests.operator_cases import arrays_for, evaluated, ran

pytestmark = pytest.mark.slow

FLOW = importlib.import_module("superopt.flows.optimize")
WHERE = "for x[4], w[4], p[4] where w.shape[-2] == 3, w.shape[-1] == 3"
BY_TILES = {
    tile: parse_rule(
        f"by-{tile}: conv(x, w, pads=p) => winograd(x, winograd_kernel(w, tile=({tile}, {tile})), tile=({tile}, {tile}), "
        f"taps=(3, 3), pads=p) {WHERE}"
    )
    for tile in (2, 4)
}


def winograd(x: Term, w: Term, tile: tuple[int, int], pads: tuple[int, ...]) -> Term:
    kernel = apply("winograd_kernel", w, tile=tile)
    return apply("winograd", x, kernel, tile=tile, taps=w.sizes[-2:], pads=pads)


# ---------------------------------------------------------------- the matrices


@pytest.mark.parametrize(("tile", "taps"), [*itertools.product(range(1, 7), range(1, 6))])
def test_the_products_give_the_correlation_exactly(tile: int, taps: int) -> None:
    algorithm = ToomCook(tile, taps)
    kernel, data, back = algorithm.kernel(), algorithm.data(), algorithm.back()
    assert len(kernel) == len(data) == algorithm.products
    for i, k, j in itertools.product(range(tile), range(taps), range(tile + taps - 1)):
        found = sum((a * g[k] * d[j] for a, g, d in zip(back[i], kernel, data, strict=True)), start=Fraction())
        assert found == (j == i + k)


def test_matrices_are_asked_for_where_sizes_are_numbers() -> None:
    with pytest.raises(ShapeError, match="where both are numbers"):
        ToomCook(size(Sym("m")), 3).kernel()


def test_the_growth_of_the_error_is_what_is_met() -> None:
    assert ToomCook(1, 1).growth == 1
    rng = np.random.default_rng(0)
    g, d = rng.standard_normal((200, 64, 3)), rng.standard_normal((200, 64, 8))
    for tile in (2, 4, 6):
        algorithm = ToomCook(tile, 3)
        kernel, data, back = (np.array(m, dtype=np.float64) for m in (algorithm.kernel(), algorithm.data(), algorithm.back()))
        part = d[:, :, : tile + 2].astype(np.float32)
        products = (g @ kernel.T).astype(np.float32) * (part @ data.T.astype(np.float32))
        found = products.sum(axis=1, dtype=np.float32) @ back.T.astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(part, 3, axis=2)
        exact = np.einsum("nctk,nck->nt", windows.astype(np.float64), g)
        plain = sum(np.sum(windows[..., k] * g[:, :, None, k].astype(np.float32), axis=1, dtype=np.float32) for k in range(3))
        worst = np.abs(found - exact).std(axis=0).max() / np.abs(plain - exact).std()
        assert algorithm.growth / 4 < worst < algorithm.growth * 4


# ---------------------------------------------------------------- the operator


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize(
    ("tile", "taps"), [((2, 2), (3, 3)), ((4, 4), (3, 3)), ((2, 2), (5, 5)), ((1, 3), (1, 3)), ((3, 2), (2, 4))]
)
def test_onnx_runtime_computes_the_convolution(tile: tuple[int, int], taps: tuple[int, int], opset: int, batch: int) -> None:
    x, w = variable("x", (batch, 3, 7, 10)), variable("w", (5, 3, *taps))
    pads = (1, 0, 2, 1)
    term = winograd(x, w, tile, pads)
    arrays = arrays_for(term)
    (expected,) = evaluated(arrays, apply("conv", x, w, pads=pads))
    np.testing.assert_allclose(evaluated(arrays, term)[0], expected, rtol=1e-9, atol=1e-9)
    (found,) = ran(lower({"y": term}, opset), {"y": term}, arrays, opset)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_kernel_for_other_tiles_is_refused() -> None:
    x, u = variable("x", (1, 3, 8, 8)), variable("u", (4, 4, 5, 3))
    apply("winograd", x, u, tile=(2, 2), taps=(3, 3))
    with pytest.raises(ShapeError, match="for these tiles"):
        apply("winograd", x, u, tile=(4, 4), taps=(3, 3))


def test_of_many_channels_fewer_operations_are_counted() -> None:
    x, w = variable("x", (1, 256, 32, 32)), variable("w", (256, 256, 3, 3), constant=True)
    plain = work(apply("conv", x, w, pads=(1, 1, 1, 1))).flops
    products = {m: 2 * (m + 2) ** 2 * 256 * 256 * (32 // m) ** 2 for m in (2, 4)}
    for m, flops in products.items():
        found = work(winograd(x, w, (m, m), (1, 1, 1, 1))).flops
        assert flops < found < 1.25 * flops < plain


# ---------------------------------------------------------------- the proofs


def test_a_wrong_matrix_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(tile: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
        kernel, data, back = right(tile, taps)
        return kernel, (*data[:-1], (*data[-1][:-1], data[-1][-1] + Fraction(1, 1000))), back

    right = bilinear._matrices
    monkeypatch.setattr(bilinear, "_matrices", wrong)
    (equation,) = axioms()["winograd.algorithm-two-three"].equations
    assert not Attempt(equation, {}).proved
    assert isinstance(prove_axiom(axioms()["winograd.algorithm-two-three"]), Refuted)


def test_a_kernel_of_other_tiles_and_other_pads_are_refuted() -> None:
    text = str(BY_TILES[2])
    assert isinstance(
        prove_axiom(parse_rule(text.replace("taps=(3, 3), pads=p", "taps=(3, 3), pads=(p1, p0, p3, p2)"))), Refuted
    )


def test_tables_are_multiplied_out_over_whole_axes_alone() -> None:
    i, j, k = Sym("i"), Sym("j"), Sym("k.0")
    unit = TableElement((2, 2), tuple(map(Fraction, (1, 0, 0, 1))), (size(i), size(k)))
    other = TableElement((2, 2), tuple(map(Fraction, (0, 1, 1, 0))), (size(k), size(j)))
    within = tuple(c for s in (i, j, k) for c in (at_least(size(s), 0), at_least(1, size(s))))
    whole = Summand(1, (k,), within[4:], (unit, other))
    product = contract_table((), whole)
    assert product is not None
    assert product.factors == (TableElement((2, 2), other.numbers, (size(i), size(j))),)
    assert not product.bound
    assert contract_table(within, product) is None
    assert contract_table((), replace(whole, guard=within[4:5])) is None
    for elsewhere in (size(k), size(k) + 1):
        assert contract_table((), replace(whole, factors=(unit, other, Read("x", (elsewhere,))))) is None
        assert contract_table((), replace(whole, coefficient=elsewhere)) is None
    equal = contract_table(within, Summand(1, factors=(replace(unit, indices=(size(i), size(j))),)))
    assert equal == Summand(1, guard=(same(size(i), size(j)),))
    assert contract_table((), Summand(1, factors=(replace(unit, indices=(size(i), size(j))),))) is None


# ---------------------------------------------------------------- rules, and the settings that allow them


def test_less_accurate_rules_are_stored_and_admitted_by_tolerance_alone() -> None:
    stored = [rule for rule in load_rules() if "winograd" in rule.operators]
    assert {rule.statement.right for rule in BY_TILES.values()} <= {rule.statement.right for rule in stored}
    assert growth(BY_TILES[2]) < CHECK.max_error_factor < growth(BY_TILES[4]) < 100
    assert growth(parse_rule("twice: relu(relu(x)) => relu(x) for x[2]")) == 1
    rules = [*BY_TILES.values()]
    assert admit_by_growth(rules, CHECK.max_error_factor) == [BY_TILES[2]]
    assert admit_by_growth(rules, 100) == rules
    assert admit_by_growth(rules, 0.5) == []


def convolutions() -> onnx.ModelProto:
    """Return a chain of two convolutions."""
    nodes = [helper.make_node("Conv", [x, w], [y], pads=[1, 1, 1, 1]) for x, w, y in (("x", "w1", "h"), ("h", "w2", "y"))]
    weights = [weight(name, 32, 32, 3, 3) for name in ("w1", "w2")]
    return model(nodes, {"x": [1, 32, 12, 12]}, {"y": [1, 32, 12, 12]}, weights)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use the rules of both tiles, the larger tile first. A state with more such operators always measures faster."""
    faster = Comparison(original=2.0, candidate=1.0, ratio=2.0, low=2.0, high=2.0, control=1.0, noise=0.001, rounds=9)

    def cost(*_: object) -> Any:
        return lambda state: 1.0 / sum(str(root).count("winograd(") * _tile(root) + 1 for root in state)

    monkeypatch.setattr(FLOW, "default_path", lambda: tmp_path / "times.sqlite")
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: [BY_TILES[4], BY_TILES[2]])
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._measure", cost)
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._stands", lambda *_: True)
    monkeypatch.setattr("superopt.runtime.multi_shape.compare_settings", lambda *_, at, **__: [[faster] for _ in at])


def _tile(root: Term) -> int:
    return 4 if "(4, 4)" in str(root) else 1


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("tolerance", "used"), [(1.0, "by-2"), (8.0, "by-4")])
def test_optimize_tries_what_a_tolerance_may_admit(tolerance: float, used: str) -> None:
    report = superopt.optimize(convolutions(), budget=60.0, tolerance=tolerance).report
    assert report.accepted, report.reason
    assert {rule.name for rule in report.rules} == {used}
    assert report.rounding is not None
    assert report.rounding.tolerance == tolerance
    assert report.rounding.optimized <= tolerance * max(report.rounding.original, 16 * 2.0**-23)


@pytest.mark.usefixtures("always")
def test_what_strays_by_a_less_accurate_algorithm_is_searched_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(original: Loadable, candidate: Loadable, *args: Any, **how: Any) -> Check:
        if any(6 in tensor.dims for tensor in parse_model(candidate).graph.initializer):
            raise CheckFailedError("it strays")
        return check_all_sizes(original, candidate, *args, **how)

    monkeypatch.setattr(FLOW, "relower", lambda *_: ())
    monkeypatch.setattr("superopt.runtime.multi_shape.check_all_sizes", checked)
    report = superopt.optimize(convolutions(), budget=60.0).report
    assert report.accepted, report.reason
    assert {rule.name for rule in report.rules} == {"by-2"}
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: [BY_TILES[4]])
    report = superopt.optimize(convolutions(), budget=60.0).report
    assert not report.accepted
    assert not report.rules


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("growth", "places"), [(1.4, 0), (2.9, 1), (3.1, 2)])
def test_an_algorithm_is_taken_in_as_many_places_as_weights_may_grow_for(
    growth: float, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of each of the two places become four times as large. This adds one and a half times the size of all
    weights.
    """
    monkeypatch.setattr("superopt.search.selection.OPTIMIZATION", replace(OPTIMIZATION, min_weight_growth_bytes=0))
    monkeypatch.setattr(FLOW, "relower", lambda *_: ())
    report = superopt.optimize(convolutions(), budget=60.0, tolerance=100.0, growth=growth).report
    assert sum(rule.times for rule in report.rules) == places
    assert report.accepted == (places > 0)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("cache", "places"), [(0.9, 2), (1.1, 0), (2.6, 1), (4.1, 2)])
def test_weights_that_fit_into_the_last_level_cache_still_do_with_algorithms(
    cache: float, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = convolutions()
    weights = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    monkeypatch.setattr("superopt.cost.measure.last_level_cache", lambda: int(cache * weights))
    monkeypatch.setattr(FLOW, "relower", lambda *_: ())
    report = superopt.optimize(proto, budget=60.0, tolerance=100.0, growth=10.0).report
    assert sum(rule.times for rule in report.rules) == places


@pytest.mark.parametrize(("option", "given"), [("tolerance", n) for n in ("0.5", "nan", "-3", "much")] + [("growth", "-1")])
def test_a_tolerance_that_is_none_is_one_line(option: str, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["optimize", "in.onnx", "out.onnx", f"--{option}={given}"])
    assert raised.value.code == 2
    assert f"argument --{option}: {given!r} is not a number of at least" in capsys.readouterr().err.splitlines()[-1]
