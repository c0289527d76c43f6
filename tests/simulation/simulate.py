"""Plays jobs on a virtual clock, a seed for each: make sim SEEDS=1000.

A seed decides everything, so what it has found is found again by its number.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from asyncio import CancelledError
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._core.limits import Limits
from tests.simulation.play import played
from tests.simulation.ports import simulated
from tests.simulation.scenario import Scenario, drawn
from tests.simulation.stages import INIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.items import Items

HERE = Path(__file__).parent
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - where the files of a job lie in memory
PLAIN: dict[str, Any] = {
    "init_fails": set(),
    "ends_s": None,
    "far": frozenset(),
    "life_s": None,
    "small_bytes": 8 << 20,
    "lies": False,
    "replaces": False,
    "form": "text",
    "threads": 1,
    "typed": "",
    "damaged": 0.0,
    "stages": None,
    "init_s": INIT_S,
    "endpoint": None,
    "keyed": None,
}
PLAIN_LIMITS: dict[str, Any] = {
    "agent_max_mini_batches": None,
    "retry_delay_s": 0.0,
}
"""Values with which there is less in a scenario."""
AT_ONCE = 50
"""Seeds that a process plays before it reports."""


class Report:
    """What some seeds have shown."""

    def __init__(self) -> None:
        self.seeds = 0
        self.violations: list[tuple[int, str]] = []
        self.counts: Counter[str] = Counter()
        self.cpu_s = 0.0
        self.virtual_s = 0.0

    def add(self, other: Report) -> None:
        """Add what other seeds have shown."""
        self.seeds += other.seeds
        self.violations += other.violations
        self.counts += other.counts
        self.cpu_s += other.cpu_s
        self.virtual_s += other.virtual_s

    def __str__(self) -> str:
        """Return it for people."""
        each_ms = 1000 * self.cpu_s / max(1, self.seeds)
        lines = [f"{count:9,} {what}" for what, count in sorted(self.counts.items())]
        told = (
            f"{self.seeds:,} seeds, {len(self.violations)} violations; "
            f"{self.virtual_s / 86400:,.1f} days in {self.cpu_s:,.0f} s of processor time, "
            f"{each_ms:.1f} ms for each seed."
        )
        return "\n".join([*lines, told])


def base_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder, in memory where that can be."""
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="daskprs-sim-", dir=place)


@contextmanager
def rarely_collected() -> Iterator[Callable[[], object]]:
    """Let garbage be collected within the block only by the function that is yielded.

    Called after each seed, it finds all that is left of a world while that is in the processor's
    cache, and does not look at what was there before, such as modules.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield partial(gc.collect, 0)
    finally:
        if was_enabled:
            gc.enable()


def fault_of(scenario: Scenario, base: Path) -> str:
    """Return the violation that a scenario shows; empty if it shows none."""
    try:
        played(scenario, base)
    except (Exception, CancelledError) as error:  # noqa: BLE001 - whatever a broken product raises
        return f"{type(error).__name__}: {error}"
    return ""


def seeds_played(first: int, count: int) -> Report:
    """Play some seeds, and report what they have shown."""
    warnings.simplefilter("ignore")
    report = Report()
    begun_s = time.process_time()
    with simulated(), base_folder() as base, rarely_collected() as collect:
        for seed in range(first, first + count):
            collect()
            report.seeds += 1
            try:
                books = played(drawn(seed), Path(base))
            except (Exception, CancelledError) as error:  # noqa: BLE001 - whatever is broken
                report.violations.append((seed, f"{type(error).__name__}: {error}"))
            else:
                report.counts.update(books.strikes)
                report.virtual_s += books.virtual_s
    report.cpu_s = time.process_time() - begun_s
    return report


def fewer(items: Items) -> Iterator[Items]:
    """Yield items of which fewer do anything."""
    for key in items.acts:
        yield replace(items, acts=without(items.acts, key))
    if items.most_rows is not None:
        yield replace(items, most_rows=None)


def smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with less in them."""
    for number in range(len(scenario.strikes)):
        kept = [*scenario.strikes[:number], *scenario.strikes[number + 1 :]]
        yield replace(scenario, strikes=kept)
    for one in scenario.on_disk:
        yield replace(scenario, on_disk=without(scenario.on_disk, one))
    for index in scenario.bad:
        yield replace(scenario, bad=without(scenario.bad, index))
    if scenario.items is not None:
        yield from (replace(scenario, items=items) for items in fewer(scenario.items))
    for count in (scenario.count // 2, scenario.count - 1):
        if count and all(index < count for index in scenario.acting):
            keyed = scenario.keyed and scenario.keyed.fewer(count)
            yield replace(scenario, count=count, keyed=keyed)
    if scenario.hosts > 1:
        yield replace(scenario, hosts=scenario.hosts - 1)
    yield from plainer(scenario, PLAIN)
    for limits in plainer(scenario.limits, PLAIN_LIMITS):
        yield replace(scenario, limits=limits)


def plainer(whole: Any, plain: dict[str, Any]) -> Iterator[Any]:
    """Yield a scenario, or its limits, with one more plain value."""
    for name, value in plain.items():
        if getattr(whole, name) != value:
            yield replace(whole, **{name: value})


def without(some: dict[Any, Any], key: Any) -> dict[Any, Any]:
    """Return a dictionary without a key."""
    return {one: value for one, value in some.items() if one != key}


def kind_of(fault: str) -> str:
    """Return a violation without the numbers and names of its job."""
    return re.split(r"""['"({\[]""", re.sub(r"\d+", "", fault), maxsplit=1)[0]


def shrunk(scenario: Scenario, base: Path) -> Scenario:
    """Return the smallest scenario that is found to show the same violation."""
    kind = kind_of(fault_of(scenario, base))
    while True:
        same = (one for one in smaller(scenario) if kind_of(fault_of(one, base)) == kind)
        less = next(same, None)
        if less is None:
            return scenario
        scenario = less


def told(scenario: Scenario) -> str:
    """Return what a scenario has in it, a line for each, without what is plain."""
    nothing = {**PLAIN, "bad": {}, "strikes": [], "on_disk": {}, "items": None}
    plain = {**nothing, "limits": scenario.limits}
    usual = asdict(Limits())
    limits = [f"{k}={one!r}" for k, one in asdict(scenario.limits).items() if one != usual[k]]
    parts = ((one.name, getattr(scenario, one.name)) for one in fields(scenario))
    lines = [f"  {name} = {one!r}" for name, one in parts if one != plain.get(name, ...)]
    return "\n".join([*lines, f"  limits: {', '.join(limits)}"])


def replay(seed: int) -> int:
    """Play one seed again, shrink it, and show what is left of it."""
    warnings.simplefilter("ignore")
    with simulated(), base_folder() as base:
        scenario = drawn(seed)
        fault = fault_of(scenario, Path(base))
        if not fault:
            print(f"seed {seed} breaks nothing.")
            return 0
        print(f"seed {seed}: {fault}\n{told(scenario)}\n")
        least = shrunk(scenario, Path(base))
        print(f"The least that shows it: {fault_of(least, Path(base))}\n{told(least)}")
    return 1


def main(given: list[str]) -> int:
    """Play seeds in several processes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=1000)
    parser.add_argument("--first", type=int, help="the first seed; else those not in the counts")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--replay", type=int, metavar="SEED", help="play one seed, and shrink it")
    parser.add_argument("--until-found", action="store_true", help="stop at the first violation")
    parser.add_argument("--counts", type=Path, help="append the counts to this file")
    options = parser.parse_args(given)
    if options.replay is not None:
        return replay(options.replay)
    report = Report()
    begun_s = time.monotonic()
    first = _beyond(options.counts) if options.first is None else options.first
    last = first + options.seeds
    firsts = range(first, last, AT_ONCE)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        works = ((first, min(AT_ONCE, last - first)) for first in firsts)
        in_order = pool.imap if options.until_found else pool.imap_unordered
        for part in in_order(partial(_starred, seeds_played), works):
            report.add(part)
            for seed, what in part.violations:
                print(f"seed {seed}: {what[:500]}\n    make sim REPLAY={seed}", flush=True)
            if report.violations and options.until_found:
                break
    print(report)
    print(f"{time.monotonic() - begun_s:,.0f} s with {options.processes} processes.")
    if options.counts is not None:
        _note(options.counts, first, report)
    return 1 if report.violations else 0


def _starred(call: Any, given: tuple[Any, ...]) -> Any:
    return call(*given)


def _noted(file: Path | None) -> list[dict[str, Any]]:
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _beyond(file: Path | None) -> int:
    """Return the first seed that was not played by then."""
    return max((one["first"] + one["seeds"] for one in _noted(file)), default=0)


def _note(file: Path, first: int, report: Report) -> None:
    """Append what was played to the file of counts, and say how much is in it."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False)
    noted = {
        "commit": done.stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "first": first,
        "seeds": report.seeds,
        "violations": len(report.violations),
        "counts": dict(sorted(report.counts.items())),
    }
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(noted) + "\n")
    everything = _noted(file)
    seeds, violations = (sum(one[what] for one in everything) for what in ("seeds", "violations"))
    print(f"{file}: {seeds:,} seeds by now, {violations} violations.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
