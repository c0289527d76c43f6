"""A session: runs of peers on workloads, taken in turns, each one checked."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.checks import NOTES_FILE, WrongOutputError
from benchmarks.faulty import NOTES_VARIABLE
from benchmarks.job import SECONDS_FILE, Job
from benchmarks.peer_list import HOME, ROOT
from benchmarks.process_tree import Measured, measure
from benchmarks.results import Results, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.data import Expected
    from benchmarks.peer_list import Peer
    from benchmarks.workloads import Workload

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Peers work in as many processes as there are cores; threads of BLAS would only be in the way."""
CHUNK_BYTES = 1 << 20
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Nobody is to compile the same modules in each run."""


@dataclass(frozen=True, slots=True)
class Session:
    """What to run, and how often.

    Parameters
    ----------
    peers, workloads
        Who does what.
    scale
        Of the data.
    repeats
        Runs of each peer on each workload.
    limit_s
        What takes longer is ended and counts as hanging.
    processes
        How many may work at a time. Default: one for each core.
    home
        The folder of data and runs.

    """

    peers: Sequence[Peer]
    workloads: Sequence[Workload]
    scale: float
    repeats: int
    limit_s: float
    processes: int | None = None
    home: Path = HOME

    def run(self, saved: Path) -> Results:
        """Run everything; what was measured is saved after each turn."""
        missing = {peer.name: reason for peer in self.peers if (reason := peer.missing())}
        there = [peer for peer in self.peers if peer.name not in missing]
        results = Results(
            scale=self.scale,
            repeats=self.repeats,
            titles={one.name: self.title(one) for one in self.workloads},
            references={one.name: one.reference for one in self.workloads},
            versions={peer.name: peer.versions() for peer in there},
            unavailable=missing,
        )
        for repeat in range(self.repeats):
            for workload in self.workloads:
                for peer in self._turn(there, workload, repeat):
                    results.runs.append(self.run_one(peer, workload, repeat))
                results.save(saved)
        return results

    def run_one(self, peer: Peer, workload: Workload, repeat: int = 0) -> Run:
        """Run one peer on one workload in a fresh folder, and check what it has written."""
        folder = Path(tempfile.mkdtemp(dir=self.runs_folder()))
        try:
            command = self.command(peer, workload, folder)
            _read(self.input(workload)[0])  # else who comes first would wait for the disk alone
            os.sync()  # what the run before has written is not for this one to wait for
            load = os.getloadavg()[0]
            limit_s = workload.limit_s or self.limit_s
            measured = measure(command, folder, self.environment(folder), limit_s)
            _, expected = self.input(workload)
            run = _checked(peer, workload, expected, measured, folder, repeat, load)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        _tell(run)
        return run

    def command(self, peer: Peer, workload: Workload, folder: Path) -> list[str]:
        """Return what starts a peer on a workload; the output is to lie in a folder."""
        source, expected = self.input(workload)
        job = Job(
            kind=workload.kind,
            run=workload.run,
            input=str(int(expected["rows"])) if workload.kind == "frame" else str(source),
            output=str(folder / "output.csv"),
            size=workload.size,
            processes=self.processes_of(workload),
        )
        return [str(peer.python), "-m", f"benchmarks.peers.{peer.module}", job.to_argument()]

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment of every peer."""
        inherited = {name: os.environ[name] for name in os.environ if name != NO_BYTECODE}
        notes = {NOTES_VARIABLE: str(folder / NOTES_FILE)}
        return {**inherited, **ONE_THREAD, **notes, "PYTHONPATH": str(ROOT)}

    def input(self, workload: Workload) -> tuple[Path, Expected]:
        """Return what is worked on, and what is expected of it."""
        return workload.data.made(self.home / "data", self.scale)

    def runs_folder(self) -> Path:
        """Return the folder in which each run has one of its own."""
        runs = self.home / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        return runs

    def title(self, workload: Workload) -> str:
        """Return the title of a workload with the number of what it works on."""
        count = f"{workload.data.count_at(self.scale):,}"
        return workload.title.format(count=count, processes=self.processes_of(workload))

    def processes_of(self, workload: Workload) -> int:
        """Return how many processes a workload has."""
        return workload.processes or self.processes or len(os.sched_getaffinity(0))

    @staticmethod
    def _turn(peers: Sequence[Peer], workload: Workload, repeat: int) -> list[Peer]:
        """Return the peers that can do it, beginning with another one each time."""
        able = [
            peer
            for peer in peers
            if workload.kind in peer.kinds and (not workload.peers or peer.name in workload.peers)
        ]
        first = repeat % len(able) if able else 0
        return able[first:] + able[:first]


def _read(source: Path) -> None:
    """Read files to their ends, so that they lie in memory."""
    for path in [source] if source.is_file() else filter(Path.is_file, source.rglob("*")):
        with path.open("rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                pass


def _checked(
    peer: Peer,
    workload: Workload,
    expected: Expected,
    measured: Measured,
    folder: Path,
    repeat: int,
    load: float,
) -> Run:
    problem, measures = _problem(measured, folder), {}
    if problem is None:
        try:
            measures = workload.check(folder / "output.csv", expected, ordered=peer.ordered)
        except (WrongOutputError, OSError, ValueError) as error:
            problem = f"wrong output: {error}"
    own = folder / SECONDS_FILE
    return Run(
        workload=workload.name,
        peer=peer.name,
        repeat=repeat,
        wall_s=measured.wall_s,
        seconds=float(own.read_text()) if own.exists() else measured.wall_s,
        cpu_s=measured.cpu_s,
        peak_pss_bytes=measured.peak_pss_bytes,
        load_before=load,
        problem=problem,
        measures=measures,
    )


def _problem(measured: Measured, folder: Path) -> str | None:
    """Return how a run ended that did not end well, with the last of what it said."""
    if measured.status is None:
        return f"hangs: ended after {measured.wall_s:.0f} s"
    if measured.status != 0:
        lines = (folder / "log.txt").read_text(errors="replace").splitlines()
        said = " | ".join(line.strip() for line in lines if line.strip())[-300:]
        return f"stopped with status {measured.status}: {said}"
    return None


def _tell(run: Run) -> None:
    """Show that it goes on."""
    words = f"{run.workload:14} {run.peer:16} {run.seconds:8.2f} s  {run.cpu_s:8.1f} s of processor"
    print(
        f"{words}  {run.peak_pss_bytes >> 20:6} MB  {run.problem or 'right'}",
        file=sys.stderr,
        flush=True,
    )
