"""Random models that compute with shapes, and sizes at which a wrong rewrite of such a model is likely to show.

The inputs of a model have up to three dynamic dimensions. A graph starts from one to three inputs, and grows by steps. A step
adds a linear layer or a convolution that rules rewrite, or an operator that reads a size (a slice bound, a pad, a target
shape, a mask, a factor). Sizes are integer expressions over the shapes of all earlier tensors, nested up to three deep.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
COLUMNS, CHANNELS = 8, 4
DEPTH = 3
MAX_ELEMENTS = 1 << 18
"""The largest number of elements of an input. Larger sizes are left out."""
UNNAMED = ("?", "-1", "None", "unk__0", "")
"""Names that exporters give to unknown dimensions."""
LARGEST = 2**31 - 1
ROWS, SEQUENCE, IMAGE = "rows", "sequence", "image"
RANKS = {ROWS: 2, SEQUENCE: 3, IMAGE: 4}
SKELETONS: tuple[tuple[tuple[str, str, str], ...], ...] = (
    (("x", ROWS, "a"), ("y", ROWS, "b"), ("z", ROWS, "c")),
    (("x", SEQUENCE, "ab"), ("y", ROWS, "c")),
    (("x", SEQUENCE, "ab"), ("y", ROWS, "b"), ("z", ROWS, "c")),
    (("x", SEQUENCE, "ab"), ("y", SEQUENCE, "cb")),
    (("x", IMAGE, "abc"),),
    (("x", IMAGE, "abc"), ("y", ROWS, "b")),
)
"""The inputs of each graph: the name, the kind of tensor, and the dynamic dimensions."""


@dataclass(frozen=True)
class Tensor:
    """A floating-point value: rows (*, 8), a sequence (*, *, 8) or an image (*, 4, *, *)."""

    name: str
    kind: str

    @property
    def rank(self) -> int:
        return RANKS[self.kind]

    @property
    def dynamic(self) -> tuple[int, ...]:
        """Return the dynamic axes."""
        return {ROWS: (0,), SEQUENCE: (0, 1), IMAGE: (0, 2, 3)}[self.kind]


@dataclass(frozen=True)
class ShapeGraph:
    """A model, the places of its dynamic dimensions, and the values that its nodes compute.

    `dimensions` lists the inputs and axes of each dynamic size. `numbers` are the constants that the model computes with.
    `computed` names the computed values that are integers, booleans or single numbers. `tensors` names all other values, each
    with the axes whose sizes may vary.
    """

    model: ModelProto
    dimensions: dict[str, tuple[tuple[str, int], ...]]
    numbers: tuple[int, ...]
    computed: tuple[str, ...]
    tensors: dict[str, tuple[int, ...]]

    def shapes(self, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs at these sizes."""
        found = {p.name: [d.dim_value for d in p.type.tensor_type.shape.dim] for p in self.model.graph.input}
        for key, places in self.dimensions.items():
            for name, axis in places:
                found[name][axis] = sizes[key]
        return {name: tuple(shape) for name, shape in found.items()}

    def feeds(self, sizes: dict[str, int], seed: int = 0) -> dict[str, Array]:
        """Return random inputs of these sizes."""
        rng = np.random.default_rng(seed)
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in self.shapes(sizes).items()}


def graph_of(seed: int) -> ShapeGraph:
    """Return the random graph of this seed."""
    return _Builder(random.Random(seed)).built()


class _Builder:
    """A builder of random graphs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes: list[NodeProto] = []
        self.initializers: dict[str, Array] = {}
        self.numbers: set[int] = set()
        self.integers: list[str] = []
        self.tensors: list[Tensor] = []
        self.computed: list[str] = []
        self.count = itertools.count()
        skeleton = rng.choice(SKELETONS)
        self.inputs = [Tensor(name, kind) for name, kind, _ in skeleton]
        self.names = {name: list(dims) for name, _, dims in skeleton}
        self.unnamed = rng.random() < 0.3
        self.tensors += self.inputs

    def built(self) -> ShapeGraph:
        for _ in range(self.rng.randint(3, 6)):
            self.step()
        last = self.tensors[-1]
        outputs = dict.fromkeys([last.name, *(t.name for t in self.rng.sample(self.tensors, 1) if t not in self.inputs)])
        integers = self.rng.sample(self.integers, min(2, len(self.integers)))
        inputs, dimensions = self.ports()
        graph = helper.make_graph(
            self.nodes,
            "shapes",
            inputs,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
            + [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in integers],
            [numpy_helper.from_array(array, name) for name, array in self.initializers.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.rng.choice((17, 20)))], ir_version=8)
        tensors = {t.name: t.dynamic for t in self.tensors if t not in self.inputs}
        return ShapeGraph(model, dimensions, tuple(sorted(self.numbers)), tuple(self.computed), tensors)

    def ports(self) -> tuple[list[Any], dict[str, tuple[tuple[str, int], ...]]]:
        """Return the inputs, and the inputs and axes of each dynamic size."""
        found: list[Any] = []
        places: dict[str, list[tuple[str, int]]] = {}
        for tensor in self.inputs:
            shape: list[int | str | None] = [CHANNELS if tensor.kind == IMAGE else COLUMNS] * tensor.rank
            for axis, name in zip(tensor.dynamic, self.names[tensor.name], strict=True):
                unnamed = self.unnamed and self.rng.random() < 0.7
                written = self.rng.choice(UNNAMED) if unnamed else name
                shape[axis] = None if written == "" else written
                places.setdefault(f"{tensor.name}[{axis}]" if unnamed else name, []).append((tensor.name, axis))
            found.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, shape))
        return found, {key: tuple(at) for key, at in places.items()}

    # ------------------------------------------------------------ nodes

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        name = f"{op}.{next(self.count)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def integer_node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node that computes integers, booleans or single numbers, and return the name of its result."""
        name = self.node(op, *inputs, **attributes)
        self.computed.append(name)
        return name

    def constant(self, array: Array) -> str:
        name = f"c{next(self.count)}"
        self.initializers[name] = array
        return name

    def vector(self, *numbers: int) -> str:
        """Add a constant vector of integers."""
        self.numbers.update(abs(n) for n in numbers if abs(n) < 1 << 20)
        return self.constant(np.array(numbers, np.int64))

    def weight(self, *shape: int) -> str:
        rng = np.random.default_rng(self.rng.randrange(1 << 30))
        return self.constant((rng.standard_normal(shape) * 0.3).astype(np.float32))

    # ------------------------------------------------------------ integers, as tensors of one element

    def integer(self, depth: int) -> str:
        """Add a random integer expression."""
        forms: list[Callable[[int], str]] = [*[self.arithmetic] * 4, *[self.quotient] * 3, *[self.extreme] * 2]
        forms += [self.chosen, self.rounded, self.vectored, self.counted, self.identity, self.identity]
        name = self.leaf() if depth == 0 else self.rng.choice(forms)(depth - 1)
        self.integers.append(name)
        return name

    def leaf(self) -> str:
        """Add a size of a random tensor, or less often a constant."""
        if self.rng.random() < 0.15:
            return self.vector(self.rng.choice((0, 1, 2, 3, 4, 7, 8, 16)))
        tensor = self.rng.choice(self.tensors)
        return self.extent(
            tensor, self.rng.randrange(tensor.rank) if self.rng.random() < 0.15 else self.rng.choice(tensor.dynamic)
        )

    def extent(self, tensor: Tensor, axis: int) -> str:
        """Add the size of an axis, in one of the forms that exporters use."""
        form = self.rng.randrange(4)
        if form == 0:
            return self.integer_node("Shape", tensor.name, start=axis, end=axis + 1)
        shape = self.integer_node("Shape", tensor.name)
        if form == 1:
            return self.integer_node("Slice", shape, self.vector(axis), self.vector(axis + 1), self.vector(0))
        if form == 2:
            return self.integer_node("Gather", shape, self.vector(axis), axis=0)
        single = self.integer_node("Gather", shape, self.constant(np.array(axis, np.int64)), axis=0)
        return self.integer_node("Unsqueeze", single, self.vector(0))

    def arithmetic(self, depth: int) -> str:
        op = self.rng.choice(("Add", "Sub", "Add", "Sub", "Mul", "Neg"))
        if op == "Neg":
            return self.integer_node("Neg", self.integer(depth))
        if op == "Mul":
            return self.integer_node("Mul", self.integer(depth), self.vector(self.rng.choice((-1, 2, 2, 3, 4, 8))))
        return self.integer_node(op, self.integer(depth), self.integer(self.rng.randint(0, depth)))

    def quotient(self, depth: int) -> str:
        op = self.rng.choice(("Div", "Div", "Mod", "Mod", "fmod"))
        below = self.vector(self.rng.choice((2, 2, 3, 4, 8, -2, -3)))
        if self.rng.random() < 0.2:
            below = self.integer_node("Max", self.integer(0), self.vector(self.rng.choice((1, 2))))
        above = self.integer(depth)
        if op == "Div":
            return self.integer_node("Div", above, below)
        return self.integer_node("Mod", above, below, fmod=int(op == "fmod"))

    def extreme(self, depth: int) -> str:
        other = self.integer(self.rng.randint(0, depth)) if self.rng.random() < 0.5 else self.number()
        return self.integer_node(self.rng.choice(("Min", "Max")), self.integer(depth), other)

    def number(self) -> str:
        return self.vector(self.rng.choice((-1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 1000, 16384)))

    def chosen(self, depth: int) -> str:
        if self.rng.random() < 0.4:
            return self.integer_node("Cast", self.condition(depth), to=TensorProto.INT64)
        return self.integer_node("Where", self.condition(depth), self.integer(depth), self.integer(self.rng.randint(0, depth)))

    def condition(self, depth: int) -> str:
        """Add a random condition, as a boolean tensor of one element."""
        op = self.rng.choice(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Not", "And", "Or"))
        if op == "Not":
            return self.integer_node("Not", self.condition(max(0, depth - 1)))
        if op in ("And", "Or"):
            return self.integer_node(op, self.condition(max(0, depth - 1)), self.condition(0))
        other = self.integer(self.rng.randint(0, depth)) if self.rng.random() < 0.5 else self.number()
        return self.integer_node(op, self.integer(depth), other)

    def rounded(self, depth: int) -> str:
        """Add a quotient or product in floating point that is rounded to an integer."""
        real = self.integer_node("Cast", self.integer(depth), to=TensorProto.FLOAT)
        if self.rng.random() < 0.5:
            real = self.integer_node("Div", real, self.constant(np.array([self.rng.choice((2, 2, 3, 4, 8))], np.float32)))
        else:
            real = self.integer_node("Mul", real, self.constant(np.array([self.rng.choice((0.5, 0.25, 1.5, 2))], np.float32)))
        real = self.integer_node(self.rng.choice(("Floor", "Ceil")), real)
        return self.integer_node("Cast", real, to=TensorProto.INT64)

    def vectored(self, depth: int) -> str:
        """Add one element, the sum or an extremum of a vector of several expressions."""
        parts = [self.integer(self.rng.randint(0, depth)) for _ in range(self.rng.randint(2, 3))]
        vector = self.integer_node("Concat", *parts, axis=0)
        if self.rng.random() < 0.5:
            numbers = self.vector(*(self.rng.randint(1, 4) for _ in parts))
            vector = self.integer_node(self.rng.choice(("Add", "Sub", "Mul", "Max", "Min", "Div", "Mod")), vector, numbers)
        match self.rng.randrange(5):
            case 0:
                return self.integer_node("Gather", vector, self.vector(self.rng.randrange(-len(parts), len(parts))), axis=0)
            case 1:
                start = self.rng.randrange(len(parts))
                return self.integer_node("Slice", vector, self.vector(start), self.vector(start + 1), self.vector(0))
            case 2:
                return self.integer_node(self.rng.choice(("ReduceMax", "ReduceMin")), vector, keepdims=1)
            case 3:
                matrix = self.integer_node("Reshape", vector, self.vector(1, -1))
                one = self.integer_node("Gather", matrix, self.vector(self.rng.randrange(len(parts))), axis=1)
                return self.integer_node("Squeeze", one, self.vector(0))
            case _:
                return self.integer_node("ReduceSum", vector, keepdims=1)

    def counted(self, depth: int) -> str:
        """Add a number that is computed from a tensor: its size, its length, an extent or a sum."""
        match self.rng.randrange(4):
            case 0:
                return self.integer_node(
                    "Reshape", self.integer_node("Size", self.rng.choice(self.tensors).name), self.vector(-1)
                )
            case 1:
                numbers = self.range(self.clipped(self.integer(depth), 0, 6))
                return self.integer_node("Shape", numbers)
            case 2:
                return self.integer_node("ReduceSum", self.range(self.clipped(self.integer(depth), 0, 6)), keepdims=1)
            case _:
                shape = self.integer_node(
                    "Concat", self.clipped(self.integer(depth), 0, 5), self.vector(self.rng.randint(1, 3)), axis=0
                )
                made = self.integer_node("ConstantOfShape", shape, value=helper.make_tensor("v", TensorProto.INT64, [1], [1]))
                read = self.integer_node("Shape", made)
                return self.integer_node("Gather", read, self.vector(self.rng.randrange(2)), axis=0)

    def range(self, stop: str) -> str:
        """Add the integers from 0 up to `stop` (exclusive)."""
        limit = self.integer_node("Squeeze", stop, self.vector(0))
        zero, one = (self.constant(np.array(n, np.int64)) for n in (0, 1))
        return self.integer_node("Range", zero, limit, one)

    def clipped(self, value: str, low: int, high: int) -> str:
        return self.integer_node("Min", self.integer_node("Max", value, self.vector(low)), self.vector(high))

    def identity(self, depth: int) -> str:
        """Add an expression that always equals a constant or one of its operands."""
        e = self.integer_node
        k = self.rng.choice((2, 3, 4, 8))
        x = self.integer(depth)
        match self.rng.randrange(12):
            case 0:
                return e("Mod", e("Mul", x, self.vector(k)), self.vector(k))
            case 1:
                return e(
                    "Sub",
                    e("Add", e("Mul", e("Div", x, self.vector(k)), self.vector(k)), e("Mod", x, self.vector(k), fmod=1)),
                    x,
                )
            case 2:
                return e("Min", self.size(), self.vector(self.rng.choice((0, -1))))
            case 3:
                return e("Cast", e("GreaterOrEqual", self.size(), self.vector(0)), to=TensorProto.INT64)
            case 4:
                padded = e("Mul", e("Div", e("Add", self.size(), self.vector(k - 1)), self.vector(k)), self.vector(k))
                return e("Mod", padded, self.vector(k))
            case 5:
                y = self.integer(0)
                return e("Sub", e("Max", x, y), e("Max", y, x))
            case 6:
                y = self.integer(0)
                both = e("Add", e("Min", x, y), e("Max", x, y))
                return e("Sub", both, e("Add", x, y))
            case 7:
                return e("Where", e("Greater", e("Add", x, self.vector(1)), x), self.vector(k), x)
            case 8:
                return e("Shape", e("Concat", x, self.integer(0), x, axis=0))
            case 9:
                return e("Div", e("Sub", e("Mul", x, self.vector(k)), x), self.vector(k - 1))
            case 10:
                return e("Cast", e("LessOrEqual", e("Mod", x, self.vector(k)), self.vector(k - 1)), to=TensorProto.INT64)
            case _:
                return e("Mod", e("Sub", self.vector(k), e("Mod", self.size(), self.vector(k))), self.vector(k))

    def size(self) -> str:
        """Add the size of a random dynamic axis."""
        tensor = self.rng.choice(self.tensors)
        return self.extent(tensor, self.rng.choice(tensor.dynamic))

    def amount(self, size: str) -> str:
        """Add an amount of padding: up to a multiple of a number, or a small computed number."""
        k = self.rng.choice((2, 2, 3, 4, 8))
        match self.rng.randrange(4):
            case 0:
                return self.integer_node(
                    "Mod",
                    self.integer_node("Sub", self.vector(k), self.integer_node("Mod", size, self.vector(k))),
                    self.vector(k),
                )
            case 1:
                return self.integer_node("Mod", self.integer_node("Neg", size), self.vector(k))
            case 2:
                return self.integer_node("Mod", size, self.vector(k))
            case _:
                return self.integer_node("Mod", self.integer(DEPTH - 1), self.vector(k))

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        """Add one or two tensors."""
        tensor = self.rng.choice((self.tensors[-1], self.tensors[-1], *self.tensors))
        steps: list[Callable[[Tensor], Tensor]] = [*[self.layer] * 3, *[self.sliced] * 2, *[self.padded] * 2]
        steps += [self.scaled, self.selected, self.reshaped, self.reshaped, self.filled, self.masked, self.met]
        steps += [self.windowed] * 8 + [self.unrolled] if tensor.kind == IMAGE else [self.regrouped, self.regrouped, self.added]
        made = self.rng.choice(steps)(tensor)
        self.tensors.append(made)
        if self.rng.random() < 0.6:
            self.tensors.append(self.layer(made))

    def layer(self, t: Tensor) -> Tensor:
        """Add a linear layer or convolution in a form that rules rewrite."""
        if t.kind == IMAGE:
            convolutions = [self.node("Conv", t.name, self.weight(CHANNELS, CHANNELS, 1, 1)) for _ in range(2)]
            return Tensor(self.finished(*convolutions), IMAGE)
        if self.rng.random() < 0.3:
            inner = self.node("MatMul", t.name, self.weight(COLUMNS, COLUMNS))
            return Tensor(self.node("MatMul", inner, self.weight(COLUMNS, COLUMNS)), t.kind)
        products = [self.node("MatMul", t.name, self.weight(COLUMNS, COLUMNS)) for _ in range(2)]
        return Tensor(self.finished(*products), t.kind)

    def finished(self, one: str, other: str) -> str:
        total = self.node("Add", one, other)
        return self.node("Relu", total) if self.rng.random() < 0.5 else total

    def bounds(self, t: Tensor, axis: int) -> tuple[str, str]:
        start = self.rng.choice((lambda: self.vector(0), lambda: self.vector(1), lambda: self.integer(1)))()
        size = self.extent(t, axis)
        stop = self.rng.choice(
            (
                lambda: self.integer(DEPTH),
                lambda: self.vector(self.rng.choice((4, 8, 16, 1000, 16384, LARGEST))),
                lambda: size,
                lambda: self.integer_node("Mul", self.integer_node("Div", size, self.vector(2)), self.vector(2)),
                lambda: self.integer_node("Min", size, self.integer(1)),
            )
        )()
        return start, stop

    def sliced(self, t: Tensor) -> Tensor:
        axis = self.rng.choice(t.dynamic)
        start, stop = self.bounds(t, axis)
        return Tensor(self.node("Slice", t.name, start, stop, self.vector(axis)), t.kind)

    def padded(self, t: Tensor) -> Tensor:
        axis = self.rng.choice(t.dynamic)
        size = self.extent(t, axis)
        after, before = self.amount(size), self.amount(size) if self.rng.random() < 0.3 else self.vector(0)
        if t.kind != IMAGE and self.rng.random() < 0.3:
            shape = [
                after if n == axis else self.extent(t, n) if n in t.dynamic else self.vector(COLUMNS) for n in range(t.rank)
            ]
            zeros = self.node("ConstantOfShape", self.integer_node("Concat", *shape, axis=0))
            return Tensor(self.node("Concat", t.name, zeros, axis=axis), t.kind)
        none = self.vector(0)
        pads = [before if n == axis else none for n in range(t.rank)] + [after if n == axis else none for n in range(t.rank)]
        return Tensor(self.node("Pad", t.name, self.integer_node("Concat", *pads, axis=0)), t.kind)

    def scaled(self, t: Tensor) -> Tensor:
        """Multiply the tensor by a computed number."""
        number = self.condition(DEPTH - 1) if self.rng.random() < 0.4 else self.clipped(self.integer(DEPTH), -2, 3)
        factor = self.integer_node("Cast", number, to=TensorProto.FLOAT)
        return Tensor(self.node("Mul", t.name, factor), t.kind)

    def selected(self, t: Tensor) -> Tensor:
        return Tensor(self.node("Where", self.condition(DEPTH - 1), t.name, self.layer(t).name), t.kind)

    def reshaped(self, t: Tensor) -> Tensor:
        """Reshape the tensor to its own shape in another form, perhaps after a reshape to another shape."""
        if t.kind == IMAGE:
            flat = self.node("Reshape", t.name, self.vector(0, CHANNELS, -1))
            shape = [self.extent(t, 0), self.vector(CHANNELS), self.extent(t, 2), self.extent(t, 3)]
            return Tensor(self.node("Reshape", flat, self.integer_node("Concat", *shape, axis=0)), IMAGE)
        own = [self.extent(t, n) if n in t.dynamic else self.vector(COLUMNS) for n in range(t.rank)]
        if self.rng.random() < 0.5:
            own[self.rng.randrange(t.rank)] = self.vector(-1)
        elif self.rng.random() < 0.5:
            own[self.rng.randrange(t.rank)] = self.vector(0)
        back = self.integer_node("Shape", t.name) if self.rng.random() < 0.3 else self.integer_node("Concat", *own, axis=0)
        if self.rng.random() < 0.5:
            return Tensor(self.node("Reshape", t.name, back), t.kind)
        other = self.rng.choice(((0, -1), (-1, 4), (-1, 2, 4), (0, 2, -1)))
        return Tensor(self.node("Reshape", self.node("Reshape", t.name, self.vector(*other)), back), t.kind)

    def filled(self, t: Tensor) -> Tensor:
        """Add a constant of the tensor's shape to the tensor, or multiply by the constant."""
        if t.kind == IMAGE:
            shape = self.integer_node("Shape", t.name)
            return Tensor(self.node("Add", t.name, self.node("Expand", self.weight(1, CHANNELS, 1, 1), shape)), IMAGE)
        own = [self.extent(t, n) if n in t.dynamic else self.vector(COLUMNS) for n in range(t.rank)]
        shape = self.integer_node("Concat", *own, axis=0)
        match self.rng.randrange(3):
            case 0:
                value = helper.make_tensor("v", TensorProto.FLOAT, [1], [self.rng.choice((0.0, 1.0, 0.5))])
                return Tensor(
                    self.node(self.rng.choice(("Add", "Mul")), t.name, self.node("ConstantOfShape", shape, value=value)), t.kind
                )
            case 1:
                return Tensor(self.node("Add", t.name, self.node("Expand", self.weight(1, COLUMNS), shape)), t.kind)
            case _:
                steps = self.node("Cast", self.range(self.extent(t, t.rank - 2)), to=TensorProto.FLOAT)
                return Tensor(self.node("Add", t.name, self.node("Unsqueeze", steps, self.vector(1))), t.kind)

    def masked(self, t: Tensor) -> Tensor:
        """Set the tensor to zero at the positions of an axis that are not below a computed number."""
        axis = self.rng.choice(t.dynamic)
        positions = self.range(self.extent(t, axis))
        limit = self.integer(DEPTH - 1)
        kept = self.node("Less", positions, limit)
        if axis < t.rank - 1:
            kept = self.node("Unsqueeze", kept, self.vector(*range(1, t.rank - axis)))
        if self.rng.random() < 0.5:
            return Tensor(self.node("Mul", t.name, self.node("Cast", kept, to=TensorProto.FLOAT)), t.kind)
        return Tensor(self.node("Where", kept, t.name, self.constant(np.zeros(1, np.float32))), t.kind)

    def met(self, t: Tensor) -> Tensor:
        """Add two tensors, each sliced to the smaller of their sizes."""
        others = [u for u in self.tensors if u.kind == t.kind and u != t]
        if not others:
            return self.sliced(t)
        u = self.rng.choice(others)
        if self.rng.random() < 0.15:
            return Tensor(self.node("Add", t.name, u.name), t.kind)
        if self.rng.random() < 0.3 and t.kind == ROWS:
            return Tensor(self.node("Concat", t.name, u.name, axis=0), ROWS)
        stops = [self.integer_node("Min", self.extent(t, n), self.extent(u, n)) for n in t.dynamic]
        stop = self.integer_node("Concat", *stops, axis=0) if len(stops) > 1 else stops[0]
        start, axes = self.vector(*(0 for _ in t.dynamic)), self.vector(*t.dynamic)
        one, other = (self.node("Slice", v.name, start, stop, axes) for v in (t, u))
        return Tensor(self.node("Add", one, other), t.kind)

    def regrouped(self, t: Tensor) -> Tensor:
        """Turn rows into a sequence, or a sequence into rows."""
        if t.kind == SEQUENCE:
            match self.rng.randrange(4):
                case 0:
                    count = self.integer_node("Mul", self.extent(t, 0), self.extent(t, 1))
                    return Tensor(
                        self.node("Reshape", t.name, self.integer_node("Concat", count, self.vector(COLUMNS), axis=0)), ROWS
                    )
                case 1:
                    return Tensor(self.node("Reshape", t.name, self.vector(-1, COLUMNS)), ROWS)
                case 2:
                    return Tensor(self.node("ReduceSum", t.name, self.vector(self.rng.choice((0, 1))), keepdims=0), ROWS)
                case _:
                    return Tensor(self.node("Transpose", t.name, perm=[1, 0, 2]), SEQUENCE)
        k = self.rng.choice((2, 2, 3, 4))
        size = self.extent(t, 0)
        match self.rng.randrange(4):
            case 0:
                return Tensor(self.node("Unsqueeze", t.name, self.vector(self.rng.choice((0, 1)))), SEQUENCE)
            case 1:
                whole = self.integer_node("Mul", self.integer_node("Div", size, self.vector(k)), self.vector(k))
                even = self.node("Slice", t.name, self.vector(0), whole, self.vector(0))
                groups = self.integer_node("Div", size, self.vector(k)) if self.rng.random() < 0.5 else self.vector(-1)
            case 2:
                missing = self.integer_node("Mod", self.integer_node("Neg", size), self.vector(k))
                none = self.vector(0)
                even = self.node("Pad", t.name, self.integer_node("Concat", none, none, missing, none, axis=0))
                total = self.integer_node("Add", size, missing)
                groups = self.integer_node("Div", total, self.vector(k)) if self.rng.random() < 0.5 else self.vector(-1)
            case _:
                return Tensor(
                    self.node("Reshape", t.name, self.integer_node("Concat", self.vector(1), size, self.vector(-1), axis=0)),
                    SEQUENCE,
                )
        return Tensor(
            self.node("Reshape", even, self.integer_node("Concat", groups, self.vector(k, COLUMNS), axis=0)), SEQUENCE
        )

    def added(self, t: Tensor) -> Tensor:
        """Add rows to a sequence. The model only runs at sizes at which their lengths agree."""
        rows = [u for u in self.tensors if u.kind == ROWS]
        return (
            Tensor(self.node("Add", t.name, self.rng.choice(rows).name), t.kind)
            if rows and t.kind == SEQUENCE
            else self.filled(t)
        )

    def windowed(self, t: Tensor) -> Tensor:
        """Apply convolutions or a pool, with `auto_pad` or with fixed pads."""
        kernel, stride = self.rng.choice((1, 2, 3, 3)), self.rng.choice((1, 1, 2, 2, 3))
        how: dict[str, Any] = {"strides": [stride, self.rng.choice((1, stride))]}
        padding = self.rng.choice(("SAME_UPPER", "SAME_LOWER", "SAME_UPPER", "SAME_LOWER", "VALID", ""))
        if padding:
            how["auto_pad"] = padding
        else:
            how["pads"] = [kernel // 2] * 4
        match self.rng.randrange(4):
            case 0 | 1:
                weights = [self.weight(CHANNELS, CHANNELS, kernel, kernel) for _ in range(2)]
                dilations = [2, 2] if padding in ("", "VALID") and self.rng.random() < 0.3 else [1, 1]
                results = [self.node("Conv", t.name, w, dilations=dilations, **how) for w in weights]
                return Tensor(self.finished(*results), IMAGE)
            case 2:
                how["ceil_mode"] = 0 if padding else self.rng.randint(0, 1)
                return Tensor(self.node("MaxPool", t.name, kernel_shape=[kernel, kernel], **how), IMAGE)
            case _:
                how["count_include_pad"] = self.rng.randint(0, 1)
                how["ceil_mode"] = 0 if padding else self.rng.randint(0, 1)
                return Tensor(self.node("AveragePool", t.name, kernel_shape=[kernel, kernel], **how), IMAGE)

    def unrolled(self, t: Tensor) -> Tensor:
        """Turn the pixels of an image into rows."""
        last = self.node("Transpose", t.name, perm=[0, 2, 3, 1])
        rows = self.node("Reshape", last, self.vector(-1, CHANNELS))
        return Tensor(self.node("MatMul", rows, self.weight(CHANNELS, COLUMNS)), ROWS)


# ---------------------------------------------------------------- sizes


def adversarial_sizes(graph: ShapeGraph, count: int, seed: int) -> list[dict[str, int]]:
    """Return sizes at which a wrong assumption about this graph is likely to show.

    The sizes are: small equal sizes, all combinations of even and odd sizes, the numbers that the graph computes with,
    doubles of these numbers, the neighbours of both, unequal sizes for all dimensions, and single large sizes.
    """
    rng = random.Random(seed)
    keys = list(graph.dimensions)
    near = {n + d for c in graph.numbers for n in (c, 2 * c) for d in (-1, 0, 1) if 0 <= n + d <= 40}
    large = sorted({c + d for c in graph.numbers for d in (-1, 0, 1) if c + d > 40}) or [65, 100, 129]
    pool = sorted(near | set(range(10)) | {15, 16, 17, 23, 31, 32, 33})
    found: dict[tuple[int, ...], None] = {}

    def offer(*sizes: int) -> None:
        if all(_elements(shape) <= MAX_ELEMENTS for shape in graph.shapes(dict(zip(keys, sizes, strict=True))).values()):
            found.setdefault(sizes, None)

    for n in (1, 0, 2, 3, 4, 8, 33):
        offer(*(n for _ in keys))
    for parity in itertools.product((0, 1), repeat=len(keys)):
        offer(*(rng.choice([p for p in pool if p % 2 == odd and p > 1]) for odd in parity))
    for _ in range(20 * count):
        if len(found) >= count:
            break
        match rng.randrange(5):
            case 0:
                offer(*(rng.randint(0, 4) for _ in keys))
            case 1:
                offer(*rng.sample(pool, len(keys)))
            case 2:
                spread = {key: rng.choice(pool) for key in keys}
                for key in rng.sample(keys, rng.choice((1, 1, 2))):
                    spread[key] = rng.choice((*large, rng.randint(41, 400)))
                offer(*spread.values())
            case 3:
                shared = rng.choice((*pool, *large))
                offer(*(shared if rng.random() < 0.7 else rng.choice((1, shared + 1)) for _ in keys))
            case _:
                offer(*(rng.choice(pool) for _ in keys))
    return [dict(zip(keys, sizes, strict=True)) for sizes in list(found)[:count]]


def _elements(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def with_outputs(graph: ShapeGraph) -> ModelProto:
    """Return the model with all computed values and the shapes of all tensors as outputs."""
    model = ModelProto()
    model.CopyFrom(graph.model)
    known = {o.name for o in model.graph.output}
    for name in graph.tensors:
        model.graph.node.append(helper.make_node("Shape", [name], [shape_name(name)]))
    wanted = (*graph.computed, *map(shape_name, graph.tensors))
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted if name not in known)
    return model


def shape_name(tensor: str) -> str:
    """Return the name of the output that holds the tensor's shape."""
    return f"shape of {tensor}"
