"""A world on a virtual clock: time passes only while everybody waits.

The modules of daskprs take their clock, threads, queues and locks from the standard library. While
a world is installed, these names lead to the classes below. One thing runs at a time, in an order
that the seed decides, so a run can be repeated event by event.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from heapq import heappop, heappush
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

from greenlet import greenlet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


_process: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process of a coroutine, in the context of its task."""


class Timer:
    """Something that the loop does later, unless it is cancelled."""

    __slots__ = ("call", "given", "is_cancelled", "process")

    def __init__(self, call: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.call = call
        self.given = given
        self.is_cancelled = False
        self.process: Process | None = None
        """Whose step it is, which waits while the process is stopped; None: nobody's."""

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
        self._of_dead: list[Timer] = []
        """Steps of dead processes, which end their coroutines with the world."""

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
        context: Any = None,
    ) -> Timer:
        """Call a function before time passes; a step of a coroutine is one of its process."""
        timer = Timer(call, given)
        if context is not None:
            timer.process = context.get(_process)
        self._ready.append(timer)
        return timer

    def call_soon_threadsafe(
        self,
        call: Callable[..., Any],
        *given: Any,
        context: Any = None,  # noqa: ARG002
    ) -> Timer:
        """Let the process of this thread call a function."""
        timer = self.call_soon(call, *given)
        timer.process = now().process
        return timer

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
        token = _process.set(now().process)
        task = asyncio.Task(work, loop=self)
        _process.reset(token)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Let a test fail; what awaited a failure may be dead by now."""
        if not _worlds or not isinstance(context.get("future"), asyncio.Task):
            return
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
            if timer.is_cancelled:
                continue
            if timer.process is None:
                timer.call(*timer.given)
            elif timer.process.is_dead:
                self._of_dead.append(timer)
            else:
                timer.process.call(partial(timer.call, *timer.given))

    def close(self) -> None:
        """End all tasks, those of dead processes, too."""
        for task in self._tasks:
            task.cancel()
        self._ready.extend(self._of_dead)
        for _ in range(100):
            if not self._ready:
                return
            self._later.clear()
            for timer in self._ready:
                timer.process = None
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
        self.is_blind = False
        """Whether it does not see the disk of the job."""
        self._late: list[Callable[[], None]] = []
        self.children: list[Process] = []
        """Processes that end with this one."""
        self.at_end: list[Callable[[], None]] = []
        """What the kernel does once it is dead."""
        self.folder = ""
        """The folder of its relative paths, with a slash at the end; empty: it has none."""
        self.pace: Callable[[], float] | None = None
        """Returns the seconds that an operation on the disk takes; None: no time."""
        self.handlers: dict[int, Any] = {}
        """What its main thread calls at signals."""
        self._signals: list[int] = []
        """Signals that it has not handled yet."""

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

    def signal(self, number: int) -> None:
        """Send a signal, which the main thread handles once it goes on."""
        self._signals.append(number)

    def heed(self) -> None:
        """Handle signals in the main thread; the process dies of one that it has no handler for."""
        while self._signals and not self.is_stopped:
            handler = self.handlers.get(self._signals.pop(0))
            if not callable(handler):
                self.die()
                raise Died
            handler(SIGTERM, None)

    def die(self) -> None:
        """Kill the process."""
        self.is_dead, self.is_stopped, self._late = True, False, []
        for child in self.children:
            child.die()
        at_end, self.at_end = self.at_end, []
        for call in at_end:
            call()


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
    def thread(self) -> Thread | None:
        """The thread that runs at present; None for the main thread of a process."""
        return self._thread

    @property
    def now_s(self) -> float:
        """The virtual time in seconds."""
        return self.loop.now_s

    def is_past(self, until_s: float | None) -> bool:
        """Say whether a time is past; sums of seconds differ in their last digits."""
        return until_s is not None and self.loop.now_s >= until_s - SHORTEST_S / 2

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
                process.heed()
        if alarm is not None:
            alarm.cancel()
        return ready()

    def step(self) -> None:
        """Let the next thing happen."""
        self._steps += 1
        now_s = self.loop.now_s
        if self._steps > MOST_STEPS or now_s > MOST_S:
            msg = f"the job is at {now_s:.0f} s, after {self._steps} steps"
            raise Stuck(msg)
        if self.between is not None:
            call, self.between = self.between, None
            with self.acting(self.nobody):
                call()
            return
        before, past_s = self.process, now_s + SHORTEST_S / 2
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


def _ignore(_: object) -> None:
    """Note no task."""


def _nothing() -> None:
    """Let a wait end."""


@contextmanager
def installed(world: World) -> Iterator[World]:
    """Let what happens within the block happen in a world."""
    _worlds.append(world)
    asyncio._set_running_loop(world.loop)
    # Nobody asks asyncio for all its tasks here, and to note them takes time.
    name = "_all_tasks" if sys.version_info < (3, 12) else "_scheduled_tasks"
    noted = vars(getattr(asyncio.tasks, name))
    noted["add"] = _ignore
    try:
        yield world
    finally:
        try:
            world.close()
        finally:
            del noted["add"]
            asyncio._set_running_loop(None)
            _worlds.pop()
