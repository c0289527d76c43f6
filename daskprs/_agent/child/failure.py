"""A script's exception as text: class name, message, and traceback without our frames."""

from __future__ import annotations

import errno
import re
import traceback
from typing import TYPE_CHECKING, Any

from daskprs._agent.child.beside_script import (
    hint_at_import,
    hint_at_name,
    hint_at_own_module,
    hint_at_script,
)
from daskprs._agent.child.cuda_errors import hint_at_spawn, is_fatal
from daskprs._agent.child.debugging import has_quit, hint_at_terminal
from daskprs._agent.child.file_at_hand import hint_at_file
from daskprs._agent.child.missing_keys import hint_at_columns, hint_at_variable
from daskprs._agent.child.package_folders import hint_at_packages
from daskprs._agent.child.pandas_changes import hint_at_pandas
from daskprs._agent.foreign.raised import (
    MESSAGE_CHARS,
    RaisedElsewhere,
    links_of,
    message_of,
    printed,
    shortened,
)
from daskprs._core.outcomes import Failure
from daskprs._core.tracebacks import library_of
from daskprs._system.masks import masked
from daskprs._system.scarcity import explain
from daskprs._system.standard_streams import without_escapes
from daskprs.errors import OURS, AgentError, LoadError, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._agent.protocol.messages import JobSpec

TRACEBACK_CHARS = 100_000
OF_ITEM_CHARS = 8_000
"""Length of a traceback where any item may have one of its own: a thousand of them go to the driver
and into the journal, with those of their attempts."""
REASON_CHARS = 2_000
"""Length of the reason that a script gives for an item."""
NOT_RETRYABLE = (LoadError, ReturnTypeError)
SAYS_ALL = (*NOT_RETRYABLE, AgentError)
# Patterns, as in the modules above, are compiled when the first error is looked at: to do so before
# took 5 ms at the start of each job.
PASSING_CLASSES = (
    r"Time(d?Out|out)|Connect|Memory|HTTP|URLError|SSL|gaierror|herror|BrokenPipe|BlockingIO"
    r"|Unavailable|ResourceExhausted"
)
"""Names of exceptions of connections, timeouts and memory, in many libraries."""
PASSING_WORDS = (
    r"connection|tim(ed|e) ?out|out of memory|allocate memory|alloc_failed|unreachable|temporar"
    r"|unavailable|try again|too many requests|is locked|in use|is busy|are busy"
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


def failure_of(
    error: BaseException,
    job: JobSpec,
    mini_batch: int | None = None,
    files: Sequence[Any] = (),
) -> Failure:
    """Return an exception as data; `files` are those of the mini-batch.

    Frames of daskprs above the script's own are cut away, and paths in the snapshot are shown as
    the paths that it was taken from. Secrets are masked before a long text is cut, and what a
    terminal would obey is left out.
    """
    mask = job.mask.text
    most = OF_ITEM_CHARS if job.limits.isolates else TRACEBACK_CHARS
    if isinstance(error, LoadError) and error.origin is not None:
        kind, message, text = error.origin
        text = _shown(mask(text), most)
        return Failure(kind, _shown(mask(message), MESSAGE_CHARS), text, retryable=False)
    if isinstance(error, RaisedElsewhere):
        kind, text = error.kind, error.text
    else:
        kind = type(error).__qualname__
        text = "" if _says_it_all(error) else printed(error, OURS)
    text = job.script.as_written(text)
    retryable = not isinstance(error, NOT_RETRYABLE) and not has_quit(error)
    of_script = (
        hint(error, job.script)
        for hint in (
            *(hint_at_script, hint_at_import, hint_at_own_module, hint_at_name),
            *(hint_at_packages, hint_at_spawn),
        )
    )
    here = _limit(error), hint_at_terminal(error, job, mini_batch)
    of_data = hint_at_columns(error), hint_at_file(error, files), hint_at_variable(error)
    hints = (*here, *of_data, hint_at_pandas(error), *of_script)
    whole = mask(job.script.with_cells(message_of(error)))
    message = _shown(whole, MESSAGE_CHARS)
    # The driver shows a traceback without its message, which it has to recognize.
    text = _shown(mask(text).replace(whole, message), most)
    for one in filter(None, hints):
        message += f"{'' if message.endswith('.') else '.'} {mask(one)}"
    return Failure(kind, message, text, retryable, fatal=retryable and is_fatal(error))


def reason_of(text: str) -> str:
    """Return what a script says of a failed item, as it is kept."""
    return _shown(masked(text), REASON_CHARS)


def may_pass(error: BaseException) -> bool:
    """Say whether an exception is one of a connection, a timeout, memory or a lock.

    Such an exception may be gone at the next try, however often it was seen. Its causes count,
    too: a script often raises an error of its own for a connection that was refused.
    """
    limit = _limit(error)
    return any(
        number in PASSING_ERRNOS
        or re.search(PASSING_CLASSES, names)
        or re.search(PASSING_WORDS, f"{message} {limit}", re.IGNORECASE)
        for names, number, message in links_of(error)
    )


def line_of(place: traceback.FrameSummary) -> str:
    """Return a line of a script as an error shows it."""
    return f'File "{place.filename}", line {place.lineno}, in {place.name}: {place.line}'


def _says_it_all(error: BaseException) -> bool:
    """Say whether an error is one of daskprs, so that a traceback adds nothing.

    At what `run` returned, a library may have failed, whose reason is in the message.
    """
    if not isinstance(error, SAYS_ALL):
        return False
    of_value = isinstance(error, ReturnTypeError)
    links: list[BaseException] = [error]
    while of_value and links[-1].__cause__ is not None:
        links.append(links[-1].__cause__)
    files = [file for one in links for file, *_ in traceback.extract_tb(one.__traceback__)]
    ours = all(file.startswith(OURS) or (of_value and library_of(file)) for file in files)
    return links[-1].__cause__ is None and ours


def _limit(error: BaseException) -> str:
    """Return the limit of the system that an error names by its number only."""
    try:
        here = error.system_error() if isinstance(error, RaisedElsewhere) else error
        return explain(here, of_script=True)
    except BaseException:  # noqa: BLE001 - str() of a person's error may raise anything
        return ""


def _shown(text: str, limit: int) -> str:
    return without_escapes(shortened(text, limit))
