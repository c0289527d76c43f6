"""A Dask cluster on a virtual clock: a scheduler, workers, and the client of a driver.

It does what distributed does with leases, plugins and topics, as far as the driver can notice it:
messages keep their order within a connection and are lost with it, a lost worker's tasks run again
elsewhere unless they are cancelled, a retired worker says goodbye.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from distributed import KilledWorker, Status
from distributed.client import FutureCancelledError

from daskprs._cluster.key_worker import GatheredPart
from daskprs._inputs.collections.node_file import NodeFile
from tests.simulation.client import Client, CommClosed, Future, Task, Wire, answer_with, begin
from tests.simulation.world import Process, Thread, now

if TYPE_CHECKING:
    import random
    from pathlib import Path

ON_DISK = (NodeFile, GatheredPart)
"""Results that own a file of their worker, which is read when they are sent."""
ALLOWED_FAILURES = 3
"""Workers that may die while they run a task."""
RELEASED = "released"
"""State of a task whose result nobody needs at present."""
NOTICED_S = 0.3
"""Seconds in which a scheduler notices that a connection is cut."""
NOTICED_DEAD_S = 1.0
"""Seconds after which it looks whether a worker that it has asked is dead."""


class Scheduler:
    """The scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self.process = Process("scheduler")
        self._cluster = cluster
        self.workers: dict[str, Worker] = {}
        self.plugins: dict[str, Any] = {}
        self.tasks: dict[Any, Task] = {}
        self.clients: dict[str, Any] = {}
        self.handlers: dict[str, Any] = {"who_has": self._who_has}
        """What answers requests of workers."""
        self.unrunnable: dict[Task, None] = {}
        self._topics: dict[str, set[str]] = {}
        self._broker = SimpleNamespace(_topics=self._topics)
        self._wires: dict[str, Wire] = {}
        """To clients."""

    # ---- clients ----

    def add_client(self, client: Client, wire: Wire) -> None:
        """Take a client."""
        self.clients[client.id] = SimpleNamespace(client=client, wants_what=set())
        self._wires[client.id] = wire

    def remove_client(self, client: str) -> None:
        """Let a client go that is not connected any more."""
        gone = self.clients.pop(client, None)
        if gone is None:
            return
        self._wires.pop(client).cut()
        # In an order that is the same in each process: those of sets and addresses are not.
        for task in sorted(gone.wants_what, key=lambda task: str(task.key)):
            self.release(task.key, gone.client)
        for plugin in list(self.plugins.values()):
            plugin.remove_client(scheduler=self, client=client)

    def _tell(self, client: str, call: str, *given: Any) -> None:
        wire = self._wires.get(client)
        if wire is not None:
            wire.send(partial(getattr(self.clients[client].client, call), *given))

    # ---- plugins and topics ----

    async def add_plugin(self, plugin: Any) -> None:
        """Register a plugin."""
        plugin = pickle.loads(pickle.dumps(plugin))
        self.plugins[plugin.name] = plugin
        await plugin.start(self)

    def subscribe_topic(self, topic: str, client: str) -> None:
        """Let a client hear a topic."""
        self._topics.setdefault(topic, set()).add(client)

    def log_event(self, topic: str, msg: Any) -> None:
        """Pass on an event."""
        for plugin in list(self.plugins.values()):
            plugin.log_event(topic, msg)
        for client in sorted(self._topics.get(topic, ())):
            self._tell(client, "hear", topic, msg)

    async def broadcast(
        self, msg: dict[str, Any], workers: list[str], on_error: str = "raise", **_: Any
    ) -> dict[str, Any]:
        """Ask workers, and return their answers."""
        answers = {}
        for address in workers:
            try:
                answers[address] = await self._cluster.asked(self, address, msg)
            except OSError as error:
                if on_error == "raise":
                    raise
                if on_error != "ignore":
                    answers[address] = error
        return answers

    def _who_has(self, keys: list[Any]) -> dict[Any, list[str]]:
        """Return the workers that have results."""
        tasks = [(key, self.tasks.get(key)) for key in keys]
        return {
            key: [] if task is None or task.state != "memory" else [task.where]
            for key, task in tasks
        }

    # ---- tasks ----

    def add_task(self, task: Task, client: Client) -> None:
        """Take a task, and send it to its worker."""
        self.tasks[task.key] = task
        task.who_wants.add(client.id)
        if client.id in self.clients:
            self.clients[client.id].wants_what.add(task)
        for key in task.needs.values():
            needed = self.tasks.get(key)
            if needed is None:
                self._fail(task, "cancelled", None)
                return
            task.dependencies[needed] = needed.waiters[task] = None
            if task.keeps_needs:
                needed.keepers[task] = None
        self._assign(task)

    def _assign(self, task: Task) -> None:
        if self.tasks.get(task.key) is not task:
            return
        for needed in task.dependencies:
            if needed.state == "erred":
                self._fail(task, "error", needed.error)
                return
            if needed.state == RELEASED:
                self._make_again(needed)
                needed.waiters[task] = None
        if any(needed.state != "memory" for needed in task.dependencies):
            task.state = "waiting"
            return
        if not task.is_bound:
            task.where = self._place_for(task)
        worker = self.workers.get(task.where)
        if worker is None:
            task.state = "no-worker"
            self.unrunnable[task] = None
            return
        self.unrunnable.pop(task, None)
        task.state = "processing"
        worker.to_worker.send(partial(worker.take, task))

    def _make_again(self, task: Task) -> None:
        """Run a task once more, which was released, and is needed again."""
        task.state = "waiting"
        for needed in task.dependencies:
            needed.waiters[task] = None
        self._assign(task)

    def _place_for(self, task: Task) -> str:
        """Return the worker for a task that any may run: where its needs are, or where it may."""
        places = [one.where for one in task.dependencies] or [*(task.worker_restrictions or ())]
        there = [one for one in places if one in self.workers] or [*self.workers]
        return self._cluster.chosen(there) if there else ""

    def _fail(self, task: Task, status: str, error: BaseException | None) -> None:
        """End a task with an error, and those that need it."""
        task.state, task.error = "erred", error
        for client in sorted(task.who_wants):
            self._tell(client, "ended", task.key, status, error)
        for waiter in list(task.waiters):
            self._fail(waiter, status, error)

    def task_ended(self, worker: Worker, key: Any, status: str, error: Any) -> None:
        """Learn of a worker how a task ended."""
        task = self.tasks.get(key)
        if task is None or self.workers.get(worker.address) is not worker:
            worker.to_worker.send(partial(worker.free, key))
            return
        if status != "finished":
            self._fail(task, status, error)
            return
        task.state = "memory"
        for client in sorted(task.who_wants):
            self._tell(client, "ended", key, status, error)
        self._let_go(task)
        for waiter in list(task.waiters):
            if waiter.state == "waiting":
                self._assign(waiter)

    def missing(self, worker: Worker, key: Any) -> None:
        """Learn that a worker could not get what a task needs."""
        task = self.tasks.get(key)
        if task is not None and self.workers.get(task.where) is worker:
            task.state = "waiting"
            now().loop.call_later(NOTICED_S, self.process.call, partial(self._assign, task))

    def release(self, key: Any, client: Client) -> None:
        """Drop a task that a client wants no more."""
        task = self.tasks.get(key)
        if task is None:
            return
        task.who_wants.discard(client.id)
        if client.id in self.clients:
            self.clients[client.id].wants_what.discard(task)
        self._forget_if_unneeded(task)

    def _forget_if_unneeded(self, task: Task) -> None:
        if task.who_wants or task.waiters or self.tasks.get(task.key) is not task:
            return
        if task.keepers:  # it is made again if what was made of it is lost
            self._free(task)
            task.state = RELEASED
        else:
            self._forget(task)

    def _let_go(self, task: Task) -> None:
        """Let go of what a task needs no more."""
        for needed in task.dependencies:
            needed.waiters.pop(task, None)
            self._forget_if_unneeded(needed)

    def _forget(self, task: Task) -> None:
        del self.tasks[task.key]
        self._free(task)
        for needed in task.dependencies:
            needed.keepers.pop(task, None)
        self._let_go(task)

    def _free(self, task: Task) -> None:
        self.unrunnable.pop(task, None)
        worker = self.workers.get(task.where)
        if worker is not None and task.state != RELEASED:
            worker.to_worker.send(partial(worker.free, task.key))

    def stimulus_cancel(self, keys: list[Any], **_: Any) -> None:
        """Cancel tasks for all."""
        for key in keys:
            task = self.tasks.get(key)
            if task is not None:
                for one in sorted(task.who_wants):
                    self._tell(one, "ended", key, "cancelled")
                    if one in self.clients:
                        self.clients[one].wants_what.discard(task)
                self._forget(task)

    def valid_workers(self, task: Task) -> set[str]:
        """Return the workers that may run a task."""
        return {task.where} & self.workers.keys() if task.is_bound else {*self.workers}

    # ---- workers ----

    def add_worker(self, worker: Worker) -> None:
        """Take a worker, unless it has died and another one has its address by now."""
        before = self.workers.get(worker.address)
        if worker.process.is_dead and before is not None:
            return
        if before is not None:  # it had died before the scheduler knew it
            self.remove_worker(before, expected=False)
        self.workers[worker.address] = worker
        for plugin in list(self.plugins.values()):
            plugin.add_worker(self, worker.address)
        able = [one for one in self.unrunnable if not one.is_bound or one.where == worker.address]
        for task in able:
            self._assign(task)

    def remove_worker(self, worker: Worker, *, expected: bool) -> None:
        """Let a worker go: its tasks wait for another one there, if nobody cancels them."""
        address = worker.address
        if self.workers.get(address) is not worker:
            return
        del self.workers[address]
        worker.to_scheduler.cut()
        worker.to_worker.cut()
        worker.batched_stream.is_closed = True
        lost = [
            one for one in self.tasks.values() if one.where == address and one.state != RELEASED
        ]
        told = {
            "action": "remove-worker",
            "worker": address,
            "processing-tasks": [one.key for one in lost if one.state == "processing"],
            "lost-computed-tasks": [one.key for one in lost if one.state == "memory"],
            "expected": expected,
        }
        self.log_event("all", told)
        anew: list[Task] = []
        for task in lost:
            if not task.is_bound and task.state in ("processing", "memory"):
                task.killed += task.state == "processing" and not expected
                anew.append(task)
            else:
                self.unrunnable[task] = None
            task.state = "no-worker"
            for client in sorted(task.who_wants):
                self._tell(client, "lost", task.key)
        for plugin in list(self.plugins.values()):
            plugin.remove_worker(scheduler=self, worker=address)
        for task in anew:
            if task.killed > ALLOWED_FAILURES:
                self._fail(task, "error", KilledWorker(str(task.key), _State(address), task.killed))
                continue
            for needed in task.dependencies:
                needed.waiters[task] = None
            self._assign(task)


class _State:
    """The state of a worker, as an error names it."""

    def __init__(self, address: str) -> None:
        self.address = address


class _Stream:
    """The stream of a worker to its scheduler."""

    is_closed = False

    def closed(self) -> bool:
        """Say whether it is closed."""
        return self.is_closed


class _SchedulerOfWorker:
    """The scheduler, as a worker asks it."""

    def __init__(self, worker: Worker, cluster: Cluster) -> None:
        self._worker = worker
        self._cluster = cluster
        self._scheduler = cluster.scheduler

    def __getattr__(self, name: str) -> Any:
        return partial(self._asked, name)

    async def _asked(self, name: str, **given: Any) -> Any:
        answer, scheduler = now().loop.create_future(), self._scheduler
        packed = pickle.dumps(given)
        there = self._cluster.wire(scheduler.process)
        back = self._cluster.wire(self._worker.process)

        def serve() -> None:
            handler = scheduler.handlers.get(name)
            result = None if handler is None else handler(**pickle.loads(packed))
            back.send(lambda: answer_with(answer, result, None))

        def look() -> None:
            if answer.done():
                return
            if scheduler.process.is_dead:
                answer.set_exception(CommClosed(name))
            else:
                now().loop.call_later(NOTICED_DEAD_S, look)

        there.send(serve)
        now().loop.call_later(NOTICED_DEAD_S, look)
        return await answer


class _Task:
    """A task, as its worker knows it."""

    def __init__(self, task: Task) -> None:
        key, gpus = task.key, task.gpus
        self.key = key
        self.call = task.call
        self.needs = task.needs
        self.state = "ready"
        self.resource_restrictions = {"GPU": gpus} if gpus else {}
        self.result: Any = None
        """Its pickle, unless it is made when another worker or the driver asks for it."""
        self.value: Any = None

    def sent(self) -> Any:
        """Return the result as another process gets it; a file that has gone is an `OSError`."""
        return pickle.loads(pickle.dumps(self.value) if self.result is None else self.result)


class _Peer:
    """A worker, as another one asks it."""

    def __init__(self, worker: Worker, address: str) -> None:
        self._worker = worker
        self._address = address

    def __getattr__(self, name: str) -> Any:
        return partial(self._asked, name)

    async def _asked(self, name: str, **given: Any) -> Any:
        cluster, back = self._worker.cluster, self._worker.process
        return await cluster.asked(cluster.scheduler, self._address, {"op": name, **given}, back)


class Worker:
    """A worker, with what plugins of workers look at."""

    def __init__(self, cluster: Cluster, address: str, host: str, nthreads: int) -> None:
        self.address = address
        self.host = host
        self.nthreads = nthreads
        self.process = Process(address)
        self.process.is_blind = host in cluster.far
        self.cluster = self._cluster = cluster
        self.plugins: dict[str, Any] = {}
        self.handlers: dict[str, Any] = {}
        self.memory_manager = SimpleNamespace(memory_limit=None)
        self.executors: dict[str, Any] = {"default": SimpleNamespace(_threads=set())}
        self.local_directory = f"{cluster.nodes}/{host}/{cluster.folder}"
        self.status = Status.running
        self.ends_s: float | None = None
        """When the worker closes by itself."""
        self.batched_stream = _Stream()
        self.loop = SimpleNamespace(add_callback=self._add_callback, asyncio_loop=None)
        self.foreign = 0
        """Threads that tasks of others hold."""
        self.state = SimpleNamespace(
            nthreads=nthreads,
            total_resources={},
            available_resources={},
            tasks={},
            executing=set(),
            running=True,
        )
        self._ready: deque[Any] = deque()
        self.to_scheduler = cluster.wire(cluster.scheduler.process)
        self.to_worker = cluster.wire(self.process)
        self._scheduler = cluster.scheduler
        self.scheduler = _SchedulerOfWorker(self, cluster)
        self.to_scheduler.send(partial(cluster.scheduler.add_worker, self))

    def _add_callback(self, call: Any, *given: Any) -> None:
        now().loop.call_soon(self.process.call, partial(call, *given))

    def log_event(self, topic: str, msg: Any) -> None:
        """Send an event to the scheduler."""
        if not self.process.is_dead:
            self.to_scheduler.send(partial(self._scheduler.log_event, topic, msg))

    @property
    def data(self) -> dict[Any, Any]:
        """The results that it has."""
        return {key: one.value for key, one in self.state.tasks.items() if one.state == "memory"}

    def rpc(self, address: str) -> _Peer:
        """Return another worker, to ask it."""
        return _Peer(self, address)

    async def answer(self, msg: dict[str, Any]) -> Any:
        """Answer a request."""
        if msg["op"] == "plugin-add":
            plugin = pickle.loads(msg["plugin"])
            if msg["name"] in self.plugins:
                await self._remove_plugin(msg["name"])
            self.plugins[msg["name"]] = plugin
            await plugin.setup(self)
            return {"status": "OK"}
        if msg["op"] == "plugin-remove":
            await self._remove_plugin(msg["name"])
            return {"status": "OK"}
        if msg["op"] == "run":
            function, given = msg["function"], msg["given"]
            if iscoroutinefunction(function):
                return await function(*given, dask_worker=self)
            return function(*given)
        handler = self.handlers.get(msg["op"])
        if handler is None and msg["op"].startswith("daskprs-keys"):
            return None  # as distributed answers
        if handler is None:
            raise CommClosed(msg["op"])
        given = msg["given"]
        answer = await handler(msg["what"], getattr(given, "data", given))
        return {name: getattr(one, "data", one) for name, one in answer.items()}

    async def _remove_plugin(self, name: str) -> None:
        plugin = self.plugins.pop(name, None)
        if plugin is not None:
            await plugin.teardown(self)

    # ---- tasks ----

    def take(self, given: Task) -> None:
        """Take a task."""
        key = given.key
        if key in self.state.tasks:
            return
        task = self.state.tasks[key] = _Task(given)
        self._turn(task, "waiting", "ready")
        self._ready.append(key)
        self.look()

    def _turn(self, task: _Task, start: str, finish: str) -> None:
        task.state = finish
        for plugin in list(self.plugins.values()):
            plugin.transition(task.key, start, finish)

    def look(self) -> None:
        """Begin what there are threads for."""
        state = self.state
        while (
            self.status is Status.running
            and self._ready
            and len(state.executing) + self.foreign < self.nthreads
        ):
            task = state.tasks.get(self._ready.popleft())
            if task is not None and task.state == "ready":
                state.executing.add(task.key)
                self._turn(task, "ready", "executing")
                Thread(self._execute, (task,), name="task").start()

    def secede(self, key: Any) -> None:
        """Let a task go on outside of the threads."""
        if key in self.state.executing:
            self.state.executing.discard(key)
            task = self.state.tasks.get(key)
            if task is not None:
                self._turn(task, "executing", "long-running")
            self.look()

    def rejoin(self, key: Any) -> None:
        """Let a task go on in the threads, once there is one for it."""
        executing = self.state.executing
        now().wait(lambda: len(executing) + self.foreign < self.nthreads)
        executing.add(key)

    def _execute(self, task: _Task) -> None:
        function, packed, has_needs = task.call
        needed = self._brought(task)
        if needed is None or self.state.tasks.get(task.key) is not task:
            self.state.executing.discard(task.key)
            if self.state.tasks.get(task.key) is task:
                self.free(task.key)
                self.to_scheduler.send(partial(self._scheduler.missing, self, task.key))
            self.look()
            return
        given = (*pickle.loads(packed), *([needed] if has_needs else []))
        self._cluster.at_work[id(now()._thread)] = (self, task.key)
        try:
            result, error = function(*given), None
        except Exception as failed:  # noqa: BLE001 - it is the error of the task
            result, error = None, failed
        finally:
            self._cluster.at_work.pop(id(now()._thread), None)
        self.state.executing.discard(task.key)
        if self.status is not Status.running:
            return  # a worker that closes cancels its tasks first, and reports the end of none
        if self.state.tasks.get(task.key) is task:
            start = task.state
            task.value = result
            task.result = None if isinstance(result, ON_DISK) else pickle.dumps(result)
            status = "finished" if error is None else "error"
            self._turn(task, start, "memory" if error is None else "error")
            ended = partial(self._scheduler.task_ended, self, task.key, status, error)
            self.to_scheduler.send(ended)
        self.look()

    def _brought(self, task: _Task) -> dict[int, Any] | None:
        """Return what a task needs, from the workers that have it; None if they have gone."""
        found = {}
        for number, key in task.needs.items():
            held = self._cluster.held(self, key)
            if held is None:
                return None
            found[number] = held
        return found

    def free(self, key: Any) -> None:
        """Drop a task, or what it has made."""
        task = self.state.tasks.pop(key, None)
        if task is not None:
            self._turn(task, task.state, "released")

    # ---- the end ----

    def kill(self) -> None:
        """Die at once; the scheduler notices it soon."""
        self.process.die()
        self._cluster.notices(self, expected=False)

    def retire(self) -> None:
        """Close on request."""
        if self.process.is_dead or self.status is not Status.running:
            return
        self.status = Status.closing

        async def close() -> None:
            for name in list(self.plugins):
                await self._remove_plugin(name)
            self.to_scheduler.send(partial(self._scheduler.remove_worker, self, expected=True))
            now().loop.call_later(1.0, self.process.die)

        self.process.call(lambda: begin(close()))


class Cluster:
    """The scheduler with its workers, and the network between them.

    Parameters
    ----------
    rng
        Decides how long messages take.
    latency_s
        The most seconds that a message takes.
    far
        The hosts that do not see the disk of the job.
    nodes
        The folder for those of hosts.
    have_folders
        Whether each worker has a folder of its own there.

    """

    def __init__(
        self,
        rng: random.Random,
        latency_s: float,
        far: frozenset[str],
        nodes: Path,
        *,
        have_folders: bool = False,
    ) -> None:
        self._rng = rng
        self.far = far
        self.nodes = nodes
        self._latency_s = latency_s
        self.scheduler = Scheduler(self)
        self.everyone: list[Worker] = []
        self.at_work: dict[int, tuple[Worker, Any]] = {}
        """The worker and the task of each thread that runs one."""
        self.asking: list[tuple[Client, asyncio.Future[Any]]] = []
        self._made = 0
        self._have_folders = have_folders

    @property
    def folder(self) -> str:
        """The name of the folder of the worker that was started last."""
        return f"worker{self._made}" if self._have_folders else "worker"

    def wire(self, to: Process) -> Wire:
        """Return one direction of a connection."""
        return Wire(to, self._rng, self._latency_s)

    def add_worker(self, host: str, nthreads: int, address: str = "") -> Worker:
        """Start a worker."""
        self._made += 1
        address = address or f"inproc://{host}/{self._made}"
        worker = Worker(self, address, host, nthreads)
        self.everyone.append(worker)
        return worker

    @property
    def living(self) -> list[Worker]:
        """The workers that are there."""
        return [one for one in self.everyone if not one.process.is_dead]

    def chosen(self, some: list[str]) -> str:
        """Return one of some workers."""
        return self._rng.choice(some) if len(some) > 1 else some[0]

    def held(self, worker: Worker, key: Any) -> Any:
        """Return the result of a task on its way to another worker; None if it is gone."""
        task = self.scheduler.tasks.get(key)
        holder = None if task is None else self.scheduler.workers.get(task.where)
        if holder is not worker:
            now().wait(lambda: False, self._rng.random() * self._latency_s)
        if holder is None or holder.process.is_dead or holder.process.is_stopped:
            return None
        held = holder.state.tasks.get(key)
        if held is None or held.state != "memory":
            return None
        if holder is worker:
            return held.value
        with suppress(OSError):  # its file has just gone
            return held.sent()
        return None

    def notices(self, worker: Worker, *, expected: bool) -> None:
        """Let the scheduler notice that a worker has gone, after all that the worker has sent."""
        removed = partial(self.scheduler.remove_worker, worker, expected=expected)
        now().loop.call_later(self._rng.random() * NOTICED_S, worker.to_scheduler.send, removed)

    def this_worker(self) -> Worker:
        """Return the worker of the task in this thread."""
        return self.at_work[id(now()._thread)][0]

    def leave_the_threads(self) -> None:
        """Let the task of this thread go on outside of the threads."""
        worker, key = self.at_work[id(now()._thread)]
        worker.secede(key)

    def rejoin(self) -> None:
        """Let the task of this thread go on in the threads."""
        worker, key = self.at_work[id(now()._thread)]
        worker.rejoin(key)

    async def asked(
        self, scheduler: Scheduler, address: str, msg: dict[str, Any], by: Process | None = None
    ) -> Any:
        """Let a worker answer a request of the scheduler, or of another process."""
        worker = scheduler.workers.get(address)
        if worker is None:
            raise CommClosed(address)
        answer = now().loop.create_future()
        there, back = self.wire(worker.process), self.wire(by or scheduler.process)

        async def serve() -> None:
            try:
                result, failure = await worker.answer(msg), None
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                result, failure = None, error
            back.send(lambda: answer_with(answer, result, failure))

        def look() -> None:
            if not answer.done():
                if worker.process.is_dead:
                    answer.set_exception(CommClosed(address))
                else:
                    now().loop.call_later(NOTICED_DEAD_S, look)

        there.send(lambda: begin(serve()))
        now().loop.call_later(NOTICED_DEAD_S, look)
        return await answer

    async def fetch(self, future: Future) -> Any:
        """Fetch the result of a task for a client."""
        await asyncio.sleep(self._rng.random() * self._latency_s)
        while True:
            if future.status == "cancelled" or future.is_released:
                raise FutureCancelledError(future.key, None)
            if self.scheduler.process.is_stopped:  # it knows which worker has the result
                await asyncio.sleep(0.5)
                continue
            task = self.scheduler.tasks.get(future.key)
            worker = None if task is None else self.scheduler.workers.get(task.where)
            held = None if worker is None else worker.state.tasks.get(future.key)
            if held is not None and held.state == "memory" and not worker.process.is_stopped:  # type: ignore[union-attr]
                await asyncio.sleep(self._rng.random() * self._latency_s)
                return held.sent()
            if self._rng.random() < 0.1:
                raise CommClosed(str(future.key))
            await asyncio.sleep(0.5)
