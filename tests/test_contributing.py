"""The commands of the contributor's guide: each command is run here, or is a script that runs the tests."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from superopt.algebra.operators import substitutions_folder
from superopt.cli.main import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"^ *\$ (.+)$", PAGE, re.MULTILINE)]
OF_SUPEROPT = [command[1:] for command in COMMANDS if command[0] == "superopt"]
RUN_THE_TESTS = ("scripts/test", "scripts/check")


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(c, marks=[pytest.mark.long] if c[0] == "generate" else [], id=" ".join(c)) for c in OF_SUPEROPT],
)
def test_a_command_of_superopt_succeeds(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if arguments[0] == "generate":
        shutil.copytree(substitutions_folder(), tmp_path / "rules")
        arguments = [*arguments, "--output", str(tmp_path / "rules"), "--resume", str(tmp_path / "tasks")]
    assert main(arguments) == 0
    assert capsys.readouterr().out


def test_the_tables_are_up_to_date() -> None:
    assert ["scripts/readme_tables", "--check"] in COMMANDS
    finished = subprocess.run([sys.executable, ROOT / "scripts" / "readme_tables", "--check"], cwd=ROOT, check=False)
    assert finished.returncode == 0


def test_every_other_command_runs_a_script_or_a_test_that_exists() -> None:
    others = [command for command in COMMANDS if command[0] != "superopt"]
    assert others
    for command in others:
        program, *arguments = command
        if program.startswith("scripts/"):
            assert os.access(ROOT / program, os.X_OK)
        else:
            assert program == ".venv/bin/python"
            assert all((ROOT / argument).exists() for argument in arguments if argument.startswith("tests/"))


def test_only_the_scripts_that_run_the_tests_are_not_run() -> None:
    assert {c[0] for c in COMMANDS if c[0].startswith("scripts/")} == {*RUN_THE_TESTS, "scripts/readme_tables"}
