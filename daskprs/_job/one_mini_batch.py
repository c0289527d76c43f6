"""A job of one mini-batch of an input: the work of `daskprs debug` and of `daskprs replay`.

It is a job like any other, with the reader, the context, the environment and the formatter of a
call. It lives in a temporary folder, makes one attempt, and leaves nothing behind.
"""

from __future__ import annotations

import secrets
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from daskprs._core.events import AttemptFailed, JobEnded, MiniBatchesDone
from daskprs._inputs.source.batch_format import rows_in
from daskprs._job.control import JobControl
from daskprs._job.job import Job
from daskprs._options.output_path import split
from daskprs._options.run_options import FAILURES, TABLE, RunOptions
from daskprs.errors import Option, OptionError, ParallelRunFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from daskprs._agent.child.debugging import Raised
    from daskprs._core.ending import Ending
    from daskprs._core.events import Event
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Failure, Outcome
    from daskprs._core.pieces import Range
    from daskprs._inputs.source.source import Source
    from daskprs._job.frontend import Surface
    from daskprs._job.request import CheckedCall
    from daskprs._job.result import ParallelRunResult

DEFAULTS = {
    name: row.default
    for name, row in TABLE.items()
    if row.group == FAILURES or row.is_of_one_run or name in ("metrics_file", "shared")
}
"""Options that say how often something is tried, when it ends, and who is told."""
UNSEEN = {"progress": False, "report": "never"}
ONE_ATTEMPT = {"run_max_try": 1, "resource_monitor_interval": 0} | UNSEEN
SHOWN = 20
"""Most rows, or lines, that are shown."""


def numbered(number: int) -> Callable[[Source], MiniBatch]:
    """Return the choice of a mini-batch by its number."""

    def choose(source: Source) -> MiniBatch:
        last = -1
        for one in source.mini_batches():
            if one.index == number:
                return one
            last = one.index
        raise no_such_mini_batch(number, last + 1)

    return choose


def no_such_mini_batch(number: int, count: int) -> OptionError:
    """Return the error for a number that none of `count` mini-batches has."""
    there = f"they are 0 to {count - 1}" if count else "the input has none"
    return OptionError(Option("mini_batch", number), f": there is no such mini-batch: {there}.")


def with_item(number: int) -> Callable[[Source], MiniBatch]:
    """Return the choice of the mini-batch that has a row or a file of the input.

    Where the plan does not know numbers, what lies before it is read and counted.
    """

    def choose(source: Source) -> MiniBatch:
        first = 0
        with closing(source.reader()) as reader:
            for one in source.mini_batches():
                if one.partition_key:
                    msg = ": mini-batches of keys have no rows that follow each other. Use "
                    raise OptionError(Option("row", number), msg, Option("mini_batch"), ".")
                first = first if one.row_lower_bound is None else one.row_lower_bound
                known = one.items if source.unit == "file" or source.numbers_rows else None
                first += rows_in(reader.load(one)) if known is None else known
                if number < first:
                    return one
        msg = f": the input has {first} {source.unit}s, numbered from 0."
        raise OptionError(Option("row", number), msg)

    return choose


class OneMiniBatch:
    """A source of which one mini-batch is left, with its own number."""

    def __init__(
        self, source: Source, choose: Callable[[Source], MiniBatch], items: Range | None
    ) -> None:
        self._source = source
        self._choose = choose
        self._items = items
        self.only: MiniBatch
        """The mini-batch (after `begin`)."""

    def begin(self, work: Any) -> None:
        """Prepare the input, and choose the mini-batch."""
        self._source.begin(work)
        self.only = only = self._choose(self._source)
        items = self._items
        if items is not None and only.items is not None and items[1] > only.items:
            has = f"{only.described} has {only.items} {self._source.unit}s, numbered from 0."
            raise OptionError(Option("rows", f"{items[0]}:{items[1]}"), f": {has}")

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the mini-batch."""
        yield self.only

    def count(self) -> int:
        """Return 1."""
        return 1

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the source: all else is as it has it."""
        return getattr(self._source, name)


def for_one(options: RunOptions, scratch: Path) -> RunOptions:
    """Return the options of a call for a check: what it writes goes below a temporary folder."""
    changes: dict[str, Any] = dict.fromkeys(("deadline", "metrics_file"))
    if options.output is not None:
        changes["output"] = str(scratch / "output" / split(str(options.output))[1])
    kept = {name: one for name, one in options.changed().items() if not TABLE[name].is_of_one_run}
    return RunOptions(**{**kept, **changes, "progress": False})


def call_of_one(
    call: CheckedCall, choose: Callable[[Source], MiniBatch], items: Range | None = None
) -> CheckedCall:
    """Return a checked call that runs one mini-batch, once, or only some `items` of it."""
    if items is not None and call.options.stages is not None:
        what = next(one for one in ("preprocess", "postprocess") if call.options[one] is not None)
        msg = ": functions beside run() get whole mini-batches, and not the rows of "
        raise OptionError(Option(what, call.options[what]), msg, Option("rows"), ".")
    given = {**call.options.changed(), **DEFAULTS, **ONE_ATTEMPT}
    return replace(
        call,
        options=RunOptions(**given),
        client=None,
        source=cast("Source", OneMiniBatch(call.source, choose, items)),
        job_id=secrets.token_hex(4),
        listed="",
        warning="",
        may_be_empty=True,
        items=items,
    )


class Ran(NamedTuple):
    """What came of one mini-batch."""

    mini_batch: MiniBatch | None
    """None if no attempt at it was made."""
    outcome: Outcome | None
    ending: Ending | None
    rows: str
    """What the output has of it, as text."""

    @property
    def failure(self) -> Failure | None:
        """The error, if there is one."""
        return None if self.ending is None else self.ending.failure


class _Listener(JobControl):
    """Keeps the end of the attempt, and that of the job."""

    def __init__(self) -> None:
        super().__init__()
        self.mini_batch: MiniBatch | None = None
        self.outcome: Outcome | None = None
        self.ending: Ending | None = None

    def tell(self, event: Event) -> None:
        """Keep what the event says."""
        super().tell(event)
        match event:
            case AttemptFailed(mini_batch=mini_batch, outcome=outcome):
                self.mini_batch, self.outcome = mini_batch, outcome
            case MiniBatchesDone(mini_batches=[mini_batch], outcomes=outcomes):
                self.mini_batch, self.outcome = mini_batch, outcomes[0]
            case JobEnded(ending=ending):
                self.ending = ending


def run_one(call: CheckedCall, surface: Surface, raised: Raised | None = None) -> Ran:
    """Run the call of one mini-batch, and return what came of it.

    `raised` gets each exception of the script, where the script works in this process.
    """
    listener = _Listener()
    rows = ""
    try:
        result = Job(call, surface, listener, raised=raised).run()
        rows = rows_of(result)
    except ParallelRunFailed:
        if listener.ending is None:
            raise
    return Ran(listener.mini_batch, listener.outcome, listener.ending, rows)


def rows_of(result: ParallelRunResult) -> str:
    """Return what a job has made of its mini-batch as text, shortened."""
    import pandas as pd

    with suppress(OptionError):  # it kept no rows with their types
        frame = result.to_pandas(ignore_index=True)
        with pd.option_context("display.width", 100, "display.max_columns", SHOWN):
            return frame.to_string(max_rows=SHOWN, index=False) if len(frame) else "no rows"
    place: Any = result.output_file
    if place is None or not place.is_file():
        return "no rows"
    with place.open(encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip("\n") for line in islice(file, SHOWN + 1)]
    return "\n".join([*lines[:SHOWN], *(["…"] if len(lines) > SHOWN else [])]) or "no rows"
