"""Arrows go one way; heavy packages are imported where they are used; modules are nouns."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import daskprs

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(daskprs.__file__).parent
LAYERS = {
    "daskprs": """
        errors _suggest _lazy_exports
        _plugins readers _system
        _arrow _core
        _folders
        _inputs _output
        _options
        _agent
        _report
        _page
        _driver
        _cluster
        _job
        _lazy
        _api accessors
        _cli
        __main__
        azure _openai
        _serve
    """,
    "daskprs._agent": """
        foreign protocol
        child
        script
        node
        supervision
        inline
    """,
    "daskprs.azure": """
        _yaml_files
        _append_row_settings _assets _expressions _file_kinds _mlflow_driver
        _mltable _pipeline_folder
        plugin _registry _system_flags
        _pipeline_status _stand_ins _step_logs
        _run_place
        _missing_modules
        _environments _task
        _reuse
        _pipelines
        v1
        _deployments
        v2 _validation
        _commands
    """,
    "daskprs.azure._pipelines": """
        forms included_code other_steps shell_arguments
        component
        values
        ports
        inner wiring
        command_step parallel_step
        step
        file
        run
        pipeline
    """,
    "daskprs._cluster": """
        aside lost_cluster own_tasks staged_in_use staged_work thread_pool uploads
        job_figures worker_answers
        governors task_host topics worker_events
        scaling_demand stage_hosts worker_timer
        connect driver_task lease
        remote stage_calls
        scheduler_plugin slot_allocator
        key_worker part_worker partition_tasks
        partition_feed worker_plugin worker_registry
        key_exchange part_writers
        session
        slot_manager
        cluster_slots
    """,
    "daskprs._inputs": """
        source
        costs
        files
        text
        delimited parquet
        keys
        frames
        collections
        installed_formats tables
        open_source
    """,
    "daskprs._output": """
        header_lines spec
        spool
        rows
        journal
        publish failures
        dataset
        joined_rows
        proof row_places store read_rows
        committed_rows kept_rows
        published_rows
    """,
}
"""Each package that has packages in it: what lies in it, a layer a line, from the bottom up.

A module may import from the layers below its own. Modules of one layer do not know each other. In a
package without packages any module may import any other, as long as there is no cycle.
"""
EDGE = {
    "azure": ("daskprs.azure",),
    "_openai": ("daskprs._openai",),
    "_serve": ("daskprs._serve", "daskprs.azure"),
}
"""Packages that are plugins, and the packages at the edge that each may import."""
OF_THE_EDGE = re.compile(r"azure|mltable|pydantic|\baml|daskprs\._(?:serve|openai)", re.IGNORECASE)
"""Names that the core does not know: it reaches what they mean by `plugins`."""
KNOWN_ALL_THE_SAME = {
    "_agent/node/environment.py": "AZUREML_",  # scripts read them, whoever runs them
    "_agent/script/checked_script.py": ".amlignore",  # the rules of a script's folder, in a message
    "_agent/script/snapshot.py": ".amlignore",
    "_inputs/source/included.py": "In an MLTable, write include_path_column: true",  # a next step
    "_system/stores.py": "azure",  # the extra with the package for such a store
}
"""What the core says of the edge: in each of these modules, strings with this text alone."""
WHAT_TO_DO = """
An arrow may only go down. In this order: move what both need into the lower one, as a name of its
own; pass the value in instead of importing who makes it; have the lower one name what it needs by a
Protocol. The layers are written down at the top of tests/test_layers.py: changing their order is a
change of the design, to be made there and in the map of CONTRIBUTING.md.
"""
MODULES = sorted(ROOT.rglob("*.py"))
PUBLIC = {
    *("daskprs", "daskprs.__main__", "daskprs.accessors", "daskprs.errors", "daskprs.readers"),
    *("daskprs.azure", "daskprs.azure.plugin"),
}
"""What has no underscore in its name: the modules of users, and those that are found by name.

The packages `daskprs.azure.v1` and `v2` have the modules of Azure's SDKs besides.
"""
OF_USERS = ("daskprs.azure.v1", "daskprs.azure.v2")
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
OF_SDKS = ("daskprs.azure._registry", "daskprs.azure.v1.", "daskprs.azure.v2.")
NO_NOUNS = {"utils", "helpers", "common", "misc"}
LOOK_LINES = 25
"""A function that is longer does not fit one look: one in ten may be."""


def _name(path: Path) -> str:
    parts = ("daskprs", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


NAMES = {_name(path) for path in MODULES}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all that a file says, its module first."""
    return [*ast.walk(ast.parse(path.read_text()))]


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    """Forget the files afterwards: they are a million objects."""
    yield
    nodes.cache_clear()


def imports(path: Path) -> set[str]:
    """Return the modules of daskprs that a file imports, wherever and for whatever it does."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in NAMES else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found & NAMES


def levels(package: str) -> dict[str, int]:
    """Return the layer of each part of a package."""
    lines = LAYERS[package].strip().splitlines()
    return {part: height for height, line in enumerate(lines) for part in line.split()}


def arrow(module: str, imported: str) -> tuple[str, str, str]:
    """Return the innermost package of two modules, and the part of it that each lies in."""
    one, other = module.split("."), imported.split(".")
    at = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    return ".".join(one[:at]), *("".join(name[at : at + 1]) for name in (one, other))


def test_modules_import_only_what_lies_below_them() -> None:
    """Type hints count: a module that needs a name knows of it."""
    upward = []
    for path in MODULES:
        if path.stem == "__init__":
            continue
        for name in imports(path):
            package, part, other = arrow(_name(path), name)
            if package not in LAYERS or not other:
                continue
            level = levels(package)
            if level[other] >= level[part]:
                upward.append(f"{_name(path)} imports {name}: {part} does not lie above {other}")
    assert not upward, "\n".join([*upward, WHAT_TO_DO])


def test_every_part_of_the_house_has_its_layer() -> None:
    """A new module or package is put where it belongs; one that is gone is taken off."""
    packages = {_name(path) for path in MODULES if path.stem == "__init__"}
    parts = {name: {child for child in NAMES if child.rpartition(".")[0] == name} for name in NAMES}
    layered = {name for name in packages if parts[name] & packages}
    assert set(LAYERS) == layered
    for package in layered:
        inside = {child.rpartition(".")[2] for child in parts[package]}
        assert set(levels(package)) == inside, package


def test_what_is_not_public_has_an_underscore() -> None:
    """So a path says it; the page of the Python API has names of public modules alone."""
    seen = {one for one in map(_name, MODULES) if not re.search(r"\._(?!_)", one)}
    assert {one for one in seen if not one.startswith(OF_USERS)} == PUBLIC
    page = ROOT.parent / "docs/reference/api.md"
    if page.exists():  # not where the installed package is tested
        named = re.findall(r"^::: ([\w.]+)\.\w+$", page.read_text(), re.MULTILINE)
        assert {"daskprs", "daskprs.azure"} <= {*named} <= PUBLIC | {*OF_USERS}


def test_no_module_is_imported_by_one_that_it_imports() -> None:
    """Imports at run time have no cycle, in whatever order modules are asked for."""
    graph = {_name(path): _at_import(path) & NAMES - {_name(path)} for path in MODULES}
    assert list(TopologicalSorter(graph).static_order())


MUTUAL = ("daskprs.azure.v1", "daskprs.azure.v2", "daskprs._report")
"""Packages whose modules may name each other in type hints: an SDK's classes return each other."""


def test_modules_that_name_each_other_are_in_one_package() -> None:
    """Imports within functions and those of types count, too, except within some packages."""
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        module, *named = (
            next((one for one in MUTUAL if name.startswith(f"{one}.")), name)
            for name in [_name(path), *sorted(imports(path))]
        )
        graph.setdefault(module, set()).update(set(named) - {module})
    for package in ("daskprs.azure.v1", "daskprs.azure.v2"):  # the package itself exports them
        graph[package] |= graph.pop(f"{package}.__init__", set()) - {package}
    assert list(TopologicalSorter(graph).static_order())


def _at_import(path: Path) -> set[str]:
    """Return the modules that importing a file imports: what stands at its top level."""
    found = set()
    for node in nodes(path)[0].body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found - {"daskprs"}


CORE = [path for path in MODULES if path.relative_to(ROOT).parts[0] not in EDGE]


def test_the_core_does_not_name_the_packages_at_its_edge() -> None:
    """Neither in imports and types, nor in strings: a plugin says what it adds, by its own names.

    What a docstring says of them in passing does no harm, but no text has their modules.
    """
    named = {}
    for path in CORE:
        module, text = str(path.relative_to(ROOT)), path.read_text()
        known = KNOWN_ALL_THE_SAME.get(module)
        found = [one for one in _names_in(path) if OF_THE_EDGE.search(one)]
        found = [one for one in found if known is None or known not in one]
        found += re.findall(rf"daskprs[./](?:{'|'.join(EDGE)})\b", text)
        if found:
            named[module] = found
    assert named == {}, WHAT_TO_DO


def test_what_the_core_says_of_its_edge_is_still_said() -> None:
    """An exception that is gone is taken off."""
    for module, known in KNOWN_ALL_THE_SAME.items():
        assert any(known in one for one in _names_in(ROOT / module)), module


def test_packages_at_the_edge_import_the_core_and_what_they_may() -> None:
    """The service runs deployments of Azure; Azure knows of no service."""
    for package, may in EDGE.items():
        for path in (ROOT / package).rglob("*.py"):
            there = {name for name in imports(path) if name.split(".")[1:2] != []}
            edge = {name for name in there if name.split(".")[1] in EDGE}
            assert {name for name in edge if not name.startswith(may)} == set(), path


def _names_in(path: Path) -> list[str]:
    """Return the names and the strings of a module, without its docstrings."""
    documented, found = set(), []
    for node in nodes(path):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                documented.add(node.value)
            case ast.Constant(value=str(name)) if node not in documented:
                found.append(name)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.append(name)
            case ast.alias(name=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.append(name)
            case ast.ImportFrom(module=str(name)):
                found.append(name)
    return found


def test_distributed_is_imported_in_one_place() -> None:
    """What runs on a cluster is in `_cluster`."""
    outside = [
        str(path)
        for path in MODULES
        if path.relative_to(ROOT).parts[0] != "_cluster"
        and any(name.split(".")[0] == "distributed" for name in _at_run_time(path))
    ]
    assert outside == []


def _at_run_time(path: Path) -> set[str]:
    """Return imports that are not for type hints only."""
    hints = {
        id(inner)
        for node in nodes(path)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = set()
    for node in nodes(path):
        if id(node) in hints:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


DASK = "Dask carried it between processes of the job, which unpickle all that Dask brings"
WORKER = "its supervisor has made it, in the Dask worker"
SEALED = "a process of the job that runs no script; its checksum, or the key, came by Dask"
OWN = "this very process has made it"
UNPICKLED = {
    "_agent/child/entry_script.py": WORKER,
    "_agent/child/handed_on.py": "an agent of the same script, which it runs itself",
    "_agent/child/helper.py": f"{OWN}; it looks whether an error survives",
    "_agent/child/inbox.py": WORKER,
    "_agent/child/main.py": WORKER,
    "_agent/foreign/values.py": "another interpreter; the classes that are looked up are listed",
    "_agent/inline/inline_agent.py": "this thread",
    "_agent/supervision/channel.py": "a helper, which runs no script; agents are parsed instead",
    "_agent/supervision/zygote_main.py": WORKER,
    "_cluster/job_figures.py": DASK,
    "_cluster/part_writers.py": DASK,
    "_cluster/remote/node_service.py": DASK,
    "_cluster/remote/nodes.py": DASK,
    "_cluster/worker_events.py": DASK,
    "_core/columnar.py": DASK,
    "_folders/index_pieces.py": "the driver, with its seal; others, as a `Seal` says",
    "_inputs/collections/source.py": "the driver, for itself; no other user may write the file",
    "_inputs/collections/staged_reader.py": SEALED,
    "_inputs/frames/caller_frame.py": OWN,
    "_inputs/keys/dealing.py": "the driver; a worker passes it on",
    "_inputs/keys/rows.py": SEALED,
    "_inputs/keys/shuffle.py": OWN,
    "_inputs/source/pickled_rows.py": "the driver or a worker; no other user may write the file",
    "_job/kept_objects.py": "the driver sealed it with a key of the user, which no agent has",
    "_job/plan.py": OWN,
    "_output/dataset/part_attempt.py": DASK,
    "_output/rows/typed_rows.py": "agents, with the seal of their job; others, as a `Seal` says",
}
"""Modules that unpickle, and who has made the bytes. To unpickle is to run what they say."""


def test_every_module_that_unpickles_says_who_made_the_bytes() -> None:
    """A new one is justified here, and on the page on folders if they come from a folder."""
    loads = {"load", "loads", "Unpickler", "read_pickle"}
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in nodes(path):
            match node:
                case ast.Attribute(value=ast.Name(id="pickle" | "cloudpickle"), attr=name):
                    is_one = name in loads
                case ast.Attribute(attr="read_pickle"):
                    is_one = True
                case ast.Call(func=ast.Attribute(attr="recv"), args=[]):  # of a `Connection`
                    is_one = True
                case ast.ImportFrom(module="pickle" | "cloudpickle", names=names):
                    is_one = any(one.name in loads for one in names)
                case _:
                    continue
            if is_one:
                found.add(str(path.relative_to(ROOT)))
    assert found == UNPICKLED.keys()


def test_modules_are_named_by_a_noun() -> None:
    """A module with one of these names holds whatever was put there."""
    assert [path for path in MODULES if path.stem in NO_NOUNS] == []


def test_a_class_name_means_one_thing() -> None:
    """Names of the SDKs are public in `azure.v1` and `azure.v2`: modules there may share them."""
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not _name(path).startswith(OF_SDKS):
                homes.setdefault(node.name, []).append(_name(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_the_library_does_not_print() -> None:
    """It tells, and listeners show."""
    printing = [
        f"{path.relative_to(ROOT)}, line {node.lineno}"
        for path in MODULES
        for node in nodes(path)
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
        for node in nodes(path)
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
