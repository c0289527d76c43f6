"""The keys of a lazy collection: they name what its rows depend on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import pytest

import daskprs

if TYPE_CHECKING:
    from pathlib import Path


def run(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows."""
    return rows


def keys(**options: Any) -> list[Any]:
    """Return the keys of a collection whose partitions run in tasks."""
    data = dd.from_pandas(pd.DataFrame({"n": range(4)}), npartitions=2)
    made = daskprs.map_batches(data, run, schema={"n": "int64"}, committed=False, **options)
    return list(made.__dask_keys__())


def test_the_value_of_a_secret_makes_no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler shows keys; a digest of a short secret could be tried out."""
    made = []
    for value in ("first-value", "other-value"):
        monkeypatch.setenv("TOKEN", value)
        made.append((keys(secrets=["TOKEN"]), keys(environment_variables={"A": value})))
    assert made[0][0] == made[1][0]
    assert made[0][1] != made[1][1]


@pytest.mark.long
def test_a_frame_of_parquet_has_the_same_name_in_each_process_until_its_files_change(
    tmp_path: Path,
) -> None:
    """Dask's own name is another one each time, so that all would run again without a word."""
    for number in range(2):
        pd.DataFrame({"a": [number]}).to_parquet(tmp_path / f"{number}.parquet")
    program = (
        "import dask.dataframe as dd\n"
        "from daskprs._inputs.collections.collection_graph import collection_graph, stable_name\n"
        f"read = dd.read_parquet({str(tmp_path)!r})\n"
        "frame = read[read.a > 0].merge(read, on='a')\n"
        f"arrow = dd.read_parquet({tmp_path.as_uri()!r}, filesystem='arrow')\n"
        "frames = [read, frame, arrow]\n"
        "print(collection_graph(frame).token, *(stable_name(one.expr) for one in frames))\n"
    )

    def names() -> list[bytes]:
        words = [sys.executable, "-c", program]
        return subprocess.run(words, capture_output=True, check=True).stdout.split()

    first = names()
    assert len({*first}) == 4
    assert names() == first
    os.utime(tmp_path / "0.parquet")
    assert not {*names()} & {*first}
