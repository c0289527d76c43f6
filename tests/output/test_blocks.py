"""Blocks: what Arrow would change silently when it takes objects of Python."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
import pyarrow as pa
import pytest

from daskprs._output.rows.part_formats import check_writable
from daskprs._output.rows.result_tables import table_of
from daskprs._output.spec import OutputSpec
from daskprs.errors import ReturnTypeError
from tests.support.formatted import format_result

if TYPE_CHECKING:
    from collections.abc import Iterator

LATE = pd.Timestamp("2026-01-01 23:59:59.999999999")
AS_DATA_SET = OutputSpec(text=True, typed=False, format="parquet")


def written(frame: pd.DataFrame) -> pa.Table:
    """Return rows as a data set gets them."""
    return pa.ipc.open_stream(format_result(frame, AS_DATA_SET).payload).read_all()


def kept(frame: pd.DataFrame) -> pa.Table:
    """Return rows as `to_arrow` makes them."""
    return table_of(frame, 7)


@pytest.mark.parametrize("as_arrow", [written, kept])
def test_objects_that_are_times_lose_nothing(as_arrow: Any) -> None:
    """Arrow alone leaves out nanoseconds, and the time of the day where a date comes first."""
    frame = pd.DataFrame(
        {
            "at": pd.Series([LATE, None], dtype=object),
            "took": pd.Series([pd.Timedelta(1, "ns"), None], dtype=object),
            "number": [1, 2],
            "cells": pd.Series([[1], None], dtype=object),
        }
    )
    back = as_arrow(frame).to_pandas()
    assert back["at"][0] == LATE
    assert back["took"][0] == pd.Timedelta(1, "ns")
    assert list(back.columns) == list(frame.columns)
    mixed = pd.DataFrame({"day": pd.Series([dt.date(2026, 1, 1), LATE], dtype=object)})
    with pytest.raises(ReturnTypeError, match=r"'day'.*dates and datetimes have no one type"):
        as_arrow(mixed)


class CountedSchema:
    """A schema that counts how often its names are made."""

    def __init__(self, columns: int) -> None:
        self._schema = pa.schema([(f"c{place}", pa.int64()) for place in range(columns)])
        self.count = 0

    def __iter__(self) -> Iterator[pa.Field]:
        """Yield the fields."""
        return iter(self._schema)

    @property
    def names(self) -> list[str]:
        """Make the names."""
        self.count += 1
        return list(self._schema.names)


def test_the_check_of_wide_rows_takes_time_by_their_columns_alone() -> None:
    """Arrow makes the names of a schema anew each time that they are asked for."""
    narrow, wide = CountedSchema(2), CountedSchema(200)
    for schema in (narrow, wide):
        check_writable(cast("pa.Schema", schema), "parquet", ())
    assert narrow.count == wide.count
