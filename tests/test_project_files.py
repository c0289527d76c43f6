"""What is written twice agrees: versions, dependencies, targets and Pythons in files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

import daskprs

HOME = Path(__file__).parents[1]
PROJECT = tomllib.loads(HOME.joinpath("pyproject.toml").read_text())["project"]
WORKFLOWS = sorted(HOME.joinpath(".github/workflows").glob("*.yml"))
CONDA_NAMES = {"msgpack": "msgpack-python"}
"""Packages that conda-forge has under another name."""


def load(path: str) -> Any:
    """Return the value of a YAML file of the project."""
    return yaml.safe_load(HOME.joinpath(path).read_text())


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    """Names, lowest versions, Python and the command."""
    recipe = load("deploy/conda/recipe.yaml")
    needed = {}
    for line in PROJECT["dependencies"]:
        one = Requirement(line)
        needed[CONDA_NAMES.get(one.name.lower(), one.name.lower())] = str(one.specifier)
    given = dict(line.partition(" ")[::2] for line in recipe["requirements"]["run"])
    assert given.pop("__linux") == ""
    assert given.pop("python").startswith(">=")
    assert given == needed
    assert ">=" + recipe["context"]["python_min"] == PROJECT["requires-python"]
    ((name, target),) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {target}"]


def test_each_file_has_the_version_of_the_package() -> None:
    """A release changes all of them."""
    assert load("CITATION.cff")["version"] == daskprs.__version__
    assert load("deploy/conda/recipe.yaml")["context"]["version"] == daskprs.__version__


def test_the_suite_runs_under_each_python_that_is_declared() -> None:
    """And the page on installing names these."""
    prefix = "Programming Language :: Python :: 3."
    declared = [name[-4:] for name in PROJECT["classifiers"] if name.startswith(prefix)]
    suite = load(".github/workflows/test.yml")["jobs"]["suite"]
    assert suite["strategy"]["matrix"]["python"] == declared
    *others, last = declared
    page = HOME.joinpath("docs/install.md").read_text()
    assert f"Python {', '.join(others)} and {last}" in page


def test_workflows_call_targets_that_exist() -> None:
    """Also those of a matrix."""
    makefile = HOME.joinpath("Makefile").read_text()
    exist = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    called = set()
    for path in WORKFLOWS:
        for job in load(str(path))["jobs"].values():
            called.update(job.get("strategy", {}).get("matrix", {}).get("target", ()))
            for step in job["steps"]:
                for words in re.findall(r"\bmake ([^\n]*)", step.get("run", "")):
                    called.update(re.findall(r"(?<!\S)[a-z-]+(?!\S)", words))
    assert {"test", "package", "chaos"} <= called <= exist


def test_some_target_runs_what_the_suite_skips_for_want_of_a_package() -> None:
    """A target names each such file; what `make` itself installs is in the suite."""
    named = (HOME / "Makefile").read_text().split()
    locked = (HOME / "locks/development.txt").read_text()
    for path in sorted(HOME.joinpath("tests").rglob("test_*.py")):
        for name in re.findall(r"importorskip\(\s*\"(\w+)", path.read_text()):
            is_in_suite = re.search(rf"^{name}==", locked, re.MULTILINE)
            assert is_in_suite or str(path.relative_to(HOME)) in named, path
