"""The AXIOMS text of elementwise operators.

In each function, `parameters` are the names of the operator's attributes. These names must differ from the variable names in
the axioms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def pointwise(name: str, *parameters: str, fixes_zero: bool = False) -> str:
    """Return axioms for an elementwise function f of one operand: f commutes with moves of elements, as in `f(reshape(x)) ==
    reshape(f(x))`.

    If `fixes_zero` is True, f maps 0 to 0, and f also commutes with padding.
    """
    f = _function(name, parameters)

    along = "x[1, 2, 3, 4], k[-1, -2, -3, -4]"
    padded = f"""
    pad:           {f("pad(x, before=p, after=q)")} == pad({f("x")}, before=p, after=q)
                   for x[1, 2, 3, 4], p[1, 2, 3, 4], q[1, 2, 3, 4]
"""
    return f"""
    concat:        {f("concat(x, y, axis=k)")} == concat({f("x")}, {f("y")}, axis=k)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice:         {f("slice(x, axis=k, start=a, stop=b)")} == slice({f("x")}, axis=k, start=a, stop=b)
                   for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    transpose:     {f("transpose(x, perm=(-1, -2))")} == transpose({f("x")}, perm=(-1, -2))  for x[2]
    transpose-3:   {f("transpose(x, perm=(i, j, k))")} == transpose({f("x")}, perm=(i, j, k))
                   for x[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-4:   {f("transpose(x, perm=(-4, i, j, k))")} == transpose({f("x")}, perm=(-4, i, j, k))
                   for x[4], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    expand:        {f("expand(x, shape=s, axes=(k,))")} == expand({f("x")}, shape=s, axes=(k,))
                   for x[1], s[2, 3, 4], k[-1, -2, -3, -4]
    expand-matrix: {f("expand(x, shape=s, axes=(i, j))")} == expand({f("x")}, shape=s, axes=(i, j))
                   for x[2], s[3, 4], i[-2, -3, -4], j[-1, -2, -3]
    expand-3:      {f("expand(x, shape=s, axes=(i, j, k))")} == expand({f("x")}, shape=s, axes=(i, j, k))
                   for x[3], s[4], i[-3, -4], j[-2, -3], k[-1, -2]
    reshape:       {f("reshape(x, shape=s)")} == reshape({f("x")}, shape=s)  for x[1, 2, 3, 4], s[1, 2, 3, 4]
    stride:        {f("stride(x, axis=k, step=s)")} == stride({f("x")}, axis=k, step=s)  for {along}
    reverse:       {f("reverse(x, axis=k)")} == reverse({f("x")}, axis=k)  for {along}
    tile:          {f("tile(x, axis=k, times=m)")} == tile({f("x")}, axis=k, times=m)  for {along}
    repeat:        {f("repeat(x, axis=k, times=m)")} == repeat({f("x")}, axis=k, times=m)  for {along}
{padded if fixes_zero else ""}"""


def pairwise(written: str, *, fixes_zero: bool = True) -> str:
    """Return axioms for an elementwise function of two operands: the function commutes with moves of elements, such as reshape.

    Args:
        written: The name of the function, or a format string for its notation, such as "{} + {}".
        fixes_zero: Whether the function is 0 if both operands are 0. If so, the function also commutes with padding.
    """
    f = written.format if "{}" in written else f"{written}({{}}, {{}})".format

    def moved(move: str, ranks: str) -> str:
        one, other = move.format("x"), move.format("y")
        return f"{move.format(f('x', 'y'))}\n                   == {f(one, other)}\n                   for {ranks}"

    every = "x[1, 2, 3, 4], y[1, 2, 3, 4]"
    turned = "i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]"
    padded = f"""    pad:           {moved("pad({}, before=p, after=q)", f"{every}, p[1, 2, 3, 4], q[1, 2, 3, 4]")}
"""
    return f"""
    concat:        {f("concat(x, y, axis=k)", "concat(z, w, axis=k)")} == concat({f("x", "z")}, {f("y", "w")}, axis=k)
                   for {every}, z[1, 2, 3, 4], w[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice:         {moved("slice({}, axis=k, start=a, stop=b)", f"{every}, k[-1, -2, -3, -4]")}
    transpose:     {moved("transpose({}, perm=(-1, -2))", "x[2], y[2]")}
    transpose-3:   {moved("transpose({}, perm=(i, j, k))", f"x[3], y[3], {turned}")}
    transpose-4:   {moved("transpose({}, perm=(-4, i, j, k))", f"x[4], y[4], {turned}")}
    expand:        {moved("expand({}, shape=s, axes=(k,))", "x[1], y[1], s[2, 3, 4], k[-1, -2, -3, -4]")}
    expand-matrix: {moved("expand({}, shape=s, axes=(i, j))", "x[2], y[2], s[3, 4], i[-2, -3, -4], j[-1, -2, -3]")}
    expand-3:      {moved("expand({}, shape=s, axes=(i, j, k))", "x[3], y[3], s[4], i[-3, -4], j[-2, -3], k[-1, -2]")}
    reshape:       {moved("reshape({}, shape=s)", f"{every}, s[1, 2, 3, 4]")}
    stride:        {moved("stride({}, axis=k, step=s)", f"{every}, k[-1, -2, -3, -4]")}
    reverse:       {moved("reverse({}, axis=k)", f"{every}, k[-1, -2, -3, -4]")}
    tile:          {moved("tile({}, axis=k, times=m)", f"{every}, k[-1, -2, -3, -4]")}
    repeat:        {moved("repeat({}, axis=k, times=m)", f"{every}, k[-1, -2, -3, -4]")}
{padded if fixes_zero else ""}"""


def increasing(name: str, *parameters: str) -> str:
    """Return axioms for an increasing elementwise function: the function commutes with the maximum and the minimum of two
    operands.
    """
    f = _function(name, parameters)
    return f"""
    maximum:       {f("maximum(x, y)")} == maximum({f("x")}, {f("y")})  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    minimum:       {f("minimum(x, y)")} == minimum({f("x")}, {f("y")})  for x[1, 2, 3, 4], y[1, 2, 3, 4]
"""


def pooled(name: str, *parameters: str) -> str:
    """Return axioms for an increasing elementwise function: the function commutes with max_pool and reduce_max."""
    f = _function(name, parameters)
    window = "kernel=k, strides=s, pads=p, dilations=d"
    return f"""
    max-pool:      {f(f"max_pool(x, {window})")} == max_pool({f("x")}, {window})  for x[4], k[2], s[2], p[4], d[2]
    reduce-max:    {f("reduce_max(x, axes=(k,))")} == reduce_max({f("x")}, axes=(k,))  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    reduce-max-2:  {f("reduce_max(x, axes=(-2, -1))")} == reduce_max({f("x")}, axes=(-2, -1))  for x[3, 4]
"""


def _function(name: str, parameters: Sequence[str]) -> Callable[[str], str]:
    """Return a function that maps the text of an operand to the text of the operator's application: `x` to `name(x, p=p)`."""
    return lambda x: f"{name}({', '.join([x, *(f'{p}={p}' for p in parameters)])})"
