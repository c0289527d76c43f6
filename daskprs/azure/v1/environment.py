"""Environments and compute targets: names, since everything runs where it is called.

Packages are not installed, and clusters are not created. A workspace knows interpreters that stand
for environments.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml

from daskprs.azure._environments.conda_packages import python_versions
from daskprs.azure._registry import Registry
from daskprs.azure._yaml_files.document import Document
from daskprs.azure.v1.absent import Known
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from daskprs.azure.v1.workspace import Workspace

KIND = "v1-environments"
"""The kind of environments in the registry: SDK v2 keeps other values of its own."""
DEFAULT_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
DEFAULT_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.1-cudnn8-ubuntu20.04"


class CondaDependencies(Known):
    """The content of a conda file, without effect: scripts use the packages of the running Python.

    Parameters
    ----------
    conda_dependencies_file_path : path, optional
        A conda file, to which the other names are added.
    packages : list, optional
        Names of packages.

    """

    def __init__(
        self,
        conda_dependencies_file_path: str | PathLike[str] | None = None,
        packages: Iterable[str] = (),
    ) -> None:
        self._file = conda_dependencies_file_path
        self._python: str | None = None
        self._names: dict[str, list[str]] = {"channels": [], "conda": [*packages], "pip": []}

    @classmethod
    def create(
        cls,
        pip_indexurl: str | None = None,
        pip_packages: Iterable[str] | None = None,
        conda_packages: Iterable[str] | None = None,
        python_version: str | None = None,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        """Return dependencies with these package names."""
        made = cls(packages=conda_packages or ())
        made._names["pip"] += pip_packages or ()
        made._python = python_version
        return made

    def serialize_to_string(self) -> str:
        """Return the names as the text of a conda file."""
        found = {} if self._file is None else Document.read(self._file).content
        content = dict(found) if isinstance(found, dict) else {}
        below = content.pop("dependencies", None) or []
        conda = [one for one in below if isinstance(one, str)] + self._names["conda"]
        pip = [one for of in below if isinstance(of, dict) for one in of.get("pip") or []]
        pip += self._names["pip"]
        if self._python is not None:
            conda = [one for one in conda if python_versions(one) is None]
            conda.insert(0, f"python={self._python}")
        channels = [*(content.pop("channels", None) or []), *self._names["channels"]]
        whole = {**content, **({"channels": channels} if channels else {})}
        whole["dependencies"] = [*conda, *([{"pip": pip}] if pip else [])]
        text: str = yaml.safe_dump(whole, sort_keys=False)
        return text

    def save_to_file(
        self, base_directory: str | PathLike[str], conda_file_path: str = "conda_dependencies.yml"
    ) -> str:
        """Write the names as a conda file, and return its name."""
        Path(base_directory, conda_file_path).write_text(self.serialize_to_string(), "utf-8")
        return conda_file_path

    def add_pip_package(self, pip_package: str) -> None:
        """Add a name."""
        self._names["pip"].append(pip_package)

    def add_conda_package(self, conda_package: str) -> None:
        """Add a name."""
        self._names["conda"].append(conda_package)

    def add_channel(self, channel: str) -> None:
        """Add a channel."""
        self._names["channels"].append(channel)

    def set_python_version(self, version: str) -> None:
        """Set the version of Python in the conda file."""
        self._python = version


class Environment(Known):
    """A name, and environment variables.

    Images, Docker, conda and Spark may be set, without effect. Scripts use the running Python, or
    the one that the workspace has for this name; imports that it lacks are reported before the
    start.

    Parameters
    ----------
    name : str
        Its name.
    version : str, optional
        For people.
    environment_variables : dict, optional
        Set in the agents before their first import.

    """

    def __init__(
        self,
        name: str,
        *,
        version: str | None = None,
        environment_variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.environment_variables = dict(environment_variables or {})
        self.python = SimpleNamespace(
            conda_dependencies=CondaDependencies(), user_managed_dependencies=True
        )
        self.docker = SimpleNamespace()
        self.spark = SimpleNamespace()

    def __repr__(self) -> str:
        return f"Environment({self.name!r})"

    @classmethod
    def get(
        cls,
        workspace: Workspace,
        name: str,
        version: str | None = None,
        label: str | None = None,
    ) -> Environment:
        """Return a registered environment, or one of any other name.

        The workspace may have an interpreter for the name.
        """
        registry = Registry(workspace.root)
        versions = registry.versions(KIND, name)
        if not versions:
            return cls(name, version=version)
        number = registry.version(KIND, name, version, label)
        variables = registry.record(KIND, name, number)["environment_variables"]
        return cls(name, version=number, environment_variables=variables)

    @staticmethod
    def list(workspace: Workspace) -> Environments:
        """Return the registered environments by name; an index returns those of any name."""
        return Environments(workspace)

    @classmethod
    def from_conda_specification(cls, name: str, *_: Any, **__: Any) -> Environment:
        """Return an environment of that name; files and images are ignored."""
        return cls(name)

    from_pip_requirements = from_existing_conda_environment = from_conda_specification
    from_docker_image = from_dockerfile = from_conda_specification

    def register(self, workspace: Workspace) -> Environment:
        """Keep the environment variables by the name, as a new version if they have changed."""
        registry = Registry(workspace.root)
        record = {"environment_variables": self.environment_variables}
        versions = registry.versions(KIND, self.name)
        last = Environment.get(workspace, self.name) if versions else None
        if last is None or last.environment_variables != self.environment_variables:
            registry.keep(KIND, self.name, None, record)
        self.version = registry.versions(KIND, self.name)[-1]
        return self


class Environments(dict[str, Environment]):
    """The registered environments of a workspace; any other name is one, too."""

    def __init__(self, workspace: Workspace) -> None:
        names = Registry(workspace.root).names(KIND)
        super().__init__({name: Environment.get(workspace, name) for name in names})

    def __missing__(self, name: str) -> Environment:
        """Return an environment of any name: scripts use this Python, or the workspace's."""
        return Environment(name)


def way_to_python(environment: Any) -> str:
    """Return how an environment, given as an object or by name, gets another Python."""
    name = getattr(environment, "name", environment)
    return f"Workspace(…, environments={{{name!r}: 'PYTHON'}})"


class DockerConfiguration(Known):
    """A setting without effect: scripts do not run in Docker here."""

    def __init__(self, use_docker: bool = False, **_: Any) -> None:
        self.use_docker = use_docker


class RunConfiguration(Known):
    """The environment of a `PythonScriptStep`."""

    def __init__(self, conda_dependencies: CondaDependencies | None = None, **_: Any) -> None:
        self.environment = Environment("default")
        self.target: Any = None
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies


AzureMLException = UserErrorException = UsageError
WebserviceException = ModelNotFoundException = UsageError
"""Exceptions that notebooks catch for what a workspace does not have."""


class ComputeTargetException(UsageError):  # noqa: N818 - the original's name
    """The exception that notebooks catch for a missing cluster; here every name exists."""


class ComputeTargets(dict[str, "AmlCompute"]):
    """The compute targets that were made; any other name is one, too."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self._workspace = workspace

    def __missing__(self, name: str) -> AmlCompute:
        """Return a target of any name: it is only a name."""
        return AmlCompute(self._workspace, name)


class AmlCompute(Known):
    """A compute target by name.

    No cluster is created or queried: jobs run on this machine, or on the Dask cluster passed to
    `ParallelRunStep.run`.

    Parameters
    ----------
    workspace : Workspace
        The workspace whose `compute_targets` will list this target.
    name : str
        Its name.

    """

    def __init__(self, workspace: Workspace | None = None, name: str = "local") -> None:
        self.workspace = workspace
        self.name = name
        if workspace is not None:
            workspace.compute_targets[name] = self

    def __repr__(self) -> str:
        return f"AmlCompute({self.name!r})"

    @classmethod
    def create(
        cls, workspace: Workspace | None, name: str, provisioning_configuration: Any = None
    ) -> AmlCompute:
        """Return a compute target by name."""
        return cls(workspace, name)

    @staticmethod
    def provisioning_configuration(**sizes: Any) -> dict[str, Any]:
        """Return the given settings of a cluster."""
        return sizes

    def wait_for_completion(self, *_: Any, **__: Any) -> None:
        """Return at once: there is nothing to wait for."""

    def get_status(self) -> AmlComputeStatus:
        """Return the state of one node, this machine."""
        return AmlComputeStatus(self.name)

    def delete(self) -> None:
        """Remove the target from its workspace."""
        if self.workspace is not None:
            self.workspace.compute_targets.pop(self.name, None)


class AmlComputeStatus(Known):
    """The state of one node, this machine."""

    allocation_state = "Steady"
    current_node_count = target_node_count = 1
    scale_settings = SimpleNamespace(minimum_node_count=1, maximum_node_count=1)

    def __init__(self, name: str) -> None:
        self._name = name

    def serialize(self) -> dict[str, Any]:
        """Return the name and the location of the compute."""
        return {"name": self._name, "location": "local"}


class ComputeInstance(AmlCompute):
    """The same, under the name of a single machine."""


ComputeTarget = AmlCompute
"""The class by which notebooks create a cluster; the original returns an `AmlCompute`, too."""


def variables_of(environment: Any) -> dict[str, str]:
    """Return the variables of an environment; notebooks also set numbers and booleans."""
    given = getattr(environment, "environment_variables", {}).items()
    return {name: str(one) if isinstance(one, int | float) else one for name, one in given}


def name_of_compute(compute: Any) -> str:
    """Return the name of a compute target, given as an object or a name."""
    return compute if isinstance(compute, str) else str(getattr(compute, "name", compute))
