"""What modules of daskprs find in place of the standard library: clocks, threads, queues, locks."""

from __future__ import annotations

import concurrent.futures
import hashlib
import queue
import secrets
import signal
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from tests.simulation.world import EPOCH_S, Thread, now

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


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
        if not self._held and not now().process.is_dead:
            self._held = True
            return True
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


class Condition(Lock):
    """In place of `threading.Condition`, with a lock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._news = 0

    def notify_all(self) -> None:
        """Let all that wait go on."""
        self._news += 1

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock until somebody notifies; take it again."""
        before = self._news
        self.release()
        has_come = now().wait(lambda: self._news != before, timeout)
        self.acquire()
        return has_come

    def wait_for(self, ready: Callable[[], Any]) -> None:
        """Wait until something is so, which others notify of."""
        while not ready():
            self.wait()


class Semaphore:
    """In place of `threading.BoundedSemaphore`."""

    def __init__(self, value: int = 1) -> None:
        self._left = value

    def __enter__(self) -> None:
        now().wait(lambda: self._left > 0)
        self._left -= 1

    def __exit__(self, *_: object) -> None:
        self._left += 1


class Event:
    """In place of `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set it."""
        self._is_set = True

    def clear(self) -> None:
        """Take that back."""
        self._is_set = False

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
        self._is_over = False
        """Whether calls that have not begun are given up."""

    def submit(self, call: Callable[..., Any], *given: Any) -> Promise:
        """Run a call in a thread."""
        promise = Promise()

        def run() -> None:
            now().wait(lambda: self._free > 0)
            if self._is_over:
                promise.settle(None, concurrent.futures.CancelledError())
                return
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

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Wait for all calls."""
        self._is_over |= cancel_futures
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
        return now().loop.now_s

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


class _Signal:
    """In place of the module `signal`: each process of the world has handlers of its own."""

    def getsignal(self, number: int) -> Any:
        return now().process.handlers.get(number, signal.SIG_DFL)

    def signal(self, number: int, handler: Any) -> None:
        now().process.handlers[number] = handler

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)


class _Threading:
    """In place of the module `threading`."""

    Thread, Lock, Event = Thread, Lock, Event
    Condition, BoundedSemaphore = Condition, Semaphore

    def current_thread(self) -> Any:
        return now().thread or threading.main_thread()

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


STANDARD: dict[int, Any] = {
    id(time): _Time(),
    id(threading): _Threading(),
    id(secrets): _Secrets(),
    id(signal): _Signal(),
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
