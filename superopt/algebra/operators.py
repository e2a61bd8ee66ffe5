"""The registry of operators, which loads one operator from each file of specs/. A new file in specs/ adds an operator."""

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
from typing import Any, Protocol, TypeGuard

from superopt.algebra import index
from superopt.algebra.digests import digests
from superopt.algebra.terms import Attribute, Cond, Shape, Term, integral, intern_term, subterms
from superopt.errors import ShapeError, SpecError

SHORT = 1 << 16
SMALLEST_PART = 1000
REAL, POSITIVE = "real", "positive"
KINDS = {"Axis": "axis", "Axes": "axes", "Extent": "extent", "Extents": "extents", "Real": "real"}


class Node(Protocol):
    """The interface of an ONNX node. The function `lift` in a file of specs/ translates the node to a term.

    Floating-point inputs are terms. Attributes and constant inputs are Python values.

    A method raises `ShapeError` if the node does not have the requested item. The node is then not translated, as if `lift`
    returned None.
    """

    @property
    def op_type(self) -> str: ...

    @property
    def opset(self) -> int: ...

    @property
    def inputs(self) -> Sequence[Term | None]:
        """One term or None for each input.

        The entry is None if the input is omitted, or is not a floating-point tensor of known shape.
        """

    @property
    def outputs(self) -> int:
        """The number of outputs of the node, without unused optional outputs."""

    def absent(self, position: int) -> bool:
        """Return whether the node omits this optional input."""

    def operand(self, position: int) -> Term:
        """Return the term of the input at this position."""

    def wanted(self, position: int) -> bool:
        """Return whether the node has the output at this position. An unused optional output does not count."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the attribute as an int, a float, a str or a tuple.

        If the opset has a constant input instead of the attribute, return the value of the input. If the node has neither the
        attribute nor the input, return `default`.
        """

    def boolean(self, position: int) -> bool:
        """Return whether the input at this position is a tensor of booleans rather than numbers."""

    def scalar(self, position: int) -> float | None:
        """Return the number in a constant input with one element, or None for any other input."""

    def uniform(self, position: int) -> float | None:
        """Return the common value of all elements of a constant input, or None for any other input."""

    def integers(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the elements of a constant integer input in row-major order, and the shape of the input."""

    def constant(self, position: int) -> Term:
        """Return a constant integer input as a term. `Emit.integers` converts the term back to an integer input."""

    def broadcast(self) -> list[Term]:
        """Return the inputs, expanded to the common shape to which ONNX broadcasts them implicitly."""

    def expanded(self, x: Term, shape: tuple[int, ...]) -> Term:
        """Broadcast `x` to `shape` as ONNX does: trailing axes are aligned, and axes of extent 1 are repeated."""

    def window(self, kernel: Sequence[int]) -> Mapping[str, tuple[int, ...]]:
        """Return the strides, dilations and pads of a window that slides over input 0.

        The pads include the effect of the node's `auto_pad` and `ceil_mode`.
        """

    def written(self, text: str, terms: Mapping[str, Term], **numbers: float) -> Term:
        """Return the term that `text` denotes in the rule notation. Names in `text` refer to `terms` and `numbers`."""


class Emit(Protocol):
    """The interface with which the function `lower` in a file of specs/ writes a term as ONNX nodes.

    For example, `emit("Relu", x)` adds a Relu node and returns the name of the node's output.
    """

    @property
    def opset(self) -> int: ...

    def __call__(self, op_type: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node with one output and return the name of the output.

        An input is a term, the name of an earlier output, a number or numpy array (stored as an initializer), or None (an
        omitted input). Some parameters, such as `starts` of Slice, are attributes in some opsets and inputs in other opsets.
        These parameters must be passed as attributes.
        """

    def several(self, op_type: str, *inputs: Any, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Return the names of the first `outputs` outputs of a node with these inputs and attributes.

        The first call adds the node. A later call with equal arguments adds no node.
        """

    def aligned(self, term: Term) -> Term:
        """Return the operand of `term`, an `expand`. The operand is reshaped so that ONNX broadcasts it to the shape of `term`.

        Axes that the `expand` adds get extent 1. Leading axes of extent 1 are left out.
        """

    def alone(self, term: Term) -> bool:
        """Return whether the term has exactly one use. One node may then compute the term together with its user.

        For variables and initializers, the result is False, because no node computes them.
        """

    def inputs(self, term: Term) -> list[Term]:
        """Return the operands of the term. An `expand` is left out where ONNX broadcasting makes it superfluous."""

    def integers(self, term: Term, extent: int) -> str:
        """Return the name of an int64 tensor with the elements of `term`, which are indices along an axis of size `extent`.

        Raises:
            ShapeError: The term is constant, and an element is out of bounds for an axis of size `extent`.
        """

    def nested(self, term: Term) -> list[Term]:
        """Return the operands of `term` from left to right, after flattening nested applications of the same operator.

        For example, the operands of `concat(concat(x, y), z)` are x, y and z. An operand is flattened only if it has the same
        attributes as `term` and no other use.
        """

    def chain(self, op_type: str, term: Term, inverse: tuple[str, Callable[[Term], Term | None]] | None = None) -> str:
        """Write a sum, product or similar term as a chain of binary nodes, and return the name of the result.

        An ONNX operator that takes any number of inputs is written as one node. Partial results that other terms also need are
        computed first. The remaining operands follow from left to right. An `expand` is left out where ONNX broadcasting makes
        it superfluous.

        Args:
            op_type: The ONNX operator of the nodes.
            term: The term to write.
            inverse: A pair of an ONNX operator and a function. The operator, such as Sub for Add, undoes `op_type`. The
                function maps an operand `-y` to `y`, and any other operand to None. The chain subtracts `y` instead of adding
                `-y`.
        """


@dataclass(frozen=True)
class Parameter:
    """An attribute of an operator.

    Attributes:
        name: The name of the attribute.
        kind: A value of `KINDS`, such as "axis".
        default: The default value, or None if the attribute must be given.
    """

    name: str
    kind: str
    default: Attribute | None


@dataclass(frozen=True)
class Operator:
    """An operator, from one file of specs/.

    Attributes:
        definition: A function that defines the operator in index notation.
        unrolled: For a recurrence (an operator such as LSTM that repeats a step), a function that returns the repeated steps as
            one term.
        composite: A term in the rule notation, or an empty text. If there is also a definition, the operator equals this term,
            and this equation is an axiom of the operator. If there is no definition, the algebra contains no operator of this
            name, and the ONNX operator is translated to this term. If the term adds a bias to the result of an operator, such
            as a convolution, the file may contain the functions `bias_axis` and `lower_biased`. `bias_axis` returns the axis
            along which a bias can be added, or None if no bias can be added. `lower_biased` writes the operator and the bias as
            one ONNX node.
        kernel: A term in the rule notation, or an empty text. Over the real numbers, the term equals the operator. The term is
            NaN or infinite for the same inputs as the kernels of runtimes. The text is empty if the definition is NaN or
            infinite for the same inputs as these kernels.
        rounds_by_position: The element types for which ONNX Runtime's kernel may round equal results differently at different
            positions in the tensor. For these types, the kernel computes most elements with vector instructions, and the
            remaining elements with a different routine.
        absolute_error: Whether ONNX Runtime's kernel keeps only the absolute error small, so that a tiny result may become 0.
        domain: The inputs on which the operator is tested: `REAL`, or `POSITIVE` if the operator is NaN for other inputs.
        rounding: If the operator is a fast algorithm for a simpler operator, a function of the attributes. The function returns
            the typical rounding error of the fast algorithm, divided by the typical rounding error of the simpler operator. For
            any other operator, None.
        digest: A hash of the definition and the axioms (`superopt.algebra.digests`).
    """

    name: str
    definition: Callable[..., index.Tensor] | None
    operands: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    axioms: str
    commutative: bool
    composite: str
    kernel: str
    rounds_by_position: frozenset[str]
    absolute_error: bool
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
        """Whether an attribute, instead of the operands' shapes, determines the shape of the result."""
        return not self.operands or any(p.name == "shape" for p in self.parameters)


def specs_folder() -> Path:
    """Return the path of the folder specs/, inside the installed package or beside the package in a checkout."""
    return _data_folder("specs")


def _data_folder(name: str) -> Path:
    package = Path(__file__).resolve().parents[1]
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def substitutions_folder() -> Path:
    """Return the path of the folder substitutions/, which is next to the folder specs/."""
    return _data_folder("substitutions")


@functools.cache
def registry() -> Mapping[str, Operator]:
    """Return all operators of specs/ by name, in alphabetical order."""
    folder = specs_folder()
    if not folder.is_dir():
        raise SpecError(f"the folder of the operator definitions, {folder}, does not exist")
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
        kernel=" ".join(getattr(module, "KERNEL", "").split()),
        rounds_by_position=frozenset(getattr(module, "ROUNDS_BY_POSITION", ())),
        absolute_error=getattr(module, "ABSOLUTE_ERROR", False),
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
    """Return the axiom that the operator `name` equals the term `composite`.

    The axiom is one line of text, in the notation of the constant AXIOMS in the files of specs/. Return an empty text if
    `signature` or `composite` is empty.
    """
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
    """Return the term that applies the operator `name` to terms.

    Nested applications of a commutative operator are flattened, and the operands are sorted, so `a + b` and `b + a` are the
    same term. Axes in attributes are counted from the end.

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
    """Clear the caches of `apply`, so that unreferenced terms are freed."""
    _applied.clear()
    _typings.clear()


def _types(value: Attribute) -> object:
    """Return the type of the value. For a tuple, return the types of the elements.

    A cache key needs types, because 1, 1.0 and True compare equal.
    """
    return tuple(map(type, value)) if isinstance(value, tuple) else type(value)


def _checked(name: str, args: tuple[Term, ...], attributes: Mapping[str, Attribute]) -> Term:
    spec = operator(name)
    if spec.definition is None:
        raise SpecError(f"{name} only abbreviates a term of other operators: write this term instead")
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
        several = parameter.kind in ("axes", "extents")
        numbers = value if isinstance(value, tuple) else (value,)
        if isinstance(value, tuple) != several or any(isinstance(number, str) for number in numbers):
            kind = "a tuple of numbers, not a text or one number" if several else "one number, not a text or several numbers"
            raise ShapeError(f"{spec.name}: the attribute {parameter.name} must be {kind}")
        if parameter.kind == "axis":
            value = _from_end(spec, value, rank)
        elif parameter.kind == "axes" and isinstance(value, tuple):
            value = tuple(_from_end(spec, v, rank) for v in value)
        values.append((parameter.name, _canonical(value)))
    return tuple(values)


def _canonical(value: Attribute) -> Attribute:
    """Return the attribute in a form that is the same for equal numbers.

    A `Fraction` with denominator 1 becomes an int. A float whose numerator and denominator are at most `SHORT`, such as 0.5,
    becomes an int or a `Fraction`.
    """
    if isinstance(value, tuple):
        return tuple(integral(v) if isinstance(v, Fraction) else v for v in value)
    if isinstance(value, float) and math.isfinite(value) and max(map(abs, value.as_integer_ratio())) <= SHORT:
        return integral(Fraction(value))
    return integral(value) if isinstance(value, Fraction) else value


def fraction_of(number: float) -> Attribute:
    """Return a fraction with a small denominator, such as 1/6, whose rounded value is `number`.

    The fraction is rounded to float32 if float32 represents `number`, and to float64 otherwise. If there is no such fraction
    with a denominator of at most `SMALLEST_PART`, return `number` itself.
    """
    if not math.isfinite(number):
        return number
    near = Fraction(number).limit_denominator(SMALLEST_PART)
    single = _float32(number)
    same = _float32(float(near)) == single if single == number else float(near) == number
    return integral(near) if same else number


def is_divided_by(factor: Attribute) -> TypeGuard[Fraction]:
    """Return whether a product with the factor is computed as a division by the factor's reciprocal.

    This is the case if float64 represents the reciprocal exactly, but not the factor.
    """
    return isinstance(factor, Fraction) and not _is_float(factor) and _is_float(1 / factor)


def _is_float(number: Fraction) -> bool:
    return abs(number) <= sys.float_info.max and float(number) == number


def _float32(number: float) -> float:
    """Return the number rounded to float32. A number that is too large becomes infinite."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


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
    """Return the operator's result for these operands, under the active interpretation of index notation."""
    if spec.definition is None:
        raise SpecError(f"{spec.name} only abbreviates a term of other operators: write this term instead")
    if not spec.commutative:
        return spec.definition(*operands, **attributes)
    terms = list(operands)
    while len(terms) > MAX_LINEAR_OPERANDS:
        terms = [functools.reduce(spec.definition, terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return functools.reduce(spec.definition, terms)


MAX_LINEAR_OPERANDS = 32
"""The largest number of operands of a sum or product that are combined from left to right.

A longer sum or product is first combined in pairs, repeatedly, so that the nesting depth of an element's expression grows only
with the logarithm of the number of operands.
"""


def interpret(term: Term, operands: Sequence[index.Tensor]) -> index.Tensor:
    """Return the result of the term's root operator for these operands, under the active interpretation of index notation."""
    return interpret_operator(operator(term.op), operands, dict(term.attributes))


def _no_value(*_: object) -> None:
    raise NotImplementedError("only the shape of an operand is known, so its elements cannot be read")


def typing_conditions(*roots: Term) -> tuple[Cond, ...]:
    """Return the conditions on extents under which the terms are well typed."""
    return tuple(dict.fromkeys(c for t in subterms(*roots) for c in t.requires))


def replace_subterms(root: Term, replacement: Mapping[Term, Term], cache: dict[Term, Term] | None = None) -> Term:
    """Replace subterms of `root`, and return the result. `replacement` maps each subterm to its replacement.

    `cache` maps subterms to results, and new results are added. Calls with the same `replacement` may share one cache.
    """
    done: dict[Term, Term] = {} if cache is None else cache
    done.update(replacement)
    for term in subterms(root):
        if term in done:
            continue
        args = tuple(done[a] for a in term.args)
        done[term] = term if args == term.args else apply(term.op, *args, **dict(term.attributes))
    return done[root]
