"""Results as tables of Markdown: for a terminal, and for the page of the documentation."""

from __future__ import annotations

from statistics import mode
from typing import TYPE_CHECKING

from benchmarks.machine import GB
from benchmarks.phases import ORDER
from benchmarks.results import LIMIT, Results, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.phases import Profile, Profiles
    from benchmarks.results import Run

OWN = ("daskprs", "daskprs-cluster")
"""The peers that are daskprs."""
NO_RATIO = 100
"""Beside next to nothing, a ratio says nothing."""


def page_with(page: str, name: str, text: str) -> str:
    """Return a page with what stands between two marks replaced by a text."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, found, rest = page.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found and found_end):
        msg = f"the page has no place for {name}: {begin} … {end}"
        raise ValueError(msg)
    return f"{head}{begin}\n\n{text}\n\n{end}{tail}"


def phases(found: Profiles) -> str:
    """Return the share of each phase, beside that of the hand-written loop, in percent."""
    rows = [
        [one.title, one.peer, f"{sum(one.samples.values()):,}", *map(_percent(one), ORDER)]
        for one in found.profiles
    ]
    return f"At commit {found.commit}.\n\n{_table(['work', 'peer', 'samples', *ORDER], rows)}"


def everything(results: Results) -> str:
    """Return all that there is to say about some results."""
    sections = {
        "Time": seconds(results),
        "How far the runs are apart": spreads(results),
        "Processor time and memory": costs(results),
        "What the output itself says": measures(results),
        "What went wrong": problems(results),
    }
    told = [f"### {head}\n\n{text}" for head, text in sections.items() if text]
    return "\n\n".join([circumstances(results), *told])


def summary(results: Results, own: str) -> str:
    """Return daskprs beside the hand-written loop and the fastest library, for each work.

    Parameters
    ----------
    results
        What was measured.
    own
        The peer that is daskprs.

    """
    rows = []
    for workload, title in results.titles.items():
        found = {
            peer: spread.median
            for peer in results.peers()
            if (spread := Spread.of(run.seconds for run in results.good(workload, peer)))
        }
        if own not in found:
            continue
        others = {peer: value for peer, value in found.items() if peer not in {LIMIT, *OWN}}
        fastest = min(others, key=lambda peer: others[peer])
        limit = [_seconds(found[LIMIT])] if LIMIT in results.peers() else []
        rows.append(
            [
                title,
                *limit,
                _seconds(found[own]),
                f"{fastest}: {_seconds(others[fastest])}",
                f"{found[own] / others[fastest]:.2g}",
            ]
        )
    loop = ["hand-written loop, s"] if LIMIT in results.peers() else []
    return _table(["work", *loop, "daskprs, s", "fastest library, s", "times as long"], rows)


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
    lines.append(f"Versions: {', '.join(_versions(results))}.")
    return " ".join(lines)


def seconds(results: Results) -> str:
    """Return medians in seconds, with the median ratio to the reference."""

    def cell(workload: str, peer: str) -> str:
        spread = Spread.of(run.seconds for run in results.good(workload, peer))
        if spread is None:
            return "✗" if results.all(workload, peer) else "–"
        ratios = results.ratios(workload, peer)
        if peer == results.reference(workload) or ratios is None or ratios.median >= NO_RATIO:
            return _seconds(spread.median)
        return f"{_seconds(spread.median)} ({ratios.median:.2g})"

    return _by_workload(results, results.peers(), cell)


def spreads(results: Results) -> str:
    """Return the least and the most of the seconds, and of the ratios of one turn.

    Leave out peers that ran once: their least is their most.
    """
    repeated = [peer for peer in results.peers() if _most_runs(results, peer) > 1]

    def cell(workload: str, peer: str) -> str:
        spread = Spread.of(run.seconds for run in results.good(workload, peer))
        if spread is None:
            return "–"
        seconds = f"{_seconds(spread.least)} to {_seconds(spread.most)}"
        ratios = results.ratios(workload, peer)
        if peer == results.reference(workload) or ratios is None or ratios.most >= NO_RATIO:
            return seconds
        return f"{seconds} ({ratios.least:.2g} to {ratios.most:.2g})"

    return _by_workload(results, repeated, cell)


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


def _most_runs(results: Results, peer: str) -> int:
    return max((len(results.good(workload, peer)) for workload in results.titles), default=0)


def _versions(results: Results) -> Iterator[str]:
    """Yield the version of each package that most peers had, and the peers with another one."""
    for name in sorted(set().union(*results.versions.values())):
        found = {peer: one[name] for peer, one in results.versions.items() if name in one}
        usual = mode(found.values())
        others = [f"{number} with {peer}" for peer, number in found.items() if number != usual]
        yield f"{name} {usual}" + (f" ({', '.join(others)})" if others else "")


def _measures(runs: Sequence[Run]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.measures)
    found = {name: Spread.of(run.measures[name] for run in runs) for name in names}
    return ", ".join(
        f"{name.replace('_', ' ')} {spread.median:.3g}" for name, spread in found.items() if spread
    )


def _percent(profile: Profile) -> Callable[[str], str]:
    def cell(phase: str) -> str:
        return f"{profile.share(phase):.0%}" if profile.samples.get(phase) else "–"

    return cell


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(one.replace('|', '/') for one in row)} |" for row in cells)
