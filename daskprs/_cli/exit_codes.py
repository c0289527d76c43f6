"""Every end of a command: its exit code, and its reason on the terminal.

Exit codes: 0 completed, 42 the job failed, 75 interrupted, 130 canceled, 2 bad usage; 74 and 141
for a command whose product is what it prints, where stdout cannot be written.
"""

from __future__ import annotations

import signal
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from daskprs._core.ending import EXIT_CANCELED, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from daskprs._job.flags import flagged
from daskprs._options.rules import removed_directory
from daskprs._system.interrupts import Terminated, sigterm_handler
from daskprs._system.scarcity import explain
from daskprs._system.standard_streams import (
    drop_stdout,
    drop_unwritten,
    to_stderr,
    without_escapes,
)
from daskprs.errors import (
    DaskprsError,
    JobFolderError,
    ParallelRunCanceled,
    ParallelRunFailed,
    ParallelRunInterrupted,
    UsageError,
)

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator

    from daskprs.errors import Option


CODES = {
    ParallelRunFailed: EXIT_FAILED,
    ParallelRunInterrupted: EXIT_INTERRUPTED,
    ParallelRunCanceled: EXIT_CANCELED,
}
"""The exit codes of the errors that carry a result."""
EXIT_UNWRITTEN = 74
"""EX_IOERR of sysexits.h, as 75 is its EX_TEMPFAIL."""
EXIT_NO_READER = 141
"""What shells have for a program that SIGPIPE has ended, which Python ignores."""


def show(result: object) -> None:
    """Show the result; the job is Completed even where stdout cannot be written."""
    echo_result(repr(result))


def echo(text: str) -> None:
    """Show on stdout what the command is for; the command ends where that cannot be written."""
    try:
        click.echo(without_escapes(text))
    except BrokenPipeError:  # such as `| head`, which has read enough
        sys.exit(EXIT_NO_READER)
    except OSError as error:
        exit_unwritten(error)


def exit_unwritten(error: OSError) -> NoReturn:
    """End a command that has no other end than what it writes to stdout."""
    drop_unwritten()
    _exit(EXIT_UNWRITTEN, f"daskprs: stdout cannot be written: {error}.")


def echo_result(text: str) -> None:
    """Show on stdout what has come of work that is done, whether or not that can be written."""
    try:
        click.echo(without_escapes(text))
    except OSError as error:
        to_stderr(f"daskprs: stdout cannot be written: {error}. Nothing else has failed.")
        drop_stdout()  # the next lines would fail, too, and each would say so


@contextmanager
def every_end(form: Callable[[Option], str] = flagged) -> Iterator[None]:
    """Exit with the code of an error, and show its message, with options in a form."""
    try:
        with _interrupted():
            yield
    except (UsageError, JobFolderError) as error:
        _exit(EXIT_USAGE, f"daskprs: {error.worded(form)}")
    except (ParallelRunFailed, ParallelRunInterrupted, ParallelRunCanceled) as error:
        _exit(CODES[type(error)], str(error))
    except Terminated:  # a job has caught it, once there is one
        _exit(EXIT_INTERRUPTED, "daskprs: SIGTERM has ended the command. Call it again.")
    except KeyboardInterrupt:
        _exit(EXIT_CANCELED, "daskprs: interrupted.")
    except DaskprsError as error:
        _exit(EXIT_FAILED, f"daskprs: {error.worded(form)}")
    except OSError as error:
        removed = removed_directory(error)
        if removed is not None:
            _exit(EXIT_USAGE, f"daskprs: {removed}")
        _exit(EXIT_FAILED, f"daskprs: {error}")
    except click.ClickException:  # click shows an error of usage
        raise
    except Exception as error:  # noqa: BLE001 - it is shown whole, and has an exit code too
        to_stderr(traceback.format_exc().rstrip())
        told = explain(error) or "this is an error of daskprs itself, not of your script."
        _exit(EXIT_FAILED, f"daskprs: {told}")
    finally:
        drop_unwritten()


@contextmanager
def _interrupted() -> Iterator[None]:
    """Treat the end of the terminal like Ctrl-C, and let SIGTERM end a job as Interrupted.

    Signals that are ignored (nohup) stay so.
    """
    handlers = {signal.SIGTERM: sigterm_handler(), signal.SIGHUP: _interrupt}
    heeded = [number for number in handlers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handlers[number]) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: types.FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


def _exit(code: int, message: str) -> NoReturn:
    to_stderr(message)
    sys.exit(code)
