"""Files and modules beside the script that the script looks for elsewhere."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.foreign.raised import links_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._agent.protocol.messages import ScriptSpec

OF_IMPORT = {"AttributeError", "ImportError"}
OF_MODULE = r"(?:module|cannot import name '[^']*' from|named) '([\w.]+)'"
"""The module of which an error says that it lacks a name or a module."""
QUOTED = "'([^']+)'|\"([^\"]+)\""


def hint_at_script(error: BaseException, script: ScriptSpec) -> str:
    """Return how to open a file beside the script that an error misses; else an empty text."""
    with suppress(OSError, ValueError):  # a name that no file can have
        for name in _missing(error):
            for folder, where, way in _places(script):
                if (folder / name).exists():
                    here = f"the working directory is {Path.cwd()}"
                    return f"{name} lies {where}, but {here}. Write {way} / {name!r}."
    return ""


def hint_at_import(error: BaseException, script: ScriptSpec) -> str:
    """Return how to import a module beside the script, where a relative import fails; else ''."""
    if script.source_directory is None or script.file is None:
        return ""
    if not any("no known parent package" in message for _, _, message in links_of(error)):
        return ""
    folder = Path(script.file).parent.relative_to(script.source_directory)
    module = ".".join((*folder.parts, "MODULE"))
    return (
        "The script is imported by itself, with its source directory on sys.path, and not as a "
        f"part of a package. Write from {module} import NAME in place of from .MODULE import NAME."
    )


def hint_at_own_module(error: BaseException, script: ScriptSpec) -> str:
    """Return why a module of a program or notebook is not there for one of its functions; or ''."""
    for _, _, message in links_of(error) if script.pickled is not None else ():
        found = re.search(r"No module named '(\w+)'", message)
        name = found[1] if found else ""
        for folder, *_ in _places(script) if name else ():
            if (folder / f"{name}.py").exists() or (folder / name).is_dir():
                return (
                    f"{name} lies in {folder}, but a module that only a function imports does not "
                    f"travel with the function. Import {name} outside of the function, and not in "
                    "it."
                )
    return ""


def hint_at_name(error: BaseException, script: ScriptSpec) -> str:
    """Return why an import finds another module than the one beside the script; else ''."""
    if script.source_directory is None:
        return ""
    root = Path(script.source_directory)
    for classes, _, message in links_of(error):
        found = re.search(OF_MODULE, message) if OF_IMPORT & {*classes.split()} else None
        name = found and found[1].partition(".")[0]
        if not name or name not in sys.modules:
            continue
        found_in = getattr(sys.modules[name], "__file__", None)
        is_beside = found_in is not None and Path(found_in).is_relative_to(root)
        for own, file in (f"{name}.py", f"{name}.py"), (name, f"{name}/__init__.py"):
            if (root / file).exists() and not is_beside:
                return (
                    f"{own} lies beside the script, but 'import {name}' gives another module of "
                    f"this name, which is loaded before the script. Rename {own}."
                )
    return ""


def _missing(error: BaseException) -> Iterator[str]:
    """Yield the relative paths that an error and its causes do not find."""
    for classes, _, message in links_of(error):
        if FileNotFoundError.__name__ in classes.split():
            names = ("".join(found) for found in re.findall(QUOTED, message))
            yield from (name for name in names if not Path(name).is_absolute())


def _places(script: ScriptSpec) -> Iterator[tuple[Path, str, str]]:
    """Yield the folders of a script, where they are for people, and how the script names them."""
    beside = "beside the script"
    if script.source_directory is not None and script.file is not None:
        root, file = Path(script.source_directory), Path(script.file)
        yield file.parent, beside, "Path(__file__).parent"
        yield root, beside, f"Path(__file__).parents[{len(file.relative_to(root).parents) - 1}]"
    for source in script.sources:
        if not source.cell and source.text:
            yield Path(source.file).parent, beside, f"Path({str(Path(source.file).parent)!r})"
    if script.called_in:
        yield Path(script.called_in), f"in {script.called_in}", f"Path({script.called_in!r})"
