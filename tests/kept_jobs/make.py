"""Make job folders that a later version resumes: ``python tests/kept_jobs/make.py FOLDER``.

Each job fails at its last mini-batch, so that the others are committed. `test_kept_jobs` unpacks
the archives where they were made, since inputs are known by path, size and time, and resumes the
jobs. Make them anew only when a change of the form is meant, and say so in the changelog.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd

import daskprs

PLACE = Path("/tmp/daskprs-kept-jobs")  # noqa: S108 - journals hold absolute paths
"""Where the jobs were made, and where they are unpacked."""
TIME = 1_700_000_000
"""Of the input files and the script, in seconds since the epoch."""
SCRIPT = '''\
import os


def run(mini_batch):
    """Return the numbers times ten; fail at the last one until the mended file is there."""
    with open("/tmp/daskprs-kept-jobs/seen.txt", "a") as seen:
        seen.write(f"{mini_batch['n'].iloc[0]}\\n")
    if mini_batch["n"].iloc[-1] == 39 and not os.path.exists("/tmp/daskprs-kept-jobs/mended"):
        raise ValueError("not mended yet")
    return mini_batch.assign(n=mini_batch["n"] * 10)
'''
OPTIONS: dict[str, Any] = {
    "append_row_dataframe_header": True,
    "append_row_file_name": "rows.csv",
    "append_row_dataframe_sep": ",",
    "process_count_per_node": 1,
    "run_max_try": 1,
}


def table() -> pd.DataFrame:
    """Return the input: numbers alone, since the name of the type of text depends on pandas."""
    numbers = range(40)
    return pd.DataFrame({"n": numbers, "half": [number / 2 for number in numbers]})


def options(name: str) -> dict[str, Any]:
    """Return the options of one of the jobs."""
    size = {"mini_batch_size": 96 if name == "frame" else 40}
    return {**OPTIONS, **size, "job_dir": PLACE / name, "output_dir": PLACE / f"{name}-output"}


def data(name: str) -> Any:
    """Return the input of one of the jobs."""
    return table() if name == "frame" else str(PLACE / "input")


def main(archives: Path) -> None:
    """Make the jobs, and pack them."""
    shutil.rmtree(PLACE, ignore_errors=True)
    (PLACE / "input").mkdir(parents=True)
    (PLACE / "script").mkdir()
    (PLACE / "script" / "score.py").write_text(SCRIPT)
    for number, part in enumerate((table()[:20], table()[20:])):
        part.to_csv(PLACE / "input" / f"{number}.csv", index=False)
    for path in (*(PLACE / "input").iterdir(), PLACE / "script" / "score.py"):
        os.utime(path, (TIME, TIME))
    for name in ("frame", "files"):
        try:
            daskprs.parallel_run(data(name), PLACE / "script" / "score.py", **options(name))
        except daskprs.ParallelRunFailed as error:
            print(error)
    (PLACE / "seen.txt").unlink()
    with tarfile.open(archives / "jobs.tar.gz", "w:gz") as archive:
        archive.add(PLACE, ".", filter=_leave_out_logs)


def _leave_out_logs(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "/logs/" in entry.name else entry


if __name__ == "__main__":
    main(Path(sys.argv[1]))
