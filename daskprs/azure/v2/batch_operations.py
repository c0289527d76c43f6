"""Batch endpoints and deployments of a workspace: files in its folder, invoked here."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._folders.job_folder import JobFolder
from daskprs._options.site_defaults import default_job_dir
from daskprs._suggest import nearest_of
from daskprs.azure._assets import DEFAULT_DATASTORE
from daskprs.azure._deployments.batch_deployment import BatchDeployment as FileDeployment
from daskprs.azure._deployments.pipeline_deployment import pipeline_deployment_of
from daskprs.azure._file_kinds import is_of_pipeline
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.file import read_pipeline
from daskprs.azure._pipelines.values import CallerInputs, takes_path
from daskprs.azure._registry import ResourceNotFoundError, write_text
from daskprs.azure._yaml_files.document import Document
from daskprs.azure.v2.batch import (
    BatchEndpoint,
    PipelineComponentBatchDeployment,
    load_batch_deployment,
)
from daskprs.azure.v2.component import FileComponent
from daskprs.azure.v2.entity import Entity, as_yaml, plain
from daskprs.azure.v2.job import SCORE, SCORING, Job, kept, read_jobs
from daskprs.azure.v2.node import bound
from daskprs.azure.v2.operations import Operations, Poller
from daskprs.azure.v2.ports import GivenInput, Input, Output
from daskprs.errors import OptionError, UsageError

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable, Mapping

    from distributed import Client

    from daskprs.azure._assets import Assets

PART = ".component"
"""The ending of the file of a component that only its deployment has."""


class EndpointCall(NamedTuple):
    """One call of an endpoint."""

    file: Path
    """The file of the deployment."""
    job: Job
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Output]
    changes: dict[str, Any]
    """Other values of keys of the deployment."""
    client: Any
    overwrite: bool


class BatchEndpointOperations(Operations):
    """Batch endpoints, which score data by their deployments."""

    def begin_create_or_update(self, endpoint: BatchEndpoint) -> Poller[BatchEndpoint]:
        """Register an endpoint, or its default deployment."""
        if not endpoint.name:
            msg = "batch_endpoints: to register an endpoint, give it a name."
            raise UsageError(msg)
        default = _default_of(endpoint)
        if default is not None:
            self.file_of(endpoint.name, default)
        with self._registry.turn():
            write_text(self._registry.endpoint_file(endpoint.name), as_yaml(endpoint.values()))
        return Poller(endpoint)

    def get(self, name: str) -> BatchEndpoint:
        """Return an endpoint."""
        file = self._registry.endpoint_file(name)
        if not file.exists():
            known = [one.name or "" for one in self.list()]
            msg = f"this workspace has no batch endpoint {name!r}; {nearest_of(name, known)}"
            raise ResourceNotFoundError(msg)
        return BatchEndpoint.load(file)

    def list(self) -> builtins.list[BatchEndpoint]:
        """Return all endpoints."""
        return [BatchEndpoint.load(file) for file in self._registry.endpoint_files()]

    def begin_delete(self, name: str) -> Poller[None]:
        """Remove an endpoint and its deployments; the results of its jobs stay."""
        self.get(name)
        self._registry.remove_endpoint(name)
        return Poller(None)

    def file_of(self, endpoint: str, name: str) -> Path:
        """Return the file of a deployment, or refuse an unknown one."""
        file = self._registry.deployment_file(endpoint, name)
        if not file.exists():
            known = self._registry.deployments(endpoint)
            msg = f"the endpoint {endpoint!r} has no deployment {name!r}; {nearest_of(name, known)}"
            raise ResourceNotFoundError(msg)
        return file

    def list_jobs(self, endpoint_name: str) -> builtins.list[Job]:
        """Return the jobs of an endpoint, the last first."""
        jobs = read_jobs(self._registry)
        return [one for one in jobs if one.properties.get("endpoint") == endpoint_name]

    def invoke(
        self,
        endpoint_name: str,
        *,
        deployment_name: str | None = None,
        input: Input | None = None,  # noqa: A002 - the original's signature
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Output] | None = None,
        output_path: Mapping[str, Any] | None = None,
        output_file_name: str | None = None,
        params_override: Iterable[Mapping[str, Any]] = (),
        experiment_name: str | None = None,
        client: Client | str | None = None,
        overwrite: bool = False,
    ) -> Job:
        """Run a deployment to its end, and return the job.

        Parameters
        ----------
        endpoint_name
            The endpoint.
        deployment_name
            Its deployment. Default: the default one of the endpoint.
        input, inputs
            The data to score; of a pipeline, an `Input` or a value for each of its inputs.
        outputs
            By name: an `Output` with the path. A deployment of a model has one, with any name.
        output_path
            An older name of `outputs`.
        output_file_name
            As in `params_override`.
        params_override
            Other values of keys: ``[{"mini_batch_size": 20}]``.
        experiment_name
            A label.
        client, overwrite
            As those of `daskprs.azure.BatchDeployment.invoke`.

        Raises
        ------
        UsageError, ParallelRunFailed, PipelineFailed, ParallelRunCanceled, ParallelRunInterrupted
            As by `daskprs.azure.BatchDeployment.invoke` and `daskprs.azure.run_pipeline`.

        """
        default = _default_of(self.get(endpoint_name))
        name = deployment_name or default
        if name is None:
            known = ", ".join(self._registry.deployments(endpoint_name)) or "none"
            msg = (
                f"the endpoint {endpoint_name!r} has no default deployment (known: {known}). Name "
                "one by deployment_name, or set endpoint.defaults.deployment_name."
            )
            raise OptionError(msg)
        file = self.file_of(endpoint_name, name)
        given = {**({"input": input} if input is not None else {}), **(inputs or {})}
        folder = default_job_dir(name, secrets.token_hex(4)).absolute()
        labels = {"endpoint": endpoint_name, "deployment": name}
        job = Job(folder.name, folder, name, experiment_name, properties=labels)
        changes = {key: value for one in params_override for key, value in one.items()}
        if output_file_name is not None:
            changes["output_file_name"] = output_file_name
        cluster = client or self._client.client
        call = EndpointCall(
            file, job, given, outputs or output_path or {}, changes, cluster, overwrite
        )
        is_pipeline = is_of_pipeline(Document.read(file).content)
        return self._run_pipeline(call) if is_pipeline else self._score(call)

    def _run_pipeline(self, call: EndpointCall) -> Job:
        assets, title = self._client.assets(), str(call.job.display_name)
        deployed = pipeline_deployment_of(Document.read(call.file), assets)
        declared = FileComponent(deployed.path).inputs
        inputs = {
            name: bound(one, declared.get(name, {}), f"the deployment {title!r}: {name}")
            for name, one in call.inputs.items()
        }
        texts = {name: _text_of(one, assets, declared.get(name)) for name, one in inputs.items()}
        places = {name: _place_of(one, assets) for name, one in call.outputs.items()}
        changes = (f"{key}={as_override(value)}" for key, value in call.changes.items())
        return self._client.jobs.run(
            self._client.batch_deployments.pipeline(deployed.path, title),
            call.job,
            client=call.client,
            overrides=(*deployed.overrides, *changes),
            inputs={name: text for name, text in texts.items() if text is not None},
            outputs={name: text for name, text in places.items() if text is not None},
            overwrite=call.overwrite,
        )

    def _score(self, call: EndpointCall) -> Job:
        if len(call.inputs) != 1 or len(call.outputs) > 1:
            msg = (
                f"invoke: a deployment of a model has one input and at most one output, not "
                f"{len(call.inputs)} and {len(call.outputs)}."
            )
            raise OptionError(msg)
        assets, job = self._client.assets(), call.job
        (given,) = call.inputs.values()
        data = _place_of(given, assets) if isinstance(given, Input) else given
        if data is None:
            msg = 'invoke: the input has no data. Give it its path: Input(path="data").'
            raise OptionError(msg)
        place = place_of_output(next(iter(call.outputs.values()), None), call.changes, assets)
        deployment = FileDeployment.load(call.file, assets=assets)
        job.logs = [JobFolder(job.folder).logs]
        job.children = [replace(job, name=f"{job.name}.{SCORING}")]
        with kept(self._registry, job):
            result = deployment.invoke(
                str(data),
                input_type=_kind(given) if isinstance(given, Input) else None,
                output_path=place,
                changes=call.changes,
                client=call.client,
                job_dir=job.folder,
                overwrite=call.overwrite,
            )
            for one in (job, *job.children):
                one.outputs = {SCORE: Path(result.output_dir)}
        return job


def _default_of(endpoint: BatchEndpoint) -> str | None:
    return getattr(endpoint.defaults, "deployment_name", None)


def as_override(value: Any) -> str:
    """Return a value as the text of an override, which is read as YAML: text stays text."""
    return json.dumps(plain(value), ensure_ascii=False)


def _kind(given: Input) -> str | None:
    return given.type if given.type in ("uri_file", "uri_folder") else None


def _text_of(given: GivenInput, assets: Assets, declared: Any) -> str | None:
    """Return an input as the command line gives it; text is never a reference.

    Where the pipeline declares no type, the command line reads YAML: text is written as such.
    """
    if given.path is not None and (given.type is None or takes_path(given.type)):
        return _place_of(given, assets)
    values = (given.value, given.path, given.default)
    value = next((one for one in values if one is not None), None)
    if value is None:
        return None
    if isinstance(value, str) and _type_of(declared) is None:
        return as_override(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type_of(declared: Any) -> Any:
    return declared.get("type") if isinstance(declared, dict) else None


def _place_of(given: Input | Output, assets: Assets) -> str | None:
    """Return the place of an input or output; of a URL that is read there, the URL."""
    path: str | None = given.values().get("path")
    if path is None or not path.startswith("azureml:"):
        return path
    return str(assets.place(path, Path.cwd()))


def place_of_output(given: Output | None, changes: dict[str, Any], assets: Assets) -> str | None:
    """Return the folder of a deployment's output; a file's name becomes one of the changes."""
    store, path = (
        changes.pop("output_dataset.datastore_id", None),
        changes.pop("output_dataset.path", None),
    )
    if store is not None or path is not None:
        name = str(store or DEFAULT_DATASTORE).rstrip("/").rpartition("/")[2]
        below = str(path or "").strip("/")
        return str(assets.place(f"azureml://datastores/{name}/paths/{below}", Path.cwd()))
    text = None if given is None else _place_of(given, assets)
    if text is None or given is None or given.type != "uri_file":
        return text
    folder, _, name = text.rpartition("/")
    changes["output_file_name"] = name
    return folder or "."


class BatchDeploymentOperations(Operations):
    """Deployments of batch endpoints: files in the folder of the workspace."""

    def begin_create_or_update(
        self, deployment: Any, *, skip_script_validation: bool = False
    ) -> Poller[Any]:
        """Check a deployment and all that it names, and register it.

        `skip_script_validation` has no effect.

        Raises
        ------
        UsageError
            With every mistake, and for an unknown endpoint.

        """
        endpoint, name = (
            getattr(deployment, "endpoint_name", None),
            getattr(deployment, "name", None),
        )
        if not isinstance(deployment, Entity) or not endpoint or not name:
            msg = f"{deployment!r} is not a deployment with a name and an endpoint_name."
            raise OptionError(msg)
        self._client.batch_endpoints.get(endpoint)
        assets, values = self._client.assets(), deployment.values()
        file = self._registry.deployment_file(endpoint, name)
        part = file.with_name(f"{file.stem}.{secrets.token_hex(4)}{PART}")
        if isinstance(values.get("component"), dict):
            write_text(part, as_yaml(values["component"]))
            values["component"] = str(part)
        document = Document.of_values(values, name, Path.cwd())
        try:
            if isinstance(deployment, PipelineComponentBatchDeployment):
                self._check_pipeline(document, assets)
            else:
                FileDeployment.load(document, assets=assets)
            with self._registry.turn():
                before = _own_component(file)
                write_text(file, as_yaml(values))
        except BaseException:  # the deployment that is registered stays as it is
            part.unlink(missing_ok=True)
            raise
        if before is not None and str(before) != values["component"]:
            before.unlink(missing_ok=True)
        return Poller(deployment)

    def _check_pipeline(self, deployment: Document, assets: Assets) -> None:
        """Refuse a deployment whose pipeline could not run."""
        deployed = pipeline_deployment_of(deployment, assets)
        pipeline = self.pipeline(deployed.path, deployment.name)
        given = CallerInputs(assets, deployed.overrides, with_inputs=False)
        with TemporaryDirectory(prefix="daskprs-checked-") as folder:
            read_pipeline(pipeline, PipelineFolder(folder), given)

    def pipeline(self, path: Path, deployment: str) -> Document:
        """Return the pipeline of a deployment; messages about one in Python name the deployment."""
        found = Document.read(path)
        if not path.is_relative_to(self._registry.folder):
            return found
        return Document.of_values(found.content, deployment, found.folder)

    def get(self, name: str, endpoint_name: str) -> Any:
        """Return a deployment, which may be changed and registered again."""
        return load_batch_deployment(self._client.batch_endpoints.file_of(endpoint_name, name))

    def list(self, endpoint_name: str) -> builtins.list[Any]:
        """Return the deployments of an endpoint."""
        return [self.get(one, endpoint_name) for one in self._registry.deployments(endpoint_name)]

    def begin_delete(self, name: str, endpoint_name: str) -> Poller[None]:
        """Remove a deployment."""
        file = self._client.batch_endpoints.file_of(endpoint_name, name)
        with self._registry.turn():
            before = _own_component(file)
            file.unlink(missing_ok=True)
        if before is not None:
            before.unlink(missing_ok=True)
        return Poller(None)

    def list_jobs(self, name: str, endpoint_name: str) -> builtins.list[Job]:
        """Return the jobs of a deployment, the last first."""
        jobs = self._client.batch_endpoints.list_jobs(endpoint_name)
        return [one for one in jobs if one.properties.get("deployment") == name]


def _own_component(file: Path) -> Path | None:
    """Return the file of the component that only the deployment in a file has, if it has one."""
    given = Document.read(file).content.get("component") if file.exists() else None
    path = Path(str(given))
    return path if path.name.endswith(PART) and path.parent == file.parent else None
