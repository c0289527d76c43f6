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
    """Everything that checks, help and documentation need to know about an option."""

    rule: Rule
    """Returns the value in its one form, or refuses it."""
    group: str
    help: str
    """One or two sentences in Markdown, without the default."""
    shown: str
    """The default in words, where it depends on other things; empty: `default` itself is shown."""
    changes_results: bool
    """Whether another value gives other rows. A resume may change the other options."""
    flag: str
    """The name on the command line, where it is given once for each value; else empty."""
    is_of_one_run: bool
    """Whether a resume starts from the default again, and not from what the job was called with."""
    is_generated: bool
    """Whether the command line makes its flag from this row; the others have a form of their own
    there."""


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
