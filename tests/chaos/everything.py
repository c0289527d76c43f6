"""The whole table, then deaths at random: ``everything.py [JOBS DEATHS SEED]``; exits 1 on wrong.

Each half prints what can be played again by its own program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from strikes import STRIKES

sys.path.insert(0, str(Path(__file__).parents[1]))

from mounting import NAMESPACE, can_mount
from separate_nodes import why_not

HERE = Path(__file__).parent
JOBS, DEATHS = 20, 200


def main(jobs: int = JOBS, deaths: int = DEATHS, seed: int | None = None) -> int:
    """Play both halves."""
    seed = int(time.time()) if seed is None else seed
    within = NAMESPACE if can_mount() else []
    left_out = {}
    if not within:
        left_out["disk full"] = "no disk can be mounted here"
    if reason := why_not():
        left_out["node cut off"] = reason
    for row, why in left_out.items():
        print(f"left out: {row}, since {why}", flush=True)
    rows = [strike for strike in STRIKES if strike not in left_out]
    with tempfile.TemporaryDirectory(prefix="daskprs-chaos-") as folder:
        print(f"seed {seed}", flush=True)
        table = [*within, sys.executable, HERE / "cells.py", Path(folder) / "table", *rows]
        deaths_at_random = [HERE / "random_deaths.py", Path(folder) / "random"]
        at_random = [sys.executable, *deaths_at_random, str(jobs), str(deaths), str(seed)]
        paths = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]))
        return max(
            subprocess.run(part, check=False, env=os.environ | {"PYTHONPATH": paths}).returncode
            for part in (table, at_random)
        )


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
