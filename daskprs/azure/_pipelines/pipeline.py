"""`run_pipeline`: run an Azure pipeline file on this machine or on Dask."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from daskprs._folders.until_refused import until_refused
from daskprs._job.frontend import Surface
from daskprs._options.client_rules import check_client
from daskprs._options.site_defaults import default_job_dir, site_defaults
from daskprs._system.standard_streams import to_stderr
from daskprs.azure._assets import as_texts, given_places
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.command_step import Command, refuse_no_shell
from daskprs.azure._pipelines.file import read_pipeline
from daskprs.azure._pipelines.run.pipeline_run import PipelineRun, check_secrets
from daskprs.azure._pipelines.values import CallerInputs
from daskprs.azure._yaml_files.document import Document
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs.azure._assets import Assets
    from daskprs.azure._pipelines.run.result import PipelineResult


def run_pipeline(
    path: str | PathLike[str],
    *,
    overrides: Sequence[str] = (),
    inputs: Mapping[str, str | PathLike[str]] | None = None,
    outputs: Mapping[str, str | PathLike[str]] | None = None,
    assets: Mapping[str, str | PathLike[str]] | str | PathLike[str] | None = None,
    datastores: Mapping[str, str | PathLike[str]] | None = None,
    environments: Mapping[str, str | PathLike[str]] | None = None,
    client: Client | str | None = None,
    job_dir: str | PathLike[str] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    accept_changes: Sequence[str] = (),
    secrets: Sequence[str] = (),
    show: Callable[[str], None] | None = None,
) -> PipelineResult:
    """Run a pipeline of parallel and command steps from its YAML file.

    Parameters
    ----------
    path
        The file. Paths in it are relative to it.
    overrides
        Changes to it: ``"jobs.score.mini_batch_size=20kb"``.
    inputs
        Values and paths for inputs of the pipeline, by name.
    outputs
        Places of outputs, by the name of an output of the pipeline or ``"step.output"``.
    assets
        Local paths of the pipeline's assets, by ``"name"``, ``"name:version"`` or whole reference;
        or a mapping file with ``assets``, ``datastores`` and ``environments``.
    datastores
        Local roots of datastores, by name.
    environments
        Interpreters of environments, or the folders that have one, by the name of the environment
        in the files, or of a step without one. Default: the Python that runs daskprs.
    client
        A cluster for parallel steps: its address, or a client of it. Default: this machine.
    job_dir
        The folder of the run. Default: ``./daskprs-jobs/<pipeline>-<utc>-<id>/``.
    overwrite
        Replace existing output files of parallel steps.
    resume
        Resume the run in `job_dir`: steps that are Completed are kept.
    accept_changes
        With `resume`: as `accept_changes` of `daskprs.parallel_run`, for jobs that had begun.
    secrets
        Names of environment variables of the file or of the caller, whose values are masked in all
        that the steps write to their logs. Default: those of Dask's config.
    show
        Receives lines of progress. Default: lines go to stderr.

    Returns
    -------
    PipelineResult
        Status, folder, log and outputs of each step, and the outputs of the pipeline.

    Raises
    ------
    UsageError
        With all mistakes in the files or the arguments; nothing was started.
    JobFolderError
        When `job_dir` holds a run already, or is in use.
    PipelineFailed
        When a step failed; carries the result.
    ParallelRunCanceled, ParallelRunInterrupted
        When Ctrl-C ended it (a `KeyboardInterrupt`).

    """
    return run_with(
        path,
        given_places(assets, datastores, environments),
        overrides=overrides,
        inputs=inputs,
        outputs=outputs,
        client=client,
        job_dir=job_dir,
        overwrite=overwrite,
        resume=resume,
        accept_changes=accept_changes,
        secrets=secrets,
        show=show or to_stderr,
    )


def run_with(
    source: Document | str | PathLike[str],
    assets: Assets,
    *,
    show: Callable[[str], None],
    overrides: Sequence[str] = (),
    inputs: Mapping[str, str | PathLike[str]] | None = None,
    outputs: Mapping[str, str | PathLike[str]] | None = None,
    client: Client | str | None = None,
    job_dir: str | PathLike[str] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    accept_changes: Sequence[str] = (),
    secrets: Sequence[str] = (),
    surface: Surface | None = None,
    is_served: bool = False,
) -> PipelineResult:
    """Run a pipeline, in a file or in a document of values, as `run_pipeline` does."""
    if resume and job_dir is None:
        option = Option("resume", value=True)
        raise OptionError(option, ": name the folder of the run by ", Option("job_dir"), ".")
    folder = PipelineFolder(job_dir or default_job_dir(run_name(source), token_hex(4)))
    names = secrets or site_defaults().get("secrets") or ()
    given = CallerInputs(
        assets=assets,
        overrides=tuple(overrides),
        inputs=as_texts(inputs),
        outputs=as_texts(outputs),
        options={
            **({"overwrite": True} if overwrite else {}),
            **({"secrets": list(names)} if names else {}),
        },
        client=_address(client),
        resume=resume,
        surface=surface or Surface(),
        is_served=is_served,
    )
    with until_refused(folder.included_code):
        pipeline = read_pipeline(source, folder, given)
        check_secrets(names, pipeline.steps.values())
        if any(isinstance(step.work, Command) for step in pipeline.steps.values()):
            refuse_no_shell()
        if given.client is not None:
            from daskprs._cluster.connect import check_scheduler

            check_scheduler(given.client)
        again = {"accept_changes": list(accept_changes)} if accept_changes else {}
        run = PipelineRun(
            pipeline, folder, show, resume=resume, again=again, secrets=names, surface=surface
        )
        return run.run()


def run_name(source: Document | str | PathLike[str]) -> str:
    """Return the name for runs of a file: the name of the file or of its folder."""
    place = Path(source.name if isinstance(source, Document) else source).absolute()
    return place.parent.name if place.stem == "pipeline" else place.stem


def _address(client: Any) -> str | None:
    """Return the address of a cluster, since steps run in separate processes."""
    checked = check_client(client)
    if checked is None or isinstance(checked, str):
        return checked
    address: str = checked.scheduler.address
    if address.startswith("inproc:"):
        msg = (
            "client: the steps of a pipeline are processes of their own. Give a cluster that is "
            "not in this process, or none."
        )
        raise OptionError(msg)
    return address
