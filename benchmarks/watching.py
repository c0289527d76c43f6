"""What it costs to know what the agents of a job use.

``python -m benchmarks.watching`` runs a job that waits, in three forms that take turns: nothing is
looked at; agents are looked at once a second, as in every job; so is the whole node. It prints the
processor time of each form. The highest memory of each mini-batch is measured in all three.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import click

import daskprs
from benchmarks.lazily import cpu_s
from daskprs._agent.supervision.usage_ring import UsageRing
from daskprs._core.usage import UsageSample

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = UsageSample(0.0, "", None, 0, 0.0, 0, 0, 0, 0, 0)
WAIT_S = 0.5
FORMS = {"nothing": 0, "agents": 0, "agents and node": 1}
"""Seconds between two looks at the node, by what is looked at; 0: none."""


def wait(paths: Sequence[str]) -> Sequence[str]:
    """Wait, as a script does that asks a service."""
    time.sleep(WAIT_S * len(paths))
    return paths


def processor_s(form: str, files: Path, processes: int) -> float:
    """Return the processor time of a job."""
    before = cpu_s()
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "mini_batch_size": 1,
            "process_count_per_node": processes,
            "resource_monitor_interval": FORMS[form],
            "job_dir": Path(folder, "job"),
            "progress": False,
        }
        if form == "nothing":
            with patch.object(UsageRing, "sample", lambda *_: NOTHING):
                daskprs.parallel_run(str(files), wait, **options)
        else:
            daskprs.parallel_run(str(files), wait, **options)
    return cpu_s() - before


@click.command()
@click.option("--processes", default=8, show_default=True)
@click.option("--seconds", default=20, show_default=True, help="Of each job, about.")
@click.option("--repeats", default=5, show_default=True)
def main(processes: int, seconds: int, repeats: int) -> None:
    """Print what each form costs."""
    taken: dict[str, list[float]] = {form: [] for form in FORMS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(int(processes * seconds / WAIT_S)):
            Path(folder, f"{number:06d}").touch()
        for _ in range(repeats):
            for form in FORMS:
                taken[form].append(processor_s(form, Path(folder), processes))
    least = statistics.median(taken["nothing"])
    for form, costs in taken.items():
        more = (statistics.median(costs) - least) / seconds
        spread = f"{min(costs):.2f} to {max(costs):.2f} s"
        print(f"{form:16}{statistics.median(costs):6.2f} s ({spread}), {more:+.2%} of a core")


if __name__ == "__main__":
    main()
