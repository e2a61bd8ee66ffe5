"""Names of dimensions, and placeholders for missing names."""

from __future__ import annotations

import re

_UNNAMED = re.compile(r"\??|-1|None|unk__.*|.*\[\d+\]")
"""A pattern for placeholders that exporters write, and for names that look like keys of unnamed dimensions, such as x[0]."""


def is_unnamed(name: str) -> bool:
    """Return whether a dimension with this name counts as unnamed. Such a name is a placeholder that exporters write."""
    return _UNNAMED.fullmatch(name) is not None
