"""File input: mini-batches are lists of paths."""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.files.file_versions import (
    is_as_planned,
    refuse_changed_after_error,
    refuse_changed_at,
)
from daskprs._inputs.files.partition_format import PartitionFormat, Values, check_keys
from daskprs._inputs.source.input_file import InputFile, files_fingerprint, is_url
from daskprs._inputs.source.source import Source
from daskprs._system.stores import open_store
from daskprs.errors import LoadError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Paths(NamedTuple):
    """The files of a mini-batch, as they were found."""

    paths: tuple[str, ...]
    sizes: tuple[int | None, ...]
    versions: tuple[str, ...]


class FilesSource(Source):
    """Cuts lists of files by count, or by the values that their paths carry.

    A mini-batch never mixes two inputs. With keys, there is one mini-batch for each combination of
    values that exists, in order of first appearance.
    """

    unit = "file"

    def __init__(
        self,
        inputs: Sequence[Sequence[InputFile]],
        count: int,
        partition_format: str | None = None,
        partition_keys: Sequence[str] = (),
    ) -> None:
        self._inputs = inputs
        self._count = count
        self._keys = tuple(partition_keys)
        self.numbers_rows = not partition_keys
        self._format = None if partition_format is None else PartitionFormat(partition_format)
        self._by_key: dict[Values, array[int]] = {}
        """Places of the files of each combination of values; empty without keys."""
        if self._format is not None:
            self._read_paths(self._format)
        elif self._keys:
            msg = (
                f"{Option('partition_keys')}: files have keys by a format of their paths only, "
                f"such as {Option('partition_format', '{user}/{season}.wav')}."
            )
            raise OptionError(msg)

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the plan."""
        first = 0
        for index, (key, files) in enumerate(self._groups()):
            paths, sizes, versions, _ = zip(*files, strict=True)
            size_bytes = None if None in sizes else sum(sizes)
            yield MiniBatch(
                index,
                Paths(paths, sizes, versions),
                _identity(files),
                len(files),
                size_bytes,
                key,
                None if self._keys else first,
                _label(files),
            )
            first += len(files)

    def count(self) -> int | None:
        """Return how many mini-batches there are."""
        if self._keys:
            return len(self._by_key)
        return sum(-(-len(files) // self._count) for files in self._inputs)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan: every file, by path, size and version."""
        return {"kind": "files", "files": files_fingerprint(self.files())}

    def files(self) -> Iterator[InputFile]:
        """Yield the files as they were found."""
        return (file for files in self._inputs for file in files)

    def reader(self) -> FilesReader:
        """Return the reader for the agents."""
        return FilesReader()

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the paths."""
        return Where(paths=mini_batch.piece.paths)

    def _read_paths(self, format_: PartitionFormat) -> None:
        """Read the values that all paths carry, and keep where the files of each key are."""
        check_keys(self._keys, format_.names)
        if self._keys and len(self._inputs) != 1:
            self._inputs = [FileList(self.files())]
        for place, file in enumerate(self.files()):
            values = dict(format_.values(file))
            if self._keys:
                key = tuple((key, values[key]) for key in self._keys)
                self._by_key.setdefault(key, array("Q")).append(place)

    def _groups(self) -> Iterator[tuple[Values, list[InputFile]]]:
        for key, places in self._by_key.items():
            yield key, [self._inputs[0][place] for place in places]
        for files in self._inputs if not self._keys else ():
            remaining = iter(files)
            while group := list(islice(remaining, self._count)):
                yield (), group


class FilesReader:
    """Gives the paths; files not on a disk are fetched for a mini-batch and removed after."""

    def __init__(self) -> None:
        self._folders: list[tempfile.TemporaryDirectory[str]] = []
        """One for each mini-batch that was fetched: the one that runs, and the one after it."""

    def load(self, mini_batch: MiniBatch) -> list[str]:
        """Return local paths; a file that has changed is an `InputChanged`."""
        self.check(mini_batch)
        paths, sizes, versions = mini_batch.piece
        while len(self._folders) > 1:
            self._folders.pop(0).cleanup()
        if any(map(is_url, paths)):
            self._folders.append(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".input-"))
        return [
            self._fetch(InputFile(path, size, version, ""), f"{place}/") if is_url(path) else path
            for place, (path, size, version) in enumerate(zip(paths, sizes, versions, strict=True))
        ]

    def check(self, mini_batch: MiniBatch) -> None:
        """Compare the files, except fetched ones, with the plan; a missing file has not changed."""
        for path, size, version in zip(*mini_batch.piece, strict=True):
            if not (is_as_planned(path, size, version) or is_url(path)):
                refuse_changed_at(InputFile(path, size, version, ""))

    def close(self) -> None:
        """Remove what was fetched."""
        while self._folders:
            self._folders.pop().cleanup()

    def _fetch(self, file: InputFile, below: str) -> str:
        target = Path(self._folders[-1].name, below, file.name)
        target.parent.mkdir()
        try:
            filesystem, place = open_store(file.path)
            filesystem.get_file(place, str(target))
        except FileNotFoundError as error:
            msg = f"{file.path} has gone since the job began."
            raise LoadError(msg) from error
        except Exception:  # each store has errors of its own
            refuse_changed_after_error(file, None)
            raise
        if file.size_bytes not in (None, target.stat().st_size):
            refuse_changed_after_error(file, None)
        return str(target)


def _identity(files: list[InputFile]) -> str:
    """Return the identity of a mini-batch: that of its one file, or a digest of several."""
    if len(files) == 1:
        return files[0].identity
    whole = "\n".join([file.identity for file in files])
    return hashlib.blake2b(whole.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _label(files: list[InputFile]) -> str:
    first = files[0].name
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"
