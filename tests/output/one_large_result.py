"""Take one large result through agent and driver, and say how much memory each of them took.

``one_large_result.py FOLDER MEGABYTES``: prints the peak of the one and of the other, in MB.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from store_driver import BOTH, driving, mini_batch, outcome_of

from daskprs.core.outcomes import Extent
from daskprs.output.formats import Rows, format_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MB = 1_000_000


def result(megabytes: int) -> Iterator[Any]:
    """Yield frames, arrays and long lines: 10 MB of text each time, and more."""
    frame = pd.DataFrame({"n": range(100_000), "text": "t" * 93})
    array = np.full(2_000, 1.25)
    for number in range(megabytes // 10):
        if number % 10 == 0:
            yield frame
            yield from [array] * 100
        yield "x" * (10 * MB)


def in_a_child(work: Callable[[], Any]) -> tuple[Any, float]:
    """Do something in a fork; return its answer, and its peak in MB."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(here)
        answer = work()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        os.write(there, json.dumps([answer, peak]).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as pipe:
        answer, peak = json.load(pipe)
    assert os.waitpid(pid, 0)[1] == 0
    return answer, peak


def agent(folder: Path, megabytes: int) -> list[Any]:
    """Format the result, as an agent does."""
    rows = format_result(result(megabytes), BOTH, f"{folder}/process000-0-1")
    assert rows.payload == b""
    return list(rows)[:3]


def driver(folder: Path, rows: list[Any]) -> int:
    """Commit and publish it, as a driver does; return the size of the output."""
    succeeded, text, typed = rows
    whole = Rows(succeeded, Extent(*text), Extent(*typed), None, b"")
    with driving(folder / "job", folder / "out" / "rows.txt", BOTH) as opened:
        opened.store.commit([(mini_batch(0), outcome_of(0, whole))], [memoryview(b"")])
        opened.store.publish()
    return (folder / "out" / "rows.txt").stat().st_size


if __name__ == "__main__":
    base, size = Path(sys.argv[1]), int(sys.argv[2])
    rows_of_it, of_agent = in_a_child(lambda: agent(base, size))
    written, of_driver = in_a_child(lambda: driver(base, rows_of_it))
    assert written >= size * MB * 9 // 10
    sys.stdout.write(json.dumps([of_agent, of_driver]))
