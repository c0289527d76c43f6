"""Rows that come back carry the labels of the frame that they were made of."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import warnings
from itertools import product
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask import delayed
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal

import daskprs
from daskprs._core.pieces import FailedItems
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.row_labels import (
    LabelWriter,
    RowLabels,
    prepared_labels,
    row_bounds,
)
from daskprs._folders.rows_seal import labels_key, labels_seal
from daskprs._output.journal.history import FailedRowsOf
from daskprs._output.read_rows import RowMatcher, read_rows
from daskprs._output.rows.typed_rows import TypedPiece, decode, row_numbers
from daskprs._system.private_folder import DEFAULT_ACL
from daskprs._system.seal import Seal, SealKey
from daskprs.errors import JobChanged, JobFolderError, JournalError
from tests.support.canary import Canary
from tests.support.cases import mostly_long
from tests.support.formatted import format_result
from tests.support.store_driver import KEY, TYPED
from tests.support.versions import IS_PANDAS_2, TEXT, of_pandas_3

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

NUMBERED = "to_pandas: the rows are numbered from 0 and lack the labels of the input"
ROWS = 120
SMALL = 600 if IS_PANDAS_2 else 200
"""Bytes of a mini-batch of some rows; in pandas 2 they are pickled, for their text."""
WHOLE = pd.DataFrame({"x": range(ROWS), "text": [f"row {x}" for x in range(ROWS)]})
FILTERED = WHOLE[WHOLE["x"] % 3 == 1]
INDEXES = {
    "filtered": FILTERED.index,
    "of text": pd.Index([f"label {x}" for x in FILTERED["x"]], name="label"),
    "repeated": pd.Index([x % 4 for x in FILTERED["x"]]),
    "of days": pd.date_range("2026-01-01", periods=len(FILTERED), tz="Europe/Berlin"),
    "a range": pd.RangeIndex(5, 5 + 2 * len(FILTERED), 2),
    "of intervals": pd.interval_range(0, len(FILTERED)),
    "of objects": pd.Index([(None, x, {"a"})[x % 2] for x in FILTERED["x"]], dtype=object),
    "categories": pd.CategoricalIndex(["b", "a"] * (len(FILTERED) // 2), name="kind"),
    "of several levels": pd.MultiIndex.from_product(
        [["a", "b"], range(len(FILTERED) // 2)], names=["part", None]
    ),
}


def same(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return all rows."""
    return mini_batch


def odd(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return some rows, with the index that pandas leaves them."""
    return mini_batch[mini_batch["x"] % 2 == 1]


def odd_anew(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return some rows, with a new index."""
    return odd(mini_batch).reset_index(drop=True)


def descending(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return all rows in another order."""
    return mini_batch.sort_values("x", ascending=False)


def numbers(mini_batch: pd.DataFrame) -> list[int]:
    """Return an element for each row."""
    return mini_batch["x"].tolist()


def total(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return one row for them all."""
    return pd.DataFrame({"x": [mini_batch["x"].sum()]})


def twice(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return two rows for each."""
    return pd.concat([mini_batch, mini_batch])[["x"]]


def odd_but_no_17(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return some rows, unless one of them cannot be done."""
    assert 17 not in set(mini_batch["x"])
    return odd(mini_batch)


def run(data: Any, script: Callable[..., Any], folder: Path, **options: Any) -> Any:
    """Run a script over mini-batches of a few rows."""
    if isinstance(data, pd.DataFrame) and "partition_keys" not in options:
        options.setdefault("mini_batch_size", 200)
    return daskprs.parallel_run(data, script, job_dir=folder, process_count_per_node=2, **options)


@pytest.mark.processes
def test_a_column_of_the_result_is_assigned_to_a_filtered_frame(tmp_path: Path) -> None:
    """Each row gets its own value."""
    frame = FILTERED.copy()
    result = run(frame, lambda rows: rows.assign(score=rows["x"] * 10.0), tmp_path / "job")
    assert result.mini_batches.total > 3
    frame["score"] = result.to_pandas()["score"]
    assert_series_equal(frame["score"], frame["x"] * 10.0, check_names=False)


@pytest.mark.parametrize("kind", INDEXES)
def test_any_index_comes_back(tmp_path: Path, kind: str) -> None:
    """With its type and its names; it is no column of a mini-batch."""
    frame = FILTERED.set_axis(INDEXES[kind], axis=0)
    got = run(frame, odd, tmp_path / "job").to_pandas()
    assert_frame_equal(got, frame[frame["x"] % 2 == 1], check_freq=False)


@pytest.mark.parametrize(
    ("script", "size"),
    mostly_long(
        product([same, odd, descending], [None, SMALL]), suite=[(odd, None), (descending, SMALL)]
    ),
)
@pytest.mark.processes
def test_a_dask_frame_has_its_labels_by_partition(
    tmp_path: Path, script: Callable[..., Any], size: int | None
) -> None:
    """As has one of which a partition is empty."""
    collection = dd.from_pandas(WHOLE.set_axis(pd.Index(WHOLE["x"] * 7, name="y")), npartitions=5)
    collection = collection[~collection["x"].between(24, 47)]
    collection = collection[collection["x"] % 3 == 1]
    got = run(collection, script, tmp_path / "job", mini_batch_size=size).to_pandas()
    assert_frame_equal(got.sort_index(), script(collection.compute()).sort_index())
    assert got["x"].is_monotonic_increasing is (script is not descending)


@pytest.mark.parametrize(
    ("script", "data"),
    [
        *product([same, odd, numbers], ["pandas", "objects"]),
        pytest.param(odd, "dask", marks=pytest.mark.processes),
        pytest.param(same, "dask", marks=[pytest.mark.processes, pytest.mark.long]),
        pytest.param(numbers, "dask", marks=[pytest.mark.processes, pytest.mark.long]),
    ],
)
def test_rows_that_were_brought_together_by_key_keep_their_labels(
    tmp_path: Path, data: str, script: Callable[..., Any]
) -> None:
    """Wherever they lay in the input."""
    frame = FILTERED.assign(key=FILTERED["x"] % 4)
    if data == "objects":
        frame["text"] = [{x} for x in frame["x"]]
    given = dd.from_pandas(frame, npartitions=3) if data == "dask" else frame
    got = run(given, script, tmp_path / "job", partition_keys="key").to_pandas()
    wanted = frame[frame["x"] % 2 == 1] if script is odd else frame
    column = got["result" if script is numbers else "x"]
    assert_series_equal(column.sort_index(), wanted["x"], check_names=False)
    assert sorted(map(str, (tmp_path / "job" / "scratch").glob("rows.*"))) == []


def test_what_failed_moves_no_label(tmp_path: Path) -> None:
    """Rows behind it have those that they had."""
    result = run(FILTERED, odd_but_no_17, tmp_path / "job", allowed_failed_count=-1, run_max_try=1)
    assert result.mini_batches.failed == 0
    frame = WHOLE[WHOLE["x"] % 3 == 2]
    result = run(frame, odd_but_no_17, tmp_path / "two", allowed_failed_count=-1, run_max_try=1)
    assert result.mini_batches.failed == 1
    got = result.to_pandas()
    assert len(got) > 1
    assert_frame_equal(got, WHOLE.loc[got["x"].tolist()])


@pytest.mark.parametrize("script", [odd_anew, total], ids=lambda one: one.__name__)
def test_rows_that_cannot_be_told_apart_are_numbered_with_a_warning(
    tmp_path: Path, script: Callable[..., Any]
) -> None:
    """It names a mini-batch and what to do; who knows better asks for numbers."""
    result = run(FILTERED, script, tmp_path / "job")
    with pytest.warns(UserWarning, match=NUMBERED) as warned:
        rows = result.to_pandas()
    assert warned[0].filename == __file__
    assert_index_equal(rows.index, pd.RangeIndex(len(rows)))
    assert_frame_equal(result.to_pandas(ignore_index=True), rows)


def test_included_columns_match_rows_that_lack_labels(tmp_path: Path) -> None:
    """The warning advises the option only to those who have not set it."""
    for included, step in [
        (None, r"or set include_columns=\['row_number'\]"),
        (["text", "row_number"], "or match the rows by 'text', 'row_number', which they have"),
    ]:
        folder = tmp_path / str(included)
        result = run(FILTERED, twice, folder, include_columns=included)
        with pytest.warns(UserWarning, match=step):
            result.to_pandas()


@pytest.mark.parametrize(
    ("frame", "script", "options", "warns"),
    [
        (WHOLE, same, {}, False),
        (WHOLE.set_axis(list(range(ROWS)), axis=0), same, {}, False),
        (FILTERED[:0], same, {}, False),
        (WHOLE, odd, {}, True),
        (WHOLE.iloc[::-1], same, {}, True),
        (FILTERED, same, {"keep_rows": True}, False),
        (FILTERED.assign(x=FILTERED["x"] % 2), same, {"output_partition_by": ["x"]}, True),
        (WHOLE.assign(x=WHOLE["x"] % 2), same, {"output_partition_by": ["x"]}, True),
        (pa.Table.from_pandas(WHOLE), odd, {}, False),
    ],
)
def test_a_data_set_warns_where_its_numbers_are_other_labels(
    tmp_path: Path,
    frame: Any,
    script: Callable[..., Any],
    options: dict[str, Any],
    *,
    warns: bool,
) -> None:
    """Its files keep no index."""
    places = {"output_dir": tmp_path / "out", "output_format": "parquet"}
    result = run(frame, script, tmp_path / "job", **places, **options)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result.to_pandas(ignore_index=True)
        assert warned == []
        result.to_pandas()
    assert [one.filename for one in warned] == [__file__] * warns
    assert all(f"{NUMBERED}: a data set keeps no index" in str(one.message) for one in warned)


@pytest.mark.processes
@pytest.mark.parametrize(("frame", "warns"), [(WHOLE, False), (FILTERED, True)])
def test_a_data_set_of_a_dask_frame_warns_likewise(
    tmp_path: Path, frame: pd.DataFrame, *, warns: bool
) -> None:
    """Its labels are known with its last partition."""
    result = run(
        dd.from_pandas(frame, npartitions=3), same, tmp_path / "job", output=tmp_path / "o.parquet"
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert result.to_pandas().index.tolist() == [*range(len(frame))]
    assert [f"{NUMBERED}: a data set keeps no index" in str(one.message) for one in warned] == (
        [True] * warns
    )


def by_label(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with even labels, as their author believes."""
    return mini_batch.loc[mini_batch.index % 2 == 0, ["x"]]


@pytest.mark.parametrize(
    ("frame", "script", "options", "notes"),
    [
        (FILTERED, by_label, {}, ["the index of a mini-batch in run() is 0, 1"]),
        (FILTERED, same, {"output": "x.parquet"}, ["the output has no column for the index"]),
        (FILTERED, same, {}, []),
        (WHOLE, by_label, {"output": "x.parquet"}, []),
        (WHOLE, same, {"output": "x", "output_partition_by": ["x"]}, []),
    ],
    ids=["of the script", "of the output", "none", "numbers", "moved numbers"],
)
def test_a_frame_with_labels_gets_a_note_where_they_matter(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    frame: pd.DataFrame,
    script: Callable[..., Any],
    options: dict[str, Any],
    notes: list[str],
) -> None:
    """`run` sees numbers from 0 in place of the labels, and a data set keeps neither."""
    monkeypatch.chdir(tmp_path)
    result = run(frame, script, tmp_path / "job", **options)
    log = JobFolder(result.job_dir).master_log.read_text()
    told = ["the index of a mini-batch in run() is 0, 1", "the output has no column for the index"]
    assert [note for note in told if note in log] == notes


def test_a_file_has_no_labels(tmp_path: Path) -> None:
    """Its rows are numbered from 0, whatever index comes back, and nothing is said."""
    WHOLE.to_csv(tmp_path / "table.csv", index=False)
    rows = run(tmp_path / "table.csv", odd, tmp_path / "job", mini_batch_size=300).to_pandas()
    assert_frame_equal(rows, WHOLE[WHOLE["x"] % 2 == 1].reset_index(drop=True), check_dtype=False)
    assert not list((tmp_path / "job").glob("labels.*"))


@pytest.mark.parametrize("text", [TEXT, object])
def test_an_index_without_a_pickle_stops_no_job(tmp_path: Path, text: Any) -> None:
    """Nor beside rows that are pickled; the warning names the reason."""
    frame = FILTERED.astype({"text": text})
    frame.index = pd.Index([lambda x=x: x for x in FILTERED["x"]])
    result = run(frame, same, tmp_path / "job")
    with pytest.warns(UserWarning, match="the index of the input has no pickle .*lambda"):
        rows = result.to_pandas()
    assert_frame_equal(rows, frame.reset_index(drop=True))


# ---- resumes ----


@pytest.mark.long
@pytest.mark.processes
def test_another_process_resumes_with_the_same_labels(tmp_path: Path) -> None:
    """The rows of both have the labels of the input."""
    script = tmp_path / "source" / "score.py"
    script.parent.mkdir()
    driver = tmp_path / "driver.py"
    FILTERED.to_pickle(tmp_path / "frame")
    script.write_text(
        "import os, signal\n"
        "from pathlib import Path\n"
        "def run(mini_batch):\n"
        f"    killer = Path({str(tmp_path / 'pid')!r})\n"
        "    if 85 in set(mini_batch['x']) and killer.exists():\n"
        "        pid = int(killer.read_text())\n"
        "        killer.unlink()\n"
        "        os.kill(pid, signal.SIGKILL)\n"
        "    return mini_batch[mini_batch['x'] % 2 == 1]\n"
    )
    driver.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "import pandas as pd\n"
        "import daskprs\n"
        "if sys.argv[1] == 'first':\n"
        f"    Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        f"daskprs.parallel_run(pd.read_pickle({str(tmp_path / 'frame')!r}),\n"
        f"    {str(script)!r}, job_dir={str(tmp_path / 'job')!r}, mini_batch_size=200,\n"
        "    process_count_per_node=1, resume=sys.argv[1] != 'first')\n"
    )
    first = subprocess.run([sys.executable, driver, "first"], check=False, capture_output=True)
    assert first.returncode == -9
    subprocess.run([sys.executable, driver, "second"], check=True, capture_output=True)
    assert [path.name for path in (tmp_path / "job").glob("labels.*")] == ["labels.2"]
    rows = read_rows(JobFolder(tmp_path / "job"))
    assert_frame_equal(rows, FILTERED[FILTERED["x"] % 2 == 1])


def test_a_resume_that_is_refused_leaves_the_labels(tmp_path: Path) -> None:
    """Those of the frame that it was called with are dropped."""
    result = run(FILTERED, odd, tmp_path / "job")
    other = WHOLE[WHOLE["x"] % 5 == 2]
    with pytest.raises(JobChanged):
        run(other, odd, tmp_path / "job", resume=True)
    assert_frame_equal(result.to_pandas(), FILTERED[FILTERED["x"] % 2 == 1])
    run(other, odd, tmp_path / "job", resume=True, accept_changes=["input"])
    assert_frame_equal(result.to_pandas(), other[other["x"] % 2 == 1])
    with_files = tmp_path / "table.csv"
    WHOLE.to_csv(with_files, index=False)
    resumed = {"resume": True, "accept_changes": ["input"], "mini_batch_size": 200}
    run(with_files, odd, tmp_path / "job", **resumed)
    assert_index_equal(result.to_pandas().index, pd.RangeIndex(ROWS // 2))
    assert not list((tmp_path / "job").glob("labels.*"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["index.labels", "bounds.npy"])
def test_a_pipe_in_place_of_labels_is_an_error(tmp_path: Path, name: str) -> None:
    """To open it would wait for a writer."""
    result = run(FILTERED, odd, tmp_path / "job")
    (file,) = (tmp_path / "job").glob(f"labels.*/{name}")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(JobFolderError, match=f"{name}: it is a FIFO"):
        result.to_pandas()
    assert len(result.to_pandas(ignore_index=True)) == len(FILTERED[FILTERED["x"] % 2 == 1])


@pytest.mark.timeout(60)
def test_a_resume_looks_only_for_labels_that_are_there(tmp_path: Path) -> None:
    """The number of an epoch is a name: as many folders would be looked for in vain."""
    run(FILTERED, odd, tmp_path / "job")
    (tmp_path / "job" / "epoch.999990").touch()
    resumed = run(FILTERED, odd, tmp_path / "job", resume=True)
    assert [path.name for path in (tmp_path / "job").glob("labels.*")] == ["labels.999991"]
    assert_frame_equal(resumed.to_pandas(), FILTERED[FILTERED["x"] % 2 == 1])


@pytest.mark.processes
def test_a_grown_input_moves_labels_with_their_rows(tmp_path: Path) -> None:
    """What is committed stands elsewhere in the plan of the larger input."""

    def collection(begin: int) -> Any:
        parts = [WHOLE[x : x + 30].set_axis(WHOLE["x"][x : x + 30] * 7) for x in (0, 30, 60, 90)]
        return dd.from_delayed([delayed(part) for part in parts[begin:]], meta=parts[0])

    run(collection(2), odd, tmp_path / "job")
    result = run(collection(0), odd, tmp_path / "job", resume="extend")
    rows = result.to_pandas()
    assert rows["x"].tolist() == list(range(1, ROWS, 2))
    assert rows.index.tolist() == list(range(7, 7 * ROWS, 14))


PLAIN_INDEXES = {
    "range": pd.RangeIndex(3, 30, 9, name="n"),
    "numbers": pd.Index([3, 1, 2], dtype="int16"),
    "floats": pd.Index([0.5, np.nan, -0.0], name=7),
    "texts": pd.Index(["a", "b", None], name="half \ud800"),
    "times": pd.date_range("2026-01-01", periods=3, freq="D", tz="Europe/Berlin"),
    "odd times": pd.DatetimeIndex(["2026-01-01", None, "1999-01-01"]),
    "spans": pd.timedelta_range("1h", periods=3),
    "categories": pd.CategoricalIndex(["b", "a", "b"], categories=["b", "a", "c"], ordered=True),
    "levels": pd.MultiIndex.from_arrays([["a", "a", "b"], [1, 2, 1]], names=["town", None]),
}


def labels_of(scratch: Path, index: pd.Index, seal: Seal) -> Any:
    """Return what is read of labels that were written in two pieces."""
    scratch.mkdir(exist_ok=True)
    with LabelWriter(scratch) as labels:
        labels.add(index[:2])
        labels.add(index[2:])
        labels.finish(row_bounds(len(index), 1))
    return RowLabels(prepared_labels(scratch), seal).of(np.arange(len(index)))


OF_TEXT = ("texts", "categories", "levels")


@pytest.mark.parametrize(
    "name",
    [
        of_pandas_3(name, why="text is Python's objects, which are sealed")
        if name in OF_TEXT
        else name
        for name in PLAIN_INDEXES
    ],
)
def test_plain_labels_need_no_seal(tmp_path: Path, name: str) -> None:
    """Whoever may read the folder has them as they were."""
    index = PLAIN_INDEXES[name]
    assert_index_equal(labels_of(tmp_path, index, Seal()), index, exact=True)
    body = (prepared_labels(tmp_path) / "index.labels").read_bytes()
    assert b"pickle" not in body


@pytest.mark.attack
def test_labels_that_are_objects_are_sealed(tmp_path: Path) -> None:
    """Of a frame in a folder of another user they are not loaded."""
    index = pd.Index(
        [("a", 1), Canary(tmp_path / "canary"), None], dtype=object, tupleize_cols=False
    )
    with pytest.raises(JournalError, match="is not one of your key"):
        labels_of(tmp_path, index, Seal(SealKey(b"of another user")))
    assert not (tmp_path / "canary").exists()
    back = RowLabels(prepared_labels(tmp_path), Seal(labels_key())).of(np.arange(3))
    assert list(back)[::2] == [("a", 1), None]
    assert (tmp_path / "canary").exists()


@pytest.mark.attack
def test_objects_are_read_without_a_key_only_where_no_one_else_can_have_put_them(
    tmp_path: Path,
) -> None:
    """In a private folder that daskprs made here: not in a copy, nor in one that was open."""
    index = pd.Index([("a", 1), ("b", 2)], dtype=object, tupleize_cols=False)
    folder = JobFolder(tmp_path / "job", SealKey(b"another home"))
    folder.create()
    seal = labels_seal(folder)._replace(key=SealKey(b"another home"))
    assert list(labels_of(folder.scratch, index, seal)) == list(index)
    file = prepared_labels(folder.scratch) / "index.labels"
    shutil.copytree(folder.path, tmp_path / "copy")
    (tmp_path / "copy").chmod(0o700)
    copied = JobFolder(tmp_path / "copy")
    os.removexattr(copied.path, DEFAULT_ACL)  # no archive brings it unasked, but `copytree` does
    for one in (folder, copied):
        if one is folder:
            file.chmod(0o620)
        labels = prepared_labels(one.scratch)
        other = labels_seal(one)._replace(key=SealKey(b"another home"))
        with pytest.raises(JournalError, match="is not one of your key"):
            RowLabels(labels, other).of(np.arange(2))


# ---- the rules ----


def placed(*results: Any, rows: int = 3) -> list[int] | str:
    """Return the rows that results of mini-batches belong to, or why they are not known."""
    matcher = RowMatcher(row_bounds(rows * len(results), rows))
    for index, result in enumerate(results):
        made = format_result(result, TYPED)
        for piece in decode(io.BytesIO(made.payload), len(made.payload), Seal(KEY)):
            matcher.add(index, piece)
    places = matcher.finish()
    return matcher.misfit if places is None else places.tolist()


def frame(*index: Any, **options: Any) -> pd.DataFrame:
    """Return a frame with an index."""
    return pd.DataFrame({"y": range(len(index))}, index=pd.Index(index, **options))


WITH_INDEX = pa.Table.from_pandas(frame(2, 0))
FITS = {
    "lists": (([1, 2, 3], np.ones(3)), [0, 1, 2, 3, 4, 5]),
    "arrays of rows": ((np.ones((3, 2)),), [0, 1, 2]),
    "a generator of elements": ((iter("abc"),), [0, 1, 2]),
    "whole frames": ((frame(0, 1, 2), frame(0, 1, 2)), [0, 1, 2, 3, 4, 5]),
    "another order": ((frame(2, 0, 1),), [2, 0, 1]),
    "a filter": ((frame(2), frame(0, 1)), [2, 3, 4]),
    "a slice": ((WHOLE[1:3],), [1, 2]),
    "a series": ((pd.Series([5.0], index=[2]),), [2]),
    "nothing left of one": ((frame(), frame(0, 1, 2), []), [3, 4, 5]),
    "nothing at all": ((frame(), frame()), []),
    "a generator of frames": ((iter([frame(0), frame(1, 2)]),), [0, 1, 2]),
    "numbers as objects": ((frame(2, 1, dtype=object),), [2, 1]),
    "nullable numbers": ((frame(2, 1, dtype="Int64"),), [2, 1]),
    "unsigned numbers": ((frame(2, 1, dtype="uint8"),), [2, 1]),
    "an Arrow table": ((pa.table({"y": [1, 2, 3]}),), [0, 1, 2]),
    "an Arrow table of a frame": ((WITH_INDEX,), [2, 0]),
}


@pytest.mark.parametrize("case", FITS)
def test_rows_are_matched(case: str) -> None:
    """By position or through their index, each mini-batch for itself."""
    results, expected = FITS[case]
    assert placed(*results) == expected


MISFITS = {
    "a short list": (([1, 2],), "mini-batch 0 has 3 rows, and its result 2 without an index"),
    "a short array of rows": ((np.ones((2, 2)), frame(2)), "its result 2 without an index"),
    "a long list": (([1, 2, 3], [1, 2, 3, 4]), "mini-batch 1 has 3 rows, and its result 4"),
    "a new index": ((frame(0, 1), frame(0, 1, 2), frame(0)), "the first is that of mini-batch 0"),
    "a name": ((frame(0, 1, 2, name="y"),), "the index of the 3 rows from mini-batch 0"),
    "a repeated label": ((frame(0, 0, 1),), "without a name and with different numbers"),
    "a number too large": ((frame(1, 3),), "out of 0 to 2"),
    "a negative number": ((frame(-1, 0),), "out of 0 to 2"),
    "a huge number": ((frame(2**70, 1),), "out of 0 to 2"),
    "an unsigned number": ((frame(2**64 - 1, 1, dtype="uint64"),), "out of 0 to 2"),
    "floats": ((frame(0.0, 1.0, 2.0),), "out of 0 to 2"),
    "bools": ((frame(False, True),), "out of 0 to 2"),
    "text": ((frame("a", "b", "c"),), "out of 0 to 2"),
    "nulls": ((frame(1, None, dtype="Int64"),), "out of 0 to 2"),
    "two levels": ((frame((0, 0), (0, 1)),), "out of 0 to 2"),
    "new frames from a generator": ((iter([frame(0), frame(0, 1)]),), "out of 0 to 2"),
    "a filter by Arrow": ((pa.Table.from_pandas(WHOLE[:3])[1:], frame(2)), "2 without an index"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_rows_that_may_be_others_are_not_matched(case: str) -> None:
    """One mini-batch that fits neither way is enough."""
    results, why = MISFITS[case]
    assert why in str(placed(*results))


def failed_in(place: int, status: str = "RUN_EXCEPTION", rows: int = 0) -> FailedItems:
    """Return a row that has failed, and what stands in its place."""
    cut = None if status == "NAMED" else ((0, 0, 0), (0, rows, rows))
    return FailedItems(place, place + 1, status, "ValueError", "bad", "", 1, cut=cut)


UNCLEAR = "which does not say which rows are left"
WITHOUT = {
    "the last one": ([failed_in(3)], [0, 1, 2], True, [0, 1, 2]),
    "the last one, named": ([failed_in(3, "NAMED")], [0, 1, 2], True, [0, 1, 2]),
    "one in the middle": ([failed_in(1)], [0, 2, 3], True, [0, 2, 3]),
    "a row of nulls": ([failed_in(3, rows=1)], [0, 1, 2, 3], True, [0, 1, 2, 3]),
    "a list": ([failed_in(1)], [0, 1, 2], False, [0, 2, 3]),
    "a list, and a row of nulls": ([failed_in(1, rows=1)], [0, 1, 2, 3], False, [0, 1, 2, 3]),
    "a list without a named one": ([failed_in(0, "NAMED")], [0, 1, 2], False, [1, 2, 3]),
    "a list with a named one": (
        [failed_in(0, "NAMED"), failed_in(1)],
        [0, 1, 2],
        False,
        [0, 2, 3],
    ),
    "a filter of what is left": ([failed_in(0)], [1, 3], True, [1, 3]),
    "a new index after a filter": ([failed_in(0)], [1, 2], True, UNCLEAR),
    "a new index beside a row of nulls": ([failed_in(0, rows=1)], [0, 1, 2], True, UNCLEAR),
    "a new index without a named one": ([failed_in(1, "NAMED")], [0, 1, 2], True, UNCLEAR),
    "a list of two for one": ([failed_in(1)], [0, 1, 2, 3], False, "its result 4 without an index"),
    "a short list": ([failed_in(1)], [0, 1], False, "its result 2 without an index"),
}


@pytest.mark.parametrize("case", WITHOUT)
def test_rows_that_have_failed_hide_no_label(case: str) -> None:
    """What a search has taken out, or the script has named, is known; what a filter kept is not."""
    failed, numbers, has_index, expected = WITHOUT[case]
    matcher = RowMatcher(np.array([0, 4]), {0: FailedRowsOf.of(failed, "", 1, 0, 0)})
    index = np.array(numbers) if has_index else "no index"
    matcher.add(0, TypedPiece("frame", frame(*numbers), index))
    places = matcher.finish()
    if isinstance(expected, str):
        assert places is None
        assert expected in matcher.misfit
    else:
        assert places is not None
        assert places.tolist() == expected


@pytest.mark.parametrize(
    ("calls", "places"),
    [
        ([[1], [3]], [1, 3]),
        ([[0, 1], [2]], None),  # a filter of four rows, or of two calls with two rows
        ([[0], [2]], None),
        ([[0], [3]], None),
        ([[0, 3]], [0, 3]),
    ],
)
def test_a_new_index_of_each_half_shows_no_row(
    calls: list[list[int]], places: list[int] | None
) -> None:
    """What ran out of memory has run in halves, and each may have reset its index."""
    matcher = RowMatcher(np.array([0, 4]))
    for numbers in calls:
        matcher.add(0, TypedPiece("frame", frame(*numbers), np.array(numbers)))
    found = matcher.finish()
    assert (None if found is None else found.tolist()) == places
    assert (UNCLEAR in matcher.misfit) == (places is None)


@given(data=st.data(), sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_a_match_is_the_truth(data: st.DataObject, sizes: list[int]) -> None:
    """Whatever rows pandas leaves, in whatever order, they are the rows that are named."""
    rows, results, truth = 5, [], []
    for number, size in enumerate(sizes):
        chosen = data.draw(st.permutations(range(rows)))[:size]
        given_rows = pd.DataFrame({"place": range(number * rows, (number + 1) * rows)})
        results.append(given_rows.iloc[chosen])
        truth += results[-1]["place"].tolist()
    short = [one for one in results if 0 < len(one) < rows]
    unclear = short and all(one.index.tolist() == [*range(len(one))] for one in short)
    assert unclear or placed(*results, rows=rows) == truth
    renewed = [one.reset_index(drop=True) for one in results]
    assert isinstance(placed(*renewed, rows=rows), str) or not short


def test_an_index_with_a_name_that_is_lost_is_named(tmp_path: Path) -> None:
    """Such as that of a groupby, whose keys would be missed in silence."""
    data = pd.DataFrame({"town": ["a", "b"], "n": [1, 2]})
    result = run(data, lambda rows: rows.groupby("town")[["n"]].sum(), tmp_path / "job")
    with pytest.warns(
        UserWarning, match=r"mini-batch 0 has the name 'town', and is not kept: reset"
    ):
        assert list(result.to_pandas().columns) == ["n"]
    assert row_numbers(pd.RangeIndex(2, name=Unshown())) == "named Unshown"
    assert len(row_numbers(pd.Index([1], name="x" * 999))) < 80


class Unshown:
    """A name of an index that cannot be shown."""

    def __repr__(self) -> str:
        """Fail."""
        raise ValueError
