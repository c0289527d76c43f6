"""How commands are told where assets and datastores are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daskprs.cli.options import pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.azure.assets import Assets

OF_ASSETS: list[Callable[[Any], Any]] = [
    click.option(
        "--asset",
        multiple=True,
        metavar="NAME=PATH",
        help="Where azureml:NAME:1 or azureml:NAME@latest is; NAME:1 is that version alone.",
    ),
    click.option(
        "--assets",
        metavar="FILE",
        help="A YAML file with places: assets: {NAME: PATH}, datastores: {NAME: FOLDER}.",
    ),
    click.option(
        "--datastore",
        multiple=True,
        metavar="NAME=FOLDER",
        help="The folder that azureml://datastores/NAME/paths/ stands for.",
    ),
]


def with_assets(command: Any) -> Any:
    """Give a command these options."""
    for add in reversed(OF_ASSETS):
        command = add(command)
    return command


def assets_of(values: dict[str, Any]) -> Assets:
    """Take these options out of what a command was given.

    Raises
    ------
    YamlError
        When the file with places has mistakes.

    """
    from daskprs.azure.assets import Assets, split_asset

    told, file = {}, values.pop("assets")
    for word in values.pop("asset"):
        sides = split_asset(word)
        if sides is None:
            message = f"--asset {word!r}: write NAME=PATH"
            raise click.UsageError(message)
        told[sides[0]] = sides[1]
    known = Assets() if file is None else Assets.read(file)
    return known.and_also(told, pairs("--datastore", values.pop("datastore"), "NAME=FOLDER"))
