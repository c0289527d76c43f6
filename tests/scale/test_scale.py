"""On many nodes: the scheduler holds no more than the window, and memory grows slowly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("simulation.py")


def simulated(
    folder: Path, nodes: int, slots_each: int, seconds: float, mini_batches: int
) -> dict[str, Any]:
    """Run a job in a process of its own, and return what it tells."""
    numbers = (nodes, slots_each, seconds, mini_batches)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *map(str, numbers)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(
    ("nodes", "mini_batches"), [(2, 500), pytest.param(8, 20_000, marks=pytest.mark.long)]
)
def test_the_scheduler_holds_no_more_than_a_lease_for_each_slot(
    tmp_path: Path, nodes: int, mini_batches: int
) -> None:
    """However many mini-batches there are; a task more is the one that stops the agents."""
    told = simulated(tmp_path, nodes, slots_each=4, seconds=0.0, mini_batches=mini_batches)
    assert told["tasks_at_most"] <= 4 * nodes + nodes


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_million_mini_batches_on_a_thousand_slots(tmp_path: Path) -> None:
    """A hundred nodes; scheduler, workers, their threads and the driver are one process here."""
    told = simulated(tmp_path, nodes=100, slots_each=10, seconds=0.0, mini_batches=1_000_000)
    assert told["tasks_at_most"] <= 1000 + 100
    assert told["grown_mb"] < 450  # 310 to 350; for two millions, 420
