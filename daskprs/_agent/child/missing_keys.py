"""A key that a script asks for and that is not there: a column, or an environment variable."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

MOST_NAMES = 30
MARKS = {";": ";", "\t": r"\t", "|": "|"}
"""The other delimiters of tables, and how an option writes each."""
LOOKS_UP = os._Environ.__getitem__.__code__  # noqa: SLF001 - of os.environ, whose class has no other name


def hint_at_columns(error: BaseException) -> str:
    """Return a sentence with the columns of the frame that lacks a name; else an empty text."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is None or not isinstance(error, KeyError):
        return ""
    try:
        return _of_frame(_names_at(error, pandas), error.args[0])
    except Exception:  # noqa: BLE001 - names may be objects of a person, whose repr() may raise
        return ""


def hint_at_variable(error: BaseException) -> str:
    """Return how a process gets a variable that `os.environ` lacks; empty for other errors."""
    if not isinstance(error, KeyError):
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or frames[-1].f_code is not LOOKS_UP or not error.args:
        return ""
    return (
        "The processes of the script do not have this environment variable. Give it a value in "
        "environment_variables, or set it where the job is started, and name it: "
        f"secrets=[{os.fsdecode(error.args[0])!r}]"
    )


def delimiter_in(name: str) -> str:
    """Return the delimiter, as it is written, that is in the name of an only column; else ''."""
    return next((written for mark, written in MARKS.items() if mark in name), "")


def _names_at(error: KeyError, pandas: Any) -> list[Any]:
    """Return the columns of the frame, or labels of the row, in the innermost calls of pandas."""
    own = str(Path(pandas.__file__).parent)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(own) or frame.f_code.co_name == "xs":
            continue
        for name in ("self", "obj"):
            value = frame.f_locals.get(name)
            if isinstance(value, pandas.DataFrame):
                return list(value.columns)
            if isinstance(value, pandas.Series) and value.index.inferred_type == "string":
                return list(value.index)
    return []


def _of_frame(names: list[Any], key: Any) -> str:
    if not names or key in names:
        return ""
    shown = ", ".join(map(repr, names[:MOST_NAMES]))
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    told = f"The columns are {shown}{more}" if len(names) > 1 else f"The only column is {shown}"
    delimiter = delimiter_in(str(names[0])) if len(names) == 1 else ""
    return f"{told}. Say delimiter='{delimiter}' for this text." if delimiter else f"{told}."
