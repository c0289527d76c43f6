"""Reads of a store that answers each request after a tenth of a second, beside fsspec's own `get`.

Both fetch the same objects into an empty folder, in turns, in a fresh process for each. Nothing but
loopback is used: `benchmarks.slow_store` is the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.peer_list import ROOT
from benchmarks.slow_store import slow_store

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECTS = 40
OBJECT_BYTES = 100_000
DELAY_S = 0.1
CLIENTS = {"s3fs as it is": "{}", "s3fs with 32 connections": '{"max_pool_connections": 32}'}
FETCH = """
import sys, tempfile, time
from pathlib import Path
import fsspec
from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.source import FilesSource
from daskprs._inputs.source.read_options import ReadOptions

how, names = sys.argv[1], [f"s3://bucket/in/{number:03}.bin" for number in range(int(sys.argv[2]))]
fsspec.filesystem("s3").exists("bucket/in/000.bin")  # opens the client
source = FilesSource(discover("s3://bucket/in"), ReadOptions(mini_batch_size=len(names)))
reader, mini_batch = source.reader(), next(source.mini_batches())
with tempfile.TemporaryDirectory() as folder:
    begun = time.perf_counter()
    if how == "fsspec":
        paths = [f"{folder}/{Path(name).name}" for name in names]
        fsspec.filesystem("s3").get(names, paths)
    else:
        paths = reader.load(mini_batch)
    print(time.perf_counter() - begun)
    assert all(Path(path).stat().st_size == int(sys.argv[3]) for path in paths)
reader.close()
"""


class Reads(NamedTuple):
    """Times of one client of the store, in seconds."""

    client: str
    one_by_one_s: float
    """What the waiting alone would take, one file after the other."""
    fsspec_s: float
    daskprs_s: float

    @property
    def ratio(self) -> float:
        """Times as long as fsspec."""
        return self.daskprs_s / self.fsspec_s


def reads(repeats: int) -> Iterator[Reads]:
    """Yield the medians of each client."""
    with slow_store() as store:
        for number in range(OBJECTS):
            store.objects[f"bucket/in/{number:03}.bin"] = bytes(OBJECT_BYTES)
        store.delay_s = DELAY_S
        for client, config in CLIENTS.items():
            environment = {**store.environment, "FSSPEC_S3_CONFIG_KWARGS": config}
            times: dict[str, list[float]] = {"fsspec": [], "daskprs": []}
            for _ in range(repeats):
                for how, taken in times.items():
                    taken.append(_taken_s(how, environment))
            fsspec_s, daskprs_s = map(median, times.values())
            yield Reads(client, OBJECTS * DELAY_S, fsspec_s, daskprs_s)


def _taken_s(how: str, environment: dict[str, str]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", FETCH, how, str(OBJECTS), str(OBJECT_BYTES)],
        env={**os.environ, **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds: float = json.loads(done.stdout)
    return seconds


def table(found: list[Reads]) -> str:
    """Return the times as a table of Markdown."""
    rows = [
        f"| {one.client} | {one.one_by_one_s:.1f} | {one.fsspec_s:.2f} | {one.daskprs_s:.2f} "
        f"| {one.ratio:.2f} |"
        for one in found
    ]
    head = "| client | waiting one by one, s | fsspec `get`, s | daskprs, s | times as long |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows])
