"""A bad row costs one row: in real jobs, whatever the row does and in whichever form rows come."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pandas as pd
import pyarrow as pa
import pytest

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._job.report import report_of
from daskprs._job.status import state_of
from daskprs._job.verification import verify
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("inline")

BAD = """
import os, signal, time

def run(rows):
    for n, what in zip(rows["n"], rows["what"]):
        if what == "raises":
            raise ValueError(f"bad {n}")
        if what == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "hangs":
            time.sleep(1000)
        if what == "eats":
            raise MemoryError
        if what == "ends":
            os._exit(3)
    return rows.assign(double=rows["n"] * 2)[["n", "double"]]
"""


def table(rows: int, what: dict[int, str]) -> pd.DataFrame:
    """Return rows, and what some of them do."""
    return pd.DataFrame({"n": range(rows), "what": [what.get(n, "") for n in range(rows)]})


def score(
    folder: Path, data: Any, script: Any = BAD, size: int | str = "32 rows", **options: Any
) -> daskprs.ParallelRunResult:
    """Run a job that isolates."""
    if isinstance(script, str):
        (folder / "code").mkdir(exist_ok=True)
        path = folder / "code" / "script.py"
        path.write_text(script)
        script = path
    given = {"on_error": "isolate", "job_dir": folder / "job", "progress": False, "run_max_try": 1}
    return daskprs.parallel_run(data, script, mini_batch_size=size, **(given | options))


ALL = {5: "raises", 6: "dies", 40: "hangs", 70: "ends", 71: "eats"}
ERROR = pa.field("_error", pa.string())
STATUS = {"raises": "RUN_EXCEPTION", "eats": "RUN_EXCEPTION", "hangs": "RUN_TIMEOUT"}


@pytest.mark.processes
@pytest.mark.parametrize(
    "bad", mostly_long([ALL, {5: "raises", 6: "dies"}], suite=[{5: "raises", 6: "dies"}])
)
def test_rows_that_raise_die_and_hang_are_named_and_all_others_are_there(
    bad: dict[int, str], tmp_path: Path
) -> None:
    """With their columns and causes; a resume keeps the table."""
    data = table(160, bad)
    options = {"process_count_per_node": 2, "run_invocation_timeout": 10}
    result = score(tmp_path, data, **options)
    assert result.status == "Completed"
    assert result.mini_batches == (5, 5, 0)
    assert result.items == (160, 160 - len(bad), len(bad))
    assert result.not_returned == 0
    good = [n for n in range(160) if n not in bad]
    rows = result.to_pandas()
    assert rows["n"].tolist() == good
    assert rows.index.tolist() == good
    failed = result.failed_rows
    assert failed["_position"].tolist() == [*bad]
    assert failed["n"].tolist() == [*bad]
    assert failed["what"].tolist() == [*bad.values()]
    assert failed["_status"].tolist() == [STATUS.get(one, "PROCESS_DIED") for one in bad.values()]
    assert failed["_error"][0] == "bad 5"
    assert 'raise ValueError(f"bad {n}")' in failed["_traceback"][0]
    assert failed["_mini_batch"].tolist() == [n // 32 for n in bad]
    assert all(failed["_process"].str.startswith("process"))
    again = score(tmp_path, data, resume=True, **options)
    assert again.items == result.items
    assert again.not_returned == 0
    pd.testing.assert_frame_equal(again.failed_rows, failed)


@pytest.mark.parametrize("form", ["pandas", "numpy", "pyarrow", "polars"])
def test_rows_in_every_form_are_cut(form: Any, tmp_path: Path) -> None:
    """`run` gets a part as it gets a mini-batch; each sees its number in the input."""

    def run(rows: Any, context: Any) -> Any:
        values = rows["n"].to_pylist() if hasattr(rows["n"], "to_pylist") else list(rows["n"])
        first = context.global_row_index_lower_bound
        assert [*range(first, first + len(values))] == values
        if 21 in values:
            raise ValueError
        return values

    result = score(tmp_path, table(64, {}), run, batch_format=form)
    rows = result.to_pandas(ignore_index=True)
    assert rows["result"].tolist() == [n for n in range(64) if n != 21]
    assert result.failed_rows["n"].tolist() == [21]


def test_files_are_cut_as_rows_are(tmp_path: Path) -> None:
    """The table names the file, and `include_columns` still fits."""
    (tmp_path / "in").mkdir()
    for number in range(12):
        (tmp_path / "in" / f"{number:02}.bin").write_text(str(number))

    def run(paths: list[str]) -> Any:
        numbers = [int(Path(path).read_text()) for path in paths]
        if 7 in numbers:
            raise ValueError
        return pd.DataFrame({"number": numbers})

    result = score(tmp_path, tmp_path / "in", run, 6, include_columns=["path"])
    rows = result.to_pandas()
    assert rows["number"].tolist() == [n for n in range(12) if n != 7]
    assert [Path(path).stem for path in rows["path"]] == [f"{n:02}" for n in rows["number"]]
    assert [Path(path).name for path in result.failed_rows["path"]] == ["07.bin"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.jsonl"])
def test_the_output_is_that_of_the_good_rows(name: str, tmp_path: Path) -> None:
    """Byte for byte what a job without the bad rows writes with the same script."""
    data = table(64, {3: "raises", 40: "raises"})
    result = score(tmp_path, data, output=tmp_path / name)
    assert result.output_file is not None
    read: dict[str, Callable[..., pd.DataFrame]] = {
        "rows.csv": pd.read_csv,
        "rows.parquet": pd.read_parquet,
        "rows.jsonl": lambda path: pd.read_json(path, lines=True),
    }
    rows = read[name](result.output_file)
    assert rows["n"].tolist() == [n for n in range(64) if n not in (3, 40)]
    assert rows["double"].tolist() == (2 * rows["n"]).tolist()


def test_rows_that_are_left_keep_their_labels(tmp_path: Path) -> None:
    """Also if the last one of a mini-batch is bad: no script has made the index anew."""
    data = table(8, {3: "raises"}).set_index(pd.Index([*"abcdefgh"]))
    keeps = BAD.replace('[["n", "double"]]', "")
    rows = score(tmp_path, data, keeps, "4 rows").to_pandas()
    assert "".join(rows.index) == "abcefgh"
    assert rows["n"].tolist() == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("form", "bad"),
    mostly_long(
        [*product(("pandas", "pyarrow", "list"), ([0], [5, 6, 63], [31, 32], [*range(8)]))],
        suite=[("pandas", [0]), ("pyarrow", [5, 6, 63]), ("list", [31, 32])],
    ),
    ids=str,
)
def test_rows_of_nulls_stand_in_their_place(form: str, bad: list[int], tmp_path: Path) -> None:
    """Integers stay integers, and the included columns are those of the input."""

    def run(rows: Any) -> Any:
        numbers = rows["n"].to_pylist() if form == "pyarrow" else rows["n"].tolist()
        if not {*numbers}.isdisjoint(bad):
            raise ValueError("bad")
        if form == "list":
            return [(1 << 60) + n for n in numbers]
        columns = {"result": [(1 << 60) + n for n in numbers]}
        return pd.DataFrame(columns) if form == "pandas" else pa.table(columns)

    given = {"batch_format": "pyarrow" if form == "pyarrow" else "pandas", "on_error": "null"}
    result = score(tmp_path, table(64, {}), run, include_columns=["n"], **given)
    assert result.items == (64, 64 - len(bad), len(bad))
    rows = result.to_pandas()
    assert rows["n"].tolist() == [*range(64)]
    assert rows["_error"].notna().to_numpy().nonzero()[0].tolist() == bad
    assert set(rows["_error"].dropna()) == {"ValueError: bad"}
    assert rows["result"].isna().to_numpy().nonzero()[0].tolist() == bad
    good = rows[rows["_error"].isna()]
    assert good["result"].astype(int).tolist() == [(1 << 60) + n for n in good["n"]]
    types = result.to_arrow().schema
    assert types.field("result").type == pa.int64()
    assert types.field("_error").type in (pa.string(), pa.large_string())


def test_rows_of_nulls_have_the_categories_of_the_others(tmp_path: Path) -> None:
    """Else pandas joins them as objects: those of frames of polars, and of Arrow."""

    def run(rows: pd.DataFrame) -> Any:
        if 5 in set(rows["n"]):
            raise ValueError("bad")
        return pa.table({"kind": pa.array(["x"] * len(rows)).dictionary_encode()})

    result = score(tmp_path, table(16, {}), run, on_error="null", start_method="inline")
    assert result.to_pandas()["kind"].dtype == "category"


def test_rows_of_nulls_have_two_columns_of_the_same_name(tmp_path: Path) -> None:
    """As those of a table of Arrow may, in lines of text."""

    def run(rows: pd.DataFrame) -> Any:
        if 1 in set(rows["n"]):
            raise ValueError("bad")
        n = pa.array(rows["n"])
        return pa.table([n, n], names=["n", "n"])

    output = {"output": tmp_path / "rows.csv"}
    result = score(tmp_path, table(3, {}), run, **output, on_error="null", start_method="inline")
    assert result.items == (3, 2, 1)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines == ["n,n,_error", "0,0,", ",,ValueError: bad", "2,2,"]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv"])
def test_a_data_set_and_lines_have_the_rows_of_nulls(name: str, tmp_path: Path) -> None:
    """In all forms of output, for each mini-batch the same columns."""
    data = table(64, {3: "raises"})
    result = score(tmp_path, data, on_error="null", output=tmp_path / name)
    assert result.output_file is not None
    read: Callable[..., pd.DataFrame] = pd.read_parquet if name == "rows.parquet" else pd.read_csv
    rows = read(result.output_file)
    assert list(rows.columns) == ["n", "double", "_error"]
    assert rows["_error"].dropna().tolist() == ["ValueError: bad 3"]
    assert rows["double"].isna().sum() == 1
    assert len(rows) == 64


@pytest.mark.parametrize("given", [False, True], ids=["found", "given"])
def test_a_mini_batch_in_which_no_row_passes_has_rows_of_nulls(
    tmp_path: Path, *, given: bool
) -> None:
    """A schema says their columns, or what `run` has returned for others."""
    schema = {"_error": "string", "double": "int64", "n": "int64"} if given else None
    options = {"on_error": "null", "schema": schema, "output": tmp_path / "rows.parquet"}
    result = score(
        tmp_path, table(8, {0: "raises", 6: "raises", 7: "raises"}), size="2 rows", **options
    )
    assert result.items == (8, 5, 3)
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert rows["n"].dropna().tolist() == [1, 2, 3, 4, 5]
    errors = ["ValueError: bad 0", "ValueError: bad 6", "ValueError: bad 7"]
    assert rows["_error"].dropna().tolist() == errors


def test_the_types_of_a_result_do_not_depend_on_which_rows_have_failed(tmp_path: Path) -> None:
    """Nor on where its rows are kept, nor on a schema that says the same."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        if "raises" in set(rows["what"]):
            raise ValueError
        return pd.DataFrame({"n": rows["n"].astype("uint8"), "even": rows["n"] % 2 == 0})

    schema = {"n": "uint8", "even": "bool", "_error": "string"}
    jobs: list[tuple[list[int], dict[str, Any]]] = [
        ([], {}),
        ([*range(4)], {}),
        ([*range(4)], {"output": "rows.csv"}),
        ([*range(4)], {"output": "rows.parquet"}),
        ([5], {"output": "rows.parquet"}),
        ([5], {"schema": schema}),
    ]
    for number, (bad, options) in enumerate(jobs):
        given: dict[str, Any] = {"on_error": "null", "job_dir": tmp_path / f"job{number}"}
        given |= options
        if "output" in options:
            given["output"] = tmp_path / str(number) / options["output"]
        rows = score(tmp_path, table(12, dict.fromkeys(bad, "raises")), run, "4 rows", **given)
        types = rows.to_pandas().dtypes.astype(str).to_dict()
        assert types == {"n": "UInt8", "even": "boolean", "_error": "string"}, (bad, options)


def test_a_file_in_a_store_is_known_by_its_address(tmp_path: Path) -> None:
    """Not by the path of its copy, which is gone."""
    store = fsspec.filesystem("memory")
    for number in range(8):
        store.pipe(f"/isolated/{number}.txt", str(number).encode())

    def run(paths: list[str]) -> list[int]:
        numbers = [int(Path(path).read_text()) for path in paths]
        if 5 in numbers:
            raise ValueError
        return numbers

    try:
        result = score(tmp_path, "memory://isolated/", run, 4)
        assert result.items == (8, 7, 1)
        assert result.failed_rows["path"].tolist() == ["memory:///isolated/5.txt"]
    finally:
        store.rm("/isolated", recursive=True)


class Odd:
    """What cannot be compared."""

    def __eq__(self, other: object) -> Any:
        return [True, False].__getitem__(2)

    __hash__ = None  # type: ignore[assignment]


def test_rows_that_cannot_be_compared_are_not_searched(tmp_path: Path) -> None:
    """Unless they are said to be independent; an error of theirs is none of a row."""

    def run(rows: pd.DataFrame) -> list[Odd]:
        if 21 in set(rows["n"]):
            raise ValueError("bad 21")
        return [Odd() for _ in range(len(rows))]

    with pytest.raises(daskprs.ParallelRunFailed, match="bad 21"):
        score(tmp_path, table(64, {}), run)
    log = (tmp_path / "job/logs/sys/master_role.txt").read_text()
    assert "independent_rows=True" in log
    result = score(tmp_path, table(64, {}), run, job_dir=tmp_path / "said", independent_rows=True)
    assert result.items == (64, 63, 1)


def test_categories_of_fewer_rows_are_no_other_rows(tmp_path: Path) -> None:
    """Half of the rows may have fewer of them; their order and that of their numbers may differ."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        if 21 in set(rows["n"]):
            raise ValueError("bad 21")
        return pd.DataFrame({"kind": (9 - rows["n"] // 7).astype("category")})

    result = score(tmp_path, table(32, {}), run, start_method="inline")
    assert result.items == (32, 31, 1)
    assert result.to_pandas()["kind"].tolist() == [9 - n // 7 for n in range(32) if n != 21]


def test_failed_rows_of_any_kind_are_in_the_table(tmp_path: Path) -> None:
    """Types that differ in a mini-batch or from one to the next, names that we use, odd texts."""
    data = table(96, {5: "raises", 6: "raises", 40: "raises"})
    data["mixed"] = pd.Series([1.5, "text", b"x"] * 32, dtype=object)
    data["of_part"] = pd.Series([1] * 32 + ["text"] * 64, dtype=object)
    data["odd"] = pd.Series(["\udcff"] * 96, dtype=object)
    data["empty"] = pd.Series([{}] * 96, dtype=object)
    data["_error"] = data["_error_of_input"] = data["n"]
    failed = score(tmp_path, data).failed_rows
    assert failed["n"].tolist() == failed["_error_of_input"].tolist() == [5, 6, 40]
    assert failed["_error"].tolist() == ["bad 5", "bad 6", "bad 40"]
    assert failed["_error_of_input_of_input"].tolist() == [5, 6, 40]
    assert failed["mixed"].tolist() == ["b'x'", "1.5", "text"]
    assert failed["of_part"].tolist() == ["1", "1", "text"]
    assert failed["odd"].tolist() == ["\\udcff"] * 3
    assert failed["empty"].tolist() == ["{}"] * 3


def test_a_long_traceback_of_a_row_is_cut(tmp_path: Path) -> None:
    """A thousand would fill journal and driver; both ends are there, and how much is not."""

    def deep(n: int) -> Any:
        raise ValueError("deep") if n == 0 else deeper(n - 1)

    def deeper(n: int) -> Any:
        return deep(n)

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        if 5 in set(rows["n"]):
            deep(300)
        return rows

    text = score(tmp_path, table(32, {}), run).failed_rows["_traceback"][0]
    assert len(text) < 10_000
    assert re.search(
        r"in run\n.*\n… \d+ characters left out …\n.*ValueError: deep", text, re.DOTALL
    )
    assert (tmp_path / "job/journal.1").stat().st_size < 50_000


@pytest.mark.parametrize(("size", "bad"), [("32 rows", 21), ("3 rows", 23), ("3 rows", 22)])
def test_rows_that_are_not_independent_fail_as_a_whole(size: str, bad: int, tmp_path: Path) -> None:
    """Of a script that subtracts the mean of its rows, say; the message says why.

    Of three rows the search runs only single ones alone, so the two good ones are compared last,
    also with the bad one between them.
    """

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        if bad in set(rows["n"]):
            msg = f"bad {bad}"
            raise ValueError(msg)
        return rows.assign(centred=rows["n"] - rows["n"].mean())

    with pytest.raises(daskprs.ParallelRunFailed, match=f"bad {bad}"):
        score(tmp_path, table(64, {}), run, size)
    log = (tmp_path / "job/logs/sys/master_role.txt").read_text()
    assert "are not independent of each other" in log


@pytest.mark.parametrize("form", ["pandas", "numpy", "pyarrow", "polars", "files"])
def test_single_rows_are_compared_in_every_form(form: str, tmp_path: Path) -> None:
    """As if the bad one between them were not there: numbers and paths go on."""
    notes = tmp_path / "notes"

    def run(rows: Any, context: daskprs.MiniBatchContext) -> pd.DataFrame:
        values = [Path(one).stem for one in rows] if form == "files" else [*map(str, rows["n"])]
        with notes.open("a") as file:
            print(*values, file=file)
        if "1" in values:
            raise ValueError("bad 1")
        first = context.global_row_index_lower_bound
        return pd.DataFrame({"number": range(first, first + len(values))})

    options: dict[str, Any] = {"include_columns": ["row_number"], "batch_format": form}
    data: Any = table(3, {})
    if form == "files":
        data, options = tmp_path / "in", {"include_columns": ["path"]}
        data.mkdir()
        for number in range(3):
            (data / f"{number}.bin").write_text("")
    result = score(tmp_path, data, run, 3 if form == "files" else "3 rows", **options)
    assert result.items == (3, 2, 1)
    assert notes.read_text().splitlines()[-3:] == ["0 2", "0", "2"]
    assert result.to_pandas()["number"].tolist() == [0, 2]
    assert "could not be checked" not in (tmp_path / "job/logs/sys/master_role.txt").read_text()


@pytest.mark.parametrize(
    ("size", "why"), [("2 rows", "is left with one row"), ("3 rows", "together that pass alone")]
)
def test_who_cannot_compare_says_so_once(size: str, why: str, tmp_path: Path) -> None:
    """One row is left of two, or there is memory for one only."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        if {4, 7} & {*rows["n"]}:
            raise ValueError
        if size == "3 rows" and len(rows) == 2:
            raise MemoryError
        return rows

    result = score(tmp_path, table(9, {}), run, size)
    assert result.to_pandas()["n"].tolist() == [0, 1, 2, 3, 5, 6, 8]
    log = (tmp_path / "job/logs/sys/master_role.txt").read_text()
    assert log.count("could not be checked") == 1
    assert why in log


def test_who_fails_everywhere_fails(tmp_path: Path) -> None:
    """The first error is that of the script; ten searches in vain are enough."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        return rows["score"]

    with pytest.raises(daskprs.ParallelRunFailed, match="KeyError"):
        score(tmp_path, table(36, {}), run, "3 rows")
    log = (tmp_path / "job/logs/sys/master_role.txt").read_text()
    assert "10 mini-batches were bisected" in log


@pytest.mark.parametrize("form", ["text", "jsonl", "parquet"])
def test_rows_of_nulls_have_the_columns_of_others_where_all_of_a_mini_batch_is_bad(
    form: str, tmp_path: Path
) -> None:
    """The first one waits for another one to show them; a resume remembers them."""
    data = table(96, dict.fromkeys([*range(8), *range(40, 48)], "raises"))
    options = {"on_error": "null", "output_format": form, "output_dir": tmp_path / "out"}
    options |= {"append_row_dataframe_header": True} if form == "text" else {}
    result = score(tmp_path, data, size="8 rows", **options)
    assert result.items == (96, 80, 16)
    if form == "text":
        found = pd.read_csv(result.output_file, sep=" ")
    elif form == "jsonl":
        found = pd.read_json(next(result.output_file.glob("*.jsonl")), lines=True)
    else:
        found = pd.read_parquet(result.output_file)
    assert found["_error"].notna().tolist() == found["n"].isna().tolist()
    assert found["n"].dropna().tolist() == [n for n in range(96) if n // 8 not in (0, 5)]


def test_a_mini_batch_in_which_all_rows_fail_keeps_its_rows_of_nulls(tmp_path: Path) -> None:
    """Also in rows that are kept with their types alone, and where they fail once more."""
    data = table(12, dict.fromkeys(range(4), "raises"))
    options: dict[str, Any] = {"on_error": "null", "size": "4 rows", "include_columns": ["what"]}
    for again in ({}, {"resume": "failed"}):
        result = score(tmp_path, data, **options, **again)
        assert result.items == (12, 8, 4)
        assert result.to_arrow()["n"].to_pylist() == [None] * 4 + [*range(4, 12)]
        assert result.to_pandas()["_error"].notna().tolist() == [True] * 4 + [False] * 8
        assert result.to_pandas()["what"].tolist() == data["what"].tolist()
        assert [len(one) for one in result.iter_batches()] == [4, 4, 4]


def test_a_mended_script_runs_just_the_failed_rows_again(tmp_path: Path) -> None:
    """By `resume="failed"`; then nothing is missing, and no table is left."""
    data = table(96, {5: "raises"})
    score(tmp_path, data)
    mended = BAD.replace('raise ValueError(f"bad {n}")', "pass")
    calls = tmp_path / "calls"
    noted = f"with open({str(calls)!r}, 'a') as file:\n        print(len(rows), file=file)"
    mended = mended.replace("def run(rows):", f"def run(rows):\n    {noted}")
    result = score(tmp_path, data, mended, resume="failed")
    assert result.items == (96, 96, 0)
    assert result.to_pandas()["n"].tolist() == [*range(96)]
    assert len(result.failed_rows) == 0
    assert not (tmp_path / "job/failed_rows.parquet").exists()
    assert calls.read_text().split() == ["1"]


def test_failed_rows_of_a_commit_that_was_lost_are_forgotten(tmp_path: Path) -> None:
    """A driver was killed between the two records; later the mini-batch succeeded as a whole."""
    data = table(64, {5: "raises"})
    score(tmp_path, data)
    journal = tmp_path / "job" / "journal.1"
    lines = journal.read_bytes().splitlines(keepends=True)
    (at,) = (number for number, line in enumerate(lines) if b'"failed rows"' in line)
    journal.write_bytes(b"".join(lines[: at + 1]))
    mended = BAD.replace('raise ValueError(f"bad {n}")', "pass")
    score(tmp_path, data, mended, resume=True, accept_changes="script")
    result = score(tmp_path, data, mended, resume=True)
    assert result.items == (64, 64, 0)
    assert len(result.failed_rows) == 0


def test_counts_and_positions_hold_in_a_job_that_goes_on(tmp_path: Path) -> None:
    """In `status` and `verify`, in an extension with rows before, after a resume in vain."""
    (tmp_path / "in").mkdir()
    data = table(64, {20: "raises", 40: "raises"})
    data.iloc[:32].to_parquet(tmp_path / "in/1.parquet")
    data.iloc[32:].to_parquet(tmp_path / "in/2.parquet")
    score(tmp_path, tmp_path / "in")
    stood = state_of(JobFolder(tmp_path / "job"))
    assert (stood.items, stood.not_returned) == ((64, 62, 2), 0)
    assert verify(JobFolder(tmp_path / "job")).items == (64, 62, 2)
    data.iloc[:32].assign(what="").to_parquet(tmp_path / "in/0.parquet")
    result = score(tmp_path, tmp_path / "in", resume="extend")
    assert result.failed_rows["_position"].tolist() == [52, 72]
    no = "def run(rows):\n    rows['no']"
    with pytest.raises(daskprs.ParallelRunFailed, match="KeyError"):
        score(tmp_path, tmp_path / "in", no, resume="failed", on_error="raise")
    result = score(tmp_path, tmp_path / "in", resume=True, accept_changes="script")
    assert result.items == (96, 94, 2)
    assert result.failed_rows["_position"].tolist() == [52, 72]


def test_failed_rows_count_for_the_threshold_of_items(tmp_path: Path) -> None:
    """`allowed_failed_count` does not see them."""
    data = table(64, {3: "raises", 40: "raises"})
    assert score(tmp_path, data, allowed_failed_count=0, error_threshold=2).items.failed == 2
    with pytest.raises(daskprs.ParallelRunFailed, match="error_threshold=1"):
        score(tmp_path, data, error_threshold=1, job_dir=tmp_path / "other")


def test_drop_goes_on_without_whole_mini_batches(tmp_path: Path) -> None:
    """However many they are."""
    result = score(tmp_path, table(96, {3: "raises", 40: "raises"}), on_error="drop")
    assert result.mini_batches == (3, 1, 2)
    assert result.to_pandas()["n"].tolist() == [*range(64, 96)]


@pytest.mark.parametrize(("on_error", "count"), [("raise", 32), ("isolate", 64)])
def test_a_script_names_rows_itself(on_error: str, count: int, tmp_path: Path) -> None:
    """They are failed items of mini-batches that succeed, whatever `run` did to what it got."""

    def run(rows: pd.DataFrame, context: daskprs.MiniBatchContext) -> pd.DataFrame:
        bad = rows["n"] % 10 == 7
        context.fail(bad.to_numpy().nonzero()[0], "a seven")
        rows["n"] = -1
        if context.minibatch_index == 1 and context.piece is None:
            raise ValueError("only as a whole")
        return rows[~bad]

    data = table(count, {})
    result = score(tmp_path, data, run, on_error=on_error, independent_rows=True)
    sevens = [n for n in range(count) if n % 10 == 7]
    assert result.items == (count, count - len(sevens), len(sevens))
    assert result.not_returned == 0
    failed = result.failed_rows
    assert failed["n"].tolist() == failed["_position"].tolist() == sevens
    assert set(failed["_error"]) == {"a seven"}
    assert set(failed["_status"]) == {"NAMED"}


@pytest.mark.processes
def test_named_rows_have_their_columns_where_the_next_mini_batch_is_loaded_ahead(
    tmp_path: Path,
) -> None:
    """They are loaded again, and never while another thread uses the reader."""
    count, wide = 2_000, {f"column{number}": 1.5 for number in range(40)}
    table(count, {}).assign(**wide).to_csv(tmp_path / "rows.csv", index=False)

    def run(rows: pd.DataFrame, context: daskprs.MiniBatchContext) -> pd.DataFrame:
        bad = rows["n"] % 100 == 7
        context.fail(bad.to_numpy().nonzero()[0], "a seven")
        return rows.loc[~bad, ["n"]]

    options = {"process_count_per_node": 1, "on_error": "raise"}
    result = score(tmp_path, tmp_path / "rows.csv", run, "20 KB", **options)
    assert result.failed_rows["n"].tolist() == [*range(7, count, 100)]
    assert result.to_pandas()["n"].tolist() == [n for n in range(count) if n % 100 != 7]


def test_reasons_hide_secrets_and_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the errors of a script are."""
    monkeypatch.setenv("TOKEN", "a-long-secret")

    def run(rows: pd.DataFrame, context: daskprs.MiniBatchContext) -> pd.DataFrame:
        context.fail([0], "refused a-long-secret " + "x" * 5_000)
        return rows[1:]

    result = score(tmp_path, table(32, {}), run, on_error="raise", secrets=["TOKEN"])
    reason = result.failed_rows["_error"][0]
    assert reason.startswith("refused ***")
    assert len(reason) < 2_100


def test_a_script_cannot_name_rows_that_it_did_not_get(tmp_path: Path) -> None:
    """The attempt fails, and says what was wrong."""

    def run(rows: pd.DataFrame, context: daskprs.MiniBatchContext) -> pd.DataFrame:
        context.fail([len(rows)], "one too many")
        return rows

    with pytest.raises(daskprs.ParallelRunFailed, match=r"named position 32, and run\(\) got 32"):
        score(tmp_path, table(64, {}), run, on_error="raise")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_error": "drop", "allowed_failed_count": 1}, "which allows all"),
        ({"partition_keys": "what", "size": None}, "all rows of a key"),
        ({"output_action": "summary_only"}, "independent_rows=True"),
        ({"on_error": "null", "output_action": "summary_only"}, "drops what run"),
        (
            {"on_error": "null", "schema": {"n": int}},
            r"lacks that column.* schema={'_error': 'string'}",
        ),
        ({"on_error": "null", "schema": {"_error": int}}, "says that it is int64"),
        (
            {"on_error": "null", "schema": pa.schema([pa.field("n", pa.int64(), False), ERROR])},
            r"allows no nulls in \['n'\]",
        ),
        ({"on_error": "ignore"}, "on_error"),
    ],
)
def test_what_has_no_meaning_is_refused(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    """Before anything starts."""
    size = options.pop("size", "32 rows")
    with pytest.raises(daskprs.errors.OptionError, match=text):
        score(tmp_path, table(64, {}), size=size, **options)
    assert not (tmp_path / "job").exists()


MILLION = """
import os, signal, time

broken = False

def note(what):
    with open(os.environ["NOTES"], "a") as file:
        file.write(what)

def init():
    note("i")

def run(rows, context):
    global broken
    note("r" if context.piece is None else "p")
    if broken:
        raise ConnectionError("the process is broken")
    numbers = rows["n"]
    for n in numbers[numbers % 10_000 == 7_437]:
        kind = n // 10_000 % 5
        broken = POISONS
        if kind < 2:
            raise ValueError(f"bad {n}")
        if kind < 4:
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(1000)
    return rows
"""
"""Of each hundred bad rows, 40 raise, 40 crash, and 20 hang."""


@pytest.mark.long
@pytest.mark.timeout(1800)  # as in `make test-long`, also where it is run by its name
@pytest.mark.processes
@pytest.mark.parametrize("poisons", [False, True], ids=["whole", "broken"])
def test_a_hundred_bad_rows_of_a_million(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, poisons: bool
) -> None:
    """All others are committed once; the search costs some twenty calls for each bad row.

    Mini-batches take milliseconds: what a process had done and not yet told when it died runs
    again. How many these are depends on the machine.
    """
    notes = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    count = 1_000_000
    result = score(
        tmp_path,
        pd.DataFrame({"n": range(count)}),
        MILLION.replace("POISONS", str(poisons)),
        "1000 rows",
        process_count_per_node=2,
        run_invocation_timeout=10,
    )
    assert result.items == (count, count - 100, 100)
    failed = result.failed_rows
    assert failed["n"].tolist() == failed["_position"].tolist() == [*range(7_437, count, 10_000)]
    causes = failed["_kind"].value_counts().to_dict()
    assert causes == {"ValueError": 40, "PROCESS_DIED": 40, "TimeoutError": 20}
    rows = result.to_pandas()["n"].to_numpy()
    assert len(rows) == count - 100
    assert (rows[1:] > rows[:-1]).all()
    whole, pieces, inits = (notes.read_text().count(one) for one in "rpi")
    print(f"{pieces} calls for pieces, {whole - 1000} more for others, {inits} processes")
    if not poisons:
        assert pieces <= 1_500
        dead = 60  # of which each search ends about ten processes
        assert inits <= 2 + dead * 13


def test_rows_of_a_lost_commit_are_listed_no_more(tmp_path: Path) -> None:
    """Its mini-batch runs again, and fails as a whole."""
    data, output = table(96, {5: "raises", 40: "raises"}), tmp_path / "rows.csv"
    assert score(tmp_path, data, output=output).failed_rows["_number"].tolist() == [5, 8]
    output.write_bytes(output.read_bytes().replace(b"1,2", b"1,3"))
    again = {"output": output, "overwrite": True, "resume": True, "allowed_failed_count": 2}
    result = score(tmp_path, data, on_error="raise", **again)
    assert result.failed["mini_batch"].tolist() == [0, 1]
    assert result.failed_rows.empty


def test_a_bad_row_names_its_process_however_small_its_mini_batch_is(tmp_path: Path) -> None:
    """A mini-batch of one row is not searched: its last try has found it."""
    result = score(tmp_path, table(3, {1: "raises"}), size="1 row")
    (row,) = result.failed_rows.to_dict("records")
    assert (row["_mini_batch"], row["_process"]) == (1, "process000")
    assert row["_host"]


def test_a_mini_batch_that_waited_in_vain_keeps_the_process_of_its_last_attempt(
    tmp_path: Path,
) -> None:
    """It is given up when another process has returned, whose output is of another mini-batch."""

    def run(rows: pd.DataFrame) -> None:
        print("row", rows["n"].iloc[0])
        raise ValueError("no row is right")

    with pytest.raises(daskprs.ParallelRunFailed) as failed:
        score(tmp_path, table(4, {}), run, "1 row", independent_rows=True, allowed_failed_count=-1)
    result = failed.value.result
    assert result is not None
    assert [result.stdout(number) for number in range(4)] == [f"row {n}\n" for n in range(4)]
    count = 0
    for attempts in pd.read_parquet(tmp_path / "job" / "failed.parquet")["attempts"]:
        numbers = [one["attempt"] for one in attempts]
        assert numbers == [*range(1, len(numbers) + 1)]  # each once
        count += len(numbers)
    folder = JobFolder(tmp_path / "job")
    assert pd.read_csv(folder.process_summary)["Attempts Failed"].sum() == count
    logs = folder.node_log(0).parent.glob("process*.txt")
    assert sum(log.read_text().count("|RUN_EXCEPTION|") for log in logs) == count
    assert folder.job_error.read_text().startswith(f"{count} × ValueError: no row is right\n")
    contents = report_of(folder)
    (cause,) = contents.causes
    assert (contents.attempts_failed, cause.attempts, cause.given_up) == (count, count, 4)
