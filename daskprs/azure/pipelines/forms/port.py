"""Inputs and outputs, as pipelines, steps and components declare them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, field_validator

from daskprs.yaml_files.form import Form, without_effect, works

IN_PLACE = "data is read where it lies, and written where it is to be"
SHOWN_IN_THE_STUDIO = "nothing shows it here"
PATH_TYPES = (
    *("uri_file", "uri_folder", "mltable", "path"),
    *("custom_model", "mlflow_model", "triton_model"),
)
"""Types whose values are paths; ``path`` is an older name of ``uri_folder``."""
FILE_TYPES = ("uri_file",)
MODES = ("ro_mount", "rw_mount", "download", "upload", "direct", "eval_mount", "eval_download")
InputType = Literal[
    "uri_file", "uri_folder", "mltable", "path", "custom_model", "mlflow_model", "triton_model",
    "string", "number", "integer", "boolean",
]  # fmt: skip
OutputType = Literal[
    "uri_file", "uri_folder", "mltable", "path", "custom_model", "mlflow_model", "triton_model"
]
Scalar = bool | int | float | str


OLD_PLACE = "an older way to give `path`"


class OldDataset(Form):
    """An older form of an input: ``dataset: {local_path: …}``, or a reference in its place."""

    local_path: str = works()


class InputForm(Form):
    """An input that is more than a value."""

    type: InputType | None = works(None)
    path: str | None = works(None, note="a local path, a reference or an expression")
    optional: bool = works(default=False)
    default: Scalar | None = works(None)
    min: float | None = works(None)
    max: float | None = works(None)
    enum: list[Scalar] | None = works(None)
    dataset: OldDataset | None = works(None, note=OLD_PLACE)
    file: str | None = works(None, note=OLD_PLACE)
    folder: str | None = works(None, note=OLD_PLACE)
    mode: str | None = without_effect(IN_PLACE)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)

    @field_validator("type", mode="before")
    @classmethod
    def _lower(cls, given: Any) -> Any:
        return given.lower() if isinstance(given, str) else given

    @field_validator("dataset", mode="before")
    @classmethod
    def _reference(cls, given: Any) -> Any:
        return {"local_path": given} if isinstance(given, str) else given

    @field_validator("mode")
    @classmethod
    def _known(cls, given: str | None) -> str | None:
        return known_mode(given)

    @property
    def place(self) -> str | None:
        """Where it is, however that is written."""
        dataset = None if self.dataset is None else self.dataset.local_path
        return self.path or self.file or self.folder or dataset


class OutputForm(Form):
    """An output that is more than a name."""

    type: OutputType | None = works(None)
    path: str | None = works(None, note="where it goes; default: the folder of the run")
    mode: str | None = without_effect(IN_PLACE)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    name: str | None = without_effect("no asset is registered")
    version: str | None = without_effect("no asset is registered")

    @field_validator("mode")
    @classmethod
    def _known(cls, given: str | None) -> str | None:
        return known_mode(given)


def known_mode(given: str | None) -> str | None:
    """Return a mode of access.

    Raises
    ------
    ValueError
        When the mode is unknown.

    """
    if given is not None and given not in MODES:
        msg = f"it has to be one of {', '.join(MODES)}, not {given!r}"
        raise ValueError(msg)
    return given


def _kind(given: Any) -> str:
    """Return the kind of form, so that only the mistakes of that form are reported."""
    return "more" if isinstance(given, dict | Form) else "value"


Input = Annotated[
    Annotated[InputForm, Tag("more")] | Annotated[Scalar | None, Tag("value")],
    Discriminator(_kind),
]
Output = Annotated[
    Annotated[OutputForm, Tag("more")] | Annotated[str | None, Tag("value")], Discriminator(_kind)
]
Inputs = dict[str, Input]
Outputs = dict[str, Output]
