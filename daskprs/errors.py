"""Every error that daskprs raises.

::

    DaskprsError
    ├── UsageError (ValueError)          refused before anything starts
    │   ├── OptionError                  an option out of range, unknown, or at odds with another
    │   ├── ScriptError                  no such script, a syntax error in it, no run() in it
    │   ├── InputError                   no match, unreadable, or files that disagree
    │   ├── OutputError                  an output that exists, cannot be written, or has no space
    │   └── YamlError                    a YAML file with mistakes: each with file, line and column
    ├── JobFolderError                   the job folder cannot be used
    │   ├── JobFolderLocked              another driver is at work in it
    │   ├── JobChanged                   a resume whose inputs, script or options differ
    │   └── JournalError                 the journal or the spool is not what it should be
    ├── LoadError                        a mini-batch cannot be read; no retry mends it
    │   └── InputChanged                 a file of the input changes during the job, which fails
    ├── ReturnTypeError                  run() returned what cannot be written; no retry mends it
    ├── AgentError                       an agent or its zygote could not be started or reached
    ├── PartitionFailed                  run() failed for a partition of a lazy collection
    ├── PipelineFailed                   a step of a pipeline failed; carries the result
    ├── ParallelRunFailed                the job ended as Failed; carries the result
    └── ParallelRunInterrupted           its time, a limit or SIGTERM ended it; carries the result

    KeyboardInterrupt
    └── ParallelRunCanceled              Ctrl-C ended the job; carries the result

All are plain classes with positional arguments, so that they survive a pickle round trip.
"""

from __future__ import annotations

import ast
import contextlib
import re
from pathlib import Path
from traceback import extract_tb, format_list
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from traceback import FrameSummary
    from types import TracebackType

    import pandas as pd

Result = TypeVar("Result")


class CountsLike(Protocol):
    """Number of mini-batches or items: all, succeeded and failed ones."""

    @property
    def total(self) -> int:
        """Number of all mini-batches or items."""

    @property
    def succeeded(self) -> int:
        """Number of those that succeeded."""

    @property
    def failed(self) -> int:
        """Number of those that failed."""


class JobOutcome(Protocol):
    """The `daskprs.ParallelRunResult` that an error carries.

    This module imports none of the modules that make results, so that all may raise its errors.
    """

    @property
    def status(self) -> str:
        """``"Failed"``, ``"Canceled"`` or ``"Interrupted"``."""

    @property
    def mini_batches(self) -> CountsLike:
        """Number of mini-batches: all, succeeded and failed ones."""

    @property
    def items(self) -> CountsLike:
        """The same in rows or files."""

    @property
    def output_file(self) -> Path | str | None:
        """The published output file; None where nothing was published."""

    @property
    def output_dir(self) -> Path | str:
        """The folder of the output file."""

    @property
    def logs_dir(self) -> Path:
        """The log folder."""

    @property
    def job_dir(self) -> Path:
        """The job folder."""

    @property
    def elapsed_s(self) -> float:
        """Seconds from the call to the result."""

    @property
    def unit(self) -> str:
        """``"row"`` or ``"file"``."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Processes, GPUs and nodes that got no work for a time."""

    @property
    def failed_file(self) -> Path | None:
        """The table of what failed in the end."""

    @property
    def failed(self) -> pd.DataFrame:
        """The mini-batches that failed in the end."""

    def stdout(self, mini_batch: int, attempt: int | None = None) -> str:
        """Return what `run` printed for a mini-batch."""

    def stderr(self, mini_batch: int, attempt: int | None = None) -> str:
        """Return the same for stderr."""

    def to_pandas(self, *, ignore_index: bool = False) -> pd.DataFrame:
        """Return the rows that are committed, with their types."""


class PipelineOutcome(Protocol):
    """The `PipelineResult` that an error carries."""

    @property
    def status(self) -> str:
        """``"Failed"``, ``"Canceled"`` or ``"Interrupted"``."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""

    @property
    def steps(self) -> Mapping[str, Any]:
        """A `StepResult` for each step, by name."""

    @property
    def outputs(self) -> Mapping[str, Path]:
        """The outputs of the pipeline."""

    @property
    def elapsed_s(self) -> float:
        """Seconds from the call to the result."""


class Option(NamedTuple):
    """An option that a message names; an f-string marks the option for `DaskprsError.worded`."""

    name: str
    value: Any = ...
    """The value; left out where the message means the option with any value."""

    def __str__(self) -> str:
        """Return the option as Python writes it."""
        is_function = isinstance(self.value, FunctionType | MethodType)
        shown = self.value.__name__ if is_function else repr(self.value)
        return self.name if self.value is ... else f"{self.name}={shown}"

    def __format__(self, _: str) -> str:
        return f"\x0e{self!s}\x0f"

    @classmethod
    def of(cls, marked: re.Match[str]) -> Option:
        """Return the option that a message marks."""
        name, equals, text = marked[1].partition("=")
        if not equals:
            return cls(name)
        try:
            return cls(name, ast.literal_eval(text))
        except (SyntaxError, ValueError):  # a value without a literal, such as infinity
            return cls(name, text)


_MARKED = re.compile("\x0e(\\w+(?:=[^\x0f]*)?)\x0f")
"""An option in a message: two control characters enclose the option as Python writes it."""


def worded(message: str, form: Callable[[Option], str] = str) -> str:
    """Return a message with the options that it marks as their reader writes them."""
    return _MARKED.sub(lambda marked: form(Option.of(marked)), message)


def class_name(kind: type) -> str:
    """Return the name of a class with its package: several packages have a DataFrame."""
    package = kind.__module__.partition(".")[0]
    is_plain = package in ("builtins", "__main__")
    return kind.__qualname__ if is_plain else f"{package}.{kind.__qualname__}"


def is_like_array(value: Any) -> bool:
    """Say whether a value is an array or a tensor of any package; a scalar has no length."""
    return hasattr(type(value), "__array__") and hasattr(type(value), "__len__")


def how_to_convert(value: Any) -> str:
    """Return the next step for a frame or array of another package, or several frames; else ''."""
    if type(value).__name__ == "LazyFrame":
        return " Compute the frame by its collect()."
    for way in ("to_pandas", "to_table", "to_frame"):  # of a Dataset of Arrow, of an Index
        if hasattr(value, way):
            return f" Convert it by its {way}()."
    if "GroupBy" in type(value).__name__:
        return " Give the frame itself, and the columns to group by as partition_keys."
    are_frames = isinstance(value, list) and bool(value) and hasattr(value[0], "columns")
    if are_frames or type(value).__name__ == "generator":
        return " Put frames together by pandas.concat."
    if "ndarray" in {kind.__name__ for kind in type(value).__mro__}:
        return " Make a frame of it by pandas.DataFrame."
    return " Make an array of NumPy of it by numpy.asarray." if is_like_array(value) else ""


OURS = f"{Path(__file__).parent}/"
"""The beginning of the paths of daskprs in tracebacks."""
_CALLED = {contextlib.__file__, "<string>"}
"""Files of code between frames of daskprs: of decorators, and of the methods of dataclasses."""


class _ShownInNotebooks(BaseException):
    """The base of errors that IPython shows by their message, without the frames of daskprs."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the caller's frames, if they say more, and the message."""
        frames = [frame for frame in extract_tb(self.__traceback__) if _is_of_caller(frame)]
        lines = [line.rstrip() for line in format_list(frames)]
        return [*lines, f"{type(self).__name__}: {self}"]


def _is_of_caller(frame: FrameSummary) -> bool:
    """Say whether a frame is not of daskprs, of what it calls, or of a cell, which is on screen."""
    name = frame.filename
    if name.startswith(OURS) or name in _CALLED:
        return False
    return not re.search("ipython|ipykernel", name, re.IGNORECASE)


class DaskprsError(_ShownInNotebooks, Exception):
    """The root of all errors of daskprs.

    Parameters
    ----------
    *parts
        The message, or parts of it: text, and the options that it names.

    """

    def __str__(self) -> str:
        """Return the message, with options as Python writes them."""
        return _MARKED.sub(r"\1", "".join(map(format, self.args)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def worded(self, form: Callable[[Option], str]) -> str:
        """Return the message, with options in another form."""
        return worded("".join(map(format, self.args)), form)


class UsageError(DaskprsError, ValueError):
    """Something given to daskprs cannot be used; nothing was started."""


class OptionError(UsageError):
    """An option is unknown, out of range, or contradicts another one."""


class ScriptError(UsageError):
    """The entry script is missing, cannot be compiled, or has no `run`."""


class InputError(UsageError):
    """The input matches nothing, cannot be read, or its files disagree."""


class OutputError(UsageError):
    """The output exists already, cannot be written, or does not fit on the disk."""


class YamlError(UsageError):
    """A YAML file cannot be used; a line for each mistake, with file, line and column."""


class JobFolderError(DaskprsError):
    """The job folder cannot be used."""


class JobFolderLocked(JobFolderError):  # noqa: N818 - it says what happened
    """Another driver is at work in this job folder or on this output file."""


class JobChanged(JobFolderError):  # noqa: N818 - it says what happened
    """The input, script or options of a resumed job differ from those of its journal."""


class JournalError(JobFolderError):
    """The journal or the spool has unexpected content."""


class LoadError(DaskprsError):
    """A mini-batch cannot be read, and reading it again would not help.

    Raised by readers for a value that does not fit its column, bytes that are not the encoding,
    and files that are cut short. The message names file, line, column and value where known.
    """

    items: int | None = None
    """Number of rows in the mini-batch, where the reader could count them."""
    origin: tuple[str, str, str] | None = None
    """Class, message and traceback of an error of another process, which this one reports."""


class InputChanged(LoadError):  # noqa: N818 - it says what happened
    """A file of the input is not the one that the job began with.

    The message names the file, and its size and time (or the store's version) then and now. The
    error fails the job, whatever the thresholds allow, and nothing is published.
    """


class PartitionFailed(DaskprsError):  # noqa: N818 - it says what happened
    """A partition of a lazy collection could not be made, since `run` failed in its agent.

    The message names the partition and the mini-batch, and has the script's traceback.
    """


class ReturnTypeError(DaskprsError):
    """`run` returned a value that daskprs does not accept."""


class AgentError(DaskprsError):
    """An agent process or its zygote could not be started or reached."""


class _WithResult(_ShownInNotebooks, Generic[Result]):
    """The base of errors that carry a result beside their message."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message, result)
        self.result = result

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.args[0])

    def worded(self, form: Callable[[Option], str]) -> str:
        """Return the message alone: its options are in the form of the job's front end."""
        del form
        return str(self)


class ParallelRunFailed(_WithResult[JobOutcome], DaskprsError):  # noqa: N818 - the public name reads as what happened
    """The job ended as Failed.

    Parameters
    ----------
    message
        The cause first: of the mini-batches that failed in the end, the first error of the most
        frequent class.
    result
        The work that was done until then.

    """


class ParallelRunInterrupted(_WithResult[Any], DaskprsError):  # noqa: N818 - as above
    """The job ended as Interrupted: its time was over before its work. A resume continues it.

    Its deadline, the end of its batch job, or SIGTERM ended it. Nothing was published, and the
    journal is kept. No mini-batch has failed by that.

    Parameters
    ----------
    message
        The reason, the work done until then, and how to resume.
    result
        The same as data: a `JobOutcome`, or a `PipelineResult`.

    """


class FramesCut:
    """Lets the end of a job, or Ctrl-C, pass without the frames of daskprs: they say nothing.

    A context manager: behind it, the traceback of such an error begins with the caller's frame.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop the frames of such an error, and the errors that led to it."""
        if isinstance(error, (_WithResult, KeyboardInterrupt)):
            error.__traceback__ = None
            error.__suppress_context__ = True


class PipelineFailed(_WithResult[PipelineOutcome], DaskprsError):  # noqa: N818 - it says what happened
    """A step of a pipeline failed.

    Parameters
    ----------
    message
        The step, the cause, the end of its log, and the next step.
    result
        A `PipelineResult`.

    """


class ParallelRunCanceled(_WithResult[Any], KeyboardInterrupt):
    """Ctrl-C ended the job as Canceled; nothing was published, and its journal is kept.

    It is a `KeyboardInterrupt`, not a `DaskprsError`, so that Ctrl-C goes on to end the program.

    Parameters
    ----------
    message
        The work done until then, and how to resume.
    result
        The same as data: a `JobOutcome`, or a `PipelineResult`.

    """

    def __init__(self, message: str, result: JobOutcome | PipelineOutcome | None = None) -> None:
        super().__init__(message, result)
