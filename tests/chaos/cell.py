"""One cell of the table: a job that is struck at one moment, and what is left of it."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import moments
import psutil
import pyarrow.parquet as pq
from caller import (
    COLLECTION,
    COMPLETED,
    COROUTINES,
    DATA_SET,
    FAR_STAGES,
    FRAME,
    ISOLATED,
    KEYED,
    SIZE,
    STAGES,
    bad_rows,
    mini_batches,
    serial_lines,
)
from strikes import (
    ACTIONS,
    BALLAST,
    MOMENTS,
    MOMENTS_OF_COROUTINES,
    MOMENTS_OF_DATA_SETS,
    MOMENTS_OF_FAR_STAGES,
    MOMENTS_OF_KEYS,
    MOMENTS_OF_SEARCHES,
    MOMENTS_OF_STAGES,
    STRIKES,
    Scene,
)

from daskprs._folders.job_folder import JobFolder
from daskprs._output.journal.history import History
from daskprs._output.read_rows import read_rows
from tests.support.datasets import table_of
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from strikes import Strike

    from tests.support.cut_cluster import CutCluster
    from tests.support.hand_cluster import HandCluster

CALLER = Path(__file__).with_name("caller.py")
ROWS, SECONDS = 24, 0.03
MOMENT_S, CALLER_S, LEFT_S = 60.0, 150.0, 40.0
"""How long the moment, the end of a caller, and the end of all agents may take to come."""
CUT_OFF = "node cut off"
CALLS = 4
LOG = "caller.log"


class Cell(NamedTuple):
    """A place in the table; with its seed it can be played again."""

    strike: str
    moment: str
    action: str
    seed: int
    data: str = FRAME

    def __str__(self) -> str:
        return f"{self.strike} | {self.moment} | {self.action} | {self.data} | {self.seed}"

    @classmethod
    def of(cls, told: str) -> Cell:
        """Return the cell that a log tells of."""
        strike, moment, action, data, seed = told.split(" | ")
        return cls(strike, moment, action, int(seed), data)


def table(strike: str, seed: int) -> Iterator[Cell]:
    """Yield the cells of one row: what does not come about is left out."""
    kinds = [*((action, FRAME) for action in ACTIONS), ("append_row", COLLECTION)]
    for moment in MOMENTS_OF_KEYS:
        yield Cell(strike, moment, "append_row", seed, KEYED)
    of_searches = [(moment, ISOLATED) for moment in MOMENTS_OF_SEARCHES]
    of_stages = [(moment, STAGES) for moment in MOMENTS_OF_STAGES]
    # Two groups of workers are no nodes that can be cut off; a full disk is the driver's; and where
    # the nanny of the only worker with a GPU is killed, nobody replaces it, and the job waits.
    is_far = strike not in (CUT_OFF, "disk full", "nanny killed")
    of_far_stages = [(one, FAR_STAGES) for one in MOMENTS_OF_FAR_STAGES if is_far]
    of_coroutines = [(moment, COROUTINES) for moment in MOMENTS_OF_COROUTINES]
    for moment, data in [*of_searches, *of_stages, *of_far_stages, *of_coroutines]:
        if moment != "publish" or not strike.startswith("agent"):
            yield Cell(strike, moment, "append_row", seed, data)
    for moment in MOMENTS:
        of_data_sets = [(DATA_SET, FRAME)] if moment in MOMENTS_OF_DATA_SETS else []
        for action, data in [*kinds, *of_data_sets]:
            if moment == "publish" and (action == "summary_only" or strike.startswith("agent")):
                continue  # there is nothing to publish, or no agent any more
            yield Cell(strike, moment, action, seed, data)


class Wrong(Exception):  # noqa: N818 - it is what is found
    """Something is not as it should be: what, and the evidence."""

    def __str__(self) -> str:
        return ": ".join(map(str, self.args))


def play(cell: Cell, cluster: HandCluster | CutCluster, base: Path, disk: Path) -> None:
    """Run the job, strike it, call it again where its caller has ended, and look at what is left.

    Raises
    ------
    Wrong
        With what is wrong.

    """
    folder = base / "cell"
    folder.mkdir(parents=True)
    strike, chance = STRIKES[cell.strike], random.Random(cell.seed)  # noqa: S311 - no secret
    spec = {
        "folder": str(folder),
        "job_dir": str(disk / "job"),
        "moment": cell.moment,
        "at": chance.randrange(ROWS // 2),
        "rows": ROWS,
        "seconds": SECONDS,
        "action": cell.action,
        "data": cell.data,
        "options": strike.options,
    }
    with Caller(spec, cluster.address) as caller:
        scene = Scene(cluster, folder, disk, caller.process.pid, chance)
        try:
            _strike(strike, scene, caller)
            _finish(strike, cluster, spec, caller.ended(CALLER_S))
        finally:
            for pid in scene.stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            cluster.mend()  # what has lived on behind a cut has to end now, too
            nobody_left(folder)
    if cell.strike == CUT_OFF:  # a worker that did not answer is asked again, every five seconds
        poll_for(lambda: not cluster.leftovers(), LEFT_S)
    left = cluster.leftovers()
    if left:
        raise Wrong("the cluster still has", left)
    check(cell, strike, spec)


class Caller:
    """A call of the job, in a process of its own."""

    def __init__(self, spec: dict[str, Any], address: str, *, resume: bool = False) -> None:
        self.folder = Path(spec["folder"])
        told = self.folder / "spec.json"
        told.write_text(json.dumps(spec | {"address": address, "resume": resume}))
        self._log = self.folder / LOG
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(CALLER), str(told)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self, timeout_s: float) -> int:
        """Return its exit code; that it does not end is wrong."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Wrong("the caller did not end", self.said()) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Have its stacks in the log, if it should have ended by now, and end it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        """Return the end of what it printed."""
        return self._log.read_text()[-3000:]


def _strike(strike: Strike, scene: Scene, caller: Caller) -> None:
    """Wait for the moment, and strike."""
    if not poll_for(lambda: _reached_or_ended(scene.folder, caller), MOMENT_S):
        raise Wrong("the moment did not come", caller.said())
    told = moments.reached(scene.folder)
    if told is None:
        raise Wrong("the caller ended before the moment", caller.said())
    scene.reached = told
    strike.do(scene)
    (scene.folder / moments.GO).touch()


def _reached_or_ended(folder: Path, caller: Caller) -> bool:
    return moments.reached(folder) is not None or caller.process.poll() is not None


def _finish(
    strike: Strike, cluster: HandCluster | CutCluster, spec: dict[str, Any], code: int
) -> None:
    """Call the job again until it is Completed, where its caller may have ended."""
    calls = 1
    while code != COMPLETED:
        log = (Path(spec["folder"]) / LOG).read_text()[-3000:]
        if code not in strike.ends or calls == CALLS:
            raise Wrong("a call exits with", calls, code, log)
        (Path(spec["job_dir"]).parent / BALLAST).unlink(missing_ok=True)
        cluster.mend()
        with Caller(spec, cluster.address, resume=True) as caller:
            code = caller.ended(CALLER_S)
        calls += 1


# ---- what is left ----


def check(cell: Cell, strike: Strike, spec: dict[str, Any]) -> None:
    """Compare the output with that of a serial run, and look who was charged."""
    out = Path(spec["folder"]) / "out"
    job = JobFolder(spec["job_dir"])
    lines = serial_lines(spec)
    if cell.action == DATA_SET:
        _same([path.name for path in out.iterdir()], ["parallel_run_step.parquet"], "output")
        rows_of_set = table_of(out / "parallel_run_step.parquet")["result"].to_pylist()
        _same(rows_of_set, lines, "rows of the data set")
    elif cell.action == "append_row":
        found = {path.name: path.read_text() for path in out.iterdir()}
        _same(found, {"parallel_run_step.txt": "".join(f"{line}\n" for line in lines)}, "output")
        rows = read_rows(job, ignore_index=bool(bad_rows(spec)))
        _same(None if rows is None else list(rows["result"]), lines, "typed rows")
    else:
        found = {path.name: path.read_text() for path in out.iterdir() if path.suffix == ".txt"}
        _same(found, {f"{n}.txt": line for n, line in enumerate(lines)}, "files of the script")
    commits = History(job).commits
    _same(sorted(commits.column("index").tolist()), list(range(mini_batches(spec))), "commits")
    attempts = _attempts(job)
    guilty = {str(number // SIZE) for number in bad_rows(spec)}
    failed = [row for row in attempts if row["Status"] != "RUN_DONE" and row["charged"]]
    charged = [row for row in failed if row["Mini-batch Id"] not in guilty]
    if len(charged) > strike.charged:
        raise Wrong("attempts of the innocent were charged", charged)
    done = Counter(row["Mini-batch Id"] for row in attempts if row["Status"] == "RUN_DONE")
    found_bad = pq.read_table(job.failed_rows)["_position"].to_pylist() if guilty else []
    _same(found_bad, [*bad_rows(spec)], "failed rows")
    _same([index for index, times in done.items() if times > 1], [], "done twice")


def _attempts(job: JobFolder) -> list[dict[str, Any]]:
    """Return the rows of the table, as far as they were written before the caller was killed.

    On a full disk the last one may be torn.
    """
    if not job.attempts.exists():
        return []
    lines = job.attempts.read_text().splitlines(keepends=True)
    rows: list[dict[str, Any]] = list(csv.DictReader(line for line in lines if line[-1] == "\n"))
    for row in rows:
        row["charged"] = json.loads(row["Mini-batch Detail"])["charged"]
    return rows


def _same(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise Wrong(what, found, "instead of", expected)


def nobody_left(folder: Path) -> None:
    """Wait until no process of the job's agents is there."""
    if not poll_for(lambda: not _of_job(folder), LEFT_S):
        left = [process.pid for process in _of_job(folder)]
        for process in _of_job(folder):
            process.kill()
        raise Wrong("processes are left", left)


def _of_job(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["environ", "status"])
        if (process.info["environ"] or {}).get(moments.FOLDER) == str(folder)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
