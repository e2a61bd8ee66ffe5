"""ONNX's Attention and RotaryEmbedding: lifting, recognition, and lowering at opsets with and without these operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from superopt.algebra.operators import apply
from superopt.algebra.terms import variable
from superopt.cost.demand import PRODUCT, demand
from superopt.flows.verify import verify
from superopt.model.available_fusions import contrib_fusions, fusions_at_opset
from superopt.model.islands import Chart
from superopt.model.load import load
from superopt.model.lower import lower
from superopt.rules.fusion import fusions
from superopt.runtime.bounds import index_bounds
from superopt.runtime.cache import Json
from superopt.runtime.kernel import Operand
from superopt.runtime.session import Device, Session
from superopt.search.fuse import fusion_states
from superopt.search.ruleset import RuleSet
from superopt.speclib.attention import LEAST
from tests.operator_cases import Array, arrays_for, evaluated, lifted, ran
from tests.rewriting import always_taken
from tests.test_fusion import attention, operators, require_same

pytestmark = pytest.mark.slow

OPSETS = [23, 24]
STANDARD = RuleSet(rule for rule in fusions_at_opset(23) if "attention" in rule.name)
Inputs = dict[str, Array]


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def flag(rng: np.random.Generator) -> bool:
    return bool(rng.integers(2))


def one_node(op_type: str, names: Sequence[str], given: Inputs, opset: int, fixed: Sequence[str] = (), **numbers: Any) -> Any:
    """Return a model of one node. The inputs named in `fixed` are weights."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in given.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["r"], **numbers)],
        "one",
        [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in given.items() if n not in fixed],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in given.items() if n in fixed],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def computed(model: onnx.ModelProto, given: Mapping[str, Array]) -> list[Array]:
    names = {value.name for value in model.graph.input}
    return Session(model, Device(), optimize=False).run({name: a for name, a in given.items() if name in names})


def require_lifts(model: onnx.ModelProto, given: Inputs, op_type: str) -> None:
    """Require that the node lifts to a term of the same values, and that the lowered term has these values too.

    At the model's opset, the term lowers to the operator itself. At opset 17, the term lowers to smaller operators.
    """
    opset = model.opset_import[0].version
    (expected,) = computed(model, given)
    graph = ir.from_proto(model).graph
    wanted = {"w": lifted(graph, opset)[graph.outputs[0]]}
    with np.errstate(divide="ignore", invalid="ignore"):
        (value,) = evaluated(given, wanted["w"])
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    fixed = {t.name for t in model.graph.initializer}
    arrays = {name: a.astype(np.float32) if name in fixed else a for name, a in given.items()}
    for target in (opset, 17):
        written = lower(wanted, target)
        assert (op_type in {node.op_type for node in written.nodes}) == (target == opset)
        np.testing.assert_allclose(ran(written, wanted, arrays, target)[0], expected, rtol=1e-4, atol=1e-5)


def a_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return a random mask of numbers or conditions that broadcasts to the shape. A mask may exclude whole rows."""
    narrow = [n if flag(rng) else 1 for n in shape[:2]]
    full = (*narrow[rng.integers(3) :], *shape[2:])
    allowed = rng.integers(0, 2, full).astype(bool)
    return [allowed, floats(rng, *full), np.where(allowed, floats(rng, *full), np.float32(LEAST))][rng.integers(3)]


def an_attention(rng: np.random.Generator) -> tuple[Inputs, dict[str, Any]]:
    b, groups, shared, s, t, d, e = (int(n) for n in rng.integers(1, 5, 7))
    heads, numbers = groups * shared, dict[str, Any]()
    if flag(rng):
        given = {"q": floats(rng, b, heads, s, d), "k": floats(rng, b, groups, t, d), "v": floats(rng, b, groups, t, e)}
    else:
        given = {"q": floats(rng, b, s, heads * d), "k": floats(rng, b, t, groups * d), "v": floats(rng, b, t, groups * e)}
        numbers = {"q_num_heads": heads, "kv_num_heads": groups}
    numbers |= {"scale": float(np.float32(rng.choice([0.25, 0.3])))} if flag(rng) else {}
    numbers |= {"is_causal": 1} if flag(rng) else {}
    return given | ({"m": a_mask(rng, (b, heads, s, t))} if flag(rng) else {}), numbers


@pytest.mark.parametrize("opset", OPSETS)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**20))
def test_attention_lifts_to_what_it_computes_and_back(seed: int, opset: int) -> None:
    given, numbers = an_attention(np.random.default_rng(seed))
    require_lifts(one_node("Attention", [*given], given, opset, **numbers), given, "Attention")


@pytest.mark.parametrize("opset", OPSETS)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**20))
def test_rotary_embedding_lifts_to_what_it_computes_and_back(seed: int, opset: int) -> None:
    rng = np.random.default_rng(seed)
    b, heads, s, half, rest = (int(n) for n in rng.integers(1, 5, 5))
    rest, whole = 2 * rest * flag(rng), flag(rng)
    width = 2 * half + rest
    numbers: dict[str, Any] = {"interleaved": int(flag(rng))} | ({"rotary_embedding_dim": 2 * half} if rest else {})
    numbers |= {} if whole and not rest else {"num_heads": heads}
    given = {"x": floats(rng, b, heads, s, width) if whole else floats(rng, b, s, heads * width)}
    if flag(rng):
        given |= {"c": floats(rng, 9, half), "s": floats(rng, 9, half), "i": rng.integers(0, 9, (b, s))}
    else:
        given |= {"c": floats(rng, b, s, half), "s": floats(rng, b, s, half)}
    fixed = ((), ("c", "s"), ("c", "s", *(["i"] if "i" in given else [])))[rng.integers(3)]
    require_lifts(one_node("RotaryEmbedding", [*given], given, opset, fixed, **numbers), given, "RotaryEmbedding")


RNG = np.random.default_rng(0)
HEADS, LENGTH, SIZE, ROWS = 2, 5, 4, 256
WIDTH = HEADS * SIZE
Q = floats(RNG, 2, HEADS, LENGTH, SIZE)
OUTSIDE: list[tuple[Inputs, list[str], dict[str, Any]]] = [
    ({"q": Q, "k": Q, "v": Q}, ["q", "k", "v"], {"softcap": 2.0}),
    ({"q": Q, "k": Q, "v": Q, "n": np.array([3, 4])}, ["q", "k", "v", "", "", "", "n"], {}),
    ({"q": Q, "k": Q, "v": Q, "m": floats(RNG, LENGTH, 3)}, ["q", "k", "v", "m"], {}),
    ({"q": Q, "k": Q, "v": Q}, ["q", "k", "v"], {"scale": -1.0}),
    ({"q": Q, "k": Q, "v": Q}, ["q", "k", "v"], {"left_window_size": 1}),
]


@pytest.mark.parametrize(("given", "names", "numbers"), OUTSIDE, ids=["cap", "lengths", "short mask", "scale", "window"])
def test_attention_outside_the_binding_stays_opaque(given: Inputs, names: list[str], numbers: dict[str, Any]) -> None:
    assert lifted(ir.from_proto(one_node("Attention", names, given, 26, **numbers)).graph, 26) == {}


def test_attention_with_a_past_or_several_outputs_stays_opaque() -> None:
    names = ["q", "k", "v", "", "pk", "pv"]
    model = one_node("Attention", names, dict.fromkeys((name for name in names if name), Q), 23)
    model.graph.node[0].output.extend(["present.k", "present.v"])
    assert lifted(ir.from_proto(model).graph, 23) == {}


def test_positions_stay_in_the_table() -> None:
    given = {"x": Q, "c": floats(RNG, 9, 2), "s": floats(RNG, 9, 2), "i": np.zeros((2, LENGTH), np.int64)}
    assert index_bounds(one_node("RotaryEmbedding", [*given], given, 23, ("c", "s"))) == {"i": 9}
    tables = {"x": Q, "c": floats(RNG, 2, LENGTH, 2), "s": floats(RNG, 2, LENGTH, 2)}
    assert index_bounds(one_node("RotaryEmbedding", [*tables], tables, 23, ("c", "s"))) == {}


@pytest.mark.parametrize("shape", [(2, 12, 5, 64), (2, 5, 12 * 64)])
def test_operations_are_those_of_both_products(shape: tuple[int, ...]) -> None:
    keys = (*shape[:-2], 7, shape[-1])
    operands: list[Json] = [[place, 1, [*dims], False] for place, dims in enumerate((shape, keys, keys))]
    found = demand(["", "Attention", 23, [], operands, [True]], (Operand(1, shape),))
    assert (found.kind, found.operations) == (PRODUCT, 2 * 2 * 2 * 12 * 5 * 7 * 64)


# ---------------------------------------------------------------- fusions


def test_an_operator_of_the_standard_is_offered_from_its_opset_on() -> None:
    names = {rule.name.partition(".")[0] for rule in fusions_at_opset(23)}
    assert names == {"channel_affine", "scaled_dot_product_attention", "grouped_query_attention"}
    assert {rule.name.partition(".")[0] for rule in fusions_at_opset(22)} == {"channel_affine"}
    assert not {*fusions_at_opset(24)} & {*contrib_fusions()}
    assert {*fusions_at_opset(24), *contrib_fusions()} == {*fusions().values()}


@pytest.mark.parametrize("scale", [1, 0.5])
def test_attention_becomes_the_operator_of_the_standard(scale: float) -> None:
    start = (attention(variable("x", (2, 5, 6)), scale=scale),)
    (apart, _), (together, _) = fusion_states(start, STANDARD)
    assert "scaled_dot_product_attention" in operators(apart)
    assert "grouped_query_attention" in operators(together)
    assert not {"softmax", "transpose", "reshape"} & {*operators(together)}
    require_same(start, apart)
    require_same(start, together)
    for state in (apart, together):
        lowered = lower({"y": state[0]}, 23)
        assert "Attention" in {node.op_type for node in lowered.nodes}
        arrays = arrays_for(*start)
        found = ran(lowered, {"y": start[0]}, arrays, 23)[0]
        np.testing.assert_allclose(found, evaluated(arrays, *start)[0], rtol=1e-4, atol=1e-4)


def test_heads_that_share_keys_need_no_copies() -> None:
    x, k, v = variable("x", (2, 6, 5, 4)), variable("k", (2, 3, 7, 4)), variable("v", (2, 3, 7, 4))
    copies = (
        apply("reshape", apply("expand", t, shape=(2, 3, 2, 7, 4), axes=(-5, -4, -2, -1)), shape=(2, 6, 7, 4)) for t in (k, v)
    )
    keys, values = copies
    scores = apply("matmul", x, apply("transpose", keys, perm=(0, 1, 3, 2)))
    start = (apply("matmul", apply("softmax", scores, axis=-1), values),)
    states = [state for state, _ in fusion_states(start, STANDARD)]
    assert any(operators(state) == ["scaled_dot_product_attention"] for state in states)
    for state in states:
        require_same(start, state)


def test_what_is_allowed_and_added_is_one_mask() -> None:
    q, m = variable("q", (1, 2, 3, 4)), variable("m", (1, 2, 3, 3))
    c = apply("less", m, variable("n", (1, 2, 3, 3)))
    term = apply("scaled_dot_product_attention", q, q, q, m, c, scale=1, causal=0)
    arrays = arrays_for(term)
    lowered = lower({"y": term}, 23)
    assert [node.op_type for node in lowered.nodes] == ["Less", "Max", "Where", "Attention"]
    assert float(np.float32(LEAST)) == float(np.finfo(np.float32).min)
    np.testing.assert_allclose(ran(lowered, {"y": term}, arrays, 23)[0], evaluated(arrays, term)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("finite", [True, False])
def test_a_row_of_least_numbers_is_what_a_softmax_makes_of_it(finite: bool) -> None:
    scores, m = variable("x", (1, 2, 3, 3)), variable("m", (1, 2, 3, 3))
    m = apply("scale", apply("tanh", m), factor=10**9) if finite else m
    start = (apply("matmul", apply("softmax", apply("add", apply("matmul", scores, scores), m), axis=-1), scores),)
    (after, _), *_ = fusion_states(start, STANDARD)
    lowered = lower({"y": after[0]}, 23)
    assert ("Max" in {node.op_type for node in lowered.nodes}) != finite
    arrays = arrays_for(*start)
    arrays["m"][0, 0, 1] = LEAST
    expected = ran(lower({"y": start[0]}, 23), {"y": start[0]}, arrays, 23)
    np.testing.assert_allclose(ran(lowered, {"y": start[0]}, arrays, 23), expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- models


def network(path: Path, opset: int, sizes: tuple[int | str, ...] = (1, LENGTH), *, with_operators: bool = True) -> Path:
    """Save a model of attention with rotary embeddings between products with weights.

    The attention uses ONNX's operators, or smaller operators.
    """
    rng = np.random.default_rng(1)
    nodes, weights = list[onnx.NodeProto](), list[onnx.TensorProto]()

    def stored(array: Array) -> str:
        weights.append(numpy_helper.from_array(array, f"weight.{len(weights)}"))
        return str(weights[-1].name)

    def node(op_type: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [f"{op_type}.{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def heads(x: str, perm: list[int]) -> str:
        return node("Transpose", node("Reshape", x, stored(np.array([0, 0, HEADS, SIZE]))), perm=perm)

    q, k, v = (node("MatMul", "x", stored(floats(rng, WIDTH, WIDTH) / 3)) for _ in range(3))
    if with_operators:
        tables = [stored(floats(rng, ROWS, SIZE // 2)) for _ in range(2)]
        q, k = (node("RotaryEmbedding", x, *tables, "i", num_heads=HEADS) for x in (q, k))
        mixed = node("Attention", q, k, v, q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1)
    else:
        scores = node("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
        mask = stored(np.where(np.tri(LENGTH, dtype=bool), 0, -1e9).astype(np.float32))
        scores = node("Add", node("Mul", scores, stored(np.array(SIZE**-0.5, np.float32))), mask)
        found = node("MatMul", node("Softmax", scores, axis=-1), heads(v, [0, 2, 1, 3]))
        mixed = node("Reshape", node("Transpose", found, perm=[0, 2, 1, 3]), stored(np.array([0, 0, WIDTH])))
    result = node("MatMul", mixed, stored(floats(rng, WIDTH, WIDTH) / 3))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*sizes, WIDTH])]
    inputs += [helper.make_tensor_value_info("i", TensorProto.INT64, [*sizes])] if with_operators else []
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, [*sizes, WIDTH])]
    graph = helper.make_graph(nodes, "network", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("sizes", [(1, LENGTH), ("batch", "length")], ids=["fixed", "open"])
def test_a_model_with_the_operators_is_one_island(sizes: tuple[int | str, ...], opset: int, tmp_path: Path) -> None:
    path = network(tmp_path / "in.onnx", opset, sizes)
    (island,) = Chart(load(path).model).islands()
    assert len(island.nodes) == len(onnx.load(path).graph.node)


def require_same_models(one: Path, other: Path) -> None:
    given = {"x": floats(RNG, 1, LENGTH, WIDTH), "i": RNG.integers(0, ROWS, (1, LENGTH))}
    before, after = (computed(onnx.load(path), given)[0] for path in (one, other))
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4)


def operators_of(path: Path) -> set[tuple[str, str]]:
    return {(node.domain, node.op_type) for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("sizes", [(1, LENGTH), ("batch", "length")], ids=["fixed", "open"])
def test_a_model_with_the_operators_is_optimized(
    opset: int, sizes: tuple[int | str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = network(tmp_path / "in.onnx", opset, sizes)
    always_taken(monkeypatch)
    found = superopt.optimize(path, budget=2.0, cache=tmp_path / "cache")
    found.save(out := tmp_path / "out.onnx")
    assert not found.report.failed
    require_same_models(path, out)


@pytest.mark.parametrize(("before", "opset"), [(23, None), (17, 23)])
def test_attention_is_recognized_where_the_opset_has_it(
    before: int, opset: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = network(tmp_path / "in.onnx", before, with_operators=False)
    always_taken(monkeypatch)
    found = superopt.optimize(path, budget=10.0, opset=opset, moves=("rules",), cache=tmp_path / "cache")
    found.save(out := tmp_path / "out.onnx")
    assert ("", "Attention") in operators_of(out)
    assert not {domain for domain, _ in operators_of(out)} - {""}
    assert any(rule.name.startswith("scaled_dot_product_attention.") for rule in found.report.rules)
    assert "tested" in [kind.how for kind in verify(path, out, found.certificate).kinds]
    require_same_models(path, out)


@pytest.mark.parametrize("contrib", [False, True])
def test_an_older_opset_has_no_attention_of_the_standard(
    contrib: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = network(tmp_path / "in.onnx", 17, with_operators=False)
    always_taken(monkeypatch)
    budget = 10.0 if contrib else 2.0
    found = superopt.optimize(path, budget=budget, moves=("rules",), allow_contrib=contrib, cache=tmp_path / "cache")
    found.save(out := tmp_path / "out.onnx")
    assert ("", "Attention") not in operators_of(out)
    assert any(domain == "com.microsoft" for domain, _ in operators_of(out)) == contrib
    require_same_models(path, out)
