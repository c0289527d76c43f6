"""A person's exception as text: class name, message, and the traceback that he knows."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.core.outcomes import Failure
from daskprs.errors import LoadError, ReturnTypeError

if TYPE_CHECKING:
    from types import TracebackType

    from daskprs.agent.messages import JobSpec

OURS = str(Path(__file__).parents[1])
MESSAGE_CHARS = 10_000
TRACEBACK_CHARS = 100_000
NOT_RETRYABLE = (LoadError, ReturnTypeError)


def failure_of(error: BaseException, job: JobSpec) -> Failure:
    """Return an exception as data.

    Frames of daskprs above the script's own are cut away, and paths in the snapshot are shown as
    the paths that it was taken from.
    """
    kind = type(error).__qualname__
    text = "" if _says_it_all(error) else _as_python_prints_it(error)
    script = job.script
    if script.source_directory and script.original_directory:
        text = text.replace(script.source_directory, script.original_directory)
    retryable = not isinstance(error, NOT_RETRYABLE)
    return Failure(kind, _message(error), _shortened(text, TRACEBACK_CHARS), retryable)


def _says_it_all(error: BaseException) -> bool:
    """Say whether an error is one of ours about the input or the result: frames tell no more."""
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
    return _shortened(text, MESSAGE_CHARS)


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
