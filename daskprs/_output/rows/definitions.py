"""Digests of definitions: what a class or a function of the script does, as it is loaded.

Two processes get the same digest where the definition is the same, with all that it uses: members,
base classes, globals of its functions. The file of a module does not tell: it may have been edited
after the module was loaded, and `init()` may have changed globals of the module.
"""

from __future__ import annotations

import copyreg
import hashlib
from functools import cached_property
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any, TypeVar

from cloudpickle import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_PARTS = 20_000
"""Most values that are looked at: a global may be a large table."""
_MADE_BY_PYTHON = frozenset(
    {
        *("__dict__", "__weakref__", "__module__", "__slotnames__", "_abc_impl"),
        *("__static_attributes__", "__firstlineno__", "__annotations_cache__"),
        # An enumeration of flags keeps each combination that was ever made of its members.
        *("_value2member_map_", "_hashable_values_", "_unhashable_values_"),
        *("__builtins__", "__loader__", "__spec__", "__cached__", "__file__", "__path__"),
    }
)
"""Names in classes and modules that depend on the process, or on how the file is read."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented))
_CODE = (
    *("co_name", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_code"),
    *("co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    "co_exceptiontable",
)


def digest_of(value: Any, is_own: Callable[[str], bool]) -> str:
    """Return the digest of a class, a function or a module; empty if it has none.

    `is_own` says, for the name of a module, whether its definitions are looked into. All others
    count by their names, unless they have none by which cloudpickle would find them again.
    """
    parts = _Parts(is_own)
    try:
        parts.add(value)
    except Exception:  # noqa: BLE001 - the code of any class runs here, and some have no pickle
        return ""
    return parts.digest.hexdigest()


class _Parts:
    """The parts of a definition, one after the other, in a digest."""

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self._is_own = is_own
        self._count = 0
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []
        """Objects that were seen: Python gives the id of a freed object to another one."""

    def add(self, value: Any) -> None:
        """Add a value with all that it refers to."""
        self._count += 1
        if self._count > MOST_PARTS:
            msg = "a definition of too many parts"
            raise ValueError(msg)
        kind = type(value)
        if kind is bytes:  # of an array, they may be many
            self._note(kind.__name__, value)
        elif kind in _PLAIN:
            self._note(kind.__name__, repr(value))
        elif kind is tuple:
            self._all("tuple", value)
        elif kind in (set, frozenset):
            self._note(kind.__name__, *sorted(map(self._of_one, value)))
        elif kind is CodeType:
            self._all("code", [getattr(value, name) for name in _CODE])
        elif id(value) in self._seen:
            self._note("seen", str(self._seen[id(value)]))
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._object(value)

    def _of_one(self, value: Any) -> str:
        """Return the digest of a value whose place among others says nothing."""
        parts = _Parts(self._is_own)
        parts.add(value)
        return parts.digest.hexdigest()

    def _object(self, value: Any) -> None:
        match value:
            case type() | FunctionType() if self._is_own(value.__module__) or not _has_name(value):
                self._note(type(value).__name__, value.__module__, value.__qualname__)
                self._class(value) if isinstance(value, type) else self._function(value)
            case ModuleType() if self._is_own(value.__name__) or not _has_name(value):
                self._names("module", vars(value))
            case ModuleType():
                self._note("named", value.__name__)
            case BuiltinFunctionType() if not isinstance(value.__self__, (ModuleType, type(None))):
                self._all("method", [value.__self__, value.__name__])
            case type() | FunctionType() | BuiltinFunctionType():
                self._note("named", str(value.__module__), value.__qualname__)
            case _:
                self._all(type(value).__name__, _held(value))

    def _class(self, value: type) -> None:
        self._all("bases", [type(value), *value.__bases__])
        # As cloudpickle does, whose classes lack members that a base class has, too.
        members = cloudpickle._extract_class_dict(value)  # noqa: SLF001 - no public way
        if "__dataclass_fields__" in members:  # by the representation of defaults, such as of a set
            members.pop("__doc__", None)
        self._names("members", members)  # its docstring, too: it may be a prompt

    def _function(self, value: FunctionType) -> None:
        used = sorted(cloudpickle._extract_code_globals(value.__code__))  # noqa: SLF001 - no public way
        known = value.__globals__
        self._names("globals", {name: known[name] for name in used if name in known})
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, value.__closure__]
        parts.append(value.__annotations__)  # by which a script asks for the context
        self._all("function", [*parts, vars(value)])

    def _names(self, word: str, names: Any) -> None:
        self._note(word)
        for name in sorted(names):
            if name not in _MADE_BY_PYTHON:
                self._note(name)
                self.add(names[name])

    def _all(self, word: str, values: Any) -> None:
        self._note(word, str(len(values)))
        for value in values:
            self.add(value)

    def _note(self, *words: str | bytes) -> None:
        for word in words:
            body = word if isinstance(word, bytes) else word.encode("utf-8", "backslashreplace")
            self.digest.update(len(body).to_bytes(8, "little"))
            self.digest.update(body)


def _has_name(value: Any) -> bool:
    """Say whether cloudpickle sends the name of a definition in place of it."""
    return bool(cloudpickle._should_pickle_by_reference(value))  # noqa: SLF001 - no public way


def _held(value: Any) -> list[Any]:
    """Return what an object holds: as it is known of the type, or as pickle takes it apart."""
    match value:
        case list() if type(value) is list:
            held = value
        case dict() | MappingProxyType() if type(value) in (dict, MappingProxyType):
            held = [part for item in value.items() for part in item]
        case MemberDescriptorType() | GetSetDescriptorType():
            held = [value.__qualname__]
        case property():
            held = [value.fget, value.fset, value.fdel]
        case staticmethod() | classmethod():
            held = [value.__func__]
        case cached_property():  # whose lock has no pickle
            held = [value.func]
        case CellType():
            held = [value.cell_contents] if value != CellType() else []
        case TypeVar():  # that of a class which cloudpickle has made is one of cloudpickle's
            held = [value.__name__, value.__bound__, value.__constraints__]
        case _:
            held = _reduced(value)
    return held


def _reduced(value: Any) -> list[Any]:
    own = copyreg.dispatch_table.get(type(value))
    reduced: Any = own(value) if own else value.__reduce_ex__(4)
    if isinstance(reduced, str):  # a function in a wrapper of C, which pickle writes by its name
        wrapped = getattr(value, "__wrapped__", None)
        return [type(value), getattr(value, "__module__", None), reduced, wrapped]
    made, args, state, listed, items = (*reduced, None, None, None)[:5]
    return [type(value), made, args, state, [*(listed or ())], [*(items or ())]]
