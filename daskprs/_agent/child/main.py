"""The agent: the process that runs a person's entry script, and nothing else.

It speaks the protocol of `agent.protocol.messages` with its supervisor (`agent.supervision`), and
writes each activity to the shared page before it begins. It catches every exception of the script,
`BaseException` too, and sends it as class name, message and traceback text, never as a pickle.
"""

from __future__ import annotations

import inspect
import io
import os
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from daskprs._agent.child import call_lines
from daskprs._agent.child.attempt_run import AttemptRun
from daskprs._agent.child.call_tasks import CallTasks
from daskprs._agent.child.call_threads import CallThreads
from daskprs._agent.child.coroutines import CallTimeout, Coroutines, completed
from daskprs._agent.child.debugging import forget
from daskprs._agent.child.entry_script import load_entry_script, profile_of
from daskprs._agent.child.failure import failure_of, may_pass
from daskprs._agent.child.foreign_script import ForeignScript
from daskprs._agent.child.forks import call_in_forks, end_fork_of
from daskprs._agent.child.handed_on import write
from daskprs._agent.child.inbox import Inbox, Loader
from daskprs._agent.child.included_columns import taken_columns
from daskprs._agent.child.lifetime import Lifetime
from daskprs._agent.child.null_rows import NullRows
from daskprs._agent.child.outbox import MemoryReserve, Outbox
from daskprs._agent.child.peak_memory import PeakMemory
from daskprs._agent.child.permits import CallPermits, Permits
from daskprs._agent.child.pieces_run import NULL_RETURN, PiecesRun, with_failed_rows
from daskprs._agent.child.print_marks import OWN, PrintMarks
from daskprs._agent.child.process_counts import ProcessCounts
from daskprs._agent.child.run_form import RunForm
from daskprs._agent.child.several_calls import OfAgent
from daskprs._agent.child.throttling import Throttle, throttle_of
from daskprs._agent.foreign.run_profile import RunProfile
from daskprs._agent.protocol.answers import dumped
from daskprs._agent.protocol.messages import (
    INLINE,
    PROTOCOL,
    THREADS_LEFT,
    InitDone,
    InitRaised,
    Start,
    Started,
    Stopped,
)
from daskprs._agent.protocol.shared_page import Phase, SharedPage
from daskprs._core.outcomes import (
    UNKNOWN,
    Failure,
    Outcome,
    Status,
    input_changed,
)
from daskprs._core.soundness import Soundness
from daskprs._core.stages import RUN
from daskprs._folders.job_folder import JobFolder
from daskprs._inputs.files.file_versions import compare_with_times_seen
from daskprs._inputs.source.batch_format import rows_in
from daskprs._inputs.source.source import PathsReader
from daskprs._output.rows.blocks import is_small, is_stream
from daskprs._output.rows.format_result import RowWriter
from daskprs._output.spool import AgentSpool, UnwritableError
from daskprs._system.file_lock import boot_id
from daskprs._system.masks import masked
from daskprs.errors import InputChanged, LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from multiprocessing.connection import Connection

    from daskprs._agent.child.debugging import Raised
    from daskprs._agent.child.entry_script import ScriptFunctions
    from daskprs._agent.child.included_columns import IncludedColumns
    from daskprs._agent.child.print_marks import Streams
    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._core.calls import Calls
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.pieces import Range

T = TypeVar("T")
EXIT_ORDERLY = 0
EXIT_INIT_FAILED = 41
HOLD_S = 60.0
"""Seconds without a new call once the quota of an endpoint is spent: the job ends meanwhile …"""
HOLD_INLINE_S = 3.0
"""… but not while the caller's own thread waits, which drives the job, too."""
SEE_ALL_THREADS = {"cProfile"} if sys.version_info >= (3, 12) else set[str]()
"""Profilers that record the calls of all threads, and take them for calls of one: an agent that is
profiled by one of them has no threads of its own."""


def main(connection: Connection, page_fd: int) -> int:
    """Serve one supervisor until it sends `Stop` or is gone, and return the exit code."""
    page = SharedPage(page_fd)
    reserve = MemoryReserve(page)
    work = steps(connection, page, reserve)
    try:
        while True:
            next(work)
    except StopIteration as ended:
        code: int = ended.value
        return code
    except MemoryError:
        reserve.end()


def steps(
    connection: Connection,
    page: SharedPage,
    reserve: MemoryReserve,
    streams: Streams = OWN,
    raised: Raised = forget,
) -> Generator[bool, None, int]:
    """Serve one supervisor step by step, and return the exit code.

    Yield True before each wait for a message, and False after each mini-batch: an agent in the
    caller's process lets the driver work then. `streams` are the descriptors of its logs, and
    `raised` is called with each exception of the script.
    """
    for shared in (connection, page):  # a fork of the agent cannot speak for the agent
        call_in_forks(shared.close)
    yield True
    with ExitStack() as at_end:
        return (yield from _served(connection, page, reserve, streams, raised, at_end))


def _served(
    connection: Connection,
    page: SharedPage,
    reserve: MemoryReserve,
    streams: Streams,
    raised: Raised,
    at_end: ExitStack,
) -> Generator[bool, None, int]:
    """Run one agent; `at_end` closes what the end of a process would close."""
    start, pid = connection.recv(), os.getpid()
    connection.send_bytes(dumped(Started(pid, PROTOCOL)))
    page.enter(Phase.INIT)
    begun = time.perf_counter()
    try:
        agent = Agent(start, connection, page, reserve, streams, raised, at_end)
        agent.called(agent.entry.init)
        if start.job.start_method == INLINE:
            agent.entry.prepare()
    except BaseException as error:  # noqa: BLE001 - a person's code may raise anything
        end_fork_of(pid)
        reserve.release()
        raised(error)
        failure = failure_of(error, start.job)._replace(retryable=may_pass(error))
        connection.send_bytes(dumped(InitRaised(failure)))
        return EXIT_INIT_FAILED
    end_fork_of(pid)
    page.enter(Phase.IDLE)
    elapsed_s = time.perf_counter() - begun
    connection.send_bytes(dumped(InitDone(elapsed_s, *agent.entry.imports)))
    return (yield from agent.serve())


class Agent:
    """A script that is ready, and the loop that gives it work."""

    def __init__(
        self,
        start: Start,
        connection: Connection,
        page: SharedPage,
        reserve: MemoryReserve,
        streams: Streams,
        raised: Raised,
        at_end: ExitStack,
    ) -> None:
        self._job, self._raised = start.job, raised
        self._at_end = at_end
        self._reserve = reserve
        self._pid = os.getpid()
        self._soundness = Soundness()
        calls = start.job.calls
        # Before the script is imported, as the threads below.
        self._calls = None if calls is None else _several(calls, page, reserve, self._soundness)
        self._coroutines = self._calls.coroutines if isinstance(self._calls, CallTasks) else None
        # Several calls cannot append to one spool at the same time.
        spool = start.process.spool if calls is None else None
        self._spool = None if spool is None else AgentSpool(spool)
        if self._spool is not None:
            call_in_forks(self._spool.forget)
            at_end.callback(self._spool.forget)
        self._connection = connection
        self._page, self._permits = page, Permits(page, start.job.rate_limit)
        self._peak, self._counts = PeakMemory(page), ProcessCounts(page)
        self._outbox = Outbox(connection, reserve, self._spool, of_calls=calls is not None)
        self._loader = Loader(page, reserve)
        self._has_process = start.job.start_method != INLINE
        sees_all = start.job.python is None and start.job.profiling_module in SEE_ALL_THREADS
        # Before the script is imported: without free memory a new thread never begins, and
        # `Thread.start` waits for it for ever.
        if self._has_process and not sees_all:
            self._outbox.start()
        if self._has_process and not sees_all and calls is None:
            self._loader.start()
        self._inbox = Inbox(connection, page, self._loader, self._outbox)
        at_end.callback(self._inbox.close)
        if calls is not None:
            call_lines.install()
        self._print_marks = PrintMarks(page, start.process, streams)
        load = load_entry_script if start.job.python is None else ForeignScript
        self.entry: ScriptFunctions | ForeignScript = load(start.job, start.process)
        self._form = RunForm(
            start.job.script.name,
            self._note,
            is_surely_async=self.entry.is_surely_async,
            in_loop=isinstance(self._calls, CallTasks),
        )
        _compare_times_here(start.job)
        self._loader.reader = reader = pickle.loads(start.job.reader)
        if not self._has_process:  # else its end closes the files, also under the loader's thread
            at_end.callback(reader.close)
        if start.job.batch_form is not None:
            start.job.batch_form.prepare()
            self._loader.form = start.job.batch_form.of
        self._lifetime = Lifetime(start.job.limits)
        self._has_told_columns = False
        self._profile: RunProfile | None = None
        self._attempted = self._call
        profile = profile_of(start.job, start.process)
        if profile is not None and start.job.python is None:
            self._profile = RunProfile(**profile)
            self._attempted = self._profiled
        self._check_input = reader.check if isinstance(reader, PathsReader) else None
        if calls is not None and isinstance(reader, PathsReader):
            reader.expect(calls.at_once)

    def serve(self) -> Generator[bool, None, int]:
        """Work until the supervisor sends `Stop`; the steps are those of `steps`."""
        self._print_marks.move()  # beyond what import and init() have printed
        try:
            if self._calls is not None:
                self._page.mark_printed(UNKNOWN, UNKNOWN)
                self._calls.serve(
                    self._connection,
                    OfAgent(
                        self._inbox,
                        self._outbox,
                        self._loader,
                        self._peak,
                        self._begin,
                        self._make,
                        self._halt_after,
                        self._note,
                    ),
                )
            while not self._inbox.stopped:
                yield True
                self._inbox.receive()
                yield from self._work_on()
        except EOFError:
            return EXIT_INIT_FAILED
        failure = None
        self._page.enter(Phase.SHUTDOWN)
        try:
            self.called(self.entry.shutdown)
        except BaseException as error:  # noqa: BLE001 - a person's code may raise anything
            failure = failure_of(error, self._job)
        end_fork_of(self._pid)
        if self._profile is not None:
            self._profile.write()
        # The caller's process has threads of its own, and does not end here.
        threads = self.entry.threads_left() if self._has_process else []
        late = failure or delayed_by(threads)
        self._connection.send_bytes(dumped(Stopped(late)))
        self.entry.wait()
        return EXIT_ORDERLY

    def _work_on(self) -> Iterator[bool]:
        """Run the claimed mini-batches, one position after the other; yield after each."""
        inbox = self._inbox
        while (assigned := inbox.claim()) is not None:
            attempt = AttemptRun(assigned, self._peak, self.entry.cpu_s, self._page, inbox.position)
            attempt.enter(Phase.LOADING)
            self._begin(attempt)
            attempt.data, attempt.load_error = self._loader.take(inbox.position, assigned)
            inbox.look_ahead()
            outcome, payload = completed(self._run(attempt))
            end_fork_of(self._pid)
            printed = self._print_marks.move()
            if printed is not None:
                outcome = outcome._replace(printed=printed)
            outcome = self._with_columns(outcome, attempt)
            inbox.listen_again()
            # Only now, when the loader's thread takes no further mini-batch to the reader.
            outcome = self._with_named(outcome, attempt)
            attempt.enter(Phase.RETURNING)
            halted = self._halt_after(outcome)
            if halted is None:
                self._outbox.add(outcome, payload)
                if attempt.work is not None:  # the next stage, or the next mini-batch, waits for it
                    self._outbox.flush()
                inbox.next()
            else:
                # First: the supervisor may answer with a new order as soon as it has read it.
                inbox.halt()
                self._outbox.add(outcome, payload, halted)
                self._loader.drop()
            yield False
        self._page.enter(Phase.IDLE)
        self._outbox.flush()

    async def _make(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
        """Make an attempt beside others."""
        outcome, payload = await self._run(attempt)
        outcome = self._with_columns(outcome, attempt)
        if attempt.named:
            outcome = await self._apart(partial(self._with_named, outcome, attempt), attempt)
        return outcome, payload

    def _note(self, text: str) -> None:
        """Tell people something; it is in the log as well."""
        text = self._job.script.as_written(text)
        sys.stderr.write(f"daskprs: {text}\n")
        self._outbox.note(masked(text))

    def called(self, function: Callable[[], Any]) -> Any:
        """Call a function of the script, and await what it returns if that can be."""
        result = function()
        if not inspect.isawaitable(result):
            return result
        return self._loop().result(result)

    def _loop(self) -> Coroutines:
        if self._coroutines is None:
            self._coroutines = Coroutines()
            if not self._has_process:  # else it ends with the process
                self._at_end.callback(self._coroutines.close)
        return self._coroutines

    def _begin(self, attempt: AttemptRun) -> None:
        """Begin an attempt, which loads its mini-batch next."""
        self._reserve.renew()
        self._peak.reset()
        attempt.process_counts = self._counts
        attempt.permits = CallPermits(self._permits, attempt)
        attempt.turn_to(0)

    def _with_named(self, outcome: Outcome, attempt: AttemptRun) -> Outcome:
        """Return an outcome with the items that the script itself has named as failed.

        Its mini-batch is loaded again, since `run` may have changed what it got.
        """
        is_made = outcome.status is Status.RUN_DONE and attempt.target is None
        if not attempt.named or attempt.pieces is not None or not is_made:
            return outcome
        with nullcontext() if self._calls is None else self._calls.loading:
            data = self._loader.load_again(attempt.mini_batch)
        return with_failed_rows(outcome, attempt, data)

    def _with_columns(self, outcome: Outcome, attempt: AttemptRun) -> Outcome:
        """Return an outcome with the columns of its rows, once, where rows of nulls need them."""
        if self._has_told_columns or attempt.nulls is None or outcome.status is not Status.RUN_DONE:
            return outcome
        columns = attempt.nulls.columns
        self._has_told_columns = columns is not None
        return outcome._replace(columns=columns)

    def _halt_after(self, outcome: Outcome) -> str | None:
        """Count failures in a row; return a text where the agent takes no more work.

        The text is that of a fatal error, or empty: the process may be broken, or has done enough.
        The ledger decides what becomes of it (`core.renewals`). An agent that went on would fail
        a lease of ten thousand mini-batches within a second.
        """
        has_failed = outcome.status is not Status.RUN_DONE
        if not outcome.is_neutral or outcome.is_fatal:
            (self._soundness.fail if has_failed else self._soundness.succeed)(outcome.failed_before)
        if outcome.is_fatal:
            return str(outcome.failure)
        has_failed = has_failed and not outcome.is_neutral
        if has_failed and self._soundness.in_a_row >= self._inbox.most_in_a_row:
            return ""
        return "" if self._lifetime.is_over() else None

    async def _run(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
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
                await self._apart(partial(self._check_input, attempt.mini_batch), attempt)
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
            if attempt.permits is not None:
                attempt.permits.end()

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
        failure = self._peak.explained(failure_of(error, self._job, attempt.mini_batch.index))
        if isinstance(error, CallTimeout):
            return failure._replace(kind="TimeoutError"), Status.RUN_TIMEOUT
        return failure, Status.RUN_EXCEPTION

    async def _call(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
        """Call `run` for the whole mini-batch or for pieces of it, and format what it returns."""
        output, pieces = self._job.output, attempt.pieces
        included = self._job.included
        if output.errors:
            names = () if included is None else included.names
            known = None
            if pieces is not None and (output.text or pieces.kept is not None):
                known = pieces.columns
            attempt.nulls = NullRows(names, output.schema, known)
        if pieces is not None:
            ended = partial(self._piece_ended, attempt)
            run = PiecesRun(attempt, pieces, output, included, self._write_run, ended)
            if pieces.is_trial:
                return await run.tried_out(), b""
            return await run.made(self._spool, counts_inputs=self.entry.counts_inputs)
        if attempt.target is not None:
            return await self._hand_on(attempt, attempt.target), b""
        with RowWriter(output, self._spool, attempt.mini_batch.index) as writer:
            if not await self._write_run(writer, attempt, attempt.mini_batch):
                return self._returned_none(attempt), b""
            rows = writer.finish()
        succeeded = attempt.total if self.entry.counts_inputs else rows.succeeded
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
            await self._apart(write_stream, attempt)
        elif isinstance(result, Iterator) and not isinstance(result, io.IOBase):
            await self._apart(partial(write_rows, clock.around(result)), attempt)
        else:
            attempt.enter(Phase.RETURNING)
            if is_small(result):
                write_rows(result)
            else:
                await self._apart(partial(write_rows, result), attempt)
        attempt.take_named()
        return True

    async def _hand_on(self, attempt: AttemptRun, target: str) -> Outcome:
        """Call the function of a stage, and write what it returns for the next one."""
        result, included = await self._called(attempt, attempt.mini_batch, None)
        if result is None:
            return self._returned_none(attempt)
        attempt.take_named()
        attempt.enter(Phase.RETURNING)
        write(attempt.handed_on(result, included), target, attempt.stage)
        return attempt.finished(Status.RUN_DONE)

    def _returned_none(self, attempt: AttemptRun) -> Outcome:
        """Return the outcome of an attempt at which the function of a stage has returned None."""
        failure, is_last = NULL_RETURN, attempt.stage == self.entry.stages[-1]
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
            self.entry.prepare()
        failed = attempt.call(first_row, rows_in(data) if before is None else attempt.total)
        for stage in self.entry.stages if attempt.work is None else (attempt.work.stage,):
            attempt.stage = stage
            with attempt.run_clock:
                await self._held(attempt)
                given = data, mini_batch, piece, failed, stage, attempt.count, attempt.permits
                call = partial(self.entry.run, *given)
                data = await self._apart(call, attempt) if self._form.is_apart else call()
                awaits = inspect.isawaitable(data)
                if stage == RUN:
                    self._form.see(awaits=awaits, alone=self._calls is None)
                if awaits:
                    data = await self._awaited(data, attempt)
            if data is None:
                break
        return data, included

    async def _awaited(self, awaitable: Any, attempt: AttemptRun) -> Any:
        """Return the result of a call that is a coroutine.

        It is canceled after its timeout. Where it has a thread to itself, the supervisor ends the
        process instead.
        """
        if not isinstance(self._calls, CallTasks):
            return self._loop().result(awaitable)
        timeout_s = self._job.limits.run_timeout_s
        if attempt.pieces is not None and attempt.pieces.timeout_s is not None:
            timeout_s = min(timeout_s, attempt.pieces.timeout_s)
        return await self._calls.result(awaitable, attempt, timeout_s)

    async def _held(self, attempt: AttemptRun) -> None:
        """Wait for the end of a pause, before a call begins."""
        if isinstance(self._calls, CallTasks):
            await self._permits.hold_in_loop(attempt)
        else:
            self._permits.hold(attempt)

    async def _apart(self, function: Callable[[], T], attempt: AttemptRun) -> T:
        """Call a function that may take long; where others share a thread, in another one."""
        if isinstance(self._calls, CallTasks):
            return await self._calls.apart(function, attempt)
        return function()

    async def _profiled(self, attempt: AttemptRun) -> tuple[Outcome, bytes]:
        assert self._profile is not None, "it is there"  # noqa: S101 - for the types
        made: tuple[Outcome, bytes] = self._profile.call(completed, self._call(attempt))
        return made


def _several(calls: Calls, *given: Any) -> CallTasks | CallThreads:
    """Return what makes several calls of `run` at the same time."""
    kind: type[CallTasks | CallThreads] = CallTasks if calls.is_async else CallThreads
    return kind(calls.at_once, *given)


def as_it_is(result: Any) -> Any:
    """Return what `run` returned."""
    return result


def delayed_by(names: list[str]) -> Failure | None:
    """Return a failure naming the script's threads that delay the exit by a second or more."""
    if not names:
        return None
    message = (
        f"the end of the process waits for threads that the script has left: {', '.join(names)}. "
        "End them in shutdown(), or start them with daemon=True."
    )
    message = masked(message)
    sys.stderr.write(f"daskprs: {message}\n")
    return Failure(THREADS_LEFT, message)


def _compare_times_here(job: JobSpec) -> None:
    """Compare times of files with the first ones seen here, unless this is the driver's host."""
    if job.far or boot_id() != job.boot_id:
        # Containers of one machine may share the folder, but each have their own replica.
        mounts = os.stat("/proc/self/ns/mnt").st_ino  # noqa: PTH116 - not a file
        here = f"{boot_id()}.{mounts}"
        compare_with_times_seen(JobFolder(job.job_dir).times_seen(job.epoch, here))
