"""The file of an invocation: its inputs and outputs, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs.azure._pipelines.forms import Inputs, Outputs
from daskprs.azure._pipelines.ports import texts_of
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import Form, filled, works
from daskprs.azure._yaml_files.mistakes import whole

if TYPE_CHECKING:
    from os import PathLike

    from daskprs.azure._assets import Assets


class InvocationForm(Form):
    """The keys of the file that an endpoint is invoked with."""

    inputs: Inputs | None = works(None, "paths, references and values by name")
    outputs: Outputs | None = works(None, "the places of outputs, by name")


class Invocation(NamedTuple):
    """The inputs and outputs of an invocation, by name."""

    inputs: dict[str, str]
    outputs: dict[str, str]


def read_invocation(path: str | PathLike[str], assets: Assets) -> Invocation:
    """Return the inputs and outputs in a file, whose paths are relative to it; refuse mistakes."""
    document = Document.read(path)
    form = whole(*filled(InvocationForm, document.content or {}, document))
    ports = (form.inputs or {}, form.outputs or {})
    return Invocation(*(texts_of(one, document.folder, assets) for one in ports))
