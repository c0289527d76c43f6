"""Arrows go one way; heavy packages are imported where they are used; a module is one noun."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import daskprs

ROOT = Path(daskprs.__file__).parent
LAYERS = [
    {"errors"},
    {"core"},
    {"job_folder", "job_lock"},
    {"inputs", "output"},
    {"agent", "option_rules", "options", "option_help"},
    {"report"},
    {"result", "preview", "cluster"},
    {"job"},
    {"api"},
    {"cli_options"},
    {"cli"},
]
SIDE_BY_SIDE = {("options", "option_rules"), ("job_lock", "job_folder")}
MODULES = sorted(ROOT.rglob("*.py"))
LONGEST = 300
NOT_AT_IMPORT = ["pandas", "numpy", "pyarrow", "dask", "distributed", "rich", "click", "fsspec"]


def part_of(module: str) -> str:
    """Return the first part of a module's name below the package."""
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> set[str]:
    """Return what of daskprs a file imports, wherever it does it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(names if node.module == "daskprs" else [node.module])
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def level(part: str) -> int:
    """Return the height of a part."""
    return next(height for height, parts in enumerate(LAYERS) if part in parts)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    """Type hints count: who needs a name knows of it."""
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    for name in imports(path):
        if name.startswith("daskprs."):
            other = part_of(name)
            if other in {"__version__", part} or (part, other) in SIDE_BY_SIDE:
                continue
            # An error says what it carries, and a result where its rows are read.
            if (part, other) == ("errors", "result"):
                continue
            assert level(other) < level(part), f"{path} imports {name}"


def test_distributed_is_imported_in_one_place() -> None:
    """What runs on a cluster is in `cluster`."""
    outside = [
        str(path)
        for path in MODULES
        if path.relative_to(ROOT).parts[0] != "cluster"
        and any(name.split(".")[0] == "distributed" for name in _at_run_time(path))
    ]
    assert outside == []


def _at_run_time(path: Path) -> set[str]:
    """Return imports that are not for type hints only."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
            node.body = [ast.Pass()] if node.test.id == "TYPE_CHECKING" else node.body
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_and_quiet(path: Path) -> None:
    """A longer one holds two nouns; the library does not print."""
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    printed = [
        call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"
    ]
    assert printed == []


def test_importing_daskprs_imports_nothing_heavy() -> None:
    """`import daskprs` costs milliseconds; names come when they are asked for."""
    code = (
        "import json, sys, daskprs; "
        f"print(json.dumps([m for m in {NOT_AT_IMPORT} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_every_public_name_is_there_and_sorted() -> None:
    """`__all__` is what `dir` shows and what can be imported."""
    assert list(daskprs.__all__) == sorted(daskprs.__all__)
    for name in daskprs.__all__:
        assert getattr(daskprs, name).__name__ == name
