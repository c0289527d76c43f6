"""Each target of the Makefile runs from a fresh clone, here in its shortest form."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENVIRONMENT = Path(sys.prefix)
MAKE = shutil.which("make") or ""
ONE_TEST = "ARGS=tests/test_layers.py -k noun"
CELL = "--cell 'agent killed | run | append_row | frame | 1' 0"
BENCH = "BENCH=--peers daskprs --workloads nothing-1 --scale 0.01 --repeats 1"
TARGETS = {
    "help": [],
    "demo": [],
    "test": [ONE_TEST],
    "suite": [ONE_TEST],
    "style": [],
    "docs": [],
    "test-long": [ONE_TEST],
    "test-large": ["LARGE_MB=50", "ARGS=-k large_result"],
    "test-oldest": [ONE_TEST],
    "test-extras": ["EXTRA_TESTS=tests/inputs/test_mltable_delta.py", "ARGS=-k version"],
    "chaos": [f"CHAOS={CELL}"],
    "bench": ["PEERS=daskprs", BENCH],
    "bench-full": ["PEERS=daskprs", BENCH],
}
BY_TEST = {"style", "docs", "suite"}
"""`make test` runs these three."""
OWN_ENVIRONMENTS = {"test-oldest": ".venv-oldest", "test-extras": ".venv-extras"}
NEEDED = {"docs": "mkdocs", "style": "mypy"}
"""The lowest versions are tested without what documentation and style need."""


def clean_environment() -> dict[str, str]:
    """Return variables without those of a `make` that runs this test: it may name environments."""
    made = ("MAKE", "MFLAGS", "VENV", "OLDEST", "EXTRAS", "WORKERS", "ARGS", "PYTEST", "HYPOTHESIS")
    cache = {"MYPY_CACHE_DIR": str(ROOT / ".mypy_cache")}
    return {name: value for name, value in os.environ.items() if not name.startswith(made)} | cache


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files that belong to the project."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not MAKE or shutil.which("git") is None:
        pytest.skip("make or git is not installed")
    listed = subprocess.run(words, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"this is no clone: {listed.stderr.strip()}")
    folder = tmp_path_factory.mktemp("clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    # Older than any environment: `make` in `make` forgets `-o`, and would set that of the tests up
    # anew, under their feet.
    os.utime(folder / "pyproject.toml", (0, 0))
    return folder


def make(clone: Path, *words: str) -> str:
    """Run `make` in a clone, and return its output."""
    done = subprocess.run(
        [MAKE, "-C", str(clone), f"PYTHON={sys.executable}", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=clean_environment(),
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_target_is_tried(clone: Path) -> None:
    """`clean` in a clone of its own."""
    phony = re.search(r"^\.PHONY: (.*)$", (clone / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert {*phony[1].split()} == {*TARGETS, "clean"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(one, marks=[pytest.mark.long] if one == "test-large" else [])
        for one in TARGETS
        if one not in BY_TEST
    ],
)
def test_a_target_runs(clone: Path, target: str) -> None:
    """In the environment of this test, so that nothing is installed; the slow ones on little."""
    name, at = "VENV", ENVIRONMENT
    if target in OWN_ENVIRONMENTS:
        name, at = target.removeprefix("test-").upper(), ROOT / OWN_ENVIRONMENTS[target]
    if not (at / "ready").exists() and target != "help":
        pytest.skip(f"{at} is not set up: run `make {target}` once, which takes minutes")
    if target == "test" and not all((at / "bin" / tool).exists() for tool in NEEDED.values()):
        pytest.skip(f"{at} has neither style nor documentation: it is that of the lowest versions")
    shown = make(clone, target, "-o", f"{at}/ready", f"{name}={at}", "WORKERS=0", *TARGETS[target])
    assert "Setting up" not in shown


@pytest.mark.parametrize("target", [one for one in TARGETS if one != "help"])
def test_a_target_sets_up_its_environment_first(clone: Path, target: str) -> None:
    """As `make --dry-run` shows: a fresh clone has none."""
    shown = make(clone, target, "--dry-run", *TARGETS[target])
    lines = [line for line in shown.splitlines() if not line.startswith("make")]
    assert re.search(r"sys\.version_info|Setting up", lines[0]), shown


def test_clean_removes_what_the_others_have_made(clone: Path, tmp_path: Path) -> None:
    """And nothing else."""
    shutil.copy2(clone / "Makefile", tmp_path / "Makefile")
    made = [".venv", ".venv-oldest", ".venv-extras", "site", ".bench", "demo-output"]
    for name in (*made, "kept"):
        (tmp_path / name).mkdir()
    make(tmp_path, "clean")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "kept"]
