"""The options of commands that say where assets and datastores are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daskprs.cli.options import pairs, stacked

if TYPE_CHECKING:
    from daskprs.azure.assets import Assets

with_assets = stacked(
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
)
"""A decorator that gives a command these options."""


def assets_of(values: dict[str, Any]) -> Assets:
    """Remove these options from the values of a command, and return the assets."""
    from daskprs.azure.assets import Assets, split_asset

    places, file = {}, values.pop("assets")
    for word in values.pop("asset"):
        sides = split_asset(word)
        if sides is None:
            message = f"--asset {word!r}: write NAME=PATH"
            raise click.UsageError(message)
        places[sides[0]] = sides[1]
    known = Assets() if file is None else Assets.read(file)
    return known.and_also(places, pairs("--datastore", values.pop("datastore"), "NAME=FOLDER"))
