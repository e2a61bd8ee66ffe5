"""The files for continuous integration: workflows, the action, the hook of pre-commit and the Dockerfile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
ACTION = ROOT / ".github" / "actions" / "optimize"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_step_of_a_workflow_runs_something_that_exists(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            for script in re.findall(r"\bscripts/\w+", step.get("run", "")):
                assert os.access(ROOT / script, os.X_OK)


def test_the_release_is_attested_and_published_by_trusted_publishing() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    used = [step["uses"].partition("@")[0] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert {"actions/attest-build-provenance", "pypa/gh-action-pypi-publish"} <= {*used}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"


def test_the_action_passes_its_inputs_to_the_script_by_variables() -> None:
    action = read(ACTION / "action.yml")
    step = action["runs"]["steps"][-1]
    passed = " ".join(step["env"].values())
    assert all(f"inputs.{name} " in passed for name in action["inputs"])
    assert not [s for s in action["runs"]["steps"] if "${{" in s.get("run", "")]
    script = (ACTION / "run").read_text(encoding="utf-8")
    assert all(f"${{{name}:-" in script for name in {*step["env"]} - {"GH_TOKEN"})


def test_the_page_describes_every_input_of_the_action() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for name, given in read(ACTION / "action.yml")["inputs"].items():
        assert name == "token" or f"| `{name}` |" in page
        assert name in ("token", "models", "options") or f"| `{name}` | `{given['default']}` |" in page


def test_the_hook_runs_a_script_that_exists() -> None:
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    assert os.access(ROOT / hook["entry"].split()[0], os.X_OK)
    assert re.search(hook["files"], "models/a.onnx")
    assert f"id: {hook['id']}" in (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_the_image_has_an_extra_that_exists_and_what_the_build_needs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (extra,) = re.findall(r"^ARG EXTRA=(\w+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {extra, "cuda"} <= {*extras}
    context = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert all((ROOT / name).exists() for name in context)


def run_action(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's script in the folder, with a program `gh` that appends its arguments and the comment to a file."""
    tools = folder / "tools"
    tools.mkdir()
    gh = tools / "gh"
    gh.write_text(f'#!/usr/bin/env bash\necho "$@" >>"{folder}/gh"\ncat "${{@: -1}}" >>"{folder}/gh"\n', encoding="utf-8")
    gh.chmod(0o755)
    (tools / "python").symlink_to(sys.executable)
    environment = {
        **os.environ,
        **inputs,
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    return subprocess.run([ACTION / "run"], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@localhost", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_the_action_optimizes_the_changed_models_and_comments_the_table(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "first")
    base = git(tmp_path, "rev-parse", "HEAD")
    shutil.copy(ROOT / "examples" / "branches.onnx", tmp_path / "a b.onnx")
    git(tmp_path, "add", "a b.onnx")
    git(tmp_path, "commit", "--quiet", "--message", "second")
    finished = run_action(tmp_path, BASE=base, BUDGET="0.5s", PULL_REQUEST="7", OUTPUT="out")
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "out" / "a b.onnx").is_file()
    assert "| `a b.onnx` | " in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "gh").read_text(encoding="utf-8").startswith("pr comment 7 --edit-last --body-file ")


@pytest.mark.slow
def test_the_action_fails_after_all_models_if_one_cannot_be_optimized(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    finished = run_action(tmp_path, MODELS="bad.onnx\nabsent.onnx\n", BUDGET="0.5s", COMMENT="false")
    assert finished.returncode == 1
    table = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert table.count("superopt: ") == 2
    assert not (tmp_path / "gh").exists()
