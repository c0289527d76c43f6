"""Mini-batches by keys: one for each combination of values that exists, with all its rows."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._inputs.keys.rows import joined
from daskprs._inputs.keys.shuffle import file_of, shuffle
from daskprs._inputs.source.pickled_rows import PickledReader
from daskprs._inputs.source.pieces import Uncomputed
from daskprs._inputs.source.source import TableSource
from daskprs._system.regular_files import owner_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from daskprs._inputs.keys.gathering import Group
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.pickled_rows import Place
    from daskprs._inputs.source.source import InputWork, TableReader


Shuffle: TypeAlias = (
    "Callable[[TableSource, Sequence[str], Path, Callable[[str], None]], list[Group]]"
)
"""Brings the rows of each key of a prepared table together, as `shuffle` does."""
Key = tuple[tuple[str, Any], ...]
"""Names and values of the keys of a mini-batch."""
KEYED = "keyed."
"""The beginning of the names of the files with the rows of keys."""


def by_keys(source: TableSource, keys: Sequence[str]) -> KeySource:
    """Return a table cut by keys: without a shuffle where paths carry them all."""
    if set(keys) <= set(source.path_names):
        return FolderKeySource(source, keys)
    return ShuffledKeySource(source, keys)


class KeySource(TableSource):
    """A table cut by keys: how it is cut is up to the subclass."""

    def __init__(self, source: TableSource, keys: Sequence[str]) -> None:
        self._source = source
        self._keys = tuple(keys)
        self.object_types = source.object_types
        self.keeps_nan = source.keeps_nan

    def prepare(self, scratch: Path) -> None:
        """Prepare the table."""
        self._source.prepare(scratch)

    def let_go(self) -> None:
        """Let go of the data of the table."""
        self._source.let_go()

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan."""
        return {"keys": list(self._keys), "table": self._source.fingerprint()}

    def files(self) -> Iterable[InputFile]:
        """Return the files of the table as they were found."""
        return self._source.files()

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self._source.meta()

    def _key_of(self, values: Sequence[Any]) -> Key:
        return tuple(zip(self._keys, values, strict=True))


def _label(key: Key) -> str:
    return ", ".join(f"{name}={value}" for name, value in key)


class FolderKeySource(KeySource):
    """Keys that paths carry: the mini-batches of the table, put together by folder."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield one mini-batch for each combination, in order of first appearance."""
        groups: dict[tuple[Any, ...], list[MiniBatch]] = {}
        for part in self._source.mini_batches():
            carried = self._source.path_values(part)
            groups.setdefault(tuple(carried[key] for key in self._keys), []).append(part)
        for index, (values, parts) in enumerate(groups.items()):
            key = self._key_of(values)
            known = [part.items for part in parts if part.items is not None]
            yield MiniBatch(
                index=index,
                piece=tuple(parts),
                identity=f"{values!r}|" + "|".join(part.identity for part in parts),
                items=sum(known) if len(known) == len(parts) else None,
                size_bytes=sum(part.size_bytes or 0 for part in parts),
                partition_key=key,
                label=_label(key),
            )

    def count(self) -> int | None:
        """Return None: combinations are counted as they are met."""
        return None

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the files that have rows of the combination."""
        found = (path for part in mini_batch.piece for path in self._source.where(part).paths)
        return Where(paths=tuple(dict.fromkeys(found)))

    def reader(self) -> JoiningReader:
        """Return the reader for the agents."""
        return JoiningReader(self._source.reader())


class JoiningReader:
    """Loads several mini-batches of a table as one."""

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return all rows of a combination, in input order."""
        return joined([self._reader.load(part) for part in mini_batch.piece])

    def close(self) -> None:
        """Close the reader of the table."""
        self._reader.close()


class ShuffledKeySource(KeySource):
    """Keys that are columns: rows are brought together in files, with bounded memory."""

    def __init__(self, source: TableSource, keys: Sequence[str]) -> None:
        super().__init__(source, keys)
        self.workers: Mapping[int, str] = {}
        """The workers that hold parts, by part; empty where the driver's folder has all."""
        self._groups: list[Group] = []
        self._files = Path()

    def prepare(self, scratch: Path) -> None:
        """Prepare the table, and bring its rows together in this process."""
        super().prepare(scratch)
        self.bring_together(scratch, shuffle)

    def begin(self, work: InputWork) -> None:
        """Have the rows of each key brought together where the data is."""
        work.bring_together(self)

    @property
    def needed_bytes(self) -> int:  # type: ignore[override]
        """Bytes of the table, and of the same rows brought together."""
        of_table = 2 * self._source.needed_bytes
        return of_table or sum(file.size_bytes or 0 for file in self._source.files())

    @staticmethod
    def drop_earlier(scratch: Path) -> None:
        """Remove what earlier drivers of the job have brought together: each makes it anew."""
        for file in scratch.glob(f"{KEYED}*"):
            file.unlink(missing_ok=True)

    def bring_together(self, scratch: Path, work: Shuffle) -> None:
        """Let `work` bring the rows together.

        The names of the files are new each time. A driver that was stopped and has lost its locks
        may still have agents at work while another driver does this. With as many rows, but another
        number of parts, their places would lead them to rows of other keys.
        """
        self._files = scratch / f"{KEYED}{secrets.token_hex(8)}"
        self._groups = work(self._source, self._keys, self._files, self._report)

    def _report(self, how_far: str) -> None:
        self.how_far = how_far

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield one mini-batch for each combination, in order of first appearance."""
        for index, group in enumerate(self._groups):
            key = self._key_of(group.key)
            yield MiniBatch(
                index=index,
                piece=KeyPiece(group.part, group.offset, group.length),
                identity=f"{group.key!r}|{group.rows}|{group.checksum}",
                items=group.rows,
                size_bytes=group.length,
                partition_key=key,
                row_lower_bound=group.first_row,
                label=_label(key),
                worker=self.workers.get(group.part, ""),
            )

    def count(self) -> int:
        """Return how many combinations there are (after `prepare`)."""
        return len(self._groups)

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return an empty place: the key identifies the mini-batch."""
        del mini_batch
        return Where()

    def reader(self) -> KeyReader:
        """Return the reader for the agents."""
        return KeyReader(self._files, owner_in(self._files.parent))


class KeyPiece(NamedTuple):
    """The rows of a key, in the file of their part."""

    partition: int
    """The number of the part, by which a lease finds it where it stays with its worker."""
    offset: int
    length: int
    path: str = ""
    """The file, where its worker has it; empty: it is in the folder of the driver's data."""


class KeyReader(PickledReader):
    """Loads the rows of keys that a driver or its workers have brought together."""

    def __init__(self, files: Path, owner: int | None) -> None:
        super().__init__(files.parent, owner)
        self._files = files

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return the rows of a key; those of a part that is lost for good are a `LoadError`."""
        if isinstance(mini_batch.piece, Uncomputed):
            raise mini_batch.piece.error()
        return super().load(mini_batch._replace(piece=self._place(mini_batch.piece)))

    def pack(self, piece: KeyPiece) -> bytes:  # type: ignore[override]
        """Return the pickle of the rows of a key."""
        return super().pack(self._place(piece))

    def _place(self, piece: KeyPiece) -> Place:
        name = piece.path or file_of(self._files, piece.partition).name
        return name, piece.offset, piece.length
