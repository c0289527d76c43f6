"""Strike jobs at random until enough has died: ``random_deaths.py FOLDER JOBS DEATHS SEED``.

Each job is struck again and again, whatever it is at, and called again where its caller has ended.
Agents, workers, drivers and publishing are struck about equally often: the next strike is one of
those that came least. Which process it hits, and when, follows from the seed, which is printed.

The moment of a strike is looked up while the struck process is stopped, just before it is killed:
an agent shares a page with its worker, on which its phase is, and the driver writes what it is at.
Prints a line for each job and a table of the strikes by moment, which ``--counts FILE`` also writes
as CSV. Exits with 1 when a job is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import moments
import psutil
from caller import (
    COLLECTION,
    COMPLETED,
    COROUTINES,
    DATA_SET,
    FAILED,
    FRAME,
    ISOLATED,
    KEYED,
    STAGES,
)
from cell import CALLER_S, Caller, Cell, Wrong, check, nobody_left
from strikes import PAUSE_S, STRIKES, Strike

from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun
from daskprs._system.linux import children, descendants
from tests.support.hand_cluster import HandCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

AGENT, WORKER, DRIVER, PUBLISHING = "agent", "worker", "driver", "publishing"
GROUPS = (AGENT, WORKER, DRIVER, PUBLISHING)
"""What is struck equally often. Publishing: a driver or a worker, between last commit and end."""
OTHERS = ("scheduler killed", "scheduler paused", "caller paused")
SHARE_OF_OTHERS = 0.08
OF_WORKERS = ("worker killed", "bare worker killed", "nanny killed")
OF_AGENTS = ("starting", "init", "load", "run", "returned", "idle")
OF_DRIVERS = (moments.OPENING, moments.AT_WORK, moments.COMMIT, moments.SHUTDOWN, moments.ENDING)
AT_WORK_SHARE = 0.75
"""Of the strikes on workers, those that wait for agents at work."""
GAP_S = (0.05, 0.8)
AIM_S = 3.0
"""How long a strike waits for the moment at which it is aimed, once agents are at work; then it
falls as it may."""
UP_S = 20.0
"""How long it waits for agents to be up, or for the driver to come to a moment."""
STOP_S = 2.0
"""Seconds in which a process is stopped, unless it waits for a disk."""
ROWS, SECONDS = 120, 0.1
OPTIONS = {"run_max_try": 20, "max_node_losses": 60}
"""A mini-batch may have bad luck more than once."""
MOST = 15
"""After so many a job is left alone, so that it ends."""
KINDS = (
    ("append_row", FRAME),
    (DATA_SET, FRAME),
    ("summary_only", COLLECTION),
    ("append_row", KEYED),
    ("append_row", ISOLATED),
    ("append_row", STAGES),
    ("append_row", COROUTINES),
    ("summary_only", FRAME),
    ("summary_only", COROUTINES),
    ("append_row", COLLECTION),
)
"""The jobs: action and data."""


class Blow(NamedTuple):
    """A strike that fell."""

    strike: str
    moment: str

    def __str__(self) -> str:
        return f"{self.strike} in {self.moment}"


class Team(NamedTuple):
    """The agents of the job on one worker."""

    worker: int
    agents: list[int]


def main(base: Path, jobs: int, deaths: int, seed: int, counts: Path | None) -> int:
    """Strike job after job, and look at each."""
    fallen: Counter[Blow] = Counter()
    groups: Counter[str] = Counter(dict.fromkeys(GROUPS, 0))
    wrong = number = 0
    # One that is cut short says what it has seen, too, and leaves no cluster behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))
    try:
        with HandCluster(base / "cluster", bare=1) as cluster:
            while number < jobs or died(fallen) < deaths:
                number += 1
                action, data = KINDS[number % len(KINDS)]
                chance = random.Random(seed + number)  # noqa: S311 - no secret
                struck = StruckJob(cluster, base / str(number), action, data, chance, groups)
                try:
                    struck.run()
                except Wrong as error:
                    wrong += 1
                    print(f"WRONG  job {number}, seed {seed + number}, {action}, {data}:\n{error}")
                finally:
                    fallen.update(struck.blows)
                told = ", ".join(map(str, struck.blows))
                print(f"job {number}, seed {seed + number}, {action}, {data}: {told}", flush=True)
                shutil.rmtree(base / str(number), ignore_errors=True)
    finally:
        print(table(fallen))
        shares = ", ".join(f"{groups[group]} x {group}" for group in GROUPS)
        print(f"{number} jobs, {died(fallen)} deaths ({shares}), {wrong} wrong")
        if counts is not None:
            write_counts(counts, fallen)
    return min(wrong, 1)


def died(fallen: Mapping[Blow, int]) -> int:
    """Return how many strikes killed."""
    return sum(count for blow, count in fallen.items() if blow.strike.endswith("killed"))


def table(fallen: Mapping[Blow, int]) -> str:
    """Return the strikes by moment, as text."""
    strikes = sorted({blow.strike for blow in fallen})
    names = [name for name in moments.NAMES if any(blow.moment == name for blow in fallen)]
    wide = max(map(len, [*strikes, "strike"]))
    rows = [["strike".ljust(wide), *names]]
    for strike in strikes:
        told = (str(fallen.get(Blow(strike, name), "")).rjust(len(name)) for name in names)
        rows.append([strike.ljust(wide), *told])
    return "\n".join("  ".join(row).rstrip() for row in rows)


def write_counts(file: Path, fallen: Mapping[Blow, int]) -> None:
    """Write a line for each strike and moment, also for those that never came together."""
    with file.open("w", newline="") as opened:
        lines = csv.writer(opened)
        lines.writerow(("strike", "moment", "count"))
        for strike in sorted({blow.strike for blow in fallen}):
            lines.writerows(
                (strike, name, fallen.get(Blow(strike, name), 0)) for name in moments.NAMES
            )


class StruckJob:
    """One job, run to its end through all that happens to it."""

    def __init__(
        self,
        cluster: HandCluster,
        base: Path,
        action: str,
        data: str,
        chance: random.Random,
        groups: Counter[str],
    ) -> None:
        self._cluster = cluster
        self._folder = base / "cell"
        self._job = base / "job"
        self._chance = chance
        self._groups = groups
        self.blows: list[Blow] = []
        self._now = moments.Now(self._folder)
        self._spec: dict[str, Any] = {
            "folder": str(self._folder),
            "job_dir": str(self._job),
            "moment": "",
            "at": 0,
            "rows": ROWS,
            "seconds": SECONDS,
            "action": action,
            "data": data,
            "options": OPTIONS,
        }

    def run(self) -> None:
        """Call the job until it is Completed, and look at what is left."""
        self._folder.mkdir(parents=True)
        code = None
        try:
            while code != COMPLETED:
                self._cluster.mend()
                # A driver that dies while it opens the job may leave nothing to resume.
                resume = self._job.exists() and has_begun(JobFolder(self._job))
                self._now.tell(moments.OPENING)
                with Caller(self._spec, self._cluster.address, resume=resume) as caller:
                    code = self._strike_until_it_ends(caller)
        finally:
            nobody_left(self._folder)
        agents = sum(STRIKES[blow.strike].charged for blow in self.blows if blow.strike in STRIKES)
        expected = Strike(STRIKES["agent killed"].do, OPTIONS, charged=agents)
        check(Cell("", "", self._spec["action"], 0), expected, self._spec)

    def _strike_until_it_ends(self, caller: Caller) -> int:
        begun = time.monotonic()
        while caller.process.poll() is None:
            if time.monotonic() - begun > CALLER_S:
                raise Wrong("the caller does not end", caller.said())
            if len(self.blows) >= MOST:
                time.sleep(0.05)
                continue
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess, FileNotFoundError):
                self._strike(caller, begun)
            self._cluster.start_missing()
        code = caller.process.returncode
        if code not in {COMPLETED, FAILED, -signal.SIGKILL}:
            raise Wrong("the caller exits with", code, caller.said())
        return code

    def _strike(self, caller: Caller, begun: float) -> None:
        """Draw who is struck, and when, and strike."""
        fewest = min(self._groups[group] for group in GROUPS)
        group = self._chance.choice([one for one in GROUPS if self._groups[one] == fewest])
        if self._chance.random() < SHARE_OF_OTHERS:
            time.sleep(self._chance.uniform(*GAP_S))
            self._strike_another(caller, self._chance.choice(OTHERS))
            return
        before = len(self.blows)
        if group == AGENT:
            self._strike_agent(caller, self._chance.choice(OF_AGENTS))
        elif group == WORKER:
            if self._chance.random() < AT_WORK_SHARE:
                self._until_agents_work(caller)
            time.sleep(self._chance.uniform(*GAP_S))
            self._strike_worker(caller, self._chance.choice(OF_WORKERS))
        elif group == DRIVER:
            aim = self._chance.choice(OF_DRIVERS)
            time.sleep(self._chance.uniform(*GAP_S) if aim != moments.OPENING else 0.0)
            self._until(caller, aim, UP_S)
            self._strike_driver(caller)
        elif self._until(caller, moments.PUBLISH, begun + CALLER_S - time.monotonic()):
            # A driver that is struck here is called again, and publishes again.
            if self._chance.random() < 0.6:
                self._strike_driver(caller)
            else:
                self._strike_worker(caller, self._chance.choice(OF_WORKERS))
        for blow in self.blows[before:]:
            kind = group if group in (AGENT, WORKER) else DRIVER
            self._groups[PUBLISHING if blow.moment == moments.PUBLISH else kind] += 1

    def _until_agents_work(self, caller: Caller) -> None:
        """Wait until an agent is past its start, or the driver past its work."""
        until = time.monotonic() + UP_S
        while caller.process.poll() is None and time.monotonic() < until:
            found = {moments.of_agent(pid) for team in self._teams() for pid in team.agents}
            if found - {None, "starting", "init"}:
                return
            if self._now.of_driver() in (moments.PUBLISH, moments.ENDING):
                return
            time.sleep(0.02)

    def _until(self, caller: Caller, moment: str, within_s: float) -> bool:
        """Wait until the driver is at a moment; say whether it came."""
        until = time.monotonic() + within_s
        while self._now.of_driver() != moment:
            if time.monotonic() > until or caller.process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True

    def _strike_driver(self, caller: Caller) -> None:
        if not stopped(caller.process.pid):
            return
        moment = self._now.of_driver()
        os.kill(caller.process.pid, signal.SIGKILL)
        self.blows.append(Blow("caller killed", moment))
        caller.process.wait(CALLER_S)

    def _strike_agent(self, caller: Caller, aim: str) -> None:
        """Kill an agent that is at the moment, or any one if none comes to it."""
        if aim not in ("starting", "init"):
            self._until_agents_work(caller)
        until = time.monotonic() + (UP_S if aim in ("starting", "init") else AIM_S)
        while caller.process.poll() is None and self._now.of_driver() != moments.ENDING:
            is_late = time.monotonic() > until
            agents = [pid for team in self._teams() for pid in team.agents]
            self._chance.shuffle(agents)
            for pid in agents:
                if not is_late and moments.of_agent(pid) != aim:
                    continue
                if not stopped(pid):
                    continue
                moment = moments.of_agent(pid)
                if moment is not None and (is_late or moment == aim):
                    os.kill(pid, signal.SIGKILL)
                    self.blows.append(Blow("agent killed", moment))
                    return
                os.kill(pid, signal.SIGCONT)
            if is_late and self._now.of_driver() == moments.PUBLISH:
                return
            time.sleep(0.002)

    def _strike_worker(self, caller: Caller, strike: str) -> None:
        """Kill a worker or a nanny; its moment is that of an agent, or else of the driver."""
        whom = self._chance.choice(self._workers(strike) or [0])
        if not whom or caller.process.poll() is not None or not stopped(whom):
            return
        agents = [
            moment
            for team in self._teams()
            if whom == team.worker or whom == parent_of(team.worker)
            for moment in map(moments.of_agent, team.agents)
            if moment is not None
        ]
        moment = self._now.of_driver()
        if agents and moment in (moments.AT_WORK, moments.COMMIT):
            moment = self._chance.choice(agents)
        os.kill(whom, signal.SIGKILL)
        self.blows.append(Blow(strike, moment))

    def _strike_another(self, caller: Caller, strike: str) -> None:
        pid = caller.process.pid if strike == "caller paused" else self._cluster.scheduler
        if not stopped(pid):
            return
        self.blows.append(Blow(strike, self._now.of_driver()))
        if strike.endswith("paused"):
            time.sleep(PAUSE_S)
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, signal.SIGKILL)

    def _workers(self, strike: str) -> list[int]:
        """Return the processes that a strike may hit."""
        cluster = self._cluster
        if strike == "bare worker killed":
            return cluster.bare
        if strike == "nanny killed":
            return cluster.nannies
        return [pid for nanny in cluster.nannies for pid in children(nanny) if is_worker(pid)]

    def _teams(self) -> list[Team]:
        """Return the workers that have agents of this job, and these."""
        mark = f"{moments.FOLDER}={self._folder}\0".encode()
        teams: dict[int, list[int]] = {}
        for top in (*self._cluster.nannies, *self._cluster.bare):
            for pid in descendants(top):
                above = parent_of(pid)
                if is_of_job(pid, mark) and not is_of_job(above, mark):
                    teams.setdefault(above, []).extend(children(pid))
        return [Team(worker, agents) for worker, agents in teams.items()]


def stopped(pid: int) -> bool:
    """Stop a process, and say whether it stands still."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + STOP_S
    while time.monotonic() < until:
        state = stat_of(pid)[0]
        if state == "T":
            return True
        if state in "ZX":
            return False
        time.sleep(0.0002)
    os.kill(pid, signal.SIGCONT)
    return False


def stat_of(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    try:
        return int(stat_of(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_of_job(pid: int, mark: bytes) -> bool:
    """Say whether a process has the job's mark in its environment."""
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def is_worker(pid: int) -> bool:
    """Say whether a child of a nanny is its worker."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folder", type=Path)
    for name in ("jobs", "deaths", "seed"):
        words.add_argument(name, type=int)
    words.add_argument("--counts", type=Path, help="a file for the table, as CSV")
    given = words.parse_args()
    sys.exit(main(given.folder, given.jobs, given.deaths, given.seed, given.counts))
