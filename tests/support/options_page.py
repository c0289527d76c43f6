"""The tables of the pages of options and of Python: `RunOptions`, with the texts of `parallel_run`.

``python -m tests.support.options_page`` writes them anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import daskprs
from daskprs.cli.options import DESCRIPTIONS
from daskprs.options.run_options import GROUPS, TABLE
from tests.support.filled_page import filled

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE, API_PAGE = REFERENCE / "options.md", REFERENCE / "api.md"
WORDS = {Any: "frame", Mapping: "dict", Sequence: "list of str", PathLike: "path"}
"""What a type is called: that of a schema is any object with columns, mostly a frame."""


def tables() -> dict[str, str]:
    """Return the table of each group of options."""
    rows: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, row in TABLE.items():
        text, default = DESCRIPTIONS[name]
        default = default or f"`{row.default!r}`"
        cells = [f"`{name}`{{ #{name} }}", _kind(row.types), default, text]
        rows[row.group].append(f"| {' | '.join(cells)} |")
    head = ["| option | type | default | |", "|---|---|---|---|"]
    return {group: "\n".join([*head, *lines]) for group, lines in rows.items()}


def tables_of_python() -> dict[str, str]:
    """Return the call of `parallel_run`, its own parameters, and its options by group."""
    parameters = inspect.signature(daskprs.parallel_run).parameters
    own = [name for name in parameters if name not in TABLE and name in DESCRIPTIONS]
    rows = ["| parameter | | default |", "|---|---|---|"]
    for name in own:
        text, default = DESCRIPTIONS[name]
        value = parameters[name].default
        needed = value is inspect.Parameter.empty
        default = default or ("required" if needed else f"`{value!r}`")
        rows.append(f"| `{name}` | {text} | {default} |")
    groups = ["| group | options |", "|---|---|"]
    for group in GROUPS:
        names = [name for name, row in TABLE.items() if row.group == group]
        links = ", ".join(f"[`{name}`](options.md#{name})" for name in names)
        groups.append(f"| [{group}](options.md#{group.lower().replace(' ', '-')}) | {links} |")
    return {
        "call": f"```py\n{_call(own)}\n```",
        "parameters": "\n".join(rows),
        "groups": "\n".join(groups),
    }


def written(page: str) -> str:
    """Return the page of options with its tables as they ought to be."""
    return filled(page, tables())


def written_api(page: str) -> str:
    """Return the page of Python with the same."""
    return filled(page, tables_of_python())


def _call(own: Sequence[str]) -> str:
    """Return the signature, a line for the data and one for each few parameters of its own."""
    parameters = inspect.signature(daskprs.parallel_run).parameters
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [name for name in own if parameters[name].kind is kind]
    named = [f"{name}={parameters[name].default!r}" for name in own if name not in first]
    return (
        "daskprs.parallel_run(\n"
        f"    {', '.join([*first, '*'])},\n"
        f"    {', '.join(named)},\n"
        "    **options,\n"
        ") -> ParallelRunResult"
    )


def _kind(types: tuple[Any, ...]) -> str:
    """Return the types of an option in words."""
    words = []
    for one in types:
        if get_origin(one) is Literal:
            words += [f"`{value!r}`".replace("'", '"') for value in get_args(one)]
        elif one is not NoneType:
            origin = get_origin(one) or one
            words.append(WORDS.get(origin) or origin.__name__)
    return ", ".join(dict.fromkeys(words))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    API_PAGE.write_text(written_api(API_PAGE.read_text()))
