"""Batch formats in whole jobs: what agents are given, what comes back, and a resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import daskprs
import tests.support.polars_threads  # noqa: F401
from daskprs._inputs.frames.inline_data import FarReader, carried
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import BatchFormat, ReadOptions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

FORMATS = [
    pytest.param(one, marks=pytest.mark.processes if one == "polars" else [])
    for one in get_args(BatchFormat)
]
SCRIPT = """
import {batch_format}


def run(rows):
    kind = {{"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}}
    assert type(rows).__name__ == kind.get("{batch_format}", "dict")
    assert type(rows).__module__.split(".")[0] in ("{batch_format}", "builtins")
    return rows
"""


@pytest.mark.parametrize("batch_format", FORMATS)
def test_what_run_gives_back_is_written_alike(tmp_path: Path, batch_format: BatchFormat) -> None:
    """Text cut into pieces, by keys, in agents; polars is the one with threads of its own."""
    (tmp_path / "x.csv").write_text("town,n,flag\n" + "Lima,1,True\nRome,2,False\n" * 50)
    (tmp_path / "score.py").write_text(SCRIPT.format(batch_format=batch_format))
    result = daskprs.parallel_run(
        str(tmp_path / "x.csv"),
        tmp_path / "score.py",
        batch_format=batch_format,
        partition_keys="town",
        output_dir=tmp_path / "out",
        job_dir=tmp_path / "job",
        process_count_per_node=2,
    )
    assert result.output_file is not None
    assert result.output_file.read_text() == "Lima 1 True\n" * 50 + "Rome 2 False\n" * 50


def test_a_lazy_frame_is_computed_once_and_not_by_run(tmp_path: Path) -> None:
    """Its functions see no row that is not in the input."""
    seen = tmp_path / "seen"

    def note(frame: pl.DataFrame) -> pl.DataFrame:
        with seen.open("a") as file:
            file.writelines(f"{n}\n" for n in frame["n"])
        return frame

    lazy = pl.LazyFrame({"n": range(100)}).map_batches(note).filter(pl.col("n") % 2 == 0)
    result = daskprs.parallel_run(
        lazy, lambda rows: rows * 10, batch_format="polars", job_dir=tmp_path / "job"
    )
    assert list(result.to_pandas()["n"]) == list(range(0, 1000, 20))
    assert sorted(map(int, seen.read_text().split())) == list(range(100))


def test_a_resume_over_a_stream_runs_what_is_left(tmp_path: Path) -> None:
    """A new stream of the same rows is the same input, however it is cut."""
    calls = tmp_path / "calls"

    def stream(size: int) -> pa.RecordBatchReader:
        table = pa.table({"n": list(range(1000))})
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(size))

    def run(rows: pa.Table) -> Any:
        first = rows["n"][0].as_py()
        with calls.open("a") as file:
            file.write(f"{first}\n")
        if first == 500 and not (tmp_path / "repaired").exists():
            msg = "broken"
            raise ValueError(msg)
        return rows

    options: dict[str, Any] = {
        "batch_format": "pyarrow",
        "mini_batch_size": 800,
        "job_dir": tmp_path / "job",
        "run_max_try": 1,
        "allowed_failed_count": 1,
    }
    daskprs.parallel_run(stream(7), run, **options)
    calls.unlink()
    (tmp_path / "repaired").touch()
    result = daskprs.parallel_run(stream(300), run, resume=True, **options)
    assert list(result.to_pandas()["n"]) == list(range(1000))
    assert calls.read_text() == "500\n"


def test_nodes_that_get_their_rows_sent_get_the_same(tmp_path: Path) -> None:
    """What a descriptor carries, of a stream and of keys, is what lies in the job folder."""
    for place, keys in enumerate([(), ("k",)]):
        data = pa.table({"k": [1, None, 1], "x": [[1], None, []]}).to_reader()
        source = open_source(data, ReadOptions(batch_format="polars", partition_keys=keys))
        scratch = tmp_path / str(place)
        scratch.mkdir()
        source.prepare(scratch)
        reader: Any = source.reader()
        for mini_batch in source.mini_batches():
            sent = carried(mini_batch, reader)
            assert FarReader(reader).load(sent) == reader.load(mini_batch)


def test_a_failed_conversion_fails_its_mini_batch(tmp_path: Path) -> None:
    """With the column and the next step; the other mini-batches are done."""
    rows = [{"a": 1, "b": {"c": 1}}] * 30 + [{"a": 2, "b": "text"}, {"a": 3, "b": [1]}]
    pd.DataFrame(rows).to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    with pytest.raises(daskprs.ParallelRunFailed) as failed:
        daskprs.parallel_run(
            str(tmp_path / "x.jsonl"),
            lambda rows: rows.select(["a"]),
            batch_format="pyarrow",
            mini_batch_size=200,
            job_dir=tmp_path / "job",
        )
    said = str(failed.value)
    assert "the column 'b' holds values that no type of Arrow holds" in said
    assert "batch_format='pandas'" in said
