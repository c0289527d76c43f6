"""What a job returned, as libraries that read lazily take it from the job folder."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dask.dataframe.dask_expr.io.io import FromMapProjectable
from distributed import Client, LocalCluster

import daskprs
import tests.support.polars_threads  # noqa: F401
from daskprs._job import lazy_rows
from daskprs.errors import ReturnTypeError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

READINGS = pd.DataFrame(
    {
        "n": range(200),
        "town": pd.Categorical(["Lima", "Rome", "Oslo", "Kyiv"] * 50),
        "volts": np.where(np.arange(200) % 7, np.arange(200) / 4, np.nan),
    }
)


def tables(mini_batch: pd.DataFrame) -> pa.Table:
    """Return Arrow, with a null here and there."""
    return pa.table({"n": mini_batch["n"].tolist(), "odd": mini_batch["n"] % 2 == 1})


@pytest.mark.long
@pytest.mark.processes
def test_workers_read_their_part_from_the_job_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums, groups and whole frames, whether a partition has one mini-batch or all of them."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        result = daskprs.parallel_run(
            READINGS, lambda rows: rows, mini_batch_size=1000, job_dir=tmp_path / "job"
        )
        counts = []
        for part_bytes in (1, 64 << 20):
            monkeypatch.setattr(lazy_rows, "PARTITION_BYTES", part_bytes)
            frame = result.to_dask_dataframe()
            check(frame)
            counts.append(frame.npartitions)
        assert counts == [result.mini_batches.total, 1]
        readers = frame.map_partitions(lambda one: one.assign(pid=os.getpid())[["pid"]])
        assert set(readers.compute()["pid"]) <= set(client.run(os.getpid).values())


def check(frame: Any) -> None:
    """Compare a dask DataFrame with the readings."""
    assert frame["volts"].sum().compute() == READINGS["volts"].sum()
    sums, expected = (one.groupby("town", observed=True)["n"].sum() for one in (frame, READINGS))
    assert sums.compute().to_dict() == expected.to_dict()
    whole = frame.compute()
    assert whole["town"].tolist() == READINGS["town"].tolist()
    assert whole["volts"].fillna(-1).tolist() == READINGS["volts"].fillna(-1).tolist()
    assert str(whole["n"].dtype) == "int64"


def test_only_the_columns_that_are_used_are_read(tmp_path: Path) -> None:
    """Also none at all, for the length; the key of a partition says which rows it holds."""
    result = daskprs.parallel_run(READINGS, lambda rows: rows, job_dir=tmp_path / "job")
    frame = result.to_dask_dataframe()
    (source,) = (frame["volts"] + 1).optimize(fuse=False).find_operations(FromMapProjectable)
    assert source.columns == ["volts"]
    assert len(frame) == 200
    assert frame.optimize().__dask_keys__() == result.to_dask_dataframe().optimize().__dask_keys__()


def test_every_reader_gives_the_same_rows(tmp_path: Path) -> None:
    """Arrow tables that run returned keep their types, and polars and Arrow take the result."""
    result: Any = daskprs.parallel_run(
        READINGS, tables, mini_batch_size=1000, job_dir=tmp_path / "job", process_count_per_node=2
    )
    table = result.to_arrow()
    assert table.schema == pa.schema({"n": pa.int64(), "odd": pa.bool_()})
    assert table["n"].to_pylist() == READINGS["n"].tolist()
    assert pa.table(result) == table
    assert pl.DataFrame(result).equals(result.to_polars())
    counted = result.to_polars(lazy=True).filter(pl.col("odd")).select(pl.len()).collect()
    assert counted.item() == 100
    assert pa.concat_tables(result.iter_batches("pyarrow")) == table
    assert sum(map(len, result.iter_batches())) == 200
    ours = result.to_dask_dataframe()
    assert ours.dtypes.astype(str).to_dict() == {"n": "Int64", "odd": "boolean"}
    assert int(ours["odd"].sum().compute()) == 100


KINDS = """
import threading
from dataclasses import dataclass
from enum import Enum

LOCK = threading.Lock()

class Mark(Enum):
    GOOD = 1
    BAD = 2

@dataclass
class Hit:
    row: int
    mark: Mark

    def doubled(self):
        return double(self.row)

def double(row):
    return 2 * row

class Guarded:
    def held(self):
        return LOCK
"""
SCORE = """
import pandas as pd
from kinds import Guarded, Hit, Mark

class Near(Hit):
    pass

def run(rows):
    if "guarded" in rows:
        return [Guarded()]
    hits = [Near(n, Mark.BAD if n % 2 else Mark.GOOD) for n in rows["n"]]
    return pd.DataFrame({"n": rows["n"], "hit": hits}) if len(rows) > 40 else hits
"""


@pytest.mark.parametrize(
    ("rows", "column"), [pytest.param(50, "hit", marks=pytest.mark.processes), (20, "result")]
)
def test_objects_of_the_scripts_classes_come_back_whole(
    tmp_path: Path, rows: int, column: str
) -> None:
    """In the caller and in a later process, which cannot import the script."""
    (tmp_path / "kinds.py").write_text(KINDS)
    (tmp_path / "score.py").write_text(SCORE)
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(100)}),
        tmp_path / "score.py",
        mini_batch_size=8 * rows,
        job_dir=tmp_path / "job",
        progress=False,
    )
    found = result.to_pandas()[column]
    assert [hit.doubled() for hit in found] == [2 * n for n in range(100)]
    assert {type(hit) for hit in found} == {type(found[0])}
    assert [hit.mark.name for hit in found[:2]] == ["GOOD", "BAD"]
    program = (
        "from daskprs._folders.job_folder import JobFolder\n"
        "from daskprs._output.read_rows import read_rows\n"
        f"rows = read_rows(JobFolder({str(tmp_path / 'job')!r}))\n"
        f"print(sum(hit.doubled() for hit in rows[{column!r}]))"
    )
    words = [sys.executable, "-c", program]
    assert subprocess.run(words, capture_output=True, check=True, cwd="/").stdout == b"9900\n"


def test_an_object_whose_class_cannot_travel_is_refused_in_the_first_mini_batch(
    tmp_path: Path,
) -> None:
    """Not when all work is done and the rows are read."""
    (tmp_path / "kinds.py").write_text(KINDS)
    (tmp_path / "score.py").write_text(SCORE)
    with pytest.raises(daskprs.ParallelRunFailed, match=r"class 'Guarded', whose definition") as no:
        daskprs.parallel_run(
            pd.DataFrame({"guarded": range(100)}),
            tmp_path / "score.py",
            process_count_per_node=1,
            mini_batch_size=8,
            job_dir=tmp_path / "job",
            progress=False,
        )
    assert no.value.result.mini_batches.failed < 10
    assert "or write text alone: by output_dir, without output" in str(no.value)


FACTORIES = """
class Made:
    def __init__(self, n, by):
        self.n, self.by = n, by

    def __reduce__(self):
        return made, (self.n, self.by)

def made(n, by):
    return Made(n, by)

def halved(n):
    return half(n)

def half(n):
    return n // 2
"""
SCORE_BESIDE_MAIN = """
from factories import halved, made
from kinds import Hit, Mark

def run(rows):
    return [[Hit(n, Mark.GOOD), Mark.GOOD, made(2 * n, halved), halved] for n in rows["n"]]
"""
MAIN = """
import daskprs, sys
import pandas as pd
{imports}

if __name__ == "__main__":
    result = daskprs.parallel_run(
        pd.DataFrame({{"n": range(20)}}), "{folder}/score.py", mini_batch_size=40,
        job_dir="{folder}/job", progress=False,
    )
    from factories import Made, halved
    from kinds import Hit, Mark

    rows = result.to_pandas()["result"]
    hits, marks, objects, functions = (pd.Series(list(column)) for column in zip(*rows))
    print((marks == Mark.GOOD).sum(), (hits == [Hit(n, Mark.GOOD) for n in range(20)]).sum())
    print(all(isinstance(hit, Hit) for hit in hits), all(type(one) is Made for one in objects))
    print(all(one is halved for one in functions), all(one.by is halved for one in objects))
"""
READER = """
import sys
from daskprs._folders.job_folder import JobFolder
from daskprs._output.read_rows import read_rows

rows = read_rows(JobFolder({job!r}))["result"]
print(sum(made.by(made.n) for _, _, made, _ in rows), sum(f(2 * hit.row) for hit, _, _, f in rows))
print([str(mark) for _, mark, _, _ in rows] == ["Mark.GOOD"] * 20, "kinds" in sys.modules)
"""
EDITED = """
from pathlib import Path

file = Path(__file__).with_name("kinds.py")
file.write_text({was!r})
import kinds
file.write_text({now!r})
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "imports",
    [
        "import factories, kinds",
        pytest.param("", marks=[pytest.mark.processes, pytest.mark.long]),
    ],
)
def test_a_caller_with_the_same_modules_gets_objects_of_its_own_classes(
    tmp_path: Path, imports: str
) -> None:
    """Other readers get them anew: reading imports nothing, since a module may do anything.

    So do readers who loaded another module of that name, whatever its file holds now.
    """
    home = tmp_path / "home"
    home.mkdir()
    (home / "kinds.py").write_text(KINDS)
    (home / "factories.py").write_text(FACTORIES)
    (home / "score.py").write_text(SCORE_BESIDE_MAIN)
    (home / "main.py").write_text(MAIN.format(imports=imports, folder=home))
    assert printed(home / "main.py") == "20 20\nTrue True\nTrue True\n"
    reader = tmp_path / "reader.py"
    reader.write_text(READER.format(job=str(home / "job")))
    assert printed(reader) == "190 190\nTrue False\n"
    beside = home / "reader.py"
    beside.write_text(reader.read_text())
    assert printed(beside) == "190 190\nTrue False\n"
    beside.write_text(
        EDITED.format(was=KINDS.replace("GOOD", "FINE"), now=KINDS)
        + READER.format(job=str(home / "job"))
    )
    assert printed(beside) == "190 190\nTrue True\n"
    (tmp_path / "kinds.py").write_text("class Mark:\n    pass\n")
    reader.write_text("import kinds\n" + reader.read_text())
    assert printed(reader) == "190 190\nTrue True\n"


def printed(program: Path) -> str:
    """Return what a program prints that is run in another folder."""
    words = [sys.executable, str(program)]
    return subprocess.run(words, capture_output=True, check=True, cwd="/", text=True).stdout


MOMENT = pa.array([1, None], pa.time64("ns"))
MONTHS = pa.array([pa.MonthDayNano([1, 2, 3]), None])
LISTS = pd.arrays.ArrowExtensionArray(pa.array([[1], None]))
READERS_OF_ODD: dict[str, tuple[pa.Array, Any]] = {
    "to_pandas": (MOMENT, lambda result: result.to_pandas()),
    "frames": (MOMENT, lambda result: [*result.iter_batches()]),
    "to_polars": (MONTHS, lambda result: result.to_polars()),
    "a LazyFrame": (MONTHS, lambda result: result.to_polars(lazy=True)),
    "frames of polars": (MONTHS, lambda result: [*result.iter_batches("polars")]),
}


@pytest.mark.parametrize("output", [None, "rows.arrow"])
@pytest.mark.parametrize("reader", READERS_OF_ODD)
def test_a_column_that_a_library_cannot_hold_is_named(
    tmp_path: Path, reader: str, output: str | None
) -> None:
    """With a way to read it."""
    column, read = READERS_OF_ODD[reader]
    result = daskprs.parallel_run(
        pd.DataFrame({"n": [1, 2]}),
        lambda rows: pa.table({"n": rows["n"], "odd": column}),
        job_dir=tmp_path / "job",
        output=output and str(tmp_path / output),
    )
    with pytest.raises(ReturnTypeError, match=r"column 'odd' is .* hold.*by to_arrow\(\)"):
        read(result)


@pytest.mark.processes
def test_periods_and_intervals_of_a_data_set_are_those_for_dask_too(tmp_path: Path) -> None:
    """Beside integers, which may be null in rows that are not read yet."""
    months = pd.PeriodIndex(["2020-01", None], freq="M")
    intervals = pd.arrays.IntervalArray.from_breaks([0, 1, 2])
    result = daskprs.parallel_run(
        pd.DataFrame({"n": [1, 2]}),
        lambda rows: rows.assign(month=months, interval=intervals),
        output=str(tmp_path / "rows.parquet"),
        job_dir=tmp_path / "job",
    )
    expected = pd.DataFrame({"n": [1, 2], "month": months, "interval": intervals})
    pd.testing.assert_frame_equal(result.to_pandas(), expected)
    lazy, expected = result.to_dask_dataframe(), expected.astype({"n": "Int64"})
    assert lazy.dtypes.to_dict() == expected.dtypes.to_dict()
    pd.testing.assert_frame_equal(lazy.compute(scheduler="sync"), expected)


def test_a_column_that_no_line_of_text_can_hold_is_named(tmp_path: Path) -> None:
    """Where pandas writes the lines of an Arrow table."""
    with pytest.raises(daskprs.ParallelRunFailed, match=r"column 'odd' is .* return another type"):
        daskprs.parallel_run(
            pd.DataFrame({"n": [1, 2]}),
            lambda rows: pa.table({"n": rows["n"], "odd": MOMENT}),
            output=str(tmp_path / "rows.csv"),
        )


def test_an_arrow_table_of_pandas_has_types_that_pandas_only_has_from_arrow(
    tmp_path: Path,
) -> None:
    """Lists, of which pandas notes a name that it cannot read."""
    frame = pd.DataFrame({"lists": pd.Series(LISTS)})
    result = daskprs.parallel_run(
        frame,
        lambda rows: pa.Table.from_pandas(rows, preserve_index=False),
        output=str(tmp_path / "rows.csv"),
    )
    assert result.to_pandas()["lists"].tolist() == [[1], pd.NA]
