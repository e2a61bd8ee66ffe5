"""C code with explicit vectors for loop nests.

A nest is vectorized along the innermost axis of its result, or along a reduction with contiguous operands. A product is
computed in tiles of several rows and several vectors. The sums of a tile stay in registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType

from superopt.kernels.affine import LoopIndex
from superopt.kernels.loops import LOOKUPS, Buffer, Nest, Steps, Value
from superopt.kernels.schedule import KernelProgram, cost_of
from superopt.policy import KERNELS

PRIME = 2**31 - 1
"""The modulus of the field over which kernels are tested. `prelude.h` has the same number."""


@dataclass(frozen=True)
class Target:
    """The vectors of a processor: the number of float32 lanes of a vector, and the number of vector registers."""

    lanes: int
    registers: int

    @property
    def panel(self) -> int:
        """The number of columns of a panel of weights. A tile of a product has at most this number of columns."""
        return self.lanes * (4 if self.registers >= 32 else 2)


def functions_of(program: KernelProgram, name: str, target: Target, shared_work: float = KERNELS.min_shared_work) -> str:
    """Return the C code of the function `name(in, out, scratch, workers)`, and of its helper functions.

    The function runs the program's nests. `in` contains pointers to the inputs and then to the weights, and `out` contains
    pointers to the outputs. `scratch` points to memory for `program.scratch_size` elements. No two of these memory areas may
    overlap. The workers share a nest if its work, in additions, is at least twice `shared_work`. Each worker takes several
    iterations at a time, with a total work of about `shared_work`.
    """
    code = _Code(target)
    pointers = _pointers(program)
    calls: dict[Nest, str] = {}
    for nest in program.parts:
        share = _share(nest, target, shared_work) if isinstance(nest, Nest) else None
        if isinstance(nest, Nest) and share is not None:
            function = f"{name}_{len(calls)}"
            code.line(f"static void {function}({ARGUMENTS}, long begin, long end) {{")
            with code.indented():
                _emit_nest(code, nest, pointers, share.loop)
            code.line("}")
            calls[nest] = f"workers->share(workers, {function}, in, out, scratch, {share.loop.extent}, {share.each});"
    code.line(f"static void {name}({ARGUMENTS}, Workers *workers) {{")
    with code.indented():
        for part in program.parts:
            if part in calls:
                code.line(calls[part])
                continue
            with _loops(code, [part.loop] if isinstance(part, Steps) else []):
                for nest in part.nests:
                    _emit_nest(code, nest, pointers)
    code.line("}")
    return "\n".join(code.lines) + "\n"


ARGUMENTS = "const number *const *in, number *const *out, number *scratch"


def _pointers(program: KernelProgram) -> dict[Buffer, str]:
    """Return the C declarations of pointers to the buffers."""
    found: dict[Buffer, str] = {}
    for i, buffer in enumerate((*program.inputs.values(), *program.weights.values())):
        element = f"int{buffer.bits}_t" if buffer.bits else "number"
        found[buffer] = f"const {element} *restrict {buffer.name} = (const void *)in[{i}];"
    for i, buffer in enumerate(program.outputs.values()):
        found[buffer] = f"number *restrict {buffer.name} = out[{i}];"
    for buffer, offset in program.scratch_offsets.items():
        found[buffer] = f"number *restrict {buffer.name} = scratch + {offset};"
    return found


@dataclass(frozen=True)
class _Share:
    """A loop that is divided among threads, and the number of iterations that a thread takes at once."""

    loop: LoopIndex
    each: int


def _share(nest: Nest, target: Target, least: float) -> _Share | None:
    """Return how threads share the nest. If the nest's work, in additions, is less than twice `least`, return None."""
    reductions = _reductions(nest.value)
    lanes = _lanes(nest, reductions, target)
    if lanes is not None and lanes in nest.loops:
        tiles = _Tiles.of(nest, reductions, lanes, target)
        loops = [(loop, 1) for loop in tiles.outer]
        loops += [(tiles.row, tiles.rows)] if tiles.row is not None else []
        loops += [(lanes, tiles.vectors * target.lanes)]
    else:
        loops = [(loop, 1) for loop in nest.loops]
    loop, step = next(((loop, step) for loop, step in loops if loop.extent > step), (None, 1))
    if loop is None:
        return None
    work = nest.target.size * (1 + cost_of(nest.value)) * (1 if lanes is not None else target.lanes)
    each = step * math.ceil(least / (work / loop.extent) / step)
    return _Share(loop, each) if loop.extent >= 2 * each else None


@dataclass
class _Code:
    target: Target
    lines: list[str] = field(default_factory=list)
    invariants: dict[int, str] = field(default_factory=dict)
    depth: int = 0
    count: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}_"

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{")
        with self.indented():
            yield
        self.line("}")


@dataclass(frozen=True)
class _Combination:
    """How a reduction combines values.

    Attributes:
        function: The name of the C function that combines two values, without the suffix `_v` (vectors) or `_s` (numbers).
        start: The C text of the initial value.
        across: The C function that combines the lanes of a vector.
    """

    function: str
    start: str
    across: str


COMBINATIONS = {"sum": _Combination("add", "0", "sum_of"), "max": _Combination("larger", "LOWEST", "max_of")}
"""A mapping from each kind of reduction to the way in which the reduction combines values."""


@dataclass(frozen=True)
class _Scope:
    """The place in the code where a value is computed.

    Attributes:
        names: The C texts of loop indices. A loop index that `names` does not contain is written as its name.
        lanes: For a vector, the loop whose next `count` indices are the lanes. For a scalar, None.
        count: The number of lanes that are used. The remaining lanes of the vector have no meaning.
        known: The C texts of the values that the code has already computed, by the ids of the values.
    """

    names: Mapping[LoopIndex, str]
    lanes: LoopIndex | None
    count: int
    known: dict[int, str]

    def inside(self, names: Mapping[LoopIndex, str] = MappingProxyType({})) -> _Scope:
        """Return a scope within this scope, with additional texts of loop indices."""
        return replace(self, names={**self.names, **names}, known=dict(self.known))

    def scalar(self, lane: str) -> _Scope:
        """Return the scope of a single lane."""
        assert self.lanes is not None
        names = {**self.names, self.lanes: f"({self.names.get(self.lanes, self.lanes.name)} + {lane})"}
        return _Scope(names, None, 1, {})


def is_vectorized(nest: Nest, target: Target) -> bool:
    """Return whether the code of the nest uses vectors."""
    return _lanes(nest, _reductions(nest.value), target) is not None


def _emit_nest(code: _Code, nest: Nest, pointers: Mapping[Buffer, str], shared: LoopIndex | None = None) -> None:
    """Emit the nest. If `shared` is given, the code runs only the iterations of this loop from `begin` to `end`.

    The block of a nest declares the pointers that the nest uses, because buffers of different nests may share memory.
    """
    reductions = _reductions(nest.value)
    lanes = _lanes(nest, reductions, code.target)
    with code.block(""):
        for buffer in dict.fromkeys((*nest.reads, nest.target)):
            code.line(pointers[buffer])
        _emit_invariants(code, nest.value)
        if lanes is not None and lanes in nest.loops:
            _emit_tiles(code, nest, reductions, lanes, shared)
        else:
            _emit_elements(code, nest, reductions, lanes, shared)


def _emit_invariants(code: _Code, value: Value) -> None:
    """Emit values that depend on no loop, such as square roots of constants, so that no loop computes these values again."""
    code.invariants.clear()
    fixed = [v for v in value.within() if v.args and not v.loops and not any(a.is_reduction for a in v.within())]
    for one in fixed:
        code.invariants[id(one)] = _scalar(code, one, _Scope({}, None, 1, {}))


def _reductions(value: Value) -> list[Value]:
    """Return the reductions in the value that are not inside another reduction."""
    found: list[Value] = []
    seen: set[int] = set()
    stack = [value]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one.is_reduction:
            found.append(one)
        else:
            stack += reversed(one.args)
    return found


def _flat(reduction: Value) -> tuple[list[LoopIndex], Value]:
    """Return the loops of a reduction, the outermost loop first, and the value that these loops reduce.

    If the body of a reduction is a reduction of the same kind, both loops are returned.
    """
    loops, body = [reduction.data], reduction.args[0]
    while body.kind == reduction.kind:
        loops.append(body.data)
        body = body.args[0]
    return loops, body


def _alike(reductions: Sequence[Value], most: int) -> Iterator[Sequence[Value]]:
    """Yield groups of at most `most` reductions.

    All reductions of a group have loops of equal extents, so one loop can compute the group.
    """
    groups: dict[tuple[int, ...], list[Value]] = {}
    for reduction in reductions:
        groups.setdefault(tuple(loop.extent for loop in _flat(reduction)[0]), []).append(reduction)
    for group in groups.values():
        step = max(1, most)
        yield from (group[i : i + step] for i in range(0, len(group), step))


def _lanes(nest: Nest, reductions: Sequence[Value], target: Target) -> LoopIndex | None:
    """Return the loop whose indices become the lanes of vectors, or None."""
    last = nest.loops[-1] if nest.loops and nest.loops[-1].extent > 1 else None
    if last is not None and nest.offset.step(last) != 1:
        last = None
    if not reductions:
        return last if last is not None and last.extent >= target.lanes // 2 else None
    bodies = [_flat(r) for r in reductions]
    if last is not None and all(_is_direct(body, last) for _, body in bodies) and any(last in b.loops for _, b in bodies):
        return last
    inner = bodies[0][0][-1]
    if len(bodies) == 1 and inner.extent >= target.lanes // 2 and _is_direct(bodies[0][1], inner):
        return inner
    return None


def _is_direct(value: Value, loop: LoopIndex) -> bool:
    """Return whether the value contains no reduction, and no vector along the loop is gathered from separate elements."""
    for v in value.within():
        if v.kind == "read" and (v.data[1].step(loop) not in (0, 1) or (v.data[0].bits and loop in v.loops)):
            return False
        if (v.kind in ("select", "index") and loop in v.data.loops()) or (v.kind in LOOKUPS and loop in v.args[0].loops):
            return False
        if v.is_reduction:
            return False
    return True


@contextmanager
def _loops(code: _Code, loops: Sequence[LoopIndex], shared: LoopIndex | None = None) -> Iterator[None]:
    """Open plain loops around the code that follows. Loops of one iteration are left out."""
    with ExitStack() as stack:
        for loop in loops:
            if loop.extent > 1:
                begin, end = ("begin", "end") if loop is shared else ("0", str(loop.extent))
                stack.enter_context(code.block(_head(loop, begin, end, 1)))
        yield


def _head(loop: LoopIndex, begin: object, end: object, step: int) -> str:
    return f"for (long {loop.name} = {begin}; {loop.name} < {end}; {loop.name} += {step})"


def _span_head(loop: LoopIndex, begin: int, end: int, step: int, *, whole: bool, shared: bool) -> str:
    """Return the head of a loop.

    If `whole` is True, the loop runs over the whole tiles. Otherwise, the loop runs over the remaining positions. In a shared
    loop, the last thread computes the remaining positions.
    """
    if not shared:
        return _head(loop, begin, end, step)
    if whole:
        return _head(loop, "begin", f"(end < {end} ? end : {end})", step)
    return _head(loop, f"(end < {loop.extent} ? {end} : {begin})", end, step)


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a nest.

    Attributes:
        outer: The loops around the tiles.
        row: The loop over the rows of a tile, or None if a tile has one row.
        rows: The number of rows of a tile.
        vectors: The number of vectors of a row.
        turned: Values whose neighbouring elements in memory belong to neighbouring rows. A tile of these values is read in the
            order of memory, and is then transposed in registers.
    """

    outer: tuple[LoopIndex, ...]
    row: LoopIndex | None
    rows: int
    vectors: int
    turned: tuple[Value, ...] = ()

    @classmethod
    def of(cls, nest: Nest, reductions: Sequence[Value], lanes: LoopIndex, target: Target) -> _Tiles:
        outer = [loop for loop in nest.loops if loop is not lanes]
        for other in () if reductions else reversed(outer):
            turned = tuple(v for v in _always_computed(nest.value) if _is_turned(v, other, lanes, target.lanes))
            if turned:
                return cls(tuple(loop for loop in outer if loop is not other), other, target.lanes, 1, turned)
        row = _row_loop(outer, reductions, lanes)
        vectors = min(target.panel // target.lanes, max(1, lanes.extent // target.lanes)) if reductions else 1
        rows = _divisor(row.extent, (target.registers - vectors - 2) // vectors) if row is not None else 1
        return cls(tuple(loop for loop in outer if loop is not row), row, rows, vectors)


def _emit_tiles(code: _Code, nest: Nest, reductions: Sequence[Value], lanes: LoopIndex, shared: LoopIndex | None) -> None:
    """Emit a nest whose lanes are positions along the innermost axis of the result."""
    w = code.target.lanes
    tiles = _Tiles.of(nest, reductions, lanes, code.target)
    row = tiles.row
    with _loops(code, tiles.outer, shared):
        for start, end, height in (
            _parts(row.extent, tiles.rows, overlap=bool(tiles.turned)) if row is not None else [(0, 1, 1)]
        ):
            head = "" if row is None else _span_head(row, start, end, height, whole=not start, shared=row is shared)
            with code.block(head):
                for begin, finish, width, count in _columns(lanes.extent, tiles.vectors, w):
                    whole = begin == 0 and finish == lanes.extent // (width * w) * (width * w)
                    with code.block(_span_head(lanes, begin, finish, width * w, whole=whole, shared=lanes is shared)):
                        if row is not None and tiles.turned:
                            _emit_turned_tile(code, nest, lanes, row, tiles.turned)
                        else:
                            _emit_tile(code, nest, reductions, _Tile(lanes, row, height, width, count))


def _row_loop(outer: Sequence[LoopIndex], reductions: Sequence[Value], lanes: LoopIndex) -> LoopIndex | None:
    """Return a loop whose iterations can share reads of vectors, so that several iterations form a tile."""
    for loop in reversed(outer):
        if loop.extent > 1 and len(reductions) == 1:
            reads = [v.data[1].loops() for v in reductions[0].within() if v.kind == "read"]
            if any(lanes in r and loop not in r for r in reads) and any(loop in r for r in reads):
                return loop
    return None


def _divisor(extent: int, most: int) -> int:
    """Return the number of rows of a tile: the largest divisor of the extent that is at most `most`.

    If this divisor is less than half of `most`, return `most` or the extent, whichever is smaller.
    """
    most = max(1, min(extent, most))
    best = max(n for n in range(1, most + 1) if extent % n == 0)
    return best if 2 * best > most else most


def _parts(extent: int, step: int, *, overlap: bool) -> Iterator[tuple[int, int, int]]:
    """Yield a loop over the whole tiles, and a loop over the remaining positions.

    Each loop is a tuple of its first index, end and step. If `overlap` is True, the second loop runs over one whole tile that
    overlaps the tile before it.
    """
    whole = extent // step * step
    if whole:
        yield 0, whole, step
    if extent > whole:
        yield (extent - step, extent, step) if overlap else (whole, extent, extent - whole)


def _columns(extent: int, vectors: int, w: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield loops over tiles.

    Each loop is a tuple of its start, its end, the number of vectors of a tile, and the number of used lanes. The first loop
    runs over tiles of `vectors` vectors, and the second loop runs over one last, narrower tile. The last tile may overlap the
    tile before it, so that the last tile contains only whole vectors.
    """
    if extent < w:
        yield 0, 1, 1, extent
        return
    whole = extent // (vectors * w) * (vectors * w)
    if whole:
        yield 0, whole, vectors, w
    if extent > whole:
        rest = -(-(extent - whole) // w)
        yield extent - rest * w, extent, rest, w


def _always_computed(value: Value) -> Iterator[Value]:
    """Yield the parts of the value that every iteration computes. Branches of choices and rows of tables are left out."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        one = stack.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            if one.kind not in ("select", *LOOKUPS):
                stack += one.args


def _is_turned(value: Value, row: LoopIndex, lanes: LoopIndex, w: int) -> bool:
    """Return whether neighbouring indices of `row` read neighbouring elements, and neighbouring indices of `lanes` do not."""
    if value.kind != "read" or value.data[0].bits or min(row.extent, lanes.extent) < w:
        return False
    return value.data[1].step(row) == 1 and value.data[1].step(lanes) not in (None, 0, 1)


def _emit_turned_tile(code: _Code, nest: Nest, lanes: LoopIndex, row: LoopIndex, turned: Sequence[Value]) -> None:
    """Emit a tile of whole vectors.

    The tiles of the values in `turned` are read in the order of memory, and are then transposed.
    """
    w = code.target.lanes
    known = {}
    for value in turned:
        name = code.name("t")
        buffer, offset = value.data
        code.line(f"V {name}[W];")
        with code.block(f"for (long l = 0; l < {w}; l += 1)"):
            code.line(f"{name}[l] = load({buffer.name} + {offset.text({lanes: f'({lanes.name} + l)'})});")
        code.line(f"transpose({name});")
        known[id(value)] = f"{name}[r]"
    with code.block(f"for (long r = 0; r < {w}; r += 1)"):
        scope = _Scope({row: f"({row.name} + r)"}, lanes, w, known)
        element = _vector(code, nest.value, scope)
        code.line(f"store({nest.target.name} + {nest.offset.text(scope.names)}, {element});")


@dataclass(frozen=True)
class _Tile:
    """A tile of a nest.

    Attributes:
        lanes: The loop over the lanes of vectors.
        row: The loop over the rows, or None if the tile has one row.
        rows: The number of rows.
        vectors: The number of vectors of a row.
        count: The number of lanes that are used.
    """

    lanes: LoopIndex
    row: LoopIndex | None
    rows: int
    vectors: int
    count: int

    def scopes(self, w: int) -> dict[tuple[int, int], _Scope]:
        """Return the scope of each vector of `w` lanes, by its row and its place in the row."""
        found = {}
        for r, c in itertools.product(range(self.rows), range(self.vectors)):
            names = {self.lanes: f"({self.lanes.name} + {c * w})" if c else self.lanes.name}
            if self.row is not None:
                names[self.row] = f"({self.row.name} + {r})" if r else self.row.name
            found[r, c] = _Scope(names, self.lanes, self.count, {})
        return found


def _emit_tile(code: _Code, nest: Nest, reductions: Sequence[Value], tile: _Tile) -> None:
    scopes = tile.scopes(code.target.lanes)
    places = [*scopes]
    for group in _alike(reductions, (code.target.registers - 4) // len(places)):
        sums = {(id(reduction), place): code.name("s") for reduction in group for place in places}
        for reduction in group:
            start = COMBINATIONS[reduction.kind].start
            code.line("V " + ", ".join(f"{sums[id(reduction), place]} = splat({start})" for place in places) + ";")
        loops, _ = _flat(group[0])
        with _loops(code, loops):
            shared: dict[object, str] = {}
            for reduction in group:
                own, body = _flat(reduction)
                same = {mine: loop.name for mine, loop in zip(own, loops, strict=True)}
                for place in places:
                    name = sums[id(reduction), place]
                    code.line(f"{name} = {_combined(code, reduction.kind, name, body, scopes[place].inside(same), shared)};")
        for reduction in group:
            for place in places:
                scopes[place].known[id(reduction)] = sums[id(reduction), place]
    for place in places:
        value = _vector(code, nest.value, scopes[place])
        to = f"{nest.target.name} + {nest.offset.text(scopes[place].names)}"
        whole = tile.count == code.target.lanes
        code.line(f"store({to}, {value});" if whole else f"store_some({to}, {value}, {tile.count});")


def _emit_elements(
    code: _Code, nest: Nest, reductions: Sequence[Value], lanes: LoopIndex | None, shared: LoopIndex | None
) -> None:
    """Emit a nest that computes one element at a time.

    If the nest uses vectors, their lanes are positions along a reduction.
    """
    w = code.target.lanes
    with _loops(code, nest.loops, shared):
        scope = _Scope({}, None, 1, {})
        for reduction in reductions:
            loops, body = _flat(reduction)
            if lanes is None:
                total = _scalar(code, reduction, scope)
            else:
                combination, total = COMBINATIONS[reduction.kind], code.name("s")
                parts = [code.name("v") for _ in range(4 if lanes.extent >= 8 * w else 1)]
                code.line("V " + ", ".join(f"{part} = splat({combination.start})" for part in parts) + ";")
                with _loops(code, loops[:-1]):
                    whole = lanes.extent // (w * len(parts)) * (w * len(parts))
                    spans = [(0, whole, len(parts), w), (whole, lanes.extent // w * w, 1, w)]
                    spans.append((lanes.extent // w * w, lanes.extent, 1, lanes.extent % w))
                    for begin, end, several, lane_count in spans:
                        if begin == end:
                            continue
                        with code.block(_head(lanes, begin, end, several * w)):
                            for i, part in enumerate(parts[:several]):
                                name = f"({lanes.name} + {i * w})" if i else lanes.name
                                inside = _Scope({lanes: name}, lanes, lane_count, {})
                                if lane_count == w:
                                    code.line(f"{part} = {_combined(code, reduction.kind, part, body, inside)};")
                                else:
                                    kept = f"first({lane_count}, {_vector(code, body, inside)}, {combination.start})"
                                    code.line(f"{part} = {combination.function}_v({part}, {kept});")
                for part in parts[1:]:
                    code.line(f"{parts[0]} = {combination.function}_v({parts[0]}, {part});")
                code.line(f"number {total} = {combination.across}({parts[0]});")
            scope.known[id(reduction)] = total
        code.line(f"{nest.target.name}[{nest.offset.text({})}] = {_scalar(code, nest.value, scope)};")


def _vector(code: _Code, value: Value, scope: _Scope, shared: dict[object, str] | None = None) -> str:
    """Emit code for the value in all lanes, and return the C text of the vector.

    `shared` maps each address to the vector that the code has already read from this address in this iteration of the tile.
    """
    if id(value) in scope.known:
        return scope.known[id(value)]
    if scope.lanes not in value.loops and not any(v.is_reduction for v in value.within()):
        return f"splat({_scalar(code, value, _Scope(scope.names, None, 1, {}), shared)})"
    lanes, w = scope.lanes, code.target.lanes
    assert lanes is not None
    if value.kind == "read" and value.data[1].step(lanes) == 1 and not value.data[0].bits:
        buffer, offset = value.data
        at = f"{buffer.name} + {offset.text(scope.names)}"
        key = ("vector", at)
        if shared is not None and key in shared:
            return shared[key]
        text = f"load({at})" if scope.count == w else f"load_some({at}, {scope.count})"
        name = _named(code, "V", text)
        if shared is not None:
            shared[key] = name
            code.line(f"KEEP({name});")
    elif value.kind == "select" and lanes not in value.data.loops():
        name = code.name("v")
        code.line(f"V {name};")
        _emit_branches(code, value, scope, name, _vector)
    elif value.kind in LOOKUPS and lanes not in value.args[0].loops:
        name = code.name("v")
        code.line(f"V {name} = {{0}};")
        alone = _Scope(scope.names, None, 1, {})
        with _looked_up(code, value, alone):
            code.line(f"{name} = {_vector(code, value.args[1], scope.inside())};")
    elif value.kind in ("read", "select", "index", *LOOKUPS):
        name = code.name("v")
        code.line(f"V {name} = {{0}};")
        with code.block(f"for (int l = 0; l < {scope.count}; l++)"):
            code.line(f"{name}[l] = {_scalar(code, value, scope.scalar('l'))};")
    else:
        name = _named(code, "V", _called(value, [_vector(code, a, scope, shared) for a in value.args], "v"))
    scope.known[id(value)] = name
    return name


def _combined(code: _Code, kind: str, so_far: str, value: Value, scope: _Scope, shared: dict[object, str] | None = None) -> str:
    """Emit code for the value in all lanes, and return the C text of the sum or maximum of `so_far` and the value.

    A product is added to the sum by a fused multiply-add, which rounds once.
    """
    if kind == "sum" and value.kind == "mul" and id(value) not in scope.known and scope.lanes in value.loops:
        factors = [_vector(code, a, scope, shared) for a in value.args]
        return f"plus_product_v({so_far}, {', '.join(factors)})"
    return f"{COMBINATIONS[kind].function}_v({so_far}, {_vector(code, value, scope, shared)})"


def _emit_branches(code: _Code, value: Value, scope: _Scope, name: str, emit: Callable[[_Code, Value, _Scope], str]) -> None:
    """Emit the two branches of a choice. Each branch assigns its value to the variable `name`."""
    for head, branch in ((f"if ({value.data.text(scope.names)})", value.args[0]), ("else", value.args[1])):
        with code.block(head):
            code.line(f"{name} = {emit(code, branch, scope.inside())};")


@contextmanager
def _looked_up(code: _Code, value: Value, scope: _Scope) -> Iterator[None]:
    """Emit the index of a lookup, and open a block that runs if the index is in range."""
    wanted, name = _scalar(code, value.args[0], scope), value.data.name
    with code.block(""):
        function = "place" if value.kind == "lookup" else "wrapped"
        code.line(f"const long {name} = {function}({wanted}, {value.data.extent});")
        with code.block(f"if ({name} >= 0)"):
            yield


def _scalar(code: _Code, value: Value, scope: _Scope, shared: dict[object, str] | None = None) -> str:
    """Emit code for the value, and return the C text of the number."""
    if id(value) in scope.known:
        return scope.known[id(value)]
    if id(value) in code.invariants:
        return code.invariants[id(value)]
    if value.kind == "number":
        return _number(value.data)
    if value.kind == "index":
        return f"INDEX({value.data.text(scope.names)})"
    if value.kind == "read":
        buffer, offset = value.data
        element = f"{buffer.name}[{offset.text(scope.names)}]"
        return f"INDEX({element})" if buffer.bits else element
    if value.kind == "select":
        name = code.name("n")
        code.line(f"number {name};")
        _emit_branches(code, value, scope, name, _scalar)
    elif value.kind in LOOKUPS:
        name = code.name("n")
        code.line(f"number {name} = 0;")
        with _looked_up(code, value, scope):
            code.line(f"{name} = {_scalar(code, value.args[1], scope.inside())};")
    elif value.is_reduction:
        loops, body = _flat(value)
        combination, name = COMBINATIONS[value.kind], code.name("s")
        code.line(f"number {name} = {combination.start};")
        with _loops(code, loops):
            inner = _scalar(code, body, scope.inside())
            code.line(f"{name} = {combination.function}_s({name}, {inner});")
    else:
        name = _named(code, "number", _called(value, [_scalar(code, a, scope, shared) for a in value.args], "s"))
    scope.known[id(value)] = name
    return name


def _called(value: Value, args: Sequence[str], form: str) -> str:
    """Return the C text of a call of the function `value.kind` with these arguments. `form` is `v` for vectors, and `s` for
    numbers.
    """
    divisor = [_divisor_text(value.data)] if value.kind == "divided" else []
    texts = [*args, *(f"splat({text})" if form == "v" else text for text in divisor)]
    return f"{value.kind}_{form}({', '.join(texts)})"


def _named(code: _Code, kind: str, text: str) -> str:
    name = code.name("v" if kind == "V" else "n")
    code.line(f"{kind} {name} = {text};")
    return name


def _number(value: float | Fraction) -> str:
    if math.isnan(value):
        return "NUMBER(NAN, 7)"
    if math.isinf(value):
        return "LOWEST" if value < 0 else "NUMBER(INFINITY, 5)"
    return f"NUMBER({float(value)!r}f, {_residue(Fraction(value))})"


def _divisor_text(reciprocal: Fraction) -> str:
    """Return the C text of the number whose reciprocal is `reciprocal`.

    For tests over the prime field, the text also contains the residue of the reciprocal.
    """
    return f"NUMBER({float(1 / reciprocal)!r}f, {_residue(reciprocal)})"


def _residue(number: Fraction) -> int:
    return number.numerator * pow(number.denominator, -1, PRIME) % PRIME
