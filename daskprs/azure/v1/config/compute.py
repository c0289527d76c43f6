"""Compute targets: names that mean nothing here, since everything runs where it is called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from daskprs.errors import UsageError

if TYPE_CHECKING:
    from daskprs.azure.v1.workspace_like import WorkspaceLike


class ComputeTargetException(UsageError):  # noqa: N818 - the original's name
    """What notebooks catch where a cluster may not be there; here one is, whatever its name."""


class AmlCompute:
    """A compute target by name.

    Nothing is created or asked for: jobs run on this machine, or on the Dask cluster that
    `ParallelRunStep.run` is given.

    Parameters
    ----------
    workspace : Workspace
        Whose `compute_targets` have it from now on.
    name : str
        Its name.

    """

    def __init__(self, workspace: WorkspaceLike | None = None, name: str = "local") -> None:
        self.workspace = workspace
        self.name = name
        if workspace is not None:
            workspace.compute_targets[name] = self

    def __repr__(self) -> str:
        return f"AmlCompute({self.name!r})"

    @staticmethod
    def provisioning_configuration(**sizes: Any) -> dict[str, Any]:
        """Return what a cluster would be created with."""
        return sizes

    def wait_for_completion(self, **_: Any) -> None:
        """Return at once: there is nothing to wait for."""

    def get_status(self) -> Any:
        """Return an object whose `serialize` says where it is."""
        return SimpleNamespace(serialize=lambda: {"name": self.name, "location": "local"})

    def delete(self) -> None:
        """Take it from its workspace."""
        if self.workspace is not None:
            self.workspace.compute_targets.pop(self.name, None)


class ComputeTarget(AmlCompute):
    """What notebooks create a cluster with."""

    def __new__(cls, workspace: WorkspaceLike | None = None, name: str = "local") -> Any:
        """Return an `AmlCompute`, as the original does."""
        return AmlCompute(workspace, name)

    @staticmethod
    def create(
        workspace: WorkspaceLike | None, name: str, provisioning_configuration: Any = None
    ) -> AmlCompute:
        """Return a compute target by name."""
        del provisioning_configuration
        return AmlCompute(workspace, name)


def name_of_compute(compute: Any) -> str:
    """Return the name of a compute target, or of one that is named."""
    return compute if isinstance(compute, str) else str(getattr(compute, "name", compute))
