"""The installed files: the wheel contains specs/ and substitutions/ inside the package, and the package finds them there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hatch_build import CustomMetadataHook, absolute_links

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
REPORT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from superopt.algebra import operators as op
print(json.dumps([op.__file__, str(op.specs_folder()), str(op.substitutions_folder()), list(op.registry())]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of the checkout, and return its path."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_its_data_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"superopt"}
    for folder in ("specs", "substitutions"):
        here = {p.name for p in (ROOT / folder).iterdir() if p.is_file()}
        assert here <= {name.removeprefix(f"superopt/{folder}/") for name in names}
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "superopt/report/html/templates").iterdir()}
    assert templates
    assert templates <= set(names)


def test_an_installed_package_reads_its_own_data(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    finished = subprocess.run([sys.executable, "-I", "-c", REPORT, str(tmp_path)], capture_output=True, text=True, check=True)
    module, specs, substitutions, operators = json.loads(finished.stdout)
    assert Path(module).parents[1] == tmp_path / "superopt"
    assert Path(specs) == tmp_path / "superopt" / "specs"
    assert Path(substitutions) == tmp_path / "superopt" / "substitutions"
    assert operators == sorted(p.stem for p in (ROOT / "specs").glob("*.py"))


def test_the_readme_in_the_wheel_has_no_relative_links(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    description = archive.read(name).decode().partition("\n\n")[2]
    assert description.startswith("# superopt")
    assert not re.findall(r"\]\((?!https?:|#)", description)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "docs/a.md, B (docs/b.md#c), [d](#d) and [e](https://e)"),
        (
            "https://h/i",
            "[docs/a.md](https://h/i/blob/v1/docs/a.md), [B](https://h/i/blob/v1/docs/b.md#c), [d](#d) and [e](https://e)",
        ),
    ],
)
def test_relative_links_become_absolute_or_text(url: str, expected: str) -> None:
    readme = "[docs/a.md](docs/a.md), [B](docs/b.md#c), [d](#d) and [e](https://e)"
    assert absolute_links(readme, url, "v1") == expected


@pytest.mark.parametrize("url", ["", "https://h/i"])
def test_the_package_has_project_urls_if_the_address_is_known(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPEROPT_URL", url)
    metadata: dict[str, Any] = {"version": "1"}
    CustomMetadataHook(str(ROOT), {}).update(metadata)
    assert metadata.get("urls", {}).get("Repository", "") == url


def test_without_a_new_enough_python_the_scripts_say_so(tmp_path: Path) -> None:
    for name in ("superopt", "environment"):
        copied = tmp_path / "scripts" / name
        copied.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, copied)
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    run = ["env", "PYTHON=no-such-python", str(tmp_path / "scripts" / "superopt"), "--version"]
    finished = subprocess.run(run, capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert "Python 3.11 or later is needed" in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr
