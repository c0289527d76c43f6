"""The part of `Workspace` that datasets, models and steps use, without importing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs.azure.v1.registry import Registry


class WorkspaceLike(Protocol):
    """A `daskprs.azure.v1.Workspace`, as the modules below it see it."""

    root: Path
    registry: Registry
    compute_targets: dict[str, Any]

    @property
    def datastores(self) -> Mapping[str, Any]:
        """The datastores of the workspace, by name."""

    @property
    def datasets(self) -> Mapping[str, Any]:
        """The last version of each registered dataset, by name."""

    @property
    def models(self) -> Mapping[str, Any]:
        """The last version of each registered model, by name."""

    def datastore(self, name: str) -> Any:
        """Return a datastore by name."""

    def get_default_datastore(self) -> Any:
        """Return the default datastore."""

    def keep_dataset(self, name: str, dataset: Any) -> None:
        """Register a dataset under a name."""

    def folders(self) -> tuple[Path, ...]:
        """Return the folders of all datastores, and the folder of the registry."""
