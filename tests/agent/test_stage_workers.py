"""The stage processes of a slot: how they come up, and what becomes of tasks that none begins."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from daskprs._agent.supervision import far_stages, stage_worker
from daskprs._agent.supervision.far_stages import HostedStages, Preprocessed
from daskprs._agent.supervision.stage_run import StageRun
from daskprs._agent.supervision.stage_worker import (
    StageFile,
    StagesNotReady,
    StageTask,
    StageWorker,
)
from daskprs._agent.supervision.stage_workers import StageWorkers
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import AgentExited, Death, InitFailed, Lease, LeaseReturned
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Results, Status
from daskprs._core.stages import POSTPROCESS, PREPROCESS, StageHost, Stages
from daskprs.errors import AgentError
from tests.support.polling import poll_for


class Process:
    """A slot whose process comes up or not, and ends before it begins anything."""

    fails: set[str] = set()  # noqa: RUF012 - a stand-in
    hangs = False
    is_staffed, function = True, "run"

    def __init__(self, employ: Any) -> None:
        del employ
        self._killed = threading.Event()

    def run(self, lease: Lease) -> LeaseReturned:
        """Start the process, or end it."""
        assert lease.assignment is not None
        name = lease.assignment.process
        if self.hangs:
            self._killed.wait()
        if self.hangs or name in self.fails:
            failed = InitFailed(name, Failure("OSError", "no codec"), 0.1)
            return LeaseReturned(lease.id, name, agent_events=(failed,))
        work = tuple(lease.work.column("mini_batch.index"))
        died = AgentExited(name, 7, "it exits with returncode 7", expected=False)
        return LeaseReturned(lease.id, name, untouched=work, agent_events=(died,) if work else ())

    def kill(self) -> None:
        """End the process."""
        self._killed.set()

    def stop(self) -> tuple[()]:
        """Return nothing."""
        return ()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> type[Process]:
    """Return the class of stand-ins for slots."""
    kind = type("OneOf", (Process,), {})
    monkeypatch.setattr(stage_worker, "Slot", kind)
    return kind


def workers_of(count: int) -> StageWorkers:
    """Return the processes beside `process000`."""
    return StageWorkers(Any, 0, "process000", {}, count)  # type: ignore[arg-type]


def test_one_that_does_not_come_up_is_reported_and_the_others_work(process: type[Process]) -> None:
    """If none comes up, the start has failed."""
    process.fails = {"process000-00"}
    workers = workers_of(2)
    workers.wait_until_ready()
    workers.stop()
    process.fails = {"process000-00", "process000-01"}
    workers = workers_of(2)
    with pytest.raises(StagesNotReady, match="no codec"):
        workers.wait_until_ready()
    assert workers.are_lost
    assert [type(one) for one in workers.taken_events()] == [InitFailed]
    workers.stop()


@pytest.mark.usefixtures("process")
def test_a_task_that_no_process_begins_ends_all() -> None:
    """They are not started again without end."""
    workers = workers_of(2)
    workers.wait_until_ready()
    workers.give(StageTask(Assigned(MiniBatch(3, None, ""), 1), PREPROCESS, None, None))
    with pytest.raises(StagesNotReady, match="it exits with returncode 7"):
        workers.taken(within_s=60.0)
    workers.stop()


def test_the_end_does_not_wait_for_init(process: type[Process]) -> None:
    """Nobody needs the process any more."""
    process.hangs = True
    workers = workers_of(3)
    workers.stop()
    assert workers.taken_events() == ()


@pytest.mark.usefixtures("process")
def test_a_lease_that_ends_after_its_pool_keeps_no_process() -> None:
    """It drops the tasks that wait, and no more than these."""
    workers = workers_of(2)
    workers.wait_until_ready()
    with workers._change:  # no thread of a process sees the end before the lease
        workers.close()
        workers.drop()
    assert poll_for(lambda: not any(thread.is_alive() for thread in workers._workers.values()))


class Works(Process):
    """A slot whose process does what it is given."""

    def run(self, lease: Lease) -> LeaseReturned:
        """Do it."""
        made = tuple(outcome_of(one) for one in lease.work)
        results = (Results(ColumnBatch(made)),) if made else ()
        return LeaseReturned(lease.id, "", results=results)


def outcome_of(assigned: Assigned, status: Status = Status.RUN_DONE) -> Outcome:
    """Return the outcome of a stage of a mini-batch."""
    return Outcome(assigned.mini_batch.index, 1, status, 5, 5, 0.0, 0.0, 0.0, 0.0)


def test_what_ended_for_a_lease_that_is_over_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be large, and the next agent takes its time to come up. An error stays."""
    monkeypatch.setattr(stage_worker, "Slot", Works)
    workers = workers_of(1)
    files = [StageFile() for _ in range(3)]
    for index, file in enumerate(files):
        assigned = Assigned(MiniBatch(index, None, ""), 1)
        workers.give(StageTask(assigned, PREPROCESS, None, file))
    assert poll_for(lambda: workers._ended.qsize() == 3)
    workers._tell(OSError("no more threads"))
    workers.drop_ended()
    assert not any(file._close.alive for file in files)
    with pytest.raises(OSError, match="no more threads"):
        workers.taken()
    workers.stop()


class Counts(Process):
    """A slot whose process counts, and dies of its mini-batch; then the next one does not start."""

    def run(self, lease: Lease) -> LeaseReturned:
        """Die, and then wait for a start."""
        if not lease.work:
            return LeaseReturned(lease.id, "")
        if self.is_staffed:
            self.is_staffed = False
            died = AgentExited("process000-00", -9, "killed", expected=False)
            counted = died._replace(counted=(("tokens", 3.0),))
            return LeaseReturned(lease.id, "", agent_events=(counted,))
        self._killed.wait()
        return LeaseReturned(lease.id, "", agent_events=(InitFailed("", Failure("", ""), 0.1),))

    def counted(self) -> tuple[()]:
        """Return nothing: no process is there."""
        return ()


def test_what_a_process_has_counted_that_has_died_is_known_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit of usage depends on it, while the lease of the slot goes on."""
    monkeypatch.setattr(stage_worker, "Slot", Counts)
    workers = workers_of(1)
    workers.give(StageTask(Assigned(MiniBatch(0, None, ""), 1), PREPROCESS, None, None))
    assert poll_for(lambda: workers.counted() == [("process000-00", (("tokens", 3.0),))])
    workers.stop()


class Waits(Works):
    """A slot whose process does it once it may."""

    may = threading.Event()

    def run(self, lease: Lease) -> LeaseReturned:
        """Do it late."""
        if lease.work:
            self.may.wait()
        return super().run(lease)


def test_what_ends_after_its_lease_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept in memory for as long as the next process of `run` was in `init`."""
    monkeypatch.setattr(stage_worker, "Slot", Waits)
    workers = workers_of(1)
    work = ColumnBatch([Assigned(MiniBatch(0, None, ""), 1)])
    run = StageRun(1, work, 1.0, Stages("a", None, None), workers)
    run.begin()
    (task,) = run._at_stage.values()
    assert task.target is not None
    assert poll_for(lambda: not workers._tasks)
    run.close()
    assert task.target._close.alive
    Waits.may.set()
    assert poll_for(lambda: not task.target._close.alive)  # type: ignore[union-attr]
    assert workers.taken() == []
    workers.stop()


class Fills(Process):
    """A slot whose processes die of one mini-batch, and now and then of what they have kept."""

    kept = 0

    def run(self, lease: Lease) -> LeaseReturned:
        """Do it, or die."""
        (assigned,) = lease.work
        self.kept += 1
        self.is_staffed = self.kept < 3 and assigned.mini_batch.index != 7
        if self.is_staffed:
            return LeaseReturned(
                lease.id, "", results=(Results(ColumnBatch([outcome_of(assigned)])),)
            )
        self.kept = 0
        died = outcome_of(assigned, Status.PROCESS_DIED)
        killed = died._replace(failure=Failure("MemoryError", "it was killed"))
        return LeaseReturned(lease.id, "", death=Death((killed,)))


def test_a_death_for_want_of_memory_counts_in_a_new_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in `run`: the process may be full of what the script has kept of other mini-batches."""
    monkeypatch.setattr(stage_worker, "Slot", Fills)
    worker = StageWorker(Any, 0, "process000-00", {}, deque())  # type: ignore[arg-type]
    failed = []
    for index in range(12):
        task = StageTask(Assigned(MiniBatch(index, None, ""), 1), PREPROCESS, None, None)
        outcome = worker.run(task).outcome
        if outcome.status is not Status.RUN_DONE:
            failed.append((outcome.index, outcome.stage_process))
    assert [index for index, _ in failed] == [7]


class Elsewhere:
    """Other workers: each answers, cannot be reached, cannot load, has no process, or is silent."""

    def __init__(self, draw: Random) -> None:
        self.asked = set[int]()
        self._draw = draw

    def __call__(self, host: StageHost, assigned: Assigned) -> Future[Preprocessed]:
        """Take a mini-batch."""
        del host
        self.asked.add(assigned.mini_batch.index)
        answer: Future[Preprocessed] = Future()
        fate = self._draw.randrange(8)
        if fate == 0:
            answer.set_exception(OSError("it is gone"))
        elif fate == 1:
            answer.set_result(Preprocessed(None, failure=Failure("OSError", "no codec")))
        elif fate != 2:
            status = Status.LOAD_EXCEPTION if fate == 3 else Status.RUN_DONE
            results = Results(ColumnBatch([outcome_of(assigned, status)]))
            value = str(assigned.mini_batch.index).encode()
            answer.set_result(Preprocessed(results, value))
        return answer


def test_each_task_ends_once_whatever_becomes_of_other_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They come, go, answer or not; `postprocess` and partitions of Dask stay here."""
    monkeypatch.setattr(stage_worker, "Slot", Works)
    monkeypatch.setattr(far_stages, "AGAIN_S", 0.0)
    for seed in range(60):
        draw = Random(seed)  # noqa: S311 - nothing is to be kept secret
        workers, ask = workers_of(draw.randint(1, 2)), Elsewhere(draw)
        given, stay = {}, set[int]()
        for index in range(20):
            if draw.random() < 0.3:
                hosts = [StageHost(name, 1, 0, 2, draw.randint(1, 2)) for name in "ab"]
                workers.share(draw.sample(hosts, draw.randint(0, 2)), ask)
            piece = SimpleNamespace(partition=0 if draw.random() < 0.1 else None)
            assigned = Assigned(MiniBatch(index, piece, ""), 1)
            stage = PREPROCESS if draw.random() < 0.8 else POSTPROCESS
            if stage == POSTPROCESS or piece.partition is not None:
                stay.add(index)
            given[index] = StageTask(assigned, stage, None, StageFile())
            workers.give(given[index], at_once=stage == POSTPROCESS)
        workers.share([], ask)
        ended = []
        while len(ended) < len(given):
            ended += workers.taken(within_s=60.0)
        assert sorted(one.outcome.index for one in ended) == list(given)
        assert all(one.task is given[one.outcome.index] for one in ended)
        assert {one.outcome.status for one in ended} == {Status.RUN_DONE}
        assert not stay & ask.asked
        for task in given.values():
            with open(task.target.path, "rb") as file:  # type: ignore[union-attr]  # noqa: PTH123
                assert file.read() in (b"", str(task.assigned.mini_batch.index).encode())
            task.close()
        workers.share([StageHost("c", 1, 0, 2, 2)], ask)
        workers.stop()


def test_a_worker_without_slots_runs_as_many_as_it_has_processes(
    process: type[Process],
) -> None:
    """If none comes up, it says why, each time."""
    process.fails = {"preprocess002", "preprocess003"}
    hosted = HostedStages(Any)  # type: ignore[arg-type]
    host, assigned = StageHost("a", 3, 2, 2), Assigned(MiniBatch(0, None, ""), 1)
    for _ in range(4):
        made = hosted.run(host, assigned)
        assert made.results is None
        assert made.failure == Failure("OSError", "no codec")
    events = hosted.taken_events()
    assert [one.process for one in events] == ["preprocess002", "preprocess003"]
    hosted.interrupt()
    with pytest.raises(AgentError, match="the job is over"):
        hosted.run(host, assigned)
