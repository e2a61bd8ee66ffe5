"""superopt as a pass of onnx_ir, alone and in a sequence of passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import RemoveUnusedNodesPass

from superopt.errors import FixedInputError
from superopt.flows.optimized import Optimized
from superopt.ir_pass import Superopt
from superopt.runtime.session import Device, Session

BRANCHES = Path(__file__).parent.parent / "examples" / "branches.onnx"


@pytest.mark.slow
def test_a_sequence_of_passes_gives_a_faster_model(tmp_path: Path) -> None:
    model = ir.load(BRANCHES)
    before = ir.to_proto(model).SerializeToString()
    results: list[Optimized[ir.Model]] = []
    superopt = Superopt(results.append, budget="5s", threads=1, cache=tmp_path / "times.sqlite")
    found = Sequential(RemoveUnusedNodesPass(), superopt)(model)
    (optimized,) = results
    assert found.modified == optimized.report.accepted
    assert (found.model is optimized.model) == found.modified
    assert len(found.model.graph) < len(model.graph) or not found.modified
    assert ir.to_proto(model).SerializeToString() == before
    sessions = [Session(ir.to_proto(m), Device("cpu", 1)) for m in (model, found.model)]
    rng = np.random.default_rng(0)
    feeds = {
        v.name or "": rng.standard_normal([n if isinstance(n, int) else 2 for n in v.shape or ()]).astype(np.float32)
        for v in model.graph.inputs
    }
    for mine, other in zip(*(session.run(feeds) for session in sessions), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_model_that_is_kept_is_copied(tmp_path: Path) -> None:
    """onnx_ir requires that a pass returns another model object, even if the pass did not change the model."""
    kept = Superopt(budget=0, threads=1, no_cache=True)(ir.load(BRANCHES))
    assert not kept.modified
    assert len(kept.model.graph) == len(ir.load(BRANCHES).graph)


def test_errors_are_those_of_optimize() -> None:
    with pytest.raises(ValueError, match="never"):
        Superopt(budget="never").call(ir.load(BRANCHES))
    with pytest.raises(FixedInputError):
        Superopt(fix={"absent": 1}, no_cache=True).call(ir.load(BRANCHES))
