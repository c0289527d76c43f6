"""The place of a script's run, which an environment variable passes to its process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from daskprs.errors import UsageError
from daskprs.folders.pipeline_folder import ScriptFolder
from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.v1.workspace import Workspace

VARIABLE = "DASKPRS_RUN"


class RunPlace(NamedTuple):
    """The places of a run, for its scripts."""

    folder: Path
    """The folder of the step."""
    root: Path | None
    """The folder of the workspace; None when the step has no workspace."""
    datastores: dict[str, str]
    """Folders of the workspace's datastores, by name."""

    @classmethod
    def of(cls, folder: Path, workspace: Workspace | None) -> Self:
        """Return the place for a step that will run in a folder."""
        if workspace is None:
            return cls(folder, None, {})
        datastores = {name: str(one.root) for name, one in workspace.datastores.items()}
        return cls(folder, workspace.root, datastores)

    @classmethod
    def current(cls) -> Self | None:
        """Return the place of this process's run; None outside of a run."""
        text = os.environ.get(VARIABLE)
        if text is None:
            return None
        given = json.loads(text)
        root = None if given["root"] is None else Path(given["root"])
        return cls(Path(given["folder"]), root, given["datastores"])

    @classmethod
    def seen(cls) -> Self | None:
        """Return the place of this process's run, and refuse a folder that is not seen here."""
        place = cls.current()
        if place is not None and not place.folder.is_dir():
            msg = (
                f"this node does not see the folder of the run, {place.folder}, which keeps what "
                "scripts log and register. Run the step in a folder that all nodes see, by "
                "job_dir, or on nodes that see this one."
            )
            raise UsageError(msg)
        return place

    def keep_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Save the named inputs of a script step to a file, as a variable would be too small."""
        with whole_file(ScriptFolder(self.folder).inputs, durable=False) as file:
            file.write(json.dumps(inputs, default=str).encode())

    def inputs(self) -> dict[str, Any]:
        """Return the saved named inputs of a script step."""
        file = ScriptFolder(self.folder).inputs
        kept: dict[str, Any] = json.loads(file.read_bytes()) if file.exists() else {}
        return kept

    def variables(self) -> dict[str, str]:
        """Return the environment variables that pass this place to a process."""
        text = json.dumps(self._asdict(), default=str, ensure_ascii=False)  # paths as they are
        return {VARIABLE: text}
