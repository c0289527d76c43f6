"""The file of an invocation: its inputs and outputs, by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.azure.port_form import InputForm, Inputs, OutputForm, Outputs
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.form import Form, filled, works
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    from os import PathLike


class InvocationForm(Form):
    """The keys of the file that an endpoint is invoked with."""

    inputs: Inputs | None = works(None, "paths, references and values by name")
    outputs: Outputs | None = works(None, "where outputs go, by name")


class Invocation(NamedTuple):
    """What an invocation gives."""

    inputs: dict[str, str]
    outputs: dict[str, str]


def read_invocation(path: str | PathLike[str]) -> Invocation:
    """Return what a file gives; its paths are relative to it.

    Raises
    ------
    YamlError
        With every mistake in it.

    """
    document = Document.read(path)
    form, mistakes = filled(InvocationForm, document.content or {}, document)
    refuse(mistakes)
    base = Path(path).absolute().parent
    inputs, outputs = (form.inputs or {}, form.outputs or {}) if form else ({}, {})
    return Invocation(_texts(inputs, base), _texts(outputs, base))


def _texts(ports: dict[str, Any], base: Path) -> dict[str, str]:
    """Return the values of ports, as they are given on the command line."""
    found = {}
    for name, port in ports.items():
        value = port
        if isinstance(port, InputForm):
            value = port.default if port.place is None else _path(port.place, base)
        elif isinstance(port, OutputForm):
            value = None if port.path is None else _path(port.path, base)
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _path(path: str, base: Path) -> str:
    return path if ":" in path else str(base / path)
