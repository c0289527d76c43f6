"""The table of rows that failed by themselves."""

from __future__ import annotations

from daskprs._core.pieces import FailedItems
from daskprs._output.failures.failed_rows import table_of


def test_a_range_that_failed_as_a_whole_has_its_traceback_once() -> None:
    """A copy for each row would fill the memory of the driver."""
    failed = [
        FailedItems(3, 4, "RUN_EXCEPTION", "ValueError", "one", "text", 1, "host", "process000"),
        FailedItems(9, 50_009, "RUN_EXCEPTION", "KeyError", "two", "t" * 50_000, 2),
    ]
    table = table_of(7, 100, failed, b"")
    assert len(table) == 50_001
    assert table.nbytes < 10_000_000
    first, *others = table.slice(0, 3).to_pylist()
    assert (first["_position"], first["_number"], first["_error"]) == (103, 3, "one")
    assert [one["_position"] for one in others] == [109, 110]
    assert {one["_traceback"] for one in others} == {"t" * 50_000}
