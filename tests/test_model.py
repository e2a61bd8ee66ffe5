"""Loading, islands, splicing and saving, on small models with the surroundings of operators in real models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.errors import CheckFailedError, InvalidModelError, ModelNotFoundError, TargetError
from superopt.model.external_data import Scratch
from superopt.model.islands import Chart, Island
from superopt.model.load import as_proto, load
from superopt.model.save import loadable, save
from superopt.model.splice import Replacement, in_valid_form, require_valid, splice
from superopt.policy import MODEL
from superopt.protobuf.stored import Loadable, StoredModel, model_digest, parse_model, stored_bytes
from superopt.runtime.session import Device, Session
from superopt.verification.certificates import Certificate
from superopt.verification.contents import content_digest
from superopt.verification.derivation import check_nodes
from superopt.verification.models import ModelSource
from tests.models import model, run, weight

node = helper.make_node


def islands(proto: onnx.ModelProto) -> list[Island]:
    return Chart(load(proto).model).islands()


def names(island: Island) -> set[str]:
    return {n.name or n.outputs[0].name or "" for n in island.nodes}


def respliced(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every island replaced by its own terms."""
    before = ir.from_proto(proto)
    after = splice(before, [Replacement(i.outputs, i.dtype, i.conditions, scope=i.scope) for i in Chart(before).islands()])
    require_valid(after, before)
    result: onnx.ModelProto = ir.to_proto(after)
    onnx.checker.check_model(result, full_check=True)
    return result


def same_values(one: onnx.ModelProto, other: onnx.ModelProto) -> None:
    for a, b in zip(run(one), run(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def two_layers() -> onnx.ModelProto:
    return model(
        [node("MatMul", ["x", "v"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "w"], ["y"])],
        {"x": [4, 8]},
        {"y": [4, 2]},
        [weight("v", 8, 6), weight("w", 6, 2)],
    )


# ---------------------------------------------------------------- loading


def test_a_model_loads_from_a_path_a_proto_and_an_ir_model(tmp_path: Path) -> None:
    proto = two_layers()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    given = ir.from_proto(proto)
    assert load(given).model is given
    for source in (path, str(path), proto):
        assert ir.to_proto(load(source).model).SerializeToString() == ir.to_proto(given).SerializeToString()


def test_an_input_that_is_an_output_keeps_its_declared_shape(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": ["N", 8]}, {"x": ["rows", "columns"], "y": ["N", 8]})
    given = [proto.graph.input[0].SerializeToString(), proto.graph.output[1].SerializeToString()]
    loaded = as_proto(load(proto).model)
    assert [loaded.graph.input[0].SerializeToString(), loaded.graph.output[1].SerializeToString()] == given
    assert proto.graph.output[0] != proto.graph.input[0]
    paths = tmp_path / "in.onnx", tmp_path / "out.onnx"
    for one, path in zip((proto, loaded), paths, strict=True):
        onnx.save(one, path)
    before, after = map(ModelSource.read, paths)
    check_nodes(before, after, Certificate("", "", rewritten=True, rules={}, sizes=(), passes=()))
    assert before.digest() == content_digest(load(proto).model)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty"),
        (b"\x93garbage\xff" * 20, "not an ONNX model"),
        (b"plain text, not a model at all\n", "not an ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "graph"),
        (two_layers().SerializeToString()[:-40], "not an ONNX model"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModelError, match=complaint) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nodes_that_stand_before_what_they_read_are_put_in_order() -> None:
    proto = two_layers()
    wrong = onnx.ModelProto()
    wrong.CopyFrom(proto)
    del wrong.graph.node[:]
    wrong.graph.node.extend(reversed(proto.graph.node))
    given = ir.from_proto(wrong)
    for source in (wrong, given):
        assert [n.op_type for n in load(source).model.graph] == ["MatMul", "Relu", "MatMul"]
    assert [n.op_type for n in given.graph] == ["MatMul", "Relu", "MatMul"][::-1]
    assert given.graph[0].outputs[0].name == "y"
    same_values(proto, respliced(as_proto(load(wrong).model)))


def test_nodes_that_depend_on_one_another_in_a_circle_are_refused() -> None:
    proto = two_layers()
    proto.graph.node[0].input[0] = "r"
    with pytest.raises(InvalidModelError, match="in a cycle"):
        load(proto)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file"):
        load(tmp_path / "absent.onnx")
    with pytest.raises(InvalidModelError, match="not a file"):
        load(tmp_path)


def external(folder: Path, location: str = "weights.bin") -> Path:
    """Save a model in `folder` with its weights in another file, and return the path."""
    path = folder / "m.onnx"
    onnx.save(two_layers(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    if location != "weights.bin":
        proto = onnx.load(path, load_external_data=False)
        for tensor in proto.graph.initializer:
            next(e for e in tensor.external_data if e.key == "location").value = location
        path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_read_and_stays_external(tmp_path: Path) -> None:
    loaded = load(external(tmp_path))
    assert loaded.external
    (tmp_path / "out").mkdir()
    save(loaded.model, tmp_path / "out" / "n.onnx")
    assert len([*(tmp_path / "out").glob("n-*.data")]) == 1
    same_values(onnx.load(tmp_path / "out" / "n.onnx"), two_layers())


def test_a_model_with_one_weight_in_another_file_is_external(tmp_path: Path) -> None:
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].CopyFrom(two_layers().graph.initializer[0])
    path.write_bytes(proto.SerializeToString())
    assert load(path).external


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelNotFoundError, match=r"weights\.bin is missing"):
        load(path)


def test_cut_off_external_data_is_refused(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(InvalidModelError, match="too short for the tensor"):
        load(path)


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "a/../../weights.bin"])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = external(inner, location)
    (inner / "weights.bin").rename(tmp_path / "weights.bin")
    with pytest.raises(InvalidModelError, match="points outside the model's folder"):
        load(path)


def test_links_as_the_hugging_face_cache_lays_them_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    external(blobs)
    (snapshot / "m.onnx").symlink_to("../../blobs/m.onnx")
    (snapshot / "weights.bin").symlink_to("../../blobs/weights.bin")
    loaded = load(snapshot / "m.onnx")
    save(loaded.model, tmp_path / "n.onnx")
    same_values(onnx.load(tmp_path / "n.onnx"), two_layers())
    given = loadable(loaded.model, Scratch(tmp_path), loaded.path)
    feeds = {"x": np.ones((4, 8), np.float32)}
    assert isinstance(given, StoredModel)
    np.testing.assert_array_equal(Session(given, Device()).run(feeds)[0], Session(two_layers(), Device()).run(feeds)[0])


def test_large_models_are_loaded_from_files_and_small_ones_from_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = external(tmp_path)
    given = loadable(load(path).model, Scratch(tmp_path), path)
    assert isinstance(given, StoredModel)
    assert given.folder == tmp_path.resolve()
    assert stored_bytes(given) >= (tmp_path / "weights.bin").stat().st_size
    assert stored_bytes(path) == path.stat().st_size + (tmp_path / "weights.bin").stat().st_size
    message = loadable(load(two_layers()).model, Scratch(tmp_path))
    assert isinstance(message, onnx.ModelProto)
    assert stored_bytes(message) == message.ByteSize()
    monkeypatch.setattr("superopt.model.save.MODEL", replace(MODEL, max_message_bytes=0))
    onnx.save(two_layers(), tmp_path / "whole.onnx")
    whole = load(tmp_path / "whole.onnx")
    same_values(parse_model(loadable(whole.model, Scratch(tmp_path), whole.path)), two_layers())


def test_tensors_of_bodies_that_are_laid_out_are_part_of_what_a_model_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superopt.model.save.MODEL", replace(MODEL, max_message_bytes=0))
    monkeypatch.setattr("superopt.model.external_data.MODEL", replace(MODEL, min_external_tensor_bytes=100))

    def branching(factor: float) -> Loadable:
        bodies = {}
        for name in ("then_branch", "else_branch"):
            values = numpy_helper.from_array(np.full((8, 6), factor, np.float32), f"{name}_w")
            out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [4, 6])
            product = helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_y"])
            bodies[name] = helper.make_graph([product], name, [], [out], [values])
        choice = helper.make_node("If", ["c"], ["y"], **bodies)
        given = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("x", 1, [4, 8]), ("c", TensorProto.BOOL, []))]
        graph = helper.make_graph([choice], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 6])])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (tmp_path / str(factor)).mkdir(exist_ok=True)
        return loadable(load(proto).model, Scratch(tmp_path / str(factor)))

    one, same, other = map(branching, (1.0, 1.0, 2.0))
    assert isinstance(one, StoredModel)
    assert stored_bytes(one) - len(one.content) == 2 * 4 * 8 * 6
    assert model_digest(one) == model_digest(same) != model_digest(other)
    feeds = {"x": np.ones((4, 8), np.float32), "c": np.array(True)}
    np.testing.assert_array_equal(Session(other, Device()).run(feeds)[0], 2 * Session(one, Device()).run(feeds)[0])


def test_a_large_tensor_is_laid_out_once_however_many_models_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.model.save.MODEL", replace(MODEL, max_message_bytes=0))
    monkeypatch.setattr("superopt.model.external_data.MODEL", replace(MODEL, min_external_tensor_bytes=100))
    proto = two_layers()
    given, scratch = load(proto).model, Scratch(tmp_path)
    one, same = (loadable(model, scratch) for model in (given, given.clone()))
    assert isinstance(one, StoredModel)
    assert isinstance(same, StoredModel)
    assert [file.name for file in tmp_path.iterdir()] == ["1.data"]
    assert model_digest(one) == model_digest(same)
    assert [t.name for t in parse_model(one, external=False).graph.initializer if t.external_data] == ["v"]
    same_values(parse_model(one), proto)
    value = given.graph.initializers["v"]
    value.const_value = ir.tensor(2 * numpy_helper.to_array(proto.graph.initializer[0]), name="v")
    other = loadable(given, scratch)
    assert isinstance(other, StoredModel)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1.data", "2.data"]
    assert (tmp_path / "2.data").stat().st_size == value.const_value.nbytes
    assert stored_bytes(other) - len(other.content) == value.const_value.nbytes, "what others have there is not its own"
    feeds = {"x": np.ones((4, 8), np.float32)}
    assert not np.allclose(Session(other, Device()).run(feeds)[0], Session(one, Device()).run(feeds)[0])
    (tmp_path / "gone").mkdir()
    gone = Scratch(tmp_path / "gone" / "by now")
    with pytest.raises(TargetError, match="cannot write"):
        loadable(given, gone)


def test_a_link_to_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    path = external(inner)
    (inner / "weights.bin").rename(outer / "weights.bin")
    (inner / "weights.bin").symlink_to(outer / "weights.bin")
    with pytest.raises(InvalidModelError, match="link to a file outside the model's folder"):
        load(path)


# ---------------------------------------------------------------- islands


def test_connected_operators_are_one_island_with_its_terms() -> None:
    (island,) = islands(two_layers())
    x, v, w = variable("x", (4, 8)), variable("v", (8, 6), constant=True), variable("w", (6, 2), constant=True)
    hidden = apply("relu", apply("matmul", x, v))
    assert island.outputs == {"y": apply("matmul", hidden, w)}
    assert island.values["r"] is hidden


def test_an_opaque_node_between_cuts_an_island_where_a_merge_could_close_a_cycle() -> None:
    proto = model(
        [
            node("MatMul", ["x", "w"], ["a"], name="first"),
            node("Sin", ["a"], ["b"]),
            node("MatMul", ["x", "b"], ["c"], name="second"),
            node("Add", ["a", "c"], ["y"], name="last"),
        ],
        {"x": [4, 4]},
        {"y": [4, 4]},
        [weight("w", 4, 4)],
    )
    assert [names(i) for i in islands(proto)] == [{"first"}, {"second", "last"}]


def test_nodes_that_read_the_same_value_are_one_island() -> None:
    proto = model(
        [
            node("Sin", ["x"], ["s"]),
            node("MatMul", ["s", "v"], ["a"], name="one"),
            node("MatMul", ["s", "w"], ["b"], name="other"),
        ],
        {"x": [4, 4]},
        {"a": [4, 2], "b": [4, 3]},
        [weight("v", 4, 2), weight("w", 4, 3)],
    )
    assert [names(i) for i in islands(proto)] == [{"one", "other"}]


def test_weights_combined_by_nodes_are_terms_and_no_island() -> None:
    proto = model(
        [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"], name="product")],
        {"x": [4, 8]},
        {"y": [4, 2]},
        [weight("w", 2, 8)],
    )
    (island,) = islands(proto)
    assert names(island) == {"product"}
    assert island.outputs["y"].args[1].constant
    after = respliced(proto)
    assert [n.op_type for n in after.graph.node] == ["MatMul"]
    same_values(proto, after)


def test_the_standard_operators_may_be_imported_by_their_long_name() -> None:
    proto = two_layers()
    proto.opset_import[0].domain = "ai.onnx"
    assert len(islands(proto)) == 1
    assert [o.domain for o in respliced(proto).opset_import] == ["ai.onnx"]


def test_a_value_of_unknown_shape_is_outside() -> None:
    proto = model(
        [
            node("Compress", ["x", "which"], ["some"], axis=0),
            node("Relu", ["some"], ["a"]),
            node("MatMul", ["a", "w"], ["b"]),
            node("Relu", ["z"], ["c"], name="known"),
        ],
        {"x": ["batch", 4], "z": [2]},
        {"b": ["some", 4], "c": [2]},
        [weight("w", 4, 4), numpy_helper.from_array(np.array([True, False, True]), "which")],
    )
    assert [names(i) for i in islands(proto)] == [{"known"}]


def test_a_weight_that_a_caller_may_give_is_no_constant() -> None:
    proto = two_layers()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [6, 2]))
    (island,) = islands(proto)
    constant = {t.name: t.constant for t in _variables(island.outputs["y"])}
    assert constant == {"x": False, "v": True, "w": False}
    after = respliced(proto)
    assert [i.name for i in after.graph.input] == ["x", "w"]
    assert [i.name for i in after.graph.initializer] == ["v", "w"]


@pytest.mark.parametrize("extent", [24, "n"])
def test_no_shape_depends_on_a_default_value_that_a_caller_may_override(extent: int | str) -> None:
    target = numpy_helper.from_array(np.array([2, 3, -1]), "target")
    nodes = [node("Reshape", ["x", "target"], ["r"]), node("Softmax", ["r"], ["s"], axis=1), node("Relu", ["s"], ["y"])]
    proto = model(nodes, {"x": [extent]}, {"y": ["a", "b", "c"]}, [target], opset=11)
    assert len(islands(proto)) == 1
    proto.graph.input.append(helper.make_tensor_value_info("target", TensorProto.INT64, [3]))
    assert not islands(proto)


def test_before_version_4_every_weight_is_listed_and_constant() -> None:
    proto = model(
        [node("MatMul", ["x", "v"], ["h"]), node("Mul", ["h", "s"], ["y"])],
        {"x": [4, 8]},
        {"y": [4, 6]},
        [weight("v", 8, 6), weight("s", 6)],
        opset=8,
        ir_version=3,
    )
    before = ir.from_proto(proto)
    (island,) = Chart(before).islands()
    product = apply("matmul", variable("x", (4, 8)), _folded_scale())
    after = ir.to_proto(splice(before, [Replacement({"y": product}, island.dtype)]))
    onnx.checker.check_model(after, full_check=True)
    assert after.graph.input[0].name == "x"
    assert {i.name for i in after.graph.input[1:]} == {w.name for w in after.graph.initializer}
    assert len(after.graph.initializer) == 1
    same_values(proto, after)


def _folded_scale() -> Term:
    v, s = variable("v", (8, 6), constant=True), variable("s", (6,), constant=True)
    return apply("mul", v, apply("expand", s, shape=(8, 6), axes=(-1,)))


def _variables(*roots: Term) -> list[Term]:
    found = [r for r in roots if r.is_variable]
    for root in roots:
        found += _variables(*root.args)
    return found


# ---------------------------------------------------------------- splicing


def everything() -> onnx.ModelProto:
    """Return a model with parts that must survive: opaque nodes, a subgraph with captured values, a function, tied weights,
    metadata.
    """
    then = helper.make_graph(
        [node("Add", ["a", "b"], ["then"])], "then", [], [helper.make_tensor_value_info("then", TensorProto.FLOAT, [4, 4])]
    )
    otherwise = helper.make_graph(
        [node("Mul", ["a", "a"], ["else"])], "else", [], [helper.make_tensor_value_info("else", TensorProto.FLOAT, [4, 4])]
    )
    twice = helper.make_function(
        "local", "Twice", ["p"], ["q"], [node("Add", ["p", "p"], ["q"])], [helper.make_opsetid("", 17)]
    )
    proto = model(
        [
            node("MatMul", ["x", "w"], ["a"], name="a-node", doc_string="a note"),
            node("MatMul", ["a", "w"], ["b"], name="b-node"),
            node("ReduceSum", ["b"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["positive"]),
            node("If", ["positive"], ["c"], then_branch=then, else_branch=otherwise),
            node("Twice", ["c"], ["d"], domain="local"),
            node("Add", ["d", "b"], ["e"]),
            node("Relu", ["e"], ["y"]),
        ],
        {"x": [4, 4]},
        {"y": [4, 4], "b": [4, 4]},
        [weight("w", 4, 4), numpy_helper.from_array(np.array(0, np.float32), "zero"), weight("spare", 3)],
        functions=[twice],
    )
    proto.producer_name, proto.producer_version, proto.domain, proto.model_version = "maker", "1.2", "org.test", 7
    proto.doc_string, proto.graph.doc_string = "about the model", "about the graph"
    helper.set_model_props(proto, {"licence": "none", "classes": "a,b"})
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["rows", 4]))
    return proto


def test_everything_around_the_islands_survives() -> None:
    before = everything()
    after = respliced(before)
    same_values(before, after)
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        assert getattr(after, field) == getattr(before, field)
    assert list(after.opset_import) == list(before.opset_import)
    assert {p.key: p.value for p in after.metadata_props} == {p.key: p.value for p in before.metadata_props}
    assert list(after.functions) == list(before.functions)
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    assert after.graph.doc_string == before.graph.doc_string
    kept = {n.op_type: n for n in after.graph.node}
    choice = next(n for n in before.graph.node if n.op_type == "If")
    assert (kept["If"].input, kept["If"].output) == (choice.input, choice.output)
    for one, other in zip(kept["If"].attribute, choice.attribute, strict=True):
        assert (one.name, one.g.name, one.g.output) == (other.name, other.g.name, other.g.output)
    stored = [w for w in after.graph.initializer if not w.name.startswith("superopt.")]
    assert stored == [w for w in before.graph.initializer if w.name != "zero"], "a number is read, and written anew"
    assert any(v.name == "a" and v.type.tensor_type.shape.dim[0].dim_param == "rows" for v in after.graph.value_info)


def test_the_original_is_unchanged() -> None:
    proto = everything()
    before = ir.from_proto(proto)
    was = ir.to_proto(before).SerializeToString()
    splice(before, [Replacement(i.outputs, i.dtype, i.conditions, scope=i.scope) for i in Chart(before).islands()])
    assert ir.to_proto(before).SerializeToString() == was


def test_only_the_replaced_island_changes() -> None:
    before = ir.from_proto(everything())
    last = next(i for i in Chart(before).islands() if "y" in i.outputs)
    after = ir.to_proto(splice(before, [Replacement(last.outputs, last.dtype)]))
    untouched = [n.SerializeToString() for n in everything().graph.node if n.op_type not in ("Add", "Relu")]
    assert [n.SerializeToString() for n in after.graph.node if n.op_type not in ("Add", "Relu")] == untouched


def test_an_output_that_is_a_variable_is_passed_on() -> None:
    proto = model(
        [node("Identity", ["x"], ["i"]), node("Identity", ["i"], ["y"]), node("Sin", ["i"], ["z"])],
        {"x": [3]},
        {"y": [3], "z": [3]},
    )
    after = respliced(proto)
    nodes = {(n.op_type, *n.input, *n.output) for n in after.graph.node}
    assert nodes == {("Identity", "x", "y"), ("Sin", "x", "z")}


def test_two_outputs_may_be_the_same_term() -> None:
    proto = model([node("Relu", ["x"], ["y"]), node("Relu", ["x"], ["z"])], {"x": [3]}, {"y": [3], "z": [3]})
    after = respliced(proto)
    assert sorted(n.op_type for n in after.graph.node) == ["Identity", "Relu"]
    same_values(proto, after)


def test_a_split_of_which_a_part_is_replaced_keeps_the_others() -> None:
    proto = model(
        [node("Split", ["x"], ["a", "b"], axis=0), node("Sin", ["a"], ["y"]), node("Sin", ["b"], ["z"])],
        {"x": [4, 2]},
        {"y": [2, 2], "z": [2, 2]},
    )
    before = ir.from_proto(proto)
    part = apply("slice", variable("x", (4, 2)), axis=0, start=0, stop=2)
    after = ir.to_proto(splice(before, [Replacement({"a": part}, ir.DataType.FLOAT)]))
    onnx.checker.check_model(after, full_check=True)
    same_values(proto, after)


def test_new_names_are_unlike_any_other() -> None:
    before = ir.from_proto(two_layers())
    for _ in range(3):
        (island,) = Chart(before).islands()
        doubled = apply("scale", apply("transpose", island.outputs["y"], perm=(1, 0)), factor=2)
        before = splice(before, [Replacement({"y": apply("transpose", doubled, perm=(1, 0))}, island.dtype)])
        after = ir.to_proto(before)
        onnx.checker.check_model(after, full_check=True)
        made = [*(o for n in after.graph.node for o in n.output), *(w.name for w in after.graph.initializer)]
        assert len(made) == len(set(made))


def test_a_folded_weight_is_stored_once_and_its_makings_go() -> None:
    before = ir.from_proto(two_layers())
    x, v, w = variable("x", (4, 8)), variable("v", (8, 6), constant=True), variable("w", (6, 2), constant=True)
    doubled = apply("scale", v, factor=2)
    both = apply("add", apply("matmul", x, doubled), apply("relu", apply("matmul", x, doubled)))
    after = ir.to_proto(splice(before, [Replacement({"y": apply("matmul", both, w)}, ir.DataType.FLOAT)]))
    arrays = {t.name: numpy_helper.to_array(t) for t in after.graph.initializer}
    assert set(arrays) >= {"w"}
    assert "v" not in arrays
    (folded,) = (a for n, a in arrays.items() if n != "w")
    np.testing.assert_allclose(folded, 2 * numpy_helper.to_array(two_layers().graph.initializer[0]))


def test_replacements_that_need_each_other_are_refused() -> None:
    proto = model(
        [node("Sin", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Sin", ["b"], ["c"]), node("Relu", ["c"], ["y"])],
        {"x": [3]},
        {"y": [3]},
    )
    looped = apply("relu", variable("c", (3,)))
    with pytest.raises(CheckFailedError, match="cycle"):
        splice(ir.from_proto(proto), [Replacement({"b": looped}, ir.DataType.FLOAT)])


def misdeclared(last: list[onnx.NodeProto], *weights: onnx.TensorProto) -> ir.Model:
    """Return a model in which the nodes `last` compute an output of rank 3 that is declared with rank 2."""
    nodes = [node("Relu", ["x"], ["h"]), node("Relu", ["h"], ["z"]), *last]
    proto = model(nodes, {"x": ["n", 8]}, {"z": ["n", 8]}, weights)
    proto.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n"]))
    return ir.from_proto(proto)


def test_a_declared_shape_that_only_the_rewritten_model_shows_to_be_wrong_is_inferred_anew() -> None:
    sizes = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("one", [1]), ("eight", [8]))]
    sizes.append(numpy_helper.from_array(np.ones(3, np.bool_), "all"))
    hidden = [
        node("Shape", ["x"], ["s"], end=1),
        node("Concat", ["s", "one", "eight"], ["c"], axis=0),
        node("Compress", ["c", "all"], ["t"], axis=0),
    ]
    before = misdeclared([*hidden, node("Reshape", ["h", "t"], ["y"])], *sizes)
    after = misdeclared([node("Unsqueeze", ["h", "one"], ["y"])], sizes[0])
    with pytest.raises(CheckFailedError, match="differ in rank"):
        require_valid(after, before)
    found = in_valid_form(after, before)
    assert [value.name for value in found.graph.outputs] == ["z", "y"]
    assert [str(value.shape) for value in found.graph.outputs] == ["[n,8]", "[n,1,8]"]
    onnx.checker.check_model(ir.to_proto(found), full_check=True)
    assert in_valid_form(before, before) is before
    broken = misdeclared([node("Neg", ["h"], ["y"])])
    broken.graph[2].op_type = "Unheard"
    with pytest.raises(CheckFailedError, match="Unheard"):
        in_valid_form(broken, before)
    assert in_valid_form(broken, broken) is broken


def test_an_axis_that_a_reduction_gains_is_left_where_an_operator_names_its_axes() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Reshape", ["s", "one"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    one = numpy_helper.from_array(np.array([1], np.int64), "one")
    proto = model(nodes, {"x": [7, 3]}, {"y": [1]}, [one])
    (island,) = Chart(load(proto).model).islands()
    assert [term.shape for term in island.outputs.values()] == [(1,)]


def test_a_declared_shape_that_is_out_of_date_is_not_used() -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Flatten", ["h"], ["f"], axis=2), node("Relu", ["f"], ["y"])]
    proto = model(nodes, {"x": [4, 3, 8]}, {"y": [12, 6]}, [weight("w", 8, 6)])
    proto.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, 3, 6]))
    (island,) = islands(proto)
    assert island.values["h"].shape == (4, 3, 6)
    same_values(proto, respliced(proto))


def test_a_declared_shape_is_used_where_inference_finds_none() -> None:
    nodes = [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["c"], to=TensorProto.FLOAT), node("Relu", ["c"], ["y"])]
    proto = model(nodes, {"x": [4]}, {"y": [1, "m"]})
    assert not islands(proto)
    proto.graph.value_info.append(helper.make_tensor_value_info("n", TensorProto.INT64, [1, 4]))
    (island,) = islands(proto)
    assert island.values["y"].shape == (1, 4)


def test_what_follows_a_dilated_pooling_with_computed_pads_has_an_unknown_shape() -> None:
    pool = node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], dilations=[2, 1], strides=[2, 2], auto_pad="SAME_UPPER")
    proto = model([pool, node("Flatten", ["p"], ["f"]), node("Relu", ["f"], ["y"])], {"x": [1, 2, 9, 8]}, {"y": [1, "n"]})
    assert not islands(proto)


@pytest.mark.parametrize("limit", [-1, 1 << 20])
def test_the_identity_of_a_model_is_that_of_its_bytes_wherever_they_lie(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superopt.model.save.MODEL", replace(MODEL, max_message_bytes=limit))

    def stored(name: str) -> tuple[Path, Loadable]:
        folder = tmp_path / name
        folder.mkdir()
        path = external(folder)
        return folder, loadable(load(path).model, Scratch(folder), path)

    one, same = stored("one")[1], stored("same")[1]
    folder, other = stored("other")
    assert isinstance(other, Path if limit < 0 else StoredModel)
    assert model_digest(one) == model_digest(same) == model_digest(other)
    weights = folder / "weights.bin"
    weights.write_bytes(bytes(weights.stat().st_size))
    assert model_digest(other) != model_digest(one)
    assert model_digest(two_layers()) == model_digest(two_layers()) != model_digest(one)
