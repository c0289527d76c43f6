"""The command ``invoke``: a batch deployment scores data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskprs._cli.exit_codes import every_end, show
from daskprs._cli.options import (
    CONTEXT,
    QUIET,
    SECRETS,
    client,
    command_line,
    help_of,
    pairs,
    repeated,
)
from daskprs._job.flags import flagged
from daskprs._system.standard_streams import to_stderr
from daskprs.azure._commands.assets import assets_of, with_assets
from daskprs.azure._commands.surface import lines, pipeline_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.azure._assets import Assets
    from daskprs.azure._pipelines.ports import Invocation
    from daskprs.azure._yaml_files.document import Document

AFTER_INVOKE = """\b
Examples:
  daskprs invoke deployment.yml --input pictures/
  daskprs invoke deployment.yml --input 'data/*.csv' --mini-batch-size 20 --output-path scored
  daskprs invoke deployment.yml --input data/ --asset heart-classifier=models/heart
  daskprs invoke pipeline-deployment.yml --input unlabeled=data/ --input mode=append

\b
Exit codes:
  those of daskprs run
"""
MODEL_SPELLING = {
    "output_dir": "--output-path",
    "append_row_file_name": "--set output_file_name",
    "resume": "daskprs resume FOLDER",
}
"""Options of a job that have no flag of this command, and their replacements."""
OF_A_MODEL = ("input_type", "output_path", "mini_batch_size", "instance_count")
"""Options that a deployment of a pipeline does not have."""


@click.command("invoke", context_settings=CONTEXT, epilog=AFTER_INVOKE)
@click.argument("deployment", metavar="FILE")
@repeated(
    "--input",
    "inputs",
    form="DATA",
    text="A file, a folder (searched recursively), a glob, a URL, or a reference to an asset; "
    "for each input of a pipeline NAME=VALUE.",
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
@repeated("--output", "outputs", form="NAME=PATH", text="Where an output of a pipeline goes.")
@click.option("--file", metavar="FILE", help="A YAML file with the inputs and outputs, by name.")
@click.option("--mini-batch-size", metavar="N", help="Files for one call of run.")
@click.option("--instance-count", "-c", metavar="N", help="Nodes.")
@repeated(
    "--set",
    "changes",
    form="KEY=VALUE",
    text="Another value of a key: retry_settings.max_retries=1, output_file_name=a.csv, …",
)
@with_assets
@click.option(
    "--job-dir",
    metavar="FOLDER",
    help="The job folder. Default: ./daskprs-jobs/<deployment>-<utc>-<id>/.",
)
@client(". Default: the cores of this machine.")
@click.option("--overwrite", is_flag=True, help=help_of("overwrite"))
@click.option(
    "--resume",
    is_flag=True,
    help="Resume a deployment of a pipeline in --job-dir: Completed steps are kept.",
)
@click.option(
    "--values-as-arguments",
    is_flag=True,
    help="Give the values of a pipeline's inputs to commands as arguments, never as shell, and "
    "refuse what cannot take them so: for values that others send.",
)
@SECRETS
@QUIET
@click.pass_context
def invoke(ctx: click.Context, /, deployment: str, **values: Any) -> None:
    """Score DATA by the batch deployment that the YAML file FILE describes."""
    with every_end():
        from daskprs.azure._file_kinds import is_of_pipeline
        from daskprs.azure._pipelines.ports import Invocation, read_invocation
        from daskprs.azure._yaml_files.document import Document

        assets, file = assets_of(values), values.pop("file")
        given = Invocation({}, {}) if file is None else read_invocation(file, assets)
        document = Document.read(deployment)
        if is_of_pipeline(document.content):
            _invoke_pipeline(ctx, document, assets, given, values)
        else:
            with every_end(lambda option: MODEL_SPELLING.get(option.name) or flagged(option)):
                _invoke_model(ctx, deployment, assets, given, values)


def _invoke_model(
    ctx: click.Context, file: str, assets: Assets, given: Invocation, values: dict[str, Any]
) -> None:
    from daskprs.azure._deployments.batch_deployment import BatchDeployment

    inputs = [*values.pop("inputs"), *given.inputs.values()]
    outputs = [*pairs("--output", values.pop("outputs")).values(), *given.outputs.values()]
    if len(inputs) != 1 or len(outputs) > 1:
        message = (
            "a deployment of a model has one --input, for many files a folder or a glob in quotes, "
            f"and one output, by --output-path. Here are {len(inputs)} and {len(outputs)}."
        )
        raise click.UsageError(message)
    values.pop("values_as_arguments")  # a model has no commands
    if values.pop("resume"):
        message = "a deployment of a model goes on by its folder: daskprs resume FOLDER"
        raise click.UsageError(message)
    quiet, changes = values.pop("quiet"), pairs("--set", values.pop("changes"))
    values["output_path"] = values["output_path"] or next(iter(outputs), None)
    deployment = BatchDeployment.load(file, assets=assets)
    _show_unused(file, deployment.without_effect)
    show(
        deployment.invoke(
            inputs[0],
            **values,
            changes=changes,
            progress=False if quiet else None,
            surface=command_line(ctx),
        )
    )


def _invoke_pipeline(
    ctx: click.Context,
    document: Document,
    assets: Assets,
    given: Invocation,
    values: dict[str, Any],
) -> None:
    from daskprs.azure._deployments.pipeline_deployment import pipeline_deployment_of
    from daskprs.azure._pipelines.pipeline import run_with

    unfit = [f"--{name.replace('_', '-')}" for name in OF_A_MODEL if values.pop(name) is not None]
    if unfit:
        message = f"{', '.join(unfit)}: only for a deployment of a model; this one is of a pipeline"
        raise click.UsageError(message)
    deployed = pipeline_deployment_of(document, assets)
    _show_unused(document.name, deployed.without_effect)
    quiet, is_served = values.pop("quiet"), values.pop("values_as_arguments")
    given_inputs = values.pop("inputs")
    show(
        run_with(
            deployed.path,
            assets,
            overrides=(*deployed.overrides, *values.pop("changes")),
            inputs={
                **given.inputs,
                **(
                    pairs("--input", given_inputs) if is_served else _referred(given_inputs, assets)
                ),
            },
            is_served=is_served,
            outputs={**given.outputs, **pairs("--output", values.pop("outputs"))},
            show=lines(quiet=quiet),
            surface=pipeline_command(ctx),
            **values,
        )
    )


def _referred(words: Iterable[str], assets: Assets) -> dict[str, str]:
    """Return inputs by name, references as the paths that they stand for."""
    return {
        name: str(assets.place(value, Path.cwd())) if value.startswith("azureml:") else value
        for name, value in pairs("--input", words).items()
    }


def _show_unused(file: str, keys: Iterable[str]) -> None:
    """Show the keys that have no effect here."""
    names = ", ".join(keys)
    if names:
        to_stderr(f"daskprs: {file}: without effect here: {names}.")
