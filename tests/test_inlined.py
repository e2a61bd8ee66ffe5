"""Local functions: optimized models contain their nodes inline, and models that are kept still have the functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import superopt
from superopt.flows.verify import verify
from superopt.model.inline_functions import inline_functions
from superopt.model.islands import Chart
from superopt.model.load import as_proto, load
from superopt.runtime.session import Device, Session

pytestmark = pytest.mark.slow

TEXT = """
    <ir_version: 10, opset_import: ["" : 20, "own" : 1]>
    agraph (float[4, 8] x) => (float[4, 8] y)
    <float[8, 8] v = {%s}, float[8, 8] w = {%s}>
    {
        a = own.layer<slope = 0.5>(x, v)
        b = own.layer(a, w)
        y = MatMul(b, w)
    }
    <domain: "own", opset_import: ["" : 20]>
    act <slope: float = 0.25>(x) => (y) { y = LeakyRelu<alpha: float = @slope>(x) }
    <domain: "own", opset_import: ["" : 20, "own" : 1]>
    layer <slope: float = 0.25>(x, w) => (y)
    {
        m = MatMul(x, w)
        y = own.act<slope: float = @slope>(m)
    }
"""


def layers() -> onnx.ModelProto:
    """Return a model with two calls of a function that calls another function.

    Some attributes are given, and the others have default values.
    """
    numbers = [", ".join(f"{n:.3f}" for n in np.random.default_rng(seed).normal(size=64)) for seed in (0, 1)]
    return onnx.parser.parse_model(TEXT % (*numbers,))


def test_functions_stand_where_they_are_called() -> None:
    proto = layers()
    given = load(proto).model
    plain = inline_functions(given)
    assert [n.op_type for n in plain.graph] == ["MatMul", "LeakyRelu", "MatMul", "LeakyRelu", "MatMul"]
    assert len(given.functions) == 2
    assert not plain.functions
    (island,) = Chart(plain).islands()
    assert len(island.nodes) == 5
    feeds = {"x": np.random.default_rng(2).normal(size=(4, 8)).astype(np.float32)}
    one, other = (Session(m, Device("cpu")).run(feeds)[0] for m in (proto, as_proto(plain)))
    np.testing.assert_allclose(other, one, rtol=1e-5)


def test_a_model_without_functions_is_returned_itself() -> None:
    plain = inline_functions(load(layers()).model)
    assert inline_functions(plain) is plain


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace('["" : 20]>\n    act', '["" : 17]>\n    act') % ((", ".join(["0"] * 64),) * 2),
        """
        <ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        agraph (float[4] x) => (float[4] y) { y = own.same(x) }
        <domain: "own", opset_import: ["" : 20]> same (x) => (x) { }
        """,
    ],
    ids=["another opset", "what is given is given back"],
)
def test_what_cannot_stand_there_stays(text: str) -> None:
    given = load(onnx.parser.parse_model(text)).model
    assert inline_functions(given) is given


def test_what_is_found_in_functions_is_written_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.onnx"
    text = """
        <ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        agraph (float[64, 64] x, float[64, 64] z) => (float[64, 64] y) { y = own.sums(x, z) }
        <domain: "own", opset_import: ["" : 20]>
        sums (x, z) => (y) { a = MatMul(x, z) b = MatMul(x, x) y = Add(a, b) }
    """
    onnx.save(onnx.parser.parse_model(text), path)
    monkeypatch.setattr("superopt.runtime.multi_shape.SizeComparisons.faster", property(lambda _: True))
    found = superopt.optimize(path, budget=60.0, moves=("rules",), cache=tmp_path / "cache")
    assert found.report.accepted
    assert [n.op_type for n in found.model.graph].count("MatMul") == 1
    found.save(out := tmp_path / "out.onnx")
    assert verify(path, out, found.certificate).segments
