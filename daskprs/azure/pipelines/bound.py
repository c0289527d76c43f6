"""What an input or an output of a step stands for in a run."""

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
    """A value: that of an expression."""

    value: str | bool | int | float | None
    """None of an optional input that was not given."""
    type: str | None = None
    """As files call it."""
    is_path: bool = False
    makers: tuple[str, ...] = ()
    """The steps that make what lies there."""
    may_be_old: bool = False
    """Whether something lies there already, and it is known by the place alone who makes it."""

    @property
    def is_unknown(self) -> bool:
        """Whether it stands for a value that nobody knows: see `unknown`."""
        return self.is_path and self.value == ""

    @property
    def text(self) -> str | None:
        """As it stands in a command."""
        return None if self.value is None else str(self.value)

    @property
    def path(self) -> Path:
        """As a path."""
        return Path(str(self.value))

    @property
    def is_file(self) -> bool:
        """Whether an output is a file, not a folder."""
        return self.type in FILE_TYPES


def unknown(type_: str | None = None) -> Binding:
    """Return what stands for a value that cannot be told: what hangs on it is no mistake."""
    return Binding("", type_, is_path=True)


def as_type(type_: str | None) -> str | None:
    """Return a type by its present name."""
    return "uri_folder" if type_ == "path" else type_


def takes_path(type_: str | None) -> bool:
    """Say whether values of a type are paths."""
    return type_ in PATH_TYPES


def wrong_value(declared: InputForm, bound: Binding) -> str | None:
    """Return what is wrong with a value by the rules of its declaration; None if nothing is."""
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
    """Return a value as a number of its type, however it is written; None for what is none."""
    if isinstance(value, str):
        try:
            return SWITCHES[value.lower()] if type_ == "boolean" else _number(value, type_)
        except (KeyError, ValueError):
            return None
    fits = isinstance(value, KINDS[type_]) and isinstance(value, bool) == (type_ == "boolean")
    return value if fits else None


def _number(text: str, type_: str) -> float:
    return int(text) if type_ == "integer" else float(text)
