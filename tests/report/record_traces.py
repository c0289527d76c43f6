"""Record the events of real jobs, on which `test_remaining_time` tests the estimate.

``python -m tests.report.record_traces [NAME...]`` runs the jobs, each for some 20 to 60 s on four
processes that mostly sleep, and writes ``tests/report/traces/NAME.jsonl``.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pandas as pd

import daskprs
from daskprs._core.events import ProgressReported
from daskprs._job import job
from daskprs._report import listeners
from tests.report.trace import TRACES, written

if TYPE_CHECKING:
    from daskprs._core.events import Event

PROCESSES = 4
ROW_BYTES = 10_000
"""Beside them, what a mini-batch costs in any case does not count."""
SCRIPT = """
import os, time

def init():
    time.sleep({init_s})

FIRST = [True]

def run(mini_batch):
    row = mini_batch.iloc[0]
    if FIRST[0]:
        time.sleep({first_s})
    FIRST[0] = False
    mark = os.path.join({marks!r}, str(row["number"]))
    is_first_try = not os.path.exists(mark)
    open(mark, "a").close()
    if row["fails"] and is_first_try:
        time.sleep(row["seconds"] / 2)
        raise ValueError("the first attempt fails")
    time.sleep(3600 if row["hangs"] and is_first_try else row["seconds"])
    return mini_batch
"""


def even(draw: random.Random, _: int) -> dict[str, Any]:
    """All take nearly the same time."""
    return {"seconds": draw.uniform(0.35, 0.45)}


def skewed(draw: random.Random, _: int) -> dict[str, Any]:
    """Some take twenty times as long as most."""
    return {"seconds": draw.lognormvariate(-1.9, 1.1)}


def ascending(draw: random.Random, number: int) -> dict[str, Any]:
    """The large ones come last, and their size is known."""
    rows = 1 + number // 3
    return {"seconds": 0.03 * rows * draw.uniform(0.9, 1.1), "rows": rows}


def hangs(draw: random.Random, number: int) -> dict[str, Any]:
    """Three hang until their timeout, and work when they are tried again."""
    return {"seconds": draw.uniform(0.3, 0.5), "hangs": number in (30, 90, 150)}


def fails(draw: random.Random, number: int) -> dict[str, Any]:
    """A fifth of them fails once."""
    return {"seconds": draw.uniform(0.2, 0.8), "fails": number % 5 == 0}


def few(draw: random.Random, _: int) -> dict[str, Any]:
    """There are few for each process, so that some are idle in the end."""
    return {"seconds": draw.uniform(3.0, 6.0)}


def straggler(draw: random.Random, number: int) -> dict[str, Any]:
    """One is much larger than the others, and runs to the end."""
    rows = 40 if number == 60 else 1
    return {"seconds": sum(draw.uniform(0.2, 0.4) for _ in range(rows)), "rows": rows}


JOBS: dict[str, dict[str, Any]] = {
    "even": {"rule": even, "count": 200},
    "skew": {"rule": skewed, "count": 320},
    "ascending": {"rule": ascending, "count": 90},
    "hangs": {"rule": hangs, "count": 200, "run_invocation_timeout": 5},
    "slow_start": {"rule": even, "count": 150, "init_s": 4, "first_s": 3},
    "retries": {"rule": fails, "count": 120},
    "few": {"rule": few, "count": 18},
    "straggler": {"rule": straggler, "count": 100},
}


class Recorder:
    """A listener that writes events to a trace."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._due_s = 0.0

    def tell(self, event: Event) -> None:
        """Write an event, and progress twice a second."""
        if isinstance(event, ProgressReported):
            is_over = event.standing.settled == event.standing.planned
            if event.elapsed_s < self._due_s and not (is_over and self._due_s < math.inf):
                return
            self._due_s = math.inf if is_over else event.elapsed_s + 0.5
        for line in written(event):
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Close the trace."""
        self._file.close()


def record(name: str, rule: Any, count: int, **more: Any) -> None:
    """Run a job, and write its trace."""
    draw = random.Random(name)  # noqa: S311 - no secret
    rows = []
    for number in range(count):
        row = {"fails": False, "hangs": False, "rows": 1, **rule(draw, number)}
        row["load"] = "x" * ROW_BYTES
        rows += [{"number": number, **row}] * row["rows"]
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder, "marks")
        marks.mkdir()
        timing = {name: more.pop(name, 0) for name in ("init_s", "first_s")}
        script = Path(folder, "script.py")
        script.write_text(SCRIPT.format(marks=str(marks), **timing))
        recorder = Recorder(TRACES / f"{name}.jsonl")
        made = listeners.listeners_of

        def with_recorder(*arguments: Any, **options: Any) -> list[Any]:
            return [recorder, *made(*arguments, **options)]

        with mock.patch.object(job, "listeners_of", with_recorder):
            daskprs.parallel_run(
                pd.DataFrame(rows),
                str(script),
                partition_keys=["number"],
                process_count_per_node=PROCESSES,
                job_dir=Path(folder, "job"),
                **more,
            )


if __name__ == "__main__":
    TRACES.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or JOBS:
        begun_s = time.monotonic()
        record(chosen, **JOBS[chosen])
        print(f"{chosen}: {time.monotonic() - begun_s:.0f} s")
