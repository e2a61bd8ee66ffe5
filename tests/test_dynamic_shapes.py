"""Rewrites of models with dynamic shapes are right at every size, and are still made if their conditions can be proved.

Each fault is a model with a fact about sizes that holds at many sizes, but not at all sizes. Each fault has a sibling, a
model of the same computation in which the fact holds at all sizes. The tests rewrite both models without measured times. The
fault must keep the operator that reads the size, and the sibling must lose this operator. Both models must lose the product
that can be shared.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.model.load import as_model, as_proto
from superopt.model.splice import require_valid
from superopt.rules.rule import Rule
from superopt.rules.store import load_rules
from superopt.search.ruleset import RuleSet
from tests.rewriting import Rewriter, difference, outputs_of, plain_session
from tests.shape_graphs import adversarial_sizes, graph_of

pytestmark = pytest.mark.slow

node = helper.make_node
WIDTH = 8
NAMES = "n", "h"
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33)


@functools.cache
def stored() -> tuple[Sequence[Rule], RuleSet]:
    rules = load_rules()
    return rules, RuleSet(rules)


def weight(name: str, *shape: int) -> TensorProto:
    rng = np.random.default_rng(sum(map(ord, name)))
    return numpy_helper.from_array((rng.standard_normal(shape) * 0.3).astype(np.float32), name)


def integers(name: str, *numbers: int) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


NUMBERS = [integers(f"i{n}", n) for n in (0, 1, 2, 3, 4, 5, 7, 8, 16384)]
"""Constants of one element, named by their values."""
CONSTANTS = [
    *NUMBERS,
    integers("end", 2**63 - 1),
    integers("zeros", 0, 0),
    integers("first", 0),
    integers("grouped", -1, 4, WIDTH),
]


def length(source: str, name: str = "n", axis: int = 0) -> list[NodeProto]:
    """Return nodes that compute the size of an axis."""
    return [node("Shape", [source], [f"{name}.all"]), node("Gather", [f"{name}.all", f"i{axis}"], [name], axis=0)]


def branches(source: str) -> list[NodeProto]:
    """Return nodes that add two products of one value. One product with the sum of the weights gives the same result."""
    nodes = [node("MatMul", [source, "left"], ["one"]), node("MatMul", [source, "right"], ["other"])]
    return [*nodes, node("Add", ["one", "other"], ["total"]), node("Relu", ["total"], ["y"])]


def doubled() -> list[NodeProto]:
    """Return nodes that concatenate the rows `x` with themselves to `r`, which has an even number of rows."""
    return [node("Concat", ["x", "x"], ["r"], axis=0), *length("r")]


def rows() -> list[NodeProto]:
    """Return nodes that copy the rows `x` to `r`."""
    return [node("Identity", ["x"], ["r"]), *length("r")]


def padded(amount: str) -> list[NodeProto]:
    return [node("Concat", ["zeros", amount, "i0"], ["pads"], axis=0), node("Pad", ["r", "pads"], ["z"]), *branches("z")]


def even(start: Callable[[], list[NodeProto]]) -> list[NodeProto]:
    """Return nodes that pad the rows to an even number."""
    return [*start(), node("Mod", ["n", "i2"], ["more"]), *padded("more")]


def multiple(start: Callable[[], list[NodeProto]]) -> list[NodeProto]:
    """Return nodes that pad the rows to a multiple of 8, or of 2 if `start` is `doubled`."""
    k = "i2" if start is doubled else "i8"
    nodes = [node("Mod", ["n", k], ["rest"]), node("Sub", [k, "rest"], ["less"]), node("Mod", ["less", k], ["more"])]
    return [*start(), *nodes, *padded("more")]


def parity(shift: str) -> list[NodeProto]:
    """Return nodes that multiply n rows by the float (n + shift) % 2.

    With the shift 1, n is even, so that the factor is always 1.
    """
    start = doubled() if shift == "i1" else rows()
    nodes = [node("Add", ["n", shift], ["m"]), node("Mod", ["m", "i2"], ["rest"])]
    nodes += [node("Cast", ["rest"], ["factor"], to=TensorProto.FLOAT), node("Mul", ["r", "factor"], ["z"])]
    return [*start, *nodes, *branches("z")]


def chosen(above: str) -> list[NodeProto]:
    """Return nodes that keep the n rows if n + 5 is greater than `above`, and negate the rows otherwise."""
    nodes = [node("Add", ["n", "i5"], ["m"]), node("Greater", ["m", above], ["long"]), node("Neg", ["r"], ["negative"])]
    return [*rows(), *nodes, node("Where", ["long", "r", "negative"], ["z"]), *branches("z")]


def cut(nodes: Sequence[NodeProto], stop: str) -> list[NodeProto]:
    """Return nodes that keep the rows up to a bound."""
    return [*rows(), *nodes, node("Slice", ["r", "first", stop, "first"], ["z"]), *branches("z")]


def smaller(other: str, plus: str) -> list[NodeProto]:
    """Return nodes that keep the first min(n, other + plus) rows."""
    return cut([node("Add", [other, plus], ["m"]), node("Min", ["n", "m"], ["stop"])], "stop")


def turned() -> list[NodeProto]:
    """Return nodes that exchange the first two axes, and reshape the result to the original shape."""
    nodes = [node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), node("Shape", ["x"], ["shape"])]
    return [*nodes, node("Reshape", ["t", "shape"], ["z"]), *branches("z")]


@dataclass(frozen=True)
class Case:
    """A model: its nodes, the shape of its input, and an operator that the rewritten model must keep or lose."""

    name: str
    nodes: list[NodeProto]
    operator: str
    shape: tuple[int | str | None, ...] = ("n", WIDTH)
    before: int = 2
    after: int = 1

    def model(self) -> ModelProto:
        width = self.shape[1] if len(self.shape) == 4 else WIDTH
        assert isinstance(width, int)
        square = (width, width, 1, 1) if len(self.shape) == 4 else (WIDTH, WIDTH)
        used = {name for one in self.nodes for name in one.input}
        weights = [
            w
            for w in (*CONSTANTS, *(weight(n, *square) for n in ("left", "right")), *(weight(n, 8, 8, 3, 3) for n in "kl"))
            if w.name in used
        ]
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def feeds(self) -> list[dict[str, np.ndarray]]:
        """Return inputs at equal and at unequal sizes."""
        found: dict[tuple[int, ...], None] = {}
        for turn, n in enumerate(SIZES):
            for other in (n, SIZES[(2 * turn + 1) % len(SIZES)]):
                sizes = dict.fromkeys(NAMES, n) | {"w": other}
                found[
                    tuple(
                        e if isinstance(e, int) else sizes.get(e or "", (n, other)[axis % 2])
                        for axis, e in enumerate(self.shape)
                    )
                ] = None
        rng = np.random.default_rng(3)
        return [{"x": rng.standard_normal(shape).astype(np.float32)} for shape in found]


def images(first: NodeProto, *more: NodeProto) -> list[NodeProto]:
    """Return a windowed operator over an image, and the sum of two 1 x 1 convolutions of its result."""
    convolutions = [node("Conv", ["z", "left"], ["one"]), node("Conv", ["z", "right"], ["other"])]
    return [*more, first, *convolutions, node("Add", ["one", "other"], ["total"]), node("Relu", ["total"], ["y"])]


def same_pads(source: str) -> list[NodeProto]:
    """Return the sum of two convolutions of one image with auto_pad=SAME_UPPER, which one convolution can compute."""
    start = [node("Concat", ["x", "x"], ["once"], axis=2), node("Concat", ["once", "once"], ["twice"], axis=3)]
    how: dict[str, Any] = {"auto_pad": "SAME_UPPER", "kernel_shape": [3, 3], "strides": [2, 2]}
    nodes = [node("Conv", [source, "k"], ["one"], **how), node("Conv", [source, "l"], ["other"], **how)]
    return [
        *(start if source == "twice" else []),
        *nodes,
        node("Add", ["one", "other"], ["total"]),
        node("Relu", ["total"], ["y"]),
    ]


IMAGE = (1, 8, "h", "w")
SAME: dict[str, Any] = {"auto_pad": "SAME_UPPER", "kernel_shape": [3, 3]}
FAULTS = [
    Case("pad-to-even", even(rows), "Pad"),
    Case("pad-to-multiple", multiple(rows), "Pad"),
    Case("parity", parity("i0"), "Mul"),
    Case("where-above", chosen("i8"), "Where"),
    Case("minimum", smaller("i4", "i0"), "Slice"),
    Case("slice-16384", cut([], "i16384"), "Slice"),
    Case("unnamed", turned(), "Reshape", ("?", "?", WIDTH)),
    Case("nameless", turned(), "Reshape", (None, None, WIDTH)),
    Case("like-a-key", turned(), "Reshape", (None, "x[0]", WIDTH)),
    Case("same-pads", images(node("Conv", ["x", "k"], ["z"], strides=[2, 2], **SAME)), "Conv", IMAGE, 3, 1),
    Case("same-pads-pool", images(node("MaxPool", ["x"], ["z"], strides=[2, 2], **SAME)), "MaxPool", IMAGE),
    Case(
        "same-pads-below-0",
        images(node("AveragePool", ["x"], ["z"], strides=[3, 3], kernel_shape=[2, 2], auto_pad="SAME_UPPER")),
        "AveragePool",
        IMAGE,
    ),
    Case(
        "same-pads-lower",
        images(node("MaxPool", ["x"], ["z"], strides=[2, 2], kernel_shape=[2, 2], auto_pad="SAME_LOWER")),
        "MaxPool",
        IMAGE,
    ),
    Case(
        "ceil-mode", images(node("MaxPool", ["x"], ["z"], strides=[2, 2], kernel_shape=[2, 2], ceil_mode=1)), "MaxPool", IMAGE
    ),
]
SIBLINGS = [
    Case("pad-to-even", even(doubled), "Pad"),
    Case("pad-to-multiple", multiple(doubled), "Pad"),
    Case("parity", parity("i1"), "Mul"),
    Case("where-above", chosen("i4"), "Where"),
    Case("minimum", smaller("n", "i1"), "Slice"),
    Case("slice-all", cut([], "end"), "Slice"),
    Case("named", turned(), "Reshape", ("n", "n", WIDTH)),
    Case("same-pads-of-any-sides", same_pads("x"), "Add", IMAGE),
    Case("same-pads-of-even-sides", same_pads("twice"), "Add", IMAGE),
]


def rewritten(proto: ModelProto, how: Callable[[Rewriter], Callable[..., object]]) -> ModelProto:
    """Return the model after the preparation of `optimize` and the given rewrite, and check that it is valid."""
    rewriter, model = Rewriter(*stored()), as_model(proto)
    found = how(rewriter)(rewriter.charts.begun(model))
    require_valid(found, model)  # type: ignore[arg-type]
    return as_proto(found)  # type: ignore[arg-type]


def assert_equal_everywhere(case: Case, result: ModelProto) -> None:
    original, after = plain_session(case.model()), plain_session(result)
    ran = 0
    for feeds in case.feeds():
        expected = outputs_of(original, feeds)
        if expected is not None:
            ran += 1
            assert not difference(expected, after, feeds), (feeds["x"].shape, difference(expected, after, feeds))
    assert ran >= 8


def operators(proto: ModelProto) -> Counter[str]:
    return Counter(one.op_type for one in proto.graph.node)


def products(proto: ModelProto) -> int:
    return operators(proto)["MatMul"] + operators(proto)["Conv"] + operators(proto)["Gemm"]


@pytest.mark.parametrize("case", FAULTS, ids=lambda c: c.name)
def test_what_depends_on_a_size_stays_and_what_stands_around_it_is_rewritten(case: Case) -> None:
    result = rewritten(case.model(), lambda r: r.cheapest)
    assert_equal_everywhere(case, result)
    assert operators(result)[case.operator] >= 1
    assert (products(case.model()), products(result)) == (case.before, case.after)


@pytest.mark.parametrize("case", SIBLINGS, ids=lambda c: c.name)
def test_what_holds_at_all_sizes_is_used(case: Case) -> None:
    result = rewritten(case.model(), lambda r: r.cheapest)
    assert_equal_everywhere(case, result)
    assert operators(result)[case.operator] == 0
    assert (products(case.model()), products(result)) == (case.before, case.after)


def test_names_that_say_nothing_are_not_written() -> None:
    """ONNX Runtime reuses memory between values whose dimensions have equal names, even if the name is "?"."""
    (case,) = (one for one in FAULTS if one.name == "unnamed")
    result = rewritten(case.model(), lambda r: r.cheapest)
    before, after = (one.graph.input[0].type.tensor_type.shape.dim for one in (case.model(), result))
    assert [axis.dim_param for axis in before] == ["?", "?", ""]
    assert not any(axis.HasField("dim_param") for axis in after)
    assert after[2].dim_value == WIDTH


@pytest.mark.parametrize("case", FAULTS, ids=lambda c: c.name)
def test_random_rewrites_are_right_at_every_size(case: Case) -> None:
    assert_equal_everywhere(case, rewritten(case.model(), lambda r: lambda model: r.walked(model, random.Random(7))))


@pytest.mark.parametrize("seed", range(6))
def test_random_shape_graphs_are_right_at_adversarial_sizes(seed: int) -> None:
    graph = graph_of(seed)
    original = plain_session(graph.model)
    after = plain_session(rewritten(graph.model, lambda r: lambda model: r.walked(model, random.Random(seed))))
    for sizes in adversarial_sizes(graph, 20, seed):
        expected = outputs_of(original, graph.feeds(sizes))
        if expected is not None:
            assert not difference(expected, after, graph.feeds(sizes)), sizes
