"""Schedules: which terms of an island get memory of their own, and the loop nests that compute these terms.

A term without memory is computed anew wherever it is read. A term with a reduction gets memory, unless a single term reads it,
element by element and without a reduction of its own. Another term gets memory if one of its elements is costly, or if its
elements are read so often that computing them anew costs more than reading them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from superopt.algebra import index as notation
from superopt.algebra.operators import apply, interpret, operator
from superopt.algebra.terms import Term, subterms
from superopt.errors import ShapeError
from superopt.kernels.affine import IndexExpression, LoopIndex, Quotient, index
from superopt.kernels.loops import Buffer, Nest, Tracing, UnsupportedError, Value, reread
from superopt.notation.parsing import parse
from superopt.policy import KERNELS
from superopt.speclib.composite import unfolded

FUNCTIONS = frozenset({"sigmoid", "tanh"})
"""Composite operators for which the generator has code of its own. Their definitions lose digits by cancellation in float32."""

CONVOLUTIONS = frozenset({"conv"})
"""Operators that read zeros outside their first operand, and have an attribute for the number of zeros on each side."""
COSTLY = frozenset({"exp", "log", "erf", "sqrt", "rsqrt", "power", "reciprocal", *FUNCTIONS})
"""Functions whose cost is `KernelPolicy.default_function_cost`. All other functions cost as much as an addition."""


@dataclass(frozen=True, eq=False)
class KernelProgram:
    """The loop nests of an island.

    Attributes:
        inputs: The buffers of the island's inputs, by variable name.
        weights: The buffers of weights, by the constant terms that compute them.
        outputs: The buffers of the outputs, by name.
        scratch: The buffers of all other terms with memory.
        nests: The loop nests, in an order in which they can run.
    """

    inputs: Mapping[str, Buffer]
    weights: Mapping[Term, Buffer]
    outputs: Mapping[str, Buffer]
    scratch: tuple[Buffer, ...]
    nests: tuple[Nest, ...]


def program_of(outputs: Mapping[str, Term], panel: int) -> KernelProgram:
    """Return loop nests that compute the terms. `panel` is the number of columns of a product that one tile computes.

    Raises:
        UnsupportedError: The generator cannot write code for an operator, or a size is not known. Or an output is an input, a
            weight or the same term as another output.
    """
    done: dict[Term, Term] = {}
    roots = tuple(expanded(root, done) for root in outputs.values())
    if any(not isinstance(n, int) for t in subterms(*roots) for n in t.shape):
        raise UnsupportedError("a size that is not known")
    if any(root.constant or root.is_variable for root in roots) or len(set(roots)) < len(roots):
        raise UnsupportedError("an output that is an input, a weight or another output")
    try:
        return _Scheduling(dict(zip(outputs, roots, strict=True)), panel).program()
    except UnsupportedError:
        raise
    except ShapeError as error:
        raise UnsupportedError(str(error)) from error


def expanded(root: Term, done: dict[Term, Term]) -> Term:
    """Return the term with composite operators replaced by the definitions that kernels compute.

    Operators in `FUNCTIONS` are kept. A convolution with padding becomes a convolution of a padded image.

    Args:
        root: The term.
        done: The terms that have already been expanded, with their results. New results are added.

    Raises:
        UnsupportedError: An operator is a recurrence.
    """
    for term in subterms(root):
        if term in done:
            continue
        if term.is_variable or term.constant:
            done[term] = term
            continue
        args = tuple(done[a] for a in term.args)
        same = term if args == term.args else _applied(term, args)
        definition = None if same.op in FUNCTIONS else _definition(same)
        done[term] = same if definition is None else expanded(definition, done)
    return done[root]


def _applied(term: Term, args: Sequence[Term]) -> Term:
    return apply(term.op, *args, **dict(term.attributes))


def _definition(term: Term) -> Term | None:
    spec = operator(term.op)
    if spec.unrolled is not None:
        raise UnsupportedError(f"the recurrence {term.op}")
    if spec.kernel:
        operands = dict(zip(spec.operands, term.args, strict=True))
        (body,) = parse(spec.kernel, operands, numbers=dict(term.attributes))
        return unfolded(body) if body.op == term.op else body
    return _padded_first(term) or unfolded(term)


def _padded_first(term: Term) -> Term | None:
    """Return a convolution with padding as a convolution of a padded image, whose loops need no conditions, or None."""
    if term.op not in CONVOLUTIONS or not any(pads := term.integers("pads")):
        return None
    image, *others = term.args
    count = len(pads) // 2
    padded = apply("pad", image, before=(0, 0, *pads[:count]), after=(0, 0, *pads[count:]))
    attributes = dict(term.attributes) | {"pads": (0,) * len(pads)}
    return apply(term.op, padded, *others, **attributes)


@dataclass(frozen=True)
class _Reading:
    """How an operator reads its operands.

    Attributes:
        iterations: The number of iterations of the operator's loops.
        reduces: Whether the operator reduces.
        in_rows: For each operand, whether each of its elements is read once, in rows of neighbouring elements that become
            neighbours in the result.
    """

    iterations: int
    reduces: bool
    in_rows: tuple[bool, ...]


class _Scheduling:
    def __init__(self, outputs: Mapping[str, Term], panel: int) -> None:
        self.outputs, self.panel = outputs, panel
        self.weights: dict[Term, Buffer] = {}
        self.terms = self._terms()
        self.users: dict[Term, list[Term]] = {}
        for term in self.terms:
            for a in dict.fromkeys(term.args):
                self.users.setdefault(a, []).append(term)
        self.stored: dict[Term, Buffer] = {}
        self.readings: dict[Term, _Reading] = {}

    def _terms(self) -> list[Term]:
        """Return the terms that nests compute, arguments first, and add the weights to `weights`.

        A term of weights becomes a weight itself if it is not larger than its largest argument.
        """
        folded = set[Term]()
        for term in subterms(*self.outputs.values()):
            weights = term.constant and not term.is_variable and any(t.is_variable for t in subterms(term))
            if weights and _size(term) <= max(map(_size, term.args)):
                folded.add(term)
        found = subterms(*self.outputs.values(), stop=folded)
        read = {a for t in found for a in t.args}
        for term in [*sorted(read & folded, key=lambda t: t.key), *(t for t in found if t.is_variable and t.constant)]:
            self.weights[term] = Buffer(f"w{len(self.weights)}", term.sizes)
        return [t for t in found if not t.is_variable]

    def program(self) -> KernelProgram:
        """Return the nests, in the order of the terms that they compute, and the buffers that they read and write."""
        inputs = {t.name: Buffer(f"x{i}", t.sizes, t.position) for i, t in enumerate(self._variables())}
        outputs = {name: Buffer(f"y{i}", term.sizes) for i, (name, term) in enumerate(self.outputs.items())}
        by_term = {term: outputs[name] for name, term in self.outputs.items()}
        self.stored = {**{t: inputs[t.name] for t in self._variables()}, **self.weights}
        nests: list[Nest] = []
        scratch: list[Buffer] = []
        for term in self.terms:
            if term in by_term or self._needs_memory(term):
                target = by_term.get(term) or Buffer(f"t{len(scratch)}", term.sizes)
                if term not in by_term:
                    scratch.append(target)
                nests.append(self._nest(term, target))
                self.stored[term] = target
        read = {buffer for nest in nests for buffer in nest.reads}
        weights = {term: buffer for term, buffer in self.weights.items() if buffer in read}
        return KernelProgram(inputs, weights, outputs, tuple(scratch), tuple(nests))

    def _variables(self) -> list[Term]:
        return [t for t in subterms(*self.outputs.values()) if t.is_variable and not t.constant]

    def _needs_memory(self, term: Term) -> bool:
        users = self.users.get(term, [])
        value = self._value_at(term, tuple(map(index, _axes(term))))
        if any(v.is_reduction for v in value.within()):
            return not (len(users) == 1 and self._is_read_in_rows(term, users[0]) and not self._reduces(users[0]))
        cost = sum(KERNELS.default_function_cost if v.kind in COSTLY else 1.0 for v in value.within() if v.args)
        if not cost:
            return False
        reads = sum(self._reading(user).iterations for user in users)
        return cost * (reads / _size(term) - 1) > KERNELS.max_recomputed_cost or cost > KERNELS.max_inlined_cost

    def _is_read_in_rows(self, term: Term, user: Term) -> bool:
        places = self._reading(user).in_rows
        return all(there for a, there in zip(user.args, places, strict=True) if a == term) and user.args.count(term) == 1

    def _reduces(self, term: Term) -> bool:
        return self._reading(term).reduces

    def _reading(self, term: Term) -> _Reading:
        if term not in self.readings:
            self.readings[term] = _reading_of(term)
        return self.readings[term]

    def _nest(self, term: Term, target: Buffer) -> Nest:
        """Return the nest that computes the term.

        Its loops are chosen so that offsets have few quotients: neighbouring axes may share a loop, and a loop may be split.
        """
        extents = [n for n in term.sizes if n > 1]
        best = self._traced(term, target, extents)
        for place in range(len(extents) - 1, 0, -1):
            merged = [*extents[: place - 1], extents[place - 1] * extents[place], *extents[place + 1 :]]
            nest = self._traced(term, target, merged)
            if len(_quotients(nest)) <= len(_quotients(best)):
                extents, best = merged, nest
        while split := self._split(term, target, best):
            best = split
        return self._packed(term, target, best) or best

    def _packed(self, term: Term, target: Buffer, nest: Nest) -> Nest | None:
        """Return a nest for products with weight matrices that are stored in panels of `panel` columns, or None.

        The loop over the panels is outermost, so that a panel stays in the cache while all rows are multiplied by it.
        """
        panel = self.panel
        last = nest.loops[-1] if nest.loops else None
        if last is None or last.extent % panel or last.extent == panel:
            return None
        reductions = [v for v in nest.value.within() if v.is_reduction]
        read = {v.data[0] for r in reductions for v in r.within() if v.kind == "read" and _is_matrix(v, r.data, last)}
        matrices = [(weight, buffer) for weight, buffer in self.weights.items() if buffer in read and weight.rank == 2]
        if not matrices or len(matrices) < len(reductions):
            return None
        extents = [loop.extent for loop in nest.loops]
        split = self._traced(term, target, [*extents[:-1], last.extent // panel, panel])
        *outer, panels, lanes = split.loops
        value = split.value
        for weight, buffer in matrices:
            value = self._in_panels(value, weight, buffer)
        return Nest(target, (panels, *outer, lanes), split.offset, value)

    def _in_panels(self, value: Value, weight: Term, buffer: Buffer) -> Value:
        """Return the value with reads of the weight matrix in the buffer replaced by reads of its panels."""
        (rows, columns), panel = weight.sizes, self.panel
        packed = apply("transpose", apply("reshape", weight, shape=(rows, columns // panel, panel)), perm=(-2, -3, -1))
        panels = self.weights.setdefault(packed, Buffer(f"{buffer.name}p", packed.sizes))

        def position(offset: IndexExpression) -> IndexExpression:
            return panels.at([offset % columns // panel, offset // columns, offset % panel])

        return reread(value, buffer, panels, position)

    def _split(self, term: Term, target: Buffer, nest: Nest) -> Nest | None:
        """Return a nest in which one loop is split so that there are fewer quotients, or None."""
        for quotient in sorted(_quotients(nest), key=lambda q: q.key):
            for place, loop in enumerate(nest.loops):
                if loop in quotient.loops() and loop.extent % quotient.by == 0 and quotient.by < loop.extent:
                    extents = [each.extent for each in nest.loops]
                    extents[place : place + 1] = [loop.extent // quotient.by, quotient.by]
                    found = self._traced(term, target, extents)
                    if len(_quotients(found)) < len(_quotients(nest)):
                        return found
        return None

    def _traced(self, term: Term, target: Buffer, extents: Sequence[int]) -> Nest:
        loops = tuple(LoopIndex(f"o{i}", n) for i, n in enumerate(extents))
        flat = Buffer("", tuple(extents)).at(tuple(map(index, loops)))
        return Nest(target, loops, flat, self._value_at(term, _position(flat, term.sizes)))

    def _value_at(self, term: Term, position: Sequence[IndexExpression]) -> Value:
        tracing = Tracing()
        with notation.interpreted(tracing):
            value: Value = self._tensor(term, tracing, {})[tuple(position)]
        return value

    def _tensor(self, term: Term, tracing: Tracing, known: dict[Term, notation.Tensor]) -> notation.Tensor:
        """Return the term's tensor. An element of a term with memory is read."""
        if term not in known:
            if term in self.stored:
                known[term] = tracing.stored(self.stored[term])
            else:
                operands = [self._tensor(a, tracing, known) for a in term.args]
                made = _function(term, operands[0]) if term.op in FUNCTIONS else interpret(term, operands)
                known[term] = notation.Tensor(made.shape, functools.cache(made.at))
        return known[term]


def _reading_of(term: Term) -> _Reading:
    tracing = Tracing()
    buffers = [Buffer(f"a{i}", a.sizes) for i, a in enumerate(term.args)]
    position = tuple(map(index, _axes(term)))
    with notation.interpreted(tracing):
        operands = [tracing.stored(b) for b in buffers]
        value = (_function(term, operands[0]) if term.op in FUNCTIONS else interpret(term, operands))[position]
    found = list(value.within())
    count = _size(term) * _reduced_count(value)
    offsets = [{v.data[1] for v in found if v.kind == "read" and v.data[0] is b} for b in buffers]
    axes = _axes(term)
    last = next((loop for loop in reversed(axes) if loop.extent > 1), None)
    rows = tuple(
        b.size == _size(term)
        and len(some) == 1
        and all(offset.loops() <= {*axes} and (last is None or _is_row(offset, last)) for offset in some)
        for some, b in zip(offsets, buffers, strict=True)
    )
    return _Reading(count, any(v.is_reduction for v in found), rows)


def _function(term: Term, operand: notation.Tensor) -> notation.Tensor:
    return notation.Tensor(term.sizes, lambda *position: notation.call(term.op, operand[position]))


def iterations(nest: Nest) -> int:
    """Return the number of times that the innermost code of the nest runs."""
    return nest.target.size * _reduced_count(nest.value)


def _is_row(offset: IndexExpression, last: LoopIndex) -> bool:
    """Return whether neighbouring indices of the loop give neighbouring offsets, except where a division carries."""
    return dict(offset.terms).get(last) == 1 or offset.step(last) == 1


def _reduced_count(value: Value) -> int:
    """Return the largest number of iterations of nested reductions in the value."""
    counts: dict[int, int] = {}
    for one in value.within():
        inner = max((counts[id(a)] for a in one.args), default=1)
        counts[id(one)] = inner * one.data.extent if one.is_reduction else inner
    return counts[id(value)]


def _position(flat: IndexExpression, shape: Sequence[int]) -> tuple[IndexExpression, ...]:
    """Return the position of the element at this offset of a tensor in row-major order."""
    position: list[IndexExpression] = []
    for n in reversed(shape):
        position.append(flat % n)
        flat = flat // n
    return tuple(reversed(position))


def _axes(term: Term) -> tuple[LoopIndex, ...]:
    """Return a loop for each axis of the term."""
    return tuple(LoopIndex(f"o{axis}", n) for axis, n in enumerate(term.sizes))


def _is_matrix(read: Value, rows: LoopIndex, columns: LoopIndex) -> bool:
    """Return whether a value reads the element of a matrix at these indices of its rows and columns."""
    buffer, offset = read.data
    return len(buffer.shape) == 2 and offset == index(rows) * buffer.shape[1] + index(columns) and rows.extent > 1


def _quotients(nest: Nest) -> set[Quotient]:
    """Return the quotients in the offsets and conditions of the nest."""
    found = [nest.offset]
    for value in nest.value.within():
        if value.kind == "read":
            found.append(value.data[1])
        elif value.kind == "select":
            found += value.data.parts
        elif value.kind == "index":
            found.append(value.data)
    return {atom for offset in found for atom, _ in offset.terms if isinstance(atom, Quotient)}


def _size(term: Term) -> int:
    return math.prod(term.sizes)
