"""``parallel_run_step.settings.json`` beside an entry script: how frames become lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest_of
from daskprs.azure._yaml_files.mistakes import Mistake, SourceLocation, refuse
from daskprs.errors import YamlError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "parallel_run_step.settings.json"
WAY = ("append_row", "pandas.DataFrame.to_csv")
OPTION_OF = {"sep": "append_row_dataframe_sep", "header": "append_row_dataframe_header"}
AS_THEY_ARE = {"index": False, "encoding": "utf-8", "lineterminator": "\n"}
"""Arguments of ``to_csv`` that match the output anyway."""


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
    mistakes: list[Mistake] = []
    place = SourceLocation(str(path), 1, 1)
    for key in WAY:
        if not isinstance(found, dict):
            break
        mistakes += [
            Mistake(place, one, f"this key is unknown; {nearest_of(one, [key])}")
            for one in found
            if one != key
        ]
        found = found.get(key, {})
    if not isinstance(found, dict):
        shape = '{"append_row": {"pandas.DataFrame.to_csv": {"sep": ","}}}'
        mistakes.append(Mistake(place, "", f"it has to have the shape {shape}"))
        found = {}
    options = dict(_options(found, place, mistakes))
    refuse(mistakes)
    return options


def _options(given: dict[str, Any], place: SourceLocation, mistakes: list[Mistake]) -> Any:
    for name, value in given.items():
        key = ".".join((*WAY, name))
        if name == "header" and not isinstance(value, bool):
            mistakes.append(Mistake(place, key, f"it has to be true or false, not {value!r}"))
        elif name == "sep" and (not isinstance(value, str) or len(value) != 1):
            mistakes.append(Mistake(place, key, f"it has to be one character, not {value!r}"))
        elif name in OPTION_OF:
            yield OPTION_OF[name], value
        elif AS_THEY_ARE.get(name, ...) != value:
            known = nearest_of(name, [*OPTION_OF])
            rule = f"{name}={value!r} does not fit an append_row file; {known}"
            mistakes.append(Mistake(place, key, rule))
