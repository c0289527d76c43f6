"""What an output may lack, and what it is then: failed rows, and mini-batches that are given up."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from daskprs._core.pieces import FailedItems
from daskprs._output.read_rows import read_rows
from tests.simulation.attempts import DEPENDENT, items_of
from tests.simulation.promises import demand

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from daskprs._core.limits import Limits
    from daskprs._folders.job_folder import JobFolder
    from tests.simulation.items import Items
    from tests.simulation.promises import CheckedLedger
    from tests.simulation.scenario import Scenario

Row = tuple[Any, ...]
"""The mini-batch, the number, and the error if rows of nulls stand for what has failed."""


def fitting_limits(folder: JobFolder, limits: Limits) -> Limits:
    """Return limits with what earlier drivers have found out, as a job does."""
    if limits.independent_rows or limits.isolates:
        with suppress(OSError, ValueError):
            at_most = max(1, int(folder.fitting_size.read_text()))
            return replace(limits, at_most=at_most, independent_rows=True)
    return limits


@lru_cache(maxsize=20)
def rows_in(parquet: bytes) -> list[dict[str, Any]]:
    """Return the rows of a table of failed rows; most drivers of a job write the same."""
    rows: list[dict[str, Any]] = (
        pq.ParquetFile(BytesIO(parquet)).read(use_threads=False).to_pylist()
    )
    return rows


def output_in(target: Path, form: str) -> str:
    """Return the published output as text."""
    if form != "parquet":
        return target.read_text()
    parts = map(pq.ParquetFile, sorted(target.glob("*.parquet")))
    tables = [part.read(use_threads=False) for part in parts]
    return str([tuple(row.values()) for table in tables for row in table.to_pylist()])


def typed_in(folder: JobFolder, form: str) -> str:
    """Return the rows that were kept with their types, as the output would have them."""
    frame = read_rows(folder, ignore_index=True)
    assert frame is not None
    if list(frame.columns) == ["result"]:
        return "".join(f"{line}\n" for line in frame["result"])
    columns = [[_plain(one) for one in column] for _, column in frame.items()]
    return FORMS[form](list(zip(*columns, strict=True)))


def _plain(value: object) -> object:
    """Return a cell without the types of pandas: a column with a null has floats."""
    if pd.isna(value):
        return None
    return int(value) if isinstance(value, float | np.integer) else value


class LeftOut:
    """What the output of a job may lack.

    Parameters
    ----------
    folder
        The job folder.
    scenario
        The job.

    """

    def __init__(self, folder: JobFolder, scenario: Scenario) -> None:
        self._folder = folder
        self._scenario = scenario
        self.before = scenario.items
        """The items for the script as it was: what has failed in it stays listed."""

    def is_over_budget(self, ledger: CheckedLedger) -> bool:
        """Return whether more has failed than may; check that it has failed just now."""
        limits, given_up = self._scenario.limits, len(ledger.given_up)
        if 0 <= limits.allowed_failed_count < given_up:
            most = limits.allowed_failed_count + 1
            demand(given_up == most, f"given up: {ledger.given_up}")
            return True
        return 0 <= limits.error_threshold < ledger.failed_items

    def serial_rows(self, given_up: Collection[int]) -> list[Row]:
        """Return the rows of a serial run without what has failed; check what that is."""
        items, scenario = self._scenario.items, self._scenario
        assert items is not None
        listed = self._listed(items)
        rows: list[Row] = []
        for index in [one for one in range(scenario.count) if one not in given_up]:
            failed = {
                number: one
                for one in listed.pop(index, [])
                for number in range(one.start, one.stop)
            }
            count = items.sizes[index]
            for number in range(count):
                if number not in failed:
                    more = _together(number, count, failed) if items.is_dependent else 0
                    row: Row = (index, number + DEPENDENT * more)
                    rows.append((*row, None) if items.on_error == "null" else row)
                elif items.on_error == "null" and failed[number].status != "NAMED":
                    error = failed[number]
                    rows.append((None, None, f"{error.kind}: {error.message}"))
        demand(not listed, f"failed rows of mini-batches that are given up: {listed}")
        return rows

    def _listed(self, items: Items) -> dict[int, list[FailedItems]]:
        """Return the failed rows by mini-batch, as the table has them; check them."""
        file = self._folder.failed_rows
        table = rows_in(file.read_bytes()) if file.exists() else []
        places = [(row["_mini_batch"], row["_number"]) for row in table]
        demand(places == sorted(set(places)), f"failed rows are not in order, or twice: {places}")
        listed: dict[int, list[FailedItems]] = {}
        for row in table:
            index, number = row["_mini_batch"], row["_number"]
            wanted = items_of(index, items.sizes[index])[number]
            demand(row["path"] == wanted, f"the failed row {index}/{number} is {row['path']}")
            first = sum(items.sizes[:index])
            position = first + number if items.is_known else None
            demand(row["_position"] == position, f"{index}/{number} is at {row['_position']}")
            _append(listed.setdefault(index, []), _failed(row))
        tries = self._scenario.limits.run_max_try
        assert self.before is not None
        is_same = self.before is items
        for index, failed in listed.items():
            why = self.before.objection(index, failed, tries, is_complete=is_same)
            demand(not why, f"{file.name}: {why}")
        return listed


def _together(number: int, count: int, failed: dict[int, FailedItems]) -> int:
    """Return how many items a call had that has made the row of an item.

    A search compares what passes of a mini-batch, so it goes on only where no two items do. In the
    end, a call gets all items between two bad ones; the script itself names some among them, and
    has no row for these.
    """
    bad = {one for one in failed if failed[one].status != "NAMED"}
    others = {*range(count)} - {*failed, number}
    demand(not (bad and others), f"items {others} and {number} were not compared")
    first = max((one for one in bad if one < number), default=-1)
    last = min((one for one in bad if one > number), default=count)
    return last - first - 1


def _failed(row: dict[str, Any]) -> FailedItems:
    texts = (row[f"_{name}"] or "" for name in ("status", "kind", "error", "traceback"))
    number = row["_number"]
    return FailedItems(number, number + 1, *texts, row["_attempts"], row["_host"], row["_process"])


def _append(listed: list[FailedItems], one: FailedItems) -> None:
    """Append an item to those of its mini-batch: it may be of the range of the last one."""
    last = listed[-1] if listed else None
    if last is not None and last.stop == one.start and last[2:] == one[2:]:
        listed[-1] = last._replace(stop=one.stop)
    else:
        listed.append(one)


def _csv(value: object) -> str:
    text = "" if value is None else str(value)
    return f'"{text}"' if " " in text else text


def _lines(rows: list[Row]) -> str:
    form = ":".join if rows and len(rows[0]) == 2 else " ".join
    return "".join(form(map(_csv, row)) + "\n" for row in rows)


def _headed(rows: list[Row]) -> str:
    names = ("index", "row", "_error")[: len(rows[0])] if rows else ()
    return "".join(" ".join(map(_csv, row)) + "\n" for row in [names, *rows] if row)


def _jsonl(rows: list[Row]) -> str:
    names = "index", "row", "_error"
    lines = []
    for row in rows:
        fields = (f'"{name}":{_json(value)}' for name, value in zip(names, row, strict=False))
        lines.append(f"{{{','.join(fields)}}}\n")
    return "".join(lines)


def _json(value: object) -> str:
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)


FORMS: dict[str, Callable[[list[Row]], str]] = {
    "text": _lines,
    "headed": _headed,
    "jsonl": _jsonl,
    "parquet": lambda rows: str([*rows]),
}
