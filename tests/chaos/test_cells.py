"""Whatever dies, and whenever: the output is that of a serial run, and no innocent work pays."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import mostly_long
from tests.support.mounting import NAMESPACE, can_mount
from tests.support.separate_nodes import why_not

PROGRAM = Path(__file__).with_name("cells.py")
CELLS = {
    "agent killed": ["run | summary_only | frame", "before | append_row | stages"],
    "agent killed later": [
        "commit | summary_only | frame",
        "search | append_row | isolated",
        "run | append_row | coroutines",
    ],
    "agent stopped": ["run | append_row | frame"],
    "worker killed": [
        "before | append_row | far stages",
        "gather | append_row | keyed",
        "run | append_row | collection",
        "committed | data_set | frame",
        "run | append_row | coroutines",
    ],
    "worker stopped": ["run | append_row | frame"],
    "nanny killed": [
        "committed | summary_only | frame",
    ],
    "scheduler killed": [
        "run | append_row | collection",
    ],
    "scheduler paused": ["commit | append_row | frame"],
    "caller killed": [
        "deal | append_row | keyed",
        "commit | append_row | frame",
        "search | append_row | isolated",
        "after | append_row | stages",
        "run | append_row | coroutines",
        "publish | data_set | frame",
    ],
    "caller interrupted": ["gather | append_row | keyed"],
    "caller paused": ["run | append_row | frame"],
    "node cut off": ["run | append_row | frame"],
    "disk full": [
        "commit | append_row | frame",
        "publish | append_row | frame",
    ],
}
"""Some of each row of the table; `make chaos` plays all, and strikes at random besides."""


@pytest.mark.long
@pytest.mark.timeout(400)
def test_random_deaths_fall_at_known_moments(tmp_path: Path) -> None:
    """The table has each death at the moment at which it was seen."""
    counts = tmp_path / "counts.csv"
    program = PROGRAM.with_name("random_deaths.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path / "chaos", "1", "8", "1", "--counts", counts],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    rows = list(csv.DictReader(counts.read_text().splitlines()))
    assert sum(int(row["count"]) for row in rows if row["strike"].endswith("killed")) >= 8
    assert {row["strike"] for row in rows} >= {"agent killed", "caller killed"}


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("strike", mostly_long(CELLS, suite=["agent killed"]))
def test_nothing_is_lost_doubled_or_charged_to_the_innocent(tmp_path: Path, strike: str) -> None:
    """A cluster of two workers started by hand, a caller in a process of its own."""
    within: list[str] = []
    if strike == "disk full":
        if not can_mount():
            pytest.skip("a small disk cannot be mounted here: no unprivileged mount namespaces")
        within = NAMESPACE
    if strike == "node cut off" and (reason := why_not()):
        pytest.skip(reason)
    cells = [f"{strike.removesuffix(' later')} | {where} | 1" for where in CELLS[strike]]
    done = subprocess.run(
        [*within, sys.executable, str(PROGRAM), str(tmp_path / "chaos"), *cells],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(f"{len(cells)} cells, 0 wrong\n")
