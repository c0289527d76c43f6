"""Who pays for the end of an agent, and what of a lease is handed back."""

from __future__ import annotations

from daskprs._agent.child.inbox import Order
from daskprs._agent.protocol.messages import Outcomes
from daskprs._agent.protocol.shared_page import NOTHING, Activity, Phase
from daskprs._agent.supervision.lease_run import LeaseRun, blame_death, blame_timeout
from daskprs._core.columnar import ColumnBatch
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs._core.outcomes import Extent, Failure, Outcome, Results, Status
from daskprs._core.pieces import Pieces, PiecesEnd

WHY = Failure("PROCESS_DIED", "process000 exits with returncode -9 (SIGKILL)")


def lease_of(count: int, received: int = 0) -> LeaseRun:
    """Return a lease of mini-batches 100, 101, … of which the first have come back."""
    work = ColumnBatch(Assigned(MiniBatch(100 + i, None, f"{i}", items=5), 1) for i in range(count))
    run = LeaseRun(7, work)
    run.receive(Outcomes(7, Results(ColumnBatch(done(100 + i) for i in range(received)))))
    return run


def done(index: int) -> Outcome:
    """Return the outcome of an attempt that went well."""
    return Outcome(index, 1, Status.RUN_DONE, 5, 5, 0.0, 0.0, 0.0, 0.0)


def at(phase: Phase, position: int, *, loading: int = NOTHING, done: int = 0) -> Activity:
    """Return what the page says of the lease."""
    return Activity(phase, position, 1, 7, loading, done, 4)


def test_a_death_while_one_runs_charges_that_one() -> None:
    """Nothing else was at hand: the one that ran is to blame, the rest is free."""
    blame = blame_death(lease_of(3), at(Phase.RUNNING, 1, done=1), WHY)
    assert blame.death is not None
    assert [suspect.index for suspect in blame.death.suspects] == [101]
    assert blame.death.suspects[0].total == 4
    assert blame.untouched == (100, 102)


def test_a_death_in_a_later_range_of_a_trial_says_that_none_has_passed() -> None:
    """A trial turns to it only since the first one has failed; all ranges run in other attempts."""
    for is_trial in (True, False):
        pieces = Pieces(((0, 2), (2, 5)), is_trial=is_trial)
        run = LeaseRun(7, ColumnBatch([Assigned(MiniBatch(100, None, "0", items=5), 2, pieces)]))
        blame = blame_death(run, at(Phase.RUNNING, 0)._replace(piece=1), WHY)
        assert blame.death is not None
        assert blame.death.suspects[0].pieces == PiecesEnd(1, passed_before=not is_trial)


def test_what_finished_last_but_was_lost_runs_alone_next_time() -> None:
    """It is not charged, and is not with a neighbour when the same happens again."""
    blame = blame_death(lease_of(3), at(Phase.RUNNING, 1, done=1), WHY)
    assert blame.death is not None
    assert blame.death.alone == (100,)


def test_a_death_while_another_was_loaded_ahead_suspects_both() -> None:
    """Nobody knows which of the two it was."""
    run = lease_of(3, received=1)
    blame = blame_death(run, at(Phase.RUNNING, 1, loading=2, done=1), WHY)
    assert blame.death is not None
    assert [suspect.index for suspect in blame.death.suspects] == [101, 102]
    assert blame.untouched == ()


def test_a_death_after_everything_had_finished_suspects_the_last() -> None:
    """Something that it left behind ended the process."""
    blame = blame_death(lease_of(2), at(Phase.IDLE, NOTHING, done=2), WHY)
    assert blame.death is not None
    assert [suspect.index for suspect in blame.death.suspects] == [101]
    assert blame.untouched == (100,)


def test_all_that_is_lost_with_a_spoilt_process_may_have_spoilt_it() -> None:
    """Our own code fails in it when it sends outcomes, or loads or runs the next mini-batch."""
    spoilt = WHY._replace(fatal=True)
    blame = blame_death(lease_of(4, received=1), at(Phase.RUNNING, 2, done=2), spoilt)
    assert blame.death is not None
    assert [suspect.index for suspect in blame.death.suspects] == [101, 102]
    assert (blame.death.alone, blame.untouched) == ((), (103,))


def test_a_death_before_the_lease_was_picked_up_blames_nobody() -> None:
    """The page still tells of the lease before."""
    other = at(Phase.RUNNING, 1)._replace(lease_id=6)
    blame = blame_death(lease_of(2), other, WHY)
    assert (blame.death, blame.untouched) == (None, (100, 101))


def test_a_timeout_charges_the_running_one_alone() -> None:
    """Nothing else was under way."""
    blame = blame_timeout(lease_of(2), at(Phase.RUNNING, 0), WHY)
    (outcome,) = blame.outcomes
    assert (outcome.index, outcome.status) == (100, Status.RUN_TIMEOUT)
    assert blame.untouched == (101,)


def test_a_timeout_while_another_is_loaded_ahead_suspects_both() -> None:
    """What is loaded may keep the GIL, or stop the process: nobody is charged yet."""
    blame = blame_timeout(lease_of(3), at(Phase.RUNNING, 0, loading=1), WHY)
    assert not blame.outcomes
    assert blame.death is not None
    suspects = [(suspect.index, suspect.status) for suspect in blame.death.suspects]
    assert suspects == [(100, Status.RUN_TIMEOUT), (101, Status.LOAD_TIMEOUT)]
    assert blame.untouched == (102,)


def test_a_timeout_of_loading_is_a_load_timeout() -> None:
    """The phase that was judged says which it is."""
    now = at(Phase.LOADING, 0, loading=0)
    blame = blame_timeout(lease_of(1), now, WHY)
    (outcome,) = blame.outcomes
    assert outcome.status is Status.LOAD_TIMEOUT


def test_what_waits_to_be_sent_is_not_charged_as_a_long_run() -> None:
    """The script is done with it; a death in that phase is its doing all the same."""
    blame = blame_timeout(lease_of(2), at(Phase.RETURNING, 0), WHY)
    (outcome,) = blame.outcomes
    assert outcome.status is Status.LOAD_TIMEOUT
    blame = blame_death(lease_of(2), at(Phase.RETURNING, 0), WHY)
    assert blame.death is not None
    assert [suspect.index for suspect in blame.death.suspects] == [100]


def test_a_timeout_stands_even_if_the_attempt_ended_before_the_kill() -> None:
    """What it sent in between is not taken; what stood before it is."""
    run = lease_of(3)
    sent = tuple(
        Outcome(100 + i, 1, Status.RUN_DONE, 5, 5, 0.0, 0.0, 0.0, 0.0, Extent(2, 0))
        for i in range(2)
    )
    run.receive(Outcomes(7, Results(ColumnBatch(sent), b"aabb")), but=1)
    blame = blame_timeout(run, at(Phase.RUNNING, 1, done=1), WHY)
    (outcome,) = blame.outcomes
    assert (outcome.index, blame.untouched) == (101, (102,))
    assert run.share() == (Results(ColumnBatch(sent[:1]), b"aa"),)


def test_an_agent_answers_for_the_next_mini_batches_of_its_order_alone() -> None:
    """Neither for later ones, nor for one twice, nor for another attempt."""
    run = lease_of(3, received=1)
    again = done(101)._replace(attempt=2)
    fits = {
        (done(101),): True,
        (done(101), done(102)): True,
        (done(100),): False,
        (done(102),): False,
        (done(101), done(101)): False,
        (done(101), done(102), done(103)): False,
        (again,): False,
    }
    for outcomes, expected in fits.items():
        assert run.expects(Outcomes(7, Results(ColumnBatch(outcomes)))) is expected


def test_handing_back_keeps_what_has_begun() -> None:
    """Positions beyond the last one that began are free."""
    run = lease_of(5, received=2)
    assert run.keep(2) == (103, 104)
    assert run.left == (102,)
    assert [len(results.outcomes) for results in run.share()] == [2]
    assert run.share() == ()


def test_a_lease_with_nothing_back_gives_away_what_waits_behind() -> None:
    """A slow first one does not hold the others hostage; it does so once."""
    run = lease_of(3)
    assert run.due_in_s() is not None
    run.keep(0)
    assert run.due_in_s() is None


def test_outcomes_that_wait_take_nothing_back() -> None:
    """What is behind them is begun before long: only where nothing comes back it is given away."""
    run = lease_of(3, received=1)
    assert not run.stuck
    assert run.left == (101, 102)


def test_a_lease_that_continues_another_adds_to_its_work() -> None:
    """Positions go on, and what is done is forgotten."""
    run = lease_of(2, received=1)
    more = [Assigned(MiniBatch(7, None, "", items=5), 1), Assigned(MiniBatch(8, None, ""), 2)]
    run.extend(ColumnBatch(more))
    assert run.left == (101, 7, 8)
    run.receive(Outcomes(7, Results(ColumnBatch([done(101), done(7)]))))
    assert (run.left, run.finished, run.at(1)) == ((8,), False, None)
    assert run.at(3) == more[1]
    blame = blame_death(run, at(Phase.RUNNING, 3, done=3), WHY)
    assert blame.death is not None
    assert [(one.index, one.attempt) for one in blame.death.suspects] == [(8, 2)]
    run.receive(Outcomes(7, Results(ColumnBatch([done(8)]))))
    assert run.finished


def test_a_lease_returns_while_its_last_one_runs() -> None:
    """So that more comes before the slot is idle, also where work was taken back before."""
    run = lease_of(3, received=2)
    assert run.due_in_s() == 0.0
    run.share()
    assert run.due_in_s() != 0.0
    long = lease_of(4)
    assert long.keep(1) == (102, 103)
    assert long.due_in_s() is None
    long.receive(Outcomes(7, Results(ColumnBatch([done(100)]))))
    assert long.due_in_s() == 0.0


def test_what_comes_after_a_recall_takes_the_place_of_what_was_taken_back() -> None:
    """Agent and supervisor count positions alike."""
    run, order = lease_of(4), Order(7, prefetch=True)
    order.add([run.at(position) for position in range(4)])
    more = [Assigned(MiniBatch(index, None, "", items=5), 1) for index in (7, 8)]
    assert run.keep(1) == (102, 103)
    order.drop_beyond(1)
    run.extend(ColumnBatch(more))
    order.add(more)
    assert run.left == (100, 101, 7, 8)
    for position, index in enumerate(run.left):
        assert run.indexes(position, position + 1) == (index,)
        assert order.work[position] == run.at(position)
    assert 4 not in order.work
