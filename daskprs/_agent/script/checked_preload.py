"""The packages of `preload`, checked before anything starts: installed ones, and no code of yours.

The process that agents are forked from imports them. It runs no code of the user: whatever that
does would be done to all agents, and no timeout, log or retry would be those of the script.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.script.own_modules import is_installed
from daskprs._suggest import did_you_mean
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Collection


def check_preload(
    preload: Collection[str], source_directory: Path | None = None, *, elsewhere: bool = False
) -> None:
    """Refuse packages that are not installed; `elsewhere` says that workers may have others.

    Raise `OptionError` if a name is that of a module in the folder of the script or of another
    folder of the user, or if no package has it.
    """
    for dotted in preload:
        name = dotted.partition(".")[0]
        place = _beside_script(name, source_directory) or _place(name)
        if place is not None and not is_installed(place):
            why = (
                f": {name} is {place}, and no installed package. The process that agents are "
                "forked from runs no code of yours: leave the name out, and let the script import "
                "the module."
            )
            raise OptionError(Option("preload", (*preload,)), why)
        if place is None and not elsewhere and name not in sys.builtin_module_names:
            near = did_you_mean(name, metadata.packages_distributions())
            why = f": no package {name!r} is installed here.{near} Install it, or leave it out."
            raise OptionError(Option("preload", (*preload,)), why)


def _beside_script(name: str, source_directory: Path | None) -> Path | None:
    """Return the module of this name in the script's folder, which the script would import."""
    if source_directory is None:
        return None
    places = source_directory / f"{name}.py", source_directory / name / "__init__.py"
    return next((place for place in places if place.exists()), None)


def _place(name: str) -> Path | None:
    """Return the file or the folder of a module that this program would import; None: unknown."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # `__main__` has no specification
        spec = None
    if spec is None:
        return None
    if spec.origin in ("built-in", "frozen"):
        return Path(os.__file__)
    places = [spec.origin] if spec.origin else [*(spec.submodule_search_locations or ())]
    return Path(places[0]) if places else None
