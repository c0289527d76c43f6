"""The client of a driver, as distributed's is: futures, requests, and what is lost with it."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import CancelledError
from contextlib import nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.world import Died, Process, Thread, now

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from tests.simulation.cluster import Cluster

SCHEDULER = "scheduler"
OPEN = ("pending", "lost")
"""States of a future that has not ended."""


class CommClosed(OSError):  # noqa: N818 - as in distributed
    """A connection is cut."""


class Wire:
    """One direction of a connection: what is sent arrives later, in the same order."""

    def __init__(self, to: Process, rng: random.Random, most_s: float) -> None:
        self._to = to
        self._rng = rng
        self._most_s = most_s
        self._last_s = 0.0
        self.is_cut = False

    def send(self, work: Callable[[], None]) -> None:
        """Let the other end do something."""
        world = now()
        self._last_s = max(self._last_s, world.now_s + self._rng.random() * self._most_s)
        world.loop.call_at(self._last_s, self._arrive, work)

    def _arrive(self, work: Callable[[], None]) -> None:
        if not self.is_cut:
            self._to.call(work)

    def cut(self) -> None:
        """Lose all that is under way."""
        self.is_cut = True


class Task:
    """A task, as the scheduler knows it."""

    def __init__(
        self,
        key: Any,
        call: tuple[Any, ...],
        worker: str,
        gpus: float,
        needs: Mapping[int, Any],
        *,
        is_bound: bool,
        keeps_needs: bool = False,
    ) -> None:
        self.key = key
        self.call = call
        self.where = worker
        """The only worker that may run it; where any may, the one that has it now."""
        self.gpus = gpus
        self.needs = needs
        """The keys of tasks whose results it gets, by number."""
        self.is_bound = is_bound
        """Whether it belongs to one worker, as a lease does."""
        self.state = "waiting"
        self.error: BaseException | None = None
        self.killed = 0
        """Number of workers that have died while they ran it."""
        self.who_wants: set[Any] = set()
        self.dependencies: dict[Task, None] = {}
        self.waiters: dict[Task, None] = {}
        """Tasks that still need its result."""
        self.keeps_needs = keeps_needs
        """Whether what it needs can be made again, if its own result is lost."""
        self.keepers: dict[Task, None] = {}
        """Tasks that may need its result again."""
        self.loose_restrictions = not is_bound
        self.worker_restrictions: set[str] | None = {worker} if worker else None


class Future:
    """A future of the client."""

    def __init__(self, client: Client, key: Any) -> None:
        self._client = client
        self.key = key
        self.status = "pending"
        self.error: BaseException | None = None
        self.is_released = False
        self._calls: list[Callable[[Future], None]] = []

    def done(self) -> bool:
        """Say whether it has ended; what is lost is computed again."""
        return self.status not in OPEN

    def exception(self) -> BaseException | None:
        """Return the error."""
        return self.error

    def result(self) -> Any:
        """Return the result; wait for it."""
        now().wait(self.done)
        if self.status != "finished":
            raise self.error or CancelledError
        return self._client.fetch(self)

    def add_done_callback(self, call: Callable[[Future], None]) -> None:
        """Call a function at the end, in a thread of Dask."""
        self._calls.append(call)
        if self.done():
            self.settle(self.status)

    def settle(self, status: str, error: BaseException | None = None) -> None:
        """End it."""
        self.status, self.error = status, error
        calls, self._calls = self._calls, []
        for call in calls:
            Thread(call, (self,), name="dask-callback").start()

    def cancel(self) -> None:
        """Give it up."""
        if not self._client.process.is_dead:
            self._client.cancel(self)

    def release(self) -> None:
        """Want it no more; who fetches its result meanwhile learns that."""
        self.is_released = True
        self._client.let_go(self)


class Client:
    """The driver's client."""

    def __init__(self, process: Process, cluster: Cluster, name: str) -> None:
        self.process = process
        self.id = name
        self.cluster = None
        self._cluster = cluster
        self._futures: dict[Any, Future] = {}
        self._event_handlers: dict[str, Any] = {}
        self._later: list[Task] = []
        """Tasks that are sent once there is a connection again."""
        self.status = "running"
        self.scheduler_comm: object = object()
        loop = now().loop
        self.loop = SimpleNamespace(
            asyncio_loop=loop,
            add_callback=self._add_callback,
            call_later=loop.call_later,
        )
        self.scheduler = SimpleNamespace(
            address=f"{'tcp' if cluster.far else 'inproc'}://{SCHEDULER}",
            log_event=self._log_event,
            broadcast=self._broadcast,
        )
        self.wire: Wire
        """To the scheduler."""
        self.connect()

    # ---- the connection ----

    def connect(self) -> None:
        """Connect to the scheduler."""
        self.wire = self._cluster.wire(self._cluster.scheduler.process)
        back = self._cluster.wire(self.process)
        self.status, self.scheduler_comm = "running", object()
        scheduler = self._cluster.scheduler
        self.wire.send(partial(scheduler.add_client, self, back))
        later, self._later = self._later, []
        for task in later:
            if task.key in self._futures:
                self.wire.send(partial(scheduler.add_task, task, self))

    def cut(self) -> None:
        """Lose the connection, and with it all futures; connect again some time later."""
        self.wire.cut()
        self.status, self.scheduler_comm = "connecting", None
        futures, self._futures = self._futures, {}
        for future in futures.values():
            future.settle("cancelled")
        for client, answer in list(self._cluster.asking):
            if client is self and not answer.done():
                answer.set_exception(CommClosed("the connection is cut"))

    def _check(self) -> None:
        if self.process.is_dead:
            raise Died
        if self.status != "running":
            msg = "the client is not connected"
            raise CommClosed(msg)

    def _add_callback(self, call: Any, *given: Any) -> None:
        def later() -> None:
            result = call(*given)
            if asyncio.iscoroutine(result):
                begin(result)

        if not self.process.is_dead:
            now().loop.call_soon(later)

    async def _asked(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Let the scheduler answer a request."""
        self._check()
        answer = now().loop.create_future()
        wire, back = self.wire, self._cluster.wire(self.process)

        async def serve() -> None:
            try:
                result, failure = await work(), None
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                result, failure = None, error
            back.send(lambda: answer_with(answer, result, failure))

        wire.send(lambda: begin(serve()))
        self._cluster.asking.append((self, answer))
        try:
            return await answer
        finally:
            self._cluster.asking.remove((self, answer))

    def _sync(self, work: Coroutine[Any, Any, Any], within_s: float | None = None) -> Any:
        """Wait for an answer in the thread of the caller."""
        task = now().loop.create_task(work)
        task.add_done_callback(_ignored)
        if not now().wait(task.done, within_s):
            task.cancel()
            raise TimeoutError
        return task.result()

    # ---- what daskprs calls ----

    def sync(
        self, function: Any, *given: Any, callback_timeout: float | None = None, **more: Any
    ) -> Any:
        """Wait for the result of a coroutine function in the thread of the caller."""
        return self._sync(function(*given, **more), callback_timeout)

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        """Hear the events of a topic."""
        self._check()
        self._event_handlers[topic] = handler

    def register_plugin(self, plugin: Any) -> None:
        """Register a plugin with the scheduler."""
        self._sync(self._asked(partial(self._cluster.scheduler.add_plugin, plugin)))

    def run_on_scheduler(self, function: Any, *given: Any, callback_timeout: float) -> Any:
        """Run a function on the scheduler."""
        scheduler = self._cluster.scheduler
        asked = self._asked(lambda: function(*given, dask_scheduler=scheduler))
        return self._sync(asked, callback_timeout)

    async def _log_event(self, topic: str, msg: Any) -> None:
        scheduler = self._cluster.scheduler

        async def log() -> None:
            scheduler.log_event(topic, msg)

        await self._asked(log)

    async def _broadcast(self, msg: dict[str, Any], workers: list[str], **more: Any) -> Any:
        scheduler = self._cluster.scheduler
        return await self._asked(lambda: scheduler.broadcast(msg=msg, workers=workers, **more))

    def submit(
        self, function: Any, *given: Any, key: Any, workers: Collection[str] = (), **more: Any
    ) -> Future:
        """Submit a task of a worker, with results of others as its last argument."""
        if function.__name__ == "itself":  # the form of partitions, which only stand-ins would read
            future = Future(self, key)
            future.status = "finished"
            return future
        needs: dict[int, Any] = {}
        if not workers:
            if isinstance(given[-1], Future):
                needs, given = {0: given[-1].key}, given[:-1]
            call = _called, pickle.dumps((function, *given)), True
            return self._begun(Task(key, call, "", 0.0, needs, is_bound=False, keeps_needs=True))
        if given and isinstance(given[-1], dict):
            needs = {number: one.key for number, one in given[-1].items()}
            given = given[:-1]
        gpus = (more.get("resources") or {}).get("GPU", 0.0)
        (worker,) = workers
        has_needs = function.__name__ == "run_lease"
        call = function, pickle.dumps(given), has_needs
        return self._begun(Task(key, call, worker, gpus, needs, is_bound=True))

    def compute(
        self,
        function: Any,
        given: tuple[Any, ...],
        needs: Mapping[int, Any],
        key: Any,
        workers: Collection[str],
    ) -> Future:
        """Submit a task that any worker may run, rather one of these, with results of others."""
        worker = next(iter(workers), "")
        call = function, pickle.dumps(given), True
        return self._begun(Task(key, call, worker, 0.0, needs, is_bound=False))

    def _begun(self, task: Task) -> Future:
        if self.process.is_dead:
            self._check()
        future = self._futures[task.key] = Future(self, task.key)
        if self.status == "running":
            self.wire.send(partial(self._cluster.scheduler.add_task, task, self))
        else:
            self._later.append(task)
        return future

    def fetch(self, future: Future) -> Any:
        """Fetch a result in the thread of the caller."""
        return self._sync(self._cluster.fetch(future))

    def map(self, _: Any, values: Collection[Any], *, key: list[Any], **__: Any) -> list[Future]:
        """Make wishes, which never run."""
        return [Future(self, one) for one, _value in zip(key, values, strict=True)]

    def gather(self, futures: Any, *, asynchronous: bool = False) -> Any:
        """Fetch a result from its worker, or wait for several results."""
        return self._cluster.fetch(futures) if asynchronous else [*map(self._gathered, futures)]

    def _gathered(self, future: Future) -> Any:
        while True:
            with suppress(CommClosed):  # to a worker: it is made again
                return future.result()
            self._check()

    def run(self, function: Any, *given: Any, on_error: str = "raise") -> dict[str, Any]:
        """Run a function on all workers."""
        scheduler, msg = (
            self._cluster.scheduler,
            {"op": "run", "function": function, "given": given},
        )

        async def ask() -> dict[str, Any]:
            return await scheduler.broadcast(msg, [*scheduler.workers], on_error="return")

        answers: dict[str, Any] = self._sync(self._asked(ask))
        failed = [one for one in answers.values() if isinstance(one, Exception)]
        if failed and on_error == "raise":
            raise failed[0]
        return {at: one for at, one in answers.items() if not isinstance(one, Exception)}

    def as_current(self) -> nullcontext[None]:
        """Let it be the current client within the block."""
        return nullcontext()

    def nthreads(self) -> dict[str, int]:
        """Return the threads of all workers, which the scheduler is asked for."""
        now().wait(lambda: not self._cluster.scheduler.process.is_stopped)
        return {at: one.nthreads for at, one in self._cluster.scheduler.workers.items()}

    def cancel(self, future: Future) -> None:
        """Cancel a task."""
        if self._futures.get(future.key) is future:
            del self._futures[future.key]
            if self.status == "running":
                self.wire.send(partial(self._cluster.scheduler.release, future.key, self))
        if future.status != "cancelled":  # who fetches a result meanwhile learns that, too
            future.settle("cancelled")

    def let_go(self, future: Future) -> None:
        """Tell the scheduler that a result is wanted no more."""
        if self._futures.get(future.key) is future:
            del self._futures[future.key]
            if self.status == "running" and not self.process.is_dead:
                self.wire.send(partial(self._cluster.scheduler.release, future.key, self))

    # ---- what the scheduler sends ----

    def hear(self, topic: str, message: Any) -> None:
        """Take an event."""
        handler = self._event_handlers.get(topic)
        if handler is not None:
            handler((now().now_s, message))

    def lost(self, key: Any) -> None:
        """Learn that a result went with its worker."""
        future = self._futures.get(key)
        if future is not None and future.status == "finished":
            future.status = "lost"

    def ended(self, key: Any, status: str, error: BaseException | None = None) -> None:
        """Learn how a task ended."""
        future = self._futures.get(key)
        # What has ended is cancelled as well: its result is fetched no more.
        if future is not None and (status == "cancelled" or not future.done()):
            if status == "cancelled":
                del self._futures[key]
            future.settle(status, error)


def wait(futures: Collection[Future], timeout: float, return_when: str) -> None:
    """In place of distributed's `wait`, for the first of some futures."""
    assert return_when == "FIRST_COMPLETED"
    if not now().wait(lambda: any(one.done() for one in futures), timeout):
        raise TimeoutError
    if any(one.status == "cancelled" for one in futures):
        raise CancelledError


def _called(function: Any, *given: Any) -> Any:
    """Call the function of a task with the results that it needs (a Dask task)."""
    return function(*given[:-1], *given[-1].values())


def answer_with(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Answer a request, unless it was given up."""
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)


def _ignored(task: asyncio.Task[Any]) -> None:
    """Look at the error of a task, which may be that its process is dead."""
    if not task.cancelled():
        task.exception()


def begin(work: Coroutine[Any, Any, Any]) -> None:
    """Begin something whose end nobody awaits."""
    now().loop.create_task(work).add_done_callback(_ignored)
