"""File input: mini-batches are lists of paths."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from array import array
from functools import partial
from itertools import groupby, islice
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
from daskprs._inputs.source.sizes import count_per_mini_batch
from daskprs._inputs.source.source import Source
from daskprs._system.store_calls import at_once, takes_several
from daskprs._system.stores import open_store
from daskprs.errors import LoadError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from daskprs._inputs.source.read_options import ReadOptions


DEFAULT_FILES = 10
"""Files of a mini-batch, if no size is given."""


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

    def __init__(self, inputs: Sequence[Sequence[InputFile]], reading: ReadOptions) -> None:
        self._inputs = inputs
        self._keys = tuple(reading.partition_keys)
        size = None if self._keys else reading.mini_batch_size
        self._count = DEFAULT_FILES if size is None else count_per_mini_batch(size, "files")
        self.numbers_rows = not self._keys
        self._requests = reading.store_requests
        written = reading.partition_format
        self._format = None if written is None else PartitionFormat(written)
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
                identity_of(files),
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
        return FilesReader(self._requests)

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


class Fetched(NamedTuple):
    """A file of a store on its way to the disk."""

    file: InputFile
    filesystem: Any
    place: str
    """The path in the store."""
    target: str
    """The path on the disk."""


class FilesReader:
    """Gives the paths; files not on a disk are fetched for a mini-batch, several at a time.

    They are removed when the mini-batch is done.
    """

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._folders: dict[int, tempfile.TemporaryDirectory[str]] = {}
        """By index, the folders of the mini-batches that were fetched: the one that runs, and the
        one after it. The loader's thread adds a folder while the main thread removes another."""
        self._at_once = 2

    def load(self, mini_batch: MiniBatch) -> list[str]:
        """Return local paths; a file that has changed is an `InputChanged`."""
        self._compare(mini_batch)
        paths, sizes, versions = mini_batch.piece
        for index in list(self._folders)[: 1 - self._at_once]:  # what was dropped before it ran
            self._remove(index)
        self._remove(mini_batch.index)
        if not any(map(is_url, paths)):
            return list(paths)
        folder = tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".input-")
        self._folders[mini_batch.index] = folder
        files = [InputFile(*one, "") for one in zip(paths, sizes, versions, strict=True)]
        targets = [
            str(Path(folder.name, str(number), file.name)) if is_url(file.path) else file.path
            for number, file in enumerate(files)
        ]
        try:
            self._fetch(
                Fetched(file, *open_store(file.path), target)
                for file, target in zip(files, targets, strict=True)
                if is_url(file.path)
            )
        except BaseException:
            self._remove(mini_batch.index)
            raise
        return targets

    def has_room(self, mini_batch: MiniBatch) -> bool:
        """Say whether the disk holds these files twice over, so that a running script has room."""
        paths, sizes, _ = mini_batch.piece
        needed = sum(size or 0 for path, size in zip(paths, sizes, strict=True) if is_url(path))
        try:
            return needed == 0 or 2 * needed <= shutil.disk_usage(Path.cwd()).free
        except OSError:  # to load it says the same, as an error of the mini-batch
            return True

    def expect(self, at_once: int) -> None:
        """Be ready for so many mini-batches at a time."""
        self._at_once = max(2, at_once)

    def check(self, mini_batch: MiniBatch) -> None:
        """Remove what was fetched, and compare other files with the plan."""
        self._remove(mini_batch.index)
        self._compare(mini_batch)

    def close(self) -> None:
        """Remove what was fetched."""
        for index in list(self._folders):
            self._remove(index)

    def _compare(self, mini_batch: MiniBatch) -> None:
        """Compare the files, except fetched ones, with the plan; a missing file has not changed."""
        for path, size, version in zip(*mini_batch.piece, strict=True):
            if not (is_as_planned(path, size, version) or is_url(path)):
                refuse_changed_at(InputFile(path, size, version, ""))

    def _remove(self, index: int) -> None:
        folder = self._folders.pop(index, None)
        if folder is not None:
            folder.cleanup()

    def _fetch(self, files: Iterable[Fetched]) -> None:
        """Fetch files, those of one store at the same time where it takes several calls."""
        for filesystem, of_one_store in groupby(files, lambda one: one.filesystem):
            together = list(of_one_store)
            for one in together:
                Path(one.target).parent.mkdir()
            if takes_several(filesystem, "get_file"):
                get = filesystem._get_file  # noqa: SLF001 - fsspec's name of what its loop calls
                calls = [partial(get, one.place, one.target) for one in together]
                _refuse_failed(together, at_once(filesystem, calls, self._requests))
            else:
                for one in together:
                    _refuse_failed([one], [_fetched_alone(one)])


def _fetched_alone(one: Fetched) -> Exception | None:
    """Fetch a file, and return the error of its store."""
    try:
        one.filesystem.get_file(one.place, one.target)
    except Exception as error:  # noqa: BLE001 - each store has errors of its own
        return error
    return None


def _refuse_failed(files: list[Fetched], results: Sequence[Any]) -> None:
    """Raise the first error of files that were fetched; compare the sizes of the others.

    A change of the file explains an error. A cancelled call is one that another error has stopped.
    """
    errors = [(file, one) for (file, *_), one in zip(files, results, strict=True)]
    errors = [(file, one) for file, one in errors if isinstance(one, BaseException)]
    for file, error in sorted(errors, key=lambda one: not isinstance(one[1], Exception))[:1]:
        if isinstance(error, FileNotFoundError):
            msg = f"{file.path} has gone since the job began."
            raise LoadError(msg) from error
        refuse_changed_after_error(file, None)
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            raise error
        told = OSError(f"{file.path} cannot be fetched: {type(error).__name__}: {error}")
        told.errno = getattr(error, "errno", None)
        raise told from error
    for file, _, _, target in files:
        if file.size_bytes not in (None, Path(target).stat().st_size):
            refuse_changed_after_error(file, None)


def identity_of(files: Sequence[InputFile]) -> str:
    """Return the identity of a mini-batch: that of its one file, or a digest of several."""
    if len(files) == 1:
        return files[0].identity
    whole = "\n".join([file.identity for file in files])
    return hashlib.blake2b(whole.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _label(files: list[InputFile]) -> str:
    first = files[0].name
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"
