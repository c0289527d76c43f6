"""`Datastore`: a folder by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.azure.v1.absent import Known
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from daskprs.azure.v1.workspace import Workspace


class DataPath(NamedTuple):
    """A path on a datastore."""

    datastore: Datastore
    path_on_datastore: str

    @property
    def place(self) -> str:
        """The local path, which may be a glob."""
        return self.datastore.place(self.path_on_datastore)

    def as_mount(self) -> DataPath:
        """Return this path as an input of a step, read in place."""
        return self

    def as_download(self) -> DataPath:
        """Return this path as an input of a step, read in place."""
        return self


class Datastore(Known):
    """A folder in place of a store in Azure.

    Parameters
    ----------
    workspace : Workspace
        The workspace that knows the folder.
    name : str, optional
        The name of the datastore; None: the default datastore.

    Raises
    ------
    UsageError
        When the datastore has no folder here.

    """

    name: str
    root: Path
    workspace: Workspace | None
    account_name = "local"
    account_key = None

    def __init__(self, workspace: Workspace, name: str | None = None) -> None:
        known = workspace.get_default_datastore() if name is None else workspace.datastore(name)
        self.name, self.root, self.workspace = known.name, known.root, workspace

    def __repr__(self) -> str:
        return f"Datastore.local({self.name!r}, {str(self.root)!r})"

    @classmethod
    def local(cls, name: str, root: str | PathLike[str]) -> Datastore:
        """Return a folder as a datastore."""
        one = cls.__new__(cls)
        one.name, one.root, one.workspace = name, Path(root).absolute(), None
        return one

    @classmethod
    def get(cls, workspace: Workspace, datastore_name: str) -> Datastore:
        """Return the datastore of a workspace that has this name."""
        return cls(workspace, datastore_name)

    @classmethod
    def get_default(cls, workspace: Workspace) -> Datastore:
        """Return the default datastore of a workspace."""
        return cls(workspace)

    @classmethod
    def register_azure_blob_container(
        cls, workspace: Workspace, datastore_name: str, container_name: str = "", **_: Any
    ) -> Datastore:
        """Return the local datastore of this name, without access to a container.

        Raises
        ------
        UsageError
            When it has no folder here.

        """
        return cls(workspace, datastore_name)

    register_azure_file_share = register_azure_data_lake_gen2 = register_azure_blob_container

    def set_as_default(self) -> None:
        """Make it the default datastore of its workspace, while that object lives."""
        if self.workspace is not None:
            self.workspace.set_default_datastore(self.name)

    def path(self, path: str | None = None) -> DataPath:
        """Return a path on this datastore."""
        return DataPath(self, path or "")

    def place(self, path: str) -> str:
        """Return the local path for a path on this datastore; refuse one that climbs out of it."""
        parts = path.strip("/").split("/")
        if ".." in parts:
            msg = f"{path!r} climbs out of the datastore {self.name!r}."
            raise UsageError(msg)
        return str(self.root.joinpath(*parts))

    def upload(
        self,
        src_dir: str | PathLike[str],
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataPath:
        """Copy a folder into the datastore; existing files stay unless `overwrite`."""
        files = [one for one in sorted(Path(src_dir).rglob("*")) if one.is_file()]
        return self.upload_files(files, src_dir, target_path, overwrite)

    def upload_files(
        self,
        files: Iterable[str | PathLike[str]],
        relative_root: str | PathLike[str] | None = None,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataPath:
        """Copy files into the datastore, by their paths below a root (None: by their names)."""
        path = self.path(target_path)
        for one in files:
            file = Path(one).absolute()
            root = file.parent if relative_root is None else Path(relative_root).absolute()
            _copy_file(file, Path(path.place) / file.relative_to(root), overwrite=overwrite)
        return path

    def download(
        self,
        target_path: str | PathLike[str],
        prefix: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> int:
        """Copy the files below a prefix into a folder, and return their number."""
        source = Path(self.place(prefix or ""))
        files = [source] if source.is_file() else [*source.rglob("*")]
        copied = [one for one in files if one.is_file()]
        for one in copied:
            _copy_file(one, Path(target_path) / one.relative_to(self.root), overwrite=overwrite)
        return len(copied)


def _copy_file(source: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite or not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
