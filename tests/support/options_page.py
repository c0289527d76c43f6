"""What is made from the table of options: tables of two pages, and lists in two docstrings.

``python -m tests.support.options_page`` writes them anew.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import daskprs
from daskprs._cli.options import DESCRIPTIONS, descriptions
from daskprs._options.arguments import MoreOptions
from daskprs._options.run_options import GROUPS, INPUT, TABLE
from tests.support.filled_page import filled

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE, API_PAGE = REFERENCE / "options.md", REFERENCE / "api.md"
CALLS = {daskprs.parallel_run: list(GROUPS), daskprs.plan: [INPUT]}
"""Functions whose docstrings list their options, and the groups that each of them takes."""
WIDTH = 100
LISTED = re.compile(r"(?<=\n    Other Parameters\n    -{16}\n).*?\n(?=\n    Returns\n)", re.DOTALL)
PAUSES = (re.compile(r"[:;](?= )| \("), re.compile(r",(?= )"))
"""Where the first sentence of an option that is too long for a line may end; commas come last."""
CODE = re.compile(r"`([^`]+)`")
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


def source_of(call: Callable[..., Any]) -> Path:
    """Return the module of a function."""
    return Path(inspect.getfile(call))


def written_source(source: str, call: Callable[..., Any]) -> str:
    """Return a module with the list of options in the docstring of a function as it ought to be."""
    at = source.index(f"def {call.__name__}(")
    before, after = source[:at], source[at:]
    assert LISTED.search(after), f"{call.__name__} has no section Other Parameters before Returns"
    return before + LISTED.sub(lambda _: _listed(call), after, count=1)


def _listed(call: Callable[..., Any]) -> str:
    """Return the options of a call by group: a line for those that its signature shows."""
    parameters = inspect.signature(call).parameters
    told = descriptions(call)
    lines: list[str] = []
    for group in CALLS[call]:
        names = [name for name, row in TABLE.items() if row.group == group and name not in told]
        rare = [name for name in names if name not in parameters]
        lines.append(f"    {group}")
        lines += [_line(name) for name in names if name in parameters]
        indent = " " * 8
        lines += textwrap.wrap(
            f"Also: {', '.join(rare)}.",
            WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
        ) * bool(rare)
    return "\n".join(lines) + "\n"


def _line(name: str) -> str:
    """Return a line with an option and the first sentence of its text, or as much as fits."""
    told, _ = DESCRIPTIONS[name]
    text = CODE.sub(lambda one: one[0] if one[1].isidentifier() else f"`{one[0]}`", told)
    line = f"        {name}: {text.partition('. ')[0].removesuffix('.')}."
    for pause in PAUSES:
        if len(line) > WIDTH:
            ends = [one.start() for one in pause.finditer(line, 10 + len(name), WIDTH)]
            line = f"{line[: ends[-1]]}." if ends else line
    assert len(line) <= WIDTH, f"the first sentence about {name} is too long for a docstring"
    return line


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
    for each in CALLS:
        module = source_of(each)
        module.write_text(written_source(module.read_text(), each))
