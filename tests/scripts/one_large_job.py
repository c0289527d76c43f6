"""Run a job whose one mini-batch returns much, and say how much memory each process took.

``one_large_job.py FOLDER MEGABYTES``: prints the bytes of the output, and the peaks of agent and
driver in MB. It is the entry script of the job, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import daskprs

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1_000_000


def run(mini_batch: list[str]) -> Iterator[Any]:
    """Yield frames, arrays and long lines: 10 MB of text each time, and more."""
    megabytes = int(Path(mini_batch[0]).read_text())
    frame = pd.DataFrame({"n": range(100_000), "text": "t" * 93})
    array = np.full(2_000, 1.25)
    for number in range(megabytes // 10):
        if number % 10 == 0:
            yield frame
            yield from [array] * 100
        yield "x" * (10 * MB)


def shutdown() -> None:
    """Note the peak of this agent."""
    (Path(daskprs.EntryScript().output_dir) / "agent.peak").write_text(str(peak_mb()))


def peak_mb() -> float:
    """Return the most memory that this program has taken.

    The maximum that getrusage tells is that of whoever forked it, too, up to its exec.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / MB


def main(folder: Path, megabytes: int) -> None:
    """Run the job."""
    (folder / "megabytes.txt").write_text(str(megabytes))
    result = daskprs.parallel_run(
        folder / "megabytes.txt",
        __file__,
        input_type="files",
        job_dir=folder / "job",
        output_dir=folder / "out",
        keep_rows=True,
        process_count_per_node=1,
        run_invocation_timeout=3600,
        run_max_try=1,
        progress=False,
    )
    agent = float((folder / "out" / "agent.peak").read_text())
    assert result.output_file is not None
    print(json.dumps([result.output_file.stat().st_size, agent, peak_mb()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
