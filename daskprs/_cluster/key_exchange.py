"""Bringing rows together by key on a cluster: the driver submits the work, and keeps the index."""

from __future__ import annotations

import os
import pickle
import secrets
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from distributed import wait
from distributed.comm import get_address_host

from daskprs._agent.node.site import new_probe
from daskprs._cluster.key_worker import (
    Dealing,
    ExchangePlugin,
    deal_key,
    deal_partition,
    deal_piece,
    gather_part,
    index_of,
    rest,
)
from daskprs._cluster.own_tasks import unannotated
from daskprs._cluster.partition_feed import PartitionFeed
from daskprs._cluster.scheduler_plugin import join
from daskprs._cluster.staged_work import HeldPartition, StagedWork
from daskprs._cluster.topics import deaf
from daskprs._cluster.worker_answers import answers_of
from daskprs._cluster.worker_timer import WorkerTimer
from daskprs._inputs.collections.source import CollectionSource
from daskprs._inputs.frames.inline_data import CarryingReader, FarReader, carried
from daskprs._inputs.keys.shuffle import Cut, in_order, labelled, shuffle
from daskprs._inputs.source.input_file import is_url
from daskprs._inputs.source.pickled_rows import PickledReader
from daskprs._inputs.source.pieces import Uncomputed
from daskprs._system.seal import new_key
from daskprs.errors import DaskprsError, LoadError, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distributed import Client, Future

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.keys.gathering import Gathered, Group
    from daskprs._inputs.source.source import TableSource

IN_PROCESS = "inproc://"
SMALL_BYTES = 8 << 20
"""A table of this size is brought together in the workers' own threads."""
AHEAD = 2
"""Tasks for each thread of the cluster that the scheduler has at a time."""
LOOK_EVERY_S = 0.5
CONNECTION_LOST = (
    "the connection to the scheduler was lost, and with it the rows that the workers had brought "
    "together by key. Start the job again with "
)
FIRST = 10
"""Priority of the index of a part over further parts."""


class GatheredParts(StagedWork[HeldPartition]):
    """The parts of an exchange that stay with their workers while the job runs."""

    def __init__(self, exchange: KeyExchange) -> None:
        super().__init__()
        self._exchange = exchange

    def turn(self, slots: Mapping[str, int], *, are_all: bool) -> None:
        """Raise what makes it impossible to gather a lost part again."""
        del slots, are_all
        if self.held:
            self._exchange.check()


class KeyExchange:
    """The rows of a prepared table, brought together by the workers of a cluster.

    `environment` has the variables that the user sets for the agents, of which a node has
    `per_node`; None: as many as threads. `timeout_s` is for dealing a piece out, for gathering a
    part, and until all workers have answered; `no_workers_timeout_s` is for a cluster without
    workers, which is awaited for ever if it is None.
    """

    def __init__(
        self,
        client: Client,
        environment: Mapping[str, str] | None,
        per_node: int | None,
        timeout_s: float = 600.0,
        no_workers_timeout_s: float | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._client = client
        self._timer = WorkerTimer(client, no_workers_timeout_s)
        self._environment = environment or {}
        self._is_here = client.scheduler.address.startswith(IN_PROCESS)
        self._per_node = per_node
        self._connection = client.scheduler_comm
        self._name = f"daskprs-keys-{secrets.token_hex(4)}"
        self._dealt: list[Future] = []
        self._parts: list[Future] = []
        """The gathered parts; one that is lost is gathered again by Dask."""
        self.staged = GatheredParts(self)
        """The parts that stay with their workers: all, if some do not see the driver's folder."""
        self.workers: dict[int, str] = {}
        """The workers of these parts."""
        self._closing = ExitStack()

    def run(
        self,
        source: TableSource,
        keys: Sequence[str],
        files: Path,
        report: Callable[[str], None],
    ) -> list[Group]:
        """Bring the rows of a table together, as `inputs.keys.shuffle` does.

        `files` are the gathered files, without the numbers of their parts. They go to the driver's
        folder if all workers see it. `report` is called with the progress in a few words. Raise
        `DaskprsError` if the scheduler is lost.
        """
        with self._explained():
            scratch = files.parent
            seen = self._is_here or self._is_seen(scratch)
            if not isinstance(source, CollectionSource):
                source.prepare(scratch)
            reader = source.reader()
            if isinstance(reader, PickledReader) or not (self._is_here or self._reads(source)):
                return shuffle(source, keys, files, report)
            dealing = Dealing(
                self._name,
                pickle.dumps(reader if seen else FarReader(reader)),
                tuple(keys),
                1,
                new_key(),
                str(files) if seen else None,
                labelled(scratch),
                in_helpers=True,
                timeout_s=self._timeout_s,
            )
            if isinstance(source, CollectionSource):
                parts = self._deal_partitions(source, dealing, scratch, report)
            else:
                pieces = None if seen or not isinstance(reader, CarryingReader) else reader
                parts = self._deal_pieces(source, dealing, pieces, report)
            indexes: list[Future] = []
            for done in self._in_turn(self._gathers(parts), indexes):
                report(f"rows of each key are put together, {done} of {parts} parts")
            gathered: list[tuple[Gathered, str]] = self._client.gather(indexes)
            # Idle helpers keep memory that they have freed, up to 256 MB each, and their zygote is
            # needed for the agents.
            self._client.run(rest, self._name, on_error="ignore")
            groups = in_order([index for index, _ in gathered], scratch)
            # The parts are in the shared folder. Dealt rows would take as much disk space as the
            # table until the end, and Dask would deal them out again for each lost worker.
            if seen:
                self._release()
            else:
                self._keep(groups, [worker for _, worker in gathered])
            return groups

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of an error that it is the loss of the scheduler, where that is its cause."""
        try:
            yield
        except Exception as error:  # each call of Dask has its own for a lost scheduler
            if isinstance(error, DaskprsError) or self._is_connected:
                raise
            raise self._connection_lost() from error

    def _keep(self, groups: Sequence[Group], workers: Sequence[str]) -> None:
        """Note which parts stay with their workers until their mini-batches are settled."""
        self.workers = dict(enumerate(workers))
        for index, group in enumerate(groups):
            part = self.staged.held.setdefault(group.part, HeldPartition(self._parts[group.part]))
            part.left.add(index)

    def _deal_pieces(
        self,
        source: TableSource,
        dealing: Dealing,
        sends: CarryingReader | None,
        report: Callable[[str], None],
    ) -> int:
        """Deal out a table that the driver has cut; `sends` reads what workers do not see."""
        cut = Cut.of(source)
        in_helpers = cut.size_bytes > SMALL_BYTES
        self._open(dealing._replace(parts=cut.parts, in_helpers=in_helpers))
        about = -(-cut.size_bytes // cut.piece_bytes)
        pieces = cut.pieces(source)
        if sends is not None:
            pieces = ([carried(one, sends) for one in piece] for piece in pieces)
        for done in self._in_turn(self._deals(enumerate(pieces)), self._dealt):
            report(f"rows are dealt out by key, {done} of about {about} pieces")
        return cut.parts

    def _deal_partitions(
        self,
        source: CollectionSource,
        dealing: Dealing,
        scratch: Path,
        report: Callable[[str], None],
    ) -> int:
        """Deal out a collection, each partition once it is computed.

        The first one with rows is the measure for the number of parts.
        """
        source.open_table(scratch)
        dealing = dealing._replace(labelled=source.form.keep_labels)
        news, parts = threading.Event(), 0
        begun: dict[Future, MiniBatch] = {}
        empty: list[int] = []
        with closing(PartitionFeed(source, self._name)) as feed:
            feed.open(self._client, news.set)
            for mini_batch in feed.plan():
                # A partition without rows, as a filter leaves it, says nothing about the sizes of
                # the others. As their measure, it made one part of the whole table. So it is dealt
                # out at the end.
                if mini_batch is not None and not mini_batch.items:
                    empty.append(mini_batch.index)
                    feed.settle([mini_batch])
                    continue
                if mini_batch is not None:
                    if not parts:
                        parts = Cut.of_size((mini_batch.size_bytes or 0) * len(source.graph)).parts
                        self._open(dealing._replace(parts=parts))
                    deal = self._deal_partition(mini_batch, feed)
                    deal.add_done_callback(lambda _: news.set())
                    begun[deal] = mini_batch
                    continue
                news.wait(LOOK_EVERY_S)
                news.clear()
                self.check()
                done = [deal for deal in begun if deal.done()]
                feed.settle([begun.pop(deal) for deal in done])
                feed.turn(self._client.nthreads())
                dealt = len(self._dealt) - len(begun) + len(empty)
                report(f"rows are dealt out by key, {dealt} of {len(source.graph)} partitions")
            left = set(begun)
            while left:
                left, _ = self._some_done(left)
        if empty and not parts:
            parts = dealing.parts
            self._open(dealing)
        for _ in self._in_turn(self._deals((number, []) for number in empty), self._dealt):
            pass
        if source.form.keep_labels:
            source.finish_labels()
        return parts

    def _deal_partition(self, mini_batch: MiniBatch, feed: PartitionFeed) -> Future:
        number, piece = mini_batch.index, mini_batch.piece
        if isinstance(piece, Uncomputed):
            msg = f"{piece.kind}: {piece.message}"
            raise LoadError(msg)
        partition, key = feed.held[number].staged, deal_key(self._name, number)
        with unannotated():
            deal = self._client.submit(deal_partition, self._name, mini_batch, partition, key=key)
        self._dealt.append(deal)
        return deal

    def close(self) -> None:
        """Let all files go, and take the exchange off the cluster."""
        self._release()
        self._closing.close()

    def _release(self) -> None:
        for futures in (self._dealt, self._parts):
            for future in futures:
                future.release()
            futures.clear()

    def check(self, begun: Iterable[Future] = ()) -> None:
        """Raise the error of a task, or of a piece that was lost and cannot be dealt out again.

        With its connection the client loses all pieces: that is an error, too. So is a cluster
        without workers, for too long.
        """
        if not self._is_connected:
            raise self._connection_lost()
        self._timer.check()
        for future in [*begun, *self._dealt]:
            if future.status in ("error", "cancelled"):
                future.result()

    # ---- the cluster ----

    def _is_seen(self, folder: Path) -> bool:
        """Return whether all workers see the folder of the driver's data.

        A cluster without workers may get some that do not.
        """
        with ExitStack() as removing:
            probe = new_probe(folder / ".seen", removing)
            sees = self._answers(probe.is_seen)
        return bool(sees) and all(sees)

    def _reads(self, source: TableSource) -> bool:
        """Return whether the workers see the files of the input: the first one, and a last one."""
        paths = [file.path for file in source.files() if not is_url(file.path)]
        ends = [*paths[:1], *paths[-1:]]
        return not ends or all(self._answers(_exist, ends))

    def _answers(self, function: Callable[..., bool], *given: Any) -> list[bool]:
        """Return what a function says on all workers; one that is going is asked no more."""
        until_s = time.monotonic() + self._timeout_s
        while True:
            answers, lost = answers_of(self._client, function, *given)
            if not lost:
                return [*answers.values()]
            if time.monotonic() > until_s:
                raise lost[0]
            # A worker has died meanwhile, or cannot be reached, as the scheduler will soon notice.
            self.check()
            time.sleep(LOOK_EVERY_S)

    def _open(self, dealing: Dealing) -> None:
        plugin = ExchangePlugin(dealing, self._environment, self._agents())
        topic = f"{self._name}-news"
        join(self._client, self._name, topic, deaf, plugin, self._closing)

    def _agents(self) -> dict[str, int]:
        """Return how many agents each host will have."""
        threads: Counter[str] = Counter()
        for address, count in self._client.nthreads().items():
            threads[get_address_host(address)] += count
        return {host: self._per_node or count for host, count in threads.items()}

    def _connection_lost(self) -> DaskprsError:
        return DaskprsError(CONNECTION_LOST, Option("resume", True), ".")

    @property
    def _is_connected(self) -> bool:
        """Return whether the scheduler is the one that knows the exchange."""
        connected: bool = self._client.scheduler_comm is self._connection
        return connected

    # ---- tasks ----

    def _deals(self, pieces: Iterable[tuple[int, list[MiniBatch]]]) -> Iterator[Future]:
        for piece, mini_batches in pieces:
            key = deal_key(self._name, piece)
            with unannotated():
                deal = self._client.submit(deal_piece, self._name, piece, mini_batches, key=key)
            yield deal

    def _gathers(self, parts: int) -> Iterator[Future]:
        pieces = len(self._dealt)
        for part in range(parts):
            key = (f"{self._name}-gather", part)
            with unannotated():
                gathered = self._client.submit(
                    gather_part, self._name, part, pieces, key=key, pure=False
                )
                self._parts.append(gathered)
                key = (f"{self._name}-index", part)
                index = self._client.submit(index_of, gathered, key=key, priority=FIRST, pure=False)
            yield index

    def _in_turn(self, tasks: Iterator[Future], submitted: list[Future]) -> Iterator[int]:
        """Submit tasks, a few ahead of the threads; yield how many are done each time."""
        begun: set[Future] = set()
        done = 0
        for task in tasks:
            submitted.append(task)
            begun.add(task)
            while len(begun) >= self._ahead():
                begun, more = self._some_done(begun)
                done += more
                yield done
        while begun:
            begun, more = self._some_done(begun)
            done += more
            yield done

    def _ahead(self) -> int:
        threads: int = sum(self._client.nthreads().values())
        return AHEAD * max(1, threads)

    def _some_done(self, begun: set[Future]) -> tuple[set[Future], int]:
        """Wait for the first of some tasks, or a moment; raise the error of any task."""
        # `wait` takes the current client of the thread, which may be another one. A lost connection
        # cancels the futures; `check` raises the error that says so.
        with suppress(CancelledError), self._client.as_current():
            try:
                wait(list(begun), timeout=LOOK_EVERY_S, return_when="FIRST_COMPLETED")
            except TimeoutError as late:
                # `wait` keeps this error in a frame of its traceback, which would hold all callers
                # and the collection until Python's next collection of garbage.
                late.__traceback__ = None
        self.check(begun)
        over = {future for future in begun if future.status == "finished"}
        return begun - over, len(over)


def _exist(paths: list[str]) -> bool:
    return all(map(os.path.exists, paths))
