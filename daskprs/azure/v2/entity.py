"""`Entity`: an object of SDK v2 that stands for a mapping of a YAML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import numpy as np
import yaml

from daskprs._suggest import nearest_of, refuses_unknown
from daskprs._system.atomic_file import whole_file
from daskprs.azure._assets import bare_name
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import NO_KEY, keys_of
from daskprs.azure._yaml_files.mistakes import refuse
from daskprs.azure.v1.absent import unknown
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daskprs.azure._yaml_files.form import Form


F = TypeVar("F", bound="Callable[..., Any]")


def with_keys(*known: str) -> Callable[[F], F]:
    """Return a decorator: a function has these keyword arguments, too; those of None are not given.

    An unknown one is a TypeError with the nearest name.
    """

    def decorated(function: F) -> F:
        own = [one for one in signature(function).parameters.values() if one.name != "keys"]
        names = [*(one.name for one in own), *known]

        @wraps(function)
        def checked(*args: Any, **keys: Any) -> Any:
            for key in keys:
                if key not in names:
                    raise _no_argument(function.__qualname__, key, names)
            return function(*args, **{key: one for key, one in keys.items() if one is not None})

        more = [Parameter(key, Parameter.KEYWORD_ONLY, default=None) for key in known]
        checked.__signature__ = Signature([*own, *more])  # type: ignore[attr-defined]
        return cast("F", checked)

    return decorated


def _no_argument(owner: str, name: str, known: Sequence[str]) -> TypeError:
    return TypeError(f"{owner}() has no argument {name!r}; {nearest_of(name, known)}")


class Place(str):
    """The absolute path of a local file or folder in the values of an object."""

    __slots__ = ()


class Expression:
    """A name for a value that there is not yet; its text is the expression of files."""

    def __deepcopy__(self, _: Any) -> Self:
        """Return itself: a copy means the same value."""
        return self


class Written:
    """An object that is a mapping of a YAML file."""

    def values(self) -> dict[str, Any]:
        """Return the object as plain values; local paths are absolute."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the object as YAML."""
        return as_yaml(self.values())

    def dump(self, dest: str | os.PathLike[str] | IO[str]) -> None:
        """Write the object as YAML; paths below the folder of the file are relative to it."""
        self.refuse_to_move(dest)
        write_yaml(self.values(), dest)

    def refuse_to_move(self, dest: Any) -> None:
        """Refuse to write the object into another folder, if its paths are relative to one."""


class Entity(Written):
    """A mapping of a YAML file as an object; subclasses are dataclasses with its keys.

    A subclass has the keys of its `form`, each None unless it is given, and the fields that it
    writes itself.

    Relative paths start from the working directory of the moment when the object was made, or from
    the file that it was loaded from.
    """

    __sdk__ = "v2"
    PLACES: ClassVar[frozenset[str]] = frozenset()
    """The keys whose values are paths."""
    PARTS: ClassVar[Mapping[str, type[Entity]]] = {}
    """The keys whose mappings are objects, too."""
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"$schema"})
    """The keys of a file that the object does not have."""

    if TYPE_CHECKING:  # the keys of forms are not known there

        def __init__(self, *args: Any, **keys: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        """Refuse an attribute that is not there."""
        raise unknown(type(self), name, self.keys())

    def __init_subclass__(cls, form: type[Form] | None = None, *, kw_only: bool = True) -> None:
        """Make a dataclass of a subclass, with the keys of its form."""
        own = get_annotations(cls)
        keys = [] if form is None else [key.name for key in keys_of(form)]
        keys = [key for key in keys if key not in own and key not in cls.LEFT_OUT]
        for key in keys:
            setattr(cls, key, None)
        cls.__annotations__ = own | dict.fromkeys(keys, Any)
        dataclass(cls, kw_only=kw_only)
        refuses_unknown(lambda name: _no_argument(cls.__name__, name, cls.keys()))(cls)

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys of the mapping."""
        return [one.name for one in fields(cls)]  # type: ignore[arg-type] # of a subclass

    @classmethod
    def from_mapping(cls, name: str, value: Any) -> Any:
        """Return the object that a mapping stands for, and any other value as it is."""
        if not isinstance(value, Mapping):
            return value
        known = cls.keys()
        for key in value:
            if key not in known:
                msg = f"{name}: {NO_KEY} {key!r}; {nearest_of(key, known)}"
                raise OptionError(msg)
        return cls(**value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a key; refuse an unknown one, and make objects of mappings."""
        known = self.keys()
        if name not in known and not name.startswith("_"):
            msg = f"{type(self).__name__} has no attribute {name!r}; {nearest_of(name, known)}"
            raise AttributeError(msg)
        part = self.PARTS.get(name)
        super().__setattr__(name, value if part is None else part.from_mapping(name, value))

    def __post_init__(self) -> None:
        self._base = Path.cwd()

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Self:
        """Read an object from its YAML file; refuse unknown keys with file, line and column."""
        document = Document.read(source)
        content = document.content if isinstance(document.content, dict) else {}
        known = cls.keys()
        given = {key: value for key, value in content.items() if key not in cls.LEFT_OUT}
        wrong = [
            document.mistake((key,), f"an unknown key; {nearest_of(key, known)}", of_key=True)
            for key in given
            if key not in known
        ]
        if not given:
            wrong.append(document.mistake((), "it is not a mapping of keys"))
        refuse(wrong)
        self = cls(**given)
        self.start_from(document.folder)
        return self

    @property
    def base(self) -> Path:
        """The folder that relative paths of this object start from."""
        return self._base

    def start_from(self, folder: Path) -> None:
        """Set the folder that relative paths of this object start from."""
        self._base = folder
        for name in self.PARTS:
            if isinstance(part := getattr(self, name), Entity):
                part.start_from(folder)

    def take(self, other: Entity) -> None:
        """Take over the values of another object with the same keys."""
        for key in self.keys():
            setattr(self, key, getattr(other, key))
        self.start_from(other.base)

    def values(self) -> dict[str, Any]:
        """Return the keys that are set as plain values; local paths are absolute."""
        found = {}
        for name in self.keys():
            value = getattr(self, name)
            if name in self.PLACES and isinstance(value, str | os.PathLike):
                value = local_place(value, self._base)
            value = plain(value)
            if value is not None and value != {}:
                found[name] = value
        return found


def local_place(given: str | os.PathLike[str], base: Path) -> str:
    """Return a local path as a `Place`; references, URLs and expressions as they are."""
    text = os.fspath(given)
    is_reference = text.startswith("azureml:") or "://" in text or bare_name(text, base)
    if is_reference or "${{" in text:
        return text
    return Place(os.path.abspath(base / Path(text).expanduser()))  # noqa: PTH100 - without ..


def plain(value: Any) -> Any:
    """Return a value without objects of the SDK in it."""
    match value:
        case Entity():
            return value.values()
        case Expression():
            return str(value)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case os.PathLike() | np.generic():
            return os.fspath(value) if isinstance(value, os.PathLike) else value.item()
    return value


def as_yaml(values: Any, folder: Path | None = None) -> str:
    """Return values as YAML; paths below a folder are relative to it, if one is given."""
    text: str = yaml.safe_dump(
        _placed(values, folder), sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _placed(value: Any, folder: Path | None) -> Any:
    match value:
        case Place() if folder is not None and Path(value).is_relative_to(folder):
            return f"./{Path(value).relative_to(folder)}"
        case str():
            return str(value)
        case dict():
            return {key: _placed(one, folder) for key, one in value.items()}
        case list():
            return [_placed(one, folder) for one in value]
    return value


def write_yaml(values: Any, dest: str | os.PathLike[str] | IO[str]) -> None:
    """Write values as YAML into a file, or into an open one; see `as_yaml`."""
    if not isinstance(dest, str | os.PathLike):
        dest.write(as_yaml(values))
        return
    path = Path(dest).absolute()
    with whole_file(path) as file:
        file.write(as_yaml(values, path.parent).encode())
