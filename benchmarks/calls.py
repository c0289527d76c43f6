"""Calls of a coroutine, 64 at a time in a process: ``python -m benchmarks.calls``.

Each call waits for 50 ms, as for an endpoint. Prints the seconds from the start of the first call
to the end of the last, in the median of some jobs, beside the least that is possible, and the calls
that began in the first second of each job.
"""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
import pandas as pd
import pyarrow as pa

import daskprs

if TYPE_CHECKING:
    from daskprs import ParallelRunResult

CALL_S = 0.05
AT_A_TIME = 64


async def wait(rows: Any) -> list[str]:
    """Wait for an answer."""
    await asyncio.sleep(CALL_S)
    return ["done"] * len(rows)


async def wait_with_permit(rows: Any, context: Any) -> list[str]:
    """Wait for an answer, with a permit of the job."""
    await context.permit()
    return await wait(rows)


class Case(NamedTuple):
    """One way to run the job."""

    name: str
    form: Literal["pyarrow", "pandas"]
    is_governed: bool = False


CASES = (
    Case("Arrow tables", "pyarrow"),
    Case("frames", "pandas"),
    Case("Arrow tables, a governor", "pyarrow", is_governed=True),
)


def _run(case: Case, calls: int, folder: Path) -> ParallelRunResult:
    limit = daskprs.RateLimit(requests_per_minute=10_000_000)
    return daskprs.parallel_run(
        pd.DataFrame({"n": range(calls)})
        if case.form == "pandas"
        else pa.table({"n": range(calls)}),
        wait_with_permit if case.is_governed else wait,
        mini_batch_size="1 row",
        batch_format=case.form,
        process_count_per_node=1,
        concurrency_per_process=AT_A_TIME,
        rate_limit=limit if case.is_governed else None,
        job_dir=folder,
        progress=False,
        report="never",
    )


def _times(result: ParallelRunResult) -> tuple[float, int]:
    """Return the seconds of all calls together, and how many began in the first of them."""
    table = result.logs_dir / "sys" / "job_report" / "processed_mini-batches.csv"
    attempts = pd.read_csv(table, parse_dates=["Process Start Time"])
    begun = attempts["Process Start Time"]
    ended = begun + pd.to_timedelta(attempts["Elapsed Seconds"], unit="s")
    first = begun.min()
    in_time = begun < first + pd.Timedelta(seconds=1)
    return (ended.max() - first).total_seconds(), int(in_time.sum())


@click.command()
@click.option("--calls", default=10_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(calls: int, rounds: int) -> None:
    """Run the job in each way in turns, and print the medians."""
    least_s = calls * CALL_S / AT_A_TIME
    found: dict[str, list[tuple[float, int]]] = {case.name: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        names = count()
        for _ in range(rounds):
            for case in CASES:
                job = Path(folder) / f"job{next(names)}"
                found[case.name].append(_times(_run(case, calls, job)))
    click.echo(f"{calls:,} calls take {least_s:.2f} s at least.")
    for name, times in found.items():
        spans_s, begun = zip(*times, strict=True)
        middle_s = median(spans_s)
        times_least = middle_s / least_s
        click.echo(
            f"{name}: {middle_s:.2f} s ({times_least:.3f} times the least; {min(spans_s):.2f} to "
            f"{max(spans_s):.2f} s), {median(begun):,} begun in the first second"
        )


if __name__ == "__main__":
    main()
