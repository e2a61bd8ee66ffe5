"""Numbers with units, names and choices, as options of commands give them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """A span of time in seconds: a number with an optional unit (ms, s, m, min, h)."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span of time such as 90, 60s or 2m")
    return float(match[1]) * UNITS[match[2]]


def positive(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def factor(text: str) -> float:
    """A number, at least 1."""
    return _from(1, text)


def share(text: str) -> float:
    """A number, at least 0."""
    return _from(0, text)


def _from(least: int, text: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text) is None or float(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} on")
    return float(text)


def extents(text: str) -> tuple[str, tuple[int, ...]]:
    """The name of a dimension and the sizes that it has, as `batch=1,8`."""
    name, equals, listed = text.partition("=")
    if not (name.strip() and equals and listed):
        raise argparse.ArgumentTypeError(f"{text!r} does not give sizes to a dimension, as batch=1,8 does")
    return name.strip(), tuple(positive(n.strip()) for n in listed.split(","))


def choices(*words: str) -> Callable[[str], tuple[str, ...]]:
    """What reads some of these words, separated by commas, in the order in which the words are given here."""

    def chosen(text: str) -> tuple[str, ...]:
        listed = {word.strip() for word in text.split(",")}
        if not listed <= {*words}:
            raise argparse.ArgumentTypeError(f"{text!r} is not {' or '.join((*words, ','.join(words)))}")
        return tuple(word for word in words if word in listed)

    return chosen
