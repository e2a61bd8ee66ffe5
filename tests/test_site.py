"""The documentation site: its navigation, its links, its generated pages, and the build without warnings."""

from __future__ import annotations

import argparse
import html
import importlib.util
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import superopt
from superopt.cli.arguments import parser

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
ANSWERS = (
    "accuracy.md",
    "budget.md",
    "ci.md",
    "contributing.md#add-a-rewrite-that-the-search-cannot-find",
    "contributing.md#add-an-operator",
    "export.md",
    "faq.md",
    "nothing-found.md",
    "start.md",
    "tools.md",
    "undo.md",
)
"""The pages that answer the questions of users."""


def load_hooks() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
    """A YAML loader that reads values with a tag of MkDocs as None."""


Loader.add_multi_constructor("!", lambda *_: None)
Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)


def navigation(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        values = entry.values() if isinstance(entry, dict) else [entry]
        for value in values:
            yield from navigation(value) if isinstance(value, list) else [value]


def test_the_navigation_has_every_page_once() -> None:
    listed = [*navigation(yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"])]
    pages = [path.name for path in PAGES[1:]]
    assert sorted(listed) == sorted([*pages, *load_hooks().generated_pages()])


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(path: Path) -> list[str]:
    return [link for link in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists() or name in load_hooks().generated_pages(), link
        assert not anchor or anchor in anchors(target), link


def test_every_answer_is_at_most_two_clicks_from_the_readme() -> None:
    first = {link.removeprefix("docs/") for link in links(ROOT / "README.md") if link.startswith("docs/")}
    second = {link for name in first for link in links(ROOT / "docs" / name.partition("#")[0])}
    assert {*ANSWERS} <= first | second


def options(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for name, nested in action.choices.items():
                yield name
                yield from options(nested)


def test_the_reference_names_every_command_and_option() -> None:
    page = load_hooks().cli_reference()
    assert not [option for option in options(parser()) if option not in page]


def test_the_reference_names_every_public_name() -> None:
    page = load_hooks().python_reference()
    assert {f"superopt.{name}" for name in superopt.__all__ if name != "__version__"} == {
        *re.findall(r"^::: (.+)$", page, re.MULTILINE)
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "[a](b.md), [c](https://d/e), benchmarks and [f](overview.md#g)"),
        ("https://h/i", "[a](b.md), [c](https://d/e), [benchmarks](https://h/i/blob/main/benchmarks) and [f](overview.md#g)"),
    ],
)
def test_links_to_the_repository_need_its_address(url: str, expected: str) -> None:
    page = "[a](b.md), [c](https://d/e), [benchmarks](../benchmarks) and [f](../README.md#g)"
    assert load_hooks().relinked(page, url) == expected


def unrendered(page: str) -> list[str]:
    """Return the lines of a built page in which Markdown is left."""
    article = re.search(r"<article.*?</article>", page, re.DOTALL)
    assert article is not None
    text = re.sub(r"<pre.*?</pre>|<code.*?</code>|<h\d.*?</h\d>", "", article[0], flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.findall(r"^.*(?:\| ?-{3}|```|\]\(|^ *\d\. |^ *- |^::: ).*$", text, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (the extra `docs`)")
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "WARNING" not in finished.stderr
    for path in tmp_path.rglob("*.html"):
        if path.name != "404.html":
            assert not unrendered(path.read_text(encoding="utf-8")), path.name
