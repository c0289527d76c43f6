"""A world on a virtual clock: time passes only while everybody waits.

The modules of daskprs take their clock, threads, queues and locks from the standard library. While
a world is installed, these names lead to the classes below. One thing runs at a time, in an order
that the seed decides, so a run can be repeated event by event.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import queue
import secrets
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Self

from greenlet import greenlet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

EPOCH_S = 1.7e9
"""The wall clock when a world begins."""
MOST_S = 50_000.0
"""Virtual seconds after which a job hangs."""
RESOLUTION_S = 1e-9
"""What is due within this time is due now: sums of seconds differ in their last digits."""
SHORTEST_S = 1e-6
"""The shortest wait: where code looks again and again, time goes by as it does for real."""
MOST_STEPS = 400_000


class Died(BaseException):
    """The process of this thread is dead: nothing that it does from here on has an effect."""


class Stuck(AssertionError):  # noqa: N818 - what it is
    """A job does not end."""


class Timer:
    """Something that the loop does later, unless it is cancelled."""

    __slots__ = ("call", "given", "is_cancelled")

    def __init__(self, call: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.call = call
        self.given = given
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not do it."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Say whether it is cancelled."""
        return self.is_cancelled


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop that has no sockets, and whose clock jumps to the next event.

    It has what tasks and futures need, and no more: that takes a third of the time of asyncio's.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._ready: deque[Timer] = deque()
        self._later: list[tuple[float, int, Timer]] = []
        self._made = 0
        self._tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        """Return the virtual time."""
        return self.now_s

    def get_debug(self) -> bool:
        """Return False: a seed shows more than the debug mode of asyncio does."""
        return False

    def is_running(self) -> bool:
        """Say that it runs."""
        return True

    def is_closed(self) -> bool:
        """Say that it is open."""
        return False

    def call_soon(
        self,
        call: Callable[..., Any],
        *given: Any,
        context: Any = None,  # noqa: ARG002
    ) -> Timer:
        """Call a function before time passes."""
        timer = Timer(call, given)
        self._ready.append(timer)
        return timer

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        call: Callable[..., Any],
        *given: Any,
        context: Any = None,  # noqa: ARG002
    ) -> Timer:
        """Call a function at a time."""
        timer = Timer(call, given)
        self._made += 1
        heappush(self._later, (when, self._made, timer))
        return timer

    def call_later(
        self,
        delay: float,
        call: Callable[..., Any],
        *given: Any,
        context: Any = None,  # noqa: ARG002
    ) -> Timer:
        """Call a function after some seconds."""
        return self.call_at(self.now_s + delay, call, *given)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future."""
        return asyncio.Future(loop=self)

    def create_task(self, work: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:  # noqa: ARG002
        """Run a coroutine."""
        task = asyncio.Task(work, loop=self)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Let a test fail."""
        error = context.get("exception")
        now().errors.append(error if error is not None else AssertionError(str(context)))

    def turn(self) -> None:
        """Do all that is ready; let the time pass until the next event if nothing is."""
        ready, later = self._ready, self._later
        while later and later[0][2].is_cancelled:
            heappop(later)
        if not ready:
            if not later:
                msg = "nothing will ever happen again"
                raise Stuck(msg)
            self.now_s = max(self.now_s, later[0][0])
        until_s = self.now_s + RESOLUTION_S
        while later and later[0][0] <= until_s:
            ready.append(heappop(later)[2])
        for _ in range(len(ready)):
            if not ready:  # one of them has waited itself, and the others were done meanwhile
                return
            timer = ready.popleft()
            if not timer.is_cancelled:
                timer.call(*timer.given)

    def close(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        for _ in range(100):
            if not self._ready:
                return
            self._later.clear()
            self.turn()

    def run_in_executor(self, executor: Any, call: Callable[..., Any], *given: Any) -> Any:  # noqa: ARG002
        """Run a call in a thread of the world."""
        promise = self.create_future()

        def run() -> None:
            try:
                result = call(*given)
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                promise.cancelled() or promise.set_exception(error)
            else:
                promise.cancelled() or promise.set_result(result)

        Thread(run, name="to-thread").start()
        return promise


class Thread:
    """A thread of the world. It belongs to the process that started it, and dies with it."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool | None = None,  # noqa: FBT001 - as in threading
    ) -> None:
        self._call = (target, args)
        self.name = name
        self.daemon = daemon
        self.ident: int | None = None
        self.ended = False
        self.ready: Callable[[], bool] = lambda: True
        self.until_s: float | None = None
        self._stack: greenlet | None = None
        """Where the thread waits; None before it begins."""
        self.world = now()
        self.process = self.world.process

    def start(self) -> None:
        """Start the thread; it runs once the present one waits."""
        self.ident = id(self)
        self.world.threads.append(self)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread."""
        self.world.wait(lambda: self.ended, timeout)

    def is_alive(self) -> bool:
        """Say whether the thread has begun and not ended."""
        return self.ident is not None and not self.ended

    def can_run(self, past_s: float) -> bool:
        """Say whether there is something to do for the thread: times before this one are past."""
        process = self.process
        if process.is_dead:
            return True  # it sees that, and ends
        if process.is_stopped:
            return False
        return self.ready() or (self.until_s is not None and self.until_s <= past_s)

    def run(self) -> None:
        """Let the thread go on until it waits or ends."""
        if self._stack is None:
            if self.process.is_dead:
                self.ended = True
                return
            self._stack = greenlet(self._work)
        self._stack.switch()

    def pause(self) -> None:
        """Wait; raise `Died` when the process has died meanwhile."""
        assert self._stack is not None
        assert self._stack.parent is not None
        self._stack.parent.switch()
        if self.process.is_dead:
            raise Died

    def _work(self) -> None:
        target, args = self._call
        try:
            target(*args)
        except Died:
            pass
        except BaseException as error:  # noqa: BLE001 - what no thread catches, a person has to see
            self.world.errors.append(error)
        finally:
            self.ended = True


class Process:
    """What dies or stops as a whole: a driver, a worker, the scheduler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_stopped = False
        self._late: list[Callable[[], None]] = []

    def call(self, work: Callable[[], None]) -> None:
        """Let the process do something: once it goes on if it is stopped, never if it is dead."""
        if self.is_dead:
            return
        if self.is_stopped:
            self._late.append(work)
            return
        world = now()
        before, world.process = world.process, self
        try:
            work()
        finally:
            world.process = before

    def stop(self) -> None:
        """Stop the process, as SIGSTOP does, or a call that keeps the GIL."""
        self.is_stopped = True

    def go_on(self) -> None:
        """Let the process go on, if it lives."""
        self.is_stopped = False
        late, self._late = self._late, []
        for work in late:
            self.call(work)

    def die(self) -> None:
        """Kill the process."""
        self.is_dead, self.is_stopped, self._late = True, False, []


class World:
    """The clock, and all that happens."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.threads: list[Thread] = []
        self.errors: list[BaseException] = []
        """Errors that ended threads."""
        self.nobody = Process("nobody")
        """The process of what belongs to no other one. It ends with the world."""
        self.process = self.nobody
        """The process of what runs at present."""
        self._thread: Thread | None = None
        self.between: Callable[[], None] | None = None
        """What runs once, before the next event: it may wait itself."""
        self.tokens = 0
        """Random tokens that were made so far."""
        self._steps = 0

    @property
    def now_s(self) -> float:
        """The virtual time in seconds."""
        return self.loop.now_s

    def is_past(self, until_s: float | None) -> bool:
        """Say whether a time is past; sums of seconds differ in their last digits."""
        return until_s is not None and self.now_s >= until_s - SHORTEST_S / 2

    @contextmanager
    def acting(self, process: Process) -> Iterator[None]:
        """Let a process act within the block."""
        before, self.process = self.process, process
        try:
            yield
        finally:
            self.process = before

    def at(self, after_s: float, process: Process, work: Callable[[], None]) -> Timer:
        """Let a process do something later."""
        return self.loop.call_later(after_s, process.call, work)

    def wait(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until something is so; return whether it is."""
        if self.process.is_dead:
            raise Died
        if ready():
            return True
        until_s = None if timeout_s is None else self.now_s + max(SHORTEST_S, timeout_s)
        alarm = None if until_s is None else self.loop.call_at(until_s, _nothing)
        thread = self._thread
        if thread is not None:
            thread.ready, thread.until_s = ready, until_s
            thread.pause()
        else:
            process = self.process
            while not (ready() and not process.is_stopped):
                if self.is_past(until_s) and not process.is_stopped:
                    break
                self.step()
                if process.is_dead:
                    raise Died
        if alarm is not None:
            alarm.cancel()
        return ready()

    def step(self) -> None:
        """Let the next thing happen."""
        self._steps += 1
        if self._steps > MOST_STEPS or self.now_s > MOST_S:
            msg = f"the job is at {self.now_s:.0f} s, after {self._steps} steps"
            raise Stuck(msg)
        if self.between is not None:
            call, self.between = self.between, None
            with self.acting(self.nobody):
                call()
            return
        before, past_s = self.process, self.loop.now_s + SHORTEST_S / 2
        for able in self.threads:
            if able.can_run(past_s):
                outer, self._thread, self.process = self._thread, able, able.process
                able.run()
                self._thread, self.process = outer, before
                if able.ended:
                    self.threads.remove(able)
                return
        self.process = self.nobody
        self.loop.turn()
        self.process = before

    def close(self) -> None:
        """End all threads."""
        for thread in self.threads:
            thread.process.is_dead = True
        while self.threads:
            thread = self.threads.pop()
            self._thread = thread
            thread.run()
        self._thread = None
        self.loop.close()


_worlds: list[World] = []


def now() -> World:
    """Return the world that is installed."""
    return _worlds[-1]


def _nothing() -> None:
    """Let a wait end."""


# ---- what modules of daskprs find in place of the standard library ----


class Queue:
    """In place of `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """Append an item."""
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ARG002, FBT001, FBT002
        """Return the first item; wait for it."""
        if not now().wait(lambda: bool(self._items), timeout):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """Return the first item if there is one."""
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        """Say whether there is no item."""
        return not self._items

    __class_getitem__ = classmethod(lambda cls, _: cls)


class Lock:
    """In place of `threading.Lock`."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        """Take the lock; wait for it."""
        if self._held and not blocking:
            return False
        if not now().wait(lambda: not self._held, None if timeout < 0 else timeout):
            return False
        self._held = True
        return True

    def release(self) -> None:
        """Let go of the lock."""
        self._held = False

    def locked(self) -> bool:
        """Say whether it is held."""
        return self._held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Event:
    """In place of `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set it."""
        self._is_set = True

    def is_set(self) -> bool:
        """Say whether it is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set."""
        return now().wait(self.is_set, timeout)


class Promise(concurrent.futures.Future):  # type: ignore[type-arg]
    """What an executor returns: a future without locks, since one thing runs at a time."""

    def __init__(self) -> None:  # that of a future makes a lock
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._calls: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Say whether the call has ended."""
        return self._is_done

    def settle(self, result: Any, error: BaseException | None = None) -> None:
        """End it."""
        self._is_done, self._result, self._error = True, result, error
        for call in self._calls:
            call(self)

    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        """Call a function at the end."""
        if self._is_done:
            call(self)
        else:
            self._calls.append(call)

    def cancel(self) -> bool:
        """Say that it cannot be cancelled: it has begun."""
        return False

    def cancelled(self) -> bool:
        """Say that it is not cancelled."""
        return False

    def result(self, timeout: float | None = None) -> Any:
        """Return the result; wait for it."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error; wait for the end."""
        if not now().wait(self.done, timeout):
            raise TimeoutError
        return self._error


class Executor:
    """In place of `ThreadPoolExecutor`: a thread of the world for each call."""

    late_s: Callable[[str], float] = staticmethod(lambda _: 0.0)
    """Seconds after which a call of an executor of this name begins."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        self._name = thread_name_prefix
        self._free = max_workers
        self._running: list[Promise] = []

    def submit(self, call: Callable[..., Any], *given: Any) -> Promise:
        """Run a call in a thread."""
        promise = Promise()

        def run() -> None:
            now().wait(lambda: self._free > 0)
            self._free -= 1
            try:
                late_s = type(self).late_s(self._name)
                if late_s:
                    now().wait(lambda: False, late_s)
                result = call(*given)
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                promise.settle(None, error)
            else:
                promise.settle(result)
            finally:
                self._free += 1

        self._running.append(promise)
        Thread(run, name=self._name).start()
        return promise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002
        """Wait for all calls."""
        if wait:
            now().wait(lambda: all(one.done() for one in self._running))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def wait(
    futures: Collection[Any], timeout: float | None = None
) -> concurrent.futures._base.DoneAndNotDoneFutures[Any]:
    """In place of `concurrent.futures.wait`."""
    now().wait(lambda: all(one.done() for one in futures), timeout)
    done = {one for one in futures if one.done()}
    return concurrent.futures._base.DoneAndNotDoneFutures(done, set(futures) - done)


class _Time:
    """In place of the module `time`."""

    def monotonic(self) -> float:
        return now().now_s

    def monotonic_ns(self) -> int:
        return int(now().now_s * 1e9)

    perf_counter = monotonic

    def time(self) -> float:
        return EPOCH_S + now().now_s

    def sleep(self, seconds: float) -> None:
        now().wait(lambda: False, seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Secrets:
    """In place of the module `secrets`: the same seed gives the same tokens."""

    def token_hex(self, count: int) -> str:
        now().tokens += 1
        return hashlib.sha256(str(now().tokens).encode()).hexdigest()[: 2 * count]

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)


class _Threading:
    """In place of the module `threading`."""

    Thread, Lock, Event = Thread, Lock, Event

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


STANDARD: dict[int, Any] = {
    id(time): _Time(),
    id(threading): _Threading(),
    id(secrets): _Secrets(),
    id(threading.Thread): Thread,
    id(queue.SimpleQueue): Queue,
    id(concurrent.futures.ThreadPoolExecutor): Executor,
    id(concurrent.futures.wait): wait,
}


@contextmanager
def replaced(more: dict[tuple[str, str], Any]) -> Iterator[None]:
    """Let all modules of daskprs find the classes of worlds, and some modules more.

    Parameters
    ----------
    more
        What a module finds under a name, by both.

    """
    before: list[tuple[dict[str, Any], str, Any]] = []
    modules = _modules()
    for module in modules:
        names = vars(module)
        for name, value in list(names.items()):
            new = more.get((module.__name__, name), STANDARD.get(id(value)))
            if new is not None:
                before.append((names, name, value))
                names[name] = new
    try:
        yield
        for late in [one for one in _modules() if one not in modules]:
            real = [name for name, value in vars(late).items() if id(value) in STANDARD]
            assert not real, f"{late.__name__} was loaded late, with {real}: import it in `ports`"
    finally:
        for names, name, value in before:
            names[name] = value


def _modules() -> list[Any]:
    return [one for name, one in sys.modules.items() if name.startswith("daskprs.")]


@contextmanager
def installed(world: World) -> Iterator[World]:
    """Let what happens within the block happen in a world."""
    _worlds.append(world)
    asyncio._set_running_loop(world.loop)
    try:
        yield world
    finally:
        try:
            world.close()
        finally:
            asyncio._set_running_loop(None)
            _worlds.pop()
