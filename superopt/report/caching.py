"""The content of the time cache as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from superopt.runtime.cache import CacheContent


def cache_lines(content: CacheContent) -> Iterator[str]:
    """Yield lines that describe the file, and a line for each kind of entry."""
    total = sum(content.counts.values())
    yield f"{content.path}: {total} entries, {content.bytes / 1e6:.1f} MB"
    if content.first is not None and content.last is not None:
        times = (datetime.fromtimestamp(at).astimezone() for at in (content.first, content.last))
        first, last = (at.strftime("%Y-%m-%d %H:%M") for at in times)
        yield f"stored from {first} to {last}"
    for kind, count in content.counts.items():
        yield f"{count:>8} {kind}"
