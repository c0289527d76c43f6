"""Options on the command line: flags and help from the table of options, and flags in messages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from daskprs._job.flags import flag_of, flagged
from daskprs._job.frontend import Surface, command_to_report, command_to_resume
from daskprs._options.run_options import GROUPS, INPUT, TABLE, RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


OF_A_RUN = tuple(name for name, row in TABLE.items() if row.is_generated)
OF_READING = tuple(name for name in OF_A_RUN if TABLE[name].group == INPUT)
DASHED = {name.replace("_", "-") for name in TABLE} | {"job-dir", "output-dir"}
PAIRS = {
    "environment_variables": ("-e", "NAME=VALUE"),
    "side_inputs": ("NAME=PATH",),
}
"""The short flag, if any, and the form of options that are repeated for each pair."""
OF_VALUES = {"csv_options": "NAME=VALUE", "rate_limit": "NAME=NUMBER"}
TYPES = "COLUMN=TYPE"
"""The form of those that are types of columns."""
AMOUNTS = ("NAME=AMOUNT",)
"""The form of those that are numbers."""
OWN_BEFORE = {
    "Script": ("script",),
    "Processes": ("client", "here"),
    "Output": ("output", "output_dir"),
    "The job": ("job_dir",),
}
OWN_AFTER = {"The job": ("extend", "quiet", "as_json")}
"""Options that only the command line has, before and after those of `RunOptions`, and `output`,
which comes first."""
HEADINGS = {
    group: tuple(
        dict.fromkeys(
            (
                *OWN_BEFORE.get(group, ()),
                *(name for name, row in TABLE.items() if row.group == group),
                *OWN_AFTER.get(group, ()),
            )
        )
    )
    for group in GROUPS
}
"""Options in the order in which they are shown; the headings are those of the documentation."""


def dashed(word: str) -> str:
    """Return the name of an option with dashes; some type it with underscores."""
    name = word.replace("_", "-")
    return name if name in DASHED else word  # click asks for values too, and append_row is one


CONTEXT = {"token_normalize_func": dashed, "max_content_width": 200}


def stacked(*adds: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return one decorator for several, which apply as if they were written in this order."""

    def add_all(command: Any) -> Any:
        for add in reversed(adds):
            command = add(command)
        return command

    return add_all


def options(
    names: Iterable[str], defaults: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[Any], Any]:
    """Return a decorator that gives a command these options, some with defaults of its own."""
    return stacked(*(_option(name, defaults.get(name)) for name in names))


def client(text: str) -> Callable[[Any], Any]:
    """Return the option that names a cluster."""
    text = f"The address, or the scheduler file, of a Dask cluster{text}"
    return click.option("--client", "--scheduler", metavar="ADDRESS", help=text)


def repeated(*names: str, form: str, text: str) -> Callable[[Any], Any]:
    """Return an option that may be given several times."""
    return click.option(*names, multiple=True, metavar=form, help=text)


QUIET = click.option("--quiet", is_flag=True, help="Show no progress.")
EXTEND = click.option(
    "--extend",
    is_flag=True,
    help="Continue where the input has grown: only what is new by content is run.",
)
SECRETS = repeated(
    "--secret",
    "secrets",
    form="NAME",
    text="An environment variable, of the file or of this command, whose value is masked in logs.",
)


def _option(name: str, default: Any = None) -> Callable[[Any], Any]:
    """Return the command line's form of an option, by the type of its values."""
    row, flag, text = TABLE[name], f"--{flag_of(name)}", help_of(name, default)
    kind, *others = (one for one in row.types if one is not NoneType)
    if get_origin(kind) is Mapping:
        is_amount = get_args(kind)[1] is float
        form = (OF_VALUES.get(name, TYPES),)
        *short, metavar = AMOUNTS if is_amount else PAIRS.get(name, form)
        return click.option(flag, *short, name, multiple=True, metavar=metavar, help=text)
    if kind is bool:
        flags = f"{flag}/--no-{flag[2:]}" if row.default else flag
        return click.option(flags, name, is_flag=True, default=None, help=text)
    if get_origin(kind) is Sequence and row.flag:
        return click.option(flag, name, multiple=True, metavar="NAME", help=text)
    if get_origin(kind) is Sequence:
        return click.option(flag, name, metavar="NAME,…", default=None, help=text)
    if get_origin(kind) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(kind)), help=text)
    is_number = kind in {int, float} and not others
    return click.option(flag, name, type=kind if is_number else str, help=text)


def descriptions(documented: Any) -> dict[str, tuple[str, str]]:
    """Return the text of each parameter in a docstring, and its default in words."""
    lines = f"{inspect.getdoc(documented) or ''}\n"
    entries = re.findall(r"^(\w+)\n((?:    .+\n)+)", lines, re.MULTILINE)
    texts = {name: " ".join(lines.split()).replace("``", "`") for name, lines in entries}
    split = {name: text.partition(" Default: ") for name, text in texts.items()}
    return {name: (text, default.removesuffix(".")) for name, (text, _, default) in split.items()}


DESCRIPTIONS = descriptions(RunOptions)


def help_of(name: str, own: Any = None) -> str:
    """Return the help of an option for the terminal: flags for names, and the default.

    `own` is that of a command whose default is another one than that of a job.
    """
    text, words = DESCRIPTIONS.get(name, ("", ""))  # without docstrings, as by `python -OO`
    default = TABLE[name].default
    if own is not None:
        default, words = own, ""
    if not words and default is not None and not isinstance(default, (bool, tuple)):
        words = repr(default)
    text = f"{text} Default: {words}." if words else text
    return re.sub(r"`([^`]+)`", lambda quoted: _plain(quoted[1]), text)


def _plain(code: str) -> str:
    """Return code in a help text: the flag of an option that has one, else the code itself."""
    has_flag = code in {*OF_A_RUN, "resume", "job_dir", "output_dir"}
    return f"--{flag_of(code)}" if has_flag else code


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as Python takes lists and mappings."""
    found = {name: value for name, value in values.items() if value not in (None, ())}
    for name in found.keys() & TABLE.keys():
        kind = get_origin(TABLE[name].types[0])
        if kind is Sequence and not TABLE[name].flag:
            found[name] = [part.strip() for part in found[name].split(",")]
        elif kind is Mapping:
            words = found[name]
            found[name] = pairs(f"--{flag_of(name)}", words)
            if "na_values" in found[name] and name == "csv_options":
                found[name]["na_values"] = [
                    word.partition("=")[2] for word in words if word.startswith("na_values=")
                ]
    return found


def _sides(word: str) -> tuple[str, str] | None:
    name, equals, value = word.partition("=")
    return (name, value) if name and equals else None


def pairs(
    option: str,
    words: Iterable[str],
    form: str = "NAME=VALUE",
    sides_of: Callable[[str], tuple[str, str] | None] = _sides,
) -> dict[str, str]:
    """Return words of this form as a dict; `sides_of` returns the two sides of a word, or None."""
    found = {}
    for word in words:
        sides = sides_of(word)
        if sides is None:
            message = f"{option} {word!r}: write {form}"
            raise click.UsageError(message)
        found[sides[0]] = sides[1]
    return found


class Grouped(click.Command):
    """A command whose help shows its options under the headings of the table of options."""

    heading_of_others: str | None = None
    """Under which options are shown that no heading names: those of plugins."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command is for, examples, and then its options, which are many."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_epilog(ctx, formatter)
        self.format_options(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that the command has, heading by heading."""
        records = {option.name: option.get_help_record(ctx) for option in self.get_params(ctx)}
        others = records.keys() - {name for names in HEADINGS.values() for name in names}
        for heading, own in HEADINGS.items():
            is_for_others = heading == self.heading_of_others
            names = (*own, *sorted(map(str, others - {"help"}))) if is_for_others else own
            shown = [record for name in names if (record := records.get(name)) is not None]
            if shown:
                with formatter.section(heading):
                    formatter.write_dl(shown)


class WithArguments(Grouped):
    """A command that hands the words behind ``--`` to its script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words behind ``--`` as arguments of the script."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["arguments"] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])


def data_of(inputs: tuple[str, ...]) -> Any:
    """Return the input that a command names."""
    return inputs[0] if len(inputs) == 1 else list(inputs)


def program_of(ctx: click.Context) -> str:
    """Return the words before the name of a command: ``daskprs``, or ``dask prs``."""
    return ctx.parent.command_path if ctx.parent is not None else "daskprs"


def command_line(ctx: click.Context) -> Surface:
    """Return the surface of a job that a command starts: next steps are commands to be pasted."""
    program = program_of(ctx)
    return Surface(
        flagged,
        partial(command_to_resume, program=program),
        partial(command_to_report, program=program),
    )
