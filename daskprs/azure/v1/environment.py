"""Environments and compute targets: names, since everything runs where it is called.

Packages are not installed, and clusters are not created. A workspace knows interpreters that stand
for environments.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from daskprs.azure.v1.workspace import Workspace

DEFAULT_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
DEFAULT_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.1-cudnn8-ubuntu20.04"


class CondaDependencies:
    """Names of packages, without effect: scripts use those of the running Python."""

    def __init__(
        self,
        conda_dependencies_file_path: str | PathLike[str] | None = None,
        packages: Iterable[str] = (),
    ) -> None:
        self.packages = list(packages)

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
        return cls(packages=[*(conda_packages or ()), *(pip_packages or ())])

    def add_pip_package(self, pip_package: str) -> None:
        """Add a name."""
        self.packages.append(pip_package)

    def add_conda_package(self, conda_package: str) -> None:
        """Add a name."""
        self.packages.append(conda_package)

    def add_channel(self, *_: Any, **__: Any) -> None:
        """Accept a channel, or a version of Python, without effect."""

    set_python_version = add_channel


class Environment:
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
    def get(cls, workspace: Workspace, name: str, version: str | None = None) -> Environment:
        """Return an environment of that name; the workspace may have an interpreter for it."""
        return cls(name, version=version)

    @staticmethod
    def list(workspace: Workspace) -> dict[str, Environment]:
        """Return no environments: none is registered, and `get` returns any name."""
        return {}

    @classmethod
    def from_conda_specification(cls, name: str, *_: Any, **__: Any) -> Environment:
        """Return an environment of that name; files and images are ignored."""
        return cls(name)

    from_pip_requirements = from_existing_conda_environment = from_conda_specification
    from_docker_image = from_dockerfile = from_conda_specification

    def register(self, workspace: Workspace) -> Environment:
        """Return this environment, without effect: environments are not registered here."""
        return self


def way_to_python(environment: Any) -> str:
    """Return how an environment, given as an object or by name, gets another Python."""
    name = getattr(environment, "name", environment)
    return f"Workspace(…, environments={{{name!r}: 'PYTHON'}})"


class DockerConfiguration:
    """A setting without effect: scripts do not run in Docker here."""

    def __init__(self, use_docker: bool = False, **_: Any) -> None:
        self.use_docker = use_docker


class RunConfiguration:
    """The environment of a `PythonScriptStep`."""

    def __init__(self, conda_dependencies: CondaDependencies | None = None, **_: Any) -> None:
        self.environment = Environment("default")
        self.target: Any = None
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies


class ComputeTargetException(UsageError):  # noqa: N818 - the original's name
    """The exception that notebooks catch for a missing cluster; here every name exists."""


class AmlCompute:
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

    def wait_for_completion(self, **_: Any) -> None:
        """Return at once: there is nothing to wait for."""

    def get_status(self) -> Any:
        """Return an object whose `serialize` gives the name and location of the target."""
        return SimpleNamespace(serialize=lambda: {"name": self.name, "location": "local"})

    def delete(self) -> None:
        """Remove the target from its workspace."""
        if self.workspace is not None:
            self.workspace.compute_targets.pop(self.name, None)


ComputeTarget = AmlCompute
"""The class by which notebooks create a cluster; the original returns an `AmlCompute`, too."""


def name_of_compute(compute: Any) -> str:
    """Return the name of a compute target, given as an object or a name."""
    return compute if isinstance(compute, str) else str(getattr(compute, "name", compute))
