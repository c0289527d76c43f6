"""Where the time goes: samples of py-spy, sorted into the phases of a job.

A sample is the stack of a thread that py-spy took to be at work. Threads that wait are recognised
by where they wait, and left out. What remains says in which proportion the phases cost processor
time; the same rules sort the hand-written loop, so that a phase has its floor beside it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import checked_out
from benchmarks.peer_list import Peer
from benchmarks.process_tree import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.session import Session
    from benchmarks.workloads import Workload

PROFILER = Peer("py-spy", "", "py-spy", ("py-spy",))
RATE_HZ = 100
WAITS = re.compile(
    r"(^|\.)(wait|wait_for|select|poll|acquire|join|_wait_for_tstate_lock)( |$)"
    r"|\((threading|selectors|queue|selector_events)\.py"
    r"|_worker \(concurrent/futures/thread\.py|Loader\.(_serve|take) \("
    r"|Connection\._recv |Nursery\.serve|Zygote\._listen"
)
"""The innermost frame of a thread that has nothing to do."""
PROCESS = re.compile(r'process \d+:".*?"(;|$)')
"""What begins the stacks of each process; its command line may hold anything."""
PHASES = (
    ("import", r"_find_and_load|<frozen importlib"),
    ("run", r"\(benchmarks/(work|faulty)\.py"),
    ("format", r"\(daskprs/_output/rows/"),
    ("format", r"(csv_text|lines_text) \(benchmarks/slices\.py"),
    ("read", r"Loader\._load \(|(load|_parse|_row_group) \(benchmarks/slices\.py"),
    ("prepare", r"\(daskprs/_inputs/|\(benchmarks/(sorted_keys|frames|slices)\.py"),
    ("gather", r"\(daskprs/_output/"),
    ("ship", r"_pickled \(|\(daskprs/_agent/(protocol/|child/(inbox|main|outbox))"),
    ("ship", r"\(daskprs/_agent/supervision/(slot|supervisor)"),
    ("decide", r"\(daskprs/(core|report|cluster/(dispatch|lease|slot_allocator))"),
    ("Dask", r"\((distributed|dask|tornado|asyncio)/"),
    ("start and end", r"\(daskprs/|zygote"),
    ("ship", r"\(multiprocessing/|\(benchmarks/peers/"),
)
"""In the order in which they are looked for, anywhere in a stack."""
ORDER = tuple(dict.fromkeys([*(phase for phase, _ in PHASES), "other"]))


@dataclass(frozen=True, slots=True)
class Profile:
    """How many samples each phase had.

    Parameters
    ----------
    title
        Of the workload.
    peer
        Whose time it was.
    samples
        By phase.

    """

    title: str
    peer: str
    samples: dict[str, int]

    def share(self, phase: str) -> float:
        """Return the part of all samples that a phase had."""
        return self.samples.get(phase, 0) / max(1, sum(self.samples.values()))


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles of one commit."""

    commit: str
    profiles: list[Profile]

    def save(self, path: Path) -> None:
        """Write them."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Profiles:
        """Read what `save` wrote."""
        fields = json.loads(path.read_text())
        return cls(fields["commit"], [Profile(**one) for one in fields["profiles"]])


def profiles(session: Session) -> Profiles:
    """Profile every peer of a session on every workload, once."""
    taken = [
        Profile(session.title(workload), peer.name, dict(_samples(session, peer, workload)))
        for workload in session.workloads
        for peer in session.peers
        if workload.kind in peer.kinds
    ]
    return Profiles(checked_out(), taken)


def sort_samples(lines: Sequence[str]) -> Counter[str]:
    """Return the number of samples of each phase, of lines ``frame;frame;frame count``."""
    found: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if count.isdigit() and (phase := phase_of(stack)):
            found[phase] += int(count)
    return found


def phase_of(stack: str) -> str | None:
    """Return the phase of a stack; None if the thread waits."""
    frames = PROCESS.sub("", stack)
    if not frames or WAITS.search(frames.rpartition(";")[2]):
        return None
    return next((phase for phase, pattern in PHASES if re.search(pattern, frames)), "other")


def _samples(session: Session, peer: Peer, workload: Workload) -> Counter[str]:
    folder = Path(tempfile.mkdtemp(dir=session.runs_folder()))
    try:
        raw = folder / "samples.txt"
        spy = [str(PROFILER.home / "bin" / "py-spy"), "record", "--subprocesses"]
        spy += ["--rate", str(RATE_HZ), "--format", "raw", "--output", str(raw), "--"]
        command = [*spy, *session.command(peer, workload, folder)]
        measure(command, folder, session.environment(folder), session.limit_s)
        return sort_samples(raw.read_text(errors="replace").splitlines())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
