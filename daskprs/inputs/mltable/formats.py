"""The partition format of an MLTable, as one that whole paths match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.errors import DaskprsError, InputError
from daskprs.inputs.files.partition_format import PartitionFormat
from daskprs.inputs.mltable.form import FORMAT
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.inputs.mltable.read import MLTableContent
    from daskprs.inputs.source.input_file import InputFile


def format_of(written: MLTableContent, files: Sequence[InputFile]) -> str | None:
    """Return the format that the paths of files match; None where there is none.

    A format goes to the end of the path. One that the first file does not match in this way names
    folders: ``/year={year}/month={month}``.

    Raises
    ------
    YamlError
        When the first file matches in neither way, or the format is none.

    """
    for at, one in enumerate(written.transformations):
        if one.name == FORMAT:
            text = str(one.value)
            try:
                return _matching(text, files[0]) if files else text
            except DaskprsError as error:
                refuse([written.mistake(at, str(error))])
    return None


def _matching(text: str, file: InputFile) -> str:
    try:
        PartitionFormat(text).values(file)
    except InputError:
        of_folders = f"{text.rstrip('/')}/**"
        try:
            PartitionFormat(of_folders).values(file)
        except InputError:
            msg = f"{file.path} does not match {text!r}"
            raise InputError(msg) from None
        return of_folders
    return text
