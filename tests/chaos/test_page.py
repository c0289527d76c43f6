"""The page that says what is struck has the numbers of the program that strikes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.protocol.shared_page import Phase, SharedPage, new_page

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
    assert f"nine kinds of jobs make {len(cells)} jobs" in page
    assert f"Then {everything.JOBS} jobs or more" in page
    assert f"until {everything.DEATHS} processes have died" in page
    rows = page.partition("| moment | when |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [name for row in rows.splitlines() for name in row.split("|")[1].strip().split(", ")]
    more = page.rpartition("| moment | when |\n|---|---|\n")[2].partition("\n\n")[0]
    at_random = [
        name for row in more.splitlines() for name in row.split("|")[1].strip().split(", ")
    ]
    moments = import_module("moments")
    assert {*at_random} == {*moments.NAMES} - {*named}
    assert {*named} == {
        *strikes.MOMENTS,
        *strikes.MOMENTS_OF_KEYS,
        *strikes.MOMENTS_OF_SEARCHES,
        *strikes.MOMENTS_OF_STAGES,
        *strikes.MOMENTS_OF_COROUTINES,
    }


def test_strikes_are_counted_by_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a table, and in a file that has those that never came, too."""
    monkeypatch.syspath_prepend(HERE)
    deaths, moments = map(import_module, ("random_deaths", "moments"))
    fallen = {
        deaths.Blow("caller killed", "publish"): 12,
        deaths.Blow("agent killed", "init"): 1,
        deaths.Blow("caller paused", "init"): 1,
    }
    assert deaths.died(fallen) == 13
    assert deaths.table(fallen).splitlines() == [
        "strike         init  publish",
        "agent killed      1",
        "caller killed             12",
        "caller paused     1",
    ]
    deaths.write_counts(tmp_path / "counts.csv", fallen)
    lines = (tmp_path / "counts.csv").read_text().splitlines()
    assert lines[0] == "strike,moment,count"
    assert len(lines) == 1 + 3 * len(moments.NAMES)
    assert "caller killed,publish,12" in lines
    assert "caller killed,init,0" in lines


def test_moments_are_read_from_what_the_job_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An agent shares its page, and a driver writes a file."""
    monkeypatch.syspath_prepend(HERE)
    moments = import_module("moments")
    now = moments.Now(tmp_path)
    assert now.of_driver() == "opening"
    for moment in ("publish", "commit"):
        now.tell(moment)
        assert now.of_driver() == moment
    fd = new_page()
    try:
        page = SharedPage(fd)
        assert moments.of_agent(os.getpid()) == "starting"
        page.enter(Phase.RUNNING)
        assert moments.of_agent(os.getpid()) == "run"
        page.close()
    finally:
        os.close(fd)
    assert moments.of_agent(os.getpid()) is None


def test_a_driver_tells_what_it_is_at(tmp_path: Path) -> None:
    """What tells it stands in for functions of the package, which may get other names."""
    told = "import sys; from pathlib import Path; import caller; caller.tell_moments(Path({!r}))"
    paths = os.pathsep.join([str(HERE.parents[1]), str(HERE)])
    command = [sys.executable, "-c", told.format(str(tmp_path))]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths})
