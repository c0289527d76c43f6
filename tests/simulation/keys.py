"""Rows that workers bring together by key, by the code of production: what it deals and gathers."""

from __future__ import annotations

import errno
import os
import pickle
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from daskprs._agent.protocol.messages import INLINE
from daskprs._agent.supervision.helper_pool import ATTEMPTS, OVER
from daskprs._cluster import key_exchange
from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._inputs.collections.source import CollectionSource
from daskprs._inputs.frames.inline_data import Carried
from daskprs._inputs.keys import shuffle
from daskprs._inputs.keys.partition_keys import KeyPiece, ShuffledKeySource
from daskprs._inputs.source.source import TableSource
from daskprs._job.job_input import JobInput
from daskprs.errors import AgentError, DaskprsError
from tests.simulation.partitions import know_all, source_of
from tests.simulation.promises import Violation, demand
from tests.simulation.world import now

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from daskprs._agent.protocol.messages import JobSpec
    from tests.simulation.client import Client
    from tests.simulation.scenario import Scenario

KEY = "key"
WORKS_S = 0.3
"""The most seconds that it takes to deal out a piece, or to gather a part."""
DIES, HANGS = "dies", "hangs"
FAULTS = (*("",) * 14, DIES, HANGS)


@dataclass(frozen=True)
class Keyed:
    """A table whose rows are brought together by key."""

    rows: tuple[tuple[int, ...], ...]
    """The key of each row, by partition or piece; keys are numbers in order of appearance."""
    is_collection: bool
    part_bytes: int
    """Bytes of rows for which there is a part: a row counts for one."""
    small_bytes: int
    """Bytes below which a table of pieces is dealt out in the workers' own threads."""

    def fewer(self, count: int) -> Keyed:
        """Return the rows of the first keys."""
        rows = tuple(tuple(key for key in one if key < count) for one in self.rows)
        return replace(self, rows=rows)

    def frame_of(self, number: int) -> pd.DataFrame:
        """Return the rows of a partition."""
        first = sum(map(len, self.rows[:number]))
        keys = np.array(self.rows[number], np.int64)
        return pd.DataFrame({KEY: keys, "row": np.arange(first, first + len(keys))})

    def rows_of(self, key: int) -> list[int]:
        """Return the numbers of the rows of a key, in the order of the input."""
        every = [one for rows in self.rows for one in rows]
        return [number for number, one in enumerate(every) if one == key]


class RowsReader:
    """Loads a partition, or a piece that only the driver has."""

    def __init__(self, keyed: Keyed) -> None:
        self._keyed = keyed

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows."""
        piece = mini_batch.piece
        return self._keyed.frame_of(getattr(piece, "partition", piece))

    def pack(self, piece: int) -> bytes:
        """Return, in the driver, what `unpack` needs."""
        return pickle.dumps(self._keyed.frame_of(piece))

    def unpack(self, piece: int, body: bytes) -> pd.DataFrame:
        """Return, on a worker, the rows of a piece."""
        del piece
        rows: pd.DataFrame = pickle.loads(body)
        return rows

    def close(self) -> None:
        """There is nothing to close."""


class Table(TableSource):
    """A table that is cut into pieces, each of which is dealt out."""

    def __init__(self, keyed: Keyed) -> None:
        self._keyed = keyed

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the pieces."""
        for number, rows in enumerate(self._keyed.rows):
            yield MiniBatch(number, number, f"piece {number}", len(rows), len(rows))

    def fingerprint(self) -> dict[str, Any]:
        """Return nothing: the table is the same for all drivers."""
        return {}

    def reader(self) -> RowsReader:
        """Return the reader of pieces."""
        return RowsReader(self._keyed)

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return an empty place."""
        del mini_batch
        return Where()


class Collection(CollectionSource):
    """A collection whose partitions are dealt out as they are computed."""

    scenario: Scenario

    def prepare(self, scratch: Path) -> None:
        """Know all partitions, as if they were computed in this process."""
        self.open_table(scratch)
        know_all(self, self.scenario)

    def reader(self) -> RowsReader:  # type: ignore[override]
        """Return the reader of partitions."""
        assert self.scenario.keyed is not None
        return RowsReader(self.scenario.keyed)


def brought_together(
    scenario: Scenario, scratch: Path, stack: ExitStack, connected: Callable[[], Client] | None
) -> tuple[ShuffledKeySource, JobInput]:
    """Bring the rows of each key together as a job does; check what has come of it.

    Parameters
    ----------
    scenario, scratch
        The job, and the folder of its data.
    stack
        Ends the exchange.
    connected
        Returns the client of the driver; None where it works alone.

    """
    keyed = scenario.keyed
    assert keyed is not None
    shuffle.PART_BYTES, key_exchange.SMALL_BYTES = keyed.part_bytes, keyed.small_bytes
    table: TableSource = Table(keyed)
    if keyed.is_collection:
        table = source_of(scenario, scratch, Collection)
        table.scenario = scenario  # type: ignore[attr-defined]
    source = ShuffledKeySource(table, (KEY,))
    options = SimpleNamespace(
        start_method=INLINE if connected is None else "fork",
        environment_variables=None,
        process_count_per_node=None,
        limits=lambda: scenario.limits,
    )
    call: Any = SimpleNamespace(
        folder=SimpleNamespace(scratch=scratch), options=options, source=source
    )
    cluster: Any = SimpleNamespace(keep=lambda _: connected and connected())
    done = JobInput(call, cluster, stack, None, None)  # type: ignore[arg-type]
    source.begin(done)
    found = [(one.index, one.partition_key, one.items) for one in source.mini_batches()]
    wanted = [(key, ((KEY, key),), len(keyed.rows_of(key))) for key in range(scenario.count)]
    demand(found == wanted, f"by key there is {found}, and not {wanted}")
    return source, done


def may_end(error: Exception, *, is_struck: bool) -> bool:
    """Return whether the loss of the connection, or the disk of the driver, ends an exchange."""
    if isinstance(error, DaskprsError):
        return is_struck or key_exchange.CONNECTION_LOST in str(error)
    is_of_disk = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO)
    return is_of_disk or isinstance(error, Violation)


def look_at_rows(job: JobSpec, mini_batch: MiniBatch, keyed: Keyed) -> None:
    """Demand that an agent gets all rows of a key, in the order of the input."""
    piece = mini_batch.piece
    there = piece.piece if isinstance(piece, Carried) else piece
    demand(isinstance(there, KeyPiece), f"{mini_batch.index} has the piece {piece!r}")
    rows = pickle.loads(job.reader).load(mini_batch)
    keys, numbers = set(rows[KEY]), list(rows["row"])
    wanted = keyed.rows_of(mini_batch.index)
    is_right = keys == {mini_batch.index} and numbers == wanted
    demand(is_right, f"{mini_batch.index} has rows {numbers} of {keys}, and not {wanted}")


class KeyHelper:
    """In place of `HelperPool`, for dealing and gathering: a call takes time, and may fail once."""

    rng: ClassVar[random.Random]
    """Decides what befalls calls."""

    def __init__(self, environment: object, timeout_s: float) -> None:
        del environment
        self._timeout_s = timeout_s
        self._is_closed = False

    def call(self, what: str, function: Callable[..., Any], *given: Any) -> Any:
        """Call a function, once more if its process dies or hangs; return its result."""
        for attempt in range(ATTEMPTS):
            how = "" if attempt else self.rng.choice(FAULTS)
            seconds = self._timeout_s if how == HANGS else self.rng.random() * WORKS_S
            if now().wait(lambda: self._is_closed, seconds):
                raise AgentError(OVER)
            if not how:
                return function(*given)
        raise AssertionError(what)

    def rest(self) -> None:
        """There are no idle processes."""

    def close(self) -> None:
        """Kill the processes."""
        self._is_closed = True


class Asyncio:
    """In place of `asyncio` on workers: a thread of the world waits for a coroutine."""

    @staticmethod
    def run_coroutine_threadsafe(work: Coroutine[Any, Any, Any], loop: object) -> Any:
        """Begin a coroutine; `result` waits for it."""
        del loop
        task = now().loop.create_task(work)
        task.add_done_callback(lambda one: one.cancelled() or one.exception())
        return SimpleNamespace(result=lambda: now().wait(task.done) and task.result())


class OnHost:
    """In place of `os` on workers: a host does not see the files of another one's workers."""

    path = SimpleNamespace(exists=lambda path: f"/{_host()}/" in path and os.path.exists(path))  # noqa: PTH110

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def _host() -> str:
    return now().process.name.removeprefix("inproc://").partition("/")[0]
