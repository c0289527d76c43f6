"""The command ``invoke``: a batch deployment, and the files that it is to score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daskprs.cli_assets import assets_of, with_assets
from daskprs.cli_ends import every_end, show
from daskprs.cli_help import AFTER_INVOKE
from daskprs.cli_options import CONTEXT, pairs
from daskprs.cli_surface import CommandLine
from daskprs.option_help import HELP

if TYPE_CHECKING:
    from daskprs.azure.batch_deployment import BatchDeployment


@click.command("invoke", context_settings=CONTEXT, epilog=AFTER_INVOKE)
@click.argument("file")
@click.option(
    "--input",
    "data",
    required=True,
    metavar="DATA",
    help="A file, a folder (searched recursively), a glob, a URL, or a reference to an asset.",
)
@click.option(
    "--input-type",
    type=click.Choice(["uri_file", "uri_folder"]),
    help="What DATA has to be. Default: either.",
)
@click.option(
    "--output-path",
    metavar="FOLDER",
    help="The output folder, or its URL. Default: <job folder>/output.",
)
@click.option("--mini-batch-size", metavar="N", help="Files for one call of run.")
@click.option("--instance-count", "-c", metavar="N", help="Nodes.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another value of a key: retry_settings.max_retries=1, output_file_name=a.csv, …",
)
@with_assets
@click.option(
    "--job-dir",
    metavar="FOLDER",
    help="The job folder. Default: ./daskprs-jobs/<deployment>-<utc>-<id>/.",
)
@click.option(
    "--client",
    "--scheduler",
    metavar="ADDRESS",
    help="The scheduler of a Dask cluster. Default: the cores of this machine.",
)
@click.option("--overwrite", is_flag=True, help=HELP["overwrite"])
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.pass_context
def invoke(ctx: click.Context, /, file: str, data: str, **values: Any) -> None:
    """Score DATA by the batch deployment that the YAML file FILE describes."""
    changes = pairs("--set", values.pop("changes"))
    with every_end():
        from daskprs.azure.batch_deployment import BatchDeployment

        quiet = values.pop("quiet")
        deployment = BatchDeployment.load(file, assets=assets_of(values))
        _say_once(deployment, file)
        given = {name: value for name, value in values.items() if value is not None}
        show(
            deployment.invoke(
                data,
                **given,
                changes=changes,
                progress=False if quiet else None,
                surface=CommandLine(ctx),
            )
        )


def _say_once(deployment: BatchDeployment, file: str) -> None:
    """Say which keys mean nothing here."""
    keys = ", ".join(deployment.without_effect)
    if keys:
        click.echo(f"daskprs: {file}: without effect here: {keys}.", err=True)
