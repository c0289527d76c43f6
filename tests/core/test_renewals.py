"""Processes that one mini-batch breaks: the others do not pay for it, and starts are few."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._core import lease_sizes
from daskprs._core.actions import SlotAdded, SlotId, ThreadsCounted, Withdraw
from daskprs._core.lease import AgentExited, AgentStarted, Death
from daskprs._core.outcomes import Failure, Status
from daskprs._core.pieces import PiecesEnd
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.lease import Lease
    from daskprs._core.outcomes import Outcome

BOOM = Failure("ValueError", "boom", "Traceback …")
ASSERT = Failure("AcceleratorError", "CUDA error: device-side assert triggered", fatal=True)
FULL = Failure("MemoryError", "the kernel killed it for lack of memory")
LASTING = Failure("LoadError", "not a number", retryable=False)


class Process:
    """A process of a simulated slot: what it has run, and whether something broke it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.is_broken = False
        self.in_a_row = 0


class Script:
    """Runs leases as agents do: one after the other, with a halt after failures in a row."""

    def __init__(
        self,
        desk: Any,
        count: int,
        slots: int,
        outcome: Callable[..., Outcome],
        **limits: Any,
    ) -> None:
        self.it = desk(count, slots=0, **limits)
        self._outcome = outcome
        self.poisons: set[int] = set()
        """Mini-batches that fail, and after which everything in their process does."""
        self.fails: set[int] = set()
        """Mini-batches that fail by themselves."""
        self.asserts: set[int] = set()
        """Mini-batches that end with a fatal error of a device."""
        self.kills: set[int] = set()
        self.death = BOOM
        self.processes: dict[SlotId, Process] = {}
        self.starts = 0
        self.calls = 0
        for number in range(slots):
            self.it.tell(SlotAdded(SlotId("tcp://host0", number, 0)))

    def run(self, rounds: int = 3000) -> None:
        """Let every lease come back, slot after slot, until none is out."""
        for _ in range(rounds):
            if not self.it.leases:
                break
            for slot in list(self.it.leases):
                if slot in self.it.leases:
                    self.work(slot)
        assert not self.it.leases

    def work(self, slot: SlotId) -> None:
        """Let the lease of a slot come back, as far as its agent gets with it."""
        lease: Lease = self.it.leases[slot]
        events: list[Any] = []
        if lease.assignment is not None:
            self.processes[slot] = Process(lease.assignment.process)
            self.starts += 1
            events.append(AgentStarted(lease.assignment.process, 1))
        process = self.processes[slot]
        outcomes: list[Outcome] = []
        left = list(lease.work)
        death = None
        while left:
            index, attempt = left[0].mini_batch.index, left[0].attempt
            left.pop(0)
            one = self.ended(process, index, attempt)
            if one.status is Status.PROCESS_DIED:
                death = Death((one,))
                events.append(AgentExited(process.name, -11, "died", expected=False))
                break
            outcomes.append(one)
            if one.failure is not None and one.failure.fatal:
                events.append(AgentExited(process.name, -9, "fatal", expected=False))
                break
            if one.failure is not None and process.in_a_row >= lease.most_in_a_row:
                break
        self.it.give(
            slot,
            *outcomes,
            process=process.name,
            untouched=tuple(one.mini_batch.index for one in left),
            agent_events=tuple(events),
            death=death,
            halted=bool(left) and death is None,
        )

    def ended(self, process: Process, index: int, attempt: int) -> Outcome:
        """Return how an attempt ends in a process, and let it break the process."""
        self.calls += 1
        process.calls += 1
        error = None
        if process.is_broken or index in self.fails or index in self.poisons:
            error = BOOM
        if index in self.asserts:
            error = ASSERT
        process.is_broken |= index in self.poisons
        if index in self.kills:
            died = {"status": Status.PROCESS_DIED, "failure": self.death}
            return self._outcome(index, attempt, **died)
        if error is None:
            process.in_a_row = 0
            return self._outcome(index, attempt)
        process.in_a_row += 1
        return self._outcome(
            index, attempt, status=Status.RUN_EXCEPTION, failure=error, succeeded=0
        )

    def tries(self, index: int) -> int:
        """Return the number of charged attempts at a mini-batch."""
        return sum(one.charged for one in self.it.failures if one.mini_batch.index == index)

    @property
    def remarks(self) -> list[str]:
        """What the log says about renewals."""
        return [one.message for one in self.it.said if hasattr(one, "level")]


@pytest.fixture
def script(desk: Any, an_outcome: Callable[..., Outcome]) -> Callable[..., Script]:
    """Make scripts."""

    def made(count: int, slots: int = 1, **limits: Any) -> Script:
        return Script(desk, count, slots, an_outcome, **limits)

    return made


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("run_max_try", [1, 3])
def test_a_mini_batch_that_breaks_its_process_is_the_only_one_to_fail(
    script: Callable[..., Script], slots: int, run_max_try: int
) -> None:
    """Eleven of twelve succeed, and none of these is charged."""
    it = script(12, slots, run_max_try=run_max_try)
    it.poisons = {3}
    it.run()
    assert it.it.finished
    assert it.it.given_up == [3]
    assert sorted(it.it.committed) == [index for index in range(12) if index != 3]
    assert {one.mini_batch.index for one in it.it.failures if one.charged} == {3}
    assert it.tries(3) == run_max_try
    assert it.starts <= slots + run_max_try


@pytest.mark.parametrize("slots", [1, 3])
def test_many_that_break_their_process_cost_a_start_for_each_charged_attempt(
    script: Callable[..., Script], slots: int
) -> None:
    """Ten of a hundred, with three tries each."""
    it = script(100, slots, run_max_try=3)
    it.poisons = set(range(5, 100, 10))
    it.run()
    assert sorted(it.it.given_up) == sorted(it.poisons)
    assert len(it.it.committed) == 90
    assert it.starts <= slots + 30


@pytest.mark.parametrize("slots", mostly_long([1, 2, 16], suite=[16]))
def test_a_script_that_fails_everywhere_starts_a_handful_of_processes_more(
    script: Callable[..., Script], slots: int
) -> None:
    """Five, and then one for each doubling of the failures in a row."""
    it = script(2000, slots, run_max_try=3)
    it.fails = set(range(2000))
    it.run(20000)
    assert len(it.it.given_up) == 2000
    assert all(it.tries(index) == 3 for index in range(0, 2000, 100))
    assert it.starts <= slots * (1 + 5 + 13)
    assert any("Failures count as tries again" in remark for remark in it.remarks)


def test_a_job_that_allows_no_failure_ends_after_five_renewals(
    script: Callable[..., Script],
) -> None:
    """A script that fails everywhere is found within some ten calls.

    The message tells the attempts that were charged from all of them.
    """
    it = script(1000, 1, run_max_try=3, allowed_failed_count=0)
    it.fails = set(range(1000))
    it.run()
    assert it.it.abort is not None
    assert re.fullmatch(r"mini-batch \d+, attempt \d \(3 charged\)", it.it.abort.failure.where)
    assert it.starts <= 10
    assert it.calls <= 60


@pytest.mark.parametrize("slots", [1, 4])
def test_bad_mini_batches_in_a_row_are_all_charged_and_cost_few_starts(
    script: Callable[..., Script], slots: int
) -> None:
    """Thirty bad ones, with good ones before and after: the process is whole all the time."""
    it = script(200, slots, run_max_try=2)
    it.fails = set(range(50, 80))
    it.run()
    assert sorted(it.it.given_up) == sorted(it.fails)
    assert all(it.tries(index) == 2 for index in it.fails)
    assert it.starts <= slots + 60


@pytest.mark.parametrize("bad", [3, 6, 12])
def test_bad_mini_batches_before_one_that_breaks_its_process_cost_no_innocent(
    script: Callable[..., Script], bad: int
) -> None:
    """The more fail in a row, the more a process holds; only those that are bad are given up."""
    it = script(200, 1, run_max_try=3)
    it.fails = set(range(10, 10 + bad))
    it.poisons = {10 + bad}
    it.run()
    assert sorted(it.it.given_up) == sorted(it.fails | it.poisons)


def test_renewals_that_wait_for_a_thread_hold_up_no_other_process(
    script: Callable[..., Script], an_outcome: Callable[..., Outcome]
) -> None:
    """Five renewed ones wait on busy workers; they are asked back for those that are idle."""
    it = script(100, 0, run_max_try=3)
    slots = [SlotId(f"tcp://host{number}", 0, number) for number in range(9)]
    for slot in slots:
        it.it.tell(SlotAdded(slot))
    failed = {"status": Status.RUN_EXCEPTION, "succeeded": 0, "failure": BOOM}
    for _ in range(2):
        for slot in slots:
            if slot in it.it.leases:
                (one,) = it.it.leases[slot].work
                it.it.give(slot, an_outcome(one.mini_batch.index, one.attempt, **failed))
    assert len(it.it.leases) == 5
    busy = frozenset(slot.worker for slot in it.it.leases)
    waiting = frozenset(lease.id for lease in it.it.leases.values())
    it.it.tell(ThreadsCounted(busy, waiting))
    assert any(isinstance(one, Withdraw) for one in it.it.said)


def test_a_success_in_the_same_process_charges_what_it_held(
    script: Callable[..., Script],
) -> None:
    """Once a renewal has shown that the process is whole, two bad ones in a row cost no start."""
    it = script(40, 1, run_max_try=1)
    it.fails = {10, 11, 20, 21}
    it.run()
    assert sorted(it.it.given_up) == [10, 11, 20, 21]
    assert it.starts == 2


def test_a_fatal_error_renews_the_process_at_once_and_is_charged_in_a_first_call(
    script: Callable[..., Script],
) -> None:
    """With one try: the mini-batch runs again as the first of a process before it is given up."""
    it = script(20, 2, run_max_try=1)
    it.asserts = {7}
    it.run()
    assert it.it.given_up == [7]
    assert len(it.it.committed) == 19
    assert it.tries(7) == 1
    assert any("ended with AcceleratorError" in remark for remark in it.remarks)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_fatal_error_that_another_mini_batch_caused_is_not_charged(
    script: Callable[..., Script], slots: int
) -> None:
    """Every mini-batch after the fifth ends so, unless it is the first of its process."""
    it = script(8, slots, run_max_try=1)
    ended = it.ended

    def late(process: Process, index: int, attempt: int) -> Outcome:
        it.asserts = {index} if index == 5 and process.calls else set()
        return ended(process, index, attempt)

    it.ended = late  # type: ignore[method-assign]
    it.run()
    assert it.it.given_up == []
    assert sorted(it.it.committed) == list(range(8))
    assert not any(one.charged for one in it.it.failures)


@pytest.mark.parametrize("slots", [1, 3])
def test_memory_that_a_script_keeps_of_others_is_charged_to_none(
    script: Callable[..., Script], slots: int
) -> None:
    """Each process has room for two mini-batches, and is killed in the third."""
    it = script(9, slots, run_max_try=1)
    it.death, ended = FULL, it.ended

    def kept(process: Process, index: int, attempt: int) -> Outcome:
        it.kills = {index} if process.calls == 2 else set()
        return ended(process, index, attempt)

    it.ended = kept  # type: ignore[method-assign]
    it.run()
    assert it.it.given_up == []
    assert sorted(it.it.committed) == list(range(9))
    assert not any(one.charged for one in it.it.failures)


@pytest.mark.parametrize("run_max_try", [1, 3])
def test_a_mini_batch_too_large_for_the_memory_is_charged_as_the_first_of_a_process(
    script: Callable[..., Script], run_max_try: int
) -> None:
    """It costs one death more, and no other mini-batch anything."""
    it = script(9, 2, run_max_try=run_max_try)
    it.death, it.kills = FULL, {4}
    it.run()
    assert it.it.given_up == [4]
    assert it.tries(4) == run_max_try
    assert len(it.it.failures) == run_max_try + 1


@pytest.mark.parametrize("failure", [FULL, ASSERT], ids=["memory", "device"])
def test_a_mini_batch_is_not_excused_by_its_own_pieces(
    desk: Any, an_outcome: Callable[..., Outcome], failure: Failure
) -> None:
    """One piece of it passed before the other ended the process, whose first attempt it was."""
    it = desk(1, run_max_try=1)
    (slot,) = it.leases
    end = PiecesEnd(1, passed_before=True)
    failed = {"succeeded": 0, "failure": failure, "pieces": end}
    ended = AgentExited(it.processes[slot], -9, "ended", expected=False)
    if failure is FULL:
        last = an_outcome(0, status=Status.PROCESS_DIED, **failed)
        it.give(slot, death=Death((last,)), agent_events=(ended,))
    else:
        last = an_outcome(0, status=Status.RUN_EXCEPTION, **failed)
        it.give(slot, last, agent_events=(ended,))
    assert it.given_up == [0]


def test_a_fatal_error_while_loading_is_no_other_than_one_in_run(
    script: Callable[..., Script], an_outcome: Callable[..., Outcome]
) -> None:
    """Its process has ended; the mini-batch runs again as the first one of the next process."""
    it = script(3, 1, run_max_try=1)
    it.work(SlotId("tcp://host0", 0, 0))
    (slot,) = it.it.leases
    (one, *_) = it.it.leases[slot].work
    failed = {"status": Status.LOAD_EXCEPTION, "succeeded": 0, "failure": ASSERT}
    exited = AgentExited(it.it.processes[slot], -9, "fatal", expected=False)
    it.it.give(
        slot, an_outcome(one.mini_batch.index, one.attempt, **failed), agent_events=(exited,)
    )
    assert it.it.given_up == []
    assert it.it.ledger.standing().renewals == 1
    it.run()
    assert sorted(it.it.committed) == [0, 1, 2]


def test_what_a_process_holds_survives_its_replacement(
    desk: Any, an_outcome: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds a failure when a mini-batch that must be the first of a process takes its place."""
    monkeypatch.setattr(lease_sizes, "AT_LEAST", 1)
    monkeypatch.setattr(lease_sizes, "IN_HAND_S", 1.0)
    it = desk(4, slots=0, run_max_try=3)
    first, second = it.add(0, 0), it.add(0, 1)

    def give(slot: SlotId, *exited: AgentExited, **fields: Any) -> None:
        lease = it.leases[slot]
        (one,) = lease.work
        name = it.processes[slot]
        events = (AgentStarted(name, 1),) if lease.assignment else ()
        ended = an_outcome(one.mini_batch.index, one.attempt, elapsed_s=1.0, **fields)
        it.give(slot, ended, agent_events=(*events, *exited), process=name)

    failed: dict[str, Any] = {"status": Status.RUN_EXCEPTION, "succeeded": 0}
    for _ in range(3):  # the first call after a renewal fails, too: a process holds two from now on
        give(second, failure=BOOM, **failed)
    give(first)
    give(first)
    exited = AgentExited(it.processes[first], -9, "fatal", expected=False)
    give(first, exited, failure=ASSERT, **failed)
    it.lose(first)
    give(second, failure=BOOM, **failed)
    while it.leases:
        give(second)
    assert it.finished
    assert sorted(it.committed) == [0, 1, 2, 3]


def test_a_job_that_has_lost_a_mini_batch_does_not_complete(
    script: Callable[..., Script],
) -> None:
    """Of all errors of daskprs, one that leaves out rows in silence would be the worst."""
    it = script(9, 1)
    it.it.ledger._state.tally.planned += 1
    it.run()
    assert not it.it.finished
    assert "1 mini-batch is neither done nor failed" in it.it.abort.reason


def test_what_no_retry_mends_is_charged_in_a_broken_process_too(
    script: Callable[..., Script], an_outcome: Callable[..., Outcome]
) -> None:
    """It says nothing about the process, and does not renew it."""
    it = script(3, 1, run_max_try=1)
    (slot,) = it.it.leases
    failed = {"status": Status.RUN_EXCEPTION, "succeeded": 0}
    it.it.give(slot, an_outcome(0, failure=BOOM, **failed))
    it.it.give(slot, an_outcome(1, failure=LASTING, **failed))
    assert it.it.given_up == [0, 1]
    assert it.it.processes[slot] == "process000"


def test_an_empty_range_does_not_show_that_a_process_is_whole(
    script: Callable[..., Script], an_outcome: Callable[..., Outcome]
) -> None:
    """`run` was not called, so that what the process holds is not charged."""
    it = script(9, 1, run_max_try=1)
    (slot,) = it.it.leases
    failed = {"status": Status.RUN_EXCEPTION, "succeeded": 0, "failure": BOOM}
    it.it.give(slot, an_outcome(0, **failed))
    it.it.ledger._renewals._enough = 3
    it.it.give(slot, an_outcome(1, **failed))
    it.it.give(slot, an_outcome(2, total=0, succeeded=0, empty=True))
    assert it.it.given_up == [0]
    it.it.give(slot, an_outcome(3))
    assert it.it.given_up == [0, 1]


@pytest.mark.parametrize("status", [Status.RUN_TIMEOUT, Status.PROCESS_DIED])
def test_a_timeout_or_a_death_in_a_broken_process_is_not_charged(
    script: Callable[..., Script], an_outcome: Callable[..., Outcome], status: Status
) -> None:
    """Nor is what the process held; all of it runs again, the last one first."""
    it = script(9, 1, run_max_try=1)
    (slot,) = it.it.leases
    failed = {"status": Status.RUN_EXCEPTION, "succeeded": 0, "failure": BOOM}
    it.it.give(slot, an_outcome(0, **failed))
    it.it.ledger._renewals._enough = 3
    it.it.give(slot, an_outcome(1, **failed))
    ended = AgentExited(it.it.processes[slot], -9, "ended", expected=False)
    last = an_outcome(2, **failed | {"status": status})
    if status is Status.PROCESS_DIED:
        it.it.give(slot, death=Death((last,)), agent_events=(ended,))
    else:
        it.it.give(slot, last, agent_events=(ended,))
    assert it.it.given_up == [0]
    assert it.it.indexes(slot) == [2]
    it.it.do(slot)
    assert it.it.indexes(slot) == [1]


def test_at_most_five_processes_are_renewed_until_one_of_them_shows_something(
    script: Callable[..., Script], an_outcome: Callable[..., Outcome]
) -> None:
    """Nine slots fail twice each; four of them wait for the first calls of the others."""
    it = script(100, 9, run_max_try=3)
    slots = list(it.it.leases)
    failed = {"status": Status.RUN_EXCEPTION, "succeeded": 0, "failure": BOOM}
    for _ in range(2):
        for slot in slots:
            if slot in it.it.leases:
                (one,) = it.it.leases[slot].work
                it.it.give(slot, an_outcome(one.mini_batch.index, one.attempt, **failed))
    assert len(it.it.leases) == 5
    it.it.do(next(iter(it.it.leases)))
    assert len(it.it.leases) == 9


def test_a_renewed_process_that_is_lost_before_its_first_call_holds_up_nothing(
    script: Callable[..., Script], an_outcome: Callable[..., Outcome]
) -> None:
    """The worker with all five goes; the other four slots go on."""
    it = script(100, 9, run_max_try=3)
    slots = list(it.it.leases)
    failed = {"status": Status.RUN_EXCEPTION, "succeeded": 0, "failure": BOOM}
    for _ in range(2):
        for slot in slots:
            if slot in it.it.leases:
                (one,) = it.it.leases[slot].work
                it.it.give(slot, an_outcome(one.mini_batch.index, one.attempt, **failed))
    it.it.lose(*list(it.it.leases))
    assert len(it.it.leases) == 4
    it.it.do_all()
    assert it.it.finished


def test_one_that_kills_its_process_is_held_once(script: Callable[..., Script]) -> None:
    """A hang costs its whole timeout, however many others fail before it in each process."""
    it = script(9, run_max_try=3, allowed_failed_count=-1)
    it.fails, it.kills = set(range(8)), {8}
    it.run()
    assert sorted(it.it.given_up) == list(range(9))
    assert it.tries(8) == 3
    assert sum(one.mini_batch.index == 8 for one in it.it.failures) == 4
