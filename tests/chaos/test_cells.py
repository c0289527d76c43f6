"""Whatever dies, and whenever: the output is that of a serial run, and no innocent work pays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mounting import NAMESPACE, can_mount
from tests.support.separate_nodes import why_not

PROGRAM = Path(__file__).with_name("cells.py")
CELLS = {
    "agent killed": [
        "load | append_row",
        "run | summary_only",
        "returned | append_row",
        "commit | summary_only",
        "committed | append_row",
    ],
    "agent stopped": ["run | append_row"],
    "worker killed": [
        "load | summary_only",
        "run | append_row",
        "commit | append_row",
        "publish | append_row",
    ],
    "worker stopped": ["run | append_row"],
    "nanny killed": ["run | append_row", "committed | summary_only"],
    "scheduler killed": ["run | append_row"],
    "scheduler paused": ["commit | append_row"],
    "caller killed": [
        "run | append_row",
        "returned | summary_only",
        "commit | append_row",
        "committed | append_row",
        "publish | append_row",
    ],
    "caller paused": ["run | append_row"],
    "node cut off": ["run | append_row"],
    "disk full": ["run | append_row", "commit | append_row", "publish | append_row"],
}
"""Some of each row of the table; `make chaos` plays all, and strikes at random besides."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("strike", CELLS)
def test_nothing_is_lost_doubled_or_charged_to_the_innocent(tmp_path: Path, strike: str) -> None:
    """A cluster of two workers started by hand, a caller in a process of its own."""
    within: list[str] = []
    if strike == "disk full":
        if not can_mount():
            pytest.skip("a small disk cannot be mounted here: no unprivileged mount namespaces")
        within = NAMESPACE
    if strike == "node cut off" and (reason := why_not()):
        pytest.skip(reason)
    cells = [f"{strike} | {where} | 1" for where in CELLS[strike]]
    done = subprocess.run(
        [*within, sys.executable, str(PROGRAM), str(tmp_path / "chaos"), *cells],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(f"{len(cells)} cells, 0 wrong\n")
