"""The slot of a job with stages: whatever ends when, each mini-batch is in exactly one place."""

from __future__ import annotations

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._agent.protocol.messages import Outcomes
from daskprs._agent.protocol.shared_page import NOTHING
from daskprs._agent.supervision import stage_run, stage_slot
from daskprs._agent.supervision.slot import Slot
from daskprs._agent.supervision.stage_run import StageRun
from daskprs._agent.supervision.stage_slot import StageSlot
from daskprs._agent.supervision.stage_worker import StageEnded, StageFile, StagesNotReady
from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import Place, SlotState
from daskprs._core.lease import AgentAssignment, AgentExited, Lease
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs._core.outcomes import Outcome, Results, Status
from daskprs._core.stages import RING, Stages
from tests.support.odd_agent import WHY, OddAgent, outcome_by_chance, places_of

if TYPE_CHECKING:
    from daskprs._agent.supervision.stage_worker import StageTask


def has_files(task: StageTask) -> bool:
    """Say whether the files of a task are open."""
    files = task.source, task.target
    return all(one is None or (isinstance(one, File) and one.is_open) for one in files)


class File(StageFile):
    """A file between two stages, and whether it is open."""

    is_open = True

    def close(self) -> None:
        """Close it."""
        super().close()
        self.is_open = False


class Workers:
    """Stage processes that end their tasks in any order, and may be closed or come up no more."""

    wake_fd = NOTHING

    def __init__(self, draw: Random) -> None:
        self.count = draw.randint(1, 3)
        self.is_closed = self.are_lost = False
        self._draw = draw
        self._tasks: list[StageTask] = []

    def counted(self) -> tuple[()]:
        """Return nothing: what is counted in them is not asked here."""
        return ()

    def give(self, task: StageTask, *, at_once: bool = False) -> None:
        """Take a task."""
        del at_once
        self._tasks.append(task)

    def taken(self, within_s: float = 0.0) -> list[StageEnded]:
        """End some tasks; one at least if the caller waits."""
        self.is_closed |= self._draw.random() < 0.01
        if not self.is_closed and self._draw.random() < 0.01:
            raise StagesNotReady(WHY, 1.0)
        ended = []
        while self._tasks and not self.is_closed and (within_s or self._draw.random() < 0.5):
            within_s = 0.0
            task = self._tasks.pop(self._draw.randrange(len(self._tasks)))
            assert has_files(task)
            outcome = outcome_by_chance(self._draw, task.assigned.mini_batch.index)
            ended.append(StageEnded(task, Results(ColumnBatch([outcome]))))
        return ended

    def drop(self) -> None:
        """Drop what has not begun; the rest ends in a later lease."""
        for task in self._tasks:
            if self._draw.random() < 0.5:
                task.close()
        self._tasks = [one for one in self._tasks if has_files(one)]

    def drop_ended(self) -> None:
        """Drop nothing: what has ended was taken."""

    def stop(self) -> None:
        """End all."""
        for task in self._tasks:
            task.close()
        self._tasks = []

    def close(self) -> None:
        """Begin to end."""
        self.is_closed = True

    def taken_events(self) -> tuple[()]:
        """Return nothing."""
        return ()


class StandIn(StageSlot):
    """A slot whose processes are stand-ins."""

    def __init__(self, draw: Random, stages: Stages) -> None:
        super().__init__(Any, Any, stages, None)  # type: ignore[arg-type]
        self._draw = draw

    def _started_beside(self, workers: Any, assignment: AgentAssignment) -> Any:
        """Start, now and then in vain; meanwhile the stages may do all, and close."""
        del assignment
        if self._draw.random() < 0.1:
            workers.is_closed = workers.are_lost = self._draw.random() < 0.5
            return None
        self._agent = OddAgent(self._draw)  # type: ignore[assignment]
        return self._agent


def test_each_mini_batch_is_in_exactly_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, dies, hangs, halts or is closed, in any order; and no file is left."""
    monkeypatch.setattr(stage_run, "StageFile", File)
    monkeypatch.setattr(StageRun, "hold_back_s", 0.0)
    for seed in range(100):
        draw = Random(seed)  # noqa: S311 - nothing is to be kept secret
        monkeypatch.setattr(
            stage_slot, "StageWorkers", partial(lambda draw, *_: Workers(draw), draw)
        )
        names = draw.choice([("a", "b"), ("a", None), (None, "b")])
        slot = StandIn(draw, Stages(*names, None))
        running, last, next_ = set[int](), 0, 0
        for number in range(1, 30):
            work = range(next_, next_ := next_ + draw.randint(0 if running else 1, 6))
            lease = Lease(
                number,
                ColumnBatch(Assigned(MiniBatch(one, None, ""), 1) for one in work),
                continues=last if running else None,
                assignment=None if running else AgentAssignment("process000", {}, 1),
                return_after_s=draw.choice([0.0, 0.001]),
                return_when_ready=not running and draw.random() < 0.1,
            )
            given = sorted([*running, *work])
            assert places_of(slot, lease, running) == given, seed
            last = number
        slot.stop()
        del slot


def test_a_slot_that_waits_for_its_stages_tells_of_the_one_longest_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What `run` is at comes first; progress said that agents are idle while others decoded."""

    def told(process: str, phase: str, since_s: float, index: int | None = None) -> SlotState:
        return SlotState(Place(0, process, "host"), phase, since_s, index)

    run = told("process000", "idle", 9.0)._replace(counted=(("process000", ()),))
    beside = [told("process000-00", "idle", 9.0), told("process000-01", "running", 1.0, 7)]
    beside.append(told("process000-02", "running", 3.0, 8))
    slot = StandIn(Random(0), Stages("a", None, None))  # noqa: S311
    slot._workers = SimpleNamespace(slots=list)  # type: ignore[assignment]
    monkeypatch.setattr(Slot, "state", lambda _: run)
    assert slot.state() == run
    stages = [SimpleNamespace(state=lambda one=one: one) for one in beside]
    slot._workers = SimpleNamespace(slots=lambda: stages)  # type: ignore[assignment]
    assert slot.state() == beside[2]._replace(counted=run.counted)
    run = run._replace(phase="running", index=3)
    assert slot.state() == run


def test_a_failure_of_run_comes_after_what_had_run_before_it() -> None:
    """Else a success that came later showed that the failure had left the process whole."""
    draw = Random(0)  # noqa: S311 - nothing is to be kept secret
    workers, ended = stand_ins(), []
    workers.taken = lambda: [ended.pop(0)] if ended else []
    work = ColumnBatch(Assigned(MiniBatch(one, None, ""), 1) for one in range(2))
    run = StageRun(1, work, 1.0, Stages(None, "b", None), workers)
    agent: Any = OddAgent(draw)
    run.turn(agent.send)
    good = [outcome_of(index, Status.RUN_DONE) for index in (0, 1)]
    bad = outcome_of(1, Status.RUN_EXCEPTION)
    run.receive(Outcomes(1, Results(ColumnBatch([good[0], bad])), ""))
    assert not run.is_done
    assert {*run.left} == {0, 1}
    assert run.share() == ()
    (task,) = workers.given
    ended.append(StageEnded(task, Results(ColumnBatch(good[:1]))))
    run.turn(agent.send)
    assert run.finished
    assert [one.index for made in run.share() for one in made.outcomes] == [0, 1]


@pytest.mark.parametrize("halted", ["", None])
def test_a_process_that_has_done_enough_says_so_itself(halted: str | None) -> None:
    """Whatever becomes of its last mini-batch in `postprocess`, or of others before `run`."""
    work = ColumnBatch([Assigned(MiniBatch(0, None, ""), 1)])
    run = StageRun(1, work, 1.0, Stages(None, "b", None), stand_ins())
    run.turn(OddAgent(Random(0)).send)  # noqa: S311 - nothing is to be kept secret
    run.receive(Outcomes(1, Results(ColumnBatch([outcome_of(0, Status.RUN_DONE)])), halted))
    assert run.is_done == (halted is not None)


def test_nothing_is_preprocessed_for_a_process_that_takes_no_more() -> None:
    """It was dropped; all the same, one that does not end as it should gets one at a time."""
    workers, ended = stand_ins(), []
    workers.taken = lambda: [ended.pop(0)] if ended else []
    work = ColumnBatch(Assigned(MiniBatch(one, None, ""), 1) for one in range(9))
    run = StageRun(1, work, 1.0, Stages("a", None, None), workers, most=3)
    agent: Any = OddAgent(Random(0))  # noqa: S311 - nothing is to be kept secret
    run.turn(agent.send)
    assert len(workers.given) == 3
    failed, *others = workers.given
    ended.append(StageEnded(failed, Results(ColumnBatch([outcome_of(0, Status.RUN_EXCEPTION)]))))
    run.turn(agent.send)
    assert len(workers.given) == 4
    for task in (*others, workers.given[3]):
        index = task.assigned.mini_batch.index
        ended.append(StageEnded(task, Results(ColumnBatch([outcome_of(index, Status.RUN_DONE)]))))
        run.turn(agent.send)
    assert len(workers.given) == 4
    made = [outcome_of(index, Status.RUN_DONE) for index in (1, 2, 3)]
    run.receive(Outcomes(1, Results(ColumnBatch(made)), None))
    run.turn(agent.send)
    assert len(workers.given) == 5


def test_what_an_agent_drops_counts_for_none_that_it_takes() -> None:
    """It halts after failures in a row, and goes on with what the ledger gives it then."""
    work = ColumnBatch(Assigned(MiniBatch(one, None, ""), 1) for one in range(3))
    run = StageRun(1, work, 1.0, Stages(None, "b", None), stand_ins(), most=9)
    run.turn(OddAgent(Random(0)).send)  # noqa: S311 - nothing is to be kept secret
    run.receive(Outcomes(1, Results(ColumnBatch([outcome_of(0, Status.RUN_EXCEPTION)])), ""))
    run.close()
    assert run.most == 8


@pytest.mark.parametrize("at_the_end", [False, True])
def test_what_befell_stage_processes_that_are_given_up_is_told(*, at_the_end: bool) -> None:
    """With what was counted in them; their start and their end were in no log."""
    slot = StandIn(Random(0), Stages("a", None, None))  # noqa: S311
    exited = AgentExited("process000-00", 1, "it ended", expected=False)
    given_up: Any = SimpleNamespace(stop=lambda: None, taken_events=lambda: (exited,))
    slot._workers = given_up
    slot._drop_workers()
    assert (slot.stop() if at_the_end else slot._taken_stage_events()) == (exited,)
    assert slot._taken_stage_events() == ()


def stand_ins() -> Any:
    """Return stage processes that only note what they are given."""
    given: list[StageTask] = []
    add = lambda task, **_: given.append(task)  # noqa: E731 - a stand-in
    nothing = lambda: None  # noqa: E731 - a stand-in
    return SimpleNamespace(
        count=2, given=given, give=add, taken=list, drop=nothing, drop_ended=nothing
    )


def outcome_of(index: int, status: Status) -> Outcome:
    """Return the outcome of a stage."""
    return Outcome(index, 1, status, 5, 5, 0.0, 0.0, 0.0, 0.0)


def test_what_the_driver_wants_back_is_given_back_at_once() -> None:
    """Near a limit of usage, only what a process has begun is run."""
    draw = Random(0)  # noqa: S311 - nothing is to be kept secret
    workers: Any = Workers(draw)
    work = ColumnBatch(Assigned(MiniBatch(one, None, ""), 1) for one in range(20))
    run = StageRun(1, work, 1.0, Stages("a", None, None), workers)
    agent: Any = OddAgent(draw)
    run.turn(agent.send)
    assert run.due_in_s() != 0.0
    run.is_wanted = True
    assert run.due_in_s() == 0.0
    assert run.stuck
    begun = workers.count + RING
    assert run.take_back(agent.page, agent.send) == tuple(range(begun, 20))
    assert not run.stuck
    assert {*run.left} == {*range(begun)}
    workers.stop()
