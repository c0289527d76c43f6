"""Each target of the Makefile runs from a fresh clone, here in its shortest form."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cloning import copy_clone

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
    "package": [],
    "sbom": [],
    "lint-package": [],
    "test-core": ["CORE_TESTS=tests/test_errors.py"],
    "test-azure": ["ARGS=-k shell_arguments"],
    "test-serve": ["ARGS=tests/serve/test_roots.py -k loops"],
    "test-long": [ONE_TEST],
    "test-gpu": ["ARGS=--collect-only -q"],
    "test-large": ["LARGE_MB=50", "ARGS=-k large_result"],
    "test-oldest": [ONE_TEST],
    "test-python": [ONE_TEST],
    "test-wheel": [ONE_TEST],
    "test-extras": ["EXTRA_TESTS=tests/azure/mltable/test_mltable_delta.py", "ARGS=-k version"],
    "attack": ["ARGS=tests/serve/test_roots.py -k loops"],
    "audit": ["LOCKS="],
    "lock": ["LOCK=--offline"],
    "chaos": [f"CHAOS={CELL}"],
    "sim": ["SEEDS=2"],
    "faults": ["FAULTS=error_threshold_is_exceeded_by_itself"],
    "bench": ["PEERS=daskprs", BENCH],
    "bench-full": ["PEERS=daskprs", BENCH],
    "bench-gpu": ["BENCH=--help"],
}
BY_TEST = {"style", "docs", "suite"}
"""`make test` runs these three."""
OWN_ENVIRONMENTS = {
    "test-oldest": ("OLDEST", ".venv-oldest"),
    "test-extras": ("EXTRAS", ".venv-extras"),
    "test-python": ("OTHER", str(ENVIRONMENT)),
    "test-wheel": ("WHEEL", ".venv-wheel"),
    "audit": ("TOOLS", ".venv-tools"),
    "lock": ("TOOLS", ".venv-tools"),
    "sbom": ("TOOLS", ".venv-tools"),
    "lint-package": ("TOOLS", ".venv-tools"),
}
LONG = {
    *("demo", "test", "test-long", "test-large", "test-python"),
    *("test-core", "test-azure", "test-serve", "test-gpu", "test-extras", "test-oldest"),
    *("attack", "chaos", "sim", "faults", "bench", "bench-full", "bench-gpu"),
}
"""Others play what most of these run: the demo, a cell of the table, a benchmark, some tests."""
NEEDED = {"test": ["zensical", "mypy"], "package": ["hatchling"]}
"""The lowest versions are tested without what documentation, style and the package need."""


def clean_environment() -> dict[str, str]:
    """Return variables without those of a `make` that runs this test: it may name environments."""
    made = (
        "MAKE",
        "MFLAGS",
        "VENV",
        "OLDEST",
        "EXTRAS",
        "WHEEL",
        "OTHER",
        "WORKERS",
        "ARGS",
        "CORE",
        "PYTEST",
        "HYPOTHESIS",
    )
    cache = {"MYPY_CACHE_DIR": str(ROOT / ".mypy_cache")}
    return {name: value for name, value in os.environ.items() if not name.startswith(made)} | cache


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files that belong to the project."""
    if not MAKE:
        pytest.skip("make is not installed")
    folder = tmp_path_factory.mktemp("clone")
    copy_clone(folder)
    # Older than any environment: `make` in `make` forgets `-o`, and would set that of the tests up
    # anew, under their feet.
    for name in ("pyproject.toml", "locks/development.txt"):
        os.utime(folder / name, (0, 0))
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
    phony = re.findall(r"^\.PHONY: (.*)$", (clone / "Makefile").read_text(), re.MULTILINE)
    assert {*" ".join(phony).split()} == {*TARGETS, "clean"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(one, marks=[pytest.mark.long] if one in LONG else [])
        for one in TARGETS
        if one not in BY_TEST
    ],
)
def test_a_target_runs(clone: Path, target: str) -> None:
    """In the environment of this test, so that nothing is installed; the slow ones on little."""
    name, at = "VENV", ENVIRONMENT
    if target in OWN_ENVIRONMENTS:
        name, at = OWN_ENVIRONMENTS[target][0], ROOT / OWN_ENVIRONMENTS[target][1]
    if not (at / "ready").exists() and target != "help":
        pytest.skip(f"{at} is not set up: run `make {target}` once, which takes minutes")
    if not all((at / "bin" / tool).exists() for tool in NEEDED.get(target, ())):
        pytest.skip(f"{at} has none of {NEEDED[target]}: it is that of the lowest versions")
    there = {"VENV": ENVIRONMENT, name: at}
    words = [
        word for one in there.items() for word in ("-o", f"{one[1]}/ready", f"{one[0]}={one[1]}")
    ]
    shown = make(clone, target, *words, "WORKERS=0", *TARGETS[target])
    assert "Setting up" not in shown


@pytest.mark.parametrize("target", [one for one in TARGETS if one != "help"])
def test_a_target_sets_up_its_environment_first(clone: Path, target: str) -> None:
    """As `make --dry-run` shows: a fresh clone has none."""
    shown = make(clone, target, "--dry-run", *TARGETS[target])
    lines = [line for line in shown.splitlines() if not line.startswith(("make", MAKE))]
    assert re.search(r"sys\.version_info|Setting up", lines[0]), shown


def test_clean_removes_what_the_others_have_made(clone: Path, tmp_path: Path) -> None:
    """And nothing else."""
    shutil.copy2(clone / "Makefile", tmp_path / "Makefile")
    made = [
        ".venv",
        ".venv-oldest",
        ".venv-extras",
        ".venv-tools",
        ".core",
        "site",
        ".bench",
        "demo-output",
    ]
    for name in (*made, "kept"):
        (tmp_path / name).mkdir()
    make(tmp_path, "clean")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "kept"]
