"""The node test cases of the ONNX standard for every operator that a spec binds.

A case runs if its node lifts. The test evaluates the terms by their definitions, and also lowers the terms and runs them in
ONNX Runtime. Both results must be the expected result of the case. Inputs that a binding requires to be constant (shapes,
axes, numbers) are initializers. The file `onnx_node_cases.txt` lists each other case once, with a reason. The reason is "not
evaluated" or "not run" if only the evaluation or only the run is impossible. Otherwise, the reason says why the node does not
lift. Cases named `_expanded` are bodies of functions, not nodes, and are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.shape_inference import InferenceError

from superopt.algebra.operators import registry
from superopt.algebra.terms import Term, variables
from superopt.errors import InvalidModelError, ShapeError
from superopt.model.lower import lower
from tests.operator_cases import Array, evaluated, lifted, ran

pytestmark = pytest.mark.slow

FLOATING, BOOLEAN = "f", "b"
EVALUATED, RUN = "evaluated", "run"
NEWEST = 24  # the newest opset that the oldest supported ONNX Runtime runs
TABLE = Path(__file__).parent / "onnx_node_cases.txt"


def listed() -> dict[str, str]:
    """Return patterns for the names of the cases outside the bindings, each with its reason."""
    found: dict[str, str] = {}
    reason = ""
    for line in TABLE.read_text().splitlines():
        if line.startswith("    "):
            for pattern in line.split():
                assert pattern not in found, f"{pattern} is listed twice"
                found[pattern] = reason
        elif line and not line.startswith("#"):
            reason = line
    return found


class Case:
    """One node, its input arrays and its expected outputs."""

    def __init__(self, case: Any) -> None:
        self.name: str = case.name
        self.rtol, self.atol = case.rtol, case.atol
        self.model: onnx.ModelProto = case.model
        (self.node,) = case.model.graph.node
        self.opset = next(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx"))
        inputs, outputs = case.data_sets[0]
        self.given = _named(case.model.graph.input, inputs)
        self.expected = _named(case.model.graph.output, outputs)

    def terms(self) -> dict[str, Term] | None:
        """Return the terms of the node's results, or of the results that the operator must have.

        Return None if the node does not lift.
        """
        if any(a.dtype.kind == "O" for a in (*self.given.values(), *self.expected.values())):
            return None
        numbers = {name for name, a in self.given.items() if a.dtype.kind not in (FLOATING, BOOLEAN)}
        schema = onnx.defs.get_schema(self.node.op_type, self.opset)
        for outputs in dict.fromkeys((len(self.node.output), schema.min_output or len(self.node.output))):
            for constant in (numbers, self.given.keys() - {self.node.input[0]}):
                found = self._lifted(constant, outputs)
                if found is not None:
                    return found
        return None

    def _lifted(self, constant: set[str], outputs: int) -> dict[str, Term] | None:
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.ir_version = max(model.ir_version, 4)
        kept = [v for v in model.graph.input if v.name not in constant]
        del model.graph.input[:], model.graph.output[outputs:], model.graph.node[0].output[outputs:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(numpy_helper.from_array(self.given[name], name) for name in sorted(constant))
        graph = ir.from_proto(model).graph
        terms = {v.name: t for v, t in lifted(graph, self.opset).items()}
        wanted = {v.name: terms.get(v.name) for v in model.graph.output}
        return {n: t for n, t in wanted.items() if t is not None} if None not in wanted.values() else None

    def complaint(self, terms: dict[str, Term]) -> dict[str, str]:
        """Describe how the terms' values and ONNX Runtime's results differ from the expected results, if they differ."""
        given = {v.name: self.given[v.name] for v in variables(*terms.values())}
        dtype = next((a.dtype for a in given.values() if a.dtype.kind == FLOATING), np.dtype(np.float32))
        as_given = {FLOATING, BOOLEAN}
        typed = {name: a if a.dtype.kind in as_given else a.astype(dtype) for name, a in given.items()}
        arrays = dict(sorted(typed.items(), key=lambda item: item[1].dtype.kind != FLOATING))
        opset = min(self.opset, NEWEST)

        def weight(term: Term) -> Array:
            with np.errstate(over="ignore"):
                return evaluated(arrays, term)[0].astype(dtype)

        with np.errstate(all="ignore"):
            evaluation = self._differences(terms, evaluated(arrays, *terms.values()))
        try:
            run = self._differences(terms, ran(lower(terms, opset, constant=weight, dtype=dtype), terms, arrays, opset))
        except (ShapeError, InvalidModelError, InferenceError) as error:
            run = f"{type(error).__name__}: {error}"
        return {how: why for how, why in ((EVALUATED, evaluation), (RUN, run)) if why}

    def _differences(self, terms: dict[str, Term], found: Sequence[Array]) -> str:
        for name, array in zip(terms, found, strict=True):
            expected = self.expected[name]
            if array.shape != expected.shape:
                return f"the shape of {name} is {array.shape}, not {expected.shape}"
            here, there = array.astype(np.float64), expected.astype(np.float64)
            if not np.allclose(here, there, rtol=self.rtol, atol=self.atol, equal_nan=True):
                return f"{name} differs by up to {np.nanmax(np.abs(here - there))}"
        return ""


def _named(values: Iterable[onnx.ValueInfoProto], arrays: Iterable[Any]) -> dict[str, Array]:
    """Return the arrays by the names of the values. A value that is no array (a sequence, an optional) becomes an array of
    objects.
    """
    made = (np.asarray(a) if isinstance(a, np.ndarray | np.generic) else np.empty((), object) for a in arrays)
    return dict(zip((v.name for v in values), made, strict=True))


@cache
def cases() -> tuple[Case, ...]:
    """Return the node test cases of the bound operators. Their generation takes some seconds."""
    bound = {op_type for spec in registry().values() for op_type in spec.onnx}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return tuple(Case(c) for c in found if "_expanded" not in c.name and _of(c.model, bound))


def _of(model: onnx.ModelProto | None, bound: set[str]) -> bool:
    nodes = [] if model is None else list(model.graph.node)
    return len(nodes) == 1 and nodes[0].op_type in bound and nodes[0].domain in ("", "ai.onnx")


def verdict(case: Case, reasons: Sequence[str]) -> str:
    """Describe what is wrong with the case or with its entry in the list, or return an empty text."""
    terms = case.terms()
    if terms is None:
        fits = [r for r in reasons if not r.startswith((f"not {EVALUATED}", f"not {RUN}"))]
        return "" if len(fits) == len(reasons) == 1 else f"does not lift, and is listed {len(fits)} times with such a reason"
    complaints = case.complaint(terms)
    excused = {how for how in (EVALUATED, RUN) for reason in reasons if reason.startswith(f"not {how}")}
    if len(excused) != len(reasons) or excused - complaints.keys():
        return f"lifts and passes, and is listed: {'; '.join(reasons)}"
    return "; ".join(f"{how}: {why}" for how, why in complaints.items() if how not in excused)


def test_every_node_test_case_passes_or_is_listed_with_the_reason() -> None:
    patterns = listed()
    unused, wrong = set(patterns), {}
    for case in cases():
        named = [p for p in patterns if fnmatchcase(case.name, p)]
        unused.difference_update(named)
        complaint = verdict(case, [patterns[p] for p in named])
        if complaint:
            wrong[case.name] = complaint
    assert wrong == {}
    assert unused == set(), "patterns that no case has"


def _made(op_type: str, x: Array, y: Array) -> Case:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"])],
        "made",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(y.dtype), y.shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Case(SimpleNamespace(name="made", rtol=1e-3, atol=1e-7, model=model, data_sets=[([x], [y])]))


def test_a_case_is_wrong_where_it_fails_and_where_it_is_listed_and_should_not_be() -> None:
    x = np.array([-1, 2], np.float32)
    right, wrong = _made("Relu", x, np.maximum(x, 0)), _made("Relu", x, x)
    whole = _made("Relu", np.array([1, 2], np.int32), np.array([1, 2], np.int32))
    assert verdict(right, []) == ""
    assert "evaluated: y differs by up to 1.0; run: y differs" in verdict(wrong, [])
    assert verdict(wrong, ["not evaluated: so it is", "not run: so it is"]) == ""
    for reason in ("whole numbers", "not evaluated: so it is", "not run: so it is"):
        assert "is listed" in verdict(right, [reason])
    assert verdict(whole, ["whole numbers"]) == ""
    assert "0 times" in verdict(whole, [])
    assert "0 times" in verdict(whole, ["not run: so it is"])
