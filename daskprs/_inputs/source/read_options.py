"""The checked options for reading and cutting an input; every source understands them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from daskprs._inputs.source.sizes import Size, size_of_table
from daskprs._system.store_calls import STORE_REQUESTS
from daskprs.errors import InputError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Partitions(NamedTuple):
    """The wanted partitions of an input, by their numbers from 0."""

    wanted: tuple[int, ...]
    size_bytes: int
    """Bytes of a partition of text. A Parquet row group is one; so is a whole stream."""

    def check(self, count: int) -> None:
        """Reject a number without a partition; the error gives the known numbers."""
        beyond = [number for number in self.wanted if number >= count]
        if beyond:
            known = f"0 to {count - 1}" if count else "none"
            msg = f"select_partitions: partition {beyond[0]} does not exist; there are {known}."
            raise InputError(msg)

    def ranges(self, size: int, first: int) -> list[tuple[int, int]]:
        """Return the wanted byte ranges of a file whose partitions are numbered from `first`."""
        inside = range(first, first + self.count(size))
        starts = [(number - first) * self.size_bytes for number in self.wanted if number in inside]
        return [(start, min(start + self.size_bytes, size)) for start in starts]

    def count(self, size: int | None) -> int:
        """Return the number of partitions of a text file; the size of a stream is None."""
        return 1 if size is None else -(-size // self.size_bytes)


BatchFormat = Literal["pandas", "pyarrow", "polars", "numpy"]
InputType = Literal["auto", "files", "table"]
Header = Literal[
    "no_header", "from_first_file", "all_files_different_headers", "all_files_same_headers"
]

DEFAULT_BYTES = 1 << 20
KEYED_BYTES = 16 << 20
"""Large, since each load has a price; a piece of a table that is dealt out by key is larger."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Names and defaults are those of `daskprs.parallel_run`."""

    input_type: InputType = "auto"
    mini_batch_size: float | str | None = None
    """Bytes or rows of tables (None: 1 MB), files for file input (None: 10): see `sizes`. With
    `mini_batch_cost`, the largest sum of costs."""
    mini_batch_cost: str | Callable[..., Any] | None = None
    """The column of costs, or the function that answers them."""
    partition_keys: tuple[str, ...] = ()
    partition_format: str | None = None
    columns: tuple[str, ...] | None = None
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] | None = None
    """Types by column of the frames that Delayed objects and futures give."""
    include_path_column: bool = False
    delimiter: str | None = None
    """None: a comma, or a tab for ``.tsv``."""
    header: Header | None = None
    """None: ``all_files_same_headers``."""
    encoding: str = "utf-8"
    support_multi_line: bool = True
    csv_options: Mapping[str, Any] = field(default_factory=dict)

    # Options of `daskprs.parallel_run` stand above this line; the job sets what follows.
    batch_format: BatchFormat = "pandas"
    """The form of the argument of `run`, which decides the types of the rows that are read."""
    store_requests: int = STORE_REQUESTS
    """Most files that an agent fetches from a store at the same time, and most folders that are
    listed there at the same time."""
    keep_labels: bool = False
    """Whether the index of a frame is kept, for `to_pandas`."""
    path_aside: bool = False
    """Whether rows of files have a column of paths, which `run` does not get."""

    # Only plugins set these, for files that another file describes.
    path_values: Literal["typed", "text"] = "typed"
    """Type of path values; as text, they are only those that a format names."""
    as_written: frozenset[str] = frozenset()
    """Columns of delimited text whose cells are kept as they are written."""
    infer_types: bool = True
    """Whether the types of delimited text come from samples; else all is text."""
    empty_as_string: bool = False
    """Whether no cell of a column of text is null."""
    drop_invalid_lines: bool = False
    """Whether lines that are not JSON are left out."""
    partitions: Partitions | None = None

    @property
    def as_arrow(self) -> bool:
        """Whether rows keep the types of Arrow; else they have those of pandas."""
        return self.batch_format in ("pyarrow", "polars")

    @property
    def size(self) -> Size:
        """How much of a table is loaded at a time: a mini-batch, unless keys or costs cut it."""
        if self.mini_batch_size is None or self.mini_batch_cost is not None:
            return Size(KEYED_BYTES if self.partition_keys else DEFAULT_BYTES)
        return size_of_table(self.mini_batch_size)


_CELLS = ("delimiter", "csv_options")
_DELIMITED = (*_CELLS, "header", "support_multi_line")
_TEXT = (*_DELIMITED, "dtypes", "encoding")
_WRITTEN = (*_DELIMITED, "encoding")
"""Options that only text has."""
BINARY = (*_WRITTEN, "meta")
"""Options that do not apply to files with types of their own."""
_TABLE = ("columns", "include_path_column", "meta")
_COST = ("mini_batch_cost",)
_OBJECTS = (*_COST, *_TEXT, *_TABLE, "partition_format", "partition_keys", "batch_format")
UNFIT: Mapping[str, tuple[str, ...]] = {
    "frame": (*_WRITTEN, "partition_format", "include_path_column", "meta"),
    "bag": (*_COST, *_TEXT, *_TABLE, "batch_format"),
    "array": _OBJECTS,
    "objects": _OBJECTS,
    "files": (*_COST, *_TEXT, *_TABLE, "batch_format"),
    "parquet": BINARY,
    "json_lines": (*_DELIMITED, "meta"),
    "delimited": ("meta",),
}
_CALLED = {
    "frame": "a frame, which is a table with types of its own",
    "bag": "a Bag of paths",
    "array": "an array, whose blocks `run` gets as NumPy arrays",
    "objects": "a collection of objects, which `run` gets as they are",
    "files": "lists of files",
    "parquet": "Parquet, which has types of its own",
    "json_lines": "JSON lines",
    "delimited": "delimited text, whose columns `dtypes` gives types",
}


def refuse_options(reading: ReadOptions, unfit: Iterable[str], called: str) -> None:
    """Reject options that do not apply to an input, which the message calls so."""
    untouched = ReadOptions()
    for option in unfit:
        if getattr(reading, option) != getattr(untouched, option):
            raise OptionError(Option(option, getattr(reading, option)), f": not for {called}.")


def check_options(reading: ReadOptions, kind: str) -> None:
    """Reject options that do not apply to a kind of input."""
    refuse_options(reading, UNFIT[kind], _CALLED[kind])
    if kind == "frame" and reading.input_type == "files":
        raise OptionError(Option("input_type", "files"), ": a frame is a table.")
    if kind in ("array", "objects") and reading.input_type != "auto":
        given = Option("input_type", reading.input_type)
        raise OptionError(given, f": not for {_CALLED[kind]}.")
