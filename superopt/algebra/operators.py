"""Operators: the registry of the definitions in specs/. A new file in specs/ adds an operator."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from superopt.algebra import index
from superopt.algebra.digests import digests
from superopt.algebra.terms import Attribute, Cond, Shape, Term, integral, intern_term, subterms
from superopt.errors import ShapeError, SpecError

SHORT = 1 << 16
SMALLEST_PART = 1000
REAL, POSITIVE = "real", "positive"
KINDS = {"Axis": "axis", "Axes": "axes", "Extent": "extent", "Extents": "extents", "Real": "real"}


class Node(Protocol):
    """An ONNX node as the function `lift` of a file in specs/ sees it.

    Floating-point inputs are terms. Attributes and constant inputs are plain values.

    A method raises `ShapeError` if the node does not have the requested item. The node then does not lift, as if `lift`
    returned None.
    """

    @property
    def op_type(self) -> str: ...

    @property
    def opset(self) -> int: ...

    @property
    def inputs(self) -> Sequence[Term | None]:
        """One term for each input.

        The term is None for an omitted input, and for an input that is not a floating-point tensor of known shape.
        """

    @property
    def outputs(self) -> int:
        """The number of outputs of the node."""

    def absent(self, position: int) -> bool:
        """Return whether the node omits this optional input."""

    def operand(self, position: int) -> Term:
        """Return the input at this position."""

    def wanted(self, position: int) -> bool:
        """Return whether the node has the output at this position."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the attribute as int, float, str or a tuple of these, or the constant input that replaces it in the opset."""

    def boolean(self, position: int) -> bool:
        """Return whether the input is a tensor of booleans rather than numbers."""

    def scalar(self, position: int) -> float | None:
        """Return the number in a constant input with one element, or None for any other input."""

    def uniform(self, position: int) -> float | None:
        """Return the number that all elements of a constant input equal, or None for any other input."""

    def integers(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers in a constant input of integers, in row-major order, and the input's shape."""

    def constant(self, position: int) -> Term:
        """Return a constant input of integers as an operand. `Emit.integers` makes the same input from it."""

    def broadcast(self) -> list[Term]:
        """Return the inputs, each expanded to the common shape, which makes ONNX's broadcasting explicit."""

    def expanded(self, x: Term, shape: tuple[int, ...]) -> Term:
        """Return `x` broadcast to `shape` as ONNX does: the last axes aligned, unit axes repeated."""

    def window(self, kernel: Sequence[int]) -> Mapping[str, tuple[int, ...]]:
        """Return the strides, dilations and pads of a window that slides over input 0.

        `auto_pad` and `ceil_mode` are already resolved.
        """

    def written(self, text: str, terms: Mapping[str, Term], **numbers: float) -> Term:
        """Parse notation text with these terms and numbers for its names, and return the term."""


class Emit(Protocol):
    """The writer that `lower` uses in a file of specs/: emit("Relu", x) adds an ONNX node and returns its output's name."""

    @property
    def opset(self) -> int: ...

    def __call__(self, op_type: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node and return its output's name.

        An input is a term, the name of an earlier output, a number or numpy array (stored as an initializer), or None
        (omitted). Inputs that are attributes in other opsets, such as `starts` of Slice, are always given as attributes.
        """

    def several(self, op_type: str, *inputs: Any, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Return the names of the first outputs of one ONNX node. An equal request returns the same node."""

    def aligned(self, term: Term) -> Term:
        """Return the operand of an `expand`, reshaped to the rank of the result with an extent of 1 along the new axes."""

    def alone(self, term: Term) -> bool:
        """Return whether nodes compute the term and only one other term needs it, so that one node may compute both terms."""

    def inputs(self, term: Term) -> list[Term]:
        """Return the operands. An `expand` is left out where ONNX broadcasting makes it superfluous."""

    def integers(self, term: Term, extent: int) -> str:
        """Return a term with positions on an axis of this extent, as int64.

        Raises:
            ShapeError: The term is a constant with an element that is not such a position.
        """

    def nested(self, term: Term) -> list[Term]:
        """Return the operands of nested terms with the same operator and attributes, from left to right."""

    def chain(self, op_type: str, term: Term, inverse: tuple[str, Callable[[Term], Term | None]] | None = None) -> str:
        """Write a term as a chain of binary nodes, or as one node if the ONNX operator takes any number of inputs.

        Parts that other terms also need come first, then the other operands from left to right. An `expand` is left out where
        ONNX broadcasting makes it superfluous. `inverse` contains the ONNX operator that undoes `op_type`, and a function. If
        an operand is the inverse of another term, as `-y` is the inverse of `y` in a sum, this function returns the other term.
        Otherwise it returns None.
        """


@dataclass(frozen=True)
class Parameter:
    """An attribute of an operator: its kind, and its default if it may be left out."""

    name: str
    kind: str
    default: Attribute | None


@dataclass(frozen=True)
class Operator:
    """An operator, from one file of specs/.

    Attributes:
        definition: The operator in index notation.
        unrolled: For a recurrence, a function that returns its steps as a term.
        composite: A term in notation text. If there is also a definition, the operator is composed of this term, and the
            equality of both is the operator's one axiom. If there is no definition, an ONNX operator lifts to this term, and
            the algebra has no operator of this name. The file of a composite that adds a bias to a host, such as a convolution,
            may contain two functions. `bias_axis` returns the axis along which a host takes a bias, or None. `lower_biased`
            writes host and bias as one ONNX node.
        domain: The inputs on which the operator is tested: real inputs, or positive inputs if others give NaN.
        rounding: For an algorithm, a function of its attributes that returns the typical ratio of its rounding error to the
            rounding error of the operator that it computes.
        digest: The digest of the operator's meaning (`superopt.algebra.digests`).
    """

    name: str
    definition: Callable[..., index.Tensor] | None
    operands: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    axioms: str
    commutative: bool
    composite: str
    onnx: tuple[str, ...]
    lift: Callable[[Node], Term | tuple[Term, ...] | None] | None = field(compare=False)
    lower: Callable[..., str] | None = field(compare=False)
    unrolled: Callable[..., Term] | None = field(compare=False)
    exact: str
    domain: str
    rounding: Callable[..., float] | None = field(compare=False)
    digest: str
    module: ModuleType = field(compare=False, repr=False)

    @property
    def arity(self) -> int:
        """The number of operands."""
        return len(self.operands)

    @property
    def told_shape(self) -> bool:
        """Whether the result's shape depends on attributes, so that the operands' shapes do not determine it."""
        return not self.operands or any(p.name == "shape" for p in self.parameters)


def specs_folder() -> Path:
    """Return the folder specs/, which is in the installed package or beside the package in a checkout."""
    return _data_folder("specs")


def _data_folder(name: str) -> Path:
    package = Path(__file__).resolve().parents[1]
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def substitutions_folder() -> Path:
    """Return the folder substitutions/, which is in the installed package or beside the package in a checkout."""
    return _data_folder("substitutions")


@functools.cache
def registry() -> Mapping[str, Operator]:
    """Return all operators of specs/ by name, in alphabetical order."""
    folder = specs_folder()
    if not folder.is_dir():
        raise SpecError(f"no operator definitions at {folder}")
    meanings = digests(folder, Path(__file__).resolve().parents[1])
    found = [_load(path, meanings[path.stem]) for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    return {operator.name: operator for operator in found}


def operator(name: str) -> Operator:
    """Return the operator with this name.

    Raises:
        SpecError: No file of specs/ defines the operator.
    """
    try:
        return registry()[name]
    except KeyError:
        raise SpecError(f"no operator is called {name!r}") from None


def _load(path: Path, digest: str) -> Operator:
    spec = importlib.util.spec_from_file_location(f"specs.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SpecError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    definition = getattr(module, path.stem, None)
    composite = getattr(module, "COMPOSITE", "")
    if definition is None and not composite:
        raise SpecError(f"{path.name} defines neither a function {path.stem} nor COMPOSITE")
    signature = tuple(inspect.signature(definition).parameters.values()) if definition else ()
    onnx = getattr(module, "ONNX", ())
    return Operator(
        name=path.stem,
        definition=definition,
        operands=tuple(p.name for p in signature if p.kind is p.POSITIONAL_OR_KEYWORD),
        parameters=tuple(_parameter(path, p) for p in signature if p.kind is p.KEYWORD_ONLY),
        axioms=getattr(module, "AXIOMS", "") + _definition(path.stem, signature, composite),
        commutative=getattr(module, "COMMUTATIVE", False),
        composite=" ".join(composite.split()),
        onnx=(onnx,) if isinstance(onnx, str) else tuple(onnx),
        lift=getattr(module, "lift", None),
        lower=getattr(module, "lower", None),
        unrolled=getattr(module, "unrolled", None),
        exact=getattr(module, "EXACT", "ring"),
        domain=getattr(module, "DOMAIN", REAL),
        rounding=getattr(module, "rounding", None),
        digest=digest,
        module=module,
    )


def _definition(name: str, signature: Sequence[inspect.Parameter], composite: str) -> str:
    """Return the axiom that equates a composite with its text, or an empty text without a signature."""
    if not signature or not composite:
        return ""
    written = ", ".join(p.name if p.kind is p.POSITIONAL_OR_KEYWORD else f"{p.name}={p.name}" for p in signature)
    return f"\n    definition: {name}({written}) == {' '.join(composite.split())}\n"


def _parameter(path: Path, parameter: inspect.Parameter) -> Parameter:
    annotation = parameter.annotation
    kind = KINDS.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))
    if kind is None:
        raise SpecError(f"{path.name}: attribute {parameter.name} must be annotated with one of {', '.join(KINDS)}")
    return Parameter(parameter.name, kind, None if parameter.default is parameter.empty else parameter.default)


def apply(name: str, *args: Term, **attributes: Attribute) -> Term:
    """Apply an operator to terms. Commutative operators are flattened and sorted, and axes are counted from the end.

    Raises:
        ShapeError: The operator is not defined for these shapes or attributes.
    """
    call = name, args, tuple((k, _types(v), v) for k, v in attributes.items())
    if call not in _applied:
        _applied[call] = _checked(name, args, attributes)
    return _applied[call]


_applied: dict[tuple[object, ...], Term] = {}
_typings: dict[tuple[object, ...], tuple[tuple[tuple[str, Attribute], ...], Shape, tuple[Cond, ...]]] = {}


def clear_term_caches() -> None:
    """Clear the caches of `apply`, so that terms without other references are freed."""
    _applied.clear()
    _typings.clear()


def _types(value: Attribute) -> object:
    """Return the types in a value, which distinguish values that Python compares equal (1, 1.0, True)."""
    return tuple(map(type, value)) if isinstance(value, tuple) else type(value)


def _checked(name: str, args: tuple[Term, ...], attributes: Mapping[str, Attribute]) -> Term:
    spec = operator(name)
    if spec.definition is None:
        raise SpecError(f"{name} is a composite: write it out")
    if spec.commutative:
        args = tuple(sorted((a for arg in args for a in (arg.args if arg.op == name else (arg,))), key=lambda t: t.key))
    elif len(args) != spec.arity:
        raise ShapeError(f"{name} takes {spec.arity} operands, not {len(args)}")
    call = name, tuple(a.shape for a in args), tuple((k, _types(v), v) for k, v in attributes.items())
    if call not in _typings:
        values = _attributes(spec, args, attributes)
        _typings[call] = values, *_shape(spec, args, dict(values))
    return intern_term(name, args, *_typings[call])


def _attributes(spec: Operator, args: Sequence[Term], given: Mapping[str, Attribute]) -> tuple[tuple[str, Attribute], ...]:
    unknown = given.keys() - {p.name for p in spec.parameters}
    if unknown:
        raise ShapeError(f"{spec.name} has no attribute {', '.join(sorted(unknown))}")
    shape = given.get("shape")
    rank = len(shape) if isinstance(shape, tuple) else args[0].rank if args else 0
    values: list[tuple[str, Attribute]] = []
    for parameter in spec.parameters:
        value = given.get(parameter.name, parameter.default)
        if value is None:
            raise ShapeError(f"{spec.name} needs the attribute {parameter.name}")
        if parameter.kind == "axis":
            value = _from_end(spec, value, rank)
        elif parameter.kind == "axes":
            if not isinstance(value, tuple):
                raise ShapeError(f"{spec.name}: {parameter.name} is a tuple of axes")
            value = tuple(_from_end(spec, v, rank) for v in value)
        values.append((parameter.name, _canonical(value)))
    return tuple(values)


def _canonical(value: Attribute) -> Attribute:
    """Return a canonical form for equal numbers: an int or a Fraction, also for a float that is a short binary fraction."""
    if isinstance(value, tuple):
        return tuple(integral(v) if isinstance(v, Fraction) else v for v in value)
    if isinstance(value, float) and math.isfinite(value) and max(map(abs, value.as_integer_ratio())) <= SHORT:
        return integral(Fraction(value))
    return integral(value) if isinstance(value, Fraction) else value


def fraction_of(number: float) -> Attribute:
    """Return the simple fraction, such as 1/6, that rounds to this number in float32, or the number if there is none."""
    near = Fraction(number).limit_denominator(SMALLEST_PART) if math.isfinite(number) else Fraction(0)
    return integral(near) if math.isfinite(number) and _float32(float(near)) == _float32(number) else number


def _float32(number: float) -> bytes:
    return struct.pack("f", number)


def _from_end(spec: Operator, axis: object, rank: int) -> int:
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ShapeError(f"{spec.name}: axis {axis} does not exist at rank {rank}")
    return axis if axis < 0 else axis - rank


def _shape(
    spec: Operator, args: Sequence[Term], attributes: Mapping[str, Attribute]
) -> tuple[tuple[Any, ...], tuple[Cond, ...]]:
    shapes = index.Shapes()
    operands = [index.Tensor(a.shape, _no_value) for a in args]
    with index.interpreted(shapes):
        result = interpret_operator(spec, operands, attributes)
    for extent in result.shape:
        if not isinstance(extent, int) and isinstance(extent, float):
            raise ShapeError(f"{spec.name}: extent {extent} is not an integer")
        if isinstance(extent, int) and extent < 1:
            raise ShapeError(f"{spec.name}: the result would be empty")
    return result.shape, tuple(dict.fromkeys(shapes.conditions))


def interpret_operator(spec: Operator, operands: Sequence[index.Tensor], attributes: Mapping[str, Attribute]) -> index.Tensor:
    """Return the operator's result for these operands, under the active interpretation."""
    if spec.definition is None:
        raise SpecError(f"{spec.name} is a composite: write it out")
    if not spec.commutative:
        return spec.definition(*operands, **attributes)
    terms = list(operands)
    while len(terms) > MAX_LINEAR_OPERANDS:
        terms = [functools.reduce(spec.definition, terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return functools.reduce(spec.definition, terms)


MAX_LINEAR_OPERANDS = 32
"""The number of operands of a sum or product that are combined from left to right. More operands are combined in pairs first,
so that the expression of one element nests no deeper than the logarithm of their number.
"""


def interpret(term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    """Return the result of the term's root for these operands, under the active interpretation."""
    return interpret_operator(operator(term.op), operands, dict(term.attributes))


def _no_value(*_: object) -> None:
    raise NotImplementedError("a shape has no values")


def typing_conditions(*roots: Term) -> tuple[Cond, ...]:
    """Return the conditions under which the terms are well typed."""
    return tuple(dict.fromkeys(c for t in subterms(*roots) for c in t.requires))


def replace_subterms(root: Term, replacement: Mapping[Term, Term], cache: dict[Term, Term] | None = None) -> Term:
    """Return `root` with terms replaced wherever they occur. All terms above a replaced term are rebuilt."""
    done: dict[Term, Term] = {} if cache is None else cache
    done.update(replacement)
    for term in subterms(root):
        if term in done:
            continue
        args = tuple(done[a] for a in term.args)
        done[term] = term if args == term.args else apply(term.op, *args, **dict(term.attributes))
    return done[root]
