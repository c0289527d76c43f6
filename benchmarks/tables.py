"""Results as tables of Markdown: for a terminal, and for the page of the documentation."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from benchmarks.machine import GB
from benchmarks.results import LIMIT, Results, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.results import Run

BLOCK = re.compile(r"<!-- figures -->.*?<!-- end of figures -->", re.DOTALL)
NO_RATIO = 100
"""Beside next to nothing, a ratio says nothing."""


def page_with(page: Path, results: Results) -> str:
    """Return the text of a page with its figures replaced by those of the results."""
    text, times = BLOCK.subn(lambda _: _block(results), page.read_text())
    if times != 1:
        msg = f"{page} has {times} places for figures, not one"
        raise ValueError(msg)
    return text


def _block(results: Results) -> str:
    return f"<!-- figures -->\n\n{everything(results)}\n\n<!-- end of figures -->"


def everything(results: Results) -> str:
    """Return all that there is to say about some results."""
    return "\n\n".join(
        part
        for part in (
            circumstances(results),
            "### Time",
            seconds(results),
            "### How far the runs are apart",
            spreads(results),
            "### Processor time and memory",
            costs(results),
            "### What the output itself says",
            measures(results),
            "### What went wrong",
            problems(results),
        )
        if part
    )


def circumstances(results: Results) -> str:
    """Return where, when and with what it was measured."""
    machine = ", ".join(f"{name} {fact}" for name, fact in results.machine.items())
    loads = Spread.of(run.load_before for run in results.runs)
    lines = [
        f"Measured on {results.date}: {machine}; daskprs at commit {results.commit}.",
        f"Scale {results.scale:g}, {results.repeats} repeats, each in turn.",
    ]
    if loads:
        busy = f"{loads.median:.1f}, {loads.least:.1f} to {loads.most:.1f}"
        lines.append(f"The machine's load average before a run: {busy}.")
    rows = [
        [peer, ", ".join(f"{name} {number}" for name, number in versions.items())]
        for peer, versions in results.versions.items()
    ]
    return f"{' '.join(lines)}\n\n{_table(['peer', 'versions'], rows)}"


def seconds(results: Results) -> str:
    """Return medians in seconds, with the median ratio to the hand-written loop."""

    def cell(workload: str, peer: str) -> str:
        spread = Spread.of(run.seconds for run in results.good(workload, peer))
        if spread is None:
            return "✗" if results.all(workload, peer) else "–"
        ratio = results.ratio(workload, peer)
        if peer == LIMIT or math.isnan(ratio) or ratio >= NO_RATIO:
            return _seconds(spread.median)
        return f"{_seconds(spread.median)} ({ratio:.2g})"

    return _by_workload(results, results.peers(), cell)


def spreads(results: Results) -> str:
    """Return the least and the most of the two that goals are about."""

    def cell(workload: str, peer: str) -> str:
        spread = Spread.of(run.seconds for run in results.good(workload, peer))
        return f"{_seconds(spread.least)} to {_seconds(spread.most)}" if spread else "–"

    return _by_workload(results, results.peers(), cell)


def costs(results: Results) -> str:
    """Return medians of processor seconds and of peak memory."""

    def cell(workload: str, peer: str) -> str:
        runs = results.good(workload, peer)
        cpu = Spread.of(run.cpu_s for run in runs)
        memory = Spread.of(run.peak_pss_bytes / GB for run in runs)
        return f"{_seconds(cpu.median)} s, {memory.median:.2f} GB" if cpu and memory else "–"

    return _by_workload(results, results.peers(), cell)


def measures(results: Results) -> str:
    """Return medians of what outputs say: how busy a device was, what was lost to faults."""
    told = [run for run in results.runs if run.measures and run.problem is None]
    groups = dict.fromkeys((run.workload, run.peer) for run in told)
    rows = []
    for workload, peer in groups:
        runs = results.good(workload, peer)
        rows.append([results.titles[workload], peer, _measures(runs)])
    return _table(["work", "peer", "median"], rows) if rows else ""


def problems(results: Results) -> str:
    """Return who could not take part, and whose runs do not count, with the reasons."""
    rows = [[peer, "all", reason] for peer, reason in results.unavailable.items()]
    failed = dict.fromkeys((run.workload, run.peer) for run in results.runs if run.problem)
    for workload, peer in failed:
        runs = [run for run in results.all(workload, peer) if run.problem]
        count = f"{len(runs)} of {len(results.all(workload, peer))}"
        rows.append([peer, results.titles[workload], f"{count} runs: {runs[0].problem}"])
    return _table(["peer", "work", "reason"], rows) if rows else ""


def _by_workload(results: Results, peers: Sequence[str], cell: Callable[[str, str], str]) -> str:
    rows = [
        [title, *(cell(workload, peer) for peer in peers)]
        for workload, title in results.titles.items()
    ]
    return _table(["work", *peers], rows)


def _measures(runs: Sequence[Run]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.measures)
    found = {name: Spread.of(run.measures[name] for run in runs) for name in names}
    return ", ".join(
        f"{name.replace('_', ' ')} {spread.median:.3g}" for name, spread in found.items() if spread
    )


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(one.replace('|', '/') for one in row)} |" for row in cells)
