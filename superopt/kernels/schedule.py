"""Schedules: which terms of an island get memory of their own, and the loop nests that compute these terms.

A term without memory is computed anew wherever it is read. The outputs of an island always have memory. Some terms are computed
by a reduction, such as a sum over an axis. Such a term gets no memory if its only reader is a term without a reduction, and
this reader reads each element once, row by row. In all other cases, a term with a reduction gets memory. A term without a
reduction gets memory if one of its elements is costly, or if computing its elements anew for each read costs too much.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from superopt.algebra import index as notation
from superopt.algebra.operators import apply, interpret, operator
from superopt.algebra.terms import Term, subterms, variable, variables
from superopt.errors import ShapeError
from superopt.kernels.affine import IndexExpression, LoopIndex, Quotient, index
from superopt.kernels.loops import Buffer, Nest, Steps, Tracing, UnsupportedError, Value, reread
from superopt.notation.parsing import parse
from superopt.policy import KERNELS
from superopt.speclib.composite import unfolded
from superopt.speclib.recurrence import Recurrence, recurrences

Source: TypeAlias = Callable[[Tracing], notation.Tensor]
"""A function that returns the tensor from which nests read a term, a variable or a state."""
Definition: TypeAlias = Callable[[Sequence[IndexExpression]], Value]
"""A function that returns an element, as a value over loop indices, at a position."""

FUNCTIONS = frozenset({"sigmoid", "tanh"})
"""Composite operators for which the generator has code of its own. Their definitions lose digits by cancellation in float32."""

CONVOLUTIONS = frozenset({"conv"})
"""Operators that read zeros outside their first operand, and have an attribute for the number of zeros on each side."""
COSTLY = frozenset({"exp", "log", "erf", "sqrt", "rsqrt", "power", "reciprocal", "quotient", "divided", *FUNCTIONS})
"""Functions whose cost is `KernelPolicy.default_function_cost`. All other functions cost as much as an addition."""

ALIGNMENT = 16
"""Scratch buffers begin at multiples of this number of elements from the start of the scratch memory."""


@dataclass(frozen=True, eq=False)
class KernelProgram:
    """The loop nests of an island.

    Attributes:
        inputs: The buffers of the island's inputs, by variable name.
        weights: The buffers of weights, by the constant terms that compute the weights.
        outputs: The buffers of the outputs, by name.
        scratch: The buffers of all other terms with memory.
        parts: The loop nests and the repeated nests of recurrences, in the order in which the nests run.
    """

    inputs: Mapping[str, Buffer]
    weights: Mapping[Term, Buffer]
    outputs: Mapping[str, Buffer]
    scratch: tuple[Buffer, ...]
    parts: tuple[Nest | Steps, ...]

    @property
    def nests(self) -> Iterator[Nest]:
        """All loop nests, including nests that are repeated."""
        for part in self.parts:
            yield from part.nests

    @functools.cached_property
    def scratch_offsets(self) -> Mapping[Buffer, int]:
        """The offset of each scratch buffer in the memory for all scratch buffers.

        Two buffers may share memory if the last use of one buffer comes before the first write to the other buffer.
        """
        last = {b: i for i, part in enumerate(self.parts) for nest in part.nests for b in (*nest.reads, nest.target)}
        offsets: dict[Buffer, int] = {}
        for i, part in enumerate(self.parts):
            for nest in part.nests:
                if nest.target not in self.scratch or nest.target in offsets:
                    continue
                offset, size = 0, _aligned(nest.target.size)
                for start, end in sorted((start, start + _aligned(b.size)) for b, start in offsets.items() if last[b] >= i):
                    if offset + size <= start:
                        break
                    offset = max(offset, end)
                offsets[nest.target] = offset
        return offsets

    @property
    def scratch_size(self) -> int:
        """The number of elements of the memory for all scratch buffers."""
        return max((start + _aligned(b.size) for b, start in self.scratch_offsets.items()), default=0)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def program_of(outputs: Mapping[str, Term], panel: int) -> KernelProgram:
    """Return loop nests that compute the terms. `panel` is the number of columns that one tile of a product computes.

    Raises:
        UnsupportedError: The generator cannot write code for an operator, a size is not known, an output is an input or a
            weight, or two outputs are equal.
    """
    done: dict[Term, Term] = {}
    roots = tuple(expanded(root, done) for root in outputs.values())
    if any(not isinstance(n, int) for t in subterms(*roots) for n in t.shape):
        raise UnsupportedError("a size is not known")
    if any(root.constant or root.is_variable for root in roots):
        raise UnsupportedError("an output is also an input or a weight")
    try:
        return _Scheduling(dict(zip(outputs, roots, strict=True)), panel, {}, [], {}).program()
    except UnsupportedError:
        raise
    except ShapeError as error:
        raise UnsupportedError(str(error)) from error


def expanded(root: Term, done: dict[Term, Term]) -> Term:
    """Replace composite operators in the term by the definitions that kernels compute, and return the result.

    Operators in `FUNCTIONS` and recurrences are kept. A convolution with padding becomes a convolution of a padded image.

    Args:
        root: The term.
        done: A mapping from terms to their expanded forms. New terms are added.
    """
    for term in subterms(root):
        if term in done:
            continue
        if term.is_variable or term.constant:
            done[term] = term
            continue
        args = tuple(done[a] for a in term.args)
        same = term if args == term.args else _applied(term, args)
        definition = None if same.op in FUNCTIONS or same.op in recurrent_operators() else _definition(same)
        done[term] = same if definition is None else expanded(definition, done)
    return done[root]


def _applied(term: Term, args: Sequence[Term]) -> Term:
    return apply(term.op, *args, **dict(term.attributes))


@functools.cache
def recurrent_operators() -> Mapping[str, Recurrence]:
    """Return the recurrence that defines each recurrent operator, by the operator's name."""
    return {name: each for each in recurrences() for name in (each.every, *each.last)}


def _definition(term: Term) -> Term | None:
    spec = operator(term.op)
    if spec.kernel:
        operands = dict(zip(spec.operands, term.args, strict=True))
        (body,) = parse(spec.kernel, operands, numbers=dict(term.attributes))
        return unfolded(body) if body.op == term.op else body
    return _padded_first(term) or unfolded(term)


def _padded_first(term: Term) -> Term | None:
    """Replace a convolution with padding by a convolution of a padded image. For any other term, return None."""
    if term.op not in CONVOLUTIONS or not any(pads := term.integers("pads")):
        return None
    image, *others = term.args
    count = len(pads) // 2
    padded = apply("pad", image, before=(0, 0, *pads[:count]), after=(0, 0, *pads[count:]))
    attributes = dict(term.attributes) | {"pads": (0,) * len(pads)}
    return apply(term.op, padded, *others, **attributes)


@dataclass(frozen=True)
class _Reading:
    """The way in which an operator reads its operands.

    Attributes:
        iterations: The number of iterations of the operator's loops.
        reduces: Whether the operator contains a reduction.
        in_rows: For each operand, whether the operator reads each element once and keeps neighbours in a row adjacent.
    """

    iterations: int
    reduces: bool
    in_rows: tuple[bool, ...]


class _Scheduling:
    """The schedule of an island, or of a step of a recurrence.

    Args:
        outputs: The terms to compute, by name.
        panel: The number of columns that one tile of a product computes.
        weights: The buffers of weights. New weights are added.
        scratch: The buffers of intermediate results. New buffers are added.
        sources: For each term that needs no nest, such as a variable of a step, the tensor from which nests read the term.
    """

    def __init__(
        self,
        outputs: Mapping[str, Term],
        panel: int,
        weights: dict[Term, Buffer],
        scratch: list[Buffer],
        sources: Mapping[Term, Source],
    ) -> None:
        self.outputs, self.panel, self.weights, self.scratch = outputs, panel, weights, scratch
        self.stored: dict[Term, Source] = dict(sources)
        self.terms = self._terms()
        self.users: dict[Term, list[Term]] = {}
        for term in self.terms:
            for a in dict.fromkeys(term.args):
                self.users.setdefault(a, []).append(term)
        self.readings: dict[Term, _Reading] = {}

    def _terms(self) -> list[Term]:
        """Return the terms that nests compute, arguments first, and add the weights to `weights`.

        A term that depends only on weights becomes a weight itself, unless the term is larger than its largest argument.
        """
        folded = set[Term]()
        for term in subterms(*self.outputs.values()):
            weights = term.constant and not term.is_variable and any(t.is_variable for t in subterms(term))
            if weights and _size(term) <= max(map(_size, term.args)):
                folded.add(term)
        found = subterms(*self.outputs.values(), stop={*folded, *self.stored})
        read = {a for t in found for a in t.args}
        for term in [*sorted(read & folded, key=lambda t: t.key), *(t for t in found if t.is_variable and t.constant)]:
            if term not in self.stored:
                self.weights[term] = Buffer(f"w{len(self.weights)}", term.sizes)
                self.stored[term] = _stored(self.weights[term])
        return [t for t in found if not t.is_variable and t not in self.stored]

    def program(self) -> KernelProgram:
        """Return the nests, in the order of their terms, and the buffers that the nests read and write."""
        found = [t for t in subterms(*self.outputs.values()) if t.is_variable and not t.constant]
        inputs = {t.name: Buffer(f"x{i}", t.sizes, t.position) for i, t in enumerate(found)}
        self.stored |= {t: _stored(inputs[t.name]) for t in found}
        outputs = {name: Buffer(f"y{i}", term.sizes) for i, (name, term) in enumerate(self.outputs.items())}
        targets = {term: outputs[name] for name, term in reversed([*self.outputs.items()])}
        parts = self.parts(targets)
        for name, term in self.outputs.items():  # equal outputs are copies of the first of them
            if outputs[name] is not targets[term]:
                parts += (self._nest(outputs[name], functools.partial(self._value_at, term)),)
        read = {buffer for part in parts for nest in part.nests for buffer in nest.reads}
        weights = {term: buffer for term, buffer in self.weights.items() if buffer in read}
        return KernelProgram(inputs, weights, outputs, tuple(self.scratch), parts)

    def parts(self, targets: Mapping[Term, Buffer]) -> tuple[Nest | Steps, ...]:
        """Return the nests that compute all terms with memory.

        `targets` maps the terms of the outputs to the buffers of the outputs.
        """
        parts: list[Nest | Steps] = []
        for term in self.terms:
            if term in self.stored:
                continue
            if term.op in recurrent_operators():
                parts += self._recurrence(term, targets)
            elif term in targets or self._needs_memory(term):
                target = targets.get(term) or self._memory(term.sizes)
                parts.append(self._nest(target, functools.partial(self._value_at, term)))
                self.stored[term] = _stored(target)
        return tuple(parts)

    def _memory(self, shape: tuple[int, ...]) -> Buffer:
        self.scratch.append(Buffer(f"t{len(self.scratch)}", shape))
        return self.scratch[-1]

    def _recurrence(self, term: Term, targets: Mapping[Term, Buffer]) -> Iterator[Nest | Steps]:
        """Yield the parts that compute all states of a recurrence for every step.

        A term of the step that does not depend on the states is computed for all steps at once, before the first step.
        """
        recurrence = recurrent_operators()[term.op]
        names = (recurrence.every, *recurrence.last)
        every = next((t for t in targets if t.op == names[0] and t.args == term.args), None)
        shapes = [(term.args[0].sizes[0], *state.sizes) for state in term.args[-len(names) :]]
        kept = [targets[every] if every and not i else self._memory(shape) for i, shape in enumerate(shapes)]
        yield from self._steps(recurrence, term.args, kept)
        for same in (t for t in self.terms if t.op in names and t.args == term.args):
            buffer = kept[names.index(same.op)]
            last = IndexExpression((), buffer.shape[0] - 1)
            self.stored[same] = _stored(buffer) if same.op == names[0] else _element(_stored(buffer), last)
            if same in targets and same is not every:
                yield self._nest(targets[same], functools.partial(self._value_at, same))

    def _steps(self, recurrence: Recurrence, operands: Sequence[Term], kept: Sequence[Buffer]) -> Iterator[Nest | Steps]:
        """Yield the parts that compute the states of a recurrence for every step. `kept` contains a buffer for each state."""
        sequence, initial = operands[0], operands[-len(kept) :]
        element = variable("x", sequence.sizes[1:])
        states = [variable(name, state.sizes) for name, state in zip(recurrence.states, initial, strict=True)]
        pieces = self._pieces(recurrence, operands[1 : -len(kept)], initial[0].sizes)
        given = {t.name: t for t in (element, *states, *pieces)}
        done: dict[Term, Term] = {}
        after = [expanded(root, done) for root in recurrence.after(given)]
        if any(root.is_variable for root in after) or len({*after}) < len(after):
            raise UnsupportedError(f"a new state of {recurrence.every} is a copy of an operand or of another state")
        free = {t for t in subterms(*after) if not t.is_variable and not {*states} & {*variables(t)}}
        inner = [a for t in subterms(*after) if t not in free for a in t.args if a in free]
        whole = _Scheduling({}, self.panel, self.weights, self.scratch, pieces)
        stored: dict[Term, Source] = {}
        for term in dict.fromkeys(inner):
            target = self._memory((kept[0].shape[0], *term.sizes))

            def definition(position: Sequence[IndexExpression], term: Term = term) -> Value:
                return whole.value(term, position[1:], {element: _element(self._source(sequence), position[0])})

            yield self._nest(target, definition)
            stored[term] = _stored(target)
        before = [self._source(state) for state in initial]
        loop = LoopIndex("step", kept[0].shape[0] - 1)
        for now in (IndexExpression(), index(loop) + 1):
            at_step = {term: _element(source, now) for term, source in stored.items()}
            at_step |= {element: _element(self._source(sequence), now), **dict(zip(states, before, strict=True)), **pieces}
            one = _Scheduling(dict(zip(recurrence.states, after, strict=True)), self.panel, self.weights, self.scratch, at_step)
            own = {root: Buffer("", root.sizes) for root in after}
            nests = [n for part in one.parts(own) for n in part.nests]
            for buffer, root in zip(kept, after, strict=True):
                nests = [_moved(nest, own[root], buffer, now * _size(root)) for nest in nests]
            if now.terms:
                yield Steps(loop, tuple(nests))
            else:
                yield from nests
            if loop.extent == 0:
                return
            before = [_element(_stored(buffer), index(loop)) for buffer in kept]

    def _pieces(self, recurrence: Recurrence, operands: Sequence[Term], state: tuple[int, ...]) -> dict[Term, Source]:
        """Return a mapping from variables of the step to tensors.

        Each variable stands for a part of the recurrence's weights or biases.
        """
        found: dict[Term, Source] = {}
        for names, operand in zip(recurrence.parts.values(), operands, strict=True):
            for place, name in enumerate(names):
                shape = (operand.sizes[0], state[-1]) if operand.rank > 1 else state
                found[variable(name, shape)] = _columns(self._source(operand), place * state[-1], shape)
        return found

    def _source(self, term: Term) -> Source:
        return lambda tracing: self._tensor(term, tracing, {})

    def _needs_memory(self, term: Term) -> bool:
        users = self.users.get(term, [])
        value = self._value_at(term, tuple(map(index, _axes(term))))
        if any(v.is_reduction for v in value.within()):
            return not (len(users) == 1 and self._is_read_in_rows(term, users[0]) and not self._reduces(users[0]))
        cost = cost_of(value)
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

    def _nest(self, target: Buffer, definition: Definition) -> Nest:
        """Return the nest that computes the elements of the buffer by this definition.

        The loops of the nest are chosen so that offsets have few quotients: neighbouring axes may share a loop, and a loop may
        be split.
        """
        extents = [n for n in target.shape if n > 1]
        best = _traced(target, definition, extents)
        for place in range(len(extents) - 1, 0, -1):
            merged = [*extents[: place - 1], extents[place - 1] * extents[place], *extents[place + 1 :]]
            nest = _traced(target, definition, merged)
            if len(_quotients(nest)) <= len(_quotients(best)):
                extents, best = merged, nest
        while split := _split(target, definition, best):
            best = split
        return self._packed(target, definition, best) or best

    def _packed(self, target: Buffer, definition: Definition, nest: Nest) -> Nest | None:
        """Return a nest that reads weight matrices in panels of `panel` columns. If `nest` cannot read panels, return None.

        The loop over the panels is outermost, so that a panel stays in the cache while all rows are multiplied by the panel.
        """
        panel = self.panel
        last = nest.loops[-1] if nest.loops else None
        if last is None or last.extent % panel or last.extent == panel:
            return None
        weights = {buffer: weight for weight, buffer in self.weights.items() if weight.rank == 2}
        matrices: dict[Buffer, Term] = {}
        for reduction in (v for v in nest.value.within() if v.is_reduction):
            reads = [v for v in reduction.within() if v.kind == "read" and v.data[0] in weights]
            own = {v.data[0]: weights[v.data[0]] for v in reads if _is_matrix(v, reduction.data, last, panel)}
            if not own:
                return None
            matrices |= own
        if not matrices:
            return None
        extents = [loop.extent for loop in nest.loops]
        split = _traced(target, definition, [*extents[:-1], last.extent // panel, panel])
        *outer, panels, lanes = split.loops
        value = split.value
        for buffer, weight in matrices.items():
            value = self._in_panels(value, weight, buffer)
        return Nest(target, (panels, *outer, lanes), split.offset, value)

    def _in_panels(self, value: Value, weight: Term, buffer: Buffer) -> Value:
        """Replace reads of the weight matrix in `buffer` by reads of the matrix's panels, and return the resulting value."""
        (rows, columns), panel = weight.sizes, self.panel
        packed = apply("transpose", apply("reshape", weight, shape=(rows, columns // panel, panel)), perm=(-2, -3, -1))
        panels = self.weights.setdefault(packed, Buffer(f"{buffer.name}p", packed.sizes))

        def position(offset: IndexExpression) -> IndexExpression:
            return panels.at([offset % columns // panel, offset // columns, offset % panel])

        return reread(value, buffer, panels, position)

    def _value_at(self, term: Term, position: Sequence[IndexExpression]) -> Value:
        return self.value(term, position, {})

    def value(self, term: Term, position: Sequence[IndexExpression], sources: Mapping[Term, Source]) -> Value:
        """Return the element of the term at this position. `sources` contains additional tensors from which terms are read."""
        tracing = Tracing()
        with notation.interpreted(tracing):
            value: Value = self._tensor(term, tracing, {t: source(tracing) for t, source in sources.items()})[tuple(position)]
        return value

    def _tensor(self, term: Term, tracing: Tracing, known: dict[Term, notation.Tensor]) -> notation.Tensor:
        """Return the term's tensor. The elements of terms with memory are read, and all other elements are computed."""
        if term not in known:
            if term in self.stored:
                known[term] = self.stored[term](tracing)
            else:
                operands = [self._tensor(a, tracing, known) for a in term.args]
                made = _function(term, operands[0]) if term.op in FUNCTIONS else interpret(term, operands)
                known[term] = notation.Tensor(made.shape, functools.cache(made.at))
        return known[term]


def _stored(buffer: Buffer) -> Source:
    return lambda tracing: tracing.stored(buffer)


def _element(source: Source, position: IndexExpression) -> Source:
    """Return an element of a sequence: the tensor at this position of the first axis."""

    def found(tracing: Tracing) -> notation.Tensor:
        whole = source(tracing)
        return notation.Tensor(whole.shape[1:], lambda *rest: whole[(position, *rest)])

    return found


def _columns(source: Source, start: int, shape: tuple[int, ...]) -> Source:
    """Return the columns of a matrix from the column `start` on.

    For a vector, return a matrix in which each row contains the elements of the vector from `start` on.
    """

    def found(tracing: Tracing) -> notation.Tensor:
        whole = source(tracing)
        return notation.Tensor(shape, lambda row, column: whole[(row, column + start)[-len(whole.shape) :]])

    return found


def _moved(nest: Nest, old: Buffer, new: Buffer, start: IndexExpression) -> Nest:
    """Replace the buffer `old` in the nest by a part of the buffer `new`, and return the result.

    The part begins at the offset `start`.
    """
    moved = replace(nest, value=reread(nest.value, old, new, lambda offset: offset + start))
    return replace(moved, target=new, offset=nest.offset + start) if nest.target is old else moved


def _traced(target: Buffer, definition: Definition, extents: Sequence[int]) -> Nest:
    """Return the nest that computes the elements of `target` in loops of these extents."""
    loops = tuple(LoopIndex(f"o{i}", n) for i, n in enumerate(extents))
    flat = Buffer("", tuple(extents)).at(tuple(map(index, loops)))
    return Nest(target, loops, flat, definition(_position(flat, target.shape)))


def _split(target: Buffer, definition: Definition, nest: Nest) -> Nest | None:
    """Return a nest in which one loop is split, so that there are fewer quotients.

    If no split reduces the number of quotients, return None.
    """
    for quotient in sorted(_quotients(nest), key=lambda q: q.key):
        for place, loop in enumerate(nest.loops):
            if loop in quotient.loops() and loop.extent % quotient.by == 0 and quotient.by < loop.extent:
                extents = [each.extent for each in nest.loops]
                extents[place : place + 1] = [loop.extent // quotient.by, quotient.by]
                found = _traced(target, definition, extents)
                if len(_quotients(found)) < len(_quotients(nest)):
                    return found
    return None


def _reading_of(term: Term) -> _Reading:
    """Return how the operator of the term reads its operands. A recurrence reads each operand in each step."""
    if term.op in recurrent_operators():
        return _Reading(_size(term) * term.args[0].sizes[0], reduces=True, in_rows=(False,) * len(term.args))
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
    """Return whether neighbouring indices of the loop give neighbouring offsets, except at indices where a quotient changes."""
    return dict(offset.terms).get(last) == 1 or offset.step(last) == 1


def _reduced_count(value: Value) -> int:
    """Return the largest number of iterations of nested reductions in the value."""
    counts: dict[int, int] = {}
    for one in value.within():
        inner = max((counts[id(a)] for a in one.args), default=1)
        counts[id(one)] = inner * one.data.extent if one.is_reduction else inner
    return counts[id(value)]


def cost_of(value: Value) -> float:
    """Return the cost of an element, in additions. A value that occurs several times counts once."""
    times = {id(value): 1}
    total = 0.0
    for one in reversed([*value.within()]):
        inside = times[id(one)] * (one.data.extent if one.is_reduction else 1)
        for a in one.args:
            times[id(a)] = max(times.get(id(a), 0), inside)
        total += inside * (KERNELS.default_function_cost if one.kind in COSTLY else 1.0 if one.args else 0.0)
    return total


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


def _is_matrix(read: Value, rows: LoopIndex, columns: LoopIndex, panel: int) -> bool:
    """Return whether a value reads a matrix at the row `rows` and the column `columns`.

    Columns are counted from the start of a panel.
    """
    buffer, offset = read.data
    start = offset - index(rows) * buffer.shape[1] - index(columns)
    return rows.extent > 1 and not start.terms and start.constant % panel == 0


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
