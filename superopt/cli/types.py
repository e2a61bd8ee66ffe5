"""Parse the values of command-line options: numbers, numbers with units, sizes and choices."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

from superopt.budget import duration_seconds
from superopt.policy import PROCESS


def time_span(text: str) -> float:
    """Parse a duration, such as `90`, `60s` or `2m`, and return the duration in seconds."""
    try:
        return duration_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def positive_integer(text: str) -> int:
    """Parse a whole number of at least 1."""
    return _whole(text, 1, PROCESS.max_integer)


def seed(text: str) -> int:
    """Parse a random seed: a whole number of at least 0."""
    return _whole(text, 0, PROCESS.max_integer)


def threads(text: str) -> int:
    """Parse a number of threads or processes: a whole number of at least 1."""
    return _whole(text, 1, PROCESS.max_threads)


def _whole(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or (len(text.lstrip("0")) <= len(str(most)) and int(text) < least):
        raise argparse.ArgumentTypeError(f"{quote_option_value(text)} is not an integer of at least {least}")
    if len(text.lstrip("0")) > len(str(most)) or int(text) > most:
        raise argparse.ArgumentTypeError(f"{quote_option_value(text)} is more than {most}")
    return int(text)


def quote_option_value(text: str) -> str:
    """Return the text in quotation marks. A text of more than 40 characters is shortened."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def factor(text: str) -> float:
    """Parse a decimal number of at least 1."""
    return _from(1, text)


def share(text: str) -> float:
    """Parse a decimal number of at least 0."""
    return _from(0, text)


def _from(least: int, text: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text) is None or not least <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{quote_option_value(text)} is not a number of at least {least}")
    return float(text)


def extents(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse the name of a dynamic dimension and its sizes. The text `batch=1,8` gives `("batch", (1, 8))`."""
    name, equals, listed = text.partition("=")
    if not (name.strip() and equals and listed):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=N,N, such as batch=1,8")
    return name.strip(), tuple(positive_integer(n.strip()) for n in listed.split(","))


def name_and_value(text: str) -> tuple[str, str]:
    """Parse the name and the value of a fixed input. The text `sr=16000` gives `("sr", "16000")`."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise argparse.ArgumentTypeError(f"{quote_option_value(text)} is not of the form NAME=VALUE, such as sr=16000")
    return name.strip(), value.strip()


def choice_list(*words: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser for a comma-separated list of words. Each word of the list must be one of `words`.

    The parser returns the listed words in the order of `words`.
    """

    def chosen(text: str) -> tuple[str, ...]:
        listed = {word.strip() for word in text.split(",")}
        if not listed <= {*words}:
            raise argparse.ArgumentTypeError(f"{text!r} is not {' or '.join((*words, ','.join(words)))}")
        return tuple(word for word in words if word in listed)

    return chosen
