"""The kinds of Azure's YAML files, told apart by ``$schema`` or else by their keys."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Use(Enum):
    """The treatment of a kind of file in daskprs."""

    RUN = auto()
    """It is checked and run, or read for a run."""
    LEFT_ALONE = auto()
    """Nothing here reads it, and a run needs no such file."""
    REFUSED = auto()
    """It describes work that is not done here."""


class FileKind(NamedTuple):
    """A kind of file."""

    name: str
    schemas: str
    """The names of its schemas without ``.schema.json``, in lower case, between spaces."""
    fits: Callable[[dict[str, Any]], bool]
    """Says whether a file without a known schema is of this kind."""
    way: str
    """A sentence on the use of such a file in daskprs; ``{file}`` is its name."""
    use: Use = Use.RUN

    def told(self, file: str) -> str:
        """Return the kind of a file, and what daskprs does with it."""
        return self.way.format(file=file)


def kind_of(content: Any) -> FileKind | None:
    """Return the kind of a file by its content; None when nothing in the file tells its kind."""
    if not isinstance(content, dict):
        return None
    named = _named_by_schema(content)
    own = _OF_TYPES.get(str(content.get("type")), ())
    if named and own and not any(kind.name in own for kind in named):
        named = [kind for kind in KINDS if kind.name in own]  # Azure goes by the type, too
    if not named and (isinstance(content.get("spec"), str) or not own) and other_system(content):
        return None
    fitting = (kind for kind in named or KINDS if kind.fits(content))
    return next(fitting, named[0] if named else None)


def contradiction(content: dict[str, Any]) -> str | None:
    """Return the warning about a ``$schema`` that names another kind than ``type``."""
    own = _OF_TYPES.get(str(content.get("type")), ())
    named = [kind.name for kind in _named_by_schema(content)]
    if not named or not own or any(name in own for name in named):
        return None
    return (
        f"the schema is that of another kind ({named[0]}), and type is {content['type']!r}: "
        "daskprs goes by the type, as Azure does"
    )


def _named_by_schema(content: dict[str, Any]) -> list[FileKind]:
    schema = _schema_of(content)
    return [kind for kind in KINDS if schema in kind.schemas.split()]


def is_of_component(content: Any) -> bool:
    """Say whether the content of a file is a job with ``component:`` in place of ``jobs:``."""
    return isinstance(content, dict) and "component" in content and "jobs" not in content


def is_job(content: Any) -> bool:
    """Say whether a file is a pipeline job of a component: deployments give no inputs."""
    return is_of_component(content) and any(key in content for key in OF_A_JOB)


def is_deployment(content: dict[str, Any]) -> bool:
    """Say whether a file of a pipeline component is a deployment for certain."""
    return "endpoint_name" in content or "deployment" in _schema_of(content)


def is_of_pipeline(content: Any) -> bool:
    """Say whether the content of a deployment's file deploys a pipeline.

    A pipeline job of a component looks like one: see `is_job`.
    """
    if not isinstance(content, dict):
        return False
    return content.get("type") == "pipeline" or any(key in content for key in OF_A_PIPELINE)


OF_A_PIPELINE = ("component", "job_definition")
OF_A_JOB = ("inputs", "outputs", "experiment_name", "display_name")


def _schema_of(content: dict[str, Any]) -> str:
    """Return the name of a file's schema: ``pipelinejob``; empty for a file without one."""
    url = str(content.get("$schema") or "").strip()
    return url.rpartition("/")[2].removesuffix(".json").removesuffix(".schema").lower()


def _has(
    *keys: str, types: str = "", auth_modes: str = "", all_of: str = ""
) -> Callable[[dict[str, Any]], bool]:
    """Return a rule: one of these keys is there, all of the others, a type, or an ``auth_mode``."""

    def fits(content: dict[str, Any]) -> bool:
        return (
            any(key in content for key in keys)
            or str(content.get("type")) in types.split()
            or str(content.get("auth_mode")) in auth_modes.split()
            or (bool(all_of) and all(key in content for key in all_of.split()))
        )

    return fits


def _is_table(content: dict[str, Any]) -> bool:
    paths = content.get("paths")
    return content.get("type") == "mltable" or (
        isinstance(paths, list) and any(isinstance(one, dict) for one in paths)
    )


def other_system(content: dict[Any, Any]) -> str | None:
    """Return what a file is that has the keys of another system, and no schema of Azure's."""
    jobs, trigger = content.get("jobs"), content.get("trigger")
    if "jobs" in content and ("on" in content or True in content):  # YAML 1.1 reads on as true
        return "a workflow of GitHub"
    if (
        isinstance(jobs, list)
        or any(key in content for key in ("stages", "steps", "pool", "extends"))
        or isinstance(trigger, str | list)
        or (isinstance(trigger, dict) and not trigger.keys().isdisjoint(("branches", "paths")))
    ):
        return "a pipeline of Azure DevOps"
    if "apiVersion" in content or isinstance(content.get("image"), dict):
        return "a file of Kubernetes or Helm"
    if isinstance(content.get("spec"), str):
        return "an asset.yaml of a registry"
    if isinstance(content.get("services"), dict) and "command" not in content:
        return "a file of Docker Compose"
    return None


ONLINE = (
    "nothing here answers single requests. Write a batch deployment of its model: daskprs invoke "
    "and daskprs serve run it"
)
UNNEEDED = "nothing here needs it"
NAMED_BY = "Name its place to a run by --asset NAME=PATH"
MLTABLE = "this is an MLTable: name its folder as data"

PIPELINE = FileKind(
    "pipeline",
    "pipelinejob pipelinecomponent",
    lambda content: ("jobs" in content and "on" not in content) or is_job(content),
    "this is a pipeline: daskprs run {file}",
)
ENDPOINT = FileKind(
    "batch endpoint",
    "batchendpoint",
    lambda content: (
        "model" not in content and any(key in content for key in ("auth_mode", "defaults"))
    ),
    "this is a batch endpoint: give a file of one of its deployments to daskprs invoke or serve",
)
OF_A_MODEL = _has("model", "code_configuration", "mini_batch_size", "endpoint_name", types="model")
KINDS = (
    # By one key, or by a type, that no other kind has.
    FileKind(
        "config of SDK v1",
        "",
        _has("parallel_run_config"),
        "this is a config of SDK v1: ParallelRunConfig.load_yaml reads it",
    ),
    FileKind(
        "online endpoint",
        "managedonlineendpoint kubernetesonlineendpoint onlineendpoint",
        lambda content: (
            content.get("type") != "batch"  # which the oldest files of batch endpoints have
            and _has("traffic", "mirror_traffic", auth_modes="key aml_token")(content)
        ),
        f"this is an online endpoint: {ONLINE}",
        Use.REFUSED,
    ),
    FileKind(
        "online deployment",
        "managedonlinedeployment kubernetesonlinedeployment onlinedeployment",
        _has(
            *("instance_type", "liveness_probe", "readiness_probe", "scale_settings"),
            *("request_settings", "app_insights_enabled", "data_collector"),
        ),
        f"this is an online deployment: {ONLINE}",
        Use.REFUSED,
    ),
    FileKind(
        "sweep job",
        "sweepjob",
        _has("search_space", "trial", types="sweep"),
        "this is a sweep, and nothing here searches. Write a pipeline with a command step for each "
        "trial, or a parallel step over a table with a row of values for each",
        Use.REFUSED,
    ),
    FileKind(
        "Spark job or component",
        "sparkjob sparkcomponent",
        _has(types="spark"),
        "this is work for Spark, which daskprs does not run. Write its work as a parallel step",
        Use.REFUSED,
    ),
    FileKind(
        "AutoML job",
        "automljob",
        _has("primary_metric", types="automl"),
        "this is an AutoML job, whose search Azure does. Write a command step that trains a model",
        Use.REFUSED,
    ),
    FileKind(
        "fine-tuning job",
        "finetuningjob distillationjob",
        _has(types="finetuning distillation"),
        "this is a fine-tuning job for a service of Azure. Write a command step that trains",
        Use.REFUSED,
    ),
    FileKind(
        "prompt flow",
        "flow",
        _has("node_variants", all_of="nodes outputs"),
        "this is a prompt flow, which the package promptflow runs. For many inputs, write its "
        "calls into run() of a parallel step",
        Use.REFUSED,
    ),
    FileKind(
        "run of a prompt flow",
        "run",
        _has("column_mapping", all_of="flow data"),
        "this is a run of a prompt flow, which the package promptflow runs. For many inputs, write "
        "its calls into run() of a parallel step",
        Use.REFUSED,
    ),
    FileKind(
        "schedule",
        "schedule",
        _has("trigger", "create_job", "create_monitor", types="schedule"),
        "this is a schedule: start daskprs run by cron, or by another scheduler",
        Use.LEFT_ALONE,
    ),
    PIPELINE,
    FileKind(
        "MLTable",
        "mltable",
        _has("transformations"),
        MLTABLE,
    ),
    FileKind(
        "batch deployment of a pipeline",
        "pipelinecomponentbatchdeployment batchdeployment",
        is_of_pipeline,
        "this is a batch deployment of a pipeline: daskprs invoke {file} --input NAME=VALUE",
    ),
    FileKind(
        "command job",
        "commandjob",
        lambda content: (
            "command" in content
            and any(key in content for key in ("experiment_name", "compute", "limits", "services"))
        ),
        "this is a command job by itself: write it as a step into the jobs of a pipeline, which "
        "daskprs run takes",
        Use.REFUSED,
    ),
    FileKind(
        "component",
        "commandcomponent parallelcomponent",
        lambda content: (
            "command" in content
            or isinstance(content.get("task"), dict)
            or content.get("type") in ("parallel", "command")
        ),
        "this is a step by itself: name it in the jobs of a pipeline, as component: ./{file}",
    ),
    FileKind(
        "data asset",
        "data",
        lambda content: (
            str(content.get("type")) in ("uri_file", "uri_folder", "mltable")
            and isinstance(content.get("path"), str)
        ),
        f"this describes a data asset. {NAMED_BY}",
        Use.LEFT_ALONE,
    ),
    FileKind(
        "model asset",
        "model",
        _has(types="custom_model mlflow_model triton_model"),
        f"this describes a model. {NAMED_BY}",
        Use.LEFT_ALONE,
    ),
    FileKind(
        "environment",
        "environment",
        _has("conda_file", "image", "build", all_of="dependencies"),
        "this describes an environment: steps run under the Python that is installed here",
        Use.LEFT_ALONE,
    ),
    FileKind(
        "compute",
        "amlcompute computeinstance vmcompute kubernetescompute synapsesparkcompute",
        _has(types="amlcompute computeinstance virtualmachine kubernetes synapsespark"),
        "this describes a compute: everything runs on this machine, or on a Dask cluster",
        Use.LEFT_ALONE,
    ),
    FileKind(
        "datastore",
        "azureblob azurefile azuredatalakegen1 azuredatalakegen2 onelake",
        _has(types="azure_blob azure_file azure_data_lake_gen1 azure_data_lake_gen2 one_lake"),
        "this describes a datastore. Name its folder to a run by --datastore NAME=FOLDER",
        Use.LEFT_ALONE,
    ),
    FileKind(
        "resource of a workspace",
        "workspace hub project connection azureopenaiconnection registry featurestore featureset "
        "featurestoreentity dataimport dataindex modelversionpackage",
        _has("replication_locations", "managed_network", all_of="target credentials"),
        f"this describes a resource of a workspace: {UNNEEDED}",
        Use.LEFT_ALONE,
    ),
    # By keys that others may have, too.
    FileKind(
        "inputs of an invocation",
        "",
        lambda content: bool(content) and content.keys() <= {"inputs", "outputs"},
        "these are inputs of an invocation: daskprs invoke takes them by --file {file}",
        Use.LEFT_ALONE,
    ),
    ENDPOINT,
    FileKind(
        "batch deployment of a model",
        "modelbatchdeployment batchdeployment",
        lambda content: "task" not in content and OF_A_MODEL(content),
        "this is a batch deployment: daskprs invoke {file} --input DATA",
    ),
    FileKind("MLTable", "", _is_table, MLTABLE),
)
"""Kinds of files, in the order in which they are tried."""

_OF_TYPES = {
    "pipeline": ("pipeline", "batch deployment of a pipeline"),
    "command": ("component", "command job"),
    "parallel": ("component",),
    "sweep": ("sweep job",),
    "spark": ("Spark job or component",),
    "automl": ("AutoML job",),
    "model": ("batch deployment of a model",),
}
"""The names of the kinds of files that may have a type, of types that tell the kind."""
