"""The content of the time cache as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from superopt.report.number_texts import date
from superopt.runtime.cache import CacheContent


def cache_lines(content: CacheContent) -> Iterator[str]:
    """Yield lines that describe the file, and a line for each kind of entry."""
    total = sum(content.counts.values())
    yield f"{content.path}: {total} entries, {content.bytes / 1e6:.1f} MB"
    if content.first is not None and content.last is not None:
        yield f"stored from {date(content.first)} to {date(content.last)}"
    for kind, count in content.counts.items():
        yield f"{count:>8} {kind}"
