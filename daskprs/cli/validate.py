"""The command ``validate``: the mistakes in Azure's files, without running them."""

from __future__ import annotations

import sys
from typing import Any

import click

from daskprs.cli.assets import assets_of, with_assets
from daskprs.cli.exit_codes import every_end
from daskprs.cli.options import CONTEXT, pairs
from daskprs.core.ending import EXIT_USAGE

AFTER_VALIDATE = """\b
Examples:
  daskprs validate pipeline.yml deployment.yml
  daskprs validate pipeline.yml --asset my-model=models/mine --input data=/data/today

\b
Exit codes:
  0    nothing is wrong; there may be warnings
  2    there are mistakes: each is shown with its file, line and column
"""


@click.command("validate", context_settings=CONTEXT, epilog=AFTER_VALIDATE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="An input that a pipeline receives when it runs.",
)
@with_assets
def validate(files: tuple[str, ...], inputs: tuple[str, ...], **values: Any) -> None:
    """Show every mistake in FILE...

    Files may be pipelines, components, batch deployments, MLTables and configs of SDK v1.
    """
    given = pairs("--input", inputs)
    with every_end():
        from daskprs.azure.validation import validate as verdict_on

        assets = assets_of(values)
        verdicts = {file: verdict_on(file, assets, given) for file in files}
        for file, verdict in verdicts.items():
            for line in (*verdict.wrong, *verdict.warnings):
                click.echo(line)
            if not verdict.wrong:
                click.echo(f"{file}: nothing is wrong with this {verdict.kind}.")
        if any(verdict.wrong for verdict in verdicts.values()):
            sys.exit(EXIT_USAGE)
