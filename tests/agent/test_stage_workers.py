"""The stage processes of a slot: how they come up, and what becomes of tasks that none begins."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from daskprs._agent.supervision import stage_worker
from daskprs._agent.supervision.stage_worker import StagesNotReady, StageTask
from daskprs._agent.supervision.stage_workers import StageWorkers
from daskprs._core.lease import AgentExited, InitFailed, Lease, LeaseReturned
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs._core.outcomes import Failure
from daskprs._core.stages import PREPROCESS


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
    return StageWorkers(Any, "job", 0, "process000", {}, count)  # type: ignore[arg-type]


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
