"""The calls of an agent's script for attempts: from the loaded mini-batch to outcome and rows."""

from __future__ import annotations

import inspect
import io
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from daskprs._agent.child.attempt_run import CallTimeout
from daskprs._agent.child.entry_script import profile_of
from daskprs._agent.child.failure import failure_of, line_of
from daskprs._agent.child.forks import end_fork_of
from daskprs._agent.child.handed_on import as_handed_on, packed, write
from daskprs._agent.child.included_columns import taken_columns
from daskprs._agent.child.null_rows import NullRows
from daskprs._agent.child.permits import NOT_AWAITED, CallPermits, Permits
from daskprs._agent.child.pieces_run import NULL_RETURN, PiecesRun
from daskprs._agent.child.process_counts import ProcessCounts
from daskprs._agent.child.run_form import RunForm
from daskprs._agent.child.throttling import Throttle, throttle_of
from daskprs._agent.foreign.entry_script import CallTools
from daskprs._agent.foreign.run_profile import RunProfile
from daskprs._agent.protocol.messages import INLINE
from daskprs._agent.protocol.shared_page import Phase
from daskprs._core.outcomes import Failure, Outcome, Status, input_changed
from daskprs._core.stages import RUN
from daskprs._inputs.source.batch_format import rows_in
from daskprs._inputs.source.source import PathsReader
from daskprs._output.rows.blocks import is_small, is_stream
from daskprs._output.rows.format_result import RowWriter
from daskprs._output.rows.result_tables import as_rows
from daskprs._output.spool import AgentSpool, UnwritableError
from daskprs.errors import InputChanged, LoadError, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from daskprs._agent.child.attempt_run import AttemptRun
    from daskprs._agent.child.call_tasks import CallTasks
    from daskprs._agent.child.debugging import Raised
    from daskprs._agent.child.entry_script import ScriptFunctions
    from daskprs._agent.child.foreign_script import ForeignScript
    from daskprs._agent.child.included_columns import IncludedColumns
    from daskprs._agent.child.outbox import MemoryReserve, Outbox
    from daskprs._agent.child.peak_memory import PeakMemory
    from daskprs._agent.child.several_calls import SeveralCalls
    from daskprs._agent.protocol.messages import Start
    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.pieces import Range
    from daskprs._inputs.source.source import Reader

T = TypeVar("T")
HOLD_S = 60.0
"""Seconds without a new call once the quota of an endpoint is spent: the job ends meanwhile …"""
HOLD_INLINE_S = 3.0
"""… but not while the caller's own thread waits, which drives the job, too."""


class ScriptCalls:
    """Calls the functions of a script for attempts, one after the other or several at a time.

    The reader says whether the files of a mini-batch have changed. `several` makes the calls where
    there are several at a time. `in_loop` runs a coroutine to its end, for a thread that waits for
    it.
    """

    def __init__(
        self,
        start: Start,
        page: SharedPage,
        reserve: MemoryReserve,
        peak: PeakMemory,
        outbox: Outbox,
        spool: AgentSpool | None,
        raised: Raised,
        entry: ScriptFunctions | ForeignScript,
        reader: Reader,
        several: SeveralCalls | None,
        in_loop: Callable[[Awaitable[Any]], Any],
        note: Callable[[str], None],
    ) -> None:
        self._job, self._pid = start.job, os.getpid()
        self._has_process = start.job.start_method != INLINE
        self._reserve, self._peak, self._outbox, self._spool = reserve, peak, outbox, spool
        self._raised, self._entry = raised, entry
        has_loop = several is not None and several.coroutines is not None
        self._tasks = cast("CallTasks", several) if has_loop else None
        """Makes the calls as tasks of a loop; None: each has a thread to itself."""
        self._sleep = _slept if self._tasks is None else self._tasks.sleep
        self._is_alone, self._in_loop, self._note = several is None, in_loop, note
        self._told = set[str]()
        self._permits, self._counts = Permits(page, start.job.rate_limit), ProcessCounts(page)
        self._check_input = reader.check if isinstance(reader, PathsReader) else None
        self._form = RunForm(
            start.job.script.name,
            note,
            is_surely_async=entry.is_surely_async,
            in_loop=self._tasks is not None,
        )
        self._profile: RunProfile | None = None
        self._attempted = self._call
        profile = profile_of(start.job, start.process)
        if profile is not None and start.job.python is None:
            self._profile = RunProfile(**profile)
            self._attempted = self._profiled

    def begin(self, attempt: AttemptRun) -> None:
        """Begin an attempt, which loads its mini-batch next."""
        self._reserve.renew()
        self._peak.reset()
        attempt.turn_to(0)

    def end(self) -> None:
        """Write the profile, if there is one."""
        if self._profile is not None:
            self._profile.write()

    async def make(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
        """Make an attempt that is loaded, and return its outcome whatever happens."""
        if attempt.load_error is not None:
            return self._not_loaded(attempt, attempt.load_error), b""
        attempt.begin()
        attempt.enter(Phase.RUNNING)
        if attempt.total == 0 and self._job.unit == "row":
            return attempt.finished(Status.RUN_DONE, empty=True), b""
        outcome, payload = await self._tried(attempt)
        # Also after an error of `run`: if its file has changed meanwhile, the mini-batch may have
        # rows of both states, and no retry mends that. A later stage may read it again.
        if self._check_input is not None and (attempt.before is None or attempt.target is None):
            try:
                await self.apart(partial(self._check_input, attempt.mini_batch), attempt)
            except InputChanged as error:
                return attempt.finished(Status.INPUT_CHANGED, failure=input_changed(error)), b""
        return outcome, payload

    def _not_loaded(self, attempt: AttemptRun, error: BaseException) -> Outcome:
        if isinstance(error, InputChanged):
            return attempt.finished(Status.INPUT_CHANGED, failure=input_changed(error))
        if isinstance(error, MemoryError):
            self._reserve.release()
        if isinstance(error, LoadError):
            attempt.total = error.items or attempt.total
        return attempt.finished(Status.LOAD_EXCEPTION, failure=failure_of(error, self._job))

    async def _tried(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
        """Call `run`, and return an outcome whatever it raises."""
        attempt.permits = permits = CallPermits(self._permits, attempt)
        try:
            made = await self._attempted(attempt)
        except UnwritableError as error:
            end_fork_of(self._pid)
            self._outbox.refuse(error)
            return attempt.finished(Status.RUN_DONE), b""
        except BaseException as error:  # noqa: BLE001 - a person's code may raise anything
            failure, status = self._ended(attempt, error)
            if (throttle := throttle_of(error)) is not None:
                return self._throttled(attempt, throttle, failure), b""
            return attempt.finished(status, failure=failure), b""
        else:
            self._permits.succeed()
            return made
        finally:
            permits.end()
            attempt.permits = None  # they refer to it, so that only a collection would free both
            self._tell_not_awaited()

    def _tell_not_awaited(self) -> None:
        """Tell people of each line that makes permits and does not await them."""
        while self._permits.not_awaited:
            place = line_of(self._permits.not_awaited.popleft())
            if place not in self._told:
                self._told.add(place)
                self._note(NOT_AWAITED.format(place))

    def _throttled(self, attempt: AttemptRun, throttle: Throttle, failure: Failure) -> Outcome:
        """Return the outcome of a call whose endpoint wants fewer requests."""
        hold_s = HOLD_S if self._has_process else HOLD_INLINE_S
        self._permits.throttle(hold_s if throttle.is_exhausted else throttle.after_s)
        failure = failure._replace(retryable=not throttle.is_exhausted, fatal=False)
        return attempt.finished(Status.THROTTLED, failure=failure, wait_s=throttle.after_s)

    def _piece_ended(self, attempt: AttemptRun, error: BaseException) -> tuple[Failure, Status]:
        """Return how a call for a piece ends; what an endpoint refuses says nothing about it."""
        if throttle_of(error) is not None:
            raise error
        return self._ended(attempt, error)

    def _ended(self, attempt: AttemptRun, error: BaseException) -> tuple[Failure, Status]:
        """Return an exception of the script as data, and how an attempt ends with it."""
        if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
            error = error.__cause__  # no coroutine may raise it, and ours are around the script
        if isinstance(error, MemoryError):
            self._reserve.release()
        self._raised(error)
        failure = failure_of(error, self._job, attempt.mini_batch.index, attempt.files)
        failure = self._peak.explained(failure)
        if isinstance(error, ReturnTypeError) and attempt.stage != RUN:
            of_stage = failure.message.replace("run() return", f"{attempt.stage}() return")
            failure = failure._replace(message=of_stage)
        is_late = isinstance(error, CallTimeout)
        return failure, Status.RUN_TIMEOUT if is_late else Status.RUN_EXCEPTION

    async def _call(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
        """Call `run` for the whole mini-batch or for pieces of it, and format what it returns."""
        output, pieces = self._job.output, attempt.pieces
        included = self._job.included
        if output.errors:
            names = () if included is None else included.names
            known = None if pieces is None else pieces.columns
            attempt.nulls = NullRows(names, output.schema, known)
        if pieces is not None:
            ended = partial(self._piece_ended, attempt)
            run = PiecesRun(attempt, pieces, output, included, self._write_run, ended)
            if pieces.is_trial:
                return await run.tried_out(), b""
            return await run.made(self._spool, counts_inputs=self._entry.counts_inputs)
        if attempt.target is not None:
            return await self._hand_on(attempt, attempt.target), b""
        with RowWriter(output, self._spool, attempt.mini_batch.index) as writer:
            if not await self._write_run(writer, attempt, attempt.mini_batch):
                return self._returned_none(attempt), b""
            rows = writer.finish()
        succeeded = attempt.total if self._entry.counts_inputs else rows.succeeded
        return attempt.done(rows, succeeded), rows.payload

    async def _write_run(
        self,
        writer: RowWriter,
        attempt: AttemptRun,
        mini_batch: MiniBatch,
        piece: Range | None = None,
    ) -> bool:
        """Call `run` with `attempt.data`, and write what it returns; return False for None.

        Iterating a generator is part of `run`.
        """
        result, included = await self._called(attempt, mini_batch, piece)
        if result is None:
            return False
        result = as_rows(result)
        clock, first_row = attempt.run_clock, 0 if piece is None else piece[0]
        beside: Callable[[Any], Any] = as_it_is if included is None else included.beside

        def write_rows(rows: Any) -> None:
            if attempt.nulls is None:
                writer.take(beside(rows), first_row)
            else:
                attempt.nulls.write(writer, beside(rows), first_row)

        def write_stream() -> None:  # which may compute its rows while they are read
            with clock:
                write_rows(result)

        if is_stream(result):
            await self.apart(write_stream, attempt)
        elif isinstance(result, Iterator) and not isinstance(result, io.IOBase):
            await self.apart(partial(write_rows, clock.around(result)), attempt)
        else:
            attempt.enter(Phase.RETURNING)
            if is_small(result):
                write_rows(result)
            else:
                await self.apart(partial(write_rows, result), attempt)
        attempt.take_named()
        return True

    async def _hand_on(self, attempt: AttemptRun, target: str) -> Outcome:
        """Call the function of a stage, and write what it returns for the next one."""
        result, included = await self._called(attempt, attempt.mini_batch, None)
        if result is None:
            return self._returned_none(attempt)
        attempt.take_named()
        # As a part of the call: what a device computes is known only when it leaves the device.
        with attempt.run_clock:
            value = packed(result, attempt.stage)
        attempt.enter(Phase.RETURNING)
        write(value, attempt.handed_on(included), target)
        return attempt.finished(Status.RUN_DONE)

    def _returned_none(self, attempt: AttemptRun) -> Outcome:
        """Return the outcome of an attempt at which the function of a stage has returned None."""
        failure, is_last = NULL_RETURN, attempt.stage == self._entry.stages[-1]
        if attempt.stage != RUN or not is_last:
            wanted = "rows" if is_last else "what the next stage is to get"
            message = f"{attempt.stage}() returned None. Return {wanted}."
            failure = failure._replace(message=message)
        return attempt.finished(Status.RUN_NULL_RETURN, failure=failure)

    async def _called(
        self, attempt: AttemptRun, mini_batch: MiniBatch, piece: Range | None
    ) -> tuple[Any, IncludedColumns | None]:
        """Call the function of a stage with `attempt.data`, or those of all stages.

        Return what it returned, and the columns of the input that stand beside its rows.
        """
        data, attempt.data = attempt.data, None
        first_row = 0 if piece is None else piece[0]
        included, before = None, attempt.before
        if before is not None:
            included = before.included
        elif self._job.included is not None:
            included, data = taken_columns(self._job.included, data, mini_batch, first_row)
            attempt.enter(Phase.RUNNING)
        if attempt.work is None:
            prepared = self._entry.prepare()
            if inspect.isawaitable(prepared):
                self._in_loop(prepared)
        named = attempt.call(first_row, rows_in(data) if before is None else attempt.total)
        tools = CallTools(named, partial(self._counts.add, to=attempt.usage), attempt.permits)
        for stage in self._entry.stages if attempt.work is None else (attempt.work.stage,):
            attempt.stage = stage
            with attempt.run_clock:
                await self._permits.hold(attempt, self._sleep)
                call = partial(self._entry.run, data, mini_batch, piece, stage, tools)
                data = await self.apart(call, attempt) if self._form.is_apart else call()
                awaits = inspect.isawaitable(data)
                if stage == RUN:
                    self._form.see(awaits=awaits, alone=self._is_alone)
                if awaits:
                    data = await self._awaited(data, attempt)
                if attempt.work is None and stage != self._entry.stages[-1]:
                    data = as_handed_on(data, stage)
            if data is None:
                break
        return data, included

    async def _awaited(self, awaitable: Any, attempt: AttemptRun) -> Any:
        """Return the result of a call that is a coroutine.

        It is canceled after its timeout. Where it has a thread to itself, the supervisor ends the
        process instead.
        """
        if self._tasks is None:
            return self._in_loop(awaitable)
        timeout_s = self._job.limits.run_timeout_s
        if attempt.pieces is not None and attempt.pieces.timeout_s is not None:
            timeout_s = min(timeout_s, attempt.pieces.timeout_s)
        return await self._tasks.result(awaitable, attempt, timeout_s)

    async def apart(self, function: Callable[[], T], attempt: AttemptRun) -> T:
        """Call a function that may take long; where others share a thread, in another one."""
        return function() if self._tasks is None else await self._tasks.apart(function, attempt)

    async def _profiled(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
        assert self._profile is not None, "it is there"  # noqa: S101 - for the types
        made: tuple[Outcome, bytes] = self._profile.call(completed, self._call(attempt))
        return made


async def _slept(seconds: float) -> None:
    """Sleep, where nothing else is to be done in this thread."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is it


def as_it_is(result: Any) -> Any:
    """Return what `run` returned."""
    return result


def completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    msg = "it waits"
    raise AssertionError(msg)
