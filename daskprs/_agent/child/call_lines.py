"""What is printed while several calls of `run` are under way: line by line, with the mini-batch."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

_call: ContextVar[CallPrints | None] = ContextVar("daskprs_call", default=None)


MOST_CHARS = 8192
"""Characters of a line without an end, such as a progress bar, that is kept until it has one."""


class CallPrints:
    """What a call prints; its threads and tasks have the context variable that leads here."""

    def __init__(self, index: int) -> None:
        self.mark = f"[{index}] "
        self.has_printed = False
        self._begun: dict[int, tuple[Any, str]] = {}
        """By stream, the stream and the beginning of a line."""

    def begin(self) -> None:
        """Let what this thread prints from here on be that of the call."""
        _call.set(self)

    def end(self) -> None:
        """Write the lines that have no end; the thread is that of no call then."""
        for stream, begun in self._begun.values():
            stream.write(f"{self.mark}{begun}\n")
        self._begun.clear()
        _call.set(None)

    def write(self, stream: Any, text: str) -> None:
        """Write whole lines with the number of the mini-batch, and keep the rest."""
        self.has_printed = True
        _, before = self._begun.pop(id(stream), (stream, ""))
        *lines, rest = (before + text).split("\n")
        if len(rest) > MOST_CHARS:
            lines, rest = [*lines, rest], ""
        if lines:
            stream.write("".join(f"{self.mark}{line}\n" for line in lines))
        if rest:
            self._begun[id(stream)] = (stream, rest)


class CallStream:
    """In place of `sys.stdout` or `sys.stderr`: tells the calls apart."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text for the call of this thread or task, if there is one."""
        call = _call.get()
        if call is None:
            self._stream.write(text)
        else:
            call.write(self._stream, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def mark_of_call() -> str:
    """Return what marks a line of the call of this thread or task; empty where there is none."""
    call = _call.get()
    return "" if call is None else call.mark


def install() -> None:
    """Tell apart what calls print in this process."""
    sys.stdout, sys.stderr = CallStream(sys.stdout), CallStream(sys.stderr)
