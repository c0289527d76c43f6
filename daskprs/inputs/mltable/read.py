"""An MLTable as it is written: its form filled, its paths found, and every mistake of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs.errors import InputError, YamlError
from daskprs.inputs.files.discover import discover
from daskprs.inputs.files.file_list import FileList
from daskprs.inputs.mltable.form import FORMAT, MLTableForm
from daskprs.inputs.mltable.place import folder_of, resolved
from daskprs.inputs.source.input_file import is_url, open_binary
from daskprs.yaml_files.document import Document, Loc, dotted
from daskprs.yaml_files.form import filled
from daskprs.yaml_files.mistakes import Mistake, refuse

if TYPE_CHECKING:
    from daskprs.inputs.mltable.form import PathEntry, Transformation

AZURE = "azureml:"
WASB = ("wasb://", "wasbs://")


class MLTableContent(NamedTuple):
    """An MLTable."""

    document: Document
    folder: str
    """Where relative paths begin."""
    entries: list[str]
    """Its paths, resolved."""
    inputs: list[FileList]
    """The files of each, without the MLTable itself."""
    transformations: list[Transformation]

    @property
    def read_at(self) -> int:
        """Number of the transformation that reads; -1 for a list of files."""
        names = [one.name for one in self.transformations]
        return next((at for at, name in enumerate(names) if name.startswith("read_")), -1)

    @property
    def read(self) -> Transformation:
        """The transformation that reads a table."""
        return self.transformations[self.read_at]

    def mistake(self, at: int, told: str, *more: str | int) -> Mistake:
        """Return a mistake in a transformation."""
        loc: Loc = ("transformations", at, self.transformations[at].name, *more)
        return Mistake(self.document.place(loc), dotted(loc), told)


def read_mltable(path: str) -> MLTableContent:
    """Return what the MLTable at a path says.

    Raises
    ------
    YamlError
        When the form or the paths have mistakes; the error lists all.

    """
    document = _document(path)
    form, mistakes = filled(MLTableForm, document.content, document)
    if form is None:
        refuse(mistakes)
        msg = f"{path}: it is no MLTable."
        raise YamlError(msg)
    transformations = form.transformations or []
    folder = folder_of(path)
    mistakes += _order(document, transformations)
    entries: list[str] = []
    inputs: list[FileList] = []
    is_delta = any(one.name == "read_delta_lake" for one in transformations)
    for at, entry in enumerate(form.paths):
        place, files, told = _found(entry, folder, path, is_folder_enough=is_delta)
        entries.append(place)
        inputs.append(files)
        if told is not None:
            loc = ("paths", at, next(iter(entry.model_fields_set)))
            mistakes.append(Mistake(document.place(loc), dotted(loc), told))
    refuse(mistakes)
    return MLTableContent(document, folder, entries, inputs, transformations)


def _document(path: str) -> Document:
    if not is_url(path):
        return Document.read(path)
    try:
        with open_binary(path) as file:
            return Document(file.read().decode("utf-8-sig"), path)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: it cannot be read: {error}"
        raise YamlError(msg) from error


def _found(
    entry: PathEntry, folder: str, own: str, *, is_folder_enough: bool
) -> tuple[str, FileList, str | None]:
    """Return the place of an entry, its files, and its mistake, if any."""
    if entry.path.startswith((AZURE, *WASB)):
        return "", FileList(), _instead(entry.path)
    place = resolved(entry.path, folder)
    if is_folder_enough and entry.folder is not None:
        return place, FileList(), None
    try:
        (files,) = discover([place])
    except InputError as error:
        return place, FileList(), str(error)
    is_itself = len(files) == 1 and not files[0].relative
    is_folder = Path(place).is_dir()  # published files call one a file
    if entry.file is not None and files and not is_itself and not is_folder:
        return place, files, f"{entry.path} is a pattern: say so in place of file"
    if entry.folder is not None and is_itself:
        return place, files, f"{entry.path} is a file: say file in place of folder"
    return place, FileList(file for file in files if file.path != own), None


def _instead(path: str) -> str:
    """Return what to write instead of a path that nothing here opens."""
    if path.startswith(AZURE):
        return (
            f"{path} lies in Azure, which daskprs does not reach. Name a local path, or a "
            "URL that fsspec opens, such as abfs://container/folder"
        )
    same = path.partition("://")[2].replace(".blob.", ".dfs.", 1)
    return f"fsspec opens it by another name, with the package adlfs: abfss://{same}"


def _order(document: Document, transformations: list[Transformation]) -> list[Mistake]:
    """Return what is wrong with the order of transformations."""
    mistakes = []
    names = [one.name for one in transformations]
    if "read_delta_lake" in names and FORMAT in names:
        loc = ("transformations", names.index(FORMAT), FORMAT)
        told = "the folders of a Delta table are columns of it already: leave it out"
        mistakes.append(Mistake(document.place(loc), dotted(loc), told))
    for once in ("read_", FORMAT, "select_partitions"):
        ats = [at for at, one in enumerate(transformations) if one.name.startswith(once)]
        named = f"a {once}…" if once == "read_" else once
        for at in ats[1:]:
            loc = ("transformations", at, transformations[at].name)
            told = f"there is {named} already, and there can be one"
            mistakes.append(Mistake(document.place(loc), dotted(loc), told))
        if once == "read_" and ats and not {*names[: ats[0]]} <= {FORMAT}:
            loc = ("transformations", ats[0], transformations[ats[0]].name)
            told = f"it has to come first, but for {FORMAT}: the others work on what it reads"
            mistakes.append(Mistake(document.place(loc), dotted(loc), told))
    return mistakes
