"""Commands that plugins add: each is imported when it is called, or listed."""

from __future__ import annotations

from typing import NoReturn

import click

from daskprs import _plugins
from daskprs._cli.exit_codes import every_end
from daskprs.errors import UsageError


class PluginCommands(click.Group):
    """A group whose own commands come first, then those of daskprs's plugins, then of others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        own = (name for name in _plugins.own_names("commands") if " " not in name)
        others = _plugins.installed_names(_plugins.COMMANDS)
        return sorted({*super().list_commands(ctx), *own, *others})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; an unknown name leaves all of daskprs's own to be suggested."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        for name, dotted in _plugins.own_names("commands").items():
            if " " not in name:
                self.add_command(_plugins.loaded(dotted), name)
        return super().get_command(ctx, cmd_name) or _installed(cmd_name)


def first_argument(command: click.Command, words: list[str]) -> str:
    """Return the first of the words of a command that belongs to no option; empty without one."""
    flags = {
        name
        for option in command.params
        if isinstance(option, click.Option) and option.is_flag
        for name in (*option.opts, *option.secondary_opts)
    }
    words = [*words]
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            return word
        if "=" not in word and word not in flags and words:
            words.pop(0)  # its value
    return ""


def _installed(name: str) -> click.Command | None:
    """Return the command of another distribution; a broken one shows why, and harms no other."""
    try:
        found = _plugins.installed_part(_plugins.COMMANDS, name)
        if found is not None and not isinstance(found, click.Command):
            kind = type(found).__name__
            msg = f"{_plugins.COMMANDS}: {name!r} is a {kind}, and not a command of click."
            raise UsageError(msg)
    except UsageError as error:
        return _broken(name, error)
    return found


def _broken(name: str, error: UsageError) -> click.Command:
    def fail(**_: object) -> NoReturn:
        with every_end():
            raise error
        raise AssertionError

    context = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, context_settings=context, callback=fail, help=str(error))
