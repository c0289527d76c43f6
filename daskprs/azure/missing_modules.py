"""Modules that an entry script imports and this Python lacks, found without running anything.

Published scripts come with their own environment, which is not created here. Missing modules are
reported by name before a job starts, not by each agent.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs.agent.child import stand_ins
from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

CALLED = {"init", "run", "shutdown"}
"""Functions of an entry script that are always called: their imports are needed."""
SDK = "azure.ai.ml"
NO_WORKSPACE = ": a step reaches no workspace here; give it data and models as inputs"
CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class MissingModule(NamedTuple):
    """An import that would fail."""

    name: str
    file: Path
    line: int

    def __str__(self) -> str:
        """Return it with its place."""
        hint = NO_WORKSPACE if self.name.startswith(SDK) else ""
        return f"{self.name} ({self.file}, line {self.line}){hint}"


class _Import(NamedTuple):
    """One import statement."""

    module: str
    names: tuple[str, ...]
    """The names in ``from module import names``, which may be modules as well."""
    level: int
    line: int


def refuse_missing_modules(
    script: Path, source_directory: Path, search_path: Sequence[str] = ()
) -> None:
    """Refuse a script that imports modules that this Python lacks; name each with its place."""
    missing = missing_modules(script, source_directory, search_path)
    if missing:
        shown = "".join(f"\n  {one}" for one in missing)
        msg = (
            f"the entry script {script.name} imports what this Python ({sys.executable}) does not "
            f"have:{shown}\nInstall the packages that bring these modules: the environment that a "
            "YAML file or a configuration names is not made here."
        )
        raise ScriptError(msg)


def missing_modules(
    script: Path, source_directory: Path, search_path: Sequence[str] = ()
) -> list[MissingModule]:
    """Return the imports that would fail, each module once; folders are searched as by Python.

    Only imports that always run count: unconditional statements at the top level and in `init`,
    `run` and `shutdown`. A handler that goes on without the module, or `suppress`, makes an import
    optional. Modules in these folders are searched, too.
    """
    search = _Search([str(source_directory), *search_path])
    search.read(script, CALLED)
    return [*search.missing.values()]


class _Search:
    """Goes from the entry script to the modules beside it."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._seen: set[Path] = set()
        self.missing: dict[str, MissingModule] = {}

    def read(self, file: Path, called: Collection[str] = ()) -> None:
        """Search the imports of a file; a file without readable code is its importer's problem."""
        if file in self._seen:
            return
        self._seen.add(file)
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (OSError, SyntaxError, ValueError):
            return
        for one in _imports(tree.body, called):
            if one.level:
                folder = file.parents[min(one.level, len(file.parents)) - 1]
                self._read_below(folder, one.module.split(".") if one.module else [], one.names)
            else:
                self._look_up(one, file)

    def _look_up(self, one: _Import, file: Path) -> None:
        top, *below = one.module.split(".")
        place = importlib.machinery.PathFinder.find_spec(top, self._folders)
        if place is None:
            lacking = _lacking(one)
            if lacking is not None:
                self.missing.setdefault(lacking, MissingModule(lacking, file, one.line))
            return
        if place.origin is not None and place.origin.endswith(".py"):
            self.read(Path(place.origin))
        for folder in place.submodule_search_locations or ():
            self._read_below(Path(folder), below, one.names)

    def _read_below(self, folder: Path, below: Iterable[str], names: Iterable[str]) -> None:
        """Read the modules in our own folders that an import brings in."""
        modules = []
        for name in below:
            folder /= name
            modules.append(folder)
        for path in (*modules, *(folder / name for name in names)):
            self.read(path.parent / f"{path.name}.py")
            self.read(path / "__init__.py")


def _lacking(one: _Import) -> str | None:
    """Return the name of a module that neither this Python nor the agents' stand-ins have."""
    top = one.module.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.modules or importlib.util.find_spec(top):
        return None
    if not stand_ins.stands_for(one.module):
        return one.module if stand_ins.stands_for(top) or one.module.startswith(SDK) else top
    for name in one.names:
        if not stand_ins.has(one.module, name):
            return f"{one.module}.{name}"
    return None


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
