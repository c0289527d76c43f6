"""The values of inputs and outputs: from the caller and from files, with their mistakes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._job.frontend import Surface
from daskprs._suggest import nearest, nearest_of
from daskprs.azure._pipeline_folder import plain
from daskprs.azure._pipelines.forms import FILE_TYPES, PATH_TYPES, InputForm
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daskprs.azure._assets import Assets
    from daskprs.azure._pipeline_folder import PipelineFolder
    from daskprs.azure._pipelines.component import Declared, YamlSource
    from daskprs.azure._yaml_files.mistakes import Mistake

KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True)
class CallerInputs:
    """The caller's part of a pipeline run: values, outputs, and places of assets."""

    assets: Assets
    overrides: tuple[str, ...] = ()
    """``--set``"""
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Places by the name of a pipeline's output, or by ``step.output``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for every parallel step, such as ``overwrite``."""
    client: str | None = None
    resume: bool = False
    """Whether to resume an earlier run in the folder."""
    surface: Surface = field(default_factory=Surface)
    """The surface that the caller uses: messages name options as written there."""
    is_served: bool = False
    """Whether the inputs come from a caller of a service, who may not reach the shell by them."""
    with_inputs: bool = True
    """Whether every input must have a value now."""


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
    is_foreign: bool = False
    """Whether a caller of a service gave this value, which is neither a path nor a part of one."""
    is_own: bool = False
    """Whether the run itself chose this path, in its folder: nothing else is there."""

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

    def overlaps(self, other: Binding) -> bool:
        """Whether one of two paths lies in the other, however each is spelled."""
        return self.contains(other) or other.contains(self)

    def contains(self, other: Binding) -> bool:
        """Whether another path is this one or lies in it, however each is spelled."""
        if self.is_unknown or other.is_unknown:
            return False
        return other.path.resolve().is_relative_to(self.path.resolve())

    @property
    def is_file(self) -> bool:
        """Whether an output is a file, not a folder."""
        return self.type in FILE_TYPES


def at_path(path: Path, type_: str | None) -> Binding:
    """Return a path as a value, absolute and without ``..``."""
    return Binding(str(plain(path)), type_, is_path=True)


def at_own_path(path: Path, type_: str | None) -> Binding:
    """Return a path that the run chose in its folder as a value."""
    return at_path(path, type_)._replace(is_own=True)


def unknown(type_: str | None = None) -> Binding:
    """Return a placeholder for an unknown value; nothing that depends on it is a mistake."""
    return Binding("", type_, is_path=True)


def as_type(type_: str | None) -> str | None:
    """Return the current name of a type."""
    return "uri_folder" if type_ == "path" else type_


def takes_path(type_: str | None) -> bool:
    """Say whether values of a type are paths."""
    return type_ in PATH_TYPES


def foreign(given: str, kind: str | None) -> Binding:
    """Return a value from a caller of a service; nothing in it is read as YAML."""
    if given.startswith("-") and kind not in KINDS:
        msg = "a program may take a value that begins with '-' for an option"
        raise ValueError(msg)
    if "\0" in given:
        msg = "it has a null character in it"
        raise ValueError(msg)
    value: str | float | None = given
    if kind in KINDS:
        value = _of_type(given, kind)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            msg = f"it has to be of type {kind}, not {given!r}"
            raise ValueError(msg)
    return Binding(value, kind, is_foreign=True)


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
            if type_ == "boolean":
                return SWITCHES[value.lower()]
            return int(value) if type_ == "integer" else float(value)
        except (KeyError, ValueError):
            return None
    fits = isinstance(value, KINDS[type_]) and isinstance(value, bool) == (type_ == "boolean")
    return value if fits else None


class Values:
    """Creates the values of a run in a folder, and collects their mistakes."""

    def __init__(self, folder: PipelineFolder, given: CallerInputs) -> None:
        self.mistakes: list[Mistake] = []
        self.folder = folder
        self.given = given

    def wrong(self, problem: object, source: YamlSource, *way: str) -> None:
        """Keep a mistake."""
        self.mistakes.append(source.mistake(str(problem), *way))

    def path(
        self, text: str, kind: str | None, source: YamlSource, *way: str, made: bool = False
    ) -> Binding:
        """Return a path or reference as a value; a `made` one may lie in the run's folder."""
        chosen: list[Path] = []

        def root(store: str) -> Path:
            chosen.append(self.folder.datastore(store))
            return chosen[0]

        try:
            base = source.at(*way).base
            place = self.given.assets.place(text, base, root if made else None)
            return (at_own_path if chosen else at_path)(place, kind)
        except UsageError as error:
            self.wrong(error, source, *way)
            return unknown(kind)

    def existing(self, bound: Binding, source: YamlSource, *way: str) -> Binding:
        """Return a value; report a path that neither a step makes nor exists."""
        if bound.is_path and not bound.makers and not bound.is_unknown and not bound.path.exists():
            problem = f"the file or folder {bound.path} does not exist.{nearest(bound.path)}"
            self.wrong(problem, source, *way)
        return bound

    def readable(self, bound: Binding, source: YamlSource, *way: str) -> Binding:
        """Return an input as the step reads it; report one that exists and has another type."""
        if not bound.is_path or bound.makers or bound.is_unknown:
            return bound
        path, problem = bound.path, ""
        if bound.type == "mltable" and path.is_dir() and not (path / "MLTable").is_file():
            self.wrong(f"{path} is not an mltable: it has no file MLTable", source, *way)
        elif bound.is_file and path.is_dir():
            problem = f"{path} is a folder, and the type here is uri_file"
        elif bound.type == "uri_folder" and path.is_file():
            problem = f"{path} is a file, and the type here is uri_folder"
        if problem:  # a script may well take either
            self.mistakes.append(source.warning(problem, *way))
        return bound

    def refuse_undeclared(
        self, step: Declared, ports: str, given: Iterable[str], known: Iterable[str]
    ) -> None:
        """Refuse inputs or outputs that a step's component does not have."""
        known = [*known]
        for name in given if step.component is not None else ():
            if name not in known:
                problem = f"its component has no {ports[:-1]} {name!r}; {nearest_of(name, known)}"
                mistake = step.source.mistake(problem, ports, name, of_key=True)
                # published pipelines give inputs that their pipeline components do not have
                is_idle = step.is_pipeline and ports == "inputs"
                self.mistakes.append(mistake._replace(is_warning=is_idle))

    def fitting(
        self, declared: InputForm | None, bound: Binding, source: YamlSource, *way: str
    ) -> Binding:
        """Return a value; report it if it breaks the rules of its declaration."""
        problem = None if declared is None else wrong_value(declared, bound)
        if problem is not None:
            self.wrong(problem, source, *way)
        return bound
