"""Device profiles: their content, predictions from them, and models that are optimized for another device."""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from rich.console import Console

import superopt
from superopt.cli import main as cli
from superopt.cost.calibrate import calibrate_roofline
from superopt.cost.demand import CONVOLUTION, DEPTHWISE, ELEMENT, FUNCTION, KINDS, PRODUCT, WINDOW, Demand, demand
from superopt.cost.device_profile import DeviceProfile, MeasuredNode, build_profile, read_profile
from superopt.cost.forecast import ForecastClock, Plan, forecast
from superopt.cost.measure import Clock
from superopt.cost.prices import Prices, load_prices
from superopt.cost.roofline import Roofline, fit_curve, rate
from superopt.errors import InvalidModelError, ProfileError, SuperoptError, TargetError
from superopt.flows.profile import profile
from superopt.policy import COST
from superopt.report.optimization_summary import summary
from superopt.rules.rule import parse_rules
from superopt.runtime.cache import Cache, Json
from superopt.runtime.kernel import Kernel, KernelTiming, Operand
from superopt.runtime.session import Device
from superopt.search.roofline import Machine
from superopt.search.segment_search import MACHINES, machine
from tests.models import model, weight

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
FLOW = importlib.import_module("superopt.flows.optimize")
CPU = Device()
FLOAT = TensorProto.FLOAT
FACTOR = "factor: x @ y + x @ z => x @ (y + z) for x[2], y[2], z[2]"
SWAP = "swap: transpose(transpose(x, perm=(-1, -2)), perm=(-1, -2)) => x for x[2]"
SIMPLE = Roofline(
    rates=dict.fromkeys(KINDS, ((1.0, 1000000000.0), (1000000.0, 1000000000.0))),
    traffic=((1.0, 1e10),),
    memory=1e9,
    call=1e-6,
    node=1e-7,
    last_level=1 << 20,
)
"""A device that does one operation and moves ten bytes in a nanosecond."""


def simple(*kernels: MeasuredNode, provider: str = "cpu") -> DeviceProfile:
    return DeviceProfile("Simple", provider, 1, f"Simple|{provider}", {"onnxruntime": "1.0"}, SIMPLE, kernels)


def product(rows: int, inner: int = 64, columns: int = 64) -> list[Json]:
    """Return the signature of a matrix product with a weight."""
    operands: list[Json] = [[0, FLOAT, [rows, inner], False], [1, FLOAT, [inner, columns], True]]
    return ["", "MatMul", 13, [], operands, [True]]


def made(*shape: int) -> tuple[Operand, ...]:
    return (Operand(FLOAT, shape),)


def known(rows: int, seconds: float) -> MeasuredNode:
    return MeasuredNode(product(rows), cold=False, timing=KernelTiming(seconds, made(rows, 64)))


def branches(count: int = 8) -> ModelProto:
    """Return parallel products of one operand. One product with the sum of the weights gives the same result."""
    weights = [weight(f"w{n}", 192, 192, seed=n) for n in range(count)]
    products = [helper.make_node("MatMul", ["x", f"w{n}"], [f"p{n}"]) for n in range(count)]
    sums = [helper.make_node("Add", [f"s{n - 1}" if n > 1 else "p0", f"p{n}"], [f"s{n}"]) for n in range(1, count)]
    last = helper.make_node("Sin", [f"s{count - 1}"], ["y"])
    return model([*products, *sums, last], {"x": [96, 192]}, {"y": [96, 192]}, weights)


def looped() -> ModelProto:
    """Return a model with a Loop whose body is a sine."""
    infos = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("i", 7, []), ("c", 9, []), ("v", 1, [4]))]
    body_nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Sin", ["v"], ["w"])]
    ends = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("d", 9, []), ("w", 1, [4]))]
    body = helper.make_graph(body_nodes, "body", infos, ends)
    trips = helper.make_tensor("trips", TensorProto.INT64, [], [3])
    return model([helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)], {"x": [4]}, {"y": [4]}, [trips])


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[DeviceProfile], Path]:
    def save(found: DeviceProfile) -> Path:
        path = tmp_path / "device.json"
        found.save(path)
        return path

    return save


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a profile of this device with the times of the nodes of `branches`."""
    folder = tmp_path_factory.mktemp("here")
    onnx.save(branches(), folder / "branches.onnx")
    profile([folder / "branches.onnx"], cache=folder / "times.sqlite").save(folder / "device.json")
    return folder / "device.json"


def use(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: parse_rules(rule))


def never(*_: object, **__: object) -> None:
    raise AssertionError("something was measured")


# ---------------------------------------------------------------- the work of a node


def test_operations_are_those_of_the_definition() -> None:
    assert demand(product(8), made(8, 64)) == Demand(PRODUCT, 2 * 8 * 64 * 64, 4 * (2 * 8 * 64 + 64 * 64), 4 * 64 * 64)
    turned: list[Json] = ["", "Gemm", 13, [["transA", 1]], [[0, FLOAT, [64, 8], False], [1, FLOAT, [64, 64], True]], [True]]
    assert demand(turned, made(8, 64)).operations == 2 * 8 * 64 * 64
    einsum: list[Json] = [
        "",
        "Einsum",
        13,
        [["equation", "bij, bjk -> bik"]],
        [[0, 1, [3, 4, 5], False], [1, 1, [3, 5, 6], False]],
        [True],
    ]
    assert demand(einsum, made(3, 4, 6)).operations == 2 * 3 * 4 * 5 * 6
    image: list[Json] = [0, FLOAT, [1, 16, 10, 10], False]
    conv: list[Json] = ["", "Conv", 11, [["group", 1]], [image, [1, FLOAT, [32, 16, 3, 3], True]], [True]]
    assert demand(conv, made(1, 32, 8, 8)) == Demand(CONVOLUTION, 2 * 32 * 64 * 16 * 9, 4 * (1600 + 32 * 144 + 2048), 4 * 4608)
    apart: list[Json] = ["", "Conv", 11, [["group", 16]], [image, [1, FLOAT, [16, 1, 3, 3], True]], [True]]
    found = demand(apart, made(1, 16, 8, 8))
    assert (found.kind, found.operations) == (DEPTHWISE, 2 * 16 * 64 * 9)
    pool: list[Json] = ["", "MaxPool", 12, [["kernel_shape", [3, 3]]], [image], [True]]
    assert (demand(pool, made(1, 16, 8, 8)).kind, demand(pool, made(1, 16, 8, 8)).operations) == (WINDOW, 16 * 64 * 9)
    lstm: list[Json] = [
        "",
        "LSTM",
        14,
        [],
        [[0, 1, [20, 2, 8], False], [1, 1, [1, 64, 8], True], [2, 1, [1, 64, 16], True]],
        [True],
    ]
    assert demand(lstm, made(20, 1, 2, 16)) == Demand(PRODUCT, 2 * 2 * 64 * (8 + 16), 4 * 64 * 16, 0, steps=20)
    tanh: list[Json] = ["", "Tanh", 13, [], [image], [True]]
    assert demand(tanh, made(1, 16, 10, 10)) == Demand(FUNCTION, 1600, 2 * 6400, 0)


def test_an_operand_that_is_read_twice_or_in_part_counts_so() -> None:
    square: list[Json] = ["", "Mul", 14, [], [[0, FLOAT, [100], False], [0, FLOAT, [100], False]], [True]]
    assert demand(square, made(100)) == Demand(ELEMENT, 100, 800, 0)
    row: list[Json] = [
        "",
        "Gather",
        13,
        [["axis", 0]],
        [[0, FLOAT, [1000, 8], True], [1, TensorProto.INT64, [1], False]],
        [True],
    ]
    assert demand(row, made(1, 8)) == Demand(ELEMENT, 8, 2 * 32, 0)
    view: list[Json] = ["", "Squeeze", 13, [], [[0, FLOAT, [1, 100], False], [1, TensorProto.INT64, [1], True, [0]]], [True]]
    assert demand(view, made(100)) == Demand(ELEMENT, 0, 0, 0)


# ---------------------------------------------------------------- the roofline


def test_rates_lie_on_lines_between_the_points_that_were_measured() -> None:
    curve = fit_curve([(100, 2e-6), (10_000, 1e-5), (100, 1e-6)])
    assert [amount for amount, _ in curve] == [100, 10_000]
    assert rate(curve, 1000) == pytest.approx(math.sqrt(1e8 * 1e9))
    assert (rate(curve, 1), rate(curve, 1e9)) == pytest.approx((1e8, 1e9))


def test_estimates_are_those_of_the_device_once_it_is_calibrated() -> None:
    clock = Clock(CPU)
    assert machine(clock) == MACHINES["cpu"]
    clock.cache.put(["roofline", CPU.identity], SIMPLE.as_json())
    assert machine(clock) == Machine(operations=1e9, traffic=1e10, launch=1e-6 + 1e-7)
    clock.cache.put(["roofline", CPU.identity], "of another version")
    assert machine(clock) == MACHINES["cpu"]


def test_a_node_takes_as_long_as_what_it_needs_most_of() -> None:
    assert SIMPLE.seconds(Demand(PRODUCT, 1000, 0, 0)) == pytest.approx(1e-7 + 1e-6)
    assert SIMPLE.seconds(Demand(PRODUCT, 1000, 100_000, 0)) == pytest.approx(1e-7 + 1e-5)
    wide = Demand(PRODUCT, 1000, 100_000, 90_000)
    assert SIMPLE.seconds(wide, cold=True) == pytest.approx(1e-7 + 9e-5)


def test_this_device_has_a_roofline_that_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(CPU, Cache(tmp_path / "times.sqlite"))
    found = calibrate_roofline(clock)
    assert found.peaks[0] > 1e9
    assert found.peaks[1] > 1e9
    small, large = (found.seconds(Demand(PRODUCT, 2 * n**3, 12 * n * n, 0)) for n in (64, 512))
    assert 50 * small < large
    assert not list(clock.cache.entries("kernel"))
    monkeypatch.setattr(Kernel, "timed", never)
    assert calibrate_roofline(Clock(CPU, Cache(tmp_path / "times.sqlite"))) == found


# ---------------------------------------------------------------- prices


def test_a_known_node_has_the_time_that_is_known() -> None:
    prices = Prices(simple(known(8, 5e-5)))
    price = prices.price(product(8), made(8, 64), cold=False)
    assert price.known
    assert price.seconds == pytest.approx(5e-5 - SIMPLE.call)
    assert price.error == COST.known_time_error


def test_similar_nodes_correct_the_roofline() -> None:
    exact = [SIMPLE.seconds(demand(product(rows), made(rows, 64))) for rows in (8, 10, 12)]
    prices = Prices(simple(*(known(rows, 3 * e + SIMPLE.call) for rows, e in zip((8, 12), (exact[0], exact[2]), strict=True))))
    price = prices.price(product(10), made(10, 64), cold=False)
    assert not price.known
    assert 2.5 * exact[1] < price.seconds < 3 * exact[1]
    assert COST.known_time_error < price.error < COST.unknown_operator_error
    far = prices.price(product(4096, 4096, 4096), made(4096, 4096), cold=False)
    assert far.seconds == pytest.approx(SIMPLE.seconds(demand(product(4096, 4096, 4096), made(4096, 4096))), rel=1e-2)
    assert far.error == pytest.approx(COST.unknown_operator_error, rel=1e-2)


def test_without_known_nodes_the_roofline_is_not_relied_on() -> None:
    price = Prices(simple()).price(product(8), made(8, 64), cold=False)
    assert price.seconds == SIMPLE.seconds(demand(product(8), made(8, 64)))
    assert price.error == COST.unknown_operator_error


def test_errors_are_those_of_prices_that_do_not_know_the_node() -> None:
    rows = (4, 8, 16, 32)
    seconds = [2 * SIMPLE.seconds(demand(product(n), made(n, 64))) + SIMPLE.call for n in rows]
    nodes = [known(n, s) for n, s in zip(rows, seconds, strict=True)]
    prices = Prices(simple(*nodes))
    assert prices.roofline_errors() == pytest.approx([math.log(2)] * 4)
    assert all(0 < error < math.log(2) for error in prices.errors())
    without = Prices(simple(*nodes[1:])).price(product(4), made(4, 64), cold=False)
    assert prices.beside(product(4), cold=False)[0] == pytest.approx(seconds[0] - SIMPLE.call)
    assert prices.errors()[0] == pytest.approx(math.log((seconds[0] - SIMPLE.call) / without.seconds), rel=0.05)


# ---------------------------------------------------------------- files


def test_a_profile_reads_back_and_prices_the_same(here: Path, saved: Callable[[DeviceProfile], Path]) -> None:
    once = read_profile(here)
    again = read_profile(saved(once))
    assert again == once
    assert again.text == here.read_text(encoding="utf-8")
    clocks = [ForecastClock(CPU, Prices(found)) for found in (once, again)]
    assert clocks[0].seconds(branches()) == clocks[1].seconds(branches())
    assert clocks[0].plan(branches()).known == 1.0


def test_predictions_from_known_nodes_are_what_measuring_them_gave(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = Cache(here.parent / "times.sqlite")
    monkeypatch.setattr(Kernel, "timed", never)
    measured = Clock(CPU, times).seconds(branches())
    assert ForecastClock(CPU, load_prices(here)).seconds(branches()) == pytest.approx(measured)


def test_imported_times_are_not_measured_again(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "timed", never)
    cache = tmp_path / "other.sqlite"
    merged = profile(merged=[here], cache=cache)
    assert merged.device == read_profile(here)
    assert Clock(CPU, Cache(cache)).seconds(branches()) == Clock(CPU, Cache(here.parent / "times.sqlite")).seconds(branches())


def test_a_gpu_has_no_last_level_and_reads_back(saved: Callable[[DeviceProfile], Path]) -> None:
    gpu = replace(simple(provider="cuda"), roofline=replace(SIMPLE, last_level=1 << 62))
    assert read_profile(saved(gpu)) == gpu
    assert not ForecastClock(CPU, Prices(gpu), resident=1 << 40).cold
    assert ForecastClock(CPU, Prices(simple()), resident=1 << 40).cold


def test_a_device_is_described_where_no_time_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(branches(2), tmp_path / "m.onnx")
    (tmp_path / "times.sqlite").write_bytes(b"no database, but long enough to be taken for one" * 100)
    arguments = ["profile", str(tmp_path / "m.onnx"), "--cache", str(tmp_path / "times.sqlite")]
    assert cli.main([*arguments, "--export", str(tmp_path / "device.json")]) == 0
    assert "not kept" in capsys.readouterr().out
    assert {known.signature[1] for known in read_profile(tmp_path / "device.json").kernels} >= {"MatMul", "Sin"}


def test_a_view_takes_a_node_on_a_device_that_is_not_here(saved: Callable[[DeviceProfile], Path]) -> None:
    view: list[Json] = ["", "Reshape", 14, [], [[0, FLOAT, [8, 64], False], [1, TensorProto.INT64, [1], True, [512]]], [True]]
    profile = read_profile(saved(simple(known(8, 1e-5), MeasuredNode(view, cold=False, timing=KernelTiming(0.0, made(512))))))
    found = Prices(profile).price(view, made(512), cold=False)
    assert (found.known, found.seconds) == (True, SIMPLE.node)
    assert 0.0 in Prices(profile).roofline_errors()


def test_times_that_are_there_outlast_an_import(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "times.sqlite")
    first, second = (simple(known(8, seconds)) for seconds in (1e-5, 2e-5))
    first.store(cache)
    second.store(cache)
    ((_, value),) = cache.entries("kernel")
    assert KernelTiming.of_json(value).seconds == 1e-5


BAD: dict[str, Callable[[str], bytes]] = {
    "truncated": lambda text: text[: len(text) // 2].encode(),
    "no text": lambda _: b"\xff\xfe\x00",
    "another program's": lambda _: b'{"version": 1, "kernels": []}',
    "a list": lambda _: b"[1, 2]",
    "of a later version": lambda text: text.replace('"version": 1', '"version": 2').encode(),
    "without a roofline": lambda text: changed(text, "roofline", None),
    "without rates": lambda text: changed(text, "roofline", {}),
    "of a strange provider": lambda text: changed(
        text, "device", {"name": "", "provider": "tpu", "threads": 1, "identity": ""}
    ),
    "with a time that is no number": lambda text: changed(text, "kernels", [[product(8), False, "fast", []]]),
    "with a negative time": lambda text: changed(text, "kernels", [[product(8), False, -1.0, []]]),
    "with a node that is none": lambda text: changed(text, "kernels", [[["MatMul"], False, 1.0, []]]),
}


def changed(text: str, key: str, value: object) -> bytes:
    return json.dumps(json.loads(text) | {key: value}).encode()


@pytest.mark.parametrize("damage", BAD.values(), ids=BAD)
def test_a_bad_file_is_one_line_and_a_code_of_its_own(
    damage: Callable[[str], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, source, result = tmp_path / "device.json", tmp_path / "in.onnx", tmp_path / "out.onnx"
    path.write_bytes(damage(simple(known(8, 1e-5)).text))
    onnx.save(branches(2), source)
    result.write_bytes(b"before")
    assert cli.main(["optimize", str(source), str(result), "--device-profile", str(path)]) == ProfileError.exit_code
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("superopt: ")]
    assert str(path) in line
    assert result.read_bytes() == b"before"


def test_a_missing_file_and_another_provider_are_refused(saved: Callable[[DeviceProfile], Path], tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="No such file"):
        read_profile(tmp_path / "nowhere.json")
    path = saved(simple(provider="cpu"))
    with pytest.raises(ProfileError, match="cuda was requested"):
        superopt.optimize(branches(2), device_profile=path, provider="cuda")
    with pytest.raises(ValueError, match="device profile"):
        superopt.optimize(branches(2), device_profile=path, tune=True)


# ---------------------------------------------------------------- forecasts


def test_equal_nodes_cancel_with_their_errors() -> None:
    clock = ForecastClock(CPU, Prices(simple()))
    plan = clock.plan(branches(2))
    same = forecast(plan, plan)
    assert (same.ratio, same.doubt, same.faster) == (1.0, 0.0, False)


def test_a_gain_within_the_error_is_none() -> None:
    def plan(columns: int, count: int = 1) -> Plan:
        return Plan({str(columns): (prices.price(product(64, 64, columns), made(64, columns), cold=False), count)})

    prices = Prices(simple())
    near, far = forecast(plan(64), plan(32)), forecast(plan(64), plan(4))
    assert near.ratio > 1.5
    assert not near.faster
    assert far.faster
    assert forecast(plan(4), plan(64)).slower
    assert forecast(plan(64, 3), plan(64, 2)).faster


def test_an_absent_gpu_is_not_given_the_layouts_of_this_processor() -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    proto = model([conv], {"x": [1, 16, 8, 8]}, {"y": [1, 16, 8, 8]}, [weight("w", 16, 16, 3, 3)])
    absent = ForecastClock(CPU, Prices(simple(provider="cuda")))
    assert {kernel.node.domain for kernel in absent.kernels(proto)} == {""}


def test_what_has_no_price_is_said() -> None:
    clock = ForecastClock(CPU, Prices(simple()))
    with pytest.raises(InvalidModelError, match="Loop"):
        clock.plan(looped())
    report = superopt.optimize(looped(), device_profile=None, budget=0.0).report
    assert report.prediction is None


# ---------------------------------------------------------------- optimizing for another device


def test_the_choice_is_that_of_measuring_and_nothing_is_measured(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FACTOR)
    measured = superopt.optimize(branches(), budget=60.0, moves=("rules",))
    for place in (
        "superopt.runtime.kernel.Kernel.timed",
        "superopt.runtime.kernel.least_seconds",
        "superopt.cost.measure.least_seconds",
        "superopt.cost.measure.compare",
        "superopt.runtime.multi_shape.compare_settings",
    ):
        monkeypatch.setattr(place, never)
    predicted = superopt.optimize(branches(), budget=60.0, moves=("rules",), device_profile=here)
    assert measured.report.accepted
    assert predicted.report.accepted
    assert predicted.model.graph.node == measured.model.graph.node
    report = predicted.report
    assert report.prediction is not None
    assert report.timing is None
    assert report.speedup == report.prediction.speedup
    assert report.speedup > 2
    assert "predicted" in report.reason
    assert "nothing was measured on the target device" in json.loads(report.json())["prediction"]["note"]
    console = Console(width=300, file=io.StringIO())
    with console.capture() as shown:
        console.print(summary(report))
    assert shown.get().count("nothing was measured on the target device") == 1


def test_an_absent_gpu_is_optimized_for(monkeypatch: pytest.MonkeyPatch, saved: Callable[[DeviceProfile], Path]) -> None:
    use(monkeypatch, FACTOR)
    report = superopt.optimize(
        branches(), budget=60.0, moves=("rules",), device_profile=saved(simple(provider="cuda")), provider="cuda"
    ).report
    assert report.accepted
    assert report.prediction is not None
    assert (report.prediction.provider, report.prediction.device) == ("cuda", "Simple")
    assert report.environment.provider == "cpu"


def test_where_nothing_gains_the_original_is_returned(
    monkeypatch: pytest.MonkeyPatch, saved: Callable[[DeviceProfile], Path]
) -> None:
    use(monkeypatch, SWAP)
    proto = branches(2)
    optimized = superopt.optimize(proto, budget=60.0, moves=("rules",), device_profile=saved(simple()))
    assert optimized.model is proto
    assert optimized.report.speedup == 1.0
    assert optimized.report.prediction is not None


def test_a_model_without_a_price_is_returned_as_it_is(saved: Callable[[DeviceProfile], Path]) -> None:
    proto = looped()
    optimized = superopt.optimize(proto, budget=60.0, device_profile=saved(simple()))
    assert optimized.model is proto
    assert "no predicted time on Simple" in optimized.report.reason


@pytest.mark.parametrize("name", ["rows", ""])
def test_open_dimensions_are_priced_at_the_sizes_that_matter(
    name: str, monkeypatch: pytest.MonkeyPatch, saved: Callable[[DeviceProfile], Path]
) -> None:
    use(monkeypatch, FACTOR)
    proto = branches()
    for port in (*proto.graph.input, *proto.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = name
    path = saved(simple())
    figures = []
    for rows in (8, 64):
        report = superopt.optimize(
            proto, budget=60.0, moves=("rules",), device_profile=path, shapes=[{name or "x.0": rows}]
        ).report
        assert report.accepted
        assert report.prediction is not None
        figures.append(report.prediction.original)
    assert figures[0] is not None
    assert figures[1] is not None
    assert 4 * figures[0] < figures[1]


def test_a_profile_is_enough_where_z3_is_not_installed(tmp_path: Path, saved: Callable[[DeviceProfile], Path]) -> None:
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": [3]}), tmp_path / "m.onnx")
    path = saved(simple())
    script = (
        "import sys; sys.modules['z3'] = None; import superopt; "
        f"print(superopt.optimize({str(tmp_path / 'm.onnx')!r}, device_profile={str(path)!r}).report.accepted)"
    )
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.stdout == "False\n", finished.stderr


# ---------------------------------------------------------------- the command


def test_the_command_shows_and_exports_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(branches(3), tmp_path / "m.onnx")
    first, again = tmp_path / "device.json", tmp_path / "again.json"
    assert cli.main(["profile", str(tmp_path / "m.onnx"), "--export", str(first)]) == 0
    shown = capsys.readouterr().out
    assert "product operations" in shown
    assert "MatMul" in shown
    assert str(tmp_path / "m.onnx")[-6:] in shown
    assert cli.main(["profile", "--export", str(again)]) == 0
    assert again.read_bytes() == first.read_bytes()
    assert read_profile(first).provider == "cpu"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--export", "nowhere/device.json"), TargetError),
        (("--import", "nowhere/device.json"), ProfileError),
        (("nowhere/m.onnx",), superopt.errors.ModelNotFoundError),
    ],
)
def test_the_command_fails_with_one_line(
    arguments: tuple[str, ...],
    error: type[SuperoptError],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["profile", *arguments]) == error.exit_code
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("superopt: ")]) == 1


def test_processes_profile_at_once_and_know_the_same(tmp_path: Path) -> None:
    onnx.save(branches(3), tmp_path / "m.onnx")
    script = "import sys\nfrom superopt.cli.main import main\nsys.exit(main())"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "shared")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, "profile", str(tmp_path / "m.onnx")],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(3)
    ]
    ended = [(process.communicate()[0], process.returncode) for process in running]
    assert [code for _, code in ended] == [0, 0, 0], ended
    with_all = build_profile(CPU, SIMPLE, Cache(tmp_path / "shared" / "superopt" / "times.sqlite"))
    assert {known.signature[1] for known in with_all.kernels} >= {"MatMul", "Gemm", "Sin"}
    assert len({known.text.partition("]],[")[0] for known in with_all.kernels}) == len(with_all.kernels)


def test_a_profile_is_the_same_text_whatever_the_order_of_its_times(tmp_path: Path) -> None:
    nodes = [known(rows, rows * 1e-6) for rows in (8, 16, 32)]
    texts = []
    for order in (nodes, nodes[::-1]):
        cache = Cache(tmp_path / f"{order[0].text[-8:-2]}.sqlite")
        replace(simple(*order), identity=CPU.identity).store(cache)
        texts.append(build_profile(CPU, SIMPLE, cache).text)
    assert texts[0] == texts[1]
    assert len(json.loads(texts[0])["kernels"]) == 3
