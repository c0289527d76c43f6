"""The value of a step's input or output in a run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from daskprs.azure.pipelines.forms.port import FILE_TYPES, PATH_TYPES, InputForm

KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
SWITCHES = {"true": True, "false": False}


class Binding(NamedTuple):
    """The value of an expression."""

    value: str | bool | int | float | None
    """The value; None for an optional input that was not given."""
    type: str | None = None
    """The type, by its name in files."""
    is_path: bool = False
    makers: tuple[str, ...] = ()
    """The steps that write to this path."""
    may_be_old: bool = False
    """Whether the path exists already, and only its location shows which steps write it."""

    @property
    def is_unknown(self) -> bool:
        """Whether the value is unknown: see `unknown`."""
        return self.is_path and self.value == ""

    @property
    def text(self) -> str | None:
        """The value as written in a command."""
        return None if self.value is None else str(self.value)

    @property
    def path(self) -> Path:
        """The value as a path."""
        return Path(str(self.value))

    @property
    def is_file(self) -> bool:
        """Whether an output is a file, not a folder."""
        return self.type in FILE_TYPES


def unknown(type_: str | None = None) -> Binding:
    """Return a placeholder for an unknown value; nothing that depends on it is a mistake."""
    return Binding("", type_, is_path=True)


def as_type(type_: str | None) -> str | None:
    """Return the current name of a type."""
    return "uri_folder" if type_ == "path" else type_


def takes_path(type_: str | None) -> bool:
    """Say whether values of a type are paths."""
    return type_ in PATH_TYPES


def wrong_value(declared: InputForm, bound: Binding) -> str | None:
    """Return how a value breaks the rules of its declaration; None if it does not."""
    value = bound.value
    if value is None or bound.is_path:
        return None
    if declared.type in KINDS:
        number = _of_type(value, declared.type)
        if number is None:
            return f"it has to be of type {declared.type}, not {value!r}"
        if declared.min is not None and number < declared.min:
            return f"it has to be at least {declared.min:g}, not {value!r}"
        if declared.max is not None and number > declared.max:
            return f"it has to be at most {declared.max:g}, not {value!r}"
    if declared.enum is not None and str(value) not in map(str, declared.enum):
        return f"it has to be one of {', '.join(map(str, declared.enum))}, not {value!r}"
    return None


def _of_type(value: str | float, type_: str) -> float | None:
    """Return a value as a number of its type; None if it is not a number."""
    if isinstance(value, str):
        try:
            return SWITCHES[value.lower()] if type_ == "boolean" else _number(value, type_)
        except (KeyError, ValueError):
            return None
    fits = isinstance(value, KINDS[type_]) and isinstance(value, bool) == (type_ == "boolean")
    return value if fits else None


def _number(text: str, type_: str) -> float:
    return int(text) if type_ == "integer" else float(text)
