"""The keys of a batch deployment's YAML file: the form with ``settings:``, and the flat older one.

The second form here is that of a file with ``type: pipeline``.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from daskprs._options.rules import check_file_name
from daskprs._options.time_rules import LONGEST_S
from daskprs.azure._pipelines.forms import (
    ENVIRONMENT,
    KIND,
    LoggingLevel,
    SettingsForm,
    Variables,
    lowered,
)
from daskprs.azure._yaml_files.form import BY_SHAPE, MAPPING, PLAIN, Form, without_effect, works

HERE = "the deployment runs on this machine, or on the Dask cluster that you name"
LABEL = "a label"


def _spelled(value: Any) -> Any:
    """Bring ``AppendRow``, as other clients write it, into the form of the files."""
    lower = lowered(value)
    known = {"appendrow": "append_row", "summaryonly": "summary_only"}
    return known.get(lower, lower) if isinstance(lower, str) else lower


OutputAction = Annotated[Literal["append_row", "summary_only"], BeforeValidator(_spelled)]
FileName = Annotated[str, AfterValidator(partial(check_file_name, "output_file_name"))]


def _named(value: Any) -> Any:
    """Refuse an inline definition where a file must be named."""
    if isinstance(value, dict):
        msg = "write it into a file of its own, and name that file here"
        raise ValueError(msg)  # noqa: TRY004 - one that pydantic collects
    return value


NamedFile = Annotated[str, BeforeValidator(_named)]
Text = Annotated[str, PLAIN]


class RetrySettings(Form):
    """The number of attempts at a mini-batch, and the timeout of each."""

    max_retries: int = works(
        3, "attempts at a mini-batch, including the first; 0 also means one attempt", ge=0
    )
    timeout: int = works(30, "seconds for one call of `run`", gt=0, le=LONGEST_S)


class DeploymentSettings(Form):
    """The options with which a deployment of a model processes its files."""

    mini_batch_size: int = works(10, "files for one call of `run`", ge=1)
    max_concurrency_per_instance: int = works(1, "agent processes on each node", ge=1)
    instance_count: int | None = works(None, "the same as `resources.instance_count`", ge=1)
    output_action: OutputAction = works("append_row")
    output_file_name: FileName = works("predictions.csv")
    retry_settings: RetrySettings = works(default_factory=RetrySettings)
    error_threshold: int = works(-1, "files that may fail; -1: any number", ge=-1)
    logging_level: LoggingLevel = works("info")
    environment_variables: Variables | None = works(
        None, "set for the script; Azure ignores this key"
    )


class ModelForm(Form):
    """A model that is written out in the file."""

    schema_: str | None = works(None, KIND, alias="$schema")
    name: str | None = works(None, "the name of the model for `Model.get_model_path`")
    version: str | None = without_effect(LABEL)
    path: str | None = works(
        None, "a file or a folder, relative to the folder of the deployment file, or an asset"
    )
    local_path: str | None = works(None, "an older name of `path`")
    type: Literal["custom_model", "mlflow_model", "triton_model"] | None = without_effect(
        "a folder that contains a file `MLmodel` is an MLflow model"
    )
    flavors: dict[str, Any] | None = without_effect(
        "daskprs uses the flavors in the file `MLmodel`"
    )
    description: str | None = without_effect(LABEL)
    tags: dict[str, Any] | None = without_effect(LABEL)
    properties: dict[str, Any] | None = without_effect(LABEL)
    stage: str | None = without_effect(LABEL)


class Code(Form):
    """The older way to name a folder."""

    path: str | None = works(None)
    local_path: str | None = works(None, "an older name of `path`")


class CodeConfiguration(Form):
    """The script that scores the files."""

    code: Annotated[Text | Annotated[Code, MAPPING], BY_SHAPE] | None = works(
        None, "the source directory; default: the folder of the deployment file"
    )
    scoring_script: str = works()


class Compute(Form):
    """The oldest way to name a cluster."""

    target: str | None = without_effect(HERE)
    instance_count: int | None = works(None, "the same as `resources.instance_count`", ge=1)


class DeploymentResources(Form):
    """The number of nodes."""

    instance_count: int | None = works(None, "nodes at most; default 1", ge=1)
    instance_type: str | None = without_effect(HERE)
    properties: dict[str, Any] | None = without_effect(HERE)
    docker_args: Any = without_effect("containers are not used")
    shm_size: str | None = without_effect("containers are not used")


class DeploymentForm(Form):
    """The keys that both kinds of deployments share."""

    schema_: str | None = works(None, KIND, alias="$schema")
    name: str | None = works(None, "names the job folder")
    endpoint_name: str | None = works(
        None, "the name under which `daskprs serve` offers the deployment"
    )
    description: str | None = without_effect(LABEL)
    tags: dict[str, Any] | None = without_effect(LABEL)
    properties: dict[str, Any] | None = without_effect(LABEL)
    environment: Any = works(None, ENVIRONMENT)


class ModelDeployment(DeploymentForm, DeploymentSettings):
    """A deployment of a model. Keys of `settings` may stand beside it, as in older files."""

    type: Literal["model"] | None = works(None)
    model: Annotated[Text | Annotated[ModelForm, MAPPING], BY_SHAPE] | None = works(
        None, "`AZUREML_MODEL_DIR` is the path of a folder that contains the model"
    )
    code_configuration: CodeConfiguration | None = works(
        None, "not needed for an MLflow model, which is served through MLflow"
    )
    compute: Annotated[Text | Annotated[Compute, MAPPING], BY_SHAPE] | None = without_effect(
        f"{HERE}; only the key `compute.instance_count` of the oldest files has an effect"
    )
    resources: DeploymentResources | None = works(None)
    settings: DeploymentSettings | None = works(None)


class PipelineDeployment(DeploymentForm):
    """A deployment of a pipeline component, or of the pipeline of a job."""

    type: Literal["pipeline"] = works()
    environment: Any = without_effect("each step has an environment of its own")
    component: NamedFile | None = works(None, "the file of a pipeline component, or an asset")
    job_definition: NamedFile | None = works(None, "the file of a pipeline job, or an asset")
    compute: str | None = without_effect(HERE)
    settings: SettingsForm | None = works(None)
