"""What the processes of a job did over time, from their lives and their attempts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs._core.stages import PREPROCESS
from daskprs._page.working_time import covered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._page.attempt_table import AttemptTable
    from daskprs._page.process_lives import Life
    from daskprs._page.working_time import WorkingTime

MOST_ROWS = 40
"""Most rows of the picture of processes; each is of several processes where there are more."""
NAMES = ("run()", "loading", "formatting", "starting and init()", "nothing to do")
"""What a process spends its time with."""


class Spent(NamedTuple):
    """Seconds of processes, by what they did: all of them, or those in each part of the time."""

    run: np.ndarray
    """In `run`."""
    load: np.ndarray
    """Waiting for the input of a mini-batch."""
    format: np.ndarray
    """Formatting what `run` returned."""
    init: np.ndarray
    """Starting, and in `init`."""
    alive: np.ndarray
    """All of it, with the time in which they had nothing to do."""


class Row(NamedTuple):
    """A row of the picture of processes."""

    name: str
    """The process, or the first of several and the number of the others."""
    size: int
    """Number of processes."""
    spent: Spent
    deaths: list[float]
    """When processes died, in seconds of work."""


def process_rows(lives: Sequence[Life], table: AttemptTable, work: WorkingTime) -> list[Row]:
    """Return what each process did in each part of the time, or several processes together."""
    by_name: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        by_name[life.name].append(life)
    size = max(1, -(-len(by_name) // MOST_ROWS))
    numbers = {name: number for number, name in enumerate(table.processes)}
    names = sorted(by_name, key=_order)
    of_run, of_stages = ([one for one in names if _is_of_stages(one) == each] for each in (0, 1))
    return [
        _row(group[at : at + size], by_name, numbers, table, work)
        for group in (of_run, of_stages)
        for at in range(0, len(group), size)
    ]


def begin_before_calls(lives: list[Life], table: AttemptTable, work: WorkingTime) -> None:
    """Let processes be ready before their first calls.

    The driver hears that a process is ready as late as of its first results. What an attempt took
    was measured by the process itself.
    """
    numbers = {name: number for number, name in enumerate(table.processes)}
    attempts = table.attempts
    order = np.lexsort((attempts.started, attempts.process))
    started, process = attempts.started[order], attempts.process[order]
    ended: dict[str, float] = {}
    for life in lives:
        number = numbers.get(life.name, -1)
        # A later run may begin with the names of one whose driver was killed.
        since = max(work.begin_of_run(life.heard), ended.get(life.name, 0.0))
        at = int(np.searchsorted(process, number))
        at += int(np.searchsorted(started[at : np.searchsorted(process, number + 1)], since))
        if life.ready is not None and at < len(process) and process[at] == number >= 0:
            life.ready = min(life.ready, float(started[at]))
        ended[life.name] = life.heard if life.ended is None else life.ended


def shares_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return the shares of the time of all processes, by what they did.

    Those of `preprocess` are left out: an attempt is one of the process of `run`.
    """
    rows = [row for row in rows if not _is_of_stages(row.name)]
    if not rows:
        return {}
    sums = [float(np.sum(each)) for each in zip(*(row.spent for row in rows), strict=True)]
    *sums, alive = sums
    alive = max(alive, sum(sums)) or 1.0  # several calls at a time are more
    seconds = (*sums, alive - sum(sums))
    return {name: one / alive for name, one in zip(NAMES, seconds, strict=True)}


def _row(
    names: list[str],
    lives: dict[str, list[Life]],
    numbers: dict[str, int],
    table: AttemptTable,
    work: WorkingTime,
) -> Row:
    attempts = table.attempts
    of_these = np.isin(attempts.process, [numbers[one] for one in names if one in numbers])
    started, ended = attempts.started[of_these], attempts.ended[of_these]
    loaded = started + attempts.load_s[of_these]
    returned = np.minimum(loaded + attempts.run_s[of_these], ended)
    own = [life for name in names for life in lives[name]]
    begun = [life.begun for life in own]
    ready = [life.begun + life.init_s for life in own]
    gone = [work.end_of_run(life.heard) if life.ended is None else life.ended for life in own]
    of_calls = (loaded, returned), (started, loaded), (returned, ended)
    times = *of_calls, (begun, ready), (begun, gone)
    spent = Spent(*(_covered(work, *each) for each in times))
    deaths = [life.ended for life in own if life.reason and life.ended is not None]
    name = names[0] if len(names) == 1 else f"{names[0]} + {len(names) - 1}"
    return Row(name, len(names), spent, work.at(np.array(deaths, float)).tolist())


def _covered(work: WorkingTime, starts: object, stops: object) -> np.ndarray:
    first, last = (work.at(np.asarray(each, float)) for each in (starts, stops))
    return covered(first, np.maximum(first, last), work.edges)


def _is_of_stages(name: str) -> bool:
    process = name.partition("/")[2]  # process000-03, or preprocess000 on a node without a GPU
    return "-" in process or process.startswith(PREPROCESS)


def _order(name: str) -> tuple[int, int, str]:
    node, _, process = name.partition("/")
    return int(node), len(process), process  # process1000 comes after process999
