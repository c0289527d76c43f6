"""An exception of a script as data: class name, message, traceback, and what may explain it."""

from __future__ import annotations

import builtins
import os
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    Link = tuple[str, "int | None", str]
    """An exception or a cause, as plain values: the names of its classes, its errno, its text."""

FAILED_IN = "daskprs failed in this process: "
"""The beginning of the line in the stderr log that has the error of our own code."""
EXIT_BROKEN = 70
"""The code of a process of a script in which our own code has failed (``EX_SOFTWARE``)."""
MESSAGE_CHARS = 10_000
"""Length of a message that goes to the driver, or is searched for the cause of an error."""
OF_IMPORTS = "<frozen importlib"
"""The beginning of the names of the files of Python's import."""
_Group: Any = getattr(builtins, "BaseExceptionGroup", ())


class RaisedElsewhere(Exception):  # noqa: N818 - it stands for an exception of any class
    """An exception that a script has raised under another interpreter."""

    def __init__(self, kind: str, message: str, text: str, links: list[Link]) -> None:
        super().__init__(kind, message, text, links)
        self.kind = kind
        """The name of its class."""
        self.message = message
        self.text = text
        """The traceback, without frames of daskprs."""
        self.links = links

    def __str__(self) -> str:
        return self.message

    def system_error(self) -> Exception:
        """Return an exception of this interpreter that has the same number or message."""
        number = next((one for _, one, _ in self.links if one is not None), None)
        return RuntimeError(self.message) if number is None else OSError(number, self.message)


def record_of(error: BaseException, ours: str) -> tuple[str, str, str, list[Link]]:
    """Return the arguments of `RaisedElsewhere` for an exception."""
    kind = type(error).__qualname__
    return kind, message_of(error), printed(error, ours), [*links_of(error)]


def message_of(error: BaseException) -> str:
    """Return the message of an exception; for one without words, the line that raised it.

    That of a group has the first of its exceptions.
    """
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"sys.exit({code}) was called, which is an error in an entry script{_parsed(error)}"
    try:
        text = str(error) or _raised_at(error)
        if isinstance(error, _Group):  # which says only how many it has
            first = error.exceptions[0]
            text = f"{text}: {type(first).__qualname__}: {message_of(first)}"
    except BaseException as second:  # noqa: BLE001 - a person's __str__ may raise anything
        text = f"<str() of the error raised {type(second).__name__}>"
    return text


def shortened(text: str, limit: int) -> str:
    """Return a text without its middle if it is longer than the limit."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"


def broken_text(error: BaseException) -> bytes:
    """Return what the stderr log gets of an error of our own code."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    text = "".join([f"{FAILED_IN}{type(error).__name__}: {error}\n", *lines])
    return text.encode(errors="replace")


def _parsed(error: BaseException) -> str:
    """Return what argparse refuses, and the next step; empty if the exit is not that of argparse.

    By default, a parser takes our --output for an option of the script that begins so.
    """
    frames = {
        frame.f_code.co_name: frame
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == "argparse"
    }
    problem = frames["error"].f_locals.get("message", "") if "error" in frames else ""
    text = f". argparse says: {problem}" if problem else ""
    if "parse_args" in frames:
        return f"{text}. sys.argv has flags of the job, too: use parse_known_args() of the parser"
    if problem and "required" not in problem:
        text += (
            ". sys.argv has flags of the job, too, which a parser takes for abbreviations of its "
            "own: use argparse.ArgumentParser(allow_abbrev=False)"
        )
    return text


def _raised_at(error: BaseException) -> str:
    """Return the line that raised an error without words, such as a bare `assert`."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f"{os.path.basename(last.filename)}, line {last.lineno}: {last.line}"  # noqa: PTH119


def printed(error: BaseException, ours: str) -> str:
    """Return an exception as Python prints it, without our frames above the script's own."""
    own = _without_our_frames(error.__traceback__, ours)
    try:
        return "".join(traceback.format_exception(type(error), error, own))
    except BaseException as second:  # noqa: BLE001 - formatting runs a person's code too
        return f"{type(error).__qualname__}: <printing it raised {type(second).__name__}>\n"


def _without_our_frames(tb: TracebackType | None, ours: str) -> TracebackType | None:
    """Return the traceback from the first frame that is not ours; all of it if all are.

    Those of Python's import count as ours, since we have it import the script.
    """
    first = tb
    while first is not None and first.tb_frame.f_code.co_filename.startswith((ours, OF_IMPORTS)):
        first = first.tb_next
    return first or tb


def links_of(error: BaseException) -> Iterator[Link]:
    """Yield what is known of an exception, its causes and contexts, and the members of groups."""
    if isinstance(error, RaisedElsewhere):
        yield from error.links
        return
    for one in _with_causes(error):
        names = " ".join(cls.__qualname__ for cls in type(one).__mro__)
        text = shortened(message_of(one), MESSAGE_CHARS)
        yield names, one.errno if isinstance(one, OSError) else None, text


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            members = one.exceptions if isinstance(one, _Group) else ()
            waiting += [one.__cause__, one.__context__, *members]
