"""Keys over a dask DataFrame: whatever their type, the output is that over the pandas frame."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.distributed import LocalCluster

import daskprs
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCRIPT = """
def run(rows):
    key = rows["key"].iloc[0]
    return [f"{len(rows)} {key!r} {type(key).__name__} {rows['key'].dtype} {list(rows['row'])}"]
"""
ROWS = 400
ZONE = ZoneInfo("Europe/Berlin")
NOON = pd.Timestamp(2024, 10, 27, 12, tz=ZONE)


def objects(values: Sequence[Any]) -> pd.Series:
    """Return a column of any objects, with a row for each."""
    cells = np.empty(ROWS, dtype=object)
    for row in range(ROWS):
        cells[row] = values[row * 7 % len(values)]
    return pd.Series(cells)


KEYS: dict[str, pd.Series] = {
    "null": objects(["Ulm", None, "Aachen"]),
    "text": objects(["Ulm", None, "Aachen"]).astype("str"),
    "NaN and zeros": objects([0.0, -0.0, float("nan"), 1.5]).astype("float64"),
    "small floats": objects([0.0, -0.0, float("nan"), 1.5]).astype("float32"),
    "Int64": objects([3, None, 2**60 + 1]).astype("Int64"),
    "boolean": objects([True, None, False]).astype("boolean"),
    "mixed": objects(["1", 1, 1.0, True, None, b"1", Decimal(1), float("nan"), "x"]),
    "tuples": objects([("Ulm", 1), ("Ulm", 1.0), ("Ulm", 2), (), (None,)]),
    "categories": objects(["Ulm", None, "Aachen"]).astype(
        pd.CategoricalDtype(["Zwickau", "Ulm", "Aachen"])
    ),
    "ordered categories": objects([3, 1]).astype(pd.CategoricalDtype([3, 2, 1], ordered=True)),
    "times with a zone": objects(
        [NOON - pd.Timedelta(hours=hours) for hours in (9, 10, 11)] + [pd.NaT]
    ).astype("datetime64[ns, Europe/Berlin]"),
    "objects of time": objects([NOON, NOON.tz_convert("UTC"), NOON.to_pydatetime(), pd.NaT]),
    "days": objects([dt.date(2024, 5, 1), dt.date(2024, 5, 2), None]),
    "durations": objects([pd.Timedelta(1, "s"), pd.NaT]).astype("timedelta64[ns]"),
}


def part(begin: int, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a partition of a frame."""
    return frame.iloc[begin : begin + ROWS // 5]


def output(data: Any, folder: Path, client: str | None) -> bytes:
    """Return the bytes of the output."""
    result = daskprs.parallel_run(
        data,
        folder.parents[1] / "script" / "script.py",
        partition_keys="key",
        client=client,
        job_dir=folder,
        output_dir=folder.with_name(f"{folder.name}-out"),
        process_count_per_node=2 if client is None else None,
        progress=False,
    )
    assert result.output_file is not None
    return result.output_file.read_bytes()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_dask_frame_is_grouped_as_a_pandas_frame(tmp_path: Path) -> None:
    """The same order of the groups, and the same rows in each."""
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "script.py").write_text(SCRIPT)
    wrong = []
    with (
        dask.config.set({"dataframe.convert-string": False}),  # else Dask changes objects
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
    ):
        for kind, key in KEYS.items():
            frame = pd.DataFrame({"key": key, "row": np.arange(ROWS)})
            lazy = dd.from_map(part, range(0, ROWS, ROWS // 5), frame=frame, meta=frame.iloc[:0])
            meant = output(frame, tmp_path / "pandas" / kind, None)
            found = output(lazy, tmp_path / "dask" / kind, cluster.scheduler_address)
            if found != meant:
                wrong.append((kind, found[:500], meant[:500]))
    assert not wrong


@pytest.mark.parametrize(
    "kind",
    mostly_long([pd.DataFrame, partial(dd.from_pandas, npartitions=2)], suite=[pd.DataFrame]),
)
def test_columns_without_names_are_keys_by_their_numbers(kind: Any) -> None:
    """Of both kinds of frames; a column whose name is the same number as text is another one."""
    frame = pd.DataFrame({0: [1, 1, 2], 1: [2, 3, 4], "0": [7, 8, 7]})

    def run(rows: pd.DataFrame, context: daskprs.MiniBatchContext) -> list[str]:
        return [f"{context.partition_key_value} {rows[1].tolist()}"]

    for keys, expected in (
        ([0], ["{0: 1} [2, 3]", "{0: 2} [4]"]),
        (["0", 0], ["{'0': 7, 0: 1} [2]", "{'0': 8, 0: 1} [3]", "{'0': 7, 0: 2} [4]"]),
    ):
        result = daskprs.parallel_run(kind(frame), run, partition_keys=keys, progress=False)
        assert result.to_pandas(ignore_index=True)["result"].tolist() == expected
    with pytest.raises(daskprs.OptionError, match=r"no column '1'\. Near it: 1"):
        daskprs.parallel_run(kind(frame), run, partition_keys=["1"])
