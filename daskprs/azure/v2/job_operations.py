"""Jobs of a workspace: pipelines and single steps are run, and found again."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._job.result import RUNNING
from daskprs._options.site_defaults import default_job_dir, job_root
from daskprs._system.standard_streams import to_stderr
from daskprs.azure._pipelines.pipeline import run_with
from daskprs.azure._pipelines.run.result import COMPLETED
from daskprs.azure._registry import file_of_name
from daskprs.azure._yaml_files.document import Document
from daskprs.azure.v2.dsl import PipelineFunction
from daskprs.azure.v2.job import Job, kept, read_job, read_jobs, time_before
from daskprs.azure.v2.node import PIPELINE, Node
from daskprs.azure.v2.operations import Operations, Poller
from daskprs.azure.v2.pipeline_job import PipelineJob
from daskprs.errors import (
    OptionError,
    ParallelRunCanceled,
    ParallelRunInterrupted,
    PipelineFailed,
    UsageError,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs.errors import PipelineOutcome


class JobOperations(Operations):
    """Jobs: pipelines, and steps by themselves."""

    def create_or_update(
        self,
        job: PipelineJob | Node,
        *,
        experiment_name: str | None = None,
        description: str | None = None,
        compute: str | None = None,
        tags: Mapping[str, Any] | None = None,
        skip_validation: bool = False,
        client: Client | str | None = None,
        job_dir: str | PathLike[str] | None = None,
        overwrite: bool = False,
        resume: bool = False,
        accept_changes: Sequence[str] = (),
        secrets: Sequence[str] = (),
    ) -> Job:
        """Run a job to its end, and return it.

        Parameters
        ----------
        job
            A pipeline, or a step, which runs as a pipeline of one step.
        experiment_name
            A label.
        description, compute, tags, skip_validation
            Without effect: every job is checked as a whole.
        client, job_dir, overwrite, resume, accept_changes, secrets
            As those of `daskprs.azure.run_pipeline`. The name of the folder is that of the job.

        Raises
        ------
        ResourceExistsError
            When the workspace has a job of this name in another folder.
        UsageError, JobFolderError, PipelineFailed, ParallelRunCanceled, ParallelRunInterrupted
            As by `daskprs.azure.run_pipeline`.

        """
        document = _document_of(job)
        folder = Path(job_dir) if job_dir is not None else _new_folder(document)
        record = Job(
            folder.absolute().name,
            folder.absolute(),
            document.content.get("display_name") or document.name,
            experiment_name or document.content.get("experiment_name"),
        )
        return self.run(
            document,
            record,
            client=client,
            overwrite=overwrite,
            resume=resume,
            accept_changes=accept_changes,
            secrets=secrets,
        )

    def run(
        self,
        document: Document,
        record: Job,
        *,
        client: Client | str | None = None,
        resume: bool = False,
        **options: Any,
    ) -> Job:
        """Run a pipeline, and keep its record."""
        with kept(self._registry, record, goes_on=resume):
            try:
                result = run_with(
                    document,
                    self._client.assets(),
                    client=client or self._client.client,
                    job_dir=record.folder,
                    show=to_stderr,
                    resume=resume,
                    **options,
                )
            except (PipelineFailed, ParallelRunCanceled, ParallelRunInterrupted) as error:
                if error.result is not None:
                    _take_result(record, error.result)
                raise
            _take_result(record, result)
        return record

    def get(self, name: str) -> Job:
        """Return a job, or the step of one, by name."""
        return read_job(self._registry, name)

    def list(
        self, *, parent_job_name: str | None = None, max_results: int | None = None
    ) -> builtins.list[Job]:
        """Return the jobs, the last first, or the steps of a job."""
        if parent_job_name is not None:
            return [*self.get(parent_job_name).children][:max_results]
        return read_jobs(self._registry)[:max_results]

    def stream(self, name: str) -> None:
        """Show the end of a job: what it printed was shown when it ran."""
        to_stderr(str(self.get(name)))

    def download(
        self,
        name: str,
        *,
        download_path: str | PathLike[str] = ".",
        output_name: str | None = None,
        all: bool = False,  # noqa: A002 - the original's signature
    ) -> None:
        """Copy an output into ``named-outputs/<output_name>``, or the logs into ``artifacts``.

        The output ``score`` of a job of a batch endpoint is also copied into `download_path`
        itself, since published notebooks read it at either place.

        Parameters
        ----------
        name
            The name of a job or of a step.
        download_path
            The folder for both.
        output_name
            The output. Default: the logs.
        all
            Copy the logs and all outputs.

        Raises
        ------
        UsageError
            When the job has no such output, or has not written it.

        """
        self.get(name).download(Path(download_path), output_name, everything=all)

    def begin_cancel(self, name: str) -> Poller[None]:
        """Return at once: a job that can be named here has ended, or runs in another process."""
        job = self.get(name)
        if job.status == RUNNING:
            msg = f"{name} runs in another process: end it there by Ctrl-C, or by SIGINT."
            raise UsageError(msg)
        return Poller(None)


def _new_folder(document: Document) -> Path:
    """Return the folder of a run: by its name, or a new one."""
    name: str | None = document.content.get("name")
    title = Path(document.name).stem
    if not name:
        return default_job_dir(title, secrets.token_hex(4))
    if "/" in name:
        msg = f"{name!r} is not the name of a job: leave the slash out, or give job_dir its folder."
        raise OptionError(msg)
    file_of_name(name)  # refuses what leads elsewhere
    return job_root() / name


def _document_of(job: Any) -> Document:
    """Return a job as a document."""
    if isinstance(job, PipelineFunction):
        job = job()
    if isinstance(job, PipelineJob):
        return job.document()
    if isinstance(job, Node):
        name = job.name or (job.component.name or job.component.kind).replace(" ", "_")
        values = {"type": PIPELINE, "display_name": job.display_name, "jobs": {name: job.values()}}
        return Document.of_values(values, job.component.title, Path.cwd())
    msg = (
        f"{job!r} is not a job: give a pipeline, or a step of command() or parallel_run_function()."
    )
    raise OptionError(msg)


def _take_result(record: Job, result: PipelineOutcome) -> None:
    """Put the steps and outputs of a result into the record of a job.

    A step that a resume keeps ran when it did: it took no time now.
    """
    before = {one.name: one for one in record.children}
    record.children = [
        before[f"{record.name}.{name}"]
        if f"{record.name}.{name}" in before and step.status == COMPLETED and not step.elapsed_s
        else Job(
            f"{record.name}.{name}",
            step.folder,
            name,
            record.experiment_name,
            step.status,
            dict(step.outputs),
            [step.log],
            {"azureml.moduleName": step.component or name},
            time_before(step.elapsed_s),
            time_before(),
        )
        for name, step in result.steps.items()
    ]
    only = record.children[0].outputs if len(record.children) == 1 else {}
    record.outputs = dict(result.outputs or only)  # a single step declares none for its pipeline
    record.logs = [step.log for step in result.steps.values()]
