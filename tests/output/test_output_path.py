"""The option `output`: the form and the place of the output by one path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import daskprs
from daskprs import OptionError
from daskprs._cli import main
from daskprs._inputs.files.listed_again import listing_of
from daskprs._job import checked_output
from daskprs.errors import JobChanged, OutputError, ParallelRunFailed
from tests.support.object_store import object_store

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("inline")

FRAME = pd.DataFrame({"id": [f"{n:03}" for n in range(30)], "n": range(30)})
READERS: dict[str, Callable[[Any], pd.DataFrame]] = {
    "scores.csv": lambda file: pd.read_csv(file, dtype={"id": str}),
    "scores.jsonl": lambda file: pd.read_json(file, lines=True, dtype={"id": str}),
    "scores.parquet": pd.read_parquet,
    "scores.arrow": pd.read_feather,
    "scores": pd.read_parquet,
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let relative paths lie in an empty folder."""
    monkeypatch.chdir(tmp_path)


def doubled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a column more."""
    return rows.assign(m=rows["n"] * 2)


EXPECTED = doubled(FRAME)


def scored(run: Any = doubled, data: Any = FRAME, **given: Any) -> daskprs.ParallelRunResult:
    """Run a job of several mini-batches."""
    options = {"mini_batch_size": 150, "progress": False, **given}
    return daskprs.parallel_run(data, run, **options)


@pytest.mark.parametrize("name", READERS)
def test_the_suffix_says_the_form_and_each_keeps_the_types(name: str, tmp_path: Path) -> None:
    """Text that looks like a number stays text, in pandas and in Dask."""
    result = scored(output=f"deep/er/{name}")
    assert result.output_file == tmp_path / "deep/er" / name
    assert result.output_file.is_dir() == (name == "scores")
    assert result.mini_batches.total > 2
    pd.testing.assert_frame_equal(READERS[name](result.output_file), EXPECTED, check_dtype=False)
    pd.testing.assert_frame_equal(result.to_pandas(), EXPECTED, check_dtype=False)
    frame = result.to_dask_dataframe()
    assert isinstance(frame, dd.DataFrame)
    assert list(frame.compute()["id"]) == list(FRAME["id"])
    assert [one.name for one in (tmp_path / "deep/er").iterdir()] == [name]


def test_text_by_a_suffix_has_the_labels_of_the_input() -> None:
    """As without any output."""
    labelled = FRAME.set_axis(FRAME["id"].add("x").to_list())
    assert list(scored(data=labelled, output="a.csv").to_pandas().index) == list(labelled.index)


@pytest.mark.parametrize(
    ("returned", "cells"),
    [
        (lambda rows: [f"{one}, {one}" for one in rows["id"]], '"{0}, {0}"'),
        (lambda rows: (f"{one}, {one}" for one in rows["id"]), '"{0}, {0}"'),
        (lambda rows: rows["n"].to_numpy(), "{1}"),
        (lambda rows: [{"n": one} for one in rows["n"]], "{{'n': {1}}}"),
        (lambda rows: [np.arange(2) + one for one in rows["n"]], "[{1} {2}]"),
        (lambda rows: pa.array(rows["n"]), "{1}"),
    ],
    ids=["list", "generator", "array", "dicts", "arrays", "array of Arrow"],
)
def test_a_csv_file_is_a_table_whatever_run_returns(returned: Any, cells: str) -> None:
    """Elements are the column of the other forms: a reader takes none of them for a header."""
    result = scored(returned, output="a.csv")
    lines = Path("a.csv").read_text().splitlines()
    whole = [cells.format(f"{n:03}", n, n + 1).replace("[9 10]", "[ 9 10]") for n in range(30)]
    assert lines == ["result", *whole]
    assert list(result.to_pandas().columns) == list(pd.read_csv("a.csv").columns) == ["result"]


@pytest.mark.parametrize("output", [None, *READERS])
def test_an_input_without_rows_gives_no_column(output: str | None) -> None:
    """Those of the input need not be those of what `run` returns, which returned nothing."""
    empty = pd.DataFrame({"a": pd.Series([], dtype="int64")})
    result = daskprs.parallel_run(
        empty, lambda rows: pd.DataFrame({"score": rows["a"] * 2.0}), output=output, progress=False
    )
    assert result.to_pandas().shape == (0, 0)
    assert result.to_arrow().shape == (0, 0)


def test_options_for_the_same_are_refused_by_name() -> None:
    """Nothing is made."""
    said = r"^output='.*/a\.csv': not with output_dir='out'\. .* Give that alone"
    with pytest.raises(OptionError, match=said):
        scored(output="a.csv", output_dir="out")
    said = r"not for a lazy collection, whose rows Dask writes, such as by to_parquet\(\)"
    with pytest.raises(OptionError, match=f"^output='a.parquet': {said}"):
        daskprs.map_batches(dd.from_pandas(FRAME), doubled, schema=EXPECTED[:0], output="a.parquet")  # type: ignore[call-arg]
    assert not [*Path().iterdir()]


def test_messages_name_the_option_of_the_call() -> None:
    """Not those that it stands for."""
    scored(output="a.csv")
    with pytest.raises(OutputError, match=r"write elsewhere by another output\.$"):
        scored(output="a.csv")
    with pytest.raises(OutputError, match=r"^output='.*/a\.csv/b\.csv': .*/a\.csv is not a folder"):
        scored(output="a.csv/b.csv")
    scored(output="a.csv", overwrite=True)
    filesystem = fsspec.filesystem("memory")

    def beside(rows: pd.DataFrame) -> pd.DataFrame:
        filesystem.pipe_file("/bucket/a.csv", b"of another job")
        return rows

    with pytest.raises(ParallelRunFailed, match=r"write elsewhere by another output\."):
        scored(beside, output="memory://bucket/a.csv")
    filesystem.rm("/bucket", recursive=True)
    lines = scored(output_dir="lines")
    with pytest.raises(OptionError, match=r"^to_pandas: .* output='rows\.csv' \(or \.parquet"):
        lines.to_pandas()


def test_a_resume_knows_the_output_and_may_write_it_elsewhere(tmp_path: Path) -> None:
    """Another form would mix two in one file."""
    mend = tmp_path / "mend"
    FRAME.to_csv("in.csv", index=False)
    given: dict[str, Any] = {"data": "in.csv", "dtypes": {"id": "str"}, "mini_batch_size": 60}
    Path("score.py").write_text(
        "from pathlib import Path\n"
        "def run(rows):\n"
        f"    assert rows['n'].max() < 17 or Path({str(mend)!r}).exists()\n"
        "    return rows\n"
    )
    for number, name in enumerate(["a.csv", "a.jsonl", "a.parquet"]):
        job = f"job{number}"
        with pytest.raises(ParallelRunFailed):
            scored("score.py", **given, output=name, job_dir=job, run_max_try=1)
        assert not Path(name).exists()
        for other in ("b.csv", "a.arrow"):
            with pytest.raises(JobChanged, match=f"output was '{name}' and is '{other}'"):
                scored("score.py", **given, output=other, job_dir=job, resume=True)
        mend.touch()
        done = CliRunner().invoke(main, ["resume", job], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert list(READERS[f"scores{Path(name).suffix}"](name)["id"]) == list(FRAME["id"])
        again = scored("score.py", **given, output=f"else/{name}", job_dir=job, resume=True)
        assert again.output_file == tmp_path / "else" / name
        assert list(again.to_pandas()["id"]) == list(FRAME["id"])
        mend.unlink()


@pytest.mark.processes
def test_periods_are_their_text_in_json(tmp_path: Path) -> None:
    """Though processes without pandas write the file."""
    months = pd.PeriodIndex(["2020-01", None], freq="M")
    result = daskprs.parallel_run(
        pd.DataFrame({"n": [1, 2]}),
        lambda rows: rows.assign(month=months),
        output=str(tmp_path / "rows.jsonl"),
        job_dir=tmp_path / "job",
    )
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert lines == ['{"n":1,"month":"2020-01"}', '{"n":2,"month":null}']
    assert result.to_pandas()["month"].dtype == "period[M]"


@pytest.mark.processes
def test_a_script_may_lie_beside_its_output(tmp_path: Path) -> None:
    """The output is no source of the script, and what lies around it is."""
    FRAME.to_csv("in.csv", index=False)
    Path("two.py").write_text("TWO = 2\n")
    Path("score.py").write_text(
        "import two\ndef run(rows):\n    return rows.assign(m=rows['n'] * two.TWO)\n"
    )
    words = ["run", "score.py", "in.csv", "--dtype", "id=str", "--output", "scores.csv"]
    words += ["--quiet", "--job-dir"]
    for count, more in enumerate(([], ["--overwrite"])):
        done = CliRunner().invoke(main, [*words, f"job{count}", *more], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert str(tmp_path / "scores.csv") in done.output
        pd.testing.assert_frame_equal(READERS["scores.csv"]("scores.csv"), EXPECTED)
    wrong = CliRunner().invoke(main, [*words, "job", "--output-dir", "a"])
    assert wrong.exit_code == 2
    assert f"--output {tmp_path}/scores.csv: not with --output-dir a." in wrong.output


@pytest.mark.parametrize("name", READERS)
def test_an_output_may_be_a_url(name: str) -> None:
    """Of a store of objects, or of any file system of fsspec."""
    filesystem = fsspec.filesystem("memory")
    try:
        result = scored(output=f"memory://bucket/{name}")
        assert result.output_file == f"memory://bucket/{name}"
        filesystem.get(f"/bucket/{name}", "copy", recursive=name == "scores")
        pd.testing.assert_frame_equal(READERS[name]("copy"), EXPECTED, check_dtype=False)
        assert list(result.to_pandas()["id"]) == list(FRAME["id"])
        assert list(result.to_dask_dataframe().compute()["m"]) == list(EXPECTED["m"])
        with pytest.raises(OutputError, match=r"exists\. .* by another output\.$"):
            scored(output=f"memory://bucket/{name}")
    finally:
        filesystem.rm("/bucket", recursive=True)


IN_A_BUCKET = """
import os, pandas as pd, daskprs, daskprs.errors

if __name__ == "__main__":
    for name in ("scores.csv", "scores"):
        frame = pd.DataFrame({"id": ["007", "008"]})
        url = f"s3://rows/out/{name}"
        result = daskprs.parallel_run(frame, list_of, output=url, progress=False)
        assert result.output_file == url
        assert list(result.to_pandas()["result"]) == ["007", "008"]
        for overwrite in (False, True):
            try:
                given = {"output": f"s3://lacking/{name}", "overwrite": overwrite, "job_dir": "job"}
                daskprs.parallel_run(frame, list_of, **given)
            except daskprs.errors.OutputError as error:
                there_is_none = "There is no bucket 'lacking' in this store. Create the bucket"
                assert str(error).startswith(f"output='s3://lacking/{name}': {there_is_none}")
            else:
                raise AssertionError
        assert not os.path.exists("job")
""".replace("list_of", "lambda rows: list(rows['id'])")


@pytest.mark.long
@pytest.mark.processes
def test_an_output_may_be_in_a_bucket(tmp_path: Path) -> None:
    """A file is there as a whole, and a folder with its manifest; a bucket has to exist."""
    with object_store(tmp_path / "log") as store:
        store.put("rows")
        environment = {**os.environ, **store.environment}
        subprocess.run([sys.executable, "-c", IN_A_BUCKET], env=environment, check=True)
        assert store.get("rows/out/scores.csv") == b"result\n007\n008\n"
        names = store.names("rows")
        assert "out/scores/_manifest.json" in names
        assert len(names) == 3


def test_times_have_one_form_in_the_whole_file(tmp_path: Path) -> None:
    """In a mini-batch of midnights, pandas would write dates; then the column is text for it."""
    hours = pd.date_range("2024-01-01", periods=48, freq="12h")
    frame = pd.DataFrame(
        {"when": hours, "there": hours.tz_localize("UTC"), "took": hours - hours[0]}
    )
    frame.loc[3] = None
    result = daskprs.parallel_run(
        frame,
        lambda rows: rows,
        mini_batch_size="1 rows",
        output=tmp_path / "x.csv",
        job_dir=tmp_path / "job",
        start_method="inline",
    )
    read = pd.read_csv(result.output_file, parse_dates=["when", "there"])
    read["took"] = pd.to_timedelta(read["took"])
    pd.testing.assert_frame_equal(read, frame, check_dtype=False)
    pd.testing.assert_frame_equal(result.to_pandas(), frame)


@pytest.mark.parametrize(
    ("data", "places", "text"),
    [
        ("in", {"output": "in/out.parquet"}, r"^output='.*/in/out.parquet': it would be read in"),
        ("in", {"output": "in/out"}, "the next run with the input 'in'. Write to a place outside"),
        ("in/*.csv", {"output": "in/a.csv", "overwrite": True}, r"replace files of .* 'in/\*.csv'"),
        ("in", {"output_dir": "in"}, r"^output_dir='.*/in': .*/in/parallel_run_step.txt would be"),
        ("memory://twice/in", {"output": "memory://twice/in/out.csv"}, "would be read in the next"),
    ],
)
def test_an_output_that_would_be_input_is_refused(
    data: str, places: dict[str, Any], text: str, tmp_path: Path
) -> None:
    """Before anything starts; a resume of such a job goes on."""
    (tmp_path / "in").mkdir()
    FRAME.to_csv(tmp_path / "in" / "a.csv", index=False)
    fsspec.filesystem("memory").pipe("/twice/in/a.csv", b"n\n1\n")
    with pytest.raises(OptionError, match=text):
        scored(data=data, job_dir="job", **places)
    assert not (tmp_path / "job").exists()
    assert [one.name for one in Path("in").iterdir()] == ["a.csv"]


def test_an_output_in_the_job_folder_is_no_input_of_what_lists_the_folder(tmp_path: Path) -> None:
    """Listings leave folders of jobs out, but for those that they name."""
    (tmp_path / "in" / "job").mkdir(parents=True)
    FRAME.to_csv(tmp_path / "in" / "a.csv", index=False)
    job = str(tmp_path / "in" / "job")
    out = f"{job}/out.csv"
    for data in ("in", "in/*", "in/*/*.csv", "in/job/*", "in/job"):
        found = listing_of(str(tmp_path / data), out, out, skips_hidden=True, job=job)
        assert (found is not None) == ("job" in data), data
    assert scored(data="in", job_dir="in/job", output="in/job/out.csv").output_file is not None


def test_a_job_that_has_begun_with_an_output_among_its_input_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun when that was allowed."""
    (tmp_path / "in").mkdir()
    FRAME.to_csv(tmp_path / "in" / "a.csv", index=False)
    go = tmp_path / "go"

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        if not go.exists():
            raise ValueError("not yet")
        return rows

    given = {"data": "in", "job_dir": "job", "output": "in/out.csv", "resume": True}
    with monkeypatch.context() as patched:
        patched.setattr(checked_output, "_refuse_input", lambda *_, **__: None)
        with pytest.raises(ParallelRunFailed, match="not yet"):
            scored(run, **given)
    go.touch()
    assert len(scored(run, **given).to_pandas()) == len(FRAME)
