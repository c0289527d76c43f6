"""The options of commands that say where assets, datastores and environments are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daskprs._cli.options import pairs, repeated, stacked

if TYPE_CHECKING:
    from daskprs.azure._assets import Assets

with_assets = stacked(
    repeated(
        "--asset",
        form="NAME=PATH",
        text="The place of azureml:NAME:1 or azureml:NAME@latest; NAME:1 names this version only.",
    ),
    click.option(
        "--assets",
        metavar="FILE",
        help="A YAML file of places: assets: {NAME: PATH}, datastores: {NAME: FOLDER}, "
        "environments: {NAME: PYTHON}.",
    ),
    repeated(
        "--datastore",
        form="NAME=FOLDER",
        text="The folder that azureml://datastores/NAME/paths/ refers to.",
    ),
    repeated(
        "--environment",
        form="NAME=PYTHON",
        text="The interpreter of the environment azureml:NAME:1, or the folder of a virtual or "
        "conda environment.",
    ),
)
"""A decorator that gives a command these options."""


def assets_of(values: dict[str, Any]) -> Assets:
    """Remove these options from the values of a command, and return the assets."""
    from daskprs.azure._assets import Assets, split_asset

    file = values.pop("assets")
    places = pairs("--asset", values.pop("asset"), "NAME=PATH", split_asset)
    datastores = pairs("--datastore", values.pop("datastore"), "NAME=FOLDER")
    pythons = pairs("--environment", values.pop("environment"), "NAME=PYTHON", split_asset)
    known = Assets() if file is None else Assets.read(file)
    return known.and_also(places, datastores, pythons)
