"""The writers of a data set's parts: the workers of a cluster, and the driver where none can.

The driver has a thread for each part that a worker writes. It gives up an attempt whose worker has
gone, does not report, or has no thread for it. Then another worker, or the driver, writes the part.
An attempt that was given up may go on: it has a folder of its own, and is never taken.
"""

from __future__ import annotations

import itertools
import pickle
import secrets
import threading
import time
from collections import Counter
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from distributed.comm import get_address_host

from daskprs._agent.node.site import new_probe
from daskprs._cluster.lease import fetched
from daskprs._cluster.lost_cluster import lost_cluster_ignored
from daskprs._cluster.own_tasks import unannotated
from daskprs._cluster.part_worker import PartsPlugin, write_on_worker
from daskprs._cluster.remote.nodes import LARGE_LEASES
from daskprs._cluster.scheduler_plugin import join
from daskprs._cluster.worker_events import WorkerLost, WorkerRefused, WorkersFound
from daskprs._core.watchdog import Watchdog
from daskprs._output.dataset.ordered_parts import THREADS
from daskprs._output.dataset.part_attempt import PartAttempt, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client
    from distributed import Future as DaskFuture

    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.dataset.part_file import PartPlan
    from daskprs._output.journal.history import PublishedPart

SMALL_BYTES = 8 << 20
"""Bytes of rows below which the driver writes a part itself."""
AT_A_TIME = 32
"""Most parts that workers write at a time: the driver has a thread for each."""
PRIORITY = -1
"""Priority of a part below foreign tasks (0): they run first where they wait for a thread."""
TRIES = 2
"""Number of workers that may lose a part before the driver writes the part itself."""
LOOK_EVERY_S = 0.25
FOUND_S = 10.0
"""Seconds in which the workers that are there report for the first time."""
BEGIN_S = 10.0
"""Seconds in which a thread of the worker has to begin with a part."""
REST_S = 60.0
"""Seconds without a further part for a worker that has lost one."""
SCHEDULER = "scheduler"


class WritingWorkers:
    """The workers that see the folders: which of them is free for a part.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._news = threading.Condition()
        """Held to look at the workers, and notified when something has changed."""
        self._watchdog = Watchdog({})
        self._there: dict[str, int] = {}
        """Number of parts that each worker may write at a time."""
        self._awaited = {SCHEDULER}
        """Hosts that have not reported yet. The scheduler reports which workers there are."""
        self._awaited_until_s = time.monotonic() + FOUND_S
        self._busy: Counter[str] = Counter()
        """Number of parts that each worker has now."""
        self._resting_until_s: dict[str, float] = {}
        self._begun: set[int] = set()
        """The attempts with which workers have begun."""

    def hear(self, event: tuple[float, Any]) -> None:
        """Take a report of a worker, or news of the scheduler (called by Dask's loop)."""
        with self._news:
            match pickle.loads(event[1]):
                case WorkersFound(workers):
                    self._awaited |= set(workers) - self._there.keys()
                    self._awaited.discard(SCHEDULER)
                case WorkerLost(worker, _, _) | WorkerRefused(worker, _):
                    self._lose(worker)
                case (worker, at_a_time, begun):
                    self._awaited.discard(worker)
                    if at_a_time:
                        self._there[worker] = at_a_time
                        self._watchdog.hear(worker)
                    self._begun.update(begun)
            self._news.notify_all()

    def _lose(self, worker: str) -> None:
        self._there.pop(worker, None)
        self._awaited.discard(worker)
        self._watchdog.forget(worker)

    @property
    def hanging(self) -> set[str]:
        """The workers that have not reported for too long, or not at all."""
        with self._news:
            return self.silent | (self._awaited - {SCHEDULER})

    @property
    def silent(self) -> set[str]:
        """The workers that have not reported for too long."""
        return self._watchdog.silent

    def has(self, worker: str) -> bool:
        """Say whether a worker is there, and not silent."""
        with self._news:
            self._watchdog.tick(time.monotonic())
            return worker in self._there.keys() - self.silent

    def has_begun(self, attempt: int) -> bool:
        """Say whether a worker has begun with an attempt."""
        return attempt in self._begun

    def take(self, tried: set[str], is_over: Callable[[], bool]) -> str | None:
        """Return a worker that is free, perhaps later; None if none is fit, or all is over."""
        with self._news:
            while not is_over():
                now_s = time.monotonic()
                self._watchdog.tick(now_s)
                resting = {one for one, until_s in self._resting_until_s.items() if now_s < until_s}
                fit = self._there.keys() - self.silent - resting - tried
                free = [one for one in sorted(fit) if self._busy[one] < self._there[one]]
                if free:
                    hosts: Counter[str] = Counter()
                    for one, count in self._busy.items():
                        hosts[get_address_host(one)] += count
                    worker = min(free, key=lambda one: hosts[get_address_host(one)])
                    self._busy[worker] += 1
                    return worker
                if not fit and not (self._awaited and now_s < self._awaited_until_s):
                    return None
                self._news.wait(LOOK_EVERY_S)
        return None

    def give_back(self, worker: str, *, rests: bool) -> None:
        """Let a worker have another part, after a rest if it has lost one."""
        with self._news:
            self._busy[worker] -= 1
            if rests:
                self._resting_until_s[worker] = time.monotonic() + REST_S
            self._news.notify_all()


class PartLost(Exception):  # noqa: N818 - what has happened to an attempt
    """A worker has lost an attempt at a part; another worker may write it."""


class PartWriters(Executor):
    """Calls `write_part` on workers that see the folders; in the driver for small parts.

    The driver also writes a part that workers have lost, or that they cannot write: an error of its
    own attempt is the one that counts. At most one attempt at a part is taken. `attempts` is a
    folder for attempts, on the file system of the data set. A worker has `timeout_s` for a part at
    least. `say` is called with a level and a sentence by whoever submits parts or shuts this down.
    """

    def __init__(
        self,
        client: Client,
        job: JobFolder,
        attempts: Path,
        timeout_s: float,
        say: Callable[[str, str], None],
    ) -> None:
        self._client = client
        self._attempts = attempts
        self._say = say
        self._said: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._name = f"daskprs-parts-{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self._here = threading.BoundedSemaphore(THREADS)
        self._threads = ThreadPoolExecutor(AT_A_TIME, "daskprs-parts")
        self._job = job
        self._timeout_s = timeout_s
        self._opening = threading.Lock()
        self._is_open: bool | None = None
        """Whether workers can be asked; None before the first part that is large enough."""
        self._closing = ExitStack()

    def _opened(self) -> bool:
        """Ask the workers to write parts, once; return False where the cluster has gone."""
        with self._opening:
            # Not before the first large part: small parts need no plugin on all workers, and a
            # scheduler that has gone by then must not fail a data set that the driver can write.
            if self._is_open is None:
                try:
                    with ExitStack() as stack:
                        self._open(stack)
                        self._closing = stack.pop_all()
                    self._is_open = True
                except Exception as error:  # noqa: BLE001 - the cluster has gone, or a folder
                    self._is_open = False
                    self._said.put(("info", f"the driver writes all parts: {error}"))
            return self._is_open

    def _open(self, stack: ExitStack) -> None:
        """Bring the plugin to all workers, later ones included; each reports when it has it."""
        self._attempts.mkdir(exist_ok=True)
        stack.enter_context(LARGE_LEASES.held())  # so is the plan of a part, at times
        places = self._job.seen(self._name), self._attempts / "seen"
        probes = tuple(new_probe(place, stack) for place in places)
        topic = f"{self._name}-reports"
        plugin = PartsPlugin(self._name, topic, probes, self._timeout_s)
        self._workers = workers = WritingWorkers()
        news = topic, workers.hear, plugin
        join(self._client, self._name, *news, stack, lambda: workers.hanging)

    def submit(  # type: ignore[override] # it calls one function
        self,
        write_part: Callable[[PartPlan, Callable[[], bool]], PublishedPart],
        /,
        plan: PartPlan,
        is_unwanted: Callable[[], bool],
    ) -> Future[PublishedPart]:
        """Have a part written."""
        self._tell()

        def is_over() -> bool:
            return self._over.is_set() or is_unwanted()

        return self._threads.submit(self._written, write_part, plan, is_over)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - as named by Python
        """Give up what is not written yet, and leave the cluster as it was."""
        self._over.set()
        self._threads.shutdown(wait=wait, cancel_futures=True)
        self._closing.close()
        self._tell()

    def _tell(self) -> None:
        with suppress(Empty):
            while True:
                self._say(*self._said.get_nowait())

    # ---- one part, in a thread ----

    def _written(
        self,
        write_part: Callable[[PartPlan, Callable[[], bool]], PublishedPart],
        plan: PartPlan,
        is_over: Callable[[], bool],
    ) -> PublishedPart:
        if size_of(plan) >= SMALL_BYTES and self._opened():
            made = self._written_by_worker(plan, is_over)
            if made is not None:
                return made
        with self._here:
            return write_part(plan, is_over)

    def _written_by_worker(
        self, plan: PartPlan, is_over: Callable[[], bool]
    ) -> PublishedPart | None:
        """Have a worker write a part; None if the driver has to."""
        # As bytes: a plan loads Arrow when it is unpickled, by which the process of a worker grew
        # from 67 to 132 MB.
        body, tried = pickle.dumps(plan), set[str]()
        while len(tried) < TRIES and (worker := self._workers.take(tried, is_over)) is not None:
            tried.add(worker)
            number, made = next(self._numbers), None
            try:
                made = self._attempted(plan, body, worker, number, is_over)
            except PartLost as error:
                self._said.put(("info", f"{plan.name} is written elsewhere: {error}."))
            else:
                return made
            finally:
                # A worker that has failed a part would be the one with the fewest parts, and get
                # the next one.
                self._workers.give_back(worker, rests=made is None)
        return None

    def _attempted(
        self, plan: PartPlan, body: bytes, worker: str, number: int, is_over: Callable[[], bool]
    ) -> PublishedPart | None:
        """Have a part written by a worker; None if that has failed."""
        begun_s, future = time.monotonic(), self._submitted(plan, body, worker, number)
        try:
            made = self._waited_for(future, worker, number, is_over)
            if isinstance(made, PartAttempt) and made.is_whole(self._attempts):
                took = f"in {time.monotonic() - begun_s:.1f} s"
                told = f"{plan.name} was written by process {made.pid} of {worker} {took}"
                self._said.put(("debug", told))
                return made.put(self._attempts, plan)
        finally:
            with lost_cluster_ignored(f"to cancel the writing of {plan.name}"):
                future.cancel()
            sweep(self._attempts, number)
        if not is_over():
            why = made if isinstance(made, str) else "the files are not what was written"
            told = f"{plan.name} is written by the driver, since {worker} could not: {why}"
            self._said.put(("info", told))
        return None

    def _submitted(self, plan: PartPlan, body: bytes, worker: str, number: int) -> DaskFuture:
        try:
            with unannotated():
                return self._client.submit(
                    write_on_worker,
                    self._name,
                    number,
                    str(self._attempts),
                    body,
                    size_of(plan),
                    key=(self._name, number),
                    workers=[worker],
                    priority=PRIORITY,
                    pure=False,
                )
        except Exception as error:  # the cluster has gone: another writer may be there
            raise PartLost(str(error)) from error

    def _waited_for(
        self, future: DaskFuture, worker: str, number: int, is_over: Callable[[], bool]
    ) -> PartAttempt | str | None:
        """Return a finished attempt, or its error; None if it is not wanted any more."""
        ended, begin_until_s = threading.Event(), time.monotonic() + BEGIN_S
        future.add_done_callback(lambda _: ended.set())
        while not future.done():
            if is_over():
                return None
            if not self._workers.has(worker):
                msg = f"{worker} has gone, or does not report"
                raise PartLost(msg)
            if time.monotonic() > begin_until_s and not self._workers.has_begun(number):
                msg = f"{worker} has had no thread for it for {BEGIN_S:g} s"
                raise PartLost(msg)
            ended.wait(LOOK_EVERY_S)
        if future.status == "error":
            msg = f"{worker} cannot write parts: {future.exception()}"
            raise PartLost(msg)
        found: Any = None
        if future.status == "finished":
            found = fetched(future, self._client, partial(self._workers.has, worker))
        if found is None:
            msg = f"{worker} has gone"
            raise PartLost(msg)
        if not isinstance(found, bytes):
            return str(found)
        try:
            return PartAttempt.parsed(found, number)
        except (ValueError, TypeError) as error:
            return f"its record of the part is wrong: {error}"


def size_of(plan: PartPlan) -> int:
    """Return the bytes of a part's rows in spools, and of the earlier files that it is made of."""
    spools = [file.folder is None for file in plan.files]
    regions = zip(plan.sources.file, plan.sources.count, strict=True)
    size_bytes = sum(count for file, count in regions if spools[file])
    with suppress(OSError):  # whoever writes the part finds out
        for file in plan.files:
            if file.folder is not None:
                size_bytes += Path(file.path).stat().st_size
    return size_bytes
