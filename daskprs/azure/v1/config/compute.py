"""Compute targets: names without effect, since everything runs where it is called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from daskprs.errors import UsageError

if TYPE_CHECKING:
    from daskprs.azure.v1.workspace_like import WorkspaceLike


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

    def __init__(self, workspace: WorkspaceLike | None = None, name: str = "local") -> None:
        self.workspace = workspace
        self.name = name
        if workspace is not None:
            workspace.compute_targets[name] = self

    def __repr__(self) -> str:
        return f"AmlCompute({self.name!r})"

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


class ComputeTarget(AmlCompute):
    """The class by which notebooks create a cluster."""

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
    """Return the name of a compute target, given as an object or a name."""
    return compute if isinstance(compute, str) else str(getattr(compute, "name", compute))
