"""How busy `preprocess` keeps a device: ``python -m benchmarks.stages``.

The device is a stand-in: `run` sleeps, as a script does that waits for its GPU. Decoding copies
arrays, and takes one core for a part of that time. The same job runs in one process, and with
stage processes. Prints the share of the time for which the device worked, from its first mini-batch
on, the time of the job in terms of that of the device, and the processor time of all processes for
each mini-batch beyond that of the decoding. Give the job a core for each stage process, and one
more.
"""

from __future__ import annotations

import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import pandas as pd

import daskprs
from benchmarks.lazily import cpu_s

SCRIPT = """
    import os, time
    import numpy as np
    import pandas as pd

    DEVICE_S, DECODE_S = float(os.environ["DEVICE_S"]), float(os.environ["DECODE_S"])
    SHAPE = 64, 3, 224, 224

    CUDA = os.environ["DEVICE"] == "cuda"

    def init_preprocess():
        pass

    def init():
        global cycles_per_s
        if CUDA:
            import torch
            for _ in range(2):  # the first one makes the context
                begun = time.time()
                torch.cuda._sleep(10**8)
                torch.cuda.synchronize()
                cycles_per_s = 10**8 / (time.time() - begun)

    def decode(rows):
        until = time.thread_time() + DECODE_S
        picture = np.ones(SHAPE, "f4")
        while time.thread_time() < until:
            picture[0] += 1
        return picture

    def run(pictures):
        pictures = pictures if isinstance(pictures, np.ndarray) else decode(pictures)
        begun = time.time()
        if CUDA:  # what was decoded goes there, too
            import torch
            torch.as_tensor(pictures).to("cuda", non_blocking=True)
            torch.cuda._sleep(int(cycles_per_s * DEVICE_S))
            torch.cuda.synchronize()
        else:
            time.sleep(DEVICE_S)
        return np.array([[begun, time.time(), pictures[-1, -1, -1, -1]]])

    def rows(spans):
        return pd.DataFrame(spans, columns=["begun", "ended", "value"])
"""


class Case(NamedTuple):
    """One way to run the job."""

    name: str
    decode: float
    """Time of decoding, in terms of that of the device."""
    options: dict[str, Any]


def cases(processes: int) -> list[Case]:
    """Return a job in one process, and with stage processes, for two times of decoding."""
    stages = {"preprocess": "decode", "postprocess": "rows", "preprocess_processes": processes}
    found = []
    for decode in (0.8, 1.5):
        found.append(Case(f"decoding {decode} ×, one process", decode, {"postprocess": "rows"}))
        found.append(Case(f"decoding {decode} ×, {processes} stage processes", decode, stages))
    return found


class Measured(NamedTuple):
    """What was measured of one case."""

    busy: float
    """Share of the time for which the device worked, from its first mini-batch on."""
    whole: float
    """Time of the job, in terms of that of the device."""
    own_ms: float
    """Processor time for each mini-batch beyond that of the decoding."""


def measured(case: Case, mini_batches: int, device_s: float, device: str = "") -> Measured:
    """Run a job, and check its rows; `device` is ``cuda``, or empty for a stand-in."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.py").write_text(textwrap.dedent(SCRIPT))
        variables = {"DEVICE_S": str(device_s), "DECODE_S": str(case.decode * device_s)}
        before_s, begun = cpu_s(), time.monotonic()
        result = daskprs.parallel_run(
            pd.DataFrame({"n": range(64 * mini_batches)}),
            folder / "script.py",
            mini_batch_size="64 rows",
            process_count_per_node=1,
            environment_variables={**variables, "DEVICE": device},
            job_dir=folder / "job",
            progress=False,
            **({"preprocess_processes": 1} | case.options),
        )
        took_s, used_s = time.monotonic() - begun, cpu_s() - before_s
        spans = result.to_pandas(ignore_index=True)
        if len(spans) != mini_batches or (spans["value"] != 1).any():
            msg = f"{case.name}: the rows are not those of the pictures"
            raise click.ClickException(msg)
        busy_s = (spans["ended"] - spans["begun"]).sum()
        steady_s = spans["ended"].max() - spans["begun"].min()
        own_ms = 1000 * (used_s / mini_batches - case.decode * device_s)
        return Measured(float(busy_s / steady_s), float(took_s / busy_s), own_ms)


@click.command()
@click.option("--mini-batches", default=300, help="Mini-batches of each job.")
@click.option("--device-ms", default=20.0, help="Milliseconds of the device for a mini-batch.")
@click.option("--processes", default=3, help="Number of stage processes.")
def main(mini_batches: int, device_ms: float, processes: int) -> None:
    """Run the jobs, and print a line for each."""
    for case in cases(processes):
        made = measured(case, mini_batches, device_ms / 1000)
        click.echo(
            f"{case.name}: device {made.busy:.0%} busy, whole job "
            f"{made.whole:.2f} × its time, {made.own_ms:.1f} ms beside decoding"
        )


if __name__ == "__main__":
    main()
