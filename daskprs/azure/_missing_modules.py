"""Modules that an entry script imports and its Python lacks, found without running the script.

Published scripts come with their own environment, which is not created here. Missing modules are
reported by name before a job starts, not by each agent.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs._system.interpreter import environment_of
from daskprs.azure._stand_ins import elsewhere as foreign_stand_ins
from daskprs.azure._stand_ins import here as stand_ins
from daskprs.errors import ScriptError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

CALLED = {"init", "run", "shutdown"}
"""Functions of an entry script that are always called: their imports are needed."""
SDK = "azure.ai.ml"
NO_WORKSPACE = ": a step reaches no workspace here; give it data and models as inputs"
OURS_ALONE = ": the Python of daskprs has it, and without azureml-core no other Python does"
OFFLINE = ": only the run under the Python of daskprs has it, whatever another Python has installed"
OF_WORKSPACE = frozenset({"experiment", "register_model"})
"""Attributes of a run that need a workspace."""
OF_FILES = (
    ": a step of a pipeline file reaches no workspace here; give it data and models as inputs, and "
    "let it write a model into an output, which is registered after the run"
)
BESIDE = (
    ": it is beside this file, and imports start from the source directory; name this folder as "
    "the source directory, or import the module by its path below it"
)
CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
INSTALLS = re.compile(r"\bpip3?\b\W+(main\W+)?install\b")
PROGRAMS = {"system", "run", "call", "check_call", "check_output", "Popen", "main"}
"""Functions by which scripts call pip."""

LONGEST_ANSWER_S = 60
FINDS = """
import importlib.util, json, sys
sys.path[:] = filter(None, sys.path)
names = [one for one in sys.argv[1:] if one not in sys.modules]
print(json.dumps([one for one in names if importlib.util.find_spec(one) is None]))
"""
"""Has an interpreter find modules, without those in the working directory; imports none."""


class MissingModule(NamedTuple):
    """An import that would fail."""

    name: str
    file: Path
    line: int
    hint: str = ""
    is_importable: bool = False
    """Whether the import itself works, so that only the use of the name fails."""

    @property
    def is_nowhere(self) -> bool:
        """Whether no package has it: the hint says what to write instead."""
        return self.is_importable or self.hint in (OF_FILES, OFFLINE, BESIDE)

    def __str__(self) -> str:
        """Return it with its place."""
        hint = NO_WORKSPACE if self.name.startswith(SDK) else self.hint
        return f"{self.name} ({self.file}, line {self.line}){hint}"


class _Import(NamedTuple):
    """One import statement."""

    module: str
    names: tuple[str, ...]
    """The names in ``from module import names``, which may be modules as well."""
    level: int
    line: int

    @property
    def top(self) -> str:
        """The package that the module is in."""
        return self.module.partition(".")[0]


def refuse_missing_modules(
    script: Path,
    source_directory: Path,
    search_path: Sequence[str] = (),
    python: str | None = None,
    other: str = "",
    *,
    with_importable: bool = True,
    has_workspace: bool = True,
) -> None:
    """Refuse a script that imports modules that its Python lacks; name each with its place.

    `other` says how the caller names another interpreter for the script. `with_importable` also
    refuses the import of names that only fail when they are used. `has_workspace` is that of
    `missing_modules`.
    """
    found = missing_modules(
        script, source_directory, search_path, python, has_workspace=has_workspace
    )
    missing = [one for one in found if with_importable or not one.is_importable]
    if missing:
        shown = "".join(f"\n  {one}" for one in missing)
        msg = (
            f"the entry script {script.name} imports what {named(python)} does not have:{shown}\n"
            f"{way_out(python, other, missing)}"
        )
        raise ScriptError(msg.rstrip())


def named(python: str | None) -> str:
    """Return how messages name an interpreter."""
    return f"this Python ({sys.executable})" if python is None else f"the Python {python}"


def way_out(python: str | None, other: str, missing: Iterable[MissingModule] | None = None) -> str:
    """Return the next step where modules are missing; empty if no package has what is missing."""
    if missing is not None and all(one.is_nowhere for one in missing):
        return ""
    install = "Install the packages that bring these modules"
    if python is not None:
        return f"{install} there: {python} -m pip install PACKAGE."
    if not other:
        return f"{install}."
    return (
        f"{install}, or name a Python that has them by {other}; daskprs environment create FILE "
        "makes one from a conda file."
    )


def missing_modules(
    script: Path,
    source_directory: Path,
    search_path: Sequence[str] = (),
    python: str | None = None,
    *,
    has_workspace: bool = True,
) -> list[MissingModule]:
    """Return the imports that would fail, each module once; folders are searched as by Python.

    What a script does with its run counts, too, if that needs a workspace and its step has none, or
    if another interpreter has no such run.

    Only imports that always run count: unconditional statements at the top level and in `init`,
    `run` and `shutdown`. A handler that goes on without the module, or `suppress`, makes an import
    optional, and so does a change of ``sys.path`` or a call of pip before it. Modules in these
    folders are searched, too. All other modules are looked up by the interpreter `python`, or by
    this one.
    """
    search = _Search([str(source_directory), *search_path])
    search.read(script, CALLED)
    absent = lacking({one.top for one, _ in search.outside}, python)
    missing: dict[str, MissingModule] = {}
    for one, file in search.outside:
        if one.top not in absent:
            continue
        name = _missing_name(one, python)
        if name is not None:
            instead = stand_ins.instead_of(name.rpartition(".")[2]) if one.top == "azureml" else ""
            hint = f": {instead}" if instead else _hint_of(one.top, file.parent)
            is_importable = bool(instead) and python is None
            missing.setdefault(name, MissingModule(name, file, one.line, hint, is_importable))
    for name, file, line in search.uses if python is not None and "azureml" in absent else ():
        if foreign_stand_ins.lacks(name):
            missing.setdefault(name, MissingModule(f"azureml.core.{name}", file, line, OURS_ALONE))
    for attribute, file, line in search.of_run:
        name, hint = f"Run.get_context().{attribute}", ""
        if not has_workspace and attribute in OF_WORKSPACE:
            hint = OF_FILES
        elif python is not None and foreign_stand_ins.lacks(f"Run.{attribute}"):
            hint = OURS_ALONE if "azureml" in absent else OFFLINE
        if hint:
            missing.setdefault(name, MissingModule(name, file, line, hint))
    return [*missing.values()]


def _hint_of(name: str, folder: Path) -> str:
    """Return what a message says of a module that the folder of its importer may have."""
    found = importlib.machinery.PathFinder.find_spec(name, [str(folder)])
    return "" if found is None else BESIDE


class _Search:
    """Goes from the entry script to the modules beside it."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._seen: set[Path] = set()
        self._has_added = False
        """Whether the script has changed ``sys.path`` or called pip by now."""
        self.outside: list[tuple[_Import, Path]] = []
        """Imports of modules in none of the folders, and the files that they are in."""
        self.uses: list[tuple[str, Path, int]] = []
        """Attributes of classes of ``azureml``, as ``Model.list``, with their files and lines."""
        self.of_run: list[tuple[str, Path, int]] = []
        """Attributes of the script's run that are used whatever a condition says."""

    def read(self, file: Path, called: Collection[str] = ()) -> None:
        """Search the imports of a file; a file without readable code is its importer's problem."""
        if file in self._seen:
            return
        self._seen.add(file)
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (OSError, SyntaxError, ValueError):
            return
        ours = _ours(tree)
        self.uses += [(name, file, line) for name, line in _uses(tree, ours)]
        self.of_run += [(name, file, line) for name, line in _uses_of_run(tree, ours, called)]
        first_added = min(_added_modules(tree), default=math.inf)
        for one in _imports(tree.body, called):
            self._has_added |= one.line >= first_added
            root = self._root_of(one, file)
            if root is None:
                if one.top == "azureml" or not self._has_added:
                    self.outside.append((one, file))
                continue
            ways = [root := root / name for name in one.module.split(".") if name]
            for path in (*ways, *(root / name for name in one.names)):
                self.read(path.parent / f"{path.name}.py")
                self.read(path / "__init__.py")

    def _root_of(self, one: _Import, file: Path) -> Path | None:
        """Return the folder in which an import finds its module; None if no folder has it."""
        if one.level:
            return file.parents[min(one.level, len(file.parents)) - 1]
        found = importlib.machinery.PathFinder.find_spec
        return next((Path(at) for at in self._folders if found(one.top, [at]) is not None), None)


def stand_ins_for(python: str | None, folder: Path) -> Path:
    """Fill a folder with the stand-ins that an interpreter, or this one, needs; return its path."""
    if python is None:
        return stand_ins.stand_in_folder(folder)
    absent = lacking(foreign_stand_ins.PACKAGES, python)
    name = hashlib.sha256(python.encode()).hexdigest()[:8]
    return stand_ins.stand_in_folder(folder / name, absent)


def lacking(names: Iterable[str], python: str | None) -> set[str]:
    """Return those of the top-level modules that an interpreter, or this one, does not have."""
    if python is not None:
        return _lacking_there({*names}, python)
    known = {*sys.stdlib_module_names, *sys.modules}
    return {one for one in names if one not in known and importlib.util.find_spec(one) is None}


def _lacking_there(names: set[str], python: str) -> set[str]:
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the person names
            [python, "-c", FINDS, *sorted(names)],
            env=environment_of(python, os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_ANSWER_S,
            check=True,
        )
        return {*json.loads(done.stdout.splitlines()[-1])}
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        is_known = isinstance(error, (OSError, subprocess.TimeoutExpired))
        why = str(error) if is_known else (getattr(error, "stderr", None) or "").strip()
        msg = f"{python} does not answer as an interpreter of Python does{': ' if why else ''}{why}"
        raise UsageError(msg) from error


def _missing_name(one: _Import, python: str | None) -> str | None:
    """Return the name of a module that the agents' stand-ins do not have either."""
    found = stand_ins if python is None else foreign_stand_ins
    if not found.stands_for(one.module):
        is_known = found.stands_for(one.top) or one.module.startswith(SDK)
        return one.module if is_known else one.top
    for name in one.names:
        if not found.has(one.module, name):
            return f"{one.module}.{name}"
    return None


def _ours(tree: ast.Module) -> set[str]:
    """Return the names that a file imports from ``azureml``."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("azureml.")
        for alias in node.names
        if alias.asname in (None, alias.name)
    }


def _uses(tree: ast.Module, ours: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the attributes of classes of ``azureml`` that a file uses, wherever it does.

    A script that catches all errors would end without a word about what is lacking.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in ours:
                yield f"{name}.{attribute}", node.lineno


def _uses_of_run(
    tree: ast.Module, ours: Collection[str], called: Collection[str]
) -> list[tuple[str, int]]:
    """Return the attributes of the run that a file always uses, by line.

    A condition may ask whether there is a run, or whether a model is to be registered.
    """
    if "Run" not in ours:
        return []
    runs = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_run(node.value)
        for target in node.targets
    }
    found = {
        (node.lineno, node.attr)
        for node in _always_run(tree, {*called, "__init__"})
        if isinstance(node, ast.Attribute)
        and (_is_run(node.value) or ast.unparse(node.value) in runs)
    }
    return [(attribute, line) for line, attribute in sorted(found)]


def _is_run(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "Run.get_context"


def _always_run(tree: ast.Module, called: Collection[str]) -> Iterator[ast.AST]:
    """Yield the nodes that run whatever a condition says, also those of functions called so."""
    functions: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(node.name, []).extend(node.body)
    waiting: list[ast.AST] = [tree, *(one for name in called for one in functions.pop(name, ()))]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If() if "__name__" in ast.unparse(node.test):
                waiting += node.body
                continue
            case ast.If() | ast.IfExp() | ast.BoolOp() | ast.Try() | ast.Match():
                continue
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                waiting += functions.pop(name, ())
        yield node
        waiting += ast.iter_child_nodes(node)


def _added_modules(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that use ``sys.path`` or call pip: it is not known what they add."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                yield node.lineno
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in PROGRAMS:
                if INSTALLS.search(ast.unparse(node)):
                    yield node.lineno


def _imports(body: list[ast.stmt], called: Collection[str]) -> Iterator[_Import]:
    """Yield the imports that always run in a list of statements."""
    for node in body:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield _Import(alias.name, (), 0, node.lineno)
            case ast.ImportFrom():
                names = tuple(alias.name for alias in node.names if alias.name != "*")
                yield _Import(node.module or "", names, node.level, node.lineno)
            case ast.With() if any(map(_suppresses, node.items)):
                pass
            case ast.With() | ast.ClassDef():
                yield from _imports(node.body, ())
            case ast.FunctionDef() if node.name in called:
                yield from _imports(node.body, ())
            case ast.Try() if not any(map(_catches, node.handlers)):
                yield from _imports([*node.body, *node.orelse, *node.finalbody], ())


def _catches(handler: ast.ExceptHandler) -> bool:
    """Say whether a handler catches a failed import, and does not end by raising an error."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    is_caught = any(kind is None or ast.unparse(kind) in CAUGHT for kind in kinds)
    return is_caught and not isinstance(handler.body[-1], ast.Raise)


def _suppresses(item: ast.withitem) -> bool:
    """Say whether a context manager is `contextlib.suppress` of failed imports."""
    match item.context_expr:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=kinds):
            return not CAUGHT.isdisjoint(map(ast.unparse, kinds))
    return False
