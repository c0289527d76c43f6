"""Strike jobs at random until enough has died: ``random_deaths.py FOLDER JOBS DEATHS SEED``.

Each job is struck again and again, whatever it is at, and called again where its caller has ended.
What strikes, and after how long, follows from the seed, which is printed. Prints a line for each
job and the counts, and exits with 1 when one of them is wrong.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import moments
import psutil
from caller import COLLECTION, COMPLETED, FAILED, FRAME, KEYED
from cell import CALLER_S, Caller, Cell, Wrong, check, nobody_left
from strikes import STRIKES, Scene, Strike

from tests.support.hand_cluster import HandCluster

WEIGHTS = {
    "agent killed": 6,
    "worker killed": 3,
    "nanny killed": 2,
    "caller killed": 3,
    "scheduler killed": 1,
    "scheduler paused": 1,
    "caller paused": 1,
}
GAP_S = (0.2, 1.5)
ROWS, SECONDS = 200, 0.1
OPTIONS = {"run_max_try": 20, "max_node_losses": 20}
"""A mini-batch may have bad luck more than once."""
MOST = 15
"""After so many a job is left alone, so that it ends."""


def main(base: Path, jobs: int, deaths: int, seed: int) -> int:
    """Strike job after job, and look at each."""
    died: Counter[str] = Counter()
    wrong = number = 0
    with HandCluster(base / "cluster") as cluster:
        while number < jobs or sum(died.values()) < deaths:
            number += 1
            folder = base / str(number)
            action = ("append_row", "summary_only")[number % 2]
            data = (FRAME, COLLECTION, KEYED)[number // 2 % 3]
            try:
                chance = random.Random(seed + number)  # noqa: S311 - no secret
                struck = strike_one_job(cluster, folder, action, data, chance)
            except Wrong as error:
                wrong += 1
                print(
                    f"WRONG  job {number}, seed {seed + number}, {action}, {data}:\n{error}",
                    flush=True,
                )
                continue
            died.update(name for name in struck if name.endswith("killed"))
            print(f"right  job {number}, seed {seed + number}: {', '.join(struck)}", flush=True)
            shutil.rmtree(folder)
    told = ", ".join(f"{count} x {name}" for name, count in died.most_common())
    print(f"{number} jobs, {sum(died.values())} deaths ({told}), {wrong} wrong")
    return min(wrong, 1)


def strike_one_job(
    cluster: HandCluster, base: Path, action: str, data: str, chance: random.Random
) -> list[str]:
    """Run one job to its end through all that happens to it, and return what did."""
    folder = base / "cell"
    folder.mkdir(parents=True)
    spec: dict[str, Any] = {
        "folder": str(folder),
        "job_dir": str(base / "job"),
        "moment": "",
        "at": 0,
        "rows": ROWS,
        "seconds": SECONDS,
        "action": action,
        "data": data,
        "options": OPTIONS,
    }
    struck: list[str] = []
    code = None
    try:
        while code != COMPLETED:
            cluster.mend()
            with Caller(spec, cluster.address, resume=bool(struck)) as caller:
                code = _strike_until_it_ends(caller, cluster, chance, struck)
    finally:
        nobody_left(folder)
    agents = sum(STRIKES[name].charged for name in struck)
    expected = Strike(STRIKES["agent killed"].do, OPTIONS, charged=agents)
    check(Cell("", "", action, 0), expected, spec)
    return struck


def _strike_until_it_ends(
    caller: Caller, cluster: HandCluster, chance: random.Random, struck: list[str]
) -> int:
    folder, begun = caller.folder, time.monotonic()
    scene = Scene(cluster, folder, folder, caller.process.pid, chance, {"pid": 0})
    while caller.process.poll() is None:
        if time.monotonic() - begun > CALLER_S:
            raise Wrong("the caller does not end", caller.said())
        time.sleep(chance.uniform(*GAP_S))
        agents = folder / moments.AGENTS
        if not agents.exists() or not any(agents.iterdir()):
            continue
        name = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if len(struck) < MOST:
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                STRIKES[name].do(scene)
                struck.append(name)
            cluster.start_missing()
    code = caller.process.returncode
    if code not in {COMPLETED, FAILED, -signal.SIGKILL}:
        raise Wrong("the caller exits with", code, caller.said())
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
