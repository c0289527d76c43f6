"""Arrows go one way; heavy packages are imported where they are used; modules are nouns."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import daskprs

ROOT = Path(daskprs.__file__).parent
LAYERS = [
    {"errors", "late_names", "nearest"},
    {"core", "regular_files", "yaml_files"},
    {"forks", "interrupts", "job_folder", "job_lock", "pipeline_folder"},
    {"detachment", "pipeline_record", "row_labels"},
    {"inputs", "output"},
    {"agent", "option_rules", "options", "option_help"},
    {"report"},
    {"result", "preview", "cluster", "surface"},
    {"kept_call"},
    {"checked_call", "head_start", "job_end", "job_spec", "status"},
    {"job"},
    {"detached"},
    {"api"},
    {"azure"},
    {"cli_help", "cli_options"},
    {"cli_assets", "cli_ends", "cli_surface"},
    {
        *("carried", "cli_detached", "cli_folder", "cli_invoke", "cli_pipeline", "cli_serve"),
        *("cli_task", "cli_validate"),
    },
    {"cli"},
    {"__main__"},
]
SIDE_BY_SIDE = {("options", "option_rules"), ("job_lock", "job_folder")}
MODULES = sorted(ROOT.rglob("*.py"))
NOT_AT_IMPORT = [
    "click",
    "cloudpickle",
    "dask",
    "distributed",
    "fsspec",
    "multiprocessing",
    "numpy",
    "pandas",
    "pyarrow",
    "rich",
]
NO_NOUNS = {"utils", "helpers", "common", "misc"}
LOOK_LINES = 25
"""A function that is longer does not fit one look: one in ten may be."""


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


def test_modules_import_only_what_lies_below_them() -> None:
    """Type hints count: who needs a name knows of it."""
    upward = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in MODULES
        if path.stem != "__init__"
        for name in imports(path)
        if name.startswith("daskprs.") and not may_import(path, part_of(name))
    ]
    assert upward == []


def may_import(path: Path, other: str) -> bool:
    """Say whether a module may import from another part of the package."""
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if other in {"__version__", part} or (part, other) in SIDE_BY_SIDE:
        return True
    # An error says what it carries.
    says = part == "errors" and other in ("result", "azure")
    return says or level(other) < level(part)


def test_no_module_is_imported_by_one_that_it_imports() -> None:
    """Imports at run time have no cycle, in whatever order modules are asked for."""
    names = {_name(path) for path in MODULES}
    graph = {_name(path): _at_import(path) & names - {_name(path)} for path in MODULES}
    assert list(TopologicalSorter(graph).static_order())


def _name(path: Path) -> str:
    parts = ("daskprs", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _at_import(path: Path) -> set[str]:
    """Return the modules that importing a file imports: what stands at its top level."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found - {"daskprs"}


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


def test_modules_are_named_by_a_noun() -> None:
    """A module with one of these names holds whatever was put there."""
    assert [path for path in MODULES if path.stem in NO_NOUNS] == []


def test_the_library_does_not_print() -> None:
    """It tells, and listeners show."""
    printing = [
        f"{path.relative_to(ROOT)}, line {node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []


def test_functions_fit_one_look() -> None:
    """Nine in ten have at most 25 lines, documentation aside."""
    lengths = [
        _lines(node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert sum(length <= LOOK_LINES for length in lengths) >= 0.9 * len(lengths)


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function) is not None and len(function.body) > 1
    first = function.body[documented].lineno
    return (function.end_lineno or first) - first + 1


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
