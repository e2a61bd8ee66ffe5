"""Rules that are exported to onnxscript's rewriter and to onnxsim, and run in these tools."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import pytest

from superopt.flows.export_rules import ExportedRules, export, export_function_pairs, onnxscript_module
from superopt.model.functions import _changed, lowered_sides_agree
from superopt.policy import MODEL
from superopt.protobuf.nodes import Lowered, NodeText
from superopt.rules.rule import Rule, parse_rules
from superopt.rules.store import load_rules
from superopt.runtime.session import Device, Session

pytestmark = pytest.mark.slow

RULES = """
    relu-twice:     relu(relu(x)) => relu(x)  for x[1, 2, 3, 4]
    factor-left:    x @ y + x @ z => x @ (y + z)  for x[2, 3], y[2], z[2]
    reassociate:    x @ y @ z => x @ (y @ z)  for x[2], y[2], z[2]
    merge-conv:     conv(x, w, strides=s, pads=p, dilations=d, group=g) + conv(x, v, strides=s, pads=p, dilations=d, group=g)
                    => conv(x, v + w, strides=s, pads=p, dilations=d, group=g)
                    for x[4], w[4], v[4], s[2], p[4], d[2] where v.shape[-2] == w.shape[-2], w.shape[-1] == v.shape[-1]
    share-input:    (x @ y, x @ z)
                    => (slice(m := x @ concat(y, z, axis=-1), axis=-1, start=0, stop=y.shape[-1]),
                        slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1]))
                    for x[2], y[2], z[2]
    push-transpose: relu(transpose(x, perm=(-1, -2))) => transpose(relu(x), perm=(-1, -2))  for x[2]
    scale-twice:    scale(scale(x, factor=a), factor=b) => scale(x, factor=a * b)  for x[1, 2]
"""


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return {rule.name: rule for rule in parse_rules(RULES)}


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    onnx.checker.check_model(model, full_check=True)
    return model


def weighted(text: str) -> onnx.ModelProto:
    """Return the model with every input except x as an initializer."""
    model = parsed(text)
    rng = np.random.default_rng(1)
    for info in list(model.graph.input)[1:]:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
        model.graph.input.remove(info)
    return model


def module_of(exported: ExportedRules, folder: Path) -> ModuleType:
    path = folder / "found_rules.py"
    exported.save(path)
    spec = importlib.util.spec_from_file_location("found_rules", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["found_rules"] = module
    spec.loader.exec_module(module)
    return module


def rewritten(module: ModuleType, model: onnx.ModelProto) -> onnx.ModelProto:
    held = ir.from_proto(model)
    module.apply(held)
    result = ir.to_proto(held)
    onnx.checker.check_model(result, full_check=True)
    return result


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


def assert_same(one: onnx.ModelProto, other: onnx.ModelProto) -> None:
    sessions = [Session(model, Device("cpu")) for model in (one, other)]
    rng = np.random.default_rng(0)
    feeds = {port.name: rng.standard_normal(port.concrete({})).astype(np.float32) for port in sessions[0].inputs}
    for a, b in zip(*(session.run(feeds) for session in sessions), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


MERGE = """
    g (float[1,4,6,6] x, float[3,4,3,3] w, float[3,4,3,3] v, float[3,4,{k},3] u) => (float[1,3,6,6] y) {{
        a = Conv <pads = [1, 1, 1, 1]> (x, w)
        b = Conv <pads = [1, 1, 1, 1]> (x, {other})
        s = Add (a, b)
        r = Relu (s)
        y = Relu (r)
    }}
"""


def test_onnxscript_applies_rules_where_their_preconditions_hold(rules: dict[str, Rule], tmp_path: Path) -> None:
    module = module_of(onnxscript_module([rules["merge-conv"], rules["relu-twice"]]), tmp_path)
    model = parsed(MERGE.format(other="v", k=3))
    after = rewritten(module, model)
    assert operators(after) == ["Add", "Conv", "Relu"]
    assert_same(model, after)


def test_onnxscript_leaves_alone_what_a_precondition_excludes(rules: dict[str, Rule], tmp_path: Path) -> None:
    module = module_of(onnxscript_module([rules["merge-conv"]]), tmp_path)
    text = MERGE.format(other="v", k=3).replace("pads = [1, 1, 1, 1]> (x, v)", "pads = [1, 1, 1, 1], group = 1> (x, v)")
    assert operators(rewritten(module, parsed(text))).count("Conv") == 1
    other = text.replace("float[3,4,3,3] v", "float[3,4,1,3] v").replace("[1, 1, 1, 1], group", "[0, 1, 0, 1], group")
    assert operators(rewritten(module, parsed(other))).count("Conv") == 2


def test_onnxscript_merges_outputs_and_keeps_nodes_in_topological_order(rules: dict[str, Rule], tmp_path: Path) -> None:
    merged = "(relu(x @ y), relu(x @ z)) => (slice(m := relu(x @ concat(y, z, axis=-1)), axis=-1, start=0, stop=y.shape[-1]), "
    merged += "slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1])) for x[2], y[2], z[2]"
    (rule,) = parse_rules(f"merge: {merged}")
    model = weighted("""
        g (float[4,8] x, float[8,5] w, float[8,5] v) => (float[4,5] y, float[4,5] z) {
            a = MatMul (x, w)
            y = Relu (a)
            p = Neg (y)
            b = MatMul (x, v)
            c = Relu (b)
            z = Add (c, p)
        }
    """)
    module = module_of(onnxscript_module([rule, rules["share-input"]]), tmp_path)
    after = rewritten(module, model)
    assert operators(after).count("MatMul") == 1
    assert_same(model, after)
    alone = module_of(onnxscript_module([rules["share-input"]]), tmp_path)
    unpaid = rewritten(alone, model)
    assert operators(unpaid).count("MatMul") == 2, "two products become a product and a Split: nothing is saved"


def test_onnxscript_reassociates_only_where_it_saves(rules: dict[str, Rule], tmp_path: Path) -> None:
    module = module_of(onnxscript_module([rules["reassociate"]]), tmp_path)
    text = "g (float[{n},8] x, float[8,8] w, float[8,{m}] v) => (float[{n},{m}] y) {{ a = MatMul (x, w)\n y = MatMul (a, v) }}"
    cheap, dear = parsed(text.format(n=2, m=9)), parsed(text.format(n=9, m=2))
    assert rewritten(module, cheap).graph.node[1].input[0] == rewritten(module, cheap).graph.node[0].output[0]
    after = rewritten(module, dear)
    assert [n.input[0] for n in after.graph.node] == ["w", "x"]
    assert_same(dear, after)


def test_every_stored_rule_has_a_class(rules: dict[str, Rule], tmp_path: Path) -> None:
    exported = onnxscript_module(list(rules.values()))
    assert set(exported.written) == set(rules)
    module = module_of(exported, tmp_path)
    for rule in rules.values():
        shown = " ".join(str(rule.statement).split())
        assert any(getattr(c, "STATEMENT", "") == shown for c in vars(module).values())


def test_onnxscript_swaps_no_operands_of_a_maximum_of_three(tmp_path: Path) -> None:
    (rule,) = (rule for rule in load_rules() if rule.name == "minimum-maximum-to-x-2")
    exported = onnxscript_module([rule])
    assert "op.Max(x, y, z" in exported.text
    assert module_of(exported, tmp_path).RULES.rules


# ---------------------------------------------------------------- pairs of functions


def simplified(model: onnx.ModelProto, pairs: Any) -> onnx.ModelProto:
    onnxsim = pytest.importorskip("onnxsim")
    result, _ = onnxsim.simplify(model, function_rewrite_rules=pairs, perform_optimization=False, certify=False)
    onnx.checker.check_model(result, full_check=True)
    return result  # type: ignore[no-any-return]


def test_onnxsim_applies_a_pair_of_functions(rules: dict[str, Rule], tmp_path: Path) -> None:
    export([rules["relu-twice"], rules["factor-left"]], "functions").save(tmp_path / "rules.onnx")
    functions = onnx.load(tmp_path / "rules.onnx").functions
    pairs = list(zip(functions[::2], functions[1::2], strict=True))
    model = parsed("""
        g (float[4,8] x, float[8,5] w, float[8,5] v) => (float[4,5] y) {
            a = MatMul (x, w)
            b = MatMul (x, v)
            c = Add (a, b)
            d = Relu (c)
            y = Relu (d)
        }
    """)
    after = simplified(model, pairs)
    assert [pair[0].name for pair in pairs] == ["relu-twice-pattern"], "broadcasting breaks the other rule"
    assert operators(after) == ["MatMul", "MatMul", "Add", "Relu"]
    assert_same(model, after)


def test_a_rule_whose_conditions_a_pattern_cannot_ask_for_is_no_pair(rules: dict[str, Rule]) -> None:
    exported = export_function_pairs(list(rules.values()))
    assert "relu-twice" in exported.written
    left_out = dict(exported.left_out)
    assert "conditions" in left_out["merge-conv"]
    assert "constants" in left_out["scale-twice"]


def test_a_rule_that_broadcasting_breaks_is_no_pair() -> None:
    (rule,) = parse_rules(
        "unsafe: concat(x, y, axis=-1) + concat(z, w, axis=-1) => concat(x + z, y + w, axis=-1) "
        "for x[2], y[2], z[2], w[2] where x.shape[-1] == z.shape[-1]"
    )
    stripped = Rule(rule.name, replace(rule.statement, where=()))
    assert export_function_pairs([rule]).written == ()
    assert export_function_pairs([stripped]).written == ()


def test_inputs_are_changed_in_extents_ranks_and_order_but_keep_an_axis() -> None:
    rng = np.random.default_rng(0)
    changed = {_changed((2, 3), rng) for _ in range(500)}
    assert {(2, 3), (1, 3), (3,), (3, 2)} <= changed
    assert () not in changed
    assert max(map(len, changed)) > 2


def test_sides_that_differ_at_an_extent_of_one_disagree() -> None:
    """The softmax of one number is 1. Each element of the softmax of several small integers is less than 1."""
    zeros = Lowered((NodeText("Sub", ("x", "x"), ("out0",)),), {})
    whole = Lowered((NodeText("Softmax", ("x",), ("s",), (("axis", -1),)), NodeText("Floor", ("s",), ("out0",))), {})
    drawn = [{"x": (2,) * MODEL.max_pair_rank}]
    assert lowered_sides_agree((zeros, zeros), drawn, 17, 0)
    assert not lowered_sides_agree((zeros, whole), drawn, 17, 0)
