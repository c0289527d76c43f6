"""The forms of rows that an agent makes, and the spool that it writes them to."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from daskprs._system.seal import NO_KEY, SealKey

OutputFormat = Literal["text", "parquet", "arrow", "jsonl"]


class OutputSpec(NamedTuple):
    """The forms of rows that are kept."""

    text: bool
    """Keep rows for the published output: lines, or Arrow streams for a data set."""
    typed: bool
    """Keep rows with their types for `to_pandas`."""
    header: bool = False
    mixed_columns: bool = False
    """Whether lines of frames with different columns stand in one file, and a warning names them,
    as on Azure's surfaces. Otherwise such frames end the job."""
    separator: str = " "
    tabular: bool = False
    """Whether text is a table whatever `run` returns: elements of lists are the column
    ``result``."""
    format: OutputFormat = "text"
    """The format of the published output: one file of lines, or a data set."""
    partition_by: tuple[str, ...] = ()
    """Columns whose values make folders in a data set."""
    file_size_bytes: int = 256 << 20
    """The size of the rows, as Arrow streams, from which a part file is full."""
    single_file: bool = False
    """Make one file in place of the folder of a data set."""
    schema: str | None = None
    """The schema of what `run` returns, as text; None: what `run` returned says it."""
    unlabelled: int | None = None
    """Number of rows of a pandas input whose labels a data set lacks, if the labels are the numbers
    from 0; −1 if they are others, or not known yet. None if labels are kept, or there are none."""
    errors: bool = False
    """Whether rows of nulls stand for those that have failed, and all have a column `_error`."""
    key: SealKey = NO_KEY
    """The key of the checksums of pickles in typed rows; readers refuse those without a key."""

    def layout(self) -> dict[str, Any]:
        """Return, as JSON values, what all files of a data set have in common."""
        return {
            "format": self.format,
            "partition_by": list(self.partition_by),
            "single_file": self.single_file,
            "schema": self.schema,
        }

    @property
    def is_dataset(self) -> bool:
        """Whether the published output is a data set."""
        return self.text and self.format != "text"


class SpoolSpec(NamedTuple):
    """The spool to which an agent writes rows."""

    name: str
    """The spool's name in the journal, unique among the processes of the job."""
    text: str
    """The file of the text rows, …"""
    typed: str
    """… and that of the typed rows. Either is created with its first byte."""
    synced: bool = False
    """Whether rows must be on the disk before they are reported: a driver on another host sees
    nothing else."""
    from_bytes: int = 0
    """Size in bytes from which results go to the spool; smaller ones travel with their outcomes."""
