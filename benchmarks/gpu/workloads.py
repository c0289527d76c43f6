"""The workloads W1 to W5: what runs, beside which loop, what is checked, and what is counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks import stages
from benchmarks.gpu.data import make_pictures, make_texts
from benchmarks.lazily import cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.gpu.data import Size

SCRIPTS = Path(__file__).parent / "scripts"
JOB = Path(__file__).with_name("job.py")
ALIKE = 0.999
"""Share of the classes that agree: another size of the last batch may choose another kernel."""
CLOSE = 2e-2
"""Of the numbers of a vector in half precision."""
MOST_STEADY, MOST_WHOLE, LEAST_BUSY = 1.05, 1.15, 0.95
"""The goals: in the steady state and with the start, beside the loop; the share of the time."""


class WrongOutputError(Exception):
    """A job has not made what the loop has made."""


class Figure(NamedTuple):
    """What was measured of one case."""

    name: str
    values: dict[str, Any]
    goals: dict[str, bool]
    """Whether each goal was met, by its words."""


class Made(NamedTuple):
    """What a program has made."""

    seconds: float
    """Those of its start among them."""
    cpu_s: float
    """Processor time of all its processes."""
    rows: pd.DataFrame
    told: dict[str, Any]


class Bench(NamedTuple):
    """Where the benchmark runs."""

    folder: Path
    size: Size
    device: str
    """``cuda``, ``cpu`` (PyTorch without a card), or empty: a stand-in."""
    cores: int

    @property
    def nets(self) -> dict[str, str]:
        """The networks for pictures: one for which the cores are too slow, and one too slow.

        Without a card there is none: what is left is the work of the cores.
        """
        if self.device != "cuda":
            return {"the cores alone": "none"}
        return {"decoding is slow": "resnet18", "the device is slow": "vit_l_16"}

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of the scripts and loops."""
        return {"BENCH_DEVICE": self.device, "BENCH_FOLDER": str(self.folder), **more}


def made_by(bench: Bench, command: list[str], variables: dict[str, str], target: Path) -> Made:
    """Run a program that writes its rows, and tells of them in JSON or tells nothing."""
    environment, begun, used_s = {**os.environ, **variables}, time.monotonic(), cpu_s()
    done = subprocess.run(
        command,
        env=environment,
        cwd=bench.folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun
    if done.returncode:
        msg = f"{' '.join(command[:4])} … has failed with {done.returncode}"
        raise WrongOutputError(msg)
    told = json.loads(done.stdout or "{}")
    return Made(seconds, cpu_s() - used_s, pd.read_parquet(target), told)


def run_loop(bench: Bench, what: str, given: str, **variables: str) -> Made:
    """Run the hand-written loop."""
    target = bench.folder / "loop.parquet"
    command = [sys.executable, str(SCRIPTS / "loops.py"), what, str(bench.folder / given)]
    command += [str(target), str(max(1, bench.cores - 1))]
    return made_by(bench, command, bench.environment(**variables), target)


def run_job(
    bench: Bench, script: str, given: str | int, options: dict[str, Any], **variables: str
) -> Made:
    """Run a job in a program of its own."""
    target, environment = bench.folder / "job.parquet", bench.environment(**variables)
    order = {
        "script": str(SCRIPTS / script),
        "input": given if isinstance(given, int) else str(bench.folder / given),
        "output": str(target),
        "options": {**options, "environment_variables": environment},
    }
    command = [sys.executable, str(JOB), json.dumps(order)]
    return made_by(bench, command, environment, target)


def staged(bench: Bench, preprocess: str, mini_batch: str | int) -> dict[str, Any]:
    """Return the options of a job whose card is fed by the other cores."""
    on_card = {"gpus_per_process": 1} if bench.device == "cuda" else {}
    return {
        "mini_batch_size": mini_batch,
        "preprocess": preprocess,
        "postprocess": "rows",
        "process_count_per_node": 1,
        "preprocess_processes": max(1, bench.cores - 1),
        **on_card,
    }


def per_s(rows: pd.DataFrame) -> float:
    """Return the rows a second between the first batch and the last: the steady state."""
    done = rows["done"].sort_values()
    first, last = done.iloc[0], done.iloc[-1]
    return float(max(1, (done > first).sum()) / max(1e-9, last - first))


def compared(name: str, job: Made, loop: Made) -> Figure:
    """Return the figures of a job and of its loop, and whether the goals were met."""
    whole, steady = job.seconds / loop.seconds, per_s(loop.rows) / per_s(job.rows)
    values = {
        "job_s": round(job.seconds, 2),
        "loop_s": round(loop.seconds, 2),
        "job_cpu_s": round(job.cpu_s, 2),
        "loop_cpu_s": round(loop.cpu_s, 2),
        "job_per_s": round(per_s(job.rows), 1),
        "loop_per_s": round(per_s(loop.rows), 1),
        "whole": round(whole, 3),
        "steady": round(steady, 3),
        "advice": job.told["advice"],
    }
    goals = {
        f"steady ≤ {MOST_STEADY} × the loop": steady <= MOST_STEADY,
        f"whole ≤ {MOST_WHOLE} × the loop": whole <= MOST_WHOLE,
    }
    return Figure(name, values, goals)


def check(rows: Any, expected: Any, key: str, value: str) -> None:
    """Raise `WrongOutputError` unless a job has the rows of the loop, in their order."""
    if list(rows[key]) != list(expected[key]):
        msg = f"the rows are not those of the loop: {len(rows)} and {len(expected)}"
        raise WrongOutputError(msg)
    made, right = np.stack(rows[value]), np.stack(expected[value])
    if made.ndim > 1 and not np.allclose(made, right, atol=CLOSE):
        msg = f"the vectors differ from those of the loop by {np.abs(made - right).max():.3g}"
        raise WrongOutputError(msg)
    if made.ndim == 1 and (made == right).mean() < ALIKE:
        msg = f"{(made != right).sum()} of {len(made)} classes are not those of the loop"
        raise WrongOutputError(msg)


# ---- the workloads ----


def pictures(bench: Bench) -> Iterator[Figure]:
    """W1: JPEGs, as files and in a table, for two networks."""
    make_pictures(bench.folder, bench.size.pictures)
    for why, net in bench.nets.items():
        for given, mini_batch in (("pictures", 64), ("pictures.parquet", "64 rows")):
            options = staged(bench, "decode", mini_batch)
            loop = run_loop(bench, "pictures", given, BENCH_NET=net)
            job = run_job(bench, "pictures.py", given, options, BENCH_NET=net)
            check(job.rows, loop.rows, "name", "class")
            yield compared(f"{given}, {net}, {why}", job, loop)


def texts(bench: Bench) -> Iterator[Figure]:
    """W2: texts of log-normal length; and ten times as many, of which a start is a small part."""
    for count in (10 * bench.size.texts, bench.size.texts):
        make_texts(bench.folder, count)
        loop = run_loop(bench, "texts", "texts.parquet")
        job = run_job(bench, "texts.py", "texts.parquet", staged(bench, "tokenize", "4096 rows"))
        check(job.rows, loop.rows, "id", "vector")
        yield compared(f"{count} texts", job, loop)


def busy(bench: Bench) -> Iterator[Figure]:
    """W3: how busy the device is, with decoding of 0.8 and 1.5 times its time on one core."""
    processes = min(3, max(1, bench.cores - 1))
    for case in stages.cases(processes):
        device = "cuda" if bench.device == "cuda" else ""
        made = stages.measured(case, bench.size.mini_batches, device_s=0.02, device=device)
        is_staged = "preprocess" in case.options
        goals = {f"device ≥ {LEAST_BUSY:.0%} busy": made.busy >= LEAST_BUSY} if is_staged else {}
        yield Figure(case.name, {"busy": round(made.busy, 3), "whole": round(made.whole, 2)}, goals)


def shared(bench: Bench) -> Iterator[Figure]:
    """W4: the texts of W2 with 1, 2 and 4 processes on a card, beside the loop."""
    if not (bench.folder / "texts.parquet").exists():
        make_texts(bench.folder, bench.size.texts)
    loop = run_loop(bench, "texts", "texts.parquet")
    for processes in (1, 2, 4):
        options = staged(bench, "tokenize", "4096 rows")
        options |= {"process_count_per_node": processes}
        if bench.device == "cuda":
            options |= {"gpus_per_process": 1 / processes}
        job = run_job(bench, "texts.py", "texts.parquet", options)
        check(job.rows, loop.rows, "id", "vector")
        made = compared(f"texts, {processes} a card", job, loop)
        yield made._replace(goals={})


def faults(bench: Bench) -> Iterator[Figure]:
    """W5: an assert at one row, too little memory above some rows, a kill with memory held."""
    numbers = bench.size.numbers
    rows = max(10, numbers // 100)
    bad = numbers // 2
    for fault, value, failed, options in (
        ("none", bad, 0, {}),
        ("assert", bad, 1, {"on_error": "isolate", "run_max_try": 1}),
        ("oom", rows // 3, 0, {"independent_rows": True}),
        ("kill", bad, 0, {}),
    ):
        options |= {"mini_batch_size": f"{rows} rows", "process_count_per_node": 1}
        if bench.device == "cuda":
            options |= {"gpus_per_process": 1}
        variables = {"BENCH_FAULT": fault, "BENCH_BAD": str(value), "BENCH_HELD_GB": "60"}
        made = run_job(bench, "faults.py", numbers, options, **variables)
        right = [n for n in range(numbers) if not (failed and n == bad)]
        if list(made.rows["n"]) != right or list(made.rows["digit"]) != [n % 10 for n in right]:
            msg = f"{fault}: {numbers - len(made.rows)} rows are missing, and {failed} should be"
            raise WrongOutputError(msg)
        innocents = made.told["failed_items"] - failed
        values: dict[str, Any] = {"job_s": round(made.seconds, 2), "innocent_rows": innocents}
        yield Figure(f"fault: {fault}", values, {"no innocent": innocents == 0})


WORKLOADS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "W1": pictures,
    "W2": texts,
    "W3": busy,
    "W4": shared,
    "W5": faults,
}
