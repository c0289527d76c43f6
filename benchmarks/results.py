"""What was measured: a file of raw runs, and the medians, spreads and ratios of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.machine import checked_out, machine_facts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one peer.

    Parameters
    ----------
    workload, peer, repeat
        Which it was.
    wall_s
        Of the whole process.
    seconds
        What is compared: the wall time, or the part of it that the workload is about.
    cpu_s, peak_pss_bytes
        Of the tree.
    load_before
        The machine's load average when it started: above 1, others were at work.
    problem
        Why it does not count, or None.
    measures
        What its output says besides.

    """

    workload: str
    peer: str
    repeat: int
    wall_s: float
    seconds: float
    cpu_s: float
    peak_pss_bytes: int
    load_before: float
    problem: str | None = None
    measures: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Results:
    """All runs of one session on one machine.

    Parameters
    ----------
    scale
        Of the data.
    repeats
        Asked for.
    titles
        Of the workloads, by name.
    references
        The peers that ratios are to, by workload; `LIMIT` for those that are not named.
    versions
        Of the packages that each peer ran with.
    unavailable
        Peers that could not take part, and why.
    machine, date, commit
        Where, when, and what of daskprs.
    runs
        In the order in which they ran.

    """

    scale: float
    repeats: int
    titles: dict[str, str]
    versions: dict[str, dict[str, str]]
    unavailable: dict[str, str]
    references: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=machine_facts)
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    commit: str = field(default_factory=checked_out)
    runs: list[Run] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write them, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1) + "\n")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        runs = [Run(**run) for run in fields.pop("runs")]
        return cls(**fields, runs=runs)

    def good(self, workload: str, peer: str) -> list[Run]:
        """Return the runs that count."""
        return [run for run in self.all(workload, peer) if run.problem is None]

    def all(self, workload: str, peer: str) -> list[Run]:
        """Return the runs of a peer on a workload."""
        return [run for run in self.runs if (run.workload, run.peer) == (workload, peer)]

    def peers(self) -> list[str]:
        """Return who ran, in the order of their first run."""
        return list(dict.fromkeys(run.peer for run in self.runs))

    def reference(self, workload: str) -> str:
        """Return the peer that ratios are to."""
        return self.references.get(workload, LIMIT)

    def ratios(self, workload: str, peer: str) -> Spread | None:
        """Return the ratios to the reference, of runs of the same turn; None if there are none."""
        reference = self.good(workload, self.reference(workload))
        seconds = {run.repeat: run.seconds for run in reference}
        return Spread.of(
            run.seconds / seconds[run.repeat]
            for run in self.good(workload, peer)
            if run.repeat in seconds
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some values, and how far apart they are."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return it, None for no values."""
        ordered = sorted(values)
        return cls(median(ordered), ordered[0], ordered[-1]) if ordered else None
