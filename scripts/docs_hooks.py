"""Hooks of MkDocs (mkdocs.yml), which generate pages and adapt links that lead out of docs/.

The pages `overview.md` (the README), `reference/cli.md` and `reference/python.md` exist only in the site. If the environment
variable SUPEROPT_URL has the address of the repository, links to files outside docs/ become links to the repository.
Otherwise, these links become plain text.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import superopt
from superopt.cli.arguments import parser

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
USAGE_WIDTH = 100


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for name, text in generated_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the Markdown of a page in the form that Python-Markdown needs, with links that work in the site."""
    return indented(relinked(markdown, os.environ.get("SUPEROPT_URL", "")) if page.file.generated_by is None else markdown)


def generated_pages() -> dict[str, str]:
    """Return the text of each page that exists only in the site."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("# superopt\n", "# Overview\n", 1)
    url = os.environ.get("SUPEROPT_URL", "")
    return {
        "overview.md": repository_links(LINK.sub(_within_docs, readme), url),
        "reference/cli.md": cli_reference(),
        "reference/python.md": python_reference(),
    }


def _within_docs(link: re.Match[str]) -> str:
    return f"[{link[1]}]({link[2].removeprefix('docs/')})" if link[2].startswith("docs/") else link[0]


def relinked(markdown: str, url: str) -> str:
    """Return a page of docs/ with its links to the README and to other files of the repository adapted to the site."""
    readme = re.sub(r"\]\(\.\./README\.md(#[^)]*)?\)", lambda link: f"](overview.md{link[1] or ''})", markdown)
    return repository_links(readme, url)


def repository_links(markdown: str, url: str) -> str:
    """Replace links to files outside docs/ by links to the repository at `url`, or by their text if `url` is empty."""

    def replaced(link: re.Match[str]) -> str:
        path = link[2].partition("#")[0].removeprefix("../")
        image = link.string[: link.start()].endswith("!")
        if "://" in link[2] or not path or path.endswith(".md") or image:
            return link[0]
        return f"[{link[1]}]({url.rstrip('/')}/blob/main/{path})" if url else link[1]

    return LINK.sub(replaced, markdown)


def indented(markdown: str) -> str:
    """Return the Markdown in the form that Python-Markdown needs, which is stricter than GitHub's.

    Paragraphs of numbered lists are indented by four spaces instead of three. A blank line comes before each numbered item, and
    before the first bullet of a list.
    """
    lines: list[str] = []
    bullets: set[str] = set()
    fenced = False
    for line in markdown.split("\n"):
        fenced ^= line.startswith("```")
        item = None if fenced else re.match(r"( *)(- |\d\. )", line)
        if item is not None and lines and lines[-1].strip() and (item[2] != "- " or item[1] not in bullets):
            lines.append("")
        bullets = {*bullets, item[1]} if item is not None else bullets if line.strip() else set()
        lines.append(f" {line}" if not fenced and re.match(r" {3}\S", line) else line)
    return "\n".join(lines)


# ---------------------------------------------------------------- reference


def python_reference() -> str:
    """Return the page with the documentation of each public name of the package."""
    names = [name for name in superopt.__all__ if not name.startswith("__")]
    functions = sorted(name for name in names if name.islower())
    classes = sorted(name for name in names if not name.islower())
    entries = "\n".join(f"::: superopt.{name}\n" for name in [*functions, *classes])
    return f"# Python reference\n\nThe package `superopt` has these public names.\n\n{entries}"


def cli_reference() -> str:
    """Return the page with the usage, the arguments and the options of each command."""
    return "# Command line\n\n" + "\n".join(_command(parser(), 2))


def _command(command: argparse.ArgumentParser, level: int) -> Iterator[str]:
    command.formatter_class = functools.partial(argparse.HelpFormatter, width=USAGE_WIDTH)
    yield f"{'#' * level} {command.prog}\n"
    if command.description:
        yield f"{command.description}\n"
    yield f"```\n{command.format_usage().strip()}\n```\n"
    rows = [_row(command, action) for action in command._actions if action.help != argparse.SUPPRESS]
    yield "\n".join(["| argument | meaning |", "| --- | --- |", *filter(None, rows)]) + "\n"
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for nested in dict.fromkeys(action.choices.values()):
                yield from _command(nested, min(level + 1, 4))


def _row(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return ""
    formatter = command._get_formatter()
    invocation = formatter._format_action_invocation(action)
    text = formatter._expand_help(action) if action.help else ""
    cells = (cell.replace("|", "\\|") for cell in (f"`{invocation}`", text))
    return f"| {' | '.join(cells)} |"
