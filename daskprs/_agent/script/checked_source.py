"""The text of an entry script: it is compiled and looked through, and never run."""

from __future__ import annotations

import ast
import inspect
import sys
import threading
import traceback
import types
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from daskprs.errors import Option, ScriptError

OF_AGENTS = {"cloudpickle", "dask", "daskprs", "distributed", "numpy", "pandas", "pyarrow"}
"""Packages that agents import for themselves."""
ANY_NAME = "*"
"""Among the names of a script: it may have others, from a module that it imports whole."""
THREAD_SAFE = "thread_safe"
"""The name by which a script says that several threads may call its `run` at the same time."""
OF_ANOTHER_LANGUAGE = " It has to be a Python file, whose run() may start other programs: Rscript."
_PARSING = threading.Lock()
"""Python 3.11 counts the depth of the trees of all threads together, and raises a `SystemError`."""


def check_source(path: Path, *, elsewhere: bool, by_path: bool = False) -> dict[str, Any]:
    """Compile a script without running it, and look for its `run`; return what is in it.

    A script that is given `by_path` is imported by its file name. It is not in a package.
    """
    tree, code = ast.Module([], []), None
    try:
        body = path.read_bytes()
        with _PARSING:
            tree = ast.parse(body, str(path))
        code = compile(tree, str(path), "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if not (elsewhere and isinstance(error, SyntaxError)):
            shown = "".join(traceback.format_exception_only(error)).rstrip()
            other = "" if path.suffix == ".py" else OF_ANOTHER_LANGUAGE
            msg = f"the entry script cannot be compiled.{other}\n{shown}"
            raise ScriptError(msg) from None
    except OSError as error:
        msg = f"the entry script cannot be read: {error}."
        raise ScriptError(msg) from error
    if by_path:
        _refuse_name_of_package(path, tree)
        _refuse_relative_imports(path, tree)
    if code is None:
        return {}
    run = _find_run(tree)
    names = names_in(code) - _modules(tree)
    if any(isinstance(node, ast.alias) and node.name == ANY_NAME for node in ast.walk(tree)):
        names |= {ANY_NAME}
    if run is None:
        msg = f"the entry script {path} has no function run(mini_batch)."
        raise ScriptError(msg)
    is_async = isinstance(run, ast.AsyncFunctionDef)
    if isinstance(run, ast.FunctionDef | ast.AsyncFunctionDef):
        place = f"{path}, line {run.lineno}"
        functions = [one for one in code.co_consts if isinstance(one, types.CodeType)]
        own = [one for one in functions if one.co_name == "run"]
        yields = bool(own) and bool(own[-1].co_flags & inspect.CO_ASYNC_GENERATOR)
        check_run(place, yields=yields, takes_one=_takes_one(run.args))
    return {"names": names, "is_async": is_async, "is_thread_safe": _is_thread_safe(tree)}


def _modules(tree: ast.Module) -> set[str]:
    """Return the names that a script gives to modules, and to nothing else."""
    modules, others = set[str](), set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Import(aliases):
                modules |= {one.asname or one.name.partition(".")[0] for one in aliases}
            case ast.ImportFrom(names=aliases):
                others |= {one.asname or one.name for one in aliases}
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.Name(name, ast.Store())
            ):
                others.add(name)
    return modules - others


def _is_thread_safe(tree: ast.Module) -> bool:
    """Say whether a script has the line ``thread_safe = True``."""
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(id=name)], ast.Constant(value=True)) if name == THREAD_SAFE:
                return True
    return False


def check_run(place: str, *, yields: bool, takes_one: bool) -> None:
    """Refuse a `run` that no agent can call."""
    if yields:
        msg = f"{place}: run() is an async generator. Let it return all rows at once."
        raise ScriptError(msg)
    if not takes_one:
        msg = (
            f"{place}: run() must take the mini-batch as its one positional argument, or the "
            "mini-batch and its context. Give other values by functools.partial, by a class, or to "
            "a script by the option arguments."
        )
        raise ScriptError(msg)


def _find_run(tree: ast.Module) -> ast.AST | None:
    """Return the node that binds `run`, or one that may, such as a star import; else None."""
    found: ast.AST | None = None
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name="run") | ast.AsyncFunctionDef(name="run"):
                if node in tree.body:
                    return node
            case (
                ast.Name(id="run", ctx=ast.Store())
                | ast.alias(name="*")
                | ast.alias(asname="run")
                | ast.alias(name="run", asname=None)
            ):
                found = node
    return found


def _takes_one(arguments: ast.arguments) -> bool:
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    keywords = [default for default in arguments.kw_defaults if default is None]
    return required <= 2 and (bool(positional) or arguments.vararg is not None) and not keywords  # noqa: PLR2004


def _refuse_name_of_package(path: Path, tree: ast.Module) -> None:
    """Refuse a script that agents, or it itself, would import in place of a package."""
    name = path.stem
    if name in OF_AGENTS or (name in _imports(tree) and _is_elsewhere(name, path.parent)):
        msg = (
            f"the entry script {path} has the name of the package {name}, and `import {name}` "
            "would import the script: its folder is the first that is searched. Rename it."
        )
        raise ScriptError(msg)


def _refuse_relative_imports(path: Path, tree: ast.Module) -> None:
    """Refuse a script by path that can only be imported as a part of its package."""
    for node in tree.body:  # what stands in an `if` or a `try` may be meant
        if isinstance(node, ast.ImportFrom) and node.level:
            folder, name = path.parent.parent, f"{path.parent.name}.{path.stem}"
            while (folder / "__init__.py").exists():
                folder, name = folder.parent, f"{folder.name}.{name}"
            msg = (
                f"line {node.lineno} of the entry script {path} has a relative import, and a "
                "script by its path is no part of a package. Give the name of its module, "
                f"{name!r}, with "
            )
            raise ScriptError(msg, Option("source_directory", str(folder)), ".")


def _imports(tree: ast.Module) -> set[str]:
    """Return the packages that a script imports by name."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                found |= {one.name.partition(".")[0] for one in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
    return found


def _is_elsewhere(name: str, folder: Path) -> bool:
    """Say whether a module of this name is built in, or lies in another folder of the path."""
    others = [one for one in sys.path if Path(one).resolve() != folder]
    return name in sys.builtin_module_names or PathFinder.find_spec(name, others) is not None


def names_in(code: Any) -> frozenset[str]:
    """Return the names in code, and in that of the functions in it."""
    if not isinstance(code, types.CodeType):
        return frozenset()
    return frozenset(code.co_names).union(*map(names_in, code.co_consts))
