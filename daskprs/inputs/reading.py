"""How an input is read and cut: the checked options that every source understands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.inputs.partitions import Partitions

InputType = Literal["auto", "files", "table"]
Header = Literal[
    "no_header", "from_first_file", "all_files_different_headers", "all_files_same_headers"
]


@dataclass(frozen=True, slots=True)
class Reading:
    """Names and defaults are those of `daskprs.parallel_run`."""

    input_type: InputType = "auto"
    mini_batch_size: int | str | None = None
    """Bytes for tables (None: 1 MB), files for file input (None: 10); `sizes` resolves it."""
    partition_keys: tuple[str, ...] = ()
    partition_format: str | None = None
    columns: tuple[str, ...] | None = None
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    include_path_column: bool = False
    delimiter: str | None = None
    """None: a comma, or a tab for ``.tsv``."""
    header: Header | None = None
    """None: ``all_files_same_headers``."""
    encoding: str = "utf-8"
    support_multi_line: bool = True

    keep_labels: bool = False
    """Whether the index of a frame is kept, for `to_pandas`."""

    # What only an MLTable says.
    path_values: Literal["typed", "text"] = "typed"
    """What paths carry. In an MLTable it is text, and nothing but what a format names."""
    as_written: frozenset[str] = frozenset()
    """Columns of delimited text whose cells are kept as they are written."""
    infer_types: bool = True
    """Whether the types of delimited text come from samples; else all is text."""
    empty_as_string: bool = False
    """Whether no cell of a column of text is null."""
    drop_invalid_lines: bool = False
    """Whether lines that are no JSON are left out."""
    partitions: Partitions | None = None
