"""The process of one job of the service: it records its id, runs the job, and records the end.

The process needs nothing from the service, which may stop and start meanwhile.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.serve.served_job import LOCK_FD, ServedJob

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CANCELED, EXIT_FAILED = 130, 42


def main(folder: str, turn: str) -> int:
    """Run the module of this job, as ``python -m`` does, and record its exit code."""
    os.set_inheritable(LOCK_FD, False)  # no child inherits the lock
    os.pwrite(LOCK_FD, str(os.getpid()).encode(), 0)
    os.chdir(folder)
    job = ServedJob.read(Path(folder))
    if job is None or job.turn != int(turn):
        return EXIT_FAILED
    code = _exit_code(job.words) if job.is_wanted() else EXIT_CANCELED
    job.write_end(code)
    return code


def _exit_code(words: Sequence[str]) -> int:
    sys.argv = list(words)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except KeyboardInterrupt:
        return EXIT_CANCELED
    except BaseException:  # noqa: BLE001 - whatever it was, it is told
        traceback.print_exc()
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
