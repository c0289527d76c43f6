"""An MLTable as an input: its batches, and the files that it names and that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from tests.inputs.test_batch_formats import batches
from tests.inputs.test_file_versions import (
    csv,
    test_a_file_that_changes_is_refused_by_whoever_reads_it,  # noqa: F401 - for this source, too
)

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._inputs.source.source import Source


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Return a source over one file, which an MLTable names."""
    table = tmp_path / "table"
    table.mkdir()
    csv(table / "one.csv")
    (table / "MLTable").write_text(
        "paths:\n  - file: ./one.csv\ntransformations:\n  - read_delimited:\n"
        "      header: all_files_same_headers\n  - take: 1500\n"
    )
    found = open_source(str(table), ReadOptions(mini_batch_size=4000))
    found.prepare(tmp_path)
    return found


def test_rows_of_an_mltable_are_what_its_frames_hold(tmp_path: Path) -> None:
    """Its steps work on frames of pandas, in which integers beside nulls are floats."""
    pq.write_table(pa.table({"a": [1, None], "b": [True, None]}), tmp_path / "x.parquet")
    text = "paths:\n  - file: ./x.parquet\ntransformations:\n  - read_parquet\n"
    (tmp_path / "MLTable").write_text(text)
    (table,) = batches(str(tmp_path), "pyarrow", 1000)
    assert table.to_pydict() == {"a": [1.0, None], "b": [True, None]}
