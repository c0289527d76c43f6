"""Hints: what the figures of a job show of its trouble, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daskprs._page.process_rows import shares_of
from daskprs._report.humanize import counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._page.attempt_table import Attempts
    from daskprs._page.figures import OfNode, RecordedFigures

MOST = 0.5
"""Share of the time from which on something takes most of it."""
FEW = 0.1
"""Share of all mini-batches that are few, and of attempts that fail anywhere."""
FEWEST_ATTEMPTS = 20
SLOW_TIMES = 5.0
"""Times the median from which on a mini-batch is slow, …"""
SKEW = 0.2
"""… and the share of the time in `run` from which on slow ones are worth a word."""
LEAK_MB = 5.0
"""Growth from one mini-batch to the next that is more than what comes and goes."""


def hints_of(figures: RecordedFigures, place: str) -> list[str]:
    """Return what the figures of a job show of its trouble; `place` is that of its input."""
    return [
        *_of_time(figures, place),
        *_of_skew(figures.table.attempts),
        *_of_nodes(figures.nodes),
        *_of_workers(figures),
        *_of_memory(figures),
    ]


def _of_time(figures: RecordedFigures, place: str) -> Iterator[str]:
    """Yield a hint where processes had more to do than the script."""
    if len(figures.table.attempts.started) < FEWEST_ATTEMPTS:
        return
    shares = shares_of(figures.rows)
    load, run, form = (shares.get(name, 0.0) for name in ("loading", "run()", "formatting"))
    if load > MOST and "preprocess" in figures.record.options:
        yield (
            f"The processes of run() read what preprocess has handed on for {load:.0%} of the "
            f"time, and were in run() for {run:.0%}. Hand on less: arrays and tensors of small "
            "types, such as the bytes of pictures (uint8), and no lists of many objects."
        )
    elif load > MOST:
        yield (
            f"The processes waited for their input for {load:.0%} of the time, and were in run() "
            f"for {run:.0%}. The input is read from {place}: a faster store, or more processes if "
            "the store answers slowly, would help, and a faster script would not."
        )
    elif form > MOST:
        yield (
            f"Formatting what run() returned took {form:.0%} of the time of the processes, and "
            f"run() {run:.0%}. Return fewer or shorter rows, or write Parquet, which takes less "
            "time than text."
        )


def _of_skew(attempts: Attempts) -> Iterator[str]:
    run_s = attempts.run_s[attempts.is_done]
    if len(run_s) < FEWEST_ATTEMPTS:
        return
    long = run_s[run_s > SLOW_TIMES * np.median(run_s)]
    share = float(long.sum() / max(run_s.sum(), 1e-9))
    if share > SKEW and len(long) <= FEW * len(run_s):
        yield (
            f"{len(long):,} of {len(run_s):,} mini-batches took {share:.0%} of the time in run(): "
            "the slowest mini-batches are listed, with their input. If they have more rows or "
            "files than others, smaller mini-batches let other processes share the work; a key is "
            "always one."
        )


def _of_nodes(nodes: list[OfNode]) -> Iterator[str]:
    """Yield hints on nodes that have failed where others have not."""
    good = [one for one in nodes if one.attempts > one.failed]
    share = sum(one.failed for one in good) / max(1, sum(one.attempts for one in good))
    if not good or share > FEW:
        return
    for one in nodes:
        if one not in good and (one.attempts or one.not_ready):
            what = f"all {counted(one.attempts, 'attempt')} failed"
            if not one.attempts:
                what = f"no process was ready: {one.not_ready:,} of them failed as they started"
            yield (
                f"On node {one.node}{one.host and f' ({one.host})'} {what}. On the other nodes, "
                f"{share:.0%} of the attempts failed. Compare its packages, drivers, environment "
                "variables and mounts with those of the others."
            )


def _of_workers(figures: RecordedFigures) -> Iterator[str]:
    """Yield a hint where workers went while the job ran, and did not come back."""
    begun = figures.work.begins[-1]  # a later run may have a smaller cluster
    workers = [one for one in figures.record.workers if one.time_s >= begun]
    most = max((one.slots for one in workers), default=0)
    if not workers or workers[-1].slots >= most:
        return
    last = max(at for at, one in enumerate(workers) if one.slots == most) + 1
    at_s = float(figures.work.at(np.array([workers[last].time_s]))[0])
    yield (
        f"The cluster had {counted(most, 'slot')} until {duration(at_s)} after the start, and "
        f"{workers[-1].slots:,} at the end: workers were lost, or the cluster let them go. The "
        "messages name those that fell silent."
    )


def _of_memory(figures: RecordedFigures) -> Iterator[str]:
    """Yield a hint where processes died for want of memory, and grew with each mini-batch."""
    lacking = [life for life in figures.lives if "memory" in life.reason.lower()]
    attempts = figures.table.attempts
    order = np.lexsort((attempts.started, attempts.process))
    grown = np.diff(attempts.peak_mb[order])
    grown = grown[np.diff(attempts.process[order]) == 0]
    grown = grown[~np.isnan(grown)]
    if lacking and len(grown) and (middle := float(np.median(grown))) > LEAK_MB:
        yield (
            f"{counted(len(lacking), 'process')} died for want of memory, and a process grew by "
            f"{middle:,.0f} MB from one mini-batch to the next: the script may keep what it has "
            "read or made. agent_max_mini_batches ends a process after so many mini-batches."
        )
