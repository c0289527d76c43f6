"""The options of a run on the command line, made from `RunOptions` so that they cannot differ."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
from typing import TYPE_CHECKING, Any

import click

from daskprs.options.option import INPUT
from daskprs.options.run_options import TABLE, RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daskprs.errors import Option

FIELDS = {field.name: field for field in dataclasses.fields(RunOptions)}
FLAGS = {name: row.flag for name, row in TABLE.items() if row.flag}
"""Flags that are given once for each value, and so are called by one of them."""
OF_A_RUN = tuple(name for name, row in TABLE.items() if row.is_generated)
OF_READING = tuple(name for name in OF_A_RUN if TABLE[name].group == INPUT)
DASHED = {name.replace("_", "-") for name in FIELDS} | {"job-dir", "output-dir"}


def dashed(word: str) -> str:
    """Return the name of an option with dashes; Azure's users type it with underscores."""
    name = word.replace("_", "-")
    return name if name in DASHED else word  # click asks for values too, and append_row is one


CONTEXT = {"token_normalize_func": dashed, "max_content_width": 100}


def options(names: Iterable[str]) -> Callable[[Any], Any]:
    """Return a decorator that gives a command these options."""

    def add(command: Any) -> Any:
        for name in reversed(tuple(names)):
            command = _option(FIELDS[name])(command)
        return command

    return add


def _option(field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    """Return the command line's form of an option: its type is that of the field."""
    flag = "--" + field.name.replace("_", "-")
    text, kind = help_of(field.name), str(field.type)
    if kind == "bool":
        flags = f"{flag}/--no-{flag[2:]}" if field.default else flag
        return click.option(flags, field.name, is_flag=True, default=None, help=text)
    if kind.startswith("Sequence[str]"):
        return click.option(flag, field.name, metavar="NAME,…", default=None, help=text)
    return click.option(flag, field.name, type=_type_of(kind), default=None, help=text)


def help_of(name: str) -> str:
    """Return the help of an option for the terminal: flags for names, and the default."""
    row, default = TABLE[name], FIELDS[name].default
    text = row.help
    if row.shown:
        text = f"{text} Default: {row.shown}."
    elif default is not None and not isinstance(default, (bool, tuple)):
        text = f"{text} Default: {default!r}."
    return re.sub(r"`([^`]+)`", lambda quoted: _plain(quoted[1]), text)


def _plain(code: str) -> str:
    return f"--{code.replace('_', '-')}" if code.replace("_", "-") in DASHED else code


def _type_of(kind: str) -> Any:
    kind = kind.removesuffix(" | None")
    if kind.startswith("Literal["):
        return click.Choice(ast.literal_eval(kind.removeprefix("Literal")))
    return {"int": int, "float": float}.get(kind, str)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, lists as lists."""
    found = {name: value for name, value in values.items() if value is not None}
    for name in found.keys() & FIELDS.keys():
        if str(FIELDS[name].type).startswith("Sequence[str]"):
            found[name] = [part.strip() for part in found[name].split(",")]
    return found


def flagged(option: Option) -> str:
    """Return an option as it is written here; see `daskprs.errors.Option`."""
    if option == ("resume", "extend"):
        return "--extend"
    name = FLAGS.get(option.name, option.name).replace("_", "-")
    if option.value is True:
        return f"--{name}"
    if option.value is False:
        return f"--no-{name}"
    value = ",".join(option.value) if isinstance(option.value, tuple) else str(option.value)
    return f"--{name}" if option.value is ... else f"--{name} {shlex.quote(value)}"


def pairs(option: str, words: Iterable[str], form: str = "NAME=VALUE") -> dict[str, str]:
    """Return words of this form as a dict."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            message = f"{option} {word!r}: write {form}"
            raise click.UsageError(message)
        found[name] = value
    return found
