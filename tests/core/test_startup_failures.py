"""Agents that do not come up: when a node is bad, and when the job is."""

from __future__ import annotations

from typing import Any

import pytest

from daskprs._core.actions import Remark
from daskprs._core.lease import AgentExited
from daskprs._core.outcomes import Failure

LINE = 'Traceback (most recent call last):\n  File "/score.py", line 3, in init\n    load()\n'
MISSING = Failure("ImportError", "no such module", LINE, retryable=False)


def test_a_node_gets_no_more_agents_after_three_failures_a_slot(desk: Any) -> None:
    """The other node does all the work, and no try is charged."""
    it = desk(20, slots=2, run_max_try=1)
    good = it.add(0, node=1)
    bad = [slot for slot in it.leases if slot.node == 0]
    for place in range(6):
        it.fail_init(bad[place % 2])
    assert bad[1] not in it.leases
    it.fail_init(bad[0])  # this one had been sent out before the sixth failure
    assert list(it.leases) == [good]
    it.do_all()
    assert sorted(it.committed) == list(range(20))
    assert it.failures == []
    (told,) = (one.message for one in it.said if isinstance(one, Remark))
    assert told == (
        "node 0 gets no more processes: 6 in a row did not come up there, the last with ValueError:"
        " boom. Other nodes do its work."
    )
    assert it.ledger.standing().left_out == ("node 0 (no process came up)",)


def test_when_no_node_is_left_the_job_fails_and_shows_the_error_of_init(desk: Any) -> None:
    """Two nodes, one slot each: three failures on both."""
    it = desk(20)
    first, second = next(iter(it.leases)), it.add(0, node=1)
    for slot in [first, second] * 3:
        assert it.abort is None
        it.fail_init(slot)
    assert it.abort.failure.message == "boom"
    assert "or init() failed on every node, in 6 tries" in it.abort.reason
    assert it.ledger.standing().left_out == ("node 0 (no process came up)",), "none does its work"


def test_an_agent_that_comes_up_starts_the_count_of_its_node_anew(desk: Any) -> None:
    """Failures have to come in a row."""
    it = desk(20)
    slot = next(iter(it.leases))
    for _ in range(5):
        it.fail_init(slot)
        it.fail_init(slot)
        it.do(slot)
    assert it.abort is None


def test_an_agent_that_is_up_works_on_where_its_node_gets_no_more(desk: Any) -> None:
    """The job goes on with the agents that it has, and ends once the last of them has gone."""
    it = desk(20, slots=2)
    first, second = it.leases
    it.do(first)
    for _ in range(6):
        it.fail_init(second)
        it.tick(4.0)
    assert it.abort is None
    assert list(it.leases) == [first]
    it.do(first)
    for rest_s in (8.0, 16.0, 32.0, 60.0, 60.0, 60.0):
        it.tick(rest_s)
        it.fail_init(second)
    ended = AgentExited("process000", -9, "killed", expected=False)
    it.give(first, untouched=tuple(it.indexes(first)), agent_events=(ended,))
    assert "failed on every node" in it.abort.reason


def test_a_node_that_left_and_comes_back_gets_another_chance(desk: Any) -> None:
    """A new worker may have what the old one lacked."""
    it = desk(20)
    it.add(0, node=1)
    bad = next(iter(it.leases))
    for _ in range(3):
        it.fail_init(bad)
    assert bad not in it.leases
    it.lose(bad)
    assert it.add(0, node=0) in it.leases


def test_after_two_minutes_two_failures_a_slot_without_a_success_end_the_job(desk: Any) -> None:
    """Slow failures are not waited for three times a slot."""
    it = desk(20, slots=2)
    first, second = it.leases
    it.fail_init(first)
    it.fail_init(second)
    it.fail_init(first)
    it.tick(120.0)
    it.fail_init(second)
    assert it.abort is None
    it.tick(0.1)
    assert "or init() failed 4 times" in it.abort.reason


def test_one_agent_that_came_up_anywhere_rules_that_out(desk: Any) -> None:
    """Then the nodes are judged one by one."""
    it = desk(20, slots=2)
    first, second = it.leases
    it.do(first)
    it.tick(121.0)
    for _ in range(5):
        it.fail_init(second)
        it.tick(4.0)
    assert it.abort is None


def test_when_every_agent_was_too_slow_in_init_the_job_fails_at_once(desk: Any) -> None:
    """All of them stuck for the whole init_timeout: once is enough."""
    it = desk(20, slots=2, init_timeout_s=30.0)
    first, second = it.leases
    it.fail_init(first, elapsed_s=30.1)
    assert it.abort is None
    it.fail_init(second, elapsed_s=30.2)
    assert "init_timeout=30 s" in it.abort.reason


def test_one_agent_at_work_means_that_not_all_are_stuck(desk: Any) -> None:
    """Slow nodes are left to the rule for nodes."""
    it = desk(20, slots=2, init_timeout_s=30.0)
    first, second = it.leases
    it.do(first)
    it.fail_init(second, elapsed_s=30.1)
    assert it.abort is None


def test_that_a_node_rests_is_said_once_another_one_joins(desk: Any) -> None:
    """Alone, it went on with the one process that was up."""
    it = desk(20, slots=2)
    first, second = it.leases
    it.do(first)
    for _ in range(6):
        it.fail_init(second)
        it.tick(4.0)
    assert it.ledger.standing().left_out == ()
    it.add(0, node=1)
    assert it.ledger.standing().left_out == ("node 0 (no process came up)",)
    told = [one.message for one in it.said if isinstance(one, Remark)]
    assert told[-1].startswith("node 0 gets no more processes: 6 in a row did not come up there,")


def test_a_slot_that_fails_beside_others_is_tried_at_longer_intervals(desk: Any) -> None:
    """The other process of the node does the work meanwhile; one that comes up ends the pauses."""
    it = desk(100, slots=2)
    good, bad = it.leases
    for _ in range(3):
        it.fail_init(bad)
        it.do(good)
        assert bad in it.leases
    for rest_s in (1.0, 2.0, 4.0):
        it.fail_init(bad)
        it.do(good)
        it.tick(rest_s - 0.1)
        assert bad not in it.leases
        it.tick(0.1)
        assert bad in it.leases
    (told,) = (one.message for one in it.said if isinstance(one, Remark))
    assert told == (
        "4 processes in a row did not come up in one slot of node 0, on worker tcp://host0, the "
        "last with ValueError: boom. Others of the node are up. This slot waits longer before each "
        "further try."
    )
    it.do(bad)
    it.fail_init(bad)
    assert bad in it.leases


def test_leases_that_fail_in_themselves_count_against_their_node(desk: Any) -> None:
    """A worker that cannot even start an agent is left out like one whose init fails."""
    it = desk(20, run_max_try=1)
    bad, good = next(iter(it.leases)), it.add(0, node=1)
    for _ in range(3):
        it.refuse(bad)
        it.tick(10.0)
    assert list(it.leases) == [good]
    it.do_all()
    assert sorted(it.committed) == list(range(20))


def test_a_slot_whose_lease_failed_in_itself_rests_before_the_next_one(desk: Any) -> None:
    """A limit of the system lets go of processes as others end: three tries take seconds."""
    it = desk(20, run_max_try=1)
    slot = next(iter(it.leases))
    for rest_s in (1.0, 2.0):
        it.refuse(slot)
        it.tick(rest_s - 0.1)
        assert not it.leases
        it.tick(0.1)
        assert list(it.leases) == [slot]
        assert it.abort is None
    it.refuse(slot)
    assert it.abort.failure.message == "boom"


def test_an_agent_that_comes_up_after_all_ends_the_rests_of_its_slot(desk: Any) -> None:
    """The next failure is a first one."""
    it = desk(20, slots=2)
    bad, good = it.leases
    it.refuse(bad)
    it.tick(1.0)
    it.refuse(bad)
    it.do(good)
    it.tick(2.0)
    it.do(bad)
    it.refuse(bad)
    it.tick(1.0)
    assert bad in it.leases


def test_a_mini_batch_that_no_agent_takes_ends_the_job(desk: Any) -> None:
    """What cannot even be handed over is not handed over for ever."""
    it = desk(100)
    slot = next(iter(it.leases))
    for _ in range(1000):
        if not it.leases:
            break
        if 0 in it.indexes(slot):
            it.give(slot, untouched=(0,))
        else:
            it.do(slot)
    assert it.abort.reason == "no process could be given mini-batch 0"


def test_an_error_that_a_later_process_repeats_ends_the_job(desk: Any) -> None:
    """Two processes that started together prove nothing; the third started after both failed."""
    it = desk(20, slots=2)
    first, second = it.leases
    it.fail_init(first, failure=MISSING)
    it.fail_init(second, failure=MISSING)
    assert it.abort is None
    it.fail_init(second, failure=MISSING)
    assert it.abort.failure == MISSING
    assert "the same error in 3 processes, on every node" in it.abort.reason


@pytest.mark.parametrize("up", [True, False], ids=["one was up", "none was up"])
def test_the_reason_says_whether_any_process_got_to_run(desk: Any, *, up: bool) -> None:
    """A new process starts in the slot of each that has ended."""
    it = desk(20)
    (slot,) = it.leases
    if up:
        it.do(slot)
        ended = AgentExited("process000", -9, "killed", expected=False)
        it.give(slot, untouched=tuple(it.indexes(slot)), agent_events=(ended,))
    for _ in range(2):
        it.fail_init(slot, failure=MISSING)
    how = "no process gets to run() any more: " if up else "no process got to run(): "
    assert it.abort.reason.startswith(how)
    assert it.abort.failure == MISSING


def test_the_error_of_a_mini_batch_that_failed_in_the_end_precedes_that_of_init(desk: Any) -> None:
    """As it does whatever else ends a job."""
    it = desk(20, run_max_try=1)
    (slot,) = it.leases
    it.fail(slot)
    ended = AgentExited("process000", -9, "killed", expected=False)
    it.give(slot, untouched=tuple(it.indexes(slot)), agent_events=(ended,))
    for _ in range(2):
        it.fail_init(slot, failure=MISSING)
    assert "with the same error in 2 processes" in it.abort.reason
    assert it.abort.failure.message == "boom"


@pytest.mark.parametrize(
    "other",
    [
        MISSING._replace(retryable=True),
        MISSING._replace(kind="OSError"),
        MISSING._replace(message="no such file"),
        MISSING._replace(traceback=LINE.replace("line 3", "line 4")),
    ],
    ids=["may pass", "type", "text", "line"],
)
def test_another_error_leaves_the_verdict_to_the_counts(desk: Any, other: Failure) -> None:
    """Type, text and line have to be the same, and no connection, timeout or memory."""
    it = desk(20)
    (slot,) = it.leases
    it.fail_init(slot, failure=MISSING)
    it.fail_init(slot, failure=other)
    assert it.abort is None


def test_every_node_has_to_repeat_the_error(desk: Any) -> None:
    """A node that came later may have what the first one lacks."""
    it = desk(20)
    first, second = next(iter(it.leases)), it.add(0, node=1)
    it.fail_init(first, failure=MISSING)
    it.fail_init(first, failure=MISSING)
    it.fail_init(second, failure=MISSING)
    assert it.abort is None
    it.fail_init(second, failure=MISSING)
    assert it.abort.failure == MISSING


def test_a_process_that_has_not_failed_yet_may_come_up(desk: Any) -> None:
    """The device of the first slot is broken, and the second loads a large model."""
    it = desk(20, slots=2)
    first, second = it.leases
    it.fail_init(first, failure=MISSING)
    it.fail_init(first, failure=MISSING)
    assert it.abort is None
    it.do(second)
    it.fail_init(first, failure=MISSING)
    assert it.abort is None


def test_an_agent_that_is_up_anywhere_rules_that_out_until_it_ends(desk: Any) -> None:
    """A new agent returns its lease once it is up, though its mini-batch takes an hour."""
    it = desk(20, slots=2)
    first, second = it.leases
    assert not it.leases[first].return_when_ready
    for slot in it.leases.copy():
        it.fail_init(slot, failure=MISSING)
    assert it.leases[first].return_when_ready
    it.come_up(first)
    it.fail_init(second, failure=MISSING)
    it.fail_init(second, failure=MISSING)
    assert it.abort is None
    it.lose(first)
    assert it.abort.failure == MISSING


def test_what_a_node_repeated_is_forgotten_with_the_node(desk: Any) -> None:
    """One that comes back under its number may have been mended."""
    it = desk(20)
    (slot,) = it.leases
    it.fail_init(slot, failure=MISSING)
    it.lose(slot)
    slot = it.add(0)
    it.fail_init(slot, failure=MISSING)
    assert it.abort is None
