"""Plugins: what packages at the edge add to the core, as dotted names that are imported on use.

A package of daskprs is a plugin if it has a module ``plugin`` with a `Plugin` called ``PLUGIN``.
The files are looked for beside this one, so that a source folder or a zip needs no metadata. Other
distributions add commands and readers by entry points, which are read only for a name that neither
the core nor its own plugins have.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoints

COMMANDS, READERS = "daskprs.commands", "daskprs.readers"
"""The groups of entry points of other distributions."""
PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """The additions of one package, by name; a value ``module:name`` is imported at first use."""

    commands: Mapping[str, str] = field(default_factory=dict)
    """Commands of click. ``run *.yml`` is for `run` with a script of this suffix, and
    ``run --as`` for `run` with this option."""
    variable_files: Mapping[str, str] = field(default_factory=dict)
    """Options of the commands that go on with a job, for files that set environment variables: each
    a function from such a file to the variables. Its docstring is the help."""
    readers: Mapping[str, str] = field(default_factory=dict)
    """By the name of a file that makes its folder one input: functions as `open_source` is."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Kinds of folders that hold those of several jobs, each a class with the methods of a
    `JointFolder`, by the name of the file that marks such a folder."""
    own_folders: tuple[str, ...] = ()
    """Names of other folders that do not count as source, wherever they lie."""
    in_job_folders: tuple[str, ...] = ()
    """Names of what it may put into a job folder before the job makes it."""
    drivers: Mapping[str, str] = field(default_factory=dict)
    """Functions that drive a job in a process of its own, from a path and what no file has."""
    stand_ins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By package: the top-level modules that scripts may import and that it stands in for."""
    place_variables: str = ""
    """A pattern of the environment variables whose values are places, and no secrets."""


@cache
def own() -> tuple[Plugin, ...]:
    """Return the plugins of daskprs itself, in the order of their names."""
    # Agents import this module, and need none of these.
    import pkgutil
    from importlib.machinery import PathFinder

    found = []
    for place in importlib.import_module(PACKAGE).__path__:
        for one in pkgutil.iter_modules([place]):
            name = f"{PACKAGE}.{one.name}.plugin"
            if one.ispkg and PathFinder.find_spec(name, [f"{place}/{one.name}"]) is not None:
                found.append(importlib.import_module(name).PLUGIN)
    return tuple(found)


def own_names(kind: str) -> dict[str, Any]:
    """Return everything of a kind (a field of `Plugin`) that the plugins of daskprs add."""
    return {name: value for plugin in own() for name, value in getattr(plugin, kind).items()}


def loaded(dotted: str) -> Any:
    """Return the object of a name like ``module:name``, or the module alone."""
    module, _, name = dotted.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def own_part(kind: str, name: str) -> Any:
    """Return a part of a kind that a plugin of daskprs adds under a name; None without one."""
    dotted = own_names(kind).get(name)
    return None if dotted is None else loaded(dotted)


def installed_names(group: str) -> list[str]:
    """Return the names that other distributions add to a group of entry points."""
    return sorted({one.name for one in _entry_points(group)})


def installed_name(group: str, name: str) -> str | None:
    """Return the dotted name that another distribution adds to a group; None without one.

    Raises
    ------
    UsageError
        When several distributions have the name.

    """
    values = sorted({one.value for one in _entry_points(group).select(name=name)})
    if len(values) > 1:
        msg = (
            f"{group}: several packages have the name {name!r}: {' and '.join(values)}. Uninstall "
            "all but one."
        )
        raise UsageError(msg)
    return values[0] if values else None


def installed_part(group: str, name: str) -> Any:
    """Return the object that another distribution adds to a group under a name; None without one.

    Raises
    ------
    UsageError
        When it cannot be imported.

    """
    dotted = installed_name(group, name)
    if dotted is None:
        return None
    try:
        return loaded(dotted)
    except (Exception, SystemExit) as error:  # whatever the module of a stranger raises
        msg = (
            f"{group}: {name!r} is {dotted}, which cannot be imported: {type(error).__name__}: "
            f"{error}. Mend that package, or uninstall it."
        )
        raise UsageError(msg) from error


def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points  # it takes as long as the rest of daskprs

    return entry_points(group=group)
