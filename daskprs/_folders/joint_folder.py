"""Folders that hold the folders of several jobs, as that of a pipeline does: plugins know them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from daskprs import _plugins
from daskprs._system.private_folder import not_entered

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike


class JointState(Protocol):
    """The state of what has run in such a folder."""

    @property
    def status(self) -> str:
        """The status, as that of a job."""

    @property
    def holder(self) -> str | None:
        """The process that is at work on it."""

    @property
    def steps(self) -> Mapping[str, str]:
        """The status of each step."""


class JointFolder(Protocol):
    """A folder whose jobs go, stay and go on together: the steps of a pipeline."""

    @property
    def path(self) -> Path:
        """The folder itself."""

    @property
    def record(self) -> Path:
        """The file that marks the folder; a cleaning removes it last."""

    @property
    def lock(self) -> Path:
        """The lock file, held while the steps run."""

    @property
    def outputs(self) -> Path:
        """The folder of outputs without a path of their own."""

    def step(self, name: str) -> Path:
        """Return the folder of a step."""

    def state(self) -> JointState | None:
        """Return the state; None where nothing has run yet."""

    def state_values(self, state: JointState) -> dict[str, Any]:
        """Return a state as JSON values."""

    def way_on(self, given: str) -> str:
        """Return how the whole goes on, in sentences with the path that the caller has given."""

    def way_on_of(self, job: Path) -> str | None:
        """Return how the job in a folder below goes on with the whole; None: by itself."""


def joint_folder_at(path: str | PathLike[str]) -> JointFolder | None:
    """Return the folder at a path, if it is one for several jobs.

    Raise `JobFolderError` when this user may not enter it.
    """
    for mark, dotted in _plugins.own_names("folders").items():
        try:
            Path(path, mark).stat()
        except PermissionError:
            raise not_entered(Path(path)) from None
        except OSError:
            continue
        folder: JointFolder = _plugins.loaded(dotted)(path)
        return folder
    return None
