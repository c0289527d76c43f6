"""A given schema in whole jobs: kept rows, data sets, resumes and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import daskprs
from daskprs import OptionError, ParallelRunFailed
from daskprs._cli import main
from daskprs.errors import JobChanged
from tests.support.versions import TEXT, dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("inline")

ROWS = 300
TABLE = pd.DataFrame({"x": range(ROWS), "key": list("abc") * 100})
OPTIONS: dict[str, Any] = {"process_count_per_node": 2, "progress": False}
SCHEMA = {"n": "Int32", "word": "string"}


def fickle(rows: Any) -> Any:
    """Return other types for each mini-batch, and the columns in another order."""
    x = pd.Series(np.array(rows["x"]), index=getattr(rows, "index", None))
    kind = int(x.iloc[0]) % 3
    frame = pd.DataFrame({"word": x.astype(str), "n": x})
    if kind == 1:
        frame["word"] = None
        frame["n"] = x.where(x % 2 == 0)
    return frame if kind else pa.Table.from_pandas(frame, preserve_index=False)


def expected(x: pd.Series, first: Callable[[int], int]) -> list[tuple[Any, Any]]:
    """Return what `fickle` returns for some rows; `first` is the first one of its mini-batch."""
    return [
        (None if one % 2 else one, None) if first(one) % 3 == 1 else (one, str(one)) for one in x
    ]


def found(result: daskprs.ParallelRunResult) -> list[tuple[Any, Any]]:
    """Return the kept rows."""
    table = result.to_arrow()
    assert table.schema.field("n").type == pa.int32()
    return list(zip(table["n"].to_pylist(), table["word"].to_pylist(), strict=True))


def test_kept_rows_have_the_schema_whatever_run_returned(tmp_path: Path) -> None:
    """Text beside them, too; the rows of a frame keep their labels."""
    frame = TABLE.set_index("x", drop=False)
    result = daskprs.parallel_run(
        frame,
        lambda rows: fickle(rows)[::-1] if isinstance(fickle(rows), pd.DataFrame) else fickle(rows),
        schema=SCHEMA,
        mini_batch_size=1700,
        output_dir=tmp_path / "out",
        append_row_dataframe_header=True,
        keep_rows=True,
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    assert result.mini_batches.total > 1
    rows = result.to_pandas()
    assert dict(rows.dtypes.map(str)) == {"n": "Int32", "word": str(dtype_of("str"))}
    there = rows["n"].notna()
    assert list(rows.index[there]) == list(rows["n"][there])
    assert result.output_file is not None
    assert result.output_file.read_text().startswith("n word\n")
    assert pa.RecordBatchReader.from_stream(result).schema.field("n").type == pa.int32()


@pytest.mark.parametrize("batch_format", ["pandas", "pyarrow", "polars", "numpy"])
def test_by_keys_in_any_format(tmp_path: Path, batch_format: str) -> None:
    """The first mini-batch begins with 0, the second with 1, the third with 2."""
    result = daskprs.parallel_run(
        TABLE,
        fickle,
        schema=SCHEMA,
        batch_format=batch_format,
        partition_keys="key",
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    by_key = TABLE.sort_values("key", kind="stable")["x"]
    assert found(result) == expected(by_key, lambda one: one % 3)


@pytest.mark.processes
def test_a_data_set_of_a_dask_frame(tmp_path: Path) -> None:
    """Its files have the schema, whichever mini-batch was first."""
    result = daskprs.parallel_run(
        dd.from_pandas(TABLE[["x"]], npartitions=3),
        fickle,
        schema=pa.schema([("n", pa.uint16()), ("word", pa.large_string())]),
        output_format="parquet",
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    assert result.output_file is not None
    table = pq.read_table(result.output_file)
    assert table.schema.remove_metadata() == pa.schema(
        [("n", pa.uint16()), ("word", pa.large_string())]
    )
    rows = list(zip(table["n"].to_pylist(), table["word"].to_pylist(), strict=True))
    assert rows == expected(TABLE["x"], lambda one: one // 100 * 100)


def test_elements_are_the_column_result_beside_included_ones(tmp_path: Path) -> None:
    """Of lists and of generators; both options work together."""
    (tmp_path / "a.txt").write_text("aa")
    (tmp_path / "b.txt").write_text("b")
    options: dict[str, Any] = {"schema": {"path": "string", "result": "int8"}, **OPTIONS}
    result = daskprs.parallel_run(
        tmp_path / "*.txt",
        lambda paths: [float(len(Path(path).read_text())) for path in paths],
        include_columns=["path"],
        job_dir=tmp_path / "job",
        **options,
    )
    assert result.to_arrow().to_pydict() == {
        "path": [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")],
        "result": [2, 1],
    }
    result = daskprs.parallel_run(
        TABLE,
        lambda rows: (None if one % 2 else int(one) for one in rows["x"]),
        schema={"result": "int16"},
        job_dir=tmp_path / "generator",
        **OPTIONS,
    )
    table = result.to_arrow()
    assert table.schema.field("result").type == pa.int16()
    assert table["result"].to_pylist() == [None if one % 2 else one for one in range(ROWS)]


def test_an_empty_result_keeps_the_schema(tmp_path: Path) -> None:
    """Of an input without rows, too, and in a data set."""
    frame = pd.DataFrame({"n": pd.Series(dtype="Int32"), "word": pd.Series(dtype=TEXT)})
    result = daskprs.parallel_run(
        TABLE[:0], fickle, schema=frame, job_dir=tmp_path / "none", **OPTIONS
    )
    types = {**frame.dtypes, "word": dtype_of("str")}
    assert dict(result.to_pandas().dtypes) == types
    assert result.to_arrow().schema.field("n").type == pa.int32()
    result = daskprs.parallel_run(
        TABLE,
        lambda rows: pd.DataFrame({"word": [], "n": []}) if rows["x"].iloc[0] else fickle(rows)[:1],
        schema=frame,
        output_format="parquet",
        keep_rows=True,
        job_dir=tmp_path / "some",
        mini_batch_size=1700,
        allowed_failed_count=-1,
        **OPTIONS,
    )
    assert len(result.to_pandas(ignore_index=True)) == 1
    assert result.output_file is not None
    assert pq.read_table(result.output_file).num_rows == 1
    assert dict(pd.read_parquet(result.output_file).dtypes) == types


def test_a_lost_value_fails_the_mini_batch_at_once(tmp_path: Path) -> None:
    """Budgets may allow it. A resume has to have the same schema."""
    job: dict[str, Any] = {"job_dir": tmp_path / "job", "mini_batch_size": 1700, **OPTIONS}

    def halves(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": rows["x"] / (2 if rows["x"].iloc[0] >= 200 else 1)})

    with pytest.raises(ParallelRunFailed) as caught:
        daskprs.parallel_run(TABLE, halves, schema={"n": "int64"}, **job)
    said = str(caught.value)
    assert "column 'n' is double in mini-batch" in said
    assert "and schema says int64: values would be lost, as row" in said
    assert "Traceback" not in said  # all frames would be of daskprs and Arrow
    failed = pd.read_parquet(caught.value.result.job_dir / "failed.parquet")
    assert list(failed["attempts"].map(len)) == [1] * len(failed)
    with pytest.raises(JobChanged, match="schema"):
        daskprs.parallel_run(TABLE, halves, schema={"n": "float64"}, resume=True, **job)
    result = daskprs.parallel_run(
        TABLE, halves, schema={"n": "int64"}, resume=True, allowed_failed_count=-1, **job
    )
    assert result.to_pandas()["n"].tolist() == list(range(len(result.to_pandas())))


def test_text_alone_has_no_types(tmp_path: Path) -> None:
    """The option would do nothing."""
    with pytest.raises(OptionError, match=r"schema: the output is text, .* keep_rows=True, or"):
        daskprs.parallel_run(TABLE, fickle, schema=SCHEMA, output_dir=tmp_path / "out")


@pytest.mark.long
@pytest.mark.processes
def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag for each column; a resume takes them from the saved call."""
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("x.csv", index=False)
    (tmp_path / "score.py").write_text(
        "import os\n\n\n"
        "def run(rows):\n"
        "    assert os.path.exists(os.environ['THERE'])\n"
        "    return rows[['x']]\n"
    )
    monkeypatch.setenv("THERE", str(tmp_path / "there"))
    words = "run score.py x.csv --output-dir out --job-dir job --quiet --output-format parquet"
    flags = ["--schema", "x=timestamp[s]"]
    failed = CliRunner().invoke(main, [*words.split(), "--schema", "x=Int16"])
    assert failed.exit_code
    (tmp_path / "there").touch()
    wrong = CliRunner().invoke(main, [*words.replace(" job ", " other ").split(), *flags])
    assert wrong.exit_code
    assert "column 'x' is int64 in mini-batch 0, and schema says timestamp[s]" in wrong.output
    resumed = CliRunner().invoke(main, ["resume", "job", "--quiet"])
    assert not resumed.exit_code, resumed.output
    read = pd.read_parquet("out/parallel_run_step.parquet")
    assert str(read["x"].dtype) == "Int16"
