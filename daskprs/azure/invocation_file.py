"""The file of an invocation: its inputs and outputs, by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.azure.port_form import InputForm, Inputs, OutputForm, Outputs
from daskprs.inputs.input_file import is_url
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.form import Form, filled, works
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from daskprs.azure.assets import Assets


class InvocationForm(Form):
    """The keys of the file that an endpoint is invoked with."""

    inputs: Inputs | None = works(None, "paths, references and values by name")
    outputs: Outputs | None = works(None, "where outputs go, by name")


class Invocation(NamedTuple):
    """What an invocation gives."""

    inputs: dict[str, str]
    outputs: dict[str, str]


def read_invocation(path: str | PathLike[str], assets: Assets) -> Invocation:
    """Return what a file gives; its paths are relative to it, and its references resolved.

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
    return Invocation(texts_of(inputs, base, assets), texts_of(outputs, base, assets))


def texts_of(ports: Mapping[str, Any], base: Path, assets: Assets) -> dict[str, str]:
    """Return the values of ports, as they are given on the command line.

    Parameters
    ----------
    ports
        Forms of inputs or outputs, and plain values, by name.
    base
        What paths are relative to.
    assets
        Where references point.

    Raises
    ------
    UsageError
        For a reference to something whose place nobody has told.

    """
    found = {}
    for name, port in ports.items():
        value = port
        if isinstance(port, InputForm):
            value = port.default if port.place is None else _path(port.place, base, assets)
        elif isinstance(port, OutputForm):
            value = None if port.path is None else _path(port.path, base, assets)
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _path(path: str, base: Path, assets: Assets) -> str:
    url = is_url(path) and not path.startswith("azureml:")
    return path if url else str(assets.place(path, base))
