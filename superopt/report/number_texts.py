"""Durations, dates, ratios and counts as short texts. The module imports nothing heavy, so the command line starts fast."""

from __future__ import annotations

from datetime import datetime


def duration(seconds: float) -> str:
    """Return a time as text in min, s, ms, us or ns, with three digits at most. For example, 0.0025 gives `2.5 ms`."""
    number = abs(seconds) / 1e-9
    for unit, more in (("ns", 1000.0), ("us", 1000.0), ("ms", 1000.0), ("s", 1000.0)):
        if float(f"{number:.3g}") < more:
            return f"{'-' if seconds < 0 else ''}{number:.3g} {unit}"
        number /= more
    return f"{seconds / 60:.0f} min"


def date(seconds: float) -> str:
    """Return the local date and time of day, such as `2025-03-09 14:05`. The argument is the time in seconds since 1970."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def ratio(value: float) -> str:
    """Return a ratio as text with three digits at most. For example, 1.643 gives `1.64`."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}"


def percent(share: float) -> str:
    """Return a share as text in percent, with three digits at most. For example, 0.0491 gives `4.91%`."""
    return f"{100 * share:.3g}%"


def counted(count: int, noun: str) -> str:
    """Return a number with a noun, in the plural if needed. For example, `1 rule` or `2,000 rules`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
