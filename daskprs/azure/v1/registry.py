"""The registry of a workspace: models and datasets, as files in its folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = ".azureml"
"""The registry's folder in that of the workspace; it may also hold ``config.json``."""
RECORD = "model.json"
FILES = "files"


class RegisteredModel(NamedTuple):
    """One version of a model."""

    name: str
    version: int
    path: Path
    """The file or folder of the model."""
    told: dict[str, Any]
    """The information given at registration."""


class Registry:
    """Reads and writes registered models and datasets, which all processes share.

    Parameters
    ----------
    root
        The folder of the workspace.

    """

    def __init__(self, root: Path) -> None:
        self._models = root / FOLDER / "models"
        self._datasets = root / FOLDER / "datasets"

    def add_model(self, name: str, source: Path, told: Mapping[str, Any]) -> int:
        """Copy a file or folder as the next version of a model, and return the version."""
        versions = self._models / quote(name, safe="")
        versions.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=versions) as folder:
            made = Path(folder, "made")
            target = made / FILES / source.resolve().name
            target.parent.mkdir(parents=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(FOLDER))
            else:
                shutil.copy2(source, target)
            (made / RECORD).write_text(json.dumps(told, default=str))
            return _rename_to_next(made, versions)

    def models(self, name: str | None = None) -> Iterator[RegisteredModel]:
        """Yield all models, or those of a name, the versions of each in their order."""
        all_of_them = sorted(self._models.glob("*"))
        for folder in all_of_them if name is None else [self._models / quote(name, safe="")]:
            for version in _versions(folder):
                place = folder / str(version)
                told = json.loads((place / RECORD).read_text())
                path = next((place / FILES).iterdir())
                yield RegisteredModel(unquote(folder.name), version, path, told)

    def paths(self, *, but_of: Path) -> dict[str, str]:
        """Return where models are, the last version of each; but for those of one step's scripts.

        These may have registered them before the step was broken off: a resume finds what was there
        when it began.
        """
        models = (one for one in self.models() if one.told["run"] != str(but_of))
        return {one.name: str(one.path) for one in models}

    def remove_model(self, name: str, version: int) -> None:
        """Remove one version of a model."""
        shutil.rmtree(self._models / quote(name, safe="") / str(version))

    def keep_dataset(self, name: str, record: Mapping[str, Any]) -> None:
        """Save the record of a dataset, as JSON values."""
        self._datasets.mkdir(parents=True, exist_ok=True)
        with whole_file(self._datasets / f"{quote(name, safe='')}.json") as file:
            file.write(json.dumps(record, indent=1).encode())

    def datasets(self) -> dict[str, Any]:
        """Return the records of all datasets, by name."""
        files = sorted(self._datasets.glob("*.json"))
        return {unquote(file.stem): json.loads(file.read_text()) for file in files}


def _versions(folder: Path) -> list[int]:
    return sorted(int(one.name) for one in folder.glob("[0-9]*"))


def _rename_to_next(made: Path, versions: Path) -> int:
    """Rename a folder to the next version number; concurrent calls get different numbers."""
    while True:
        version = max(_versions(versions), default=0) + 1
        target = versions / str(version)
        try:
            made.rename(target)
        except OSError:
            if not target.exists():
                raise
        else:
            return version
