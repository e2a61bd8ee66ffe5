"""Render the values of a page as an HTML document, and as an SVG card for posting. Only this module imports jinja2."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from superopt.policy import REPORT
from superopt.report.html.page import PageContent, RewrittenPart, change_text, time_text
from superopt.report.html.sentences import (
    details,
    headline,
    interval_strip,
    model_display_name,
    next_steps,
    operator_bars,
    safety,
    waterfall,
)

TEMPLATES = Path(__file__).resolve().parent / "templates"
CARD_WIDTH, CARD_HEIGHT = 1080.0, 106.0
"""The width and height, in pixels, of the area on the card for one side of a rewritten part."""
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
"""Control characters, which HTML and SVG documents may not contain."""


def page_html(page: PageContent) -> str:
    """Return the page as one HTML document that needs no other file, no network and no script."""
    return _rendered("page.html.jinja", page)


def card_svg(page: PageContent) -> str:
    """Return one picture of the result as an SVG document: headline, bars, and the largest rewritten part."""
    return _rendered("card.svg.jinja", page)


def framed_html(page: PageContent) -> str:
    """Return the page inside a frame, for a notebook. The styles of the page do not affect the notebook."""
    return f'<iframe title="superopt" style="width:100%;height:40rem;border:0" srcdoc="{escape(page_html(page))}"></iframe>'


def _rendered(template: str, page: PageContent) -> str:
    bars = operator_bars(page.times, seconds=True) if page.times else operator_bars(page.counts, seconds=False)
    text = (
        _environment()
        .get_template(template)
        .render(
            page=page,
            report=page.report,
            name=model_display_name(page.report),
            headline=headline(page.report),
            strip=interval_strip(page.report),
            safety=safety(page),
            steps=next_steps(page),
            bars=bars,
            falls=waterfall(page),
            details=details(page),
            pictured=_pictured(page.parts),
        )
    )
    return HIDDEN.sub("", text).encode("utf-8", "backslashreplace").decode("utf-8")


def _pictured(parts: Sequence[RewrittenPart]) -> RewrittenPart | None:
    """Return the first part with drawings that can be read on the card, or None if no drawings can be read.

    Parts with small savings are left out.
    """
    least = REPORT.min_pictured_saving_share * max((part.saved for part in parts), default=0.0)
    large = (part for part in parts if part.saved >= least)
    return next((part for part in large if card_scale(part) >= REPORT.min_card_scale_share), None)


def card_scale(part: RewrittenPart) -> float:
    """Return the scale at which both drawings of the part fit on the card. If a drawing is missing, return 0."""
    sides = [side.sideways for side in (part.before, part.after)]
    fitting = (min(CARD_WIDTH / d.width, CARD_HEIGHT / d.height) if d is not None else 0.0 for d in sides)
    return min(REPORT.max_card_scale_share, *fitting)


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"code": _with_code, "duration": time_text, "clip": _clip}
    made.globals |= {"change_text": change_text, "card_scale": card_scale}
    return made


def _with_code(text: str) -> Markup:
    """Return the text. Parts of the text between backticks become code."""
    parts = [
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
