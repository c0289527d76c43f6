"""Options as flags of the command line, for commands that a message names."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._options.run_options import INPUT, SCRIPT, TABLE
from daskprs.errors import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_ONE = tuple(
    name
    for name, row in TABLE.items()
    if row.is_generated
    and (row.changes_results or row.group in (SCRIPT, INPUT) or name == "on_error")
    and name != "python"
)
"""Options that say what a mini-batch is, and what becomes of it in one process."""
MOST_INPUTS = 20
"""Most paths of an input that a message names."""
OF_CALLER = ("environment_variables",)
"""Those of them that a message does not name: values may be tokens."""


def flag_of(name: str) -> str:
    """Return the name of a flag, without its two dashes."""
    flag = TABLE[name].flag if name in TABLE else ""
    return (flag or name).replace("_", "-")


def flagged(option: Option) -> str:
    """Return an option in a message as a flag."""
    if option == ("resume", "extend"):
        return "--extend"
    name = flag_of(option.name)
    if option.value is True:
        return f"--{name}"
    if option.value is False:
        return f"--no-{name}"
    if option.value is ...:
        return f"--{name}"
    if isinstance(option.value, dict):
        pairs = (shlex.quote(f"{key}={value}") for key, value in option.value.items())
        return " ".join(f"--{name} {pair}" for pair in pairs)
    several = isinstance(option.value, (tuple, list))
    value = ",".join(map(str, option.value)) if several else str(option.value)
    return f"--{name} {shlex.quote(value)}"


def command_to_debug(kept: Mapping[str, Any], folder: Path) -> tuple[str, str]:
    """Return the command that runs a mini-batch of a kept call in a debugger.

    The option that names the mini-batch belongs between its two parts. Environment variables are
    not in it: the script has those of the caller. A call with objects, or with very many paths, is
    found by its folder.
    """
    data, script = kept["data"], kept["script"]
    inputs = [data] if isinstance(data, str) else data
    if kept["objects"] or script is None or len(inputs) > MOST_INPUTS:
        return "daskprs replay --debug", shlex.quote(str(folder))
    options = kept["options"]
    words = [shlex.join([script, *inputs])]
    root = kept["source_directory"]
    if root is not None and Path(script).parent != Path(root):
        words.append(flagged(Option("source_directory", root)))
    for name in (one for one in OF_ONE if one in options and one not in OF_CALLER):
        value = options[name]
        repeated = TABLE[name].flag and isinstance(value, (list, tuple))
        words += [flagged(Option(name, one)) for one in (value if repeated else [value])]
    arguments = options.get("arguments")
    words += ["--", shlex.join(arguments)] if arguments else []
    return "daskprs debug", " ".join(words)
