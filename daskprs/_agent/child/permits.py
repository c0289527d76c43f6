"""Permits for requests to an endpoint, as an agent takes them out of those that it was granted.

The governor grants them in blocks (`core.governor`), by the shared page. A call that finds none
waits for its turn: calls are served in the order in which they came. A permit is given back when
the task or thread that has it takes its next one or ends, at the end of an ``async with`` or
``with``, and at the latest with the call of `run`.

In a job without limits each permit is there at once. But in any job, an answer that says "too many
requests" pauses the calls of the process.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from random import Random
from traceback import FrameSummary
from typing import TYPE_CHECKING, Any, Protocol, Self

from daskprs._agent.protocol.shared_page import PermitSums
from daskprs.errors import OptionError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._core.rate_limit import RateLimit

POLL_S = 0.02
"""Seconds between looks of the first call that waits."""
TURN_S = 0.5
"""Seconds after which another one that waits looks whether it is the first."""
FIRST_S, LONGEST_S = 1.0, 60.0
"""The first and the longest pause where the endpoint does not say how long it is."""
MOST_S = 1e9
MOST_TOKENS = 1e9
"""As `MOST` of the limits (`_core.rate_limit`), whose module few agents need."""
NOT_AWAITED = (
    "context.permit() was not awaited, so that it waits for nothing: {}. In a coroutine, write "
    "await context.permit()."
)


class Stretch(Protocol):
    """The time of a call, which stands still while it waits."""

    def pause(self) -> None:
        """Note that it waits."""

    def go_on(self) -> None:
        """Note that it goes on."""


class Permits:
    """The permits of an agent; without a limit, each is there at once."""

    def __init__(self, page: SharedPage, limit: RateLimit | None) -> None:
        self.limit = limit
        self._page = page
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        self._wanted = 0
        """The tokens that these want."""
        self._taken = self._tokens_taken = self._ended = self._throttled = 0
        self._paused_ns = 0
        self._backoff_s = 0.0
        self._random = Random()  # noqa: S311
        self._polled: set[asyncio.AbstractEventLoop] = set()
        """The loops in which calls wait."""
        self.not_awaited: deque[FrameSummary] = deque()
        """The lines of the script that made a permit without awaiting it."""

    # ---- calls ----

    def take(self, tokens: int) -> bool:
        """Take a permit at once, if it is there and no call waits."""
        if self.limit is None and not self._paused_ns:
            return True
        with self._lock:
            is_taken = not self._waiting and self._take(tokens)
            if not is_taken:
                self._tell()
            return is_taken

    def ask(self, tokens: int, wake: Callable[[], None]) -> _Waiter:
        """Return a call's place in the queue; `wake` is called when its turn or permit has come."""
        waiter = _Waiter(tokens, wake)
        with self._lock:
            self._waiting.append(waiter)
            self._wanted += tokens
        self.pump()
        return waiter

    def leave(self, waiter: _Waiter) -> bool:
        """Take a call out of the queue; return False if it has got its permit meanwhile."""
        with self._lock:
            if waiter.is_served:
                return False
            self._waiting.remove(waiter)
            self._wanted -= waiter.tokens
        self.pump()
        return True

    def pump(self) -> None:
        """Give the calls that wait what is there, in their order."""
        served = []
        with self._lock:
            while self._waiting and self._take(self._waiting[0].tokens):
                waiter = self._waiting.popleft()
                self._wanted -= waiter.tokens
                waiter.is_served = True
                served.append(waiter)
            self._tell()
            served += list(self._waiting)[:1] if served else []
        for waiter in served:
            waiter.wake()

    def is_first(self, waiter: _Waiter) -> bool:
        """Say whether a call is the next one."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0] is waiter

    def end(self) -> None:
        """Note that a request has ended."""
        with self._lock:
            self._ended += 1
            self._tell()
            if not self._waiting:
                return
        self.pump()

    def correct(self, tokens: int) -> None:
        """Note that requests have used more tokens than they took, or fewer."""
        with self._lock:
            self._tokens_taken += tokens
            self._tell()

    def _take(self, tokens: int) -> bool:
        """Take a permit if it is there and no pause forbids it."""
        if self._paused_s() > 0:
            return False
        if self.limit is None:
            return True
        self._taken += 1
        self._tokens_taken += tokens
        # In this order: the supervisor lowers what was granted, and then looks at what is taken.
        self._tell()
        granted, tokens_granted, most, _ = self._page.granted()
        in_flight = self._taken - self._ended
        has_tokens = not tokens or self._tokens_taken <= tokens_granted
        if self._taken <= granted and in_flight <= most and has_tokens:
            return True
        self._taken -= 1
        self._tokens_taken -= tokens
        return False

    def _tell(self) -> None:
        if self.limit is None:
            return
        waiting = self._waiting
        self._page.tell_permits(
            PermitSums(
                self._taken,
                self._tokens_taken,
                self._ended,
                self._throttled,
                len(waiting),
                self._wanted,
                waiting[0].tokens if waiting else 0,
                self._paused_ns,
            )
        )

    # ---- pauses ----

    def throttle(self, after_s: float | None) -> None:
        """Pause: an endpoint wants no request for some seconds, or for an unknown time."""
        with self._lock:
            self._throttled += 1
            now_ns = time.monotonic_ns()
            if after_s is None:
                if now_ns < self._paused_ns:  # of requests that were under way at the same time
                    after_s = 0.0
                else:
                    self._backoff_s = min(LONGEST_S, 2 * self._backoff_s or FIRST_S)
                    after_s = self._backoff_s * self._random.uniform(0.5, 1.0)
            until_ns = now_ns + int(min(MOST_S, after_s) * 1e9)
            self._paused_ns = max(self._paused_ns, until_ns)
            self._tell()

    def succeed(self) -> None:
        """Note a call that has succeeded: the next pause of an unknown time is short again."""
        self._backoff_s = 0.0

    async def hold(self, attempt: Stretch, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Let a call wait for the end of a pause before it begins."""
        if self._paused_s() <= 0:
            return
        attempt.pause()
        while (left_s := self._paused_s()) > 0:  # others may make it longer
            await sleep(min(TURN_S, left_s))
        attempt.go_on()

    def _paused_s(self) -> float:
        """Return the seconds until the end of the pause."""
        until_ns = self._paused_ns
        if self.limit is not None:
            until_ns = max(until_ns, self._page.granted()[3])
        return (until_ns - time.monotonic_ns()) / 1e9 if until_ns else 0.0

    # ---- loops ----

    def poll(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look again and again, while calls of a loop wait."""
        if loop not in self._polled:
            self._polled.add(loop)
            loop.call_later(POLL_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._polled.discard(loop)
        self.pump()
        if self._waiting:
            self.poll(loop)


class _Waiter:
    """A call in the queue."""

    def __init__(self, tokens: int, wake: Callable[[], None]) -> None:
        self.tokens = tokens
        self.wake = wake
        self.is_served = False


class CallPermits:
    """The permits of one call of `run`, as its context has them."""

    def __init__(self, permits: Permits, attempt: Stretch) -> None:
        self.permits = permits
        """Those of the process."""
        self._attempt = attempt
        self._lock = threading.Lock()
        self._last: dict[Any, Permit] = {}
        """The last permit of each task or thread, which may have been given back."""
        self._waiting = 0
        self._is_over = False

    def permit(self, tokens: int) -> Permit:
        """Return a permit: to be awaited in a coroutine, else as soon as it is there.

        Raise `OptionError` for no whole number of tokens, and for more than the limit of a minute.
        """
        limit = self.permits.limit
        most = None if limit is None else limit.tokens_per_minute
        tokens = _checked("permit", tokens)
        if most is not None and tokens > most:
            msg = (
                f"context.permit(tokens={tokens}): rate_limit allows {most:g} tokens in a whole "
                "minute, so that this request never gets its turn. Send less at once, or raise "
                "tokens_per_minute."
            )
            raise OptionError(msg)
        permit = Permit(self, tokens)
        if _task() is None:
            permit.acquire()
        else:
            frame = sys._getframe(2)  # noqa: SLF001 - that of the script, above the context
            permit.made_at = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        return permit

    def used(self, tokens: int) -> None:
        """Correct the tokens of the last permit of this task or thread.

        Raise `OptionError` for no whole number of tokens.
        """
        tokens = _checked("used", tokens)
        if self.permits.limit is None:
            return
        last = self._last.get(_owner())
        before = 0 if last is None else last.tokens
        if last is not None:
            last.tokens = tokens
        self.permits.correct(tokens - before)

    def end(self) -> None:
        """Give back all permits: the call has ended."""
        self._is_over = True
        for permit in [*self._last.values()]:
            permit.end()
        self._last.clear()

    def _end_of(self, task: asyncio.Task[Any]) -> None:
        """Give back the permit of a task that has ended."""
        if (last := self._last.pop(task, None)) is not None:
            last.end()

    # ---- of permits ----

    def leave_last(self) -> None:
        """Give back the last permit of this task or thread, which wants the next one."""
        if (last := self._last.get(_owner())) is not None:
            last.end()

    def wait(self) -> None:
        """Note that a task or thread of the call waits."""
        with self._lock:
            self._waiting += 1
            if self._waiting == 1:
                self._attempt.pause()

    def go_on(self) -> None:
        """Note that one of them waits no more."""
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                self._attempt.go_on()

    def hold(self, permit: Permit) -> None:
        """Keep a permit for its task or thread."""
        permit.owner = owner = _owner()
        if self._is_over:  # its thread outlives the call, so nobody else would end it
            permit.end()
            return
        if owner not in self._last and not isinstance(owner, int):  # a task
            owner.add_done_callback(self._end_of)
        self._last[owner] = permit


class Permit:
    """A permit for one request."""

    def __init__(self, call: CallPermits, tokens: int) -> None:
        self.tokens = tokens
        self.owner: Any = None
        """The task or thread that has it."""
        self.made_at: tuple[str, int, str] | None = None
        """File, line and function that have made it, if it has to be awaited."""
        self._call = call
        self._is_asked = self._is_ended = False

    def __del__(self) -> None:
        """Note a permit that was not awaited: the request went out without it.

        A warning follows at the end of the call, since nothing may be sent while memory is freed.
        """
        if self.made_at is not None and not self._is_asked:
            self._call.permits.not_awaited.append(FrameSummary(*self.made_at, lookup_line=False))

    def __await__(self) -> Generator[Any, None, Self]:
        return self._awaited().__await__()

    async def __aenter__(self) -> Self:
        return await self._awaited()

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Give it back, once."""
        if self.owner is not None and not self._is_ended:
            self._is_ended = True
            if self._call.permits.limit is not None:
                self._call.permits.end()

    def acquire(self) -> None:
        """Wait for it in a thread."""
        if self._is_there():
            return
        woken, permits = threading.Event(), self._call.permits
        with self._in_queue(woken.set) as waiter:
            while not waiter.is_served:
                woken.wait(POLL_S if permits.is_first(waiter) else TURN_S)
                woken.clear()
                permits.pump()

    async def _awaited(self) -> Self:
        if self._is_there():
            return self
        import asyncio

        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(woken.set)

        with self._in_queue(wake) as waiter:
            while not waiter.is_served:
                self._call.permits.poll(loop)
                await woken.wait()
                woken.clear()
        return self

    def _is_there(self) -> bool:
        """Take it at once if that can be."""
        self._is_asked = True
        self._call.leave_last()
        is_taken = self._call.permits.take(self.tokens)
        if is_taken:
            self._call.hold(self)
        return is_taken

    @contextmanager
    def _in_queue(self, wake: Callable[[], None]) -> Iterator[_Waiter]:
        """Give it a place in the queue, to be waited for in the block, and take it then."""
        call, permits = self._call, self._call.permits
        call.wait()
        waiter = permits.ask(self.tokens, wake)
        try:
            yield waiter
        except BaseException:
            if not permits.leave(waiter) and permits.limit is not None:
                permits.end()
            raise
        finally:
            call.go_on()
        call.hold(self)


def _checked(function: str, tokens: Any) -> int:
    """Return a number of tokens, which may come from NumPy, as the page can hold it."""
    try:
        count = operator.index(tokens)
    except TypeError:
        count = -1
    if not 0 <= count <= MOST_TOKENS:
        rule = f"a whole number from 0 to {MOST_TOKENS:.0e}"
        msg = f"context.{function}(tokens={tokens!r}): tokens are {rule}."
        raise OptionError(msg)
    return count


def _task() -> asyncio.Task[Any] | None:
    """Return the task that runs in this thread; None outside of coroutines."""
    import asyncio  # takes 20 ms, and most scripts ask for no permit

    with suppress(RuntimeError):
        return asyncio.current_task()
    return None


def _owner() -> Any:
    return _task() or threading.get_ident()
