"""Modules that scripts may import without having them: ``daskprs``, and those of plugins."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable

from .entry_script import EntryScript, MiniBatchContext

if TYPE_CHECKING:
    import types
    from collections.abc import Mapping, Sequence

OWN = "daskprs"
NAMES = {"EntryScript": EntryScript, "MiniBatchContext": MiniBatchContext}
"""The names of daskprs that scripts may import under another interpreter."""


# None of these classes has a base of `importlib.abc`, which takes 5 ms to import.


class OwnModule:
    """Makes ``daskprs`` where it is not installed; an installed one comes first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find ``daskprs`` alone."""
        del path, target
        loader: Any = self
        if fullname != OWN:
            return None
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module its names."""
        module.__dict__.update(NAMES)
        module.__getattr__ = _lacking  # type: ignore[method-assign]


def _lacking(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    msg = (
        f"daskprs.{name}: the script runs under {sys.executable}, where daskprs is not installed, "
        f"and only {' and '.join(sorted(NAMES))} can be imported from it. Run the script under the "
        "Python of daskprs."
    )
    raise AttributeError(msg)


class LateStandIns:
    """Installs the stand-ins of a plugin once a script imports one of the modules.

    Most scripts import none of them, and their agents start without.
    """

    def __init__(self, modules: Sequence[str], load: Callable[[], None]) -> None:
        self._modules = frozenset(modules)
        """The top-level modules that the stand-ins are for."""
        self._load: Callable[[], None] | None = load
        self._loading = threading.RLock()

    def install(self) -> None:
        """Stand before all finders; what is imported already has its stand-ins at once."""
        sys.meta_path.insert(0, self)
        if not self._modules.isdisjoint(sys.modules):
            self._load_once()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Install the stand-ins, and ask all finders anew."""
        if fullname.partition(".")[0] not in self._modules:
            return None
        self._load_once()
        others = (finder for finder in sys.meta_path[:] if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        return next(filter(None, found), None)

    def _load_once(self) -> None:
        with self._loading:  # another thread that imports such a module waits
            load, self._load = self._load, None
            if load is not None:
                load()


class TravelledPackage:
    """Imports a package whose source has come with the job; `folder` is its name in tracebacks."""

    def __init__(self, name: str, sources: Mapping[str, str], folder: str) -> None:
        self._name = name
        self._sources = {f"{name}.{one}" if one else name: text for one, text in sources.items()}
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the modules of the package."""
        del path, target
        if fullname not in self._sources:
            return None
        loader: Any = self
        return importlib.machinery.ModuleSpec(
            fullname, loader, origin=self._file(fullname), is_package=fullname == self._name
        )

    def get_source(self, fullname: str) -> str:
        """Return the source of a module."""
        return self._sources[fullname]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the source of a module."""
        name = module.__name__
        code = compile(self._sources[name], self._file(name), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - as an import does

    def _file(self, fullname: str) -> str:
        return f"{self._folder}{fullname}.py"


def install() -> None:
    """Let scripts import ``daskprs``."""
    sys.meta_path.append(OwnModule())


def install_travelled(
    package: str, modules: Sequence[str], sources: Mapping[str, str], folder: str
) -> None:
    """Let scripts import modules for which a package stands in whose source has travelled."""
    name = package.replace(".", "_")

    def load() -> None:
        sys.meta_path.append(TravelledPackage(name, sources, folder))
        importlib.import_module(f"{name}.elsewhere").install()

    LateStandIns(modules, load).install()
