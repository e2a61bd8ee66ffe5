"""The code blocks of the README and of docs/: the blocks that tests run, and the reasons why other blocks are not run.

A page marks a block that no test runs by a comment on the line above the block: `<!-- not run: REASON -->`. Commands that
take minutes or need a GPU are not run either. `reason_not_run` states the reason. The tests parse the arguments of such
commands.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTRIBUTING = "docs/contributing.md"
"""The page whose commands tests/test_contributing.py runs."""
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>.+?) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
PRINTED = ("", "mermaid")
"""The languages of blocks that are not run: output, notation and drawings."""
SCRIPTS = {
    "ablation": "takes minutes",
    "bench": "takes hours",
    "bench_wild": "takes hours, and needs the models of scripts/wild",
    "check_cache": "takes minutes",
    "check_flags": "takes minutes",
    "check_judge": "takes minutes",
    "check_kills": "takes minutes, and needs strace",
    "check_memory": "takes minutes, and needs gigabytes",
    "check_nodes": "takes minutes",
    "check_positions": "takes minutes",
    "check_predictions": "takes minutes",
    "check_rules": "takes minutes",
    "check_signals": "takes minutes",
    "check_wheel": "takes minutes, and installs packages",
    "compare_revisions": "takes minutes for each model",
    "docs": "needs the extra `docs`; tests/test_site.py builds the site",
    "flag_rules": "takes minutes",
    "fuzz": "takes minutes",
    "fuzz_loader": "takes minutes",
    "fuzz_models": "takes minutes",
    "fuzz_shapes": "takes minutes",
    "fuzz_values": "takes minutes",
    "mutants": "takes hours",
    "mutations": "takes minutes",
    "regenerate": "takes hours",
    "search_mutants": "takes minutes",
    "spellings": "takes minutes",
    "tamper": "takes minutes",
    "test": "runs these tests",
    "wild": "downloads packages",
    "with_policy": "takes minutes",
    "zoo": "needs PyTorch",
}
"""The scripts that no test runs in the form shown on a page, and the reasons."""


@dataclass(frozen=True)
class Snippet:
    """One command of a console block, or one block in another language.

    Attributes:
        page: The file, relative to the checkout.
        line: The line number.
        language: "console", "python", or the word after the fence.
        text: The command without the prompt, or the text of the block.
        reason: The reason on the page why the snippet is not run, or an empty text.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str

    @property
    def words(self) -> list[str]:
        """The words of the command. `scripts/superopt` counts as `superopt`."""
        program, *arguments = shlex.split(self.text, comments=True)
        return ["superopt" if program == "scripts/superopt" else program, *arguments]

    @property
    def not_run(self) -> str:
        """The reason why tests/test_snippets.py does not run the snippet, or an empty text."""
        return self.reason or (reason_not_run(self.words) if self.language == "console" else "")


def snippets(page: str) -> Iterator[Snippet]:
    """Yield the snippets of a page in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("text")) + 1
        found = block["language"], block["text"], block["reason"] or ""
        if found[0] == "console":
            for command in re.finditer(r"^ *\$ ((?:.*\\\n)*.*)$", found[1], re.MULTILINE):
                before = found[1].count("\n", 0, command.start())
                yield Snippet(page, line + before, "console", command[1].replace("\\\n", " "), found[2])
        else:
            yield Snippet(page, line, *found)


def reason_not_run(words: list[str]) -> str:
    """Return the reason why the command is not run, or an empty text."""
    program, *arguments = words
    if program.startswith("scripts/"):
        return SCRIPTS.get(program.removeprefix("scripts/"), "")
    if arguments[0] == "replay":
        return "needs a certificate with a rewrite; tests/test_retrained.py runs it"
    if {"cuda", "tensorrt"} & {*arguments} or "--cuda-graph" in arguments:
        return "needs a GPU"
    if arguments[0] == "generate" or (arguments[0] == "prove" and "--operator" not in arguments):
        return "takes minutes"
    if "tests/foreign/taso.rules" in arguments or (arguments[:2] == ["rules", "derive"] and "--axioms" in arguments):
        return "takes minutes"
    if any(argument.startswith("wild/") for argument in arguments):
        return "needs the models of scripts/wild"
    return ""


def all_snippets() -> list[Snippet]:
    """Return the snippets of all pages that a reader can run."""
    return [snippet for page in PAGES for snippet in snippets(page) if snippet.language not in PRINTED]


def summary() -> str:
    """Return a table with the numbers of snippets that are run and not run, and the reasons."""
    found = all_snippets()
    elsewhere = [snippet for snippet in found if snippet.page == CONTRIBUTING]
    here = [snippet for snippet in found if snippet.page != CONTRIBUTING]
    run = Counter(snippet.language for snippet in here if not snippet.not_run)
    reasons = Counter(snippet.not_run for snippet in here if snippet.not_run)
    rows = [
        (len(found), f"snippets on {len({snippet.page for snippet in found})} pages"),
        *((number, f"run by tests/test_snippets.py: {language}") for language, number in sorted(run.items())),
        (len(elsewhere), f"of {CONTRIBUTING}, for tests/test_contributing.py"),
        *((number, f"not run: {reason}") for reason, number in sorted(reasons.items(), key=lambda row: (-row[1], row[0]))),
    ]
    return "\n".join(f"{number:4} {text}" for number, text in rows)
