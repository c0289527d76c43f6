"""What ``on_error="isolate"`` costs: ``python -m benchmarks.isolated_rows``.

The same rows are scored in turns: without isolation, with it, with bad rows, and by a script that
looks for bad rows itself. Prints medians of the processor time of all processes, and of the time
that passed, in terms of the first. That of a job without mini-batches, the start, is taken off.
"""

from __future__ import annotations

import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np
import pandas as pd

import daskprs
from benchmarks.lazily import Cost, cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINI_BATCH = 1_000
"""Rows of a mini-batch; one of them is bad where there are bad rows."""
WIDTH, LAYERS = 64, 128
"""Size of the model: some 50 ms for a mini-batch, and some 0.5 ms for a row alone."""


def score(rows: pd.DataFrame) -> pd.DataFrame:
    """Work in proportion to the rows; a bad one costs all of them."""
    if rows["price"].isna().any():
        raise ValueError("a row has no price")
    values = np.outer(rows["price"], np.ones(WIDTH))
    for _ in range(LAYERS):
        values = np.tanh(1.1 * values)
    return rows.assign(score=values.sum(axis=1))


def score_one_by_one(rows: pd.DataFrame) -> pd.DataFrame:
    """Score rows, and where that fails, each alone: what a script does that isolates by itself."""
    try:
        return score(rows)
    except ValueError:
        scored = []
        for number in range(len(rows)):
            try:
                scored.append(score(rows.iloc[number : number + 1]))
            except ValueError:
                continue
        return pd.concat(scored)


class Case(NamedTuple):
    """One way to run the job."""

    name: str
    options: dict[str, Any]
    is_bad: bool = False
    run: Callable[[pd.DataFrame], pd.DataFrame] = score


CASES = (
    Case('`on_error="raise"`, no bad rows', {}),
    Case("the same again", {}),
    Case('`"isolate"`, no bad rows', {"on_error": "isolate"}),
    Case('`"isolate"`, 1 bad row in 1,000', {"on_error": "isolate", "run_max_try": 1}, is_bad=True),
    Case("the same with 3 tries", {"on_error": "isolate"}, is_bad=True),
    Case("a script that tries rows alone", {}, is_bad=True, run=score_one_by_one),
)


def costs(rows: int, repeats: int, folder: Path) -> Iterator[list[Cost]]:
    """Yield the costs of all cases, one turn after the other."""
    number = count()

    def job(case: Case, rows: int) -> Cost:
        price = np.arange(rows) % 1_000 / 1_000
        if case.is_bad:
            price[MINI_BATCH // 3 :: MINI_BATCH] = np.nan
        data = pd.DataFrame({"price": price})
        before, begun = cpu_s(), time.perf_counter()
        result = daskprs.parallel_run(
            data,
            case.run,
            mini_batch_size=f"{MINI_BATCH} rows",
            job_dir=folder / str(next(number)),
            process_count_per_node=2,
            progress=False,
            **case.options,
        )
        cost = Cost(time.perf_counter() - begun, cpu_s() - before)
        bad = int(np.isnan(price).sum())
        if result.items != (rows, rows - bad, bad):
            msg = f"{case.name}: {result.items}"
            raise ValueError(msg)
        return cost

    job(CASES[0], MINI_BATCH)  # imports
    for _ in range(repeats):
        start = job(CASES[0], MINI_BATCH)
        yield [job(case, rows) - start for case in CASES]


@click.command()
@click.option("--rows", default=60_000, show_default=True)
@click.option("--repeats", default=3, show_default=True)
def main(rows: int, repeats: int) -> None:
    """Print what each case costs, in terms of the first in the same turn."""
    with tempfile.TemporaryDirectory() as folder:
        turns = list(costs(rows, repeats, Path(folder)))
    print("| job | processor time, s | times as much | time passed, s |")
    print("| --- | --- | --- | --- |")
    for number, case in enumerate(CASES):
        cpu = median(turn[number].cpu_s for turn in turns)
        ratio = median(turn[number].cpu_s / turn[0].cpu_s for turn in turns)
        wall = median(turn[number].wall_s for turn in turns)
        print(f"| {case.name} | {cpu:.1f} | {ratio:.2f} | {wall:.1f} |")


if __name__ == "__main__":
    main()
