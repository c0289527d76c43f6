"""The whole table, then deaths at random: exits with 1 when one of them is wrong.

``everything.py [--cell CELL …] [--counts FILE] [JOBS DEATHS SEED]``: a cell is told as in
``cells.py``. Each half prints what can be played again by its own program.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cell import CUT_OFF
from strikes import STRIKES

from tests.support.mounting import NAMESPACE, can_mount
from tests.support.separate_nodes import why_not

HERE = Path(__file__).parent
JOBS, DEATHS = 20, 200
DISK_FULL = "disk full"


def main(cells: list[str], jobs: int, deaths: int, seed: int, counts: str | None) -> int:
    """Play both halves, and return the exit code.

    Only a full disk needs a mount namespace, which is one of a user: in it no network can be made,
    as nodes that are cut off need.
    """
    plain = [one for one in cells if not one.startswith((DISK_FULL, CUT_OFF))]
    on_a_small_disk = [one for one in cells if one.startswith(DISK_FULL)]
    cut_off = [one for one in cells if one.startswith(CUT_OFF)]
    if on_a_small_disk and not can_mount():
        print(f"left out: {DISK_FULL}, since no disk can be mounted here", flush=True)
        on_a_small_disk = []
    if cut_off and (reason := why_not()):
        print(f"left out: {CUT_OFF}, since {reason}", flush=True)
        cut_off = []
    print(f"seed {seed}", flush=True)
    told = ["--counts", counts] if counts else []
    with tempfile.TemporaryDirectory(prefix="daskprs-chaos-") as folder:
        played = [sys.executable, HERE / "cells.py"]
        struck = [sys.executable, HERE / "random_deaths.py"]
        parts = [
            [*played, Path(folder) / "table", *plain] if plain else [],
            [*played, Path(folder) / "nodes", *cut_off] if cut_off else [],
            [*NAMESPACE, *played, Path(folder) / "disk", *on_a_small_disk]
            if on_a_small_disk
            else [],
            [*struck, Path(folder) / "random", str(jobs), str(deaths), str(seed), *told]
            if jobs
            else [],
        ]
        # Partitions hold objects of a module here, which nodes apart have to find, too.
        paths = [str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        codes = [
            subprocess.run(part, check=False, env=environment).returncode for part in parts if part
        ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cell", action="append", help="of the table; default: all of it")
    words.add_argument("jobs", nargs="?", type=int, default=JOBS, help="struck at random; 0: none")
    words.add_argument("deaths", nargs="?", type=int, default=DEATHS)
    words.add_argument("seed", nargs="?", type=int, default=int(time.time()))
    words.add_argument("--counts", help="a file for the strikes at random by moment, as CSV")
    given = words.parse_args()
    sys.exit(main(given.cell or [*STRIKES], given.jobs, given.deaths, given.seed, given.counts))
