"""What ``daskprs verify`` costs: ``python -m benchmarks.verifying FOLDER [MINI_BATCHES] [ROWS]``.

A job is written into FOLDER by the store of results itself, with as many rows of text in each
mini-batch, and verified in a process of its own. Prints seconds and the most memory as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

from daskprs._core.columnar import ColumnBatch
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Extent, Outcome, Results, Status
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._folders.rows_seal import make_salt
from daskprs._output.spec import OutputSpec
from daskprs._output.store import ResultStore

AT_ONCE = 100
"""Mini-batches that are committed together."""


def write_job(base: Path, mini_batches: int, rows: int) -> None:
    """Commit and publish the rows of a job that needs no agents."""
    folder = JobFolder(base / "job")
    folder.create()
    make_salt(folder)
    spec = OutputSpec(text=True, typed=False)
    with locked(folder) as epoch:
        store = ResultStore(folder, epoch, spec, base / "rows.txt", {"output": {"text": True}})
        for first in range(0, mini_batches, AT_ONCE):
            indexes = range(first, min(first + AT_ONCE, mini_batches))
            texts = [_text(index, rows) for index in indexes]
            outcomes = [_outcome(i, text, rows) for i, text in zip(indexes, texts, strict=True)]
            planned = [MiniBatch(index, None, f"part {index}") for index in indexes]
            store.commit(planned, Results(ColumnBatch(outcomes), b"".join(texts)))
        store.publish()
        counts = [mini_batches * rows, mini_batches * rows, 0]
        store.end({"status": "Completed", "items": counts})
        store.close()


def _text(index: int, rows: int) -> bytes:
    return b"".join([b"%09d 0.%06d\n" % (index * rows + row, row) for row in range(rows)])


def _outcome(index: int, text: bytes, rows: int) -> Outcome:
    extent = Extent(len(text), zlib.crc32(text), None)
    return Outcome(index, 1, Status.RUN_DONE, rows, rows, 0.0, 0.0, 0.0, 0.0, text=extent)


def main(base: Path, mini_batches: int = 100_000, rows: int = 1_000) -> None:
    """Write the job, verify it, and print what that cost."""
    write_job(base, mini_batches, rows)
    begun = time.monotonic()
    command = [sys.executable, "-m", "daskprs", "verify", str(base / "job"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        told = json.loads((program.stdout or sys.stdin.buffer).read())
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
    figures = {
        "rows": told["items"]["total"],
        "bytes": told["read_bytes"],
        "findings": [one["what"] for one in told["findings"]],
        "seconds": round(time.monotonic() - begun, 1),
        "memory_mb": usage.ru_maxrss >> 10,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
