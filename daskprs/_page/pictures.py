"""The pictures of a report: what came when, what each process did, how long `run` took."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from daskprs._page.chart import (
    BLUE,
    GREEN,
    GREY,
    HEIGHT_PX,
    ORANGE,
    RED,
    VIOLET,
    Sign,
    Tick,
    axis,
    figure,
    legend,
    line,
    plot,
    round_top,
    row,
    steps,
    time_ticks,
)
from daskprs._page.figures import RecordedFigures
from daskprs._page.process_rows import NAMES, shares_of
from daskprs._page.working_time import BINS
from daskprs._report.humanize import counted, duration, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._folders.job_folder import JobFolder
    from daskprs._page.contents import Contents
    from daskprs._page.process_rows import Row

UNITS = 64
"""Height of a plot in units of its own."""
OF_MACHINES = ("cores", "memory", "GPUs", "GPU memory")
ROW_PX, ROW_UNITS = 14, 14
COLORS = (BLUE, ORANGE, VIOLET, GREY)
"""Those of what a process spends its time with: the first four of `NAMES`."""
LOW_PX = 40
MOST_DEATHS = 20
"""Most deaths that a row marks: a process that dies a thousand times is red anyway."""
MOST_SIGNS = 60
"""Most signs in a row of the throughput: each stands for all that happened in its time."""
FROM_S = 10.0
MOST_BYTES = 32 << 20
"""Size of the table of attempts up to which a cell of a notebook waits for the picture."""
CLASSES_OF_TEN = 6
"""Into how many classes each power of ten of the run times is cut."""


def throughput(figures: RecordedFigures, unit: str) -> str:
    """Return what was done over time, what failed, and when processes and workers changed."""
    per_s, failed, retried = figures.per_s()
    top = round_top(float(per_s.max()))
    done = _area(per_s, top, GREEN, HEIGHT_PX)
    parts = [row(f"{rounded(top)} {unit}s/s", done, _joints(figures))]
    for values, name, color in (failed, "failed", RED), (retried, "retried", ORANGE):
        if values.any():
            most = round_top(float(values.max()))
            parts.append(row(f"{rounded(most)} {name}/s", _area(values, most, color, LOW_PX)))
    deaths = [at for each in figures.rows for at in each.deaths]
    renewed = figures.work.at(np.array(figures.record.renewed)).tolist()
    parts += [
        _events("died", deaths, "✕", RED, figures),
        _events("renewed", renewed, "↻", BLUE, figures),
        _slots(figures),
        axis([*time_ticks(figures.work.length_s)]),
    ]
    mean = float(per_s.mean())
    return figure(
        "Throughput",
        f"{rounded(mean)} {unit}s per second in the mean, {rounded(per_s.max())} at most.",
        parts,
    )


def _events(name: str, times: list[float], sign: str, color: str, figures: RecordedFigures) -> str:
    """Return a row with a sign wherever something has happened to processes, if it has."""
    if not times:
        return ""
    length_s = figures.work.length_s
    counts, edges = np.histogram(times, MOST_SIGNS, (0.0, length_s))
    marks = [
        Sign(
            float(edges[at] / length_s) + 0.5 / MOST_SIGNS,
            0.5,
            sign,
            color,
            f"{counted(int(counts[at]), 'process')} {name} {duration(float(edges[at]))} in",
        )
        for at in np.flatnonzero(counts).tolist()
    ]
    return row(f"{len(times):,} {name}", plot([], BINS, ROW_UNITS, ROW_PX), marks)


def _slots(figures: RecordedFigures) -> str:
    """Return how many slots the cluster had, where that has changed."""
    workers = figures.record.workers
    if len({one.slots for one in workers}) <= 1:
        return ""
    at = figures.work.at(np.array([one.time_s for one in workers]))
    which = np.searchsorted(at, figures.work.edges[1:], side="right") - 1
    slots = np.array([one.slots for one in workers], float)
    values = np.where(which < 0, 0.0, slots[np.clip(which, 0, None)])
    top = float(slots.max())
    return row(f"{top:,.0f} slots", _area(values, top, GREY, LOW_PX))


def processes(figures: RecordedFigures) -> str:
    """Return what each process did over time: the main picture of a job."""
    parts = [_process(one, figures) for one in figures.rows]
    names = [*zip(NAMES, COLORS, strict=False)]
    if any(one.deaths for one in figures.rows):
        names.append(("a process died", RED))
    shares = ", ".join(f"{share:.0%} {name}" for name, share in shares_of(figures.rows).items())
    parts += [axis([*time_ticks(figures.work.length_s)]), legend(names)]
    return figure("What the processes did", shares, parts)


def _process(one: Row, figures: RecordedFigures) -> str:
    spent, width = one.spent, figures.work.length_s / BINS
    # Several calls at a time are more than the time of their process.
    bands = np.array(spent[:-1])
    layers = bands.cumsum(0) / np.maximum(bands.sum(0), one.size * width)
    shapes = [
        (steps(values, 1.0, ROW_UNITS), color)
        for values, color in zip(layers[::-1], COLORS[::-1], strict=True)
    ]
    marks = [
        Sign(at / figures.work.length_s, 0.5, "✕", RED, f"a process died {duration(at)} in")
        for at in one.deaths[:MOST_DEATHS]
    ]
    total = max(float(spent.alive.sum()), 0.001)
    said = ", ".join(
        f"{float(each.sum()) / total:.0%} {name}" for name, each in zip(NAMES, bands, strict=False)
    )
    who = one.name if one.size == 1 else f"{counted(one.size, 'process')}, {one.name}"
    return row(one.name, plot(shapes, BINS, ROW_UNITS, ROW_PX), marks, f"{who}: {said}")


def run_times(contents: Contents) -> str:
    """Return how many attempts took how long in `run`."""
    run_s = contents.run_seconds()
    if not len(run_s):
        return ""
    logs = np.log10(np.maximum(run_s, 1e-6))
    low, high = np.floor(logs.min()), max(np.ceil(logs.max()), np.floor(logs.min()) + 1)
    classes = int(high - low) * CLASSES_OF_TEN
    counts, _ = np.histogram(logs, classes, (low, high))
    top = round_top(float(counts.max()))
    drawing = plot([(steps(counts, top, UNITS), BLUE)], classes, UNITS, HEIGHT_PX)
    ticks = [
        Tick((power - low) / (high - low), _seconds(10.0**power))
        for power in np.arange(low, high + 1)
    ]
    half, most, longest = np.quantile(run_s, [0.5, 0.95, 1.0])
    told = (
        f"Half of them took {_seconds(half)} or less, 95 % {_seconds(most)}, and the longest "
        f"{_seconds(longest)}."
    )
    name = f"{top:,.0f} mini-batches"
    return figure("Seconds in run()", told, [row(name, drawing), axis(ticks)])


def loads(figures: RecordedFigures) -> str:
    """Return memory, and the load of cores and GPUs, as far as they were measured."""
    parts = [*_loads(figures)]
    if not parts:
        return ""
    parts.append(axis([*time_ticks(figures.work.length_s)]))
    peaks = figures.peaks_mb()
    most = "" if np.isnan(peaks).all() else f"A process had {np.nanmax(peaks):,.0f} MB at most."
    if most and (limit := figures.record.memory_limit_mb) is not None:
        most += f" The line is agent_memory_limit: {limit:,.0f} MB."
        parts.append(legend([("agent_memory_limit", RED)]))
    return figure("Load", most, parts)


def _loads(figures: RecordedFigures) -> Iterator[str]:
    peaks = figures.peaks_mb()
    if not np.isnan(peaks).all():
        limit = figures.record.memory_limit_mb
        top = round_top(max(float(np.nanmax(peaks)), limit or 0.0))
        shapes = [(steps(_held(peaks), top, UNITS), ORANGE)]
        shapes += [] if limit is None else [(line(limit / top, BINS, UNITS), RED)]
        yield row(f"{top:,.0f} MB, a process", plot(shapes, BINS, UNITS, LOW_PX))
    for name, values in zip(OF_MACHINES, figures.load, strict=True):
        if not np.isnan(values).all():
            yield row(f"100 % of {name}", _area(_held(values), 100.0, BLUE, LOW_PX))


def _held(values: np.ndarray) -> np.ndarray:
    """Return values of which each holds until the next one is known."""
    known = ~np.isnan(values)
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last < 0, np.nan, values[np.clip(last, 0, None)])


def _area(values: np.ndarray, top: float, color: str, height_px: int) -> str:
    return plot([(steps(values, top, UNITS), color)], len(values), UNITS, height_px)


def _joints(figures: RecordedFigures) -> list[Sign]:
    return [
        Sign(at / figures.work.length_s, 0.1, "▾", GREY, f"run {number} begins")
        for number, at in enumerate(figures.work.joints.tolist(), 2)
    ]


def _seconds(seconds: float) -> str:
    """Return short times in the unit that fits."""
    if seconds < 0.001:  # noqa: PLR2004 - a millisecond
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1_000 else f"{seconds:,.0f} s"  # noqa: PLR2004


def main_picture(folder: JobFolder, elapsed_s: float) -> str:
    """Return what the processes of a job did over time; empty for a short or a very large job."""
    try:
        if elapsed_s < FROM_S or folder.attempts.stat().st_size > MOST_BYTES:
            return ""
        return processes(RecordedFigures.of(folder, is_running=False))
    except Exception:
        logging.getLogger("daskprs.driver").debug("no picture of %s", folder, exc_info=True)
        return ""
