"""What a detached job is told beside its call: kept in its folder by who submits it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.errors import JobFolderError
from daskprs.regular_files import read_json
from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from daskprs.folders.job_folder import JobFolder


class Detachment(NamedTuple):
    """How a driver is carried by a cluster."""

    address: str
    """Of the scheduler."""
    task: str
    """The key of the Dask task that carries the driver."""
    epochs_before: int
    """Drivers that had worked in the folder when it was submitted."""
    options: dict[str, Any]
    """Options of this run that a kept call does not have."""

    def write(self, folder: JobFolder) -> None:
        """Keep it in the job folder."""
        with whole_file(folder.detached) as file:
            file.write(json.dumps(self._asdict()).encode())

    @classmethod
    def read(cls, folder: JobFolder) -> Detachment:
        """Return what a folder tells.

        Raises
        ------
        JobFolderError
            When no detached job was submitted there.

        """
        try:
            return cls(**read_json(folder.detached))
        except FileNotFoundError:
            msg = f"no detached job was submitted in {folder}: it has no {folder.detached.name}."
            raise JobFolderError(msg) from None
        except (OSError, ValueError, TypeError) as error:
            msg = f"{folder.detached} cannot be read: {error}. Submit the job again."
            raise JobFolderError(msg) from error
