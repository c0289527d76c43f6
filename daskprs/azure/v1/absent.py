"""What an SDK has and is not built here: it can be imported, and its use says what to write.

SDK v1 and SDK v2 each have a file of such names.
"""

from __future__ import annotations

import inspect
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest_of
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

SDKS = Path(__file__).parents[1]
"""The folder of the folders of the SDKs."""
FILE = SDKS / "v1/names.toml"
ELSE = {
    "v1": "leave out the cells that use it, or do the same in a PythonScriptStep",
    "v2": "leave out the cells that use it, or write a command() that does the same",
}
"""The next step for a name of no weight."""

INTERNAL = {
    *("checked", "columns_of_files", "data", "described", "execute", "folders", "keep_dataset"),
    *("located", "needed", "of", "of_run", "options", "parameters", "pattern", "place", "place_of"),
    *("producer", "reading", "record", "register_in", "task", "unit"),
}
"""Attributes of the classes of v1 that no message suggests, since the SDK does not have them."""


@cache
def _content(sdk: str) -> tuple[frozenset[str], dict[str, str]]:
    """Return the names that an SDK has, and the next step for some of them."""
    found = tomllib.loads((SDKS / sdk / FILE.name).read_text("utf-8"))
    names = frozenset(name for group in found["names"].values() for name in group.split())
    instead = {name: do for do, group in found["instead"].items() for name in group.split()}
    return names, instead


class NotBuiltError(UsageError, AttributeError):
    """A use of what is not built here; an AttributeError, since `hasattr` and `getattr` ask."""


def not_built(name: str, sdk: str = "v1") -> type[NotBuilt] | None:
    """Return what stands for a public name of an SDK; None for a name that it does not have."""
    names, instead = _content(sdk)
    if name not in names:
        return None
    return type(name, (NotBuilt,), {"__instead__": instead.get(name, ELSE[sdk]), "__sdk__": sdk})


def not_built_in_v2(name: str) -> type[NotBuilt]:
    """Return what stands for a name of SDK v2: the `__getattr__` of modules that have few."""
    found = not_built(name, "v2")
    if found is None:
        raise AttributeError(name)
    return found


def _refusal(name: str, next_step: str, sdk: str) -> NotBuiltError:
    end = "" if next_step.endswith("?") else "."
    return NotBuiltError(f"{name} of Azure's SDK {sdk} is not available here: {next_step}{end}")


class _Refusing(type):
    """Refuses calls, attributes and items of a class."""

    __instead__: str
    __sdk__: str

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise _refusal(_original(cls), cls.__instead__, cls.__sdk__)

    __getitem__ = __iter__ = __call__

    def __getattr__(cls, attribute: str) -> Any:
        if attribute.startswith("_"):  # what Python itself asks
            raise AttributeError(attribute)
        name = f"{_original(cls)}.{attribute}"
        raise _refusal(name, cls.__instead__, cls.__sdk__)


class NotBuilt(Exception, metaclass=_Refusing):  # noqa: N818 - it stands for classes of all kinds
    """Stands for a class or a function of the SDK that is not built here.

    It is an exception, so that notebooks may name it after ``except``.
    """

    __instead__ = ELSE["v1"]
    __sdk__ = "v1"


def _original(cls: type) -> str:
    """Return the name that a class stands for, which a notebook may have made a subclass of."""
    return cls.__mro__[cls.__mro__.index(NotBuilt) - 1].__name__


class _Known(type):
    """Refuses attributes of a class that the SDK has, or a notebook has misspelled."""

    if not TYPE_CHECKING:  # type checkers see the attributes that there are

        def __getattr__(cls, attribute: str) -> Any:
            raise unknown(cls, attribute, _attributes(cls))


class Known(metaclass=_Known):
    """The base of the classes that are built: other attributes are refused with a next step."""

    __sdk__ = "v1"

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Any:
            if inspect.getattr_static(type(self), attribute, None) is not None:
                return object.__getattribute__(self, attribute)  # the error of a property again
            raise unknown(type(self), attribute, _attributes(type(self), vars(self)))


def _attributes(cls: type, more: Iterable[str] = ()) -> list[str]:
    """Return the names of all attributes of a class, and others, that a message may suggest."""
    hidden = INTERNAL if getattr(cls, "__sdk__", "v1") == "v1" else set()
    return sorted(one for one in {*dir(cls), *more} - hidden if not one.startswith("_"))


def unknown(cls: type, attribute: str, known: list[str]) -> AttributeError:
    """Return the error for an attribute that is not built, beside those that are known."""
    if attribute.startswith("_"):  # what Python and notebooks themselves ask
        return AttributeError(f"{cls.__name__} has no attribute {attribute!r}")
    sdk = getattr(cls, "__sdk__", "v1")
    steps = _content(sdk)[1]
    owners = [base.__name__ for base in cls.__mro__]
    listed = next(
        (steps[f"{one}.{attribute}"] for one in owners if f"{one}.{attribute}" in steps), ""
    )
    return _refusal(f"{cls.__name__}.{attribute}", listed or nearest_of(attribute, known), sdk)
