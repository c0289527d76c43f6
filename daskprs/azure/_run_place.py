"""The place of a script's run, which an environment variable passes to its process."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from daskprs._system.atomic_file import whole_file
from daskprs.azure._pipeline_folder import ScriptFolder
from daskprs.azure._stand_ins.step_run import RUN_ID, id_of
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "DASKPRS_RUN"
LOGGER = logging.getLogger("daskprs.run")


class RunPlace(NamedTuple):
    """The places of a run, for its scripts."""

    folder: Path
    """The folder of the step."""
    root: Path | None = None
    """The folder of the workspace; None when the step has no workspace."""
    datastores: Mapping[str, str] = MappingProxyType({})
    """Folders of the workspace's datastores, by name."""
    may_be_unseen: bool = False
    """Whether a script goes on, offline, where its node does not see the folder.

    Steps of pipeline files do, and they have no workspace.
    """

    @classmethod
    def of(cls, folder: Path, workspace: Any) -> Self:
        """Return the place for a step that will run in a folder, with its workspace or None."""
        if workspace is None:
            return cls(folder)
        datastores = {name: str(root) for name, root in workspace.roots().items()}
        return cls(folder, workspace.root, datastores)

    @classmethod
    def current(cls) -> Self | None:
        """Return the place of this process's run; None outside of a run."""
        text = os.environ.get(VARIABLE)
        if text is None:
            return None
        given = json.loads(text)
        root = None if given["root"] is None else Path(given["root"])
        may_be_unseen = given.get("may_be_unseen", False)
        return cls(Path(given["folder"]), root, given["datastores"], may_be_unseen)

    @classmethod
    def seen(cls) -> Self | None:
        """Return the place of this process's run, and refuse a folder that is not seen here.

        The place is None where a script may go on without the folder.
        """
        place = cls.current()
        if place is None or place.folder.is_dir():
            return place
        msg = (
            f"this node does not see the folder of the run, {place.folder}, which keeps what "
            "scripts log and register. Run the step in a folder that all nodes see, by "
            "job_dir, or on nodes that see this one."
        )
        if not place.may_be_unseen:
            raise UsageError(msg)
        LOGGER.warning("What this process logs to its run is lost: %s", msg)
        return None

    def keep_ports(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Save the named inputs and outputs of a step, for which a variable would be too small."""
        folder = ScriptFolder(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path, values in ((folder.inputs, inputs), (folder.outputs, outputs)):
            with whole_file(path, durable=False) as file:
                file.write(json.dumps(values, default=str).encode())

    def inputs(self) -> dict[str, Any]:
        """Return the saved named inputs of a step."""
        file = ScriptFolder(self.folder).inputs
        kept: dict[str, Any] = json.loads(file.read_bytes()) if file.exists() else {}
        return kept

    def variables(self) -> dict[str, str]:
        """Return the environment variables that pass this place, and its id, to a process."""
        values = {**self._asdict(), "datastores": dict(self.datastores)}
        text = json.dumps(values, default=str, ensure_ascii=False)  # paths as they are
        return {VARIABLE: text, RUN_ID: id_of(self.folder)}
