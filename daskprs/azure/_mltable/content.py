"""The content of an MLTable: its filled form, its resolved paths, and all mistakes of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.files.partition_format import PartitionFormat
from daskprs._inputs.source.input_file import is_url, open_binary
from daskprs.azure._mltable.form import FORMAT, READS, MLTableForm, ReadForm
from daskprs.azure._mltable.place import folder_of, resolved
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import filled
from daskprs.azure._yaml_files.mistakes import Mistake, refuse, whole
from daskprs.errors import DaskprsError, InputError, YamlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs._inputs.source.input_file import InputFile
    from daskprs.azure._mltable.form import PathEntry, Transformation

AZURE = "azureml:"
WASB = ("wasb://", "wasbs://")


class MLTableContent(NamedTuple):
    """An MLTable."""

    document: Document
    folder: str
    """The folder that relative paths start from."""
    entries: list[str]
    """Its paths, resolved."""
    inputs: list[FileList]
    """The files of each, without the MLTable itself."""
    transformations: list[Transformation]

    @property
    def read_at(self) -> int:
        """Number of the transformation that reads; -1 for a list of files."""
        names = [one.name for one in self.transformations]
        return next((at for at, name in enumerate(names) if name in READS), -1)

    @property
    def options(self) -> ReadForm:
        """The options of the transformation that reads, with their defaults."""
        read = self.transformations[self.read_at]
        options: ReadForm = read.value or READS[read.name]()
        return options

    @property
    def partitions(self) -> tuple[int, ...] | None:
        """The numbers of the partitions that are wanted, in order; None: all."""
        for one in self.transformations:
            if one.name == "select_partitions":
                return tuple(sorted(set(one.value)))
        return None

    def mistake(self, at: int, told: str, *more: str | int) -> Mistake:
        """Return a mistake in a transformation."""
        name = self.transformations[at].name
        return self.document.mistake(("transformations", at, name, *more), told)

    def partition_format(self, files: Sequence[InputFile]) -> str | None:
        """Return the format that the paths of files match; None where there is none.

        A format goes to the end of the path. One that the first file does not match in this way
        names folders: ``/year={year}/month={month}``. A YamlError says that the first file matches
        in neither way, or that the format is not one.
        """
        for at, one in enumerate(self.transformations):
            if one.name == FORMAT:
                try:
                    return _matching(one.value, files[0]) if files else str(one.value)
                except DaskprsError as error:
                    refuse([self.mistake(at, str(error))])
        return None


def _matching(text: str, file: InputFile) -> str:
    of_folders = f"{text.rstrip('/')}/**"
    for one in (text, of_folders):
        try:
            PartitionFormat(one).values(file)
        except InputError:
            continue
        return one
    msg = f"{file.path} does not match {text!r}"
    raise InputError(msg)


def read_mltable(path: str) -> MLTableContent:
    """Return the content of the MLTable at a path.

    A YamlError has all mistakes of the form and of the paths.
    """
    document = _document(path)
    form, mistakes = filled(MLTableForm, document.content, document)
    form = form or whole(form, mistakes)
    written = MLTableContent(document, folder_of(path), [], [], form.transformations or [])
    mistakes += _order(written)
    is_delta = any(one.name == "read_delta_lake" for one in written.transformations)
    for at, entry in enumerate(form.paths):
        place, files, told = _found(entry, written.folder, path, is_folder_enough=is_delta)
        written.entries.append(place)
        written.inputs.append(files)
        if told is not None:
            key = next(iter(entry.model_fields_set))
            mistakes.append(document.mistake(("paths", at, key), told))
    refuse(mistakes)
    return written


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
    place = resolved(entry.path, folder)
    if place.startswith((AZURE, *WASB)):
        return "", FileList(), _instead(place)
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
    """Return the next step for a path that nothing here opens."""
    mapped = f"In a pipeline, give its place by --asset {path}=PATH"
    if path.startswith(AZURE):
        return (
            f"{path} lies in Azure, which daskprs does not reach. {mapped}, or that of its "
            "datastore by --datastore NAME=FOLDER. Elsewhere, name a local path, or a URL that "
            "fsspec opens, such as abfs://container/folder"
        )
    same = path.partition("://")[2].replace(".blob.", ".dfs.", 1)
    same = f"abfss://{same}"
    return f"fsspec opens it by another name, with the extra daskprs[azure]: {same}. {mapped}"


def _order(written: MLTableContent) -> Iterator[Mistake]:
    """Yield the faults in the order of transformations."""
    names = [one.name for one in written.transformations]
    if "read_delta_lake" in names and FORMAT in names:
        told = "the folders of a Delta table are columns of it already: leave it out"
        yield written.mistake(names.index(FORMAT), told)
    for once in ("read_", FORMAT, "select_partitions"):
        named = f"a {once}…" if once == "read_" else once
        for at in [at for at, name in enumerate(names) if name.startswith(once)][1:]:
            yield written.mistake(at, f"there is {named} already, and there can be one")
    if not {*names[: max(0, written.read_at)]} <= {FORMAT}:
        told = f"it has to come first, but for {FORMAT}: the others work on what it reads"
        yield written.mistake(written.read_at, told)
