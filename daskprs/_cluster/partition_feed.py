"""The partitions of a collection on a cluster: computed a few ahead of the slots, then let go."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dask._task_spec import Task, TaskRef
from distributed import KilledWorker, get_worker

from daskprs._cluster.lost_cluster import lost_cluster_ignored
from daskprs._cluster.own_tasks import unannotated
from daskprs._cluster.partition_tasks import submit_group, unmet_need
from daskprs._cluster.staged_in_use import PARTITIONS
from daskprs._cluster.staged_work import HeldPartition, StagedWork
from daskprs._cluster.worker_timer import WorkerTimer
from daskprs._inputs.collections.partition_table import NOT_COMPUTED
from daskprs._inputs.collections.staging import staged
from daskprs._inputs.source.pieces import Uncomputed
from daskprs._report.humanize import counted
from daskprs.errors import DaskprsError, InputChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed import Client, Future

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.collections.partition_graph import PartitionGraph
    from daskprs._inputs.collections.partition_table import PartitionCut
    from daskprs._inputs.collections.source import CollectionSource
    from daskprs._inputs.collections.staging import Labels, StagedPartition
    from daskprs._inputs.collections.staging_form import StagingForm

AHEAD = 2
"""Partitions for each worker beyond one for each slot."""
BLAMED_AT_MOST = 3
"""Number of times that a partition is submitted again after Dask blamed it for dead workers."""
LOOK_EVERY_S = 0.25
ANSWERS_WITHIN_S = 5.0
"""Seconds for the scheduler to say what the input waits for."""
FETCHERS = 2
"""Threads that fetch descriptions, each of which costs a message to a worker and back."""
Description: TypeAlias = "tuple[PartitionCut, Labels, str]"
"""What the driver needs to know of a staged partition: its cut, its labels, and its worker."""


def stage(value: Any, number: int, form: StagingForm) -> StagedPartition:
    """Write a computed partition for the agents of this worker's node (a Dask task)."""
    folder = Path(get_worker().local_directory, PARTITIONS)
    folder.mkdir(exist_ok=True)
    return staged(value, number, form, folder)


def itself(value: Any) -> Any:
    """Return a value that other tasks depend on (a Dask task)."""
    return value


def describe(partition: StagedPartition) -> Description:
    """Return the description of a staged partition (a Dask task)."""
    return partition.cut, partition.labels, get_worker().address


@dataclass(slots=True, kw_only=True)
class SubmittedPartition(HeldPartition):
    """A partition that the cluster computes or holds."""

    described: Future
    worker: str
    """The worker that computes or holds it; empty where Dask chooses one."""
    is_fetched: bool = False
    """Whether its description is being fetched, or was."""
    is_numbered: bool = False


class Answer(NamedTuple):
    """The description of a computed partition, or its error."""

    number: int
    described: Future
    found: Description | BaseException | None
    """None: there was no thread to fetch it."""


DROPPED = (
    "the cluster has dropped the persisted data that the input is made of: the client was "
    "restarted (Client.restart), or has lost its connection to the scheduler. Persist the input "
    "again, and go on with resume=True."
)


class PartitionFeed(StagedWork[SubmittedPartition]):
    """Submits the partitions of a collection, and turns those that are staged into mini-batches.

    There is at most one partition for each slot, and `AHEAD` more for each worker; Dask may move
    the task of one. The workers get the form of the partitions once, from each other: it has the
    names of all columns. `job_id` makes the keys of tasks unique, and `is_settled` returns whether
    an earlier run has settled a mini-batch.
    """

    is_known = False

    def __init__(
        self,
        source: CollectionSource,
        job_id: str,
        is_settled: Callable[[MiniBatch], bool] = lambda _: False,
    ) -> None:
        super().__init__()
        self._source = source
        self._name = f"daskprs-partition-{job_id}"
        self._form = f"{self._name}-form"
        """The key of the form of all partitions."""
        self._is_settled = is_settled
        self._client: Client
        self._wake: Callable[[], None] = lambda: None
        self._graph = source.graph
        self._kept: dict[Any, Future] = {}
        """Futures of tasks that later partitions need, by key; that of their form is one."""
        self._ends: dict[int, tuple[Any, ...]] = {}
        """The kept keys that no partition needs after this one, for each that is being computed."""
        self._todo: deque[int] = deque()
        """Partitions to compute, in plan order."""
        self._located: dict[str, deque[int]] = {}
        """Partitions that were computed before the job, by the address of their worker."""
        self._places: set[int] = set()
        """All partitions that were in `_located`, and are made of one result."""
        self._suspects: deque[int] = deque()
        """Partitions that were being computed on workers that died."""
        self._tried_alone: set[int] = set()
        self._attempts: Counter[int] = Counter()
        """Number of new keys of each partition: a client keeps the end of a key for ever."""
        self._blamed: Counter[int] = Counter()
        """Number of dead workers for which Dask blames each staged partition after its loss."""
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._threads = ThreadPoolExecutor(FETCHERS, "daskprs-partitions")
        self._arrived: dict[int, tuple[PartitionCut, str, Uncomputed | None]] = {}
        """Partitions whose mini-batches have no numbers yet."""
        self._ready: deque[MiniBatch] = deque()
        self._left = len(self._graph)
        """Number of partitions whose mini-batches have no numbers yet."""
        self._next = self._index = self._first = 0
        """The next partition to number, its first mini-batch, and its first row."""

    def plan(self) -> Iterator[MiniBatch | None]:
        """Yield the mini-batches of partitions as they are staged; None while there are none."""
        while self._left or self._ready:
            yield self._ready.popleft() if self._ready else None

    def has_lost(self) -> bool:
        """Return whether a staged partition was lost, though not with the connection.

        One that was computed again beside a partition that kills workers is blamed, too: it is
        submitted once more.
        """
        if self._is_cut_off():
            return False
        blamed = [number for number, one in self.held.items() if self._is_blamed(number, one)]
        for number in blamed:
            self._blamed[number] += 1
            self._submit_anew(number, self._source.graph.of([number]))
        return super().has_lost() or bool(blamed)

    def _is_blamed(self, number: int, partition: SubmittedPartition) -> bool:
        return (
            partition.is_numbered
            and partition.failure is None
            and partition.staged.status == "error"
            and self._blamed[number] < BLAMED_AT_MOST
            and isinstance(partition.staged.exception(), KilledWorker)
        )

    def open(self, client: Client, wake: Callable[[], None] = lambda: None) -> None:
        """Begin on a cluster; `wake` is called by a thread when a partition was staged."""
        self._client = client
        self._wake = wake
        self._source.table.begin()
        self._plan_work(self._undone())
        self._number()

    def turn(self, slots: Mapping[str, int], *, are_all: bool = True) -> None:
        """Make mini-batches of partitions that are staged, and submit others.

        `slots` has the number of slots of each worker, and `are_all` says whether no worker without
        slots is expected to offer some soon.
        """
        self._hear()
        self._number()
        if slots and are_all:
            self._give_up_places(slots)
        self._submit_more(slots)

    def obstacles(self) -> tuple[str, ...]:
        """Return how many partitions are being computed, while slots wait for them."""
        if not self._left:
            return ()
        computing = counted(len(self._computing), "partition")
        return (f"{computing} of the input being computed, {self._left:,} not staged yet",)

    def unmet_need(self) -> str:
        """Return what a partition waits for that no worker has; '' where that is not known."""
        answers: list[str] = []
        with lost_cluster_ignored("to ask what the input waits for"):
            limit = {"callback_timeout": ANSWERS_WITHIN_S}
            answers += [self._client.run_on_scheduler(unmet_need, self._name, **limit)]
        return "".join(answers)

    def _hear(self, timeout_s: float = 0.0) -> None:
        """Take the answers that are there; wait for the first one."""
        if self._is_cut_off():
            self._submit_again()
        self._fetch_forgotten()
        with suppress(Empty):
            if timeout_s:
                self._take(self._answers.get(timeout=timeout_s))
            while True:
                self._take(self._answers.get_nowait())

    def describe(
        self, client: Client, numbers: Sequence[int], no_workers_timeout_s: float | None = None
    ) -> None:
        """Compute partitions only to know their cuts, before a resume compares its plan.

        Raise `DaskprsError` when there has been no worker for `no_workers_timeout_s`.
        """
        self._client = client
        timer = WorkerTimer(client, no_workers_timeout_s)
        self._plan_work(numbers)
        source = self._source
        for done in range(len(numbers)):
            source.how_far = f"partitions are computed to compare them, {done} of {len(numbers)}"
            while not self._arrived:
                timer.check()
                self._submit_more(_threads(client))
                self._hear(LOOK_EVERY_S)
            number, (cut, _, failure) = self._arrived.popitem()
            source.table.cuts[number] = cut
            if failure is not None:
                source.failures[number] = failure
            self.release(number)

    def close(self) -> None:
        """Let all partitions go."""
        self._source.table.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()
        self._kept.clear()
        del self._graph  # as `CollectionSource.let_go` does

    # ---- submitting ----

    def _undone(self) -> list[int]:
        """Return the partitions that have work left; the others have arrived."""
        source, undone = self._source, list[int]()
        index, first, numbered = 0, 0, True
        for number in range(len(self._graph)):
            cut = source.table.cuts.get(number)
            numbered = numbered and not (cut is None and source.is_cut)
            if cut is None or not numbered:
                undone.append(number)
                continue
            mini_batches = list(source.cut(number, cut, index, first))
            failure = source.failures.get(number)
            if failure is not None or all(map(self._is_settled, mini_batches)):
                self._arrived[number] = cut, "", failure
            else:
                undone.append(number)
            index, first = index + len(mini_batches), first + cut.rows
        return undone

    def _plan_work(self, numbers: Sequence[int]) -> None:
        """Plan to submit these partitions; those that exist already go to their workers.

        Partitions that share tasks are submitted in plan order, wherever they lie.
        """
        self._connection = self._client.scheduler_comm
        self._graph = self._source.graph.of(numbers)
        # As an argument of each task, the form of a hundred columns added 40 % to the driver's
        # traffic.
        with unannotated():
            form = self._client.submit(itself, self._source.form, key=self._form)
        self._kept = {self._form: form}
        self._ends.clear()
        self._todo, self._located = deque(), {}
        needed = {number: _futures_of(self._graph, number) for number in numbers}
        futures = [one for of_one in needed.values() for one in of_one if one.status == "finished"]
        places = self._client.who_has(futures) if futures else {}
        for number in numbers:
            workers = [place for one in needed[number] for place in places.get(one.key, ())]
            queue = self._located.setdefault(workers[0], deque()) if workers else self._todo
            queue.append(number)
        # Of several results, Dask knows which is the largest.
        located = chain.from_iterable(self._located.values())
        self._places = {number for number in located if len(needed[number]) == 1}

    def _give_up_places(self, slots: Mapping[str, int]) -> None:
        """Let any worker have the partitions of workers without slots."""
        for worker in self._located.keys() - slots.keys():
            self._todo = deque(sorted([*self._todo, *self._located.pop(worker)]))

    def _submit_more(self, slots: Mapping[str, int]) -> None:
        computing = self._computing
        if self._suspects and not computing:
            self._submit_suspect()
            return
        # A suspect is tried alone to its end: beside others, it was charged for workers that these
        # had killed.
        if self._suspects or computing & self._tried_alone:
            return
        self._submit_missing()
        load = Counter(one.worker for one in self.held.values())
        left = sum(slots.values()) + AHEAD * len(slots) - load.total()
        while left > 0 and (self._todo or any(self._located.values())):
            best = sorted(slots, key=lambda one: load[one] / slots[one])
            for worker in best:
                number = self._next_of(worker, load[worker], slots[worker])
                if number is not None:
                    is_here = number in self._places
                    load[self._submit(number, worker, is_here=is_here)] += 1
                    left -= 1
                    break
            else:
                return

    @property
    def _computing(self) -> set[int]:
        """The partitions that are submitted, and not staged yet."""
        return {n for n, one in self.held.items() if not one.is_numbered} - self._arrived.keys()

    def _next_of(self, worker: str, load: int, slots: int) -> int | None:
        """Return the next partition for a worker; one that lies elsewhere only for an idle slot."""
        if load >= slots + AHEAD:
            return None
        own = self._located.get(worker)
        # Where partitions are cut, none is numbered before those that come first.
        if own and not (self._source.is_cut and self._todo and self._todo[0] < own[0]):
            return own.popleft()
        if self._todo:
            return self._todo.popleft()
        longest = max(self._located.values(), key=len, default=None)
        return longest.popleft() if longest and load < slots else None

    def _submit_missing(self) -> None:
        """Submit the partition that all others wait for, though these may take all places.

        Where partitions are cut, none is numbered before it. It may lie with a worker that offers
        no slots.
        """
        if not self._source.is_cut or not self.held or self._next in self.held:
            return
        if any(one.is_numbered for one in self.held.values()):
            return  # a place becomes free
        for queue in (self._todo, *self._located.values()):
            if queue and queue[0] == self._next:
                self._submit(queue.popleft(), "")
                return

    def _submit_suspect(self) -> None:
        """Submit a suspect while nothing else is computed, so that it is charged for itself alone.

        Dask blames all tasks that are on a worker when it dies.
        """
        self._plan_work(self._unsubmitted())
        number = self._suspects.popleft()
        self._tried_alone.add(number)
        self._attempts[number] += 1
        self._await_releases()
        self._submit(number, "", graph=self._source.graph.of([number]))

    def _await_releases(self) -> None:
        """Wait until Dask's thread has sent what was let go.

        A task that failed, and is submitted before that, keeps its error.
        """
        self._client.sync(asyncio.sleep, 0)

    def _unsubmitted(self) -> list[int]:
        located = [number for queue in self._located.values() for number in queue]
        return sorted([*self._todo, *located])

    def _submit(
        self,
        number: int,
        worker: str,
        *,
        is_here: bool = False,
        graph: PartitionGraph | None = None,
    ) -> str:
        """Submit a partition for a worker, if that holds it or any may compute it.

        Return the worker, or nothing where Dask chooses one.
        """
        group = (graph or self._graph).group(number)
        pinned = worker if group.is_free or is_here else ""
        attempt = (self._attempts[number],) if number in self._attempts else ()
        key, told = (self._name, number, *attempt), (f"{self._name}-told", number, *attempt)
        tail = {
            key: Task(key, stage, TaskRef(group.output), number, TaskRef(self._form)),
            told: Task(told, describe, TaskRef(key)),
        }
        wanted = [key, told, *group.keeps]
        workers = [pinned] if pinned else []
        futures = submit_group(self._client, group, self._kept, tail, wanted, workers)
        self._kept |= {key: futures[key] for key in group.keeps}
        self._ends[number] = group.ends
        partition = SubmittedPartition(staged=futures[key], described=futures[told], worker=pinned)
        self.held[number] = partition
        partition.described.add_done_callback(lambda _: self._fetch_later(number, partition))
        return pinned

    def _is_cut_off(self) -> bool:
        """Say whether the scheduler knows nothing of this job's tasks any more.

        The connection was lost, or `Client.restart` has cancelled all futures of the client: that
        of the form, too, which nothing else cancels.
        """
        is_new = self._client.scheduler_comm is not self._connection
        return is_new or self._kept[self._form].status == "cancelled"

    def _submit_again(self) -> None:
        """Submit all once more after the scheduler has dropped all futures.

        Raises
        ------
        DaskprsError
            When the input is made of such futures. The budgets of the job are for partitions that
            cannot be computed.

        """
        left = self._unsubmitted()
        self._plan_work([*self.held, *left])
        if any(one.status == "cancelled" for one in self._graph.futures.values()):
            raise DaskprsError(DROPPED)
        self._todo, self._located = deque(left), {}
        for number in sorted(self.held):
            self._submit_anew(number)

    def _submit_anew(self, number: int, graph: PartitionGraph | None = None) -> None:
        before = self.held[number]
        before.described.release()
        before.staged.release()
        self._await_releases()
        self._attempts[number] += 1
        self._submit(number, "", graph=graph)
        self.held[number].left = before.left
        self.held[number].is_numbered = before.is_numbered
        self.held[number].failure = before.failure

    # ---- what comes back ----

    def _fetch_later(self, number: int, partition: SubmittedPartition) -> None:
        """Fetch a description, once (called by Dask's thread, which is not to wait)."""
        if not partition.is_fetched:
            partition.is_fetched = True
            try:
                self._threads.submit(self._fetch, number, partition.described)
            except RuntimeError:  # no more threads; or the job is over, which needs no answer
                self._answers.put(Answer(number, partition.described, None))

    def _fetch_forgotten(self) -> None:
        """Fetch descriptions of which Dask has not called back: it needs a thread for that."""
        for number, partition in self.held.items():
            if partition.described.done():
                self._fetch_later(number, partition)

    def _fetch(self, number: int, future: Future) -> None:
        try:
            self._answers.put(Answer(number, future, future.result()))
        except BaseException as error:  # noqa: BLE001 - whatever the user's tasks raise
            self._answers.put(Answer(number, future, error))
        self._wake()

    def _take(self, answer: Answer) -> None:
        """Take the description of a partition, or the reason why there is none."""
        number, described, found = answer
        partition = self.held.get(number)
        if partition is None or partition.described is not described:
            return  # it was submitted again since
        if found is None:
            self._fetch(number, described)
            return
        for key in self._ends.pop(number, ()):
            self._kept.pop(key).release()
        if isinstance(found, BaseException):
            if not partition.is_numbered:  # else its leases find out
                self._take_error(number, found)
            return
        cut, labels, partition.worker = found
        if partition.is_numbered:
            return  # described again, after a reconnect
        before = self._source.table.cuts.get(number, cut)
        # Dask computes a lost partition again. With other rows, some mini-batches would have rows
        # of the first result and some of the second.
        if self._source.is_cut and not (before.failed or before.has_rows_of(cut)):
            raise InputChanged(_changed(number))
        if labels is not None:
            self._source.keep_labels(number, cut, labels)
        self._arrived[number] = cut, partition.worker, None

    def _take_error(self, number: int, error: BaseException) -> None:
        """Take the error of a partition that has no mini-batches yet."""
        if isinstance(error, CancelledError) and self._is_cut_off():
            return  # it is submitted again with the next turn
        partition = self.held[number]
        # A connection was cut or ran out of time, and both ends may still be there: the description
        # is fetched again with the next turn.
        if isinstance(error, OSError) and partition.described.status != "error":
            partition.is_fetched = False
            return
        if isinstance(error, KilledWorker) and number not in self._tried_alone:
            self.release(number)
            self._suspects.append(number)
        else:
            self._arrived[number] = NOT_COMPUTED, "", Uncomputed.of(error, number)

    def _number(self) -> None:
        """Give the mini-batches of partitions their numbers, where they are known by now."""
        arrived = self._arrived
        if not self._source.is_cut:
            for number in [*arrived]:
                self._make(number, *arrived.pop(number))
        while self._next in arrived:
            self._make(self._next, *arrived.pop(self._next))
            self._next += 1

    def _make(
        self, number: int, cut: PartitionCut, worker: str, failure: Uncomputed | None
    ) -> None:
        """Make the mini-batches of a partition."""
        source = self._source
        source.table.add(number, cut)
        mini_batches = list(source.cut(number, cut, self._index, self._first, worker))
        if failure is not None:
            mini_batches = [one._replace(piece=failure) for one in mini_batches]
        self._index += len(mini_batches)
        self._first += cut.rows
        self._left -= 1
        self._ready.extend(mini_batches)
        if number in self.held:
            open_ = {one.index for one in mini_batches if not failure and not self._is_settled(one)}
            self.held[number].is_numbered = True
            self.held[number].left = open_
            if not open_:
                self.release(number)

    def release(self, number: int) -> None:
        """Let a partition go."""
        self.held[number].described.release()
        super().release(number)


def _futures_of(graph: PartitionGraph, number: int) -> list[Future]:
    """Return the futures that a partition is made of, unless it shares tasks with others."""
    group = graph.group(number)
    if group.future is not None:
        return [group.future]
    if group.uses or group.keeps:
        return []
    keys = {key for task in group.tasks.values() for key in task.dependencies}
    return [graph.futures[key] for key in keys & graph.futures.keys()]


def _threads(client: Client) -> dict[str, int]:
    """Return the number of threads of each worker."""
    threads: dict[str, int] = client.nthreads()
    return threads


def _changed(number: int) -> str:
    return (
        f"data: partition {number} was computed again and has other rows than before, though the "
        "token of the collection is the same. A function that makes it gives another result each "
        "time: give it a seed, or write the collection to files first."
    )
