"""An option of a job, as one row of the table in `run_options`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

Rule = Callable[[str, Any], Any]

SCRIPT, INPUT, PROCESSES, FAILURES, TIMES, OUTPUT, THE_JOB = GROUPS = (
    "Script",
    "Input",
    "Processes",
    "Failures",
    "Times",
    "Output",
    "The job",
)
"""The headings under which help and documentation show the options, in this order."""
_KEY = "option"


class OptionRow(NamedTuple):
    """The properties of an option for checks, help and documentation."""

    rule: Rule
    """Returns the value in its standard form, or rejects it."""
    group: str
    help: str
    """One or two sentences in Markdown, without the default."""
    shown: str
    """The default in words, where it depends on other options; empty to show `default` itself."""
    changes_results: bool
    """Whether another value gives other rows. A resume may change all other options."""
    flag: str
    """The flag on the command line, where it is repeated for each value; else empty."""
    is_of_one_run: bool
    """Whether a resume uses the default again instead of the value of the original call."""
    is_generated: bool
    """Whether the command line makes its flag from this row; other options define their own."""


def option(
    default: Any,
    rule: Rule,
    group: str,
    text: str,
    *,
    shown: str = "",
    changes_results: bool = True,
    flag: str = "",
    is_of_one_run: bool = False,
    is_generated: bool = True,
) -> Any:
    """Return the dataclass field of an option; see `OptionRow` for the parameters."""
    row = OptionRow(rule, group, text, shown, changes_results, flag, is_of_one_run, is_generated)
    return dataclasses.field(default=default, metadata={_KEY: row})


def table_of(options: type) -> dict[str, OptionRow]:
    """Return the rows of all options, by name."""
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(options)}
