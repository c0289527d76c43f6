"""The option `output`: a path that says the form of the output by its suffix, and its place."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._options.rules import refused, working_directory
from daskprs.errors import Option, OptionError, OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMS: dict[str, Mapping[str, Any]] = {
    "": {"output_format": "parquet"},
    ".parquet": {"output_format": "parquet", "output_single_file": True},
    ".arrow": {"output_format": "arrow", "output_single_file": True},
    ".jsonl": {"output_format": "jsonl", "output_single_file": True, "keep_rows": True},
    ".csv": {
        "append_row_dataframe_header": True,
        "append_row_dataframe_sep": ",",
        "keep_rows": True,
    },
}
"""By suffix, the options that a path stands for. Text keeps the rows with their types, too: read
back, ``"007"`` would be 7."""
TABULAR = ".csv"
"""The suffix of text that is a table whatever `run` returns: elements of lists make a column."""
RULE = (
    "a path or URL that ends with .parquet, .arrow, .csv or .jsonl (one file), or that has no "
    "suffix (a folder of Parquet files)"
)
PLACES = ("output_dir", "append_row_file_name")
"""The options that say the place otherwise."""
URL_OF_A_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
"""A URL that was a Path, which makes one slash of two."""


@working_directory()
def check_output(name: str, value: Any) -> str:
    """Return the path of an output as an absolute one, or its URL; the suffix has to be known."""
    given = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    if not isinstance(given, str) or not given or "\0" in given:
        raise refused(name, value, RULE)
    if URL_OF_A_PATH.match(given):
        raise refused(name, value, "text where it is a URL, with two slashes after its colon")
    is_url = "://" in given
    path = given.rstrip("/") if is_url else str(Path(given).expanduser().absolute())
    folder, file = split(path)
    if not file or file.startswith(".") or (is_url and folder.endswith(":/")):
        raise refused(name, value, f"{RULE}, and that names it in a folder or bucket, not hidden")
    suffix = suffix_of(file)
    if suffix not in FORMS:
        text = f"{Option('output_dir')} and {Option('append_row_file_name')}"
        raise refused(name, value, f"{RULE}. Lines of text of any other name are written by {text}")
    if suffix and given.endswith("/"):
        raise refused(name, value, f"{RULE}. A folder has no suffix")
    return path


def split(output: str) -> tuple[str, str]:
    """Return the folder of an output, and its name there."""
    folder, _, name = output.rpartition("/")
    return folder or "/", name


def suffix_of(output: str) -> str:
    """Return the suffix by which an output has its form."""
    return Path(output).suffix.lower()


def meant_by(output: str | None) -> dict[str, Any]:
    """Return the options that an output stands for; none without one."""
    if output is None:
        return {}
    return {"append_row_file_name": split(output)[1], **FORMS[suffix_of(output)]}


def in_terms_of(output: str | None, error: OutputError) -> OutputError:
    """Return an error of a place in terms of the output of the call, if it named one."""
    if output is None:
        return error

    def named(option: Option) -> str:
        if option.name not in PLACES:
            return format(option)
        return format(Option("output") if option.value is ... else Option("output", output))

    twice = f"{Option('output')} or {Option('output')}"
    return OutputError(error.worded(named).replace(twice, f"{Option('output')}"))


def output_alone(output: object, *beside: Option) -> OptionError:
    """Return the error for options that say what `output` says."""
    names = ", ".join(f"{one}" for one in beside)
    msg = (
        f"{Option('output', output)}: not with {names}. The path says where the output is, and its "
        "suffix in which form. Give that alone, or the others alone."
    )
    return OptionError(msg)
