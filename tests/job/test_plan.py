"""`plan`: mini-batches before anything runs, as a Dask collection and back."""

from __future__ import annotations

import gzip
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import daskprs
from daskprs import OptionError
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame({"number": range(50), "text": [f"t{number}" for number in range(50)]})


def test_a_plan_shows_what_would_be_run(tmp_path: Path) -> None:
    """Count, rows, sizes, and a line for each of the first mini-batches."""
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    shown = daskprs.plan(tmp_path / "table.csv", mini_batch_size=100)
    size = (tmp_path / "table.csv").stat().st_size
    assert len(shown) == -(-size // 100)
    assert repr(shown).startswith(f"<daskprs plan: {len(shown)} mini-batches, {size} bytes")
    assert "table.csv, bytes 0-100" in repr(shown)
    table = shown.to_pandas()
    assert list(table.columns) == ["mini_batch", "label", "items", "size_bytes"]
    assert table["size_bytes"].sum() == size
    assert table["items"].isna().all()  # text is not read for a plan


@pytest.mark.parametrize("form", ["frame", "csv", "csv.gz", "jsonl", "parquet", "object", "arrow"])
def test_a_table_is_cut_by_rows(form: str, tmp_path: Path) -> None:
    """Each mini-batch but the last has so many, whatever their bytes, and the plan knows them."""
    path, data = tmp_path / f"table.{form}", FRAME
    match form:
        case "csv" | "csv.gz":
            blank_lines = FRAME.to_csv(index=False).replace("t7\n", "t7\n  \n\n")
            opened = gzip.open if form == "csv.gz" else open
            with opened(path, "wt") as file:
                file.write(blank_lines)
        case "jsonl":
            path.write_text(FRAME.to_json(orient="records", lines=True).replace("\n", "\n \n"))
        case "parquet":
            FRAME.to_parquet(path)
        case "object":
            data = FRAME.assign(text=[{"n"} for _ in range(50)])
        case "arrow":
            data = pa.Table.from_pandas(FRAME).to_reader(max_chunksize=7)
    shown = daskprs.plan(path if path.exists() else data, mini_batch_size="20 Rows")
    assert [one.items for one in shown] == [20, 20, 10]
    assert [one.row_lower_bound for one in shown] == [0, 20, 40]
    assert len(shown) == 3
    rows = shown.to_dask_dataframe().compute(scheduler="sync")
    assert rows["number"].tolist() == [*range(50)]


def test_rows_of_text_have_numbers_where_it_is_cut_by_rows(tmp_path: Path) -> None:
    """The scan counts them: `run` and the output get the number of each row."""
    for name, part in (("a", FRAME[:25]), ("b", FRAME[25:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    result = daskprs.parallel_run(
        str(tmp_path / "*.csv"),
        lambda rows, context: rows.assign(first=context.global_row_index_lower_bound),
        mini_batch_size="10 rows",
        include_columns=["row_number"],
        start_method="inline",
        progress=False,
        job_dir=tmp_path / "job",
    ).to_pandas()
    assert result["row_number"].tolist() == [*range(50)]
    assert sorted(set(result["first"])) == [0, 10, 20, 25, 35, 45]


@pytest.mark.parametrize(
    ("given", "size", "said"),
    [
        ("table", "20 files", "for a table it is a number of bytes"),
        ("table", "20 items", "or of rows, such as"),
        ("files", "20 rows", 'such as 10 or "10 files"'),
        ("files", "1 KB", 'such as 10 or "10 files"'),
        ("bag", "20 files", 'such as 10 or "10 items"'),
    ],
)
def test_a_size_of_another_kind_of_input_is_refused(
    given: str, size: str, said: str, tmp_path: Path
) -> None:
    """The message has the spelling that this kind takes."""
    (tmp_path / "a.bin").touch()
    bag = db.from_sequence(range(3))
    data = {"table": FRAME, "files": tmp_path, "bag": bag}[given]
    with pytest.raises(OptionError, match=said):
        daskprs.plan(data, mini_batch_size=size)


def test_partitions_and_blocks_are_cut_by_rows_and_items() -> None:
    """A partition is cut, and not joined to the next."""
    frame = dd.from_pandas(FRAME, npartitions=2)
    block = da.from_array(np.arange(50), chunks=25)
    bag = db.from_sequence(range(50), npartitions=2)
    for data, size in ((frame, "20 rows"), (block, "20 rows"), (bag, "20 items")):
        shown = daskprs.plan(data, mini_batch_size=size)
        assert [one.items for one in shown] == [20, 5, 20, 5]


@pytest.mark.parametrize(
    ("size", "note"),
    [
        (100, "mini_batch_size=100 is a number of bytes, about {} of this table. Write '100 rows'"),
        (1, "mini_batch_size=1 is a number of bytes, {} of this table. Write '1 row' for"),
        ("100 B", ""),
        ("10 rows", ""),
        (1024, ""),
    ],
)
@pytest.mark.parametrize("form", mostly_long(["frame", "csv"], suite=["csv"]))
def test_a_size_that_may_be_meant_as_rows_gets_a_note(
    size: int | str, note: str, form: str, tmp_path: Path
) -> None:
    """It says how many rows that is, with both spellings."""
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    data = FRAME if form == "frame" else tmp_path / "table.csv"
    daskprs.parallel_run(
        data,
        len_of_rows,
        mini_batch_size=size,
        start_method="inline",
        progress=False,
        job_dir=tmp_path / "job",
    )
    log = (tmp_path / "job" / "logs" / "sys" / "master_role.txt").read_text()
    rows = {("frame", 100): "5 rows", ("csv", 100): "15 rows", ("frame", 1): "about 1 row"}
    told = note.format(rows.get((form, int(size)), "less than one row")) if note else ""
    assert told in log
    assert ("is a number of bytes" in log) == bool(note)


def len_of_rows(rows: pd.DataFrame) -> list[int]:
    """Return the number of rows."""
    return [len(rows)]


def test_a_table_goes_to_a_dask_dataframe_and_back(tmp_path: Path) -> None:
    """One partition, one mini-batch; then one mini-batch, one partition."""
    FRAME.to_parquet(tmp_path / "table.parquet", row_group_size=20)
    first = daskprs.plan(tmp_path / "table.parquet", mini_batch_size=300)
    collection = first.to_dask_dataframe()
    assert collection.npartitions == len(first)
    pd.testing.assert_frame_equal(collection.compute().reset_index(drop=True), FRAME)
    back = daskprs.plan(collection)
    assert [one.items for one in back] == [one.items for one in first]
    result = daskprs.parallel_run(
        collection, lambda mini_batch: mini_batch, job_dir=tmp_path / "job", progress=False
    )
    assert result.mini_batches.total == len(first)
    pd.testing.assert_frame_equal(result.to_pandas(), collection.compute())


def test_threads_load_mini_batches_at_once(tmp_path: Path) -> None:
    """Dask's default without a client: each thread has open files of its own."""
    table = pd.DataFrame({"n": range(20_000), "text": "a" * 20})
    table.to_csv(tmp_path / "in.csv", index=False)
    collection = daskprs.plan(tmp_path / "in.csv", mini_batch_size="2 KB").to_dask_dataframe()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            computed = collection.compute(scheduler="threads", pool=pool)
            pd.testing.assert_frame_equal(computed.reset_index(drop=True), table)


def test_files_go_to_a_bag_and_back(tmp_path: Path) -> None:
    """One partition of paths, one mini-batch."""
    for number in range(7):
        (tmp_path / f"{number}.bin").write_bytes(b"x" * number)
    first = daskprs.plan(tmp_path, mini_batch_size=3)
    bag = first.to_bag()
    assert bag.npartitions == 3
    assert bag.compute(scheduler="sync") == [str(tmp_path / f"{number}.bin") for number in range(7)]
    back = daskprs.plan(bag)
    assert [one.piece for one in back] == [one.piece for one in first]


def test_a_key_may_have_the_name_of_what_a_plan_shows() -> None:
    """Its values stand beside, not in the place of it."""
    frame = pd.DataFrame({"label": ["cat", "dog", "cat"], "items": ["a", "b", "a"]})
    shown = daskprs.plan(frame, partition_keys=["label", "items"]).to_pandas()
    assert list(shown["items"]) == [2, 1]
    assert list(shown["key label"]) == ["cat", "dog"]
    assert list(shown["key items"]) == ["a", "b"]


def test_an_empty_table_has_no_mini_batches() -> None:
    """It is a plan nevertheless, and an empty collection."""
    shown = daskprs.plan(FRAME.iloc[:0])
    assert len(shown) == 0
    pd.testing.assert_frame_equal(shown.to_dask_dataframe().compute(), FRAME.iloc[:0])


def test_a_plan_of_files_is_no_dataframe(tmp_path: Path) -> None:
    """The message says what it is."""
    (tmp_path / "a.bin").touch()
    with pytest.raises(TypeError, match="use to_bag"):
        daskprs.plan(tmp_path / "a.bin").to_dask_dataframe()


SHUFFLE = """
import resource, sys
from pathlib import Path
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions

source = open_source(sys.argv[1], ReadOptions(partition_keys=("key",)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source.prepare(Path(sys.argv[2]))
rows = sum(one.items for one in source.mini_batches())
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.long
def test_rows_are_brought_together_with_memory_for_a_part_of_them(tmp_path: Path) -> None:
    """A table of a gigabyte takes less than half of that."""
    generator = np.random.default_rng(0)
    rows = 4_000_000
    for number in range(4):
        frame = pd.DataFrame(
            generator.random((rows, 8)), columns=[f"c{place}" for place in range(8)]
        )
        frame["key"] = generator.integers(0, 5_000, rows)
        frame.to_parquet(tmp_path / f"{number}.parquet", row_group_size=200_000)
    (tmp_path / "scratch").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SHUFFLE, str(tmp_path / "*.parquet"), str(tmp_path / "scratch")],
        capture_output=True,
        text=True,
        check=True,
    )
    count, grown_kb = map(int, done.stdout.split())
    assert count == 4 * rows
    assert grown_kb * 1024 < 500 << 20
