"""The two protocols that stand between data and work.

A *source* lives in the driver: it knows the input and cuts it lazily. Its *reader* travels
to the agents: it loads one mini-batch at a time, though not always on the same thread, and may
keep what the next ones need (an open file, a decoded row group).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from daskprs._core.mini_batch import MiniBatch, Where
    from daskprs._inputs.source.input_file import InputFile

Unit = Literal["row", "file", "item"]


class Reader(Protocol):
    """Loads mini-batches in an agent; picklable before its first use."""

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame | pa.Table | list[str]:
        """Return paths or rows for `run`; an error that no retry can repair is a `LoadError`.

        A file that differs from what was found, before or after it is read, is an `InputChanged`.
        """
        ...

    def close(self) -> None:
        """Close open files."""
        ...


@runtime_checkable
class PathsReader(Reader, Protocol):
    """A reader that gives paths: `run` reads the files by itself."""

    def has_room(self, mini_batch: MiniBatch) -> bool:
        """Say whether the disk has room to load a mini-batch while another one runs."""
        ...

    def expect(self, at_once: int) -> None:
        """Be ready for so many mini-batches at a time that are loaded, and not checked yet."""
        ...

    def check(self, mini_batch: MiniBatch) -> None:
        """Compare the files with the plan after `run`; a change is an `InputChanged`.

        Files that were fetched for the mini-batch are removed.
        """
        ...


class TableReader(Reader, Protocol):
    """A reader of tabular input."""

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return the rows as a frame, with an index from 0 and the types of the whole input.

        A reader of data that are Arrow gives an Arrow table if the source was opened for that.
        """
        ...


class InputWork(Protocol):
    """What the driver of a job does for a source that asks for it.

    Most sources prepare themselves; three kinds need the job's cluster.
    """

    scratch: Path
    """The folder for what agents will read."""

    def costs(self, blocks: Any) -> Iterable[Any]:
        """Return what the rows of each block cost, by the function of the script."""
        ...

    def bring_together(self, source: Any) -> None:
        """Bring the rows of each key together, for a source of keys that are columns."""
        ...

    def follow(self, source: Any) -> None:
        """Take the plan of a collection, whose partitions become known while the job runs."""
        ...


class Source(Protocol):
    """Cuts an input into mini-batches.

    What is written out here fits an input of rows whose data lies in files already.
    """

    unit: Unit = "row"
    numbers_rows: bool = False
    """Whether the mini-batches hold consecutive items, whose numbers in the input are known."""
    how_far: str = ""
    """Progress of `prepare`, in a few words for people; read by another thread."""
    needed_bytes: int = 0
    """About how many bytes `prepare` writes to the job folder; 0: unknown, or none."""

    def prepare(self, scratch: Path) -> None:
        """Write to the folder `scratch` the data that agents will read (a caller's frame, say).

        It is called once, after every check and before `mini_batches` and `reader`. `scratch` is
        inside the job folder and stays for a resume; a source writes anew what it finds there from
        an earlier run, whole or not at all.
        """
        del scratch

    def begin(self, work: InputWork) -> None:
        """Prepare the input of a job, whose cluster does what belongs where the data is."""
        self.prepare(work.scratch)

    def let_go(self) -> None:
        """Let go of the data of the caller: the job is over, and nothing more is asked."""
        return  # a method without a statement would be abstract

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the plan from the start, each time the same; cheap, and never a list."""
        ...

    def count(self) -> int | None:
        """Return the number of mini-batches where it is known without making them."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return, as JSON values, what the plan and its contents depend on."""
        ...

    def files(self) -> Iterable[InputFile]:
        """Return the files as they were found; none for data that cannot change during a job."""
        return ()

    def reader(self) -> Reader:
        """Return the reader for the agents."""
        ...

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return where the items of a mini-batch lie."""
        ...


class OpenedSource(NamedTuple):
    """A source in the place of an input: a job folder has kept it."""

    source: Source


class TableSource(Source, Protocol):
    """Cuts a table."""

    object_types: Mapping[str, pa.DataType] = {}
    """Arrow types of the columns that are Python objects in a frame, where they are known."""
    keeps_nan: bool = False
    """Whether a NaN in its frames is a value that the input holds, and not a null."""

    def reader(self) -> TableReader:
        """Return the reader for the agents."""
        ...

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths, not from the files themselves."""
        return []

    def usual_rows(self) -> float | None:
        """Return about how many rows a mini-batch has (after `prepare`), where that is known."""
        return None

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return the values of these columns for a mini-batch."""
        del mini_batch
        return {}

    def meta(self) -> pd.DataFrame:
        """Return the table without rows: its columns and their types."""
        ...
