"""The modules of a caller that agents cannot import: these travel with the script, by value.

These lie in the caller's folders, or in folders where no import finds them any more. All
other modules travel by name. A module is installed if it lies in the folders of this
interpreter, in a folder of ``sys.path`` that holds the metadata of distributions (``pip install
--target``, pex, zipped layers), or in the list of files of such a distribution. Agents inherit
``PYTHONPATH``, and are given the folders with metadata, which the program may have put on its path.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
import types
from contextlib import contextmanager, suppress
from functools import partial
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from daskprs._agent.protocol.messages import PackageFolder
from daskprs.errors import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGES = {"site-packages", "dist-packages"}
_INSTALLED = {
    *(
        Path(path).resolve()
        for path in (
            *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
            *site.getsitepackages(),
            site.getusersitepackages(),
        )
    ),
    Path(OURS).resolve(),
}
_registry = threading.RLock()
"""Guards cloudpickle's list of modules, which is one for the process."""


class OwnModules:
    """Tells the caller's own modules from those that are installed."""

    def __init__(self, script: Any, source_directory: Path | None) -> None:
        own = {Path.cwd(), *_folders_of(script)}
        if source_directory is not None:
            own.add(source_directory)
        given = {Path(one).resolve() for one in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
        self._listed: set[Path] = set()
        self._is_own: dict[Path, bool] = dict.fromkeys(_INSTALLED, False)
        """Folders, and whether modules below are the caller's; the innermost folder counts."""
        self._resolved: dict[str, tuple[str, bool | None, bool]] = {}
        """Folders of modules as named, then without links, and what `_around` says of them."""
        self._found: dict[str, bool] = {}
        """What `_is_found` has said of packages."""
        path = list(dict.fromkeys(Path(one).resolve() for one in sys.path))
        before = set(takewhile(lambda one: one not in _INSTALLED, path))
        self.packages: tuple[PackageFolder, ...] = ()
        """The folders of packages that agents do not find by themselves, in the path's order."""
        for folder in dict.fromkeys([*path, *own]):
            if not _INSTALLED.isdisjoint([folder, *folder.parents]):
                continue
            installed = _installed_in(folder)
            if installed and folder in path:
                self.packages += (PackageFolder(str(folder), folder in before),)
            if _is_of_packages(folder):
                continue
            listed = [one.files for one in installed]
            if folder in own and all(listed):  # by pip install --target, into the caller's folder
                self._is_own[folder] = len(folder.parts) > 1
                self._listed |= {folder / str(file) for files in listed for file in files or ()}
            elif installed:
                self._is_own[folder] = False
            elif folder not in given:  # the program has put it on its path: agents lack it
                self._is_own[folder] = True

    def has(self, file: str) -> bool:
        """Say whether a file of code is the caller's, and lies in a known folder."""
        return self._are_own_around(file) is True

    def installed(self, file: str) -> bool:
        """Say whether a file of code is an installed one."""
        return self._are_own_around(file) is False

    def _are_own_around(self, file: str) -> bool | None:
        # A program has a thousand modules, in some hundred folders. To resolve each file, as a
        # `Path`, took a third of the time of a small job; to ask of each whether it is a link takes
        # 10 ms or more. So no file in a folder of installed packages is looked at.
        folder, name = os.path.split(file)
        path, own, is_of_packages = self._around(folder)
        if is_of_packages or own is False:
            return False
        if os.path.islink(file):  # noqa: PTH114
            folder, name = os.path.split(Path(file).resolve())
            path, own, is_of_packages = self._around(folder)
        if is_of_packages or (self._listed and Path(path, name) in self._listed):
            return False
        return own

    def _around(self, folder: str) -> tuple[str, bool | None, bool]:
        """Return a folder without links, whether modules there are own, and are of packages.

        What is known of the folder above is used: to resolve each folder by itself looks at each
        name on its way, some thousand for one program.
        """
        found = self._resolved.get(folder)
        if found is None:
            above, name = os.path.split(folder)
            if name in {"", ".", ".."} or not above or os.path.islink(folder):  # noqa: PTH114
                path = Path(folder).resolve()
                own = next(
                    (self._is_own[one] for one in (path, *path.parents) if one in self._is_own),
                    None,
                )
                found = str(path), own, _is_of_packages(path)
            else:
                path_above, own, is_of_packages = self._around(above)
                resolved = os.path.join(path_above, name)  # noqa: PTH118
                own = self._is_own.get(Path(resolved), own)
                found = resolved, own, is_of_packages or name in _PACKAGES
            self._resolved[folder] = found
        return found

    @contextmanager
    def by_value(self) -> Iterator[None]:
        """Have cloudpickle pickle these modules by value, besides those that the caller chose."""
        with _registry:
            # By name: a spawned process, such as a worker under a nanny, has its program under two.
            known = set(cloudpickle.list_registry_pickle_by_value())
            registered = []
            for module in list(sys.modules.values()):
                if self._are_of(module) and module.__name__ not in known:
                    try:
                        cloudpickle.register_pickle_by_value(module)
                    except ValueError:
                        continue
                    registered.append(module)
                    known.add(module.__name__)
            try:
                yield
            finally:
                for module in registered:
                    cloudpickle.unregister_pickle_by_value(module)

    def _are_of(self, module: Any) -> bool:
        """Say whether a module is the caller's; `__main__` always travels by value."""
        if not isinstance(module, types.ModuleType) or module.__name__ == "__main__":
            return False
        own: bool | None = False
        if file := getattr(module, "__file__", None):
            own = self._are_own_around(str(file))
        else:  # a folder without __init__.py is a package without a file
            with suppress(KeyError, TypeError):  # the package around it has gone; no list
                for folder in list(getattr(module, "__path__", ()))[:1]:
                    _, own, is_of_packages = self._around(str(folder))
                    own = not is_of_packages and own
        return not self._is_found(module.__name__) if own is None else own

    def _is_found(self, name: str) -> bool:
        """Say whether an import finds the package of a module outside of all known folders.

        It does not if the program has left the folder, as a notebook does by ``%cd``, or has taken
        the folder off its path. The agents do not find the module either.
        """
        package = name.partition(".")[0]
        if package not in self._found:
            finders = [one for one in sys.meta_path if hasattr(one, "find_spec")]
            specs = filter(None, (one.find_spec(package, None) for one in finders))
            own = (one.has_location and self.has(str(one.origin)) for one in specs)
            self._found[package] = not all(own)
        return self._found[package]


def is_installed(place: Path) -> bool:
    """Return whether a module is one that agents find by themselves, and none of the caller's."""
    place = place.resolve()
    if _is_of_packages(place) or not _INSTALLED.isdisjoint(place.parents):
        return True
    given = {Path(one).resolve() for one in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    return any(bool(_installed_in(one)) for one in given.intersection(place.parents))


def _is_of_packages(path: Path) -> bool:
    return not _PACKAGES.isdisjoint(path.parts)


def _installed_in(folder: Path) -> list[metadata.Distribution]:
    """Return the distributions that are installed in a folder or an archive.

    The metadata that a build leaves beside its sources, as ``name.egg-info``, says nothing of the
    kind: agents may lack these sources, or have other ones under their name.
    """
    marks = "METADATA", "installed-files.txt"
    found = metadata.distributions(path=[str(folder)])
    return [one for one in found if any(one.read_text(mark) is not None for mark in marks)]


def _folders_of(script: Any) -> Iterator[Path]:
    """Yield the folders that the modules of a script, of the program and of the caller are in."""
    while isinstance(script, partial):
        script = script.func
    of_script = getattr(script, "__module__", None) or type(script).__module__
    frame: Any = sys._getframe()  # noqa: SLF001 - as `warnings` does
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    of_caller = None if frame is None else frame.f_globals.get("__name__")
    for name in {of_script, of_caller, "__main__"}:
        module = sys.modules.get(str(name))
        file = getattr(module, "__file__", None)
        if file:
            spec = getattr(module, "__spec__", None)
            dotted = str(name) if spec is None else spec.name
            path = Path(file).resolve()
            depth = dotted.count(".") + (path.stem == "__init__")
            yield path.parents[min(depth, len(path.parents) - 1)]
