"""Pickles of what `run` returned, with the script's own classes and functions by value.

Whoever reads the rows of a job may not have the script's folder on `sys.path`, so that a pickle
that only names such a class could not be read there, after all work was done. A reader who has
loaded the same class takes this one: otherwise the rows would not equal what the reader compares
them with. Nothing is imported for that, since a module runs code when it is imported.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import sysconfig
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudpickle import cloudpickle

from daskprs._arrow.array_parts import part_alone
from daskprs._output.rows.definitions import digest_of
from daskprs.errors import OURS, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import SupportsWrite

MOST_CLASS_BYTES = 1 << 20
"""Bytes of the largest class: a pickle of some rows has each of its classes once."""
INSTALLED = tuple(
    f"{folder}{os.sep}"
    for place in {sys.prefix, sys.base_prefix, str(Path(OURS)), *sysconfig.get_paths().values()}
    for folder in {place, str(Path(place).resolve())}
)
"""Folders whose modules are not the script's, though a home or a project may hold them."""
_PARTS_OF_DEFINITION = 6
"""The length of the tuple to which cloudpickle reduces a definition; that of a name has two."""
_folders: list[Path] = []
"""The folders of the script: what is imported from them is the script's own."""
_joined: dict[str, Any] = {"of": None, "table": {}}
"""The tables of reducers that were joined last, and the one that came of it."""


class Definition(NamedTuple):
    """The definition of a class, a function or a module of the script."""

    module: str
    name: str
    """Its qualified name in the module; empty: the module itself."""
    digest: str
    """The digest of the definition in the agent; empty: it has none, and equals no other one."""
    own: tuple[str, ...] = ()
    """The names of the script's modules that the definition uses."""


def classes_come_from(folder: str | None) -> None:
    """Say, in an agent, which folder the script is imported from."""
    _folders[:] = [] if folder is None else [Path(folder).resolve()]
    for known in (_with_packages, _is_in_folders, _check):
        known.cache_clear()


def folder_of_classes() -> str | None:
    """Return the folder that the script of this process is imported from."""
    return str(_folders[0]) if _folders else None


class RowPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles rows; classes and functions that a reader could not import travel by value."""

    def __init__(self, file: SupportsWrite[bytes], *, checks: bool = True) -> None:
        super().__init__(file, protocol=5)
        self._checks = checks
        self.dispatch_table = _reducers()
        self._places: dict[Any, Definition | None] = {}

    def reducer_override(self, value: Any) -> Any:
        """Return how a definition, or a part of a tensor or of an array of Arrow, is made anew."""
        if not isinstance(value, (type, FunctionType, ModuleType)):
            return part_alone(value)
        is_own = _is_of_script(value)
        reduced = self._by_value(value) if is_own else super().reducer_override(value)
        if self._checks and (is_own or _makes_anew(reduced)):
            _check(value)
        place = self._place(value) if is_own and self._checks else None
        if place is None:
            return reduced
        make, args, state, _, _, fill = reduced
        return readers_or_new, (place, make, args), (place, fill, state), None, None, fill_new

    def _place(self, value: Any) -> Definition | None:
        if value not in self._places:
            self._places[value] = _place(value)
        return self._places[value]

    def _by_value(self, value: Any) -> tuple[Any, ...]:
        reduced: tuple[Any, ...]
        if isinstance(value, type):
            if value not in cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS:  # noqa: SLF001
                file = getattr(sys.modules[value.__module__], "__file__", "")
                _name_class(value, _digest(str(file)))
            reduced = cloudpickle._dynamic_class_reduce(value)  # noqa: SLF001 - no public way
        elif isinstance(value, FunctionType):
            reduced = self._dynamic_function_reduce(value)
        else:
            skipped = {"__builtins__", "__loader__", "__spec__", "__cached__"}
            state = {name: one for name, one in vars(value).items() if name not in skipped}
            reduced = ModuleType, (value.__name__,), state, None, None, _fill_module
        return reduced


def _reducers() -> dict[Any, Any]:
    """Return the functions that reduce objects, by class.

    cloudpickle's own chain of two tables is asked for every object, and is slow. To join the two
    for each mini-batch took a fifth of the time of one that returns a number; to see that a script
    has changed neither is cheap.
    """
    tables: list[Any] = cloudpickle.Pickler.dispatch_table.maps
    if _joined["of"] != tables:
        _joined["of"] = [dict(table) for table in tables]
        _joined["table"] = {key: one for table in reversed(tables) for key, one in table.items()}
    table: dict[Any, Any] = _joined["table"]
    return table


def readers_or_new(place: Definition, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return, in a reader, its own definition, or a new one that `fill_new` is to complete."""
    found = _readers(place)
    return make(*args) if found is None else found


def fill_new(value: Any, state: tuple[Definition, Callable[[Any, Any], Any], Any]) -> None:
    """Complete a definition that `readers_or_new` has made; leave the reader's own as it is."""
    place, fill, content = state
    if _loaded(place) is not value:
        fill(value, content)


def _makes_anew(reduced: Any) -> bool:
    """Say whether cloudpickle sends a definition, not the name of one."""
    return isinstance(reduced, tuple) and len(reduced) == _PARTS_OF_DEFINITION


def row_pickle(value: Any, *, checks: bool = True) -> bytes:
    """Return the pickle of a value on its own."""
    file = io.BytesIO()
    RowPickler(file, checks=checks).dump(value)
    return file.getvalue()


def _fill_module(module: ModuleType, names: dict[str, Any]) -> None:
    vars(module).update(names)


def _is_of_script(value: Any) -> bool:
    """Say whether a module of the script defines a value, or is it."""
    return _is_own_module(str(_module_and_name(value)[0]))


def _is_own_module(name: str) -> bool:
    if name == "__main__":  # of the program or the notebook, which has given the script
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return bool(file and _folders) and _is_in_folders(str(file))


@lru_cache
def _is_in_folders(file: str) -> bool:
    """Say whether the script has a file: its folder may be a project that holds its environment."""
    path = Path(file).resolve()
    for folder in filter(path.is_relative_to, _folders):
        places = (*INSTALLED, *_with_packages())
        below = (one for one in places if Path(one) != folder and folder in Path(one).parents)
        if not str(path).startswith(tuple(below)):
            return True
    return False


@lru_cache
def _with_packages() -> tuple[str, ...]:
    """Return the folders of the path that hold the metadata of packages (``pip --target``)."""
    places = (Path(place).resolve() for place in sys.path)
    return tuple(f"{place}{os.sep}" for place in places if _has_packages(place))


def _has_packages(place: Path) -> bool:
    try:
        return any(place.glob("*.dist-info"))
    except OSError:  # its content is closed to this user, also to imports
        return False


@lru_cache
def _check(value: Any) -> None:
    """Refuse a definition that cannot be sent, or is large."""
    if isinstance(value, ModuleType):
        what = f"with the script's module {value.__name__!r}"
    else:
        kind = "of the script's class" if isinstance(value, type) else "with the script's function"
        what = f"{kind} {value.__qualname__!r}"
    where = f"run() returned an object {what}"
    advice = (
        "Return plain values, or an object of an installed package, or write text alone: by "
        "output_dir, without output and keep_rows."
    )
    try:
        body = row_pickle(value, checks=False)
    except Exception as error:  # what a class refers to may raise anything when it is pickled
        msg = (
            f"{where}, whose definition cannot be sent to the reader: {type(error).__name__}: "
            f"{error}. {advice}"
        )
        raise ReturnTypeError(msg) from error
    if len(body) > MOST_CLASS_BYTES:
        msg = (
            f"{where}, whose definition has {len(body):,} bytes: it uses large globals of the "
            f"script. {advice}"
        )
        raise ReturnTypeError(msg)


def _place(value: Any) -> Definition | None:
    """Return where a reader may find a definition; None: it has no name in its module."""
    module, name = _module_and_name(value)
    if _named(sys.modules[module], name) is None:  # the function of an inline job has copies
        return None
    own = set()

    def is_own(used: str) -> bool:
        is_it = _is_own_module(used)
        if is_it:
            own.add(used)
        return is_it

    digest = digest_of(value, is_own)
    return Definition(module, name, digest, tuple(sorted(own)))


def _readers(place: Definition) -> Any:
    """Return what this process has loaded in a place; None: nothing, or something else."""
    found = _loaded(place)
    if found is None or not place.digest:
        return None
    return found if digest_of(found, place.own.__contains__) == place.digest else None


def _loaded(place: Definition) -> Any:
    module = sys.modules.get(place.module)
    return None if module is None else _named(module, place.name)


def _module_and_name(value: Any) -> tuple[str, str]:
    if isinstance(value, ModuleType):
        return value.__name__, ""
    return value.__module__, value.__qualname__


def _named(module: ModuleType, name: str) -> Any:
    try:
        return attrgetter(name)(module) if name else module
    except AttributeError:
        return None


def _digest(file: str) -> str:
    """Return the digest of a module's file; empty: there is none."""
    try:
        status = Path(file).stat()
        return _digest_at(file, status.st_mtime_ns, status.st_size)
    except OSError:
        return ""


@lru_cache(1024)
def _digest_at(file: str, _time: int, _size: int) -> str:
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()


def name_class_of_program(kind: type) -> None:
    """Name a class of the program by its definition, before agents get it and change its globals.

    Then it is one class for all agents, for a resume by another process, and for the reader.
    """
    if kind.__module__ == "__main__" and (content := digest_of(kind, _is_own_module)):
        _name_class(kind, content)


def _name_class(kind: type, content: str) -> None:
    """Name a class as every other process names it.

    cloudpickle makes one class of all definitions with one name, and names them at random: the
    members of an enumeration from two agents would be unequal.
    """
    module, name = _module_and_name(kind)
    if _named(sys.modules[module], name) is kind:
        words = module, name, content
        known = hashlib.blake2b(" ".join(words).encode(), digest_size=16).hexdigest()
        cloudpickle._lookup_class_or_track(known, kind)  # noqa: SLF001 - no public way
