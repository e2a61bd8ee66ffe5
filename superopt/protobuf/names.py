"""Tell proper names of dimensions from placeholders."""

from __future__ import annotations

import re

_UNNAMED = re.compile(r"\??|-1|None|unk__.*|.*\[\d+\]")
"""A pattern for the placeholders of exporters, and for texts that look like the key of an unnamed dimension."""


def is_unnamed(name: str) -> bool:
    """Return whether a dimension with this name counts as unnamed. Exporters write placeholders for missing names."""
    return _UNNAMED.fullmatch(name) is not None
