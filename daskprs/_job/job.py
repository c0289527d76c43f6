"""One job in the driver: check, prepare, run, publish and report."""

from __future__ import annotations

import time
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from daskprs._agent.node.environment import usable_cores
from daskprs._agent.protocol.messages import INLINE, JobSpec
from daskprs._core.ending import INPUT_HAS_CHANGED, Ending, JobStatus
from daskprs._core.events import JobEnded, JobStarted
from daskprs._core.ledger import Ledger
from daskprs._core.outcomes import input_changed
from daskprs._core.pieces import Pieces
from daskprs._core.plan_entries import with_first_item_deadline
from daskprs._core.spending import Spending
from daskprs._driver.dispatch import Dispatcher
from daskprs._folders.job_lock import begun_epochs, has_begun, locked
from daskprs._folders.row_labels import drop_labels, prepared_labels
from daskprs._folders.rows_seal import make_salt
from daskprs._job.control import JobControl
from daskprs._job.costing import CostingControl, costing_call, costs_in
from daskprs._job.fitting_size import keep_size, known_size_told
from daskprs._job.frontend import Surface
from daskprs._job.inline_call import ErrorsHere, inline_warning
from daskprs._job.job_cluster import JobCluster
from daskprs._job.job_end import JobEnd, result_of, status_by
from daskprs._job.job_input import JobInput
from daskprs._job.job_spec import job_spec, limits_of
from daskprs._job.job_store import open_store
from daskprs._job.kept_objects import keep_objects
from daskprs._job.known_end import TERMINATED, KnownEnd
from daskprs._job.leftovers import drop_and_tell
from daskprs._job.prestart import agent_count
from daskprs._job.publisher import Publisher
from daskprs._job.report_process import start_report
from daskprs._job.request import files_of_variables, keep_call, refuse_an_old_folder
from daskprs._job.usage import Usage
from daskprs._options.output_path import in_terms_of
from daskprs._output.publish.output_file import make_output_dir
from daskprs._report.advisor import Advisor
from daskprs._report.exporters import active_mlflow_run, exporters_of
from daskprs._report.job_logs import end_message, versions_text
from daskprs._report.listeners import (
    Listener,
    Listeners,
    listeners_of,
    report_preparation,
)
from daskprs._system.disk_space import is_of_disk, no_disk_to_begin
from daskprs._system.interrupts import (
    LateInterrupts,
    Terminated,
    held_back,
    sigterm_handled,
    sigterm_heard_by,
)
from daskprs._system.remove_tree import remove_tree
from daskprs._system.scarcity import explain
from daskprs.errors import (
    AgentError,
    DaskprsError,
    InputChanged,
    JobChanged,
    Option,
    OutputError,
    ParallelRunCanceled,
    ParallelRunFailed,
    ParallelRunInterrupted,
    ScriptError,
    worded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from distributed import Client

    from daskprs._agent.child.debugging import Raised
    from daskprs._core.outcomes import Failure
    from daskprs._driver.ports import Slots
    from daskprs._inputs.costs import Costs, CostSource
    from daskprs._inputs.source.source import TableSource
    from daskprs._job.request import CheckedCall
    from daskprs._job.result import ParallelRunResult
    from daskprs._output.store import ResultStore
    from daskprs._report.progress_bar import Display


class Job:
    """A checked call of `parallel_run`.

    `surface` is its front end, Python or the command line, which words the next steps. By `control`
    another thread reads the progress, and cancels the job. `display` shows the job, in place of one
    that the thread of the job would open. `raised` is called with each exception of the script,
    while its frames are there, where the script works in this process.
    """

    def __init__(
        self,
        call: CheckedCall,
        surface: Surface | None = None,
        control: JobControl | None = None,
        display: Display | None = None,
        raised: Raised | None = None,
    ) -> None:
        self._surface = surface or Surface()
        self._control = control or JobControl()
        self._display = display
        self._errors = ErrorsHere(raised)
        self._call = call
        self._mlflow_run = active_mlflow_run()  # now: it is that of the caller's thread
        self._store: ResultStore | None = None
        self._cluster = JobCluster(call.client, agent_count(call.options))
        self._input: JobInput
        """What the source has of the job's cluster, and the plan."""
        self._end: JobEnd | None = None
        self._headline: Failure | None = None
        """The error that counts, once the job has ended."""
        self._advisor = Advisor(self._surface.option)
        self._interrupts = LateInterrupts(lambda: self._done)
        self._writing: tuple[Client, ExitStack, Callable[[str, str], None]] | None = None
        """The client while there is one, what ends before it, and what tells people a message."""

    def run(self) -> ParallelRunResult:
        """Run the job, and return the result or raise it."""
        call = self._call
        with sigterm_handled(), self._cluster, self._interrupts.ignored_once():
            try:
                end = self._prepare_and_run()
            except (OSError, RuntimeError) as error:
                if isinstance(error, OSError) and is_of_disk(error):
                    raise OutputError(self._no_disk(error)) from error
                limit = explain(error)
                if not limit:
                    raise
                msg = f"the job could not be started: {error}. {limit}"
                raise AgentError(msg) from error
            except KeyboardInterrupt as interrupt:
                nothing = result_of(call, status_by(interrupt).value)
                end = self._end or JobEnd.early(nothing, str(interrupt))
        start_report(call.folder, call.options.report, end.result)
        try:
            return end.told()
        except ParallelRunFailed as error:
            raise error from self._errors.cause(self._headline)

    def _no_disk(self, error: OSError) -> str:
        """Return the message for a disk that is full, or fails, while the job is prepared."""
        call = self._call
        next_step = "call the job again, with the same folder"
        if has_begun(call.folder):
            next_step = f"resume the job: {self._resume()}"
        return no_disk_to_begin(call.folder.path, error, call.source.needed_bytes, next_step)

    def _prepare_and_run(self) -> JobEnd:
        call = self._call
        if isinstance(call.client, str) and not self._is_inline:
            with held_back():
                from daskprs._cluster.connect import check_scheduler

            check_scheduler(call.client)
        call.folder.refuse_files_in_the_way()
        closed = call.folder.create(shared=call.options.shared)
        call.script.look(exclude=call.own_places)
        with ExitStack() as stack:
            epoch = stack.enter_context(locked(call.folder))
            refuse_an_old_folder(call.folder, call.options)  # since the call was checked
            make_salt(call.folder)
            is_new = not has_begun(call.folder)
            if is_new:  # else it is kept once it is not refused
                keep_call(call.folder, call.kept)
            make_output_dir(call.output_dir)
            options = call.options
            exporters, missing = exporters_of(call.folder, self._mlflow_run, options.metrics_file)
            heard: list[Listener] = [self._control, self._advisor, *exporters]
            heard += listeners_of(
                call.folder,
                progress=options.progress,
                show_output=options.show_output and not self._is_inline,  # it is shown already
                display=self._display,
            )
            listeners = Listeners(heard, call.folder)
            self._advisor.tell_job = listeners.tell
            stack.callback(listeners.close)
            listeners.say("info", f"versions: {versions_text()}")  # the first line of a driver
            is_told = call.script.cost  # by the job that needs the costs
            inline = "" if is_told else inline_warning(call.options, call.client)
            for warning in filter(None, (closed, call.warning, inline)):
                self._say(listeners, "warning", warning)
            for notice in self._notices(is_new=is_new):
                self._say(listeners, "notice", notice)
            if call.listed:
                listeners.say("info", f"input: {call.listed}")
            for why in missing:
                listeners.say("info", why)
            drop_labels(prepared_labels(call.folder.scratch))  # of a job that was refused
            for half in call.folder.scratch.glob(".*.part"):  # of a driver that was killed
                half.unlink(missing_ok=True)
            report = report_preparation(listeners, lambda: call.source.how_far)
            self._input = JobInput(call, self._cluster, stack, listeners, self._costs)
            with report, self._control.prepares():
                call.source.begin(self._input)
            for note in self._input.notes():
                self._say(listeners, "notice", note)
            try:
                self._store = store = open_store(
                    call,
                    epoch,
                    self._input,
                    listeners,
                    self._new_writers,
                    self._control.check,
                )
            except OutputError as error:
                raise in_terms_of(call.options["output"], error) from None
            stack.callback(store.close)
            keep_call(call.folder, call.kept)
            return self._run(store, listeners)

    def _say(self, listeners: Listeners, level: str, message: str) -> None:
        """Send a message for people, with options as the front end of the job writes them."""
        listeners.say(level, worded(message, self._surface.option))

    # ---- before ----

    def _costs(self, source: CostSource, blocks: TableSource) -> Iterator[Costs]:
        """Let a job of its own ask the function of the script what the rows of blocks cost."""
        try:
            call = costing_call(self._call, source, blocks)
            try:
                Job(call, self._surface, CostingControl(source)).run()
            except JobChanged:  # what an earlier run has found out is of another script
                remove_tree(call.folder.path)
                call = costing_call(self._call, source, blocks)
                Job(call, self._surface, CostingControl(source)).run()
        except ParallelRunCanceled as error:
            raise KeyboardInterrupt from error
        except ParallelRunInterrupted as error:
            why = str(error).partition("\n")[0].partition(": ")[2].rstrip(".")
            told = f"no mini-batch has run, since the costs of the rows are not known: {why}"
            raise Terminated(told) from error
        except ParallelRunFailed as error:
            cause = str(error).partition("\n")[0].rstrip(".")
            told = (
                f": the costs of the rows are not known, and no mini-batch has run. {cause}. The "
                f"tracebacks are in {call.folder.logs}."
            )
            raise ScriptError(Option("mini_batch_cost", source.cost), told) from error
        yield from costs_in(call.folder, blocks)
        remove_tree(call.folder.path)

    def _notices(self, *, is_new: bool) -> Iterator[str]:
        """Yield what the options of the call do not do, though its author may think so."""
        options, folder = self._call.options, self._call.folder
        if options.preload and not options.imported_once and not self._is_inline:
            yield f"{Option('preload')} has no effect here: each process does all imports."
        # The driver of a detached job always resumes it: it may follow another one.
        is_asked = options.resume and not (self._call.script.cost or folder.detached.exists())
        if is_asked and is_new:
            yield f"there is no job in {folder} to go on with: a new one begins"

    @property
    def _is_inline(self) -> bool:
        """Whether the script works in this process and thread."""
        return self._call.options.start_method == INLINE

    @property
    def _done(self) -> bool:
        """Whether the result store and the upload, if any, are done."""
        remote = self._call.remote
        return self._store is not None and self._store.done and (remote is None or remote.done)

    # ---- the work ----

    def _run(self, store: ResultStore, listeners: Listeners) -> JobEnd:
        call = self._call
        expected, before = call.source.count(), store.settled_before()
        limits = replace(limits_of(call), columns=store.columns_before)
        started = JobStarted(
            call.job_id,
            call.script.name,
            call.source.unit,
            time.time(),
            expected,
            any(epoch < store.epoch for epoch in begun_epochs(call.folder)),
            call.options.changed(),
            limits,
            self._input.sizes(expected, store),
            before.succeeded,
        )
        within_s = limits.first_task_creation_timeout_s
        ledger = Ledger(
            with_first_item_deadline(self._input.plan(store), within_s, self._input.unmet_need),
            limits,
            recovered=store.recovered,
            expected=expected,
            first_process=call.folder.next_process,
            seed=call.job_id,
            stages=call.options.stages,
            spending=Spending(store.spent_before, store.useful_before, before.succeeded),
            pieces=None if call.items is None else Pieces((call.items,)),
            before=before,
            ahead=expected is None,
        )
        try:
            with held_back():  # who has not heard of the start hears no end
                listeners.tell(started)
            if (at_most := limits.at_most) is not None:
                listeners.say("info", known_size_told(at_most))
            ending = self._work(ledger, store, listeners)
        except KeyboardInterrupt as interrupt:
            status = status_by(interrupt)
            why = TERMINATED if status is JobStatus.INTERRUPTED else "it was interrupted"
            ending = _ended(ledger, why, status)
        except InputChanged as error:
            ending = _ended(ledger, INPUT_HAS_CHANGED)._replace(failure=input_changed(error))
        except DaskprsError as error:
            told = error
            if isinstance(error, OutputError):
                told = in_terms_of(call.options["output"], error)
            reason = call.mask.text(told.worded(self._surface.option))
            ending = _ended(ledger, reason)
        except Exception as error:  # noqa: BLE001 - the cluster has gone, say: the job has a result
            limit = explain(error)
            reason = call.mask.text(f"{type(error).__name__}: {error}")
            reason = f"{reason.rstrip('.')}. {limit}" if limit else reason
            listeners.say("debug", call.mask.text(traceback.format_exc()))
            ending = _ended(ledger, reason)
        if self._done:  # a second Ctrl-C does not undo the published output
            ending = Ending(JobStatus.COMPLETED)
        ending = ending._replace(has_rest=call.remote is not None and call.remote.has_rest)
        return self._settle(ending, ledger, store, listeners)

    def _work(self, ledger: Ledger, store: ResultStore, listeners: Listeners) -> Ending:
        """Settle every mini-batch on the available cluster, and publish the output."""
        job = job_spec(self._call, store.epoch)
        with self._slots(job, listeners) as slots:
            end = KnownEnd(self._call.options)
            check = self._control.check
            dispatcher = Dispatcher(slots, ledger, store, listeners, job, check, end=end)

            def hears() -> bool:
                # In this process, the script itself has to be interrupted: it takes what it takes.
                # And a session may wait for a scheduler that has stopped, before the loop begins.
                return not self._is_inline and dispatcher.is_open and end.hear_sigterm()

            with sigterm_heard_by(hears):
                ending = dispatcher.run()
            if ending.status is JobStatus.COMPLETED:
                publisher = Publisher(self._call, store, listeners)
                why_not = publisher.publish(self._input, ledger)
                ending = _ended(ledger, why_not) if why_not else Ending(JobStatus.COMPLETED)
            return ending

    @contextmanager
    def _slots(self, job: JobSpec, listeners: Listeners) -> Iterator[Slots]:
        """Yield the slots of the job: those of a cluster, or the one of this process."""
        options = self._call.options
        if job.start_method == INLINE:
            from daskprs._driver.inline_slots import InlineSlots

            yield InlineSlots(job, usable_cores(), self._errors.take)
            return
        with self._cluster.connected() as client, ExitStack() as writers:
            from daskprs._cluster.cluster_slots import ClusterSlots
            from daskprs._cluster.slot_allocator import SlotAllocator

            self._writing = client, writers, listeners.say
            writers.callback(setattr, self, "_writing", None)
            nodes = SlotAllocator(
                options.node_count,
                options.process_count_per_node,
                job.limits.gpus_per_process,
                job.stages,
            )
            yield ClusterSlots(client, job, nodes, listeners, self._input.staged)

    def _new_writers(self, attempts: Path) -> Executor | None:
        """Return what has parts of a data set written on the job's cluster, while there is one."""
        if self._writing is None:
            return None
        from daskprs._cluster.part_writers import PartWriters

        client, writers, say = self._writing
        timeout_s = limits_of(self._call).load_timeout_s
        made = PartWriters(client, self._call.folder, attempts, timeout_s, say)
        return writers.enter_context(made)

    # ---- after ----

    def _ways_to_go_on(self, ending: Ending) -> tuple[str, str]:
        """Return what resumes the job, and what does so after script or input was mended."""
        if ending.of_changed_input:
            return self._resume("input"), ""
        again = dict(ending.again)
        mended = self._resume(ending.to_mend, **again) if ending.to_mend else ""
        return self._resume(**again), mended

    def _resume(self, accept: str = "", **again: Any) -> str:
        """Return what resumes the job, as `Surface.resume`."""
        files = files_of_variables(self._call.kept)
        return self._surface.resume(self._call.folder.path, accept, **again, **files)

    def _settle(
        self, ending: Ending, ledger: Ledger, store: ResultStore, listeners: Listeners
    ) -> JobEnd:
        """Determine the end of the job, and then report it."""
        if ending.status is not JobStatus.COMPLETED:
            Publisher(self._call, store, listeners).write_failed()
        self._keep_for_replay(ending, store, listeners)
        with held_back():
            standing = ledger.standing()
            done, items = standing.of_plan, standing.items
            output = self._output_file(store)
            result = result_of(self._call, ending.status.value, done, items, output)
            result = replace(
                result,
                left_out=standing.left_out,
                renewals=standing.renewals,
                throttled=standing.throttled,
                not_returned=standing.not_returned,
                advice=self._advisor.advice(result.elapsed_s),
                usage=Usage.of(standing.spent, standing.useful),
            )
            if of_run := ledger.spending.of_run:
                store.note_usage(of_run)
            self._headline = ending.failure
            ways = self._ways_to_go_on(ending)
            why_by = self._surface.report(self._call.folder.path)
            ended = JobEnded(ending, standing, result.elapsed_s, str(output or ""), *ways, why_by)
            end = self._end = JobEnd(result, end_message(ended, self._call.folder))
            failure = ending.failure
            why = {"reason": ending.reason, "again": dict(ending.again)}
            if failure is not None:
                why["error"] = [failure.kind, failure.message]
            store.end(result.record() | why)
            keep_size(self._call)
        if self._interrupts.taken:
            listeners.say("warning", "An interrupt came too late: all is published.")
        if result.advice and ending.status is JobStatus.COMPLETED:
            self._advisor.tell_new()
        listeners.tell(ended)
        if complaint := store.drop_output():
            listeners.say("warning", complaint)
        retain = self._call.options.retain
        if ending.status is JobStatus.COMPLETED and not store.failed and retain != "all":
            drop_and_tell(self._call.folder, partial(self._say, listeners))
        return end

    def _keep_for_replay(self, ending: Ending, store: ResultStore, listeners: Listeners) -> None:
        """Keep what repeating the first failure needs of the caller."""
        call, failed = self._call, store.failed
        nothing = ending.failure is None and not failed
        if call.script.cost or ending.of_changed_input or nothing:
            return
        try:
            why = keep_objects(call, failed)
        except OSError as error:
            why = str(error)
        if why:
            told = f"the objects of the call are not kept for a replay: {call.mask.text(why)}"
            listeners.say("info", told)

    def _output_file(self, store: ResultStore) -> Path | str | None:
        """Return the path of the output; None until it exists."""
        remote = self._call.remote
        if remote is None:
            return store.published
        return remote.file if remote.done else None


def _ended(ledger: Ledger, reason: str, status: JobStatus = JobStatus.FAILED) -> Ending:
    return Ending(status, reason, ledger.headline, ledger.errors)
