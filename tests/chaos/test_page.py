"""The page that says what is struck has the numbers of the program that strikes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "explanation" / "exactly-once.md"


def test_the_page_has_the_numbers_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many strikes, cells, jobs and deaths there are, and each moment."""
    monkeypatch.syspath_prepend(HERE)
    cell, everything, strikes = map(import_module, ("cell", "everything", "strikes"))
    page = PAGE.read_text()
    cells = [one for strike in strikes.STRIKES for one in cell.table(strike, seed=1)]
    assert f"There are {len(strikes.STRIKES)} kinds of strikes" in page
    assert f"five kinds of jobs make {len(cells)} jobs" in page
    assert f"Then {everything.JOBS} jobs or more" in page
    assert f"until {everything.DEATHS} processes have died" in page
    rows = page.partition("| moment | when |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [name for row in rows.splitlines() for name in row.split("|")[1].strip().split(", ")]
    assert sorted(named) == sorted([*strikes.MOMENTS, *strikes.MOMENTS_OF_KEYS])
