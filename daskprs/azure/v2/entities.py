"""Settings and environments: objects of `azure.ai.ml.entities` that only hold values.

The other names of that module are here, too, by their own names.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from daskprs._lazy_exports import lazy_exports
from daskprs.azure._deployments.form import CodeConfiguration as CodeForm
from daskprs.azure._deployments.form import DeploymentResources
from daskprs.azure._deployments.form import RetrySettings as RetrySettingsForm
from daskprs.azure._pipelines.forms import LimitsForm, ResourcesForm, RetryForm, SettingsForm
from daskprs.azure.v1.absent import not_built
from daskprs.azure.v2.entity import Entity

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping


class RetrySettings(Entity, form=RetryForm):
    """Tries of a mini-batch of a parallel step, and seconds for each."""


class BatchRetrySettings(Entity, form=RetrySettingsForm):
    """Attempts at a mini-batch of a batch deployment, and seconds for each."""


class JobResourceConfiguration(Entity, form=ResourcesForm):
    """Nodes of a step; of its keys only `instance_count` has an effect."""


class ResourceConfiguration(Entity, form=DeploymentResources):
    """Nodes of a deployment; of its keys only `instance_count` has an effect."""


class CommandJobLimits(Entity, form=LimitsForm):
    """Limits of a command: seconds, then it is killed."""


class CodeConfiguration(Entity, form=CodeForm, kw_only=False):
    """The script that scores the files of a batch deployment, and its folder."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"code"})


class BuildContext(Entity):
    """The folder of a Dockerfile, without effect: no image is built."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path"})

    path: str | os.PathLike[str] | None = None
    dockerfile_path: str | None = None


class Environment(Entity):
    """An environment: a name, and what an image for it would have.

    No package is installed and no image is built: scripts use the Python that runs daskprs, and
    imports that it lacks are reported before the start.
    """

    PLACES: ClassVar[frozenset[str]] = frozenset({"conda_file"})
    PARTS: ClassVar[Mapping[str, type[Entity]]] = {"build": BuildContext}

    name: str | None = None
    version: str | None = None
    description: str | None = None
    image: str | None = None
    build: BuildContext | None = None
    conda_file: str | os.PathLike[str] | Mapping[str, Any] | None = None
    tags: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] | None = None
    inference_config: Any = None
    os_type: str | None = None

    @property
    def id(self) -> str:
        """The reference to the environment."""
        return f"azureml:{self.name}:{self.version or 1}"


class AmlCompute(Entity):
    """A compute cluster by name, without effect: jobs run here, or on the given Dask cluster."""

    name: str
    type: str = "amlcompute"
    description: str | None = None
    size: str | None = None
    tags: Mapping[str, Any] | None = None
    location: str | None = None
    tier: str | None = None
    min_instances: int | None = None
    max_instances: int | None = None
    idle_time_before_scale_down: int | None = None
    identity: Any = None
    ssh_settings: Any = None
    network_settings: Any = None
    provisioning_state: str = "Succeeded"


class JobService(Entity):
    """A service of a command, without effect: nothing listens for it."""

    type: str | None = None
    port: int | None = None
    nodes: str | None = None
    endpoint: str | None = None
    status: str | None = None
    properties: Mapping[str, str] | None = None


class PipelineJobSettings(Entity, form=SettingsForm):
    """Settings of a pipeline; computes have no effect."""


def load_environment(source: str | os.PathLike[str]) -> Environment:
    """Read an environment from its YAML file."""
    return Environment.load(Path(source))


def load_compute(source: str | os.PathLike[str]) -> AmlCompute:
    """Read a compute from its YAML file."""
    return AmlCompute.load(Path(source))


_NAMES = {
    "..asset": "Data Model",
    "..batch": """BatchDeployment BatchEndpoint ModelBatchDeployment ModelBatchDeploymentSettings
        PipelineComponentBatchDeployment""",
    "..component": "Component",
    "..pipeline_job": "PipelineJob",
    "..shell_command": "CommandComponent",
}
__getattr__, __dir__ = lazy_exports(__name__, _NAMES, globals(), partial(not_built, sdk="v2"))
