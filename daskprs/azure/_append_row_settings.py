"""``parallel_run_step.settings.json`` beside an entry script: how frames become lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict

from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import Form, filled, works
from daskprs.azure._yaml_files.mistakes import whole
from daskprs.errors import YamlError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "parallel_run_step.settings.json"


class ToCsv(Form):
    """Arguments of ``to_csv``; the last three take only what matches the output anyway."""

    sep: str | None = works(None, min_length=1, max_length=1)
    header: bool | None = works(None, strict=True)
    index: Literal[False] = works(default=False)
    encoding: Literal["utf-8"] = works("utf-8")
    lineterminator: Literal["\n"] = works("\n")


class AppendRow(Form):
    """The ways in which returned values are written."""

    model_config = ConfigDict(populate_by_name=False)

    to_csv: ToCsv = works(default_factory=ToCsv, alias="pandas.DataFrame.to_csv")


class SettingsFile(Form):
    """The whole file."""

    append_row: AppendRow = works(default_factory=AppendRow)


def frame_settings(folder: Path) -> dict[str, Any]:
    """Return the options in a folder's settings file, if any; refuse all mistakes in the file."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        msg = f"{path}: it cannot be read as JSON: {error}"
        raise YamlError(msg) from error
    given = whole(*filled(SettingsFile, found, Document.of_values(found, str(path), folder)))
    to_csv = given.append_row.to_csv
    options = {
        "append_row_dataframe_sep": to_csv.sep,
        "append_row_dataframe_header": to_csv.header,
    }
    return {name: value for name, value in options.items() if value is not None}
