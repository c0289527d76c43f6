"""One invocation of a deployment: the files, the model beside the job, and the run."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.azure.deployments.model_folder import MODEL_DIR, contained, refuse_unservable
from daskprs.azure.task import Task
from daskprs.errors import InputError, Option, OptionError
from daskprs.folders.job_folder import JobFolder, default_path
from daskprs.inputs.files.discover import discover
from daskprs.inputs.source.input_file import is_url

if TYPE_CHECKING:
    from os import PathLike

    from distributed import Client

    from daskprs.azure.assets import Assets
    from daskprs.azure.deployments.deployment import Deployment
    from daskprs.job.frontend import Surface
    from daskprs.job.result import ParallelRunResult

OF_ELSEWHERE = ("azureml:", "http:", "https:", "file:")
"""Prefixes of URLs that are looked up among the assets or refused, not read directly."""
KINDS = {"uri_file": Path.is_file, "uri_folder": Path.is_dir}


class Places(NamedTuple):
    """The paths of an invocation."""

    assets: Assets
    data: str | PathLike[str]
    input_type: str | None
    output_path: str | PathLike[str] | None
    job_dir: str | PathLike[str] | None

    def source(self) -> str:
        """Return the place of the files to score.

        Raises
        ------
        UsageError
            When the files do not exist, or are not of the requested type.

        """
        if self.input_type not in (None, *KINDS):
            told = f": must be one of {', '.join(KINDS)}."
            raise OptionError(Option("input_type", self.input_type), told)
        place = self._found(self.data)
        if is_url(place):
            return place
        path = Path(place)
        if self.input_type and path.exists() and not KINDS[self.input_type](path):
            raise InputError(Option("input_type", self.input_type), f": {path} is none.")
        return place

    def output(self) -> str | None:
        """Return the output folder; None: that of the job."""
        return None if self.output_path is None else self._found(self.output_path)

    def job(self, name: str) -> JobFolder:
        """Return the job folder of a deployment's job."""
        return JobFolder(self.job_dir or default_path(name, secrets.token_hex(4)))

    def _found(self, given: str | PathLike[str]) -> str:
        reference = os.fspath(given)
        if is_url(reference) and not reference.startswith(OF_ELSEWHERE):
            return reference
        return str(self.assets.place(reference, Path.cwd()))


def scored(
    deployment: Deployment,
    places: Places,
    *,
    client: Client | str | None,
    overwrite: bool,
    progress: bool | None,
    surface: Surface | None,
) -> ParallelRunResult:
    """Run a deployment over files; see `daskprs.azure.BatchDeployment.invoke`."""
    source, output, job = places.source(), places.output(), places.job(deployment.name)
    model = deployment.model
    if deployment.by_mlflow and model is not None and client is None:
        refuse_unservable(model, (path for one in discover(source) for path in one.paths()))
    options: dict[str, Any] = {**deployment.options(), "overwrite": overwrite}
    with ExitStack() as stack:
        if model is not None:
            folder = stack.enter_context(contained(model, job))
            options["side_inputs"] = {deployment.model_name: folder}
            variables = {MODEL_DIR: str(folder), **options["environment_variables"]}
            options["environment_variables"] = variables
        task = Task(
            name=deployment.name,
            data=source,
            script=deployment.script,
            source_directory=deployment.source_directory,
            options=options,
            job_dir=job.path,
            output_dir=output,
            client=client,
        )
        return task.run(progress=progress, surface=surface)
