"""One driver of a job: the steps of `Job`, with the parts of production, on a stage."""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.messages import INLINE, JobSpec, ScriptSpec
from daskprs._cluster import part_writers
from daskprs._cluster.cluster_slots import ClusterSlots
from daskprs._cluster.partition_feed import PartitionFeed
from daskprs._cluster.scheduler_plugin import LEAVES_WITHIN_S
from daskprs._cluster.slot_allocator import SlotAllocator
from daskprs._core.ending import Ending, JobStatus
from daskprs._core.spending import Spending
from daskprs._driver import dispatch
from daskprs._driver.inline_slots import InlineSlots
from daskprs._folders.job_lock import locked
from daskprs._folders.rows_seal import make_salt, rows_key
from daskprs._job.known_end import KnownEnd
from daskprs._options.time_rules import NEVER
from daskprs._output.journal.recovery import Resumption
from daskprs._output.store import ResultStore
from daskprs._system.file_lock import boot_id
from daskprs._system.hidden_values import HiddenValues
from daskprs._system.interrupts import (
    LateInterrupts,
    Terminated,
    sigterm_handled,
    sigterm_heard_by,
)
from tests.simulation.client import Client
from tests.simulation.endpoints import TOKENS
from tests.simulation.far import CODE, SCRIPT, SNAPSHOT, Reader
from tests.simulation.items import REFUSED
from tests.simulation.keys import brought_together, may_end
from tests.simulation.left_out import fitting_limits
from tests.simulation.partitions import know_all, source_of
from tests.simulation.promises import CheckedLedger, Listener, Ruled, demand
from tests.simulation.scenario import AT_WORK, ENDING, OPENING, PUBLISHING, Scenario
from tests.simulation.usage import check_usage
from tests.simulation.world import EPOCH_S, Process, now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs._cluster.part_writers import PartWriters
    from daskprs._cluster.staged_work import StagedWork
    from daskprs._core.limits import Limits
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._driver.ports import Slots
    from daskprs._folders.job_folder import JobFolder
    from daskprs._inputs.collections.source import CollectionSource
    from daskprs._job.job_input import JobInput
    from tests.simulation.play import Stage

OVER_WITHIN_S = 10.0
"""Seconds from SIGTERM to the kill that follows it in a container."""
ALL_REFUSED = "the endpoint wanted fewer requests"
STOPS = {"stop driver", "second driver", "stop worker"}
"""What may delay the end: a driver waits 10 s for a worker that has stopped just now.

So may far hosts: it fetches the rest of their logs, and each call is four messages.
"""


class Driver:
    """A driver, from the lock of the folder to the end of its job.

    Parameters
    ----------
    stage
        Where the job is played.
    number
        Its number among the drivers of the seed.

    """

    def __init__(self, stage: Stage, number: int) -> None:
        self._stage = stage
        self.number = number
        self.process = Process(f"driver {number}")
        self.moment = OPENING
        """What the driver is at."""
        self.client: Client | None = None
        self.store: ResultStore | None = None
        """While it is open."""
        self.ledger: CheckedLedger | None = None
        self.has_failed = False
        """Whether the job is over budget."""
        self._writing: ExitStack | None = None
        """Ends what has parts written on the cluster."""
        self._source: CollectionSource | None = None
        self._known_before: dict[str, Any] = {}
        self._staged: StagedWork[Any] | None = None
        """The partitions that workers hold, or the parts of rows by key."""
        self._keys: JobInput | None = None
        """What has brought rows together by key."""
        self._reader: Any = Reader()
        self._asked_s: float | None = None
        """When SIGTERM was heard."""
        self._interrupts = LateInterrupts(lambda: self._is_done)

    @property
    def _is_done(self) -> bool:
        return self.store is not None and self.store.done

    def drive(self) -> bool:
        """Do the job; return whether it is over: Completed, or over budget."""
        with sigterm_handled(), self._interrupts.ignored_once():
            try:
                return self._prepare_and_run()
            except Terminated:
                self._stage.books.count("driver terminated", self.moment)
                return self._is_done

    def _prepare_and_run(self) -> bool:
        stage, scenario = self._stage, self._stage.scenario
        stage.folder.create()
        with ExitStack() as stack:
            epoch = stack.enter_context(locked(stage.folder))
            make_salt(stage.folder, "salt")
            facts, plan = self._input(stage.folder, stack)
            self.store = store = ResultStore(
                stage.folder,
                epoch,
                scenario.spec,
                None if scenario.typed == "alone" else stage.target,
                {"input": facts, "script": "", "options": {}},
                resumption=Resumption(
                    plan,
                    stage.runs,
                    known_before=self._known_before,
                    isolates=scenario.isolates,
                ),
                overwrite=scenario.replaces,
                new_executor=self._new_writers,
            )
            stack.callback(store.close)
            job_id = f"job{self.number}"
            self.ledger = ledger = CheckedLedger(
                scenario,
                self._reported,
                store.recovered,
                stage.is_quiet,
                stage.script.caused,
                self._plan(plan, store, job_id),
                replace(self._limits(stage.folder), columns=store.columns_before),
                expected=None if scenario.partitions else scenario.count,
                seed=job_id,
                stages=scenario.stages,
                spending=Spending(
                    store.spent_before, store.useful_before, store.settled_before().succeeded
                ),
            )
            listeners: Any = Listener(stage.books, epoch, stage.disk.record)
            job = spec_of(job_id, stage.folder, epoch, scenario, self._reader)
            if stage.is_calm:
                job = job._replace(start_method=INLINE)
            try:
                with ExitStack() as self._writing:
                    ending = self._work(job, ledger, store, listeners)
            except Terminated:
                stage.books.count("driver terminated", self.moment)
                ending = Ending(JobStatus.INTERRUPTED, "")
            if self._is_done:  # a second signal does not undo the published output
                ending = Ending(JobStatus.COMPLETED)
            return self._settle(ending, ledger, store)

    def _work(
        self, job: JobSpec, ledger: CheckedLedger, store: ResultStore, listeners: Any
    ) -> Ending:
        """Settle every mini-batch, and publish the output."""
        stage, scenario = self._stage, self._stage.scenario
        end = KnownEnd(self._options())
        dispatcher = dispatch.Dispatcher(
            self._slots(job, listeners), ledger, store, listeners, job, end=end
        )
        self.moment = AT_WORK
        with sigterm_heard_by(partial(self._hear, dispatcher, end)):
            ending = dispatcher.run()
        if stage.server is not None:
            check_usage(stage, job.job_id, ledger, ending)
        strikes = {*map(itemgetter(1), scenario.strikes)}
        delays = bool(scenario.far) or not STOPS.isdisjoint(strikes)
        if self._asked_s is not None and not delays:
            over_s = now().now_s - self._asked_s
            within_s = OVER_WITHIN_S + LEAVES_WITHIN_S * ("stop scheduler" in strikes)
            demand(over_s < within_s, f"the driver is over {over_s:.1f} s after SIGTERM")
        if ending.status is JobStatus.COMPLETED:
            demand(not stage.left_out.is_over_budget(ledger), "a job over budget is Completed")
            self.moment = PUBLISHING
            store.write_failed()
            store.publish()
            stage.has_published = True
            self.moment = ENDING
        elif ending.status is JobStatus.INTERRUPTED:
            is_right = end().at_s is not None or self._may_be_cut_short(ending.reason, ledger)
            demand(is_right, f"a job without an end was interrupted: {ending.reason}")
        return ending

    def _may_be_cut_short(self, reason: str, ledger: CheckedLedger) -> bool:
        """Return whether an endpoint or a limit of usage may end the job; a resume may do more."""
        stage, scenario = self._stage, self._stage.scenario
        if stage.server is None:
            return False
        stage.books.count("job interrupted", reason.partition(":")[0].partition("=")[0])
        stage.server.pay()
        if ALL_REFUSED in reason:
            refused = {index for index, acts in scenario.bad.items() if REFUSED in acts}
            stage.server.check_refusals(scenario.limits.progress_update_timeout_s)
            if ledger.left_of(range(scenario.count)) <= refused:
                raise Ruled
            return True
        return any(why in reason for why in ("the quota of the endpoint", "usage_limits"))

    def _limits(self, folder: JobFolder) -> Limits:
        """Return the limits of the ledger, with what a resume was allowed to use more."""
        limits, server = fitting_limits(folder, self._stage.scenario.limits), self._stage.server
        if server is None or server.usage_limit is None:
            return limits
        return replace(limits, usage_limits=((TOKENS, server.usage_limit),))

    def _new_writers(self, attempts: Path) -> PartWriters | None:
        """Return what has parts written on the cluster; None where the driver writes them."""
        stage = self._stage
        if self.client is None or self._writing is None:
            return None
        part_writers.SMALL_BYTES = stage.scenario.small_bytes
        folder, timeout_s = stage.folder, stage.scenario.limits.load_timeout_s
        made = part_writers.PartWriters(self.client, folder, attempts, timeout_s, self._say)  # type: ignore[arg-type]
        return self._writing.enter_context(made)

    def _say(self, level: str, told: str) -> None:
        """Count what became of parts."""
        del told
        is_written = level == "debug"
        self._stage.books.count(f"part: {'by a worker' if is_written else 'given up by one'}")

    def _hear(self, dispatcher: dispatch.Dispatcher, end: KnownEnd) -> bool:
        self._asked_s = now().now_s
        return dispatcher.is_open and end.hear_sigterm()

    def _options(self) -> Any:
        """Return the options that say when the job ends: the first driver may have a deadline."""
        ends_s = None if self._stage.is_calm or self.number > 1 else self._stage.scenario.ends_s
        moment = NEVER if ends_s is None else datetime.fromtimestamp(EPOCH_S + ends_s).astimezone()
        return SimpleNamespace(deadline=moment)

    def _settle(self, ending: Ending, ledger: CheckedLedger, store: ResultStore) -> bool:
        """Note how the job has ended; return whether it is over."""
        stage = self._stage
        if ending.status is not JobStatus.COMPLETED:
            store.write_failed()
        if ending.status is JobStatus.FAILED:
            self.has_failed = stage.left_out.is_over_budget(ledger)
            stage.books.count("job failed", "too many failures" if self.has_failed else "")
            is_known = self.has_failed or (stage.scenario.init_fails and not stage.is_calm)
            demand(is_known, f"the job failed: {ending}")
            return self.has_failed
        store.end({"status": ending.status.value})
        store.drop_output()
        if ending.status is JobStatus.INTERRUPTED:
            stage.books.count("job interrupted")
        return ending.status is JobStatus.COMPLETED

    def _slots(self, job: JobSpec, listeners: Any) -> Slots:
        """Return the slots of the cluster, or those of the driver where there is none."""
        stage = self._stage
        if stage.is_calm:
            return InlineSlots(job, threads=1)
        client, nodes = self._connected(), SlotAllocator(None, None, 0.0, job.stages)
        return ClusterSlots(client, job, nodes, listeners, self._staged)  # type: ignore[arg-type]

    def _connected(self) -> Client:
        """Return the client of the driver."""
        if self.client is None:
            self.client = Client(self.process, self._stage.cluster, f"client-{self.number}")
            self._stage.clients.append(self.client)
        return self.client

    # ---- the input ----

    @property
    def _reported(self) -> set[int]:
        """The commits that have to be there.

        Of a collection, a driver that was cut off may know partitions that the table lacks, which
        the newer one has written anew: their mini-batches run again.
        """
        stage = self._stage
        is_apart = bool(stage.scenario.partitions and stage.disk.cut_off)
        return set() if is_apart else stage.books.reported

    def _input(
        self, folder: JobFolder, stack: ExitStack
    ) -> tuple[dict[str, Any], Callable[[], Iterator[MiniBatch]]]:
        """Return the facts about the input, and what makes its plan as far as it is known."""
        scenario = self._stage.scenario
        if scenario.keyed is not None:
            return self._brought_together(folder, stack)
        if not scenario.partitions:
            return {}, lambda: iter(scenario.plan())
        self._source = source = source_of(scenario, folder.scratch)
        if self._stage.is_calm:
            know_all(source, scenario)
        else:
            demand(not source.unknown(), "partitions before the last known one are not known")
        self._known_before = source.compare(extends=False)
        return source.fingerprint(), source.mini_batches

    def _brought_together(
        self, folder: JobFolder, stack: ExitStack
    ) -> tuple[dict[str, Any], Callable[[], Iterator[MiniBatch]]]:
        """Bring the rows of each key together: no loss of workers ends that."""
        stage = self._stage
        connected = None if stage.is_calm else self._connected
        try:
            source, self._keys = brought_together(stage.scenario, folder.scratch, stack, connected)
        except Exception as error:
            may_fail = may_end(error, is_struck=bool(stage.disk.struck))
            # A second driver removes what this one has brought together, if it has lost its locks.
            may_fail |= bool(stage.disk.cut_off) and isinstance(error, FileNotFoundError)
            demand(may_fail, f"rows were not brought together: {error!r}")
            raise
        self._reader = source.reader()
        return source.fingerprint(), source.mini_batches

    def _plan(
        self, plan: Callable[[], Iterator[MiniBatch]], store: ResultStore, job_id: str
    ) -> Iterator[MiniBatch | None]:
        """Return the plan; that of a collection grows on a cluster."""
        if self._keys is not None:
            planned = self._keys.plan(store)
            self._staged = self._keys.staged
            return planned
        if self._source is None or self._stage.is_calm:
            return plan()
        self._staged = feed = PartitionFeed(self._source, job_id, store.is_settled)
        return feed.plan()


def spec_of(job_id: str, folder: JobFolder, epoch: int, scenario: Scenario, reader: Any) -> JobSpec:
    """Return what agents receive; there is a script to send where hosts do not see the folder."""
    source_directory = None
    if scenario.far:
        source_directory = str(folder.snapshot / SNAPSHOT)
        Path(source_directory).mkdir(exist_ok=True, parents=True)
        Path(source_directory, SCRIPT).write_text(CODE)
    return JobSpec(
        job_id=job_id,
        script=ScriptSpec(SCRIPT, source_directory=source_directory),
        arguments=(),
        environment=HiddenValues({}),
        reader=pickle.dumps(reader),
        unit="row",
        output=scenario.spec._replace(key=rows_key(folder)),
        job_dir=str(folder),
        epoch=epoch,
        boot_id="" if scenario.is_elsewhere else boot_id(),
        output_dir="",
        logging_level="INFO",
        start_method="fork",
        limits=scenario.limits,
        calls=scenario.calls,
        stages=scenario.stages,
        rate_limit=None if scenario.endpoint is None else scenario.endpoint.limit,
    )
