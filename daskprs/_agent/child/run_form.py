"""What `run` turns out to be when it is called: a decorator may have made something else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MADE_PLAIN = (
    "run() of {} is async def, and its decorator makes it a plain function, of which a process "
    "makes one call at a time. Let the decorator return an async function."
)
PASSED_ON = (
    "run() of {} is a plain function that returns a coroutine, and a process makes one call of it "
    "at a time. Make it async def run."
)


class RunForm:
    """Whether `run` of a script returns coroutines, as far as this is known.

    It `is_surely_async` if it is a coroutine function as it stands. It is called `in_loop` if its
    source says ``async def run``.
    """

    def __init__(
        self, name: str, note: Callable[[str], None], *, is_surely_async: bool, in_loop: bool
    ) -> None:
        self._name = name
        self._note = note
        self._in_loop = in_loop
        self.is_apart = in_loop and not is_surely_async
        """Whether it is called outside the loop, which it may keep. So is a function that is known
        to be plain: it may begin a loop of its own."""
        self._is_known = is_surely_async

    def see(self, *, awaits: bool, alone: bool) -> None:
        """Note whether a call has returned a coroutine; `alone` says that it was the only one."""
        if self._is_known:
            return
        self._is_known = True
        if self._in_loop and not awaits:
            self._note(MADE_PLAIN.format(self._name))
        elif awaits and alone:
            self._note(PASSED_ON.format(self._name))
        self.is_apart = self._in_loop and not awaits
