"""The tables of the pages of options and of Python: `RunOptions`, and the call of `parallel_run`.

``python -m tests.support.options_page`` writes them anew.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import daskprs
from daskprs._cli.options import DESCRIPTIONS, descriptions
from daskprs._options.arguments import MoreOptions
from daskprs._options.run_options import GROUPS, TABLE
from tests.support.filled_page import filled

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE, API_PAGE = REFERENCE / "options.md", REFERENCE / "api.md"
OF_MORE = descriptions(MoreOptions)
"""The parameters behind `more` that are no options of a job."""
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
    texts = descriptions(daskprs.parallel_run)
    rows = ["| parameter | | default |", "|---|---|---|"]
    for name, (text, words) in {name: texts[name] for name in parameters if name in texts}.items():
        value = parameters[name].default
        default = "required" if value is inspect.Parameter.empty else f"`{value!r}`"
        rows.append(f"| `{name}` | {text} | {words or default} |")
    rows += [f"| `{name}` | {text} | `{words}` |" for name, (text, words) in OF_MORE.items()]
    groups = ["| group | options |", "|---|---|"]
    for group in GROUPS:
        names = [name for name, row in TABLE.items() if row.group == group]
        links = ", ".join(f"[`{name}`](options.md#{name})" for name in names)
        anchor = group.lower().replace(" ", "-")
        anchor = f"all-of-{anchor}" if anchor in TABLE else anchor  # an option has the other one
        groups.append(f"| [{group}](options.md#{anchor}) | {links} |")
    return {
        "call": f"```py\n{_call()}\n```",
        "parameters": "\n".join(rows),
        "groups": "\n".join(groups),
    }


def written(page: str) -> str:
    """Return the page of options with its tables as they ought to be."""
    return filled(page, tables())


def written_api(page: str) -> str:
    """Return the page of Python with the same."""
    return filled(page, tables_of_python())


def _call() -> str:
    """Return the signature, a paragraph for each group of options that it spells out."""
    parameters = inspect.signature(daskprs.parallel_run).parameters.values()
    groups: dict[str, list[str]] = {}
    for one in parameters:
        group = TABLE[one.name].group if one.name in TABLE else one.kind.name
        groups.setdefault(group, []).append(_argument(one))
    lines = {group: textwrap.fill(", ".join(words), 80) + "," for group, words in groups.items()}
    first, own, *options, more = lines.values()
    headed = [f"# {group}\n{lines[group]}" for group in GROUPS if group in lines]
    assert options == [lines[group] for group in GROUPS if group in lines]
    whole = "\n".join([f"{first} *,", own, *headed, more])
    return f"daskprs.parallel_run(\n{textwrap.indent(whole, '    ')}\n) -> ParallelRunResult"


def _argument(parameter: inspect.Parameter) -> str:
    """Return a parameter without its type, and with the default of the table."""
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}".replace("'", '"')


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
