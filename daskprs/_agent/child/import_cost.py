"""How long the import of a script has taken, and which installed packages were imported with it."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

SHORTEST_S = 0.5
"""Imports that are quicker name no packages."""
LARGE = 10
"""Number of modules from which on a package is large."""
SHOWN = 3
NEW_OBJECTS = 50_000
"""Number of new objects after which Python collects garbage during an import. With Python's own
number, 700, that took 0.5 of the 2.9 s of PyTorch with torchvision, and found hardly any."""
FOLDERS = ("/site-packages/", "/dist-packages/")


class ImportCost(NamedTuple):
    """The cost of the import of a script."""

    import_s: float = 0.0
    packages: tuple[str, ...] = ()
    """Large installed packages that it has imported, the largest first."""


def measured(load: Callable[[], Any]) -> tuple[Any, ImportCost]:
    """Import a script, and return it with the cost."""
    before, begun = {*sys.modules}, time.perf_counter()
    with _few_collections():
        script = load()
    import_s = time.perf_counter() - begun
    if import_s < SHORTEST_S:
        return script, ImportCost(import_s)
    return script, ImportCost(import_s, _packages(script, sys.modules.keys() - before))


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let Python collect garbage more rarely, unless the script itself says when."""
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, NEW_OBJECTS) if first else 0, *others)
    ours = gc.get_threshold()
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(first, *others)


def _packages(script: Any, new: Collection[str]) -> tuple[str, ...]:
    """Return the large packages that a script names, or else the largest one."""
    counts = Counter(name.partition(".")[0] for name in new)
    large = [
        name
        for name, count in counts.most_common()
        # Of a package that was imported before, such as NumPy, only parts are new.
        if count >= LARGE and name in new and name.isidentifier() and _is_installed(name)
    ]
    # An import of one package imports others with it. The script need not know of them.
    named = _named(script)
    return tuple([name for name in large if name in named][:SHOWN] or large[:1])


def _is_installed(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return any(folder in file for folder in FOLDERS)


def _named(script: Any) -> set[str]:
    """Return the packages whose modules, functions or classes the script has names for."""
    names = getattr(script, "__globals__", None) or getattr(script, "__dict__", {})
    found = set()
    for value in [*names.values()]:
        is_module = isinstance(value, type(sys))
        home = value.__name__ if is_module else getattr(value, "__module__", None)
        if isinstance(home, str):
            found.add(home.partition(".")[0])
    return found
