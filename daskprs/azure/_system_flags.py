"""System flags among a script's arguments: ``--allowed_failed_percent 30`` is an option of the job.

The script receives all arguments, as in Azure, where it may read the system flags as well. A flag
that looks like a misspelt system flag causes a warning: published samples carry such flags.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._options.run_options import TABLE
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daskprs.errors import Option

CLOSE_ENOUGH = 0.9
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")
NO_EFFECT = "accepted without effect"


class SystemFlag(NamedTuple):
    """A system flag, and its effect."""

    name: str
    """The name of the flag, without dashes."""
    read: Callable[[str], Any]
    note: str = ""
    """The effect of a flag that does not set the option of `daskprs.RunOptions` of its name."""


class Flags(NamedTuple):
    """The arguments of a script, and the system flags among them."""

    options: dict[str, Any]
    """Values by option name of `daskprs.RunOptions`."""
    others: dict[str, Any]
    """Values by flag name, for the flags that set no such option."""
    arguments: list[str]
    """All arguments, for the script."""
    warnings: list[str]


def _switch(text: str) -> bool:
    if text.lower() not in TRUE + FALSE:
        msg = f"has to be true or false, not {text!r}"
        raise ValueError(msg)
    return text.lower() in TRUE


def _number(text: str) -> float:
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        msg = f"has to be a number, not {text!r}"
        raise ValueError(msg) from None


SYSTEM_FLAGS = (
    SystemFlag("error_threshold", _number),
    SystemFlag("allowed_failed_percent", _number),
    SystemFlag("task_overhead_timeout", _number),
    SystemFlag("progress_update_timeout", _number),
    SystemFlag("first_task_creation_timeout", _number),
    SystemFlag("append_row_dataframe_header", _switch),
    SystemFlag("append_row_dataframe_sep", str),
    SystemFlag("copy_logs_to_parent", _switch, "copies the logs to the folder of the pipeline"),
    SystemFlag(
        "push_metrics_to_parent",
        _switch,
        "copies the metrics of the step to the run of the parent pipeline",
    ),
    SystemFlag("metrics_name_prefix", str, "a prefix for the names of those metrics"),
    SystemFlag(
        "resume_from", str, f"{NO_EFFECT}: a resume continues the whole pipeline, not one step"
    ),
    SystemFlag("profiling_module", str),
    SystemFlag("resource_monitor_interval", _number),
)
KNOWN: Mapping[str, SystemFlag] = {flag.name: flag for flag in SYSTEM_FLAGS}


def read_flags(words: Sequence[str]) -> tuple[Flags, list[str]]:
    """Return the flags that an argument list sets, and all mistakes in them."""
    flags, wrong = Flags({}, {}, [*words], []), []
    left = [*words]
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        flag = KNOWN.get(name) if word.startswith("--") else None
        if flag is None:
            flags.warnings.extend(_misspelt(word, name))
            continue
        if not equals and (not left or left[0].startswith("--")):
            if flag.read is not _switch:
                wrong.append(f"--{name}: its value is missing")
                continue
            value = "true"
        elif not equals:
            value = left.pop(0)
        try:
            _set(flags, flag, value)
        except OptionError as error:
            wrong.append(error.worded(_as_flag))
        except ValueError as error:
            wrong.append(f"--{name}: {error}")
    return flags, wrong


def _as_flag(option: Option) -> str:
    return f"--{option.name} {option.value}"


def _set(flags: Flags, flag: SystemFlag, text: str) -> None:
    value = flag.read(text)
    if flag.note:
        flags.others[flag.name] = value
        if flag.note.startswith(NO_EFFECT):
            flags.warnings.append(f"--{flag.name} is {flag.note}")
    else:
        flags.options[flag.name] = TABLE[flag.name].rule(flag.name, value)


def _misspelt(word: str, name: str) -> list[str]:
    """Return a warning when a script's flag is nearly a system flag."""
    near = difflib.get_close_matches(name, [*KNOWN], n=1, cutoff=CLOSE_ENOUGH)
    if not near or not word.startswith("--"):
        return []
    return [f"--{name} goes to the script alone: it is not a system flag. Is --{near[0]} meant?"]
