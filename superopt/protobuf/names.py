"""Names of dimensions, placeholders for missing names, and the keys of dynamic dimensions in mappings of sizes."""

from __future__ import annotations

import re

_UNNAMED = re.compile(r"\??|-1|None|unk__.*|.*\[\d+\]")
"""A pattern for placeholders that exporters write, and for names that look like keys of unnamed dimensions, such as x[0]."""


def is_unnamed(name: str) -> bool:
    """Return whether a dimension with this name counts as unnamed.

    A dimension counts as unnamed if its name is a placeholder that exporters write, or looks like the key of an unnamed
    dimension, such as `x[0]`.
    """
    return _UNNAMED.fullmatch(name) is not None


def dimension_key(port: str, axis: int, name: str) -> str:
    """Return the name of an input's dynamic dimension. If the name is a placeholder, return a key such as `x[0]` instead.

    The key consists of the input and the axis. The result identifies the dimension in mappings of sizes.
    """
    return f"{port}[{axis}]" if is_unnamed(name) else name
