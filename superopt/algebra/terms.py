"""Terms: immutable expressions of operators over variables. Terms are interned (hash-consed): equal terms are one object."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

from superopt.algebra.extent import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Inverse,
    Monomial,
    Number,
    Size,
    Sym,
    at_least,
    atoms,
    conjunction,
    disjunction,
    floor_divide,
    integral,
    inverse,
    magnitude_of,
    same,
    show_extent,
    size,
)
from superopt.algebra.substitution import negation, substitute, substitute_cond
from superopt.errors import ShapeError

__all__ = [
    "VARIABLE",
    "AllOf",
    "AnyOf",
    "Atom",
    "Attribute",
    "Compare",
    "Cond",
    "Dim",
    "Extent",
    "Floor",
    "Inverse",
    "Monomial",
    "Number",
    "Shape",
    "Size",
    "Sym",
    "Term",
    "at_least",
    "atom_values",
    "atoms",
    "attribute_atoms",
    "conjunction",
    "disjunction",
    "floor_divide",
    "integral",
    "intern_term",
    "inverse",
    "magnitude_of",
    "negation",
    "operator_count",
    "same",
    "show_extent",
    "size",
    "substitute",
    "substitute_attribute",
    "substitute_cond",
    "subterms",
    "variable",
    "variables",
]

Attribute: TypeAlias = "str | bool | int | float | Fraction | Size | tuple[Extent, ...]"
Shape: TypeAlias = "tuple[Extent, ...]"
VARIABLE = "var"


class Term:
    """An immutable expression: a variable, or an operator applied to terms.

    Terms are interned: equal terms are one object. Create terms with `variable` and `operators.apply`, not with the
    constructor.

    Attributes:
        op: The name of the operator, or `VARIABLE`.
        shape: The shape of the result.
        requires: The conditions on sizes under which the operator is defined for these operands. Constant folding removes
            all conditions whose sizes are numbers.
        constant: Whether the term does not depend on the model's inputs.
        key: A hash by which terms are sorted. The hash is the same in every process.
    """

    __slots__ = ("__weakref__", "args", "attributes", "constant", "key", "op", "requires", "shape")
    op: str
    args: tuple[Term, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    shape: Shape
    requires: tuple[Cond, ...]
    constant: bool
    key: str

    def __getitem__(self, attribute: str) -> Attribute:
        for name, value in self.attributes:
            if name == attribute:
                return value
        raise KeyError(attribute)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_variable(self) -> bool:
        return self.op == VARIABLE

    @property
    def name(self) -> str:
        """The name of the variable. The term must be a variable."""
        return str(self["name"])

    @property
    def condition(self) -> bool:
        """Whether the term is a variable for a boolean tensor of a model. The elements of such a tensor are 0 or 1."""
        return self.op == VARIABLE and self.attributes[-1][0] == "condition"

    @property
    def position(self) -> int:
        """For a variable for an integer tensor, the bit width of the integers, such as 64. For any other term, 0."""
        name, bits = self.attributes[-1] if self.op == VARIABLE else ("", 0)
        return bits if name == "position" and isinstance(bits, int) else 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of a term of a model. Type checkers see a tuple of integers.

        The extent of a dynamic dimension is an expression (`Size`), not an integer. Arithmetic on expressions is exact. A
        comparison of expressions raises `ShapeError` if the comparison is neither proved nor refuted for all sizes. An
        expression that is used as an integer, for example as an index, raises `ShapeError`.
        """
        return cast("tuple[int, ...]", self.shape)

    def integer(self, attribute: str) -> int:
        """Return the value of the attribute, which must be an integer or a `Size`."""
        return _number(self[attribute])

    def integers(self, attribute: str) -> tuple[int, ...]:
        """Return the value of the attribute, which must be a tuple of integers and `Size`s."""
        value = self[attribute]
        assert isinstance(value, tuple)
        return tuple(map(_number, value))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the arguments of `intern_term`, so that unpickling returns the interned term of the loading process."""
        return intern_term, (self.op, self.args, self.attributes, self.shape, self.requires, self.constant)

    def real(self, attribute: str) -> float:
        """Return the value of the attribute as a float.

        Raises:
            ShapeError: The value is not a number.
        """
        value = self[attribute]
        if not isinstance(value, int | float | Fraction):
            raise ShapeError(f"the value {value} of the attribute {attribute} is not a number")
        return float(value)

    def __repr__(self) -> str:
        inside = ", ".join([*map(repr, self.args), *(f"{k}={v}" for k, v in self.attributes if k != "shape")])
        return self.name if self.is_variable else f"{self.op}({inside})"


_interned: WeakValueDictionary[tuple[object, ...], Term] = WeakValueDictionary()


def _number(value: Attribute) -> int:
    assert isinstance(value, int | Size), f"{value} is not a number"
    return cast("int", value)


def _typed(value: Attribute) -> tuple[object, ...]:
    """Return a key that contains the value and its type: 1, 1.0 and True have different keys.

    The key of a tuple contains the keys of the tuple's elements.
    """
    if isinstance(value, tuple):
        return tuple(_typed(v) for v in value)
    return type(value).__name__, value


def intern_term(
    op: str,
    args: tuple[Term, ...],
    attributes: tuple[tuple[str, Attribute], ...],
    shape: Shape,
    requires: tuple[Cond, ...] = (),
    constant: bool | None = None,
) -> Term:
    """Return the interned term with this operator, these arguments and these attributes. Create the term if there is none."""
    identity = (op, args, tuple((k, _typed(v)) for k, v in attributes), constant if op == VARIABLE else None)
    known = _interned.get(identity)
    if known is not None:
        return known
    term = Term()
    term.op, term.args, term.attributes, term.shape, term.requires = op, args, attributes, shape, requires
    term.constant = all(a.constant for a in args) if constant is None else constant
    text = f"{op}|{'|'.join(a.key for a in args)}|{attributes}|{term.constant}"
    term.key = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    _interned[identity] = term
    return term


def variable(name: str, shape: int | Shape, *, constant: bool = False, condition: bool = False, position: int = 0) -> Term:
    """Return the variable with this name and shape.

    Args:
        name: The name of the variable.
        shape: The shape, or the rank. If `shape` is a rank, the extents are symbols, such as `x.shape[-1]` for the last axis.
        constant: Whether the variable is a weight and therefore does not depend on the model's inputs.
        condition: Whether the model stores the variable as booleans. The elements of a boolean variable are 0 or 1.
        position: If the elements are indices along an axis, the bit width of the integers in which the model stores the
            variable. For any other variable, 0.
    """
    if isinstance(shape, int):
        shape = _symbolic(name, shape)
    attributes: tuple[tuple[str, Attribute], ...] = (("name", name), ("shape", shape))
    if condition:
        attributes = (*attributes, ("condition", True))
    if position:
        attributes = (*attributes, ("position", position))
    return intern_term(VARIABLE, (), attributes, shape, constant=constant)


@functools.lru_cache(maxsize=4096)
def _symbolic(name: str, rank: int) -> Shape:
    return tuple(size(Dim(name, axis)) for axis in range(-rank, 0))


def subterms(*roots: Term, constants: bool = True, stop: Iterable[Term] = ()) -> list[Term]:
    """Return `roots` and all of their distinct subterms in a deterministic topological order, arguments first.

    If `constants` is False, constant terms are left out. Terms in `stop` are left out, and the traversal does not enter them.
    """
    order: dict[Term, None] = {}
    met: set[Term] = set(stop)
    stack = [root for root in reversed(roots) if root not in met and (constants or not root.constant)]
    while stack:
        term = stack[-1]
        if term not in met:
            met.add(term)
            stack += [a for a in reversed(term.args) if a not in met and (constants or not a.constant)]
        else:
            order.setdefault(stack.pop())
    return list(order)


def operator_count(*roots: Term) -> int:
    """Return the number of distinct operator applications in the terms. A shared subterm is counted once."""
    return sum(not t.is_variable for t in subterms(*roots))


def variables(*roots: Term) -> list[Term]:
    """Return the distinct variables of the terms, in the order of their first use."""
    return [t for t in subterms(*roots) if t.is_variable]


def attribute_atoms(*roots: Term) -> set[Atom]:
    """Return the atoms (dimensions, attribute variables, quotients ...) in the attributes of the terms' operators.

    The shapes of variables are not searched.
    """
    found: set[Atom] = set()
    for term in subterms(*roots):
        if not term.is_variable:
            for _, value in term.attributes:
                for extent in value if isinstance(value, tuple) else (value,):
                    if isinstance(extent, Size):
                        found.update(extent.atoms())
    return found


def substitute_attribute(value: Attribute, atom_value: Callable[[Atom], Extent | None]) -> Attribute:
    """Return the attribute with atoms (dimensions, attribute variables ...) replaced by the results of `atom_value`.

    An atom for which `atom_value` returns None is not replaced.
    """
    if isinstance(value, tuple):
        return tuple(substitute(v, atom_value) for v in value)
    return substitute(value, atom_value) if isinstance(value, Size) else value


def atom_values(dims: Mapping[Dim, Extent], symbols: Mapping[str, Extent]) -> Callable[[Atom], Extent | None]:
    """Return a function that maps dimensions by `dims` and attribute variables by `symbols`, for use with `substitute`.

    The function returns None for any other atom.
    """

    def value(atom: Atom) -> Extent | None:
        if isinstance(atom, Dim):
            return dims.get(atom)
        return symbols.get(atom.name) if isinstance(atom, Sym) else None

    return value
