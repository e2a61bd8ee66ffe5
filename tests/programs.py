"""Random programs of polynomial operators, and random mutants of the programs, as inputs for tests of `judge`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from superopt.algebra.operators import apply, replace_subterms
from superopt.algebra.terms import Attribute, Term, subterms, variable, variables
from superopt.errors import ShapeError

LARGEST = 1200
TRIES = 40


class Programs:
    """Random programs over fixed shapes and random mutants, all drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = 0

    def program(self, depth: int) -> Term:
        """Return a term of about `depth` operators, each with a result of at most `LARGEST` elements."""
        rank = self.rng.choice((2, 3, 4, 4, 4))
        term = self.fresh(tuple(self.rng.randint(1, 7) for _ in range(rank)))
        for _ in range(TRIES * depth):
            if sum(not t.is_variable for t in subterms(term)) >= depth:
                break
            term = self.grown(term) or term
        return term

    def fresh(self, shape: tuple[int, ...]) -> Term:
        """Return a new variable."""
        self.names += 1
        return variable(f"v{self.names}", shape)

    def grown(self, x: Term) -> Term | None:
        """Return a random operator applied to x, or None if the drawn operator is not defined or its result is too large."""
        choices: list[Callable[[Term], Term]] = [self.moved, self.combined, self.scaled]
        choices += [self.windowed] * 3 if x.rank == 4 else [self.along] * 2 if x.rank == 3 else [self.multiplied]
        try:
            found = self.rng.choice(choices)(x)
        except ShapeError:
            return None
        return found if all(math.prod(t.sizes) <= LARGEST for t in subterms(found)) else None

    def moved(self, x: Term) -> Term:
        """Return x after a random operator that moves, repeats, drops or sums elements, or adds zeros."""
        draw, axis = self.rng.randint, self.rng.randrange(-x.rank, 0) if x.rank else -1
        n = x.sizes[axis] if x.rank else 1
        start = draw(0, n - 1)
        moves: list[Callable[[], Term]] = [
            lambda: apply("slice", x, axis=axis, start=start, stop=draw(start + 1, n)),
            lambda: apply("stride", x, axis=axis, step=draw(1, 3)),
            lambda: apply("repeat", x, axis=axis, times=draw(1, 3)),
            lambda: apply("tile", x, axis=axis, times=draw(1, 3)),
            lambda: apply("reverse", x, axis=axis),
            lambda: apply("pad", x, before=self.amounts(x.rank), after=self.amounts(x.rank)),
            lambda: apply("transpose", x, perm=tuple(self.rng.sample(range(-x.rank, 0), x.rank))),
            lambda: apply("reshape", x, shape=self.reshaped(x.sizes)),
            lambda: apply("lower_triangle", x, offset=draw(-2, 2)),
            lambda: apply("upper_triangle", x, offset=draw(-2, 2)),
            lambda: apply("cumsum", x, axis=axis, exclusive=draw(0, 1), reverse=draw(0, 1)),
            lambda: apply("upsample", x, rows=draw(1, 2), columns=draw(1, 3)),
            lambda: apply("depth_to_space", x, block=2),
            lambda: apply("pixel_shuffle", x, block=2),
            lambda: apply("space_to_depth", x, block=2),
            lambda: apply("reduce_sum" if draw(0, 1) else "reduce_mean", x, axes=(axis,)),
            lambda: self.expanded(x),
        ]
        return self.rng.choice(moves)()

    def combined(self, x: Term) -> Term:
        """Return x combined with a term of the same shape: a new variable, x itself, or x reversed."""
        turned = apply("reverse", x, axis=self.rng.randrange(-x.rank, 0)) if x.rank else x
        other = self.rng.choice((self.fresh(x.sizes), turned, x))
        if self.rng.random() < 0.3 and x.rank:
            return apply("concat", *self.rng.sample((x, other), 2), axis=self.rng.randrange(-x.rank, 0))
        return apply(self.rng.choice(("add", "sub", "mul")), x, other)

    def scaled(self, x: Term) -> Term:
        return apply("scale", x, factor=self.rng.choice((2, -1, 0.5, 3, 0.1)))

    def windowed(self, x: Term) -> Term:
        """Return a random convolution or average pool of an image."""
        name = self.rng.choice(("conv", "conv", "conv_transpose", "avg_pool"))
        draw = self.rng.randint
        strides, pads = (draw(1, 2), draw(1, 3)), tuple(draw(0, 2) for _ in range(4))
        kernel = (draw(1, 3), draw(1, 4))
        if name == "avg_pool":
            return apply(name, x, kernel=kernel, strides=strides, pads=pads, include_pads=draw(0, 1))
        channels = x.sizes[1]
        group = self.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
        outer, inner = draw(1, 2) * (group if name == "conv" else 1), channels // group
        shape = (outer, inner, *kernel) if name == "conv" else (channels, outer, *kernel)
        window = {"strides": strides, "pads": pads, "dilations": (draw(1, 2), draw(1, 2))}
        return apply(name, x, self.fresh(shape), group=group, **window)

    def along(self, x: Term) -> Term:
        """Return a random convolution or average pool of a sequence, or a matrix product."""
        draw = self.rng.randint
        match draw(0, 3):
            case 0:
                return self.multiplied(x)
            case 1:
                return apply("avg_pool1d", x, kernel=3, stride=draw(1, 2), before=draw(0, 2), after=draw(0, 2), include_pads=0)
            case 2:
                kernel = self.fresh((x.sizes[1], draw(1, 3), draw(1, 3)))
                return apply("conv_transpose1d", x, kernel, stride=draw(1, 3), before=draw(0, 1), dilation=draw(1, 2))
            case _:
                kernel = self.fresh((draw(1, 3), x.sizes[1], draw(1, 3)))
                window = {"stride": draw(1, 2), "before": draw(0, 2), "after": draw(0, 2), "dilation": draw(1, 2)}
                return apply("conv1d", x, kernel, **window)

    def multiplied(self, x: Term) -> Term:
        """Return the matrix product of x and a new matrix, or of x and its transpose."""
        if self.rng.random() < 0.3:
            return apply("matmul", x, apply("transpose", x, perm=(*range(-x.rank, -2), -1, -2)))
        return apply("matmul", x, self.fresh((x.sizes[-1], self.rng.randint(1, 6))))

    def expanded(self, x: Term) -> Term:
        place = self.rng.randint(0, x.rank)
        shape = (*x.sizes[:place], self.rng.randint(1, 3), *x.sizes[place:])
        axes = tuple(a - len(shape) for a in range(len(shape)) if a != place)
        return apply("expand", x, shape=shape, axes=axes)

    def amounts(self, rank: int) -> tuple[int, ...]:
        return tuple(self.rng.choice((0, 0, 1, 2)) for _ in range(rank))

    def reshaped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a random shape with the same number of elements."""
        factors = [p for n in shape for p in _factors(n)]
        self.rng.shuffle(factors)
        found = [1] * self.rng.randint(1, 4)
        for factor in factors:
            found[self.rng.randrange(len(found))] *= factor
        return tuple(found)

    def mutant(self, program: Term) -> Term:
        """Return the program with a random subterm changed, or the program itself if no change fits.

        The result has the shape and at most the variables of the program.
        """
        for _ in range(TRIES):
            place = self.rng.choice(subterms(program))
            try:
                found = replace_subterms(program, {place: self.changed(place, program)})
            except ShapeError:
                continue
            if found.shape == program.shape and found is not program and set(variables(found)) <= set(variables(program)):
                return found
        return program

    def changed(self, x: Term, program: Term) -> Term:
        """Return a random change of x with the same shape. Many changes equal x at some positions."""
        if x.attributes and not x.is_variable and self.rng.random() < 0.5:
            return apply(x.op, *x.args, **{name: self.nudged(value) for name, value in x.attributes})
        axis = self.rng.randrange(-x.rank, 0) if x.rank else -1
        n = x.sizes[axis] if x.rank else 1
        cut = self.rng.randint(1, max(n - 1, 1))
        alike = [t for t in subterms(program) if t.shape == x.shape]
        changes: list[Callable[[], Term]] = [
            lambda: self._parted(x, axis, cut),
            lambda: self._bordered(x, axis, self.rng.randint(0, 1), self.rng.randint(0, 1)),
            lambda: apply("reverse", x, axis=axis),
            lambda: apply("lower_triangle", x, offset=self.rng.randint(-1, 3)),
            lambda: apply("upper_triangle", x, offset=self.rng.randint(-1, 2)),
            lambda: self.rng.choice(alike),
            lambda: apply("add", x, self._corner(self.rng.choice(alike))),
            lambda: apply(
                "reshape", apply("transpose", x, perm=tuple(self.rng.sample(range(-x.rank, 0), x.rank))), shape=x.shape
            ),
            lambda: apply("concat", self._slice(x, axis, cut, n), self._slice(x, axis, 0, cut), axis=axis),
            lambda: apply("scale", x, factor=2**32 + 1),
            lambda: apply(x.op, *reversed(x.args), **dict(x.attributes)) if x.args else x,
            lambda: apply("repeat", apply("stride", x, axis=axis, step=2), axis=axis, times=2),
        ]
        return self.rng.choice(changes)()

    def nudged(self, value: Attribute) -> Attribute:
        if isinstance(value, tuple):
            return tuple(self.nudged(v) for v in value)  # type: ignore[misc]
        return value + self.rng.choice((-1, 1)) if isinstance(value, int) and self.rng.random() < 0.3 else value

    def _slice(self, x: Term, axis: int, start: int, stop: int) -> Term:
        return apply("slice", x, axis=axis, start=start, stop=stop)

    def _parted(self, x: Term, axis: int, cut: int) -> Term:
        """Return x computed in two parts along an axis, where each part reads only its own part of the first operand."""
        if x.is_variable or x.args[0].rank != x.rank or x.args[0].sizes[axis] != x.sizes[axis]:
            raise ShapeError("nothing to part")
        n = x.sizes[axis]
        parts = [self._slice(x.args[0], axis, start, stop) for start, stop in ((0, cut), (cut, n))]
        first, second = (apply(x.op, part, *x.args[1:], **dict(x.attributes)) for part in parts)
        return apply("concat", first, second, axis=axis)

    def _bordered(self, x: Term, axis: int, first: int, last: int) -> Term:
        """Return x with zeros at the ends of an axis."""
        kept = self._slice(x, axis, first, x.sizes[axis] - last)
        around = {"before": first, "after": last}
        return apply("pad", kept, **{k: tuple(v if a == axis else 0 for a in range(-x.rank, 0)) for k, v in around.items()})

    def _corner(self, x: Term) -> Term:
        """Return x at the last position of every axis, and zeros elsewhere."""
        kept = x
        for axis, n in zip(range(-x.rank, 0), x.sizes, strict=True):
            kept = self._slice(kept, axis, n - 1, n)
        return apply("pad", kept, before=tuple(n - 1 for n in x.sizes), after=(0,) * x.rank)


def _factors(number: int) -> list[int]:
    """Return the prime factors of the number, with repetitions."""
    for p in range(2, number + 1):
        if number % p == 0:
            return [p, *_factors(number // p)]
    return []
