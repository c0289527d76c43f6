"""A script's exception as text: class name, message, and traceback without our frames."""

from __future__ import annotations

import errno
import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.core.outcomes import Failure
from daskprs.errors import OURS, LoadError, ReturnTypeError
from daskprs.system.scarcity import explain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from daskprs.agent.protocol.messages import JobSpec

MESSAGE_CHARS = 10_000
TRACEBACK_CHARS = 100_000
NOT_RETRYABLE = (LoadError, ReturnTypeError)
PASSING_CLASSES = re.compile(
    r"Time(d?Out|out)|Connect|Memory|HTTP|URLError|SSL|gaierror|herror|BrokenPipe|BlockingIO"
    r"|Unavailable|ResourceExhausted"
)
"""Names of exceptions of connections, timeouts and memory, in many libraries."""
PASSING_WORDS = re.compile(
    r"connection|tim(ed|e) ?out|out of memory|allocate memory|alloc_failed|unreachable|temporar"
    r"|unavailable|try again|too many requests|is locked|in use|is busy|are busy",
    re.IGNORECASE,
)
PASSING_ERRNOS = {
    getattr(errno, name)
    for name in (
        *("EAGAIN", "EBUSY", "EINTR", "ENOMEM", "EMFILE", "ENFILE", "ENOBUFS", "ENOLCK", "ESTALE"),
        *("ETIMEDOUT", "EADDRINUSE", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH"),
        *("ENETRESET", "ENOTCONN", "ETXTBSY"),
    )
}
"""System errors that the next try may not meet."""


def failure_of(error: BaseException, job: JobSpec) -> Failure:
    """Return an exception as data.

    Frames of daskprs above the script's own are cut away, and paths in the snapshot are shown as
    the paths that it was taken from. Secrets are masked before a long text is cut.
    """
    mask = job.mask.text
    if isinstance(error, LoadError) and error.origin is not None:
        kind, message, text = error.origin
        text = _shortened(mask(text), TRACEBACK_CHARS)
        return Failure(kind, _shortened(mask(message), MESSAGE_CHARS), text, retryable=False)
    kind = type(error).__qualname__
    text = "" if _says_it_all(error) else _as_python_prints_it(error)
    text = job.script.as_written(text)
    retryable = not isinstance(error, NOT_RETRYABLE)
    message = _shortened(mask(_message(error)), MESSAGE_CHARS) + _limit(error)
    return Failure(kind, message, _shortened(mask(text), TRACEBACK_CHARS), retryable)


def may_pass(error: BaseException) -> bool:
    """Say whether an exception is one of a connection, a timeout, memory or a lock.

    Such an exception may be gone at the next try, however often it was seen. Its causes count,
    too: a script often raises an error of its own for a connection that was refused.
    """
    return any(map(_is_passing, _with_causes(error)))


def _is_passing(error: BaseException) -> bool:
    names = " ".join(cls.__qualname__ for cls in type(error).__mro__)
    number = error.errno if isinstance(error, OSError) else None
    return bool(
        number in PASSING_ERRNOS
        or PASSING_CLASSES.search(names)
        or PASSING_WORDS.search(_message(error) + _limit(error))
    )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes and contexts, and the members of groups, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            waiting += [one.__cause__, one.__context__, *members]


def _says_it_all(error: BaseException) -> bool:
    """Say whether an error is ours about input or result, so that a traceback adds nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = all(frame.filename.startswith(OURS) for frame in frames)
    return isinstance(error, NOT_RETRYABLE) and error.__cause__ is None and ours


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"sys.exit({code}) was called, which is an error in an entry script"
    try:
        text = str(error) or _raised_at(error)
    except BaseException as second:  # noqa: BLE001 - a person's __str__ may raise anything
        text = f"<str() of the error raised {type(second).__name__}>"
    return text


def _limit(error: BaseException) -> str:
    """Return the limit of the system that an error names by its number only."""
    try:
        limit = explain(error, of_script=True)
    except BaseException:  # noqa: BLE001 - str() of a person's error may raise anything
        return ""
    return f". {limit}" if limit else ""


def _raised_at(error: BaseException) -> str:
    """Return the line that raised an error without words, such as a bare `assert`."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f"{Path(last.filename).name}, line {last.lineno}: {last.line}"


def _as_python_prints_it(error: BaseException) -> str:
    own = _without_our_frames(error.__traceback__)
    try:
        return "".join(traceback.format_exception(type(error), error, own))
    except BaseException as second:  # noqa: BLE001 - formatting runs a person's code too
        return f"{type(error).__qualname__}: <printing it raised {type(second).__name__}>\n"


def _without_our_frames(tb: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame that is not ours; all of it if all are."""
    first = tb
    while first is not None and first.tb_frame.f_code.co_filename.startswith(OURS):
        first = first.tb_next
    return first or tb


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"
