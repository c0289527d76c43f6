"""What stands where a data set is to go, and what takes its place later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

import daskprs
from daskprs.errors import JobChanged, JobFolderError, OptionError, OutputError
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame({"n": range(6), "town": ["Lima", "Rome"] * 3})


def job(folder: Path, script: Any = lambda rows: rows, **options: Any) -> Any:
    """Run a job that makes a data set."""
    return daskprs.parallel_run(
        FRAME,
        script,
        **{
            "output_dir": folder / "out",
            "job_dir": folder / "job",
            "output_format": "parquet",
            "process_count_per_node": 1,
            "progress": False,
            **options,
        },
    )


@pytest.mark.parametrize("manifest", ["{}", '{"daskprs_data_set": 1, "files": []}', None])
def test_files_of_others_are_never_replaced(tmp_path: Path, manifest: str | None) -> None:
    """Before the job, though a file is called as our manifest, and when it is published."""
    target = tmp_path / "out" / "parallel_run_step.parquet"
    precious = target / "sub" / "precious.txt"

    def put(_: Any = None) -> pd.DataFrame:
        precious.parent.mkdir(parents=True)
        precious.write_text("mine")
        if manifest is not None:
            (target / "_manifest.json").write_text(manifest)
        return FRAME

    if manifest is None:
        with pytest.raises(daskprs.ParallelRunFailed, match=r"holds sub/precious.txt, which"):
            job(tmp_path, put)
    else:
        put()
        with pytest.raises(OutputError, match=r"holds .*, which does not belong"):
            job(tmp_path, overwrite=True)
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("single", mostly_long([False, True], suite=[False]))
def test_a_result_never_reads_the_rows_of_another_job(tmp_path: Path, *, single: bool) -> None:
    """Which has taken the place of its data set, also where a collection was made before."""
    old = job(tmp_path / "a", output_dir=tmp_path / "out", output_single_file=single)
    lazy = old.to_dask_dataframe()
    assert len(old.to_arrow()) == len(FRAME)
    job(
        tmp_path / "b",
        lambda rows: -rows[["n"]],
        output_dir=tmp_path / "out",
        output_single_file=single,
        overwrite=True,
    )
    for read in (old.to_arrow, old.to_pandas, old.to_dask_dataframe, lazy.compute):
        with pytest.raises(JobFolderError, match="has been replaced or changed"):
            read()


def test_a_resume_keeps_the_layout(tmp_path: Path) -> None:
    """Else one data set would have files of two kinds."""
    job(tmp_path)
    with pytest.raises(JobChanged, match="output"):
        job(
            tmp_path,
            output_partition_by="town",
            resume=True,
            accept_changes=["options"],
        )
    with pytest.raises(OptionError, match="readers of data sets skip"):
        job(tmp_path / "b", output_partition_by="_town")


def test_nulls_change_no_integer_and_make_a_folder(tmp_path: Path) -> None:
    """In a frame of pandas, too."""
    large = 2**53 + 1
    rows = pa.table({"n": [large, None, 3], "town": pa.array([None] * 3, pa.string())})
    result = job(tmp_path, lambda _: rows, output_partition_by="town")
    assert result.to_pandas(ignore_index=True)["n"].tolist() == [large, None, 3]
    assert result.to_arrow().column("town").null_count == len(rows)
