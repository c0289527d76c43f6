"""Pickles of what `run` returned, with the script's own classes by value.

Whoever reads the rows of a job does not have the script's folder on `sys.path`, so that a pickle
that only names such a class could not be read there, after all work was done.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.errors import ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from _typeshed import SupportsWrite

MOST_CLASS_BYTES = 1 << 20
"""Bytes of the largest class: a pickle of some rows has each of its classes once."""
_folders: list[Path] = []
"""The folders of the script: what is imported from them is the script's own."""


def classes_come_from(folder: str | None) -> None:
    """Say, in an agent, which folder the script is imported from."""
    _folders[:] = [] if folder is None else [Path(folder).resolve()]


class RowPickler(pickle.Pickler):
    """Pickles rows; their classes that a reader could not import travel by value."""

    def __init__(self, file: SupportsWrite[bytes]) -> None:
        super().__init__(file, protocol=5)

    def reducer_override(self, value: Any) -> Any:
        """Return how a class of the script is made anew; leave all else as it is."""
        if isinstance(value, type) and _is_own(value):
            return pickle.loads, (_by_value(value),)
        return NotImplemented


def row_pickle(value: Any) -> bytes:
    """Return the pickle of a value on its own."""
    file = io.BytesIO()
    RowPickler(file).dump(value)
    return file.getvalue()


@lru_cache
def _is_own(kind: type) -> bool:
    """Say whether a class can be imported in this process at most."""
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        return True
    return _is_of_script(module)


def _is_of_script(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not file or not _folders:
        return False
    return any(Path(file).resolve().is_relative_to(folder) for folder in _folders)


@lru_cache
def _by_value(kind: type) -> bytes:
    """Return the pickle of a class with its definition."""
    import cloudpickle

    where = f"run() returned an object of the script's class {kind.__qualname__!r}"
    advice = "Return plain values, or an object of an installed package."
    try:
        with _scripts_modules_by_value():
            body: bytes = cloudpickle.dumps(kind, protocol=5)
    except Exception as error:
        msg = (
            f"{where}, whose definition cannot be sent to the reader: {type(error).__name__}: "
            f"{error}. {advice}"
        )
        raise ReturnTypeError(msg) from error
    if len(body) > MOST_CLASS_BYTES:
        msg = (
            f"{where}, whose definition has {len(body):,} bytes: its methods use large globals of "
            f"the script. {advice}"
        )
        raise ReturnTypeError(msg)
    return body


@contextmanager
def _scripts_modules_by_value() -> Iterator[None]:
    import cloudpickle

    own = [one for one in list(sys.modules.values()) if _is_of_script(one)]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
        _name_classes(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _name_classes(module: ModuleType) -> None:
    """Name the classes of a module as every agent of the script names them.

    cloudpickle makes one class of all definitions with one name, and names them at random: the
    members of an enumeration from two agents would be unequal.
    """
    from cloudpickle import cloudpickle

    text = Path(str(module.__file__)).read_bytes()
    for kind in _classes_in(module, module.__name__):
        if kind not in cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS:  # noqa: SLF001 - no public way
            named = f"{kind.__module__} {kind.__qualname__} ".encode() + text
            name = hashlib.blake2b(named, digest_size=16).hexdigest()
            cloudpickle._lookup_class_or_track(name, kind)  # noqa: SLF001


def _classes_in(holder: Any, module: str, within: str = "") -> Iterator[type]:
    """Yield the classes that a module defines, also within each other."""
    for value in list(vars(holder).values()):
        is_its = isinstance(value, type) and value.__module__ == module
        if is_its and value.__qualname__.startswith(within):
            yield value
            yield from _classes_in(value, module, f"{value.__qualname__}.")
