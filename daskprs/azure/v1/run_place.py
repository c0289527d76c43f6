"""Where the run is that a script is part of, as an environment variable tells its process."""

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

    from daskprs.azure.v1.workspace_like import WorkspaceLike

VARIABLE = "DASKPRS_RUN"


class RunPlace(NamedTuple):
    """What a script can know of its run."""

    folder: Path
    """Of the step."""
    root: Path | None
    """Of the workspace; None: the step knows none."""
    datastores: dict[str, str]
    """Of the workspace: folders by name."""

    @classmethod
    def of(cls, folder: Path, workspace: WorkspaceLike | None) -> Self:
        """Return that of a step that is to run in a folder."""
        if workspace is None:
            return cls(folder, None, {})
        datastores = {name: str(one.root) for name, one in workspace.datastores.items()}
        return cls(folder, workspace.root, datastores)

    @classmethod
    def current(cls) -> Self | None:
        """Return that of this process; None outside of a run."""
        told = os.environ.get(VARIABLE)
        if told is None:
            return None
        given = json.loads(told)
        root = None if given["root"] is None else Path(given["root"])
        return cls(Path(given["folder"]), root, given["datastores"])

    @classmethod
    def seen(cls) -> Self | None:
        """Return that of this process, for who is going to read and write there.

        Raises
        ------
        UsageError
            When it is not seen from this node: what is written would be lost.

        """
        place = cls.current()
        if place is not None and not place.folder.is_dir():
            msg = (
                f"this node does not see the folder of the run, {place.folder}, in which is kept "
                "what scripts log and register. Run the step in a folder that all nodes see, by "
                "job_dir, or on nodes that see this one."
            )
            raise UsageError(msg)
        return place

    def keep_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Keep what the named inputs of a script step are; a variable would be too small."""
        with whole_file(ScriptFolder(self.folder).inputs, durable=False) as file:
            file.write(json.dumps(inputs, default=str).encode())

    def inputs(self) -> dict[str, Any]:
        """Return what the named inputs of a script step are."""
        file = ScriptFolder(self.folder).inputs
        kept: dict[str, Any] = json.loads(file.read_bytes()) if file.exists() else {}
        return kept

    def variables(self) -> dict[str, str]:
        """Return the environment variables that tell a process."""
        told = json.dumps(self._asdict(), default=str, ensure_ascii=False)  # paths as they are
        return {VARIABLE: told}
