"""A batch deployment: a model, the script that scores files with it, and invocations."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from daskprs._folders.job_folder import JobFolder
from daskprs._inputs.files.discover import discover
from daskprs._inputs.source.input_file import is_url
from daskprs._job.frontend import Surface, command_to_resume
from daskprs._options.site_defaults import default_job_dir
from daskprs.azure._assets import given_places
from daskprs.azure._deployments.deployment import changed, deployment_of
from daskprs.azure._deployments.form import DeploymentSettings
from daskprs.azure._deployments.model_folder import (
    FOLDER,
    MODEL_DIR,
    contained,
    contents_told,
    refuse_unservable,
)
from daskprs.azure._deployments.pipeline_deployment import refuse_other_kinds
from daskprs.azure._file_kinds import is_of_pipeline
from daskprs.azure._task import Task
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.mistakes import refuse, whole
from daskprs.errors import InputError, Option, OptionError, ParallelRunFailed, YamlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs._job.result import ParallelRunResult
    from daskprs.azure._assets import Assets, NamedEnvironment
    from daskprs.azure._deployments.deployment import Deployment

OF_ELSEWHERE = ("azureml:", "http:", "https:", "file:")
"""Prefixes of URLs that are looked up among the assets or refused, not read directly."""
BY_COMMAND = Surface(resume=command_to_resume)
"""`invoke` has no argument by which a job goes on: a command does it, from the job's folder."""
KINDS = {"uri_file": Path.is_file, "uri_folder": Path.is_dir}


class BatchDeployment:
    """A batch deployment of a model, as Azure's ``deployment.yml`` describes it.

    The parameters are the keys of such a file, and checked as they are; `load` reads a file. Paths
    are relative to the working directory.

    Parameters
    ----------
    name
        Names the job folder.
    endpoint_name
        The name of the endpoint under which ``daskprs serve`` offers the deployment.
    model
        A file or folder, or a reference such as ``"azureml:my-model:1"``, found by `assets`. The
        script finds it in the folder ``AZUREML_MODEL_DIR``, which contains nothing else.
    code_configuration
        ``{"code": folder, "scoring_script": file}``.
    code_path, scoring_script
        The two keys of `code_configuration`.
    settings
        The settings below, in a mapping.
    mini_batch_size
        Files for one call of `run`. Default 10.
    max_concurrency_per_instance
        Agent processes on each node. Default 1.
    instance_count
        Nodes. Default 1.
    output_action
        ``"append_row"`` (default) or ``"summary_only"``.
    output_file_name
        Default ``"predictions.csv"``.
    retry_settings
        ``{"max_retries": 3, "timeout": 30}``: attempts at a mini-batch, and seconds for each.
    error_threshold
        Files that may fail. Default -1: any number.
    logging_level
        Default ``"info"``.
    environment_variables
        Set in the agents.
    description, tags, properties, environment, compute, resources
        As in the file; of these, only the ``instance_count`` of `resources` has an effect.
    assets
        The paths of assets, by name: ``{"my-model": "models/1"}``.
    environments
        The interpreter of the environment, or the folder that has one: ``{"my-env": "venvs/my"}``.
        Default: the Python that runs daskprs.

    Raises
    ------
    OptionError
        With every mistake.

    Examples
    --------
    >>> from daskprs.azure import BatchDeployment
    >>> deployment = BatchDeployment.load("deployment.yml")  # doctest: +SKIP
    >>> deployment.invoke("pictures", mini_batch_size=20).output_file  # doctest: +SKIP
    PosixPath('daskprs-jobs/mnist-20270115-080000-1a2b3c4d/output/predictions.csv')

    """

    def __init__(
        self,
        name: str | None = None,
        *,
        endpoint_name: str | None = None,
        model: str | PathLike[str] | Mapping[str, Any] | None = None,
        code_configuration: Mapping[str, Any] | None = None,
        code_path: str | PathLike[str] | None = None,
        scoring_script: str | PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        mini_batch_size: int | None = None,
        max_concurrency_per_instance: int | None = None,
        instance_count: int | None = None,
        output_action: str | None = None,
        output_file_name: str | None = None,
        retry_settings: Mapping[str, Any] | None = None,
        error_threshold: int | None = None,
        logging_level: str | None = None,
        environment_variables: Mapping[str, str] | None = None,
        description: str | None = None,
        tags: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        environment: Any = None,
        compute: str | None = None,
        resources: Mapping[str, Any] | None = None,
        assets: Assets | Mapping[str, str] | None = None,
        environments: Mapping[str, str | PathLike[str]] | None = None,
    ) -> None:
        given = {key: value for key, value in locals().items() if value is not None}
        for own in ("self", "assets", "environments", "code_path", "scoring_script"):
            given.pop(own, None)
        parts = {"code": code_path, "scoring_script": scoring_script}
        parts = {key: value for key, value in parts.items() if value is not None}
        if parts:
            given["code_configuration"] = {**given.get("code_configuration", {}), **parts}
        document = Document.of_values(given, type(self).__name__, Path.cwd())
        self._fill(document, given_places(assets, environments=environments), is_file=False)

    @classmethod
    def load(
        cls,
        path: Document | str | PathLike[str],
        *,
        assets: Assets | Mapping[str, str] | None = None,
        environments: Mapping[str, str | PathLike[str]] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> BatchDeployment:
        """Read a deployment from its YAML file, of the form with ``settings:`` or the older one.

        Parameters
        ----------
        path
            The path of the file, or its content. Paths in it are relative to its folder.
        assets
            The paths of assets, by name.
        environments
            The interpreter of the environment, by its name in the file.
        changes
            Other values of keys, dotted: ``{"settings.retry_settings.timeout": 60}``.

        Raises
        ------
        YamlError
            With every mistake, each with file, line and column.

        """
        self = cls.__new__(cls)
        document = path if isinstance(path, Document) else Document.read(path)
        refuse_other_kinds(document)
        if is_of_pipeline(document.content):
            ways = "run it by daskprs invoke, or its pipeline by daskprs.azure.run_pipeline"
            problem = f"it is a deployment of a pipeline: {ways}"
            refuse([document.mistake(("type",), problem)])
        document.content = changed(document.content, changes or {})
        self._fill(document, given_places(assets, environments=environments), is_file=True)
        return self

    def _fill(self, document: Document, assets: Assets, *, is_file: bool) -> None:
        self._document = document
        self._is_file = is_file
        self._assets = assets
        self._deployment = self._with({})

    def _with(self, changes: Mapping[str, Any]) -> Deployment:
        """Return the deployment with other values of some keys, checked."""
        content = changed(self._document.content, changes)
        found, mistakes = deployment_of(self._document, content, self._assets)
        if mistakes and not self._is_file:
            raise OptionError("\n".join(map(str, mistakes)))
        return whole(found, mistakes)

    @property
    def name(self) -> str:
        """The deployment's name; for a file without a name, the name of the file."""
        return self._deployment.name

    @property
    def endpoint_name(self) -> str | None:
        """The name of its endpoint."""
        return self._deployment.endpoint_name

    @property
    def environment(self) -> NamedEnvironment:
        """The deployment's environment, and the interpreter that is given for it."""
        return self._deployment.environment

    @property
    def output_file_name(self) -> str | None:
        """The name of the output file; None with ``output_action: summary_only``."""
        settings = self._deployment.settings
        return settings.output_file_name if settings.output_action == "append_row" else None

    @property
    def code(self) -> list[Path]:
        """The folder of the scoring script, and the model, as far as there are any."""
        found = self._deployment
        places = (None if found.by_mlflow else found.source_directory, found.model)
        return [path for path in places if path is not None]

    @property
    def without_effect(self) -> dict[str, str]:
        """The keys that are set without effect, with the reasons."""
        return {key.name: key.note for key in self._deployment.without_effect}

    def invoke(
        self,
        data: str | PathLike[str],
        *,
        input_type: str | None = None,
        output_path: str | PathLike[str] | None = None,
        mini_batch_size: int | None = None,
        instance_count: int | None = None,
        changes: Mapping[str, Any] | None = None,
        client: Client | str | None = None,
        job_dir: str | PathLike[str] | None = None,
        overwrite: bool = False,
        secrets: Sequence[str] = (),
        progress: bool | None = None,
        surface: Surface | None = None,
    ) -> ParallelRunResult:
        """Score files.

        Parameters
        ----------
        data
            A file, a folder (searched recursively), a glob, an fsspec URL, or a reference to an
            asset.
        input_type
            ``"uri_file"`` or ``"uri_folder"``: what `data` has to be. Default: either.
        output_path
            The output folder, or its URL. Default: ``output`` in the job folder. The script finds
            it in the environment variable ``AZUREML_BI_OUTPUT_PATH``.
        mini_batch_size, instance_count
            Values that override those of the deployment.
        changes
            Other values of keys, dotted: ``{"retry_settings.timeout": 60}``.
        client
            A Dask client, the address of a scheduler, or a scheduler file.
        job_dir
            The job folder. Default: ``./daskprs-jobs/<name>-<utc>-<id>/``.
        overwrite
            Replace an existing output file.
        secrets
            Names of environment variables, of the deployment or of the caller, whose values are
            masked in logs. Default: those of Dask's config.
        progress
            As that of `daskprs.parallel_run`.
        surface
            The surface that the caller uses; None: Python, where a command resumes the job.

        Returns
        -------
        ParallelRunResult
            Counts, places of the output and the logs.

        Raises
        ------
        UsageError
            When anything cannot be used; nothing was started.
        ParallelRunFailed, ParallelRunCanceled, ParallelRunInterrupted
            As by `daskprs.parallel_run`.

        """
        given = {"mini_batch_size": mini_batch_size, "instance_count": instance_count}
        more = {key: value for key, value in given.items() if value is not None}
        deployment = self._with({**(changes or {}), **more})
        job = JobFolder(job_dir or default_job_dir(deployment.name, token_hex(4)))
        task = Task(
            name=deployment.name,
            data=self._source(data, input_type),
            script=deployment.script,
            source_directory=deployment.source_directory,
            options={
                **deployment.options(),
                "overwrite": overwrite,
                **({"secrets": list(secrets)} if secrets else {}),
            },
            job_dir=job.path,
            output_dir=None if output_path is None else self._found(output_path),
            client=client,
            other_python=deployment.environment.way,
            variable_files=self._variable_files(),
        )
        with _with_model(task, deployment, job) as whole:
            try:
                return whole.run(progress=progress, surface=surface or BY_COMMAND)
            except ParallelRunFailed as error:
                if deployment.model is not None:
                    model = job.path / FOLDER / deployment.model.name
                    error.args = (f"{error}{contents_told(model, str(error))}", error.result)
                raise

    def _variable_files(self) -> dict[str, str]:
        """Return the deployment's file by the option of a resume, if it sets any variables."""
        file = self._document.name
        is_one = self._document.is_file and variables_in(file)
        return {"deployment": str(Path(file).absolute())} if is_one else {}

    def _source(self, data: str | PathLike[str], input_type: str | None) -> str:
        """Return the place of the files to score, if it is of the requested type."""
        if input_type not in (None, *KINDS):
            problem = f": must be one of {', '.join(KINDS)}."
            raise OptionError(Option("input_type", input_type), problem)
        place = self._found(data)
        path = Path(place)
        if input_type and not is_url(place) and path.exists() and not KINDS[input_type](path):
            raise InputError(Option("input_type", input_type), f": {path} is not a {input_type}.")
        return place

    def _found(self, given: str | PathLike[str]) -> str:
        reference = os.fspath(given)
        if is_url(reference) and not reference.startswith(OF_ELSEWHERE):
            return reference
        return str(self._assets.place(reference, Path.cwd()))


@contextmanager
def _with_model(task: Task, deployment: Deployment, job: JobFolder) -> Iterator[Task]:
    """Return a task with the deployment's model, if any, beside its job."""
    model = deployment.model
    if model is None:
        yield task
        return
    if deployment.by_mlflow and task.client is None:
        files = (path for one in discover(task.data) for path in one.paths())
        refuse_unservable(model, files, deployment.environment)
    with contained(model, job) as folder:
        variables = {MODEL_DIR: str(folder), **task.options["environment_variables"]}
        more = {"side_inputs": {deployment.model_name: folder}, "environment_variables": variables}
        yield replace(task, options={**task.options, **more})


def variables_in(path: str | PathLike[str]) -> dict[str, str]:
    """Return the environment variables that a deployment's file sets; the rest is not checked."""
    content = Document.read(path).content
    content = content if isinstance(content, dict) else {}
    settings = content.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    given = {**content, **settings}.get("environment_variables")
    try:
        return DeploymentSettings(environment_variables=given).environment_variables or {}
    except ValidationError as error:
        msg = f"{path}: environment_variables: {error.errors()[0]['msg']}."
        raise YamlError(msg) from None
