"""Names of dimensions in a model: which of them are none."""

from __future__ import annotations

import re

_UNNAMED = re.compile(r"\??|-1|None|unk__.*|.*\[\d+\]")
"""Texts that exporters write where a dimension has no name, and texts that read like the key of such a dimension."""


def is_unnamed(name: str) -> bool:
    """Return whether a dimension with this name counts as unnamed: exporters write placeholders where there is no name."""
    return _UNNAMED.fullmatch(name) is not None
