"""``daskprs run PIPELINE.yml``: a pipeline file, where `run` is given no script."""

from __future__ import annotations

from typing import Any

import click

from daskprs._cli.exit_codes import every_end, show
from daskprs._cli.options import CONTEXT, QUIET, SECRETS, client, pairs, repeated
from daskprs.azure._commands.assets import assets_of, with_assets
from daskprs.azure._commands.surface import lines, pipeline_command

AFTER_PIPELINE = """\b
Examples:
  daskprs run pipeline.yml --set jobs.score.mini_batch_size=20kb
  daskprs run pipeline.yml --input data=/data/today --output predictions=scored.csv
  daskprs run pipeline.yml --asset azureml:my-model:1=models/mine --datastore blobs=/data/blobs

\b
Exit codes:
  0    all steps are Completed
  42   a step failed: it is named, with the end of its log
  75   interrupted, by SIGTERM or the end of a batch job; resume it
  130  canceled, by Ctrl-C
  2    nothing was started: every mistake is shown with its file, line and column
"""


@click.command("run", context_settings=CONTEXT, epilog=AFTER_PIPELINE)
@click.argument("pipeline")
@repeated("--set", "overrides", form="WAY.TO.A.VALUE=VALUE", text="Change a value of the file.")
@repeated(
    "--input", "inputs", form="NAME=VALUE", text="An input of the pipeline: a path, or a value."
)
@repeated(
    "--output",
    "outputs",
    form="NAME=PATH",
    text="Where an output goes: of the pipeline, or STEP.NAME.",
)
@with_assets
@client(" for parallel steps. Default: this machine.")
@click.option("--job-dir", metavar="FOLDER", help="The folder of the run.")
@click.option("--overwrite", is_flag=True, help="Replace existing output files.")
@click.option(
    "--resume", is_flag=True, help="Resume the run in --job-dir: Completed steps are kept."
)
@click.option(
    "--accept-changes",
    default="",
    metavar="NAME,…",
    help="With --resume: script, input or options may have changed.",
)
@SECRETS
@QUIET
@click.pass_context
def run_pipeline_file(
    ctx: click.Context,
    /,
    pipeline: str,
    overrides: tuple[str, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    accept_changes: str,
    *,
    quiet: bool,
    **values: Any,
) -> None:
    """Run the steps of PIPELINE, a YAML file of Azure Machine Learning, on this machine.

    Paths in the file are relative to it; those that are given here, to the working directory.
    """
    with every_end():
        from daskprs.azure._pipelines.pipeline import run_with

        show(
            run_with(
                pipeline,
                assets_of(values),
                overrides=overrides,
                inputs=pairs("--input", inputs, "NAME=VALUE, for an input of the pipeline"),
                outputs=pairs("--output", outputs),
                accept_changes=[one.strip() for one in accept_changes.split(",") if one.strip()],
                show=lines(quiet=quiet),
                surface=pipeline_command(ctx),
                **values,
            )
        )
