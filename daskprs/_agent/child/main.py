"""The agent: the process that runs a person's entry script, and nothing else.

It speaks the protocol of `agent.protocol.messages` with its supervisor (`agent.supervision`), and
writes each activity to the shared page before it begins. It catches every exception of the script,
`BaseException` too, and sends it as class name, message and traceback text, never as a pickle.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import time
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from daskprs._agent.child import call_lines
from daskprs._agent.child.attempt_run import AttemptRun
from daskprs._agent.child.debugging import forget
from daskprs._agent.child.entry_script import load_entry_script
from daskprs._agent.child.failure import failure_of, may_pass
from daskprs._agent.child.forks import call_in_forks, end_fork_of
from daskprs._agent.child.inbox import Inbox, Loader
from daskprs._agent.child.lifetime import Lifetime
from daskprs._agent.child.outbox import MemoryReserve, Outbox
from daskprs._agent.child.peak_memory import PeakMemory
from daskprs._agent.child.pieces_run import with_failed_rows
from daskprs._agent.child.print_marks import OWN, PrintMarks
from daskprs._agent.child.script_calls import ScriptCalls, completed
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
)
from daskprs._core.soundness import Soundness
from daskprs._inputs.source.source import PathsReader
from daskprs._output.spool import AgentSpool
from daskprs._system.file_lock import boot_id
from daskprs._system.masks import masked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator
    from multiprocessing.connection import Connection

    from daskprs._agent.child.debugging import Raised
    from daskprs._agent.child.entry_script import ScriptFunctions
    from daskprs._agent.child.foreign_script import ForeignScript
    from daskprs._agent.child.print_marks import Streams
    from daskprs._agent.child.several_calls import SeveralCalls
    from daskprs._agent.protocol.messages import JobSpec, ProcessSpec
    from daskprs._core.calls import Calls

EXIT_ORDERLY = 0
EXIT_INIT_FAILED = 41
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
    except BaseException as error:  # noqa: BLE001 - the end of an interpreter would wait for threads
        reserve.end(error)


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
    with ExitStack() as at_end:  # it closes what the end of a process would close
        start, pid = connection.recv(), os.getpid()
        connection.send_bytes(dumped(Started(PROTOCOL)))
        page.enter(Phase.INIT)
        begun = time.perf_counter()
        try:
            agent = Agent(start, connection, page, reserve, streams, raised, at_end)
            agent.called(agent.entry.init)
            if start.job.start_method == INLINE:
                agent.called(agent.entry.prepare)
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
        self._job, self._at_end, self._pid = start.job, at_end, os.getpid()
        self._soundness = Soundness()
        calls = start.job.calls
        # Before the script is imported, as the threads below.
        self._calls = None if calls is None else _several(calls, page, reserve, self._soundness)
        self._coroutines = None if self._calls is None else self._calls.coroutines
        # Several calls cannot append to one spool at the same time.
        spool = start.process.spool if calls is None else None
        agent_spool = None if spool is None else AgentSpool(spool)
        if agent_spool is not None:
            call_in_forks(agent_spool.forget)
            at_end.callback(agent_spool.forget)
        self._connection = connection
        self._page, self._peak = page, PeakMemory(page)
        self._outbox = Outbox(connection, reserve, agent_spool, of_calls=calls is not None)
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
        self.entry = _loaded(start.job, start.process)
        _compare_times_here(start.job)
        self._loader.reader = reader = pickle.loads(start.job.reader)
        if not self._has_process:  # else its end closes the files, also under the loader's thread
            at_end.callback(reader.close)
        if start.job.batch_form is not None:
            start.job.batch_form.prepare()
            self._loader.form = start.job.batch_form.of
        self._lifetime = Lifetime(start.job.limits)
        self._has_told_columns = False
        if calls is not None and isinstance(reader, PathsReader):
            reader.expect(calls.at_once)
        self._script = ScriptCalls(
            start,
            page,
            reserve,
            self._peak,
            self._outbox,
            agent_spool,
            raised,
            self.entry,
            reader,
            self._calls,
            self._in_loop,
            self._note,
        )

    def serve(self) -> Generator[bool, None, int]:
        """Work until the supervisor sends `Stop`; the steps are those of `steps`."""
        self._print_marks.move()  # beyond what import and init() have printed
        try:
            if self._calls is not None:
                from daskprs._agent.child.several_calls import OfAgent

                self._page.mark_printed(UNKNOWN, UNKNOWN)
                self._calls.serve(
                    self._connection,
                    OfAgent(
                        self._inbox,
                        self._outbox,
                        self._loader,
                        self._peak,
                        self._script.begin,
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
        self._script.end()
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
            self._script.begin(attempt)
            attempt.data, attempt.load_error = self._loader.take(inbox.position, assigned)
            inbox.look_ahead()
            outcome, payload = completed(self._script.make(attempt))
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
        outcome, payload = await self._script.make(attempt)
        outcome = self._with_columns(outcome, attempt)
        if attempt.named:
            named = partial(self._with_named, outcome, attempt)
            outcome = await self._script.apart(named, attempt)
        return outcome, payload

    def _note(self, text: str) -> None:
        """Tell people something; it is in the log as well."""
        text = self._job.script.as_written(text)
        sys.stderr.write(f"daskprs: {text}\n")
        self._outbox.note(masked(text))

    def called(self, function: Callable[[], Any]) -> Any:
        """Call a function of the script, and await what it returns if that can be."""
        result = function()
        return self._in_loop(result) if inspect.isawaitable(result) else result

    def _in_loop(self, awaitable: Awaitable[Any]) -> Any:
        """Run a coroutine of the script to its end."""
        if self._coroutines is None:
            from daskprs._agent.child.coroutines import Coroutines

            self._coroutines = Coroutines()
            if not self._has_process:  # else it ends with the process
                self._at_end.callback(self._coroutines.close)
        return self._coroutines.result(awaitable)

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


# What few scripts need is imported here: all else would make the start of each job longer.


def _several(calls: Calls, *given: Any) -> SeveralCalls:
    """Return what makes several calls of `run` at the same time."""
    if calls.is_async:
        from daskprs._agent.child.call_tasks import CallTasks

        return CallTasks(calls.at_once, *given)
    from daskprs._agent.child.call_threads import CallThreads

    return CallThreads(calls.at_once, *given)


def _loaded(job: JobSpec, process: ProcessSpec) -> ScriptFunctions | ForeignScript:
    """Return the functions of the script, under the interpreter that it wants."""
    if job.python is None:
        return load_entry_script(job, process)
    from daskprs._agent.child.foreign_script import ForeignScript

    return ForeignScript(job, process)


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
        from daskprs._folders.job_folder import JobFolder
        from daskprs._inputs.files.file_versions import compare_with_times_seen

        # Containers of one machine may share the folder, but each have their own replica.
        mounts = os.stat("/proc/self/ns/mnt").st_ino  # noqa: PTH116 - not a file
        here = f"{boot_id()}.{mounts}"
        compare_with_times_seen(JobFolder(job.job_dir).times_seen(job.epoch, here))
