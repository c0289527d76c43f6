"""What a peer is asked to do. Imports nothing but the standard library: it is part of each run."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

LIKE = {"faults": "files", "pipeline": "table", "cluster_keys": "keys"}
"""Kinds that are done like another one, unless a peer knows better."""
ON_CLUSTER = ("cluster_frame", "cluster_keys", "cluster_dataset", "cluster_groups")
"""Kinds whose clock begins when the cluster has started."""
SECONDS_FILE = "seconds.txt"


@dataclass(frozen=True, slots=True)
class Job:
    """One workload for one peer, as it travels in the peer's arguments.

    Parameters
    ----------
    kind
        ``"files"``, ``"table"``, ``"keys"``, ``"frame"``, ``"faults"``, ``"pipeline"``, or one of
        `ON_CLUSTER`: which function of the peer does it.
    run
        Module and function, with a colon between them: the same code for all peers.
    input
        A folder of files, or a Parquet file; for ``"frame"`` the number of rows, and for
        ``"cluster_frame"`` what `benchmarks.lazy_frames` has written.
    output
        The one file to write; for ``"cluster_dataset"`` a folder of Parquet files.
    size
        Of a mini-batch: bytes, or files.
    processes
        How many may work at a time.

    """

    kind: str
    run: str
    input: str
    output: str
    size: int
    processes: int

    def to_argument(self) -> str:
        """Return it as one word of a command."""
        return json.dumps(asdict(self))

    def function(self) -> Callable[[Any], Any]:
        """Return the function that works on one mini-batch."""
        module, _, name = self.run.partition(":")
        function: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
        return function

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Write down how long it took, for work that does not begin with the process."""
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        Path(self.output).with_name(SECONDS_FILE).write_text(repr(seconds))

    def timed_on_cluster(self) -> AbstractContextManager[None]:
        """Write down how long work on a cluster took, without the start of the cluster."""
        return self.timed() if self.kind in ON_CLUSTER else nullcontext()


def play(**kinds: Callable[[Job], None]) -> None:
    """Do the job of the command line; a peer without words for faults meets them unprepared."""
    job = Job(**json.loads(sys.argv[1]))
    play_kind = kinds.get(job.kind) or kinds[LIKE[job.kind]]
    play_kind(job)


def write_all(job: Job, texts: Iterable[bytes]) -> None:
    """Write the output from one process, in the order of what comes."""
    with Path(job.output).open("wb") as output:
        output.writelines(texts)


def gather(job: Job, parts: Iterable[Path]) -> None:
    """Put files together, for peers that write one for each partition."""
    with Path(job.output).open("wb") as output:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, output, 1 << 20)
