"""An attempt at a mini-batch of several items, by the code of production, in steps of virtual time.

The calls of `run` are functions here. While one lasts, the loop of the world goes on.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import pandas as pd
import pyarrow as pa
from greenlet import GreenletExit, getcurrent, greenlet

from daskprs._agent.child.attempt_run import AttemptRun
from daskprs._agent.child.null_rows import NullRows
from daskprs._agent.child.pieces_run import PiecesRun, with_failed_rows
from daskprs._agent.child.script_calls import completed
from daskprs._agent.protocol.shared_page import Phase
from daskprs._core.outcomes import Failure, Status
from daskprs._output.rows.format_result import RowWriter
from daskprs._output.spool import Sink
from tests.simulation.items import DIES, GOOD, HANGS, LACKS_MEMORY, NEEDS_MEMORY, POISONS, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from daskprs._core.mini_batch import Assigned, MiniBatch
    from daskprs._core.outcomes import Outcome
    from daskprs._core.pieces import Range
    from daskprs._output.rows.format_result import FormattedRows
    from daskprs._output.spec import OutputSpec
    from daskprs._output.spool import AgentSpool
    from tests.simulation.agents import Act, Agent

Numbers = tuple[tuple[int, int], ...]
"""The mini-batch and the number of each of some items."""
COLUMNS = ("index", "row")
DEPENDENT = 1000
"""Rows of a script whose items depend on each other have the number of items, times this."""


def in_steps(
    work: Callable[[], Any], spool: AgentSpool | None
) -> Generator[float | None, None, Any]:
    """Call a function; yield whenever it waits, the seconds or None for ever; return its result.

    Once nobody asks for the next step, the process is gone. What is left of the call is thrown
    away, and cannot touch the spool any more.
    """
    stack = greenlet(work)
    try:
        while True:
            stack.parent = getcurrent()
            passed = stack.switch()
            if stack.dead:
                return passed
            yield passed
    finally:
        if not stack.dead and spool is not None:
            for file in (spool.text, spool.typed):
                file.append = file.cut = _nothing  # type: ignore[method-assign]


def wait(seconds: float | None) -> None:
    """Let the function that `in_steps` has called wait."""
    parent = getcurrent().parent
    assert parent is not None
    parent.switch(seconds)


@cache
def items_of(index: int, count: int) -> list[str]:
    """Return what `run` gets for a mini-batch."""
    return [f"{index}/{item}" for item in range(count)]


@lru_cache(maxsize=5_000)
def returned(numbers: Numbers, output: OutputSpec) -> Any:
    """Return what `run` returns for items: a line for each, a frame, or a table.

    Nobody changes it, so that the next call for these items has the same one.
    """
    columns = [[one[place] for one in numbers] for place in (0, 1)]
    if output.is_dataset:
        return pa.table([pa.array(one, pa.int64()) for one in columns], COLUMNS)
    if output.header or output.errors:
        return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)), dtype="int64")
    return [f"{index}:{item}" for index, item in numbers]


@cache
def formatted(numbers: Numbers, output: OutputSpec) -> FormattedRows:
    """Return the rows of a mini-batch as agents make them; most seeds have the same."""
    with RowWriter(output) as writer:
        rows = returned(numbers, output)
        if output.errors:
            NullRows().write(writer, rows, 0)
        else:
            writer.take(rows)
        return writer.finish()


def spooled(rows: FormattedRows, spool: AgentSpool | None) -> tuple[FormattedRows, bytes]:
    """Put formatted rows into a spool; return them, and the bytes that are to travel instead."""
    if spool is None:
        return rows, rows.payload
    lines, values = Sink(spool.text, spool.from_bytes), Sink(spool.typed, spool.from_bytes)
    length = 0 if rows.text is None else rows.text.length
    lines.write(rows.payload[:length])
    values.write(rows.payload[length:])
    if lines.is_aside or values.is_aside:  # all of it is, or nothing
        lines.put_aside()
        values.put_aside()
    (text, kept_lines), (typed, kept_values) = lines.finish(), values.finish()
    made = rows._replace(text=rows.text and text, typed=rows.typed and typed)
    return made, kept_lines + kept_values


class _NoPeak:
    """In place of `PeakMemory`: these agents hold no memory."""

    def taken(self) -> int:
        return 0


class ItemsAttempt:
    """One attempt.

    Parameters
    ----------
    agent
        The agent that makes it.
    assigned, position
        The mini-batch and its position in the order.
    act
        How long a call for all items takes.
    page
        Where it notes what it does.

    """

    def __init__(
        self, agent: Agent, assigned: Assigned, position: int, act: Act, page: Any
    ) -> None:
        self._agent = agent
        self._act = act
        self._items = agent.script.items
        self._output = agent.output
        own_s = None if assigned.pieces is None else assigned.pieces.timeout_s
        self._timeout_s = agent.timeout_s(own_s)
        self._run = AttemptRun(assigned, _NoPeak(), lambda: 0.0, page, position)  # type: ignore[arg-type]
        self._run.total = self._items.sizes[assigned.mini_batch.index]

    def made(self) -> tuple[Outcome, bytes]:
        """Make the attempt; return its outcome, and the rows outside of the spool."""
        outcome, body = self._made()
        if self._run.nulls is not None and self._run.pieces is not None:
            outcome = outcome._replace(columns=self._run.nulls.columns)
        return outcome, body

    def _made(self) -> tuple[Outcome, bytes]:
        run, pieces = self._run, self._run.pieces
        run.enter(Phase.RUNNING)
        if run.total == 0:
            return run.finished(Status.RUN_DONE, empty=True), b""
        run.data = items_of(run.mini_batch.index, run.total)
        known = None if pieces is None else pieces.columns
        run.nulls = NullRows((), None, known) if self._output.errors else None
        if pieces is not None:
            made = PiecesRun(run, pieces, self._output, None, self._write_run, _ended)
            if pieces.is_trial:
                return completed(made.tried_out()), b""
            return completed(made.made(self._agent.spool, counts_inputs=False))
        try:
            kept = self._called(run.mini_batch.index, range(run.total))
        except (ValueError, MemoryError, TimeoutError) as error:
            failure, status = _ended(error)
            return run.finished(status, failure=failure), b""
        rows = formatted(kept, self._output)
        rows, body = spooled(rows, self._agent.spool)
        outcome = run.done(rows, rows.succeeded)
        if run.named:
            outcome = with_failed_rows(outcome, run, items_of(run.mini_batch.index, run.total))
        columns = COLUMNS if kept and self._output.errors else None
        return outcome._replace(columns=columns), body

    async def _write_run(
        self, writer: RowWriter, run: AttemptRun, part: MiniBatch, range_: Range
    ) -> bool:
        """Call the script for a range, and write what it returns."""
        data, run.data = run.data, None
        (start, stop), index = range_, part.index
        numbers: Sequence[int] = range(start, stop)
        if data != items_of(index, run.total)[start:stop]:  # single ones, together
            assert run.pieces is not None
            assert run.pieces.checks, (data, range_)
            numbers = [int(one.partition("/")[2]) for one in data]
        rows = returned(self._called(index, numbers, start), self._output)
        if run.nulls is None:
            writer.take(rows, start)
        else:
            run.nulls.write(writer, rows, start)
        return True

    def _called(self, index: int, numbers: Sequence[int], first: int = 0) -> Numbers:
        """Return the rows of the script for items, the first of which has the number `first`."""
        count = len(numbers)
        agent = self._agent
        if agent.is_poisoned:
            wait(self._seconds(count))
            msg = "the process is broken"
            raise ValueError(msg)
        called = self._items.called(agent.script.caused_by, index, numbers)
        if called.what == HANGS:
            self._hang()
        wait(self._seconds(count) + called.slow_s)
        if called.what != GOOD:
            self._fail(called.what, index, called.item)
        named = [(numbers.index(item), reason(index, item)) for item in called.named]
        self._run.call(first, count).extend(named)
        self._run.take_named()
        more = DEPENDENT * count if self._items.is_dependent else 0
        kept = (item for item in numbers if item not in called.named)
        return tuple((index, item + more) for item in kept)

    def _hang(self) -> NoReturn:
        """Take too long: a coroutine is canceled then, and may go on for all that."""
        wait(self._timeout_s if self._agent.is_async else None)
        self._run.enter(Phase.CANCELING)
        if self._act.ahead:
            wait(None)
        msg = "run() took too long, and was canceled"
        raise TimeoutError(msg)

    def _seconds(self, count: int) -> float:
        return self._act.seconds * count / self._run.total

    def _fail(self, what: str, index: int, item: int) -> NoReturn:
        agent = self._agent
        needs_memory = what in (NEEDS_MEMORY, LACKS_MEMORY)
        if what == DIES or (needs_memory and self._items.kills):
            agent.lacked_memory = needs_memory
            agent.die(-9)
            wait(None)
        agent.is_poisoned |= what == POISONS
        if needs_memory:
            msg = "the script wants more"
            raise MemoryError(msg)
        raise ValueError(reason(index, item))


def _nothing(_: object) -> None:
    """Do nothing, in place of what a dead process would do."""


def _ended(error: BaseException) -> tuple[Failure, Status]:
    """Return an exception of the script as data, and how an attempt ends with it."""
    if isinstance(error, GreenletExit):  # the process is gone
        raise error
    if not isinstance(error, ValueError | MemoryError | TimeoutError):
        raise error
    status = Status.RUN_TIMEOUT if isinstance(error, TimeoutError) else Status.RUN_EXCEPTION
    return Failure(type(error).__name__, str(error)), status
