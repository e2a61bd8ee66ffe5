"""Contrib operators of ONNX Runtime in models: their terms compared with ONNX Runtime, and the optimization of such models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.model.islands import Chart
from superopt.model.load import load
from superopt.model.lower import lower
from superopt.protobuf.nodes import domains
from superopt.runtime.bounds import index_bounds
from superopt.runtime.session import Device, Session
from tests.operator_cases import Array, evaluated, lifted, ran

pytestmark = pytest.mark.slow

MICROSOFT = "com.microsoft"
WRITTEN = ("FastGelu", "MultiHeadAttention", "RotaryEmbedding")
"""The operators that lift to an operator of their own, so that they lower to themselves."""
STANDARD = ("SimplifiedLayerNormalization", "LayerNormalization")
OPSETS = [13, 17, 20]
Draw = Callable[[np.random.Generator], "Case"]


@dataclass
class Case:
    """A node: its operator, operands (None is an omitted operand), constant operands and output names."""

    op_type: str
    operands: list[Array | None]
    constants: tuple[int, ...] = ()
    outputs: tuple[str, ...] = ("r0",)
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def domain(self) -> str:
        return "" if self.op_type in STANDARD else MICROSOFT

    @property
    def given(self) -> dict[str, Array]:
        return {f"v{position}": a for position, a in enumerate(self.operands) if a is not None}

    def model(self, opset: int) -> onnx.ModelProto:
        """Return a model that consists of the node."""
        names = [f"v{position}" if a is not None else "" for position, a in enumerate(self.operands)]
        fixed = {f"v{position}" for position in self.constants}
        inputs = {name: a for name, a in self.given.items() if name not in fixed}
        kinds = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in inputs.items()}
        graph = helper.make_graph(
            [helper.make_node(self.op_type, names, self.outputs, domain=self.domain, **self.attributes)],
            "one",
            [helper.make_tensor_value_info(name, kinds[name], a.shape) for name, a in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs if name],
            [numpy_helper.from_array(a, name) for name, a in self.given.items() if name in fixed],
        )
        imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def shape_of(rng: np.random.Generator, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, 6, rng.integers(least, most + 1)))


def flag(rng: np.random.Generator) -> bool:
    return bool(rng.integers(2))


def fused_matmul(rng: np.random.Generator) -> Case:
    batch, (m, k, n) = shape_of(rng, 0, 2), (int(e) for e in rng.integers(1, 6, 3))
    turned = {name: int(flag(rng)) for name in ("transA", "transB")}
    x = floats(rng, *batch, *((k, m) if turned["transA"] else (m, k)))
    y = floats(rng, *(batch if flag(rng) else ()), *((n, k) if turned["transB"] else (k, n)))
    alpha = {"alpha": float(np.float32(rng.choice([0.125, 0.1, -1.5])))} if flag(rng) else {}
    return Case("FusedMatMul", [x, y], (1,) if flag(rng) else (), attributes={**turned, **alpha})


def gelu(rng: np.random.Generator) -> Case:
    return Case("Gelu", [floats(rng, *shape_of(rng))])


def bias_gelu(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    return Case("BiasGelu", [floats(rng, *shape), floats(rng, shape[-1])], (1,) if flag(rng) else ())


def fast_gelu(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    return Case("FastGelu", [floats(rng, *shape), *([floats(rng, shape[-1])] if flag(rng) else [])])


def quick_gelu(rng: np.random.Generator) -> Case:
    alpha = {"alpha": float(np.float32(rng.choice([1.0, 1.5, 0.1])))} if flag(rng) else {}
    return Case("QuickGelu", [floats(rng, *shape_of(rng))], attributes=alpha)


def skipped(op_type: str, rows: int) -> Draw:
    """Return a function that draws a skip normalization with `rows` weight vectors and sometimes a bias."""

    def draw(rng: np.random.Generator) -> Case:
        b, s, h = (int(n) for n in rng.integers(1, 6, 3))
        shapes = [(b, s, h), *([(1, s, h), (s, h)] if flag(rng) else [])]
        skip = floats(rng, *shapes[rng.integers(len(shapes))])
        vectors: list[Array | None] = [floats(rng, h) for _ in range(rows)]
        if rows > 1 and flag(rng):
            vectors[1] = None
        if flag(rng):
            vectors.append(floats(rng, h))
        outputs = ("r0", "", "", "r3") if flag(rng) else ("r0",)
        epsilon = {"epsilon": float(rng.choice([1e-3, 1e-5]))}
        fixed = tuple(position for position in range(2, 2 + rows) if vectors[position - 2] is not None) if flag(rng) else ()
        return Case(op_type, [floats(rng, b, s, h), skip, *vectors], fixed, outputs, epsilon)

    return draw


def simplified(rng: np.random.Generator) -> Case:
    shape = shape_of(rng, 2, 3)
    epsilon = {"epsilon": 1e-3} if flag(rng) else {}
    return Case("SimplifiedLayerNormalization", [floats(rng, *shape), floats(rng, shape[-1])], (1,), ("r0",), epsilon)


def rotary(rng: np.random.Generator) -> Case:
    b, heads, s, half, rest = (int(n) for n in rng.integers(1, 5, 5))
    rest, rank = 2 * rest * flag(rng), 3 + flag(rng)
    x = floats(rng, *((b, s, heads * (2 * half + rest)) if rank == 3 else (b, heads, s, 2 * half + rest)))
    positions = rng.integers(0, 9, (b, s)) if (b, s) != (1, 1) or flag(rng) else rng.integers(0, 9, 1)
    numbers = {"interleaved": int(flag(rng))}
    if rest or flag(rng):
        numbers |= {"num_heads": heads} | ({"rotary_embedding_dim": 2 * half} if rest else {})
    fixed = ((2, 3), (1, 2, 3), ())[rng.integers(3)]
    operands: list[Array | None] = [x, positions, floats(rng, 9, half), floats(rng, 9, half)]
    return Case("RotaryEmbedding", operands, fixed, attributes=numbers)


def attention(rng: np.random.Generator) -> Case:
    b, heads, s, t, d, e = (int(n) for n in rng.integers(1, 5, 6))
    operands: list[Array | None] = [floats(rng, b, s, heads * d), floats(rng, b, t, heads * d), floats(rng, b, t, heads * e)]
    if flag(rng):
        operands += [None, None, floats(rng, b if flag(rng) else 1, heads if flag(rng) else 1, s, t)]
    scale = {"scale": 0.25} if flag(rng) else {}
    return Case("MultiHeadAttention", operands, attributes={"num_heads": heads, **scale})


CASES: Mapping[str, Draw] = {
    "MultiHeadAttention": attention,
    "FusedMatMul": fused_matmul,
    "Gelu": gelu,
    "BiasGelu": bias_gelu,
    "FastGelu": fast_gelu,
    "QuickGelu": quick_gelu,
    "SkipLayerNormalization": skipped("SkipLayerNormalization", 2),
    "SkipSimplifiedLayerNormalization": skipped("SkipSimplifiedLayerNormalization", 1),
    "SimplifiedLayerNormalization": simplified,
    "RotaryEmbedding": rotary,
}


# ---------------------------------------------------------------- nodes


@pytest.mark.parametrize("op_type", CASES)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**20), opset=st.sampled_from(OPSETS))
def test_a_node_lifts_to_what_it_computes_and_back(op_type: str, seed: int, opset: int) -> None:
    case = CASES[op_type](np.random.default_rng(seed))
    model = case.model(opset)
    fixed = {f"v{position}" for position in case.constants}
    expected = Session(model, Device(), optimize=False).run({k: a for k, a in case.given.items() if k not in fixed})
    graph = ir.from_proto(model).graph
    terms = lifted(graph, opset)
    wanted = {f"w{position}": terms[value] for position, value in enumerate(graph.outputs)}
    for value, array in zip(evaluated(case.given, *wanted.values()), expected, strict=True):
        np.testing.assert_allclose(value, array, rtol=1e-4, atol=1e-4)
    given = {name: a.astype(np.float32) if name in fixed else a for name, a in case.given.items()}
    written = lower(wanted, opset)
    assert bool(domains(written)) == (op_type in WRITTEN)
    for found, array in zip(ran(written, wanted, given, opset), expected, strict=True):
        np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-4)


RNG = np.random.default_rng(0)
X, Y, ROW = floats(RNG, 2, 3, 8), floats(RNG, 2, 3, 8), floats(RNG, 8)
TABLE = floats(RNG, 9, 2)
OUTSIDE = [
    Case("FusedMatMul", [floats(RNG, 3, 2, 4), floats(RNG, 2, 4, 5)], attributes={"transBatchA": 1}),
    Case("SkipLayerNormalization", [X, Y, ROW], outputs=("r0", "r1")),
    Case("SkipSimplifiedLayerNormalization", [X, Y, ROW], outputs=("r0", "", "r2", "r3")),
    Case("RotaryEmbedding", [X, np.array([2]), TABLE, TABLE], attributes={"num_heads": 2}),
    Case("RotaryEmbedding", [X, np.zeros((2, 3), np.int64), TABLE, TABLE], attributes={"num_heads": 2, "scale": 2.0}),
]


@pytest.mark.parametrize("case", OUTSIDE, ids=lambda case: case.op_type)
def test_a_node_outside_the_bindings_stays_opaque(case: Case) -> None:
    assert lifted(ir.from_proto(case.model(17)).graph, 17) == {}


def test_an_operator_of_the_standard_before_its_opset_lifts_with_its_defaults() -> None:
    case = Case("LayerNormalization", [X, ROW, ROW], (1, 2))
    graph = ir.from_proto(case.model(13)).graph
    (term,) = lifted(graph, 13).values()
    np.testing.assert_allclose(
        evaluated(case.given, term)[0],
        Session(case.model(13), Device(), optimize=False).run({"v0": X})[0],
        rtol=1e-4,
        atol=1e-4,
    )


# ---------------------------------------------------------------- models


WIDTH, LENGTH, HEADS, ROWS = 16, 6, 2, 64


class Network:
    """A builder of a small model with random weights."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.nodes, self.weights = list[onnx.NodeProto](), list[onnx.TensorProto]()

    def stored(self, array: Array) -> str:
        self.weights.append(numpy_helper.from_array(array, f"weight.{len(self.weights)}"))
        return str(self.weights[-1].name)

    def row(self) -> str:
        return self.stored(floats(self.rng, WIDTH))

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node, and return the name of its first output. Of the further outputs, only the last has a name."""
        first = f"{op_type}.{len(self.nodes)}"
        names = [first, *(f"{first}.{n}" if n == outputs - 1 else "" for n in range(1, outputs))]
        domain = MICROSOFT if op_type in CASES and op_type not in STANDARD else ""
        self.nodes.append(helper.make_node(op_type, inputs, names, domain=domain, **attributes))
        return first

    def dense(self, x: str) -> str:
        return self.node("MatMul", x, self.stored(floats(self.rng, WIDTH, WIDTH) / 4))

    def saved(self, path: Path, opset: int, *results: str, sizes: tuple[int | str, ...] = (2, LENGTH)) -> Path:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*sizes, WIDTH])]
        if any("i" in node.input for node in self.nodes):
            inputs.append(helper.make_tensor_value_info("i", TensorProto.INT64, [*sizes]))
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [*sizes, WIDTH]) for name in results]
        graph = helper.make_graph(self.nodes, "network", inputs, outputs, self.weights)
        imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
        return path


def with_operator(op_type: str, path: Path, opset: int, sizes: tuple[int | str, ...] = (2, LENGTH)) -> Path:
    """Save a model with the operator between products with weights. A second result of the operator is also an output."""
    net = Network()
    x, results = net.dense("x"), list[str]()
    match op_type:
        case "FusedMatMul":
            y = net.node(op_type, x, net.stored(floats(net.rng, WIDTH, WIDTH)), transB=1, alpha=0.25)
        case "Gelu" | "QuickGelu":
            y = net.node(op_type, x)
        case "BiasGelu" | "FastGelu":
            y = net.node(op_type, x, net.row())
        case "SimplifiedLayerNormalization":
            y = net.node(op_type, x, net.row(), epsilon=1e-5)
        case "MultiHeadAttention":
            mask = ["", "", net.stored(floats(net.rng, 1, HEADS, LENGTH, LENGTH))] if LENGTH in sizes else []
            y = net.node(op_type, x, x, x, *mask, num_heads=HEADS)
        case "RotaryEmbedding":
            tables = [net.stored(floats(net.rng, ROWS, WIDTH // HEADS // 2)) for _ in range(2)]
            y = net.node(op_type, x, "i", *tables, num_heads=HEADS)
        case _:
            rows = [net.row() for _ in range(3 if op_type == "SkipLayerNormalization" else 2)]
            y = net.node(op_type, x, "x", *rows, outputs=4, epsilon=1e-5)
            results = [net.node("Add", f"{y}.3", "x")]
    return net.saved(path, opset, net.dense(y), *results, sizes=sizes)


def own(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node if node.domain == MICROSOFT}


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("sizes", [(2, LENGTH), ("batch", "length")], ids=["fixed", "open"])
@pytest.mark.parametrize("op_type", CASES)
def test_a_model_with_the_operator_is_one_island(
    op_type: str, sizes: tuple[int | str, ...], opset: int, tmp_path: Path
) -> None:
    path = with_operator(op_type, tmp_path / "in.onnx", opset, sizes)
    (island,) = Chart(load(path).model).islands()
    assert len(island.nodes) == len(onnx.load(path).graph.node)


@pytest.mark.parametrize(("op_type", "opset"), [(op_type, 14 if number % 2 else 18) for number, op_type in enumerate(CASES)])
def test_a_model_with_the_operator_is_optimized(
    op_type: str, opset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_operator(op_type, tmp_path / "in.onnx", opset)
    monkeypatch.setattr("superopt.runtime.multi_shape.SizeComparisons.faster", property(lambda _: True))
    found = superopt.optimize(path, budget=2.0, cache=tmp_path / "cache")
    found.save(out := tmp_path / "out.onnx")
    assert not found.report.failed
    assert own(onnx.load(out)) <= own(onnx.load(path))
    rng = np.random.default_rng(2)
    feeds = {"x": floats(rng, 2, LENGTH, WIDTH), "i": rng.integers(0, ROWS, (2, LENGTH))}
    results = []
    for model in (onnx.load(path), onnx.load(out)):
        names = {value.name for value in model.graph.input}
        results.append(Session(model, Device(), optimize=True).run({name: a for name, a in feeds.items() if name in names}))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, LENGTH), (1, 1)])
def test_positions_may_be_stored(shape: tuple[int, int], tmp_path: Path) -> None:
    net = Network()
    tables = [net.stored(floats(net.rng, 9, WIDTH // HEADS // 2)) for _ in range(2)]
    positions = net.stored(np.arange(shape[0] * shape[1]).reshape(shape) % 9)
    y = net.node("RotaryEmbedding", net.dense("x"), positions, *tables, num_heads=HEADS)
    path = net.saved(tmp_path / "in.onnx", 17, net.dense(y), sizes=shape)
    (island,) = Chart(load(path).model).islands()
    assert [node.op_type for node in island.nodes] == ["MatMul", "RotaryEmbedding", "MatMul"]


def test_positions_are_drawn_from_the_tables_rows(tmp_path: Path) -> None:
    assert index_bounds(onnx.load(with_operator("RotaryEmbedding", tmp_path / "in.onnx", 18))) == {"i": ROWS}


def test_layers_of_them_are_one_island(tmp_path: Path) -> None:
    net = Network()
    x, skip = net.dense("x"), "x"
    for _ in range(3):
        x = net.node("SkipSimplifiedLayerNormalization", x, skip, net.row(), outputs=4, epsilon=1e-5)
        skip = f"{x}.3"
        x = net.dense(net.node("QuickGelu", net.dense(x), alpha=1.0))
    path = net.saved(tmp_path / "in.onnx", 17, net.node("Add", x, skip))
    (island,) = Chart(load(path).model).islands()
    assert len(island.nodes) == len(net.nodes)
