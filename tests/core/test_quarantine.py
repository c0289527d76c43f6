"""Places where everything fails, and retries that go elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from daskprs._core.actions import Remark, SlotAdded, SlotId, SlotResources
from daskprs._core.lease import AgentExited, AgentStarted
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._core.placement import ELSEWHERE_S
from daskprs._core.quarantine import PROBE_AFTER_S

BOOM = Failure("ValueError", "boom", "Traceback …")


class Cluster:
    """A desk with nodes that fail what is given to their bad slots or devices."""

    def __init__(self, desk: Any, count: int, **limits: Any) -> None:
        self.it = desk(count, slots=0, **limits)
        self.bad_slots: set[SlotId] = set()
        self.bad_devices: set[str] = set()
        self.bad_mini_batches: set[int] = set()
        self.processes: dict[SlotId, str] = {}
        self.seen: dict[SlotId, str] = {}
        self.worked_on: list[tuple[SlotId, int]] = []

    def add(self, node: int, number: int = 0, *, bad: bool = False, devices: Any = ()) -> SlotId:
        """Let a slot come."""
        slot = SlotId(f"tcp://host{node}", number, node)
        if bad:
            self.bad_slots.add(slot)
        self.it.tell(SlotAdded(slot, SlotResources(devices, 1)))
        return slot

    def do(self, slot: SlotId, *, ends: bool = False) -> None:
        """Let what a slot has come back; its process ends then, or goes on."""
        lease = self.it.leases[slot]
        events: tuple[Any, ...] = ()
        if lease.assignment is not None:
            self.processes[slot] = lease.assignment.process
            self.seen[slot] = lease.assignment.environment.get("CUDA_VISIBLE_DEVICES", "")
            events = (AgentStarted(lease.assignment.process, 1),)
        if ends:
            exited = AgentExited(self.processes[slot], 0, "ended", expected=True)
            events = (*events, exited)
        outcomes = []
        for mini_batch, attempt, *_ in lease.work:
            index = mini_batch.index
            bad = slot in self.bad_slots or self.seen[slot] in self.bad_devices
            bad = bad or index in self.bad_mini_batches
            self.worked_on.append((slot, index))
            done = Outcome(index, attempt, Status.RUN_DONE, 1, 1, 0.0, 1.0, 1.0, 1.0)
            failed = done._replace(status=Status.RUN_EXCEPTION, succeeded=0, failure=BOOM)
            outcomes.append(failed if bad else done)
        self.it.give(slot, *outcomes, process=self.processes[slot], agent_events=events)

    def do_all(self, rounds: int = 1000) -> None:
        """Let everything come back, slot after slot, until nothing is out."""
        for _ in range(rounds):
            if not self.it.leases:
                return
            for slot in list(self.it.leases):
                if slot in self.it.leases:
                    self.do(slot)

    @property
    def remarks(self) -> list[str]:
        """What was said to people."""
        return [
            one.message
            for one in self.it.said
            if isinstance(one, Remark) and one.level == "warning"
        ]

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return what the standing names."""
        left_out: tuple[str, ...] = self.it.ledger.standing().left_out
        return left_out


def test_a_node_on_which_everything_fails_is_left_out_and_loses_nothing(desk: Any) -> None:
    """With two tries: the second one is made on the good node."""
    cluster = Cluster(desk, 60, run_max_try=2)
    bad = [cluster.add(0, number, bad=True) for number in range(2)]
    cluster.add(1)
    cluster.do_all()
    assert cluster.it.finished
    assert sorted(cluster.it.committed) == list(range(60))
    assert "node 0" in cluster.left_out
    assert any(remark.startswith("node 0 is left out: ") for remark in cluster.remarks)
    assert sum(slot in bad for slot, _ in cluster.worked_on) < 15


def test_without_retries_others_that_work_meanwhile_speak_against_a_node(desk: Any) -> None:
    """Some are lost, and then no more."""
    cluster = Cluster(desk, 100, run_max_try=1)
    for number in range(2):
        cluster.add(0, number, bad=True)
    for number in range(2):
        cluster.add(1, number)
    cluster.do_all()
    assert "node 0" in cluster.left_out
    assert 3 <= len(cluster.it.given_up) < 15


def test_a_script_that_fails_everywhere_is_no_nodes_fault(desk: Any) -> None:
    """Nothing is left out where nothing works."""
    cluster = Cluster(desk, 30, run_max_try=2)
    for node in range(3):
        cluster.add(node, bad=True)
    for _ in range(200):
        cluster.do_all()
        cluster.it.tick(ELSEWHERE_S)
    assert cluster.it.finished
    assert cluster.left_out == ()


def test_mini_batches_that_fail_everywhere_are_nobodys_fault(desk: Any) -> None:
    """Ten bad ones in a row, on nodes where others work."""
    cluster = Cluster(desk, 60, run_max_try=2)
    cluster.bad_mini_batches = set(range(20, 30))
    for node in range(2):
        cluster.add(node)
    cluster.do_all()
    assert cluster.it.finished
    assert sorted(cluster.it.given_up) == list(range(20, 30))
    assert cluster.left_out == ()


def test_a_device_on_which_everything_fails_is_left_out(desk: Any) -> None:
    """Its slot is not used without one; the other devices of the node are."""
    cluster = Cluster(desk, 80, run_max_try=3)
    cluster.bad_devices = {"1"}
    slots = [cluster.add(0, number, devices=("0", "1")) for number in range(2)]
    cluster.do_all()
    assert cluster.it.finished
    assert sorted(cluster.it.committed) == list(range(80))
    assert "GPU 1 on node 0" in cluster.left_out
    assert "node 0" not in cluster.left_out
    assert sum(slot == slots[1] for slot, _ in cluster.worked_on) < 12
    assert set(cluster.seen.values()) == {"0", "1"}


@pytest.mark.parametrize("well_again", [True, False])
def test_what_is_left_out_is_tried_again_with_one_mini_batch(
    desk: Any, *, well_again: bool
) -> None:
    """If that works it is used as before; if not, it is not charged, and the pause is longer."""
    cluster = Cluster(desk, 200, run_max_try=2)
    bad = [cluster.add(0, number, bad=True) for number in range(2)]
    good = cluster.add(1)
    while "node 0" not in cluster.left_out:
        cluster.do_all(rounds=1)
    while not set(bad).isdisjoint(cluster.it.leases):
        cluster.do_all(rounds=1)
    charged = sum(failure.charged for failure in cluster.it.failures)
    if well_again:
        cluster.bad_slots.clear()
    cluster.it.tick(PROBE_AFTER_S)
    (trial,) = set(bad) & set(cluster.it.leases)
    assert len(cluster.it.leases[trial].work) == 1
    cluster.do(trial)
    assert sum(failure.charged for failure in cluster.it.failures) == charged
    cluster.it.tick(PROBE_AFTER_S)
    assert (set(bad) <= set(cluster.it.leases)) is well_again
    assert any("node 0 works again" in remark for remark in cluster.remarks) is well_again
    if not well_again:
        cluster.it.tick(PROBE_AFTER_S)
        assert len(set(bad) & set(cluster.it.leases)) == 1
    assert good in cluster.it.leases


def test_what_is_left_out_is_used_when_there_is_nothing_else(desk: Any) -> None:
    """The good node goes: better a bad one than none."""
    cluster = Cluster(desk, 100, run_max_try=3)
    bad = [cluster.add(0, number, bad=True) for number in range(2)]
    good = cluster.add(1)
    while "node 0" not in cluster.left_out:
        cluster.do_all(rounds=1)
    cluster.bad_slots.clear()
    cluster.it.lose(good)
    assert set(bad) <= set(cluster.it.leases)
    cluster.do_all()
    assert cluster.it.finished


def test_a_retry_waits_for_another_node_and_not_for_ever(desk: Any) -> None:
    """The node where it failed is free at once, the other one is at something long."""
    cluster = Cluster(desk, 2, run_max_try=3)
    bad = cluster.add(0, bad=True)
    good = cluster.add(1)
    cluster.do(bad, ends=True)
    assert bad not in cluster.it.leases
    cluster.it.tick(ELSEWHERE_S - 1)
    assert bad not in cluster.it.leases
    cluster.it.tick(1)
    assert bad in cluster.it.leases
    cluster.do(bad, ends=True)
    cluster.do(good)
    assert cluster.it.indexes(good) == [0]


def logged(it: Any) -> list[str]:
    """Return what the log of the driver has, beside what people see."""
    return [one.message for one in it.said if isinstance(one, Remark) and one.level == "debug"]


def test_the_log_names_probes_refusals_and_suspects_too(desk: Any) -> None:
    """A retry without a failure of its own may run anywhere."""
    cluster = Cluster(desk, 200, run_max_try=2)
    bad = [cluster.add(0, number, bad=True) for number in range(2)]
    cluster.add(1)
    while "node 0" not in cluster.left_out:
        cluster.do_all(rounds=1)
    while not set(bad).isdisjoint(cluster.it.leases):
        cluster.do_all(rounds=1)
    cluster.it.tick(PROBE_AFTER_S)
    assert logged(cluster.it)[-1].endswith(": node 0 gets it as a probe.")
    it = desk(2, slots=1)
    (slot,) = it.leases
    it.add(0, node=1)
    it.refuse(slot)
    it.tick(1.0)
    assert logged(it)[-1].endswith("no success on node 0, and no slot of another node is free.")
    it = desk(1000, slots=1)
    (slot,) = it.leases
    it.do(slot, seconds_each=0.01)
    it.die(slot, 0, 1)
    it.do_all()
    assert logged(it)[-1].endswith("since it was not found to fail anywhere.")


def test_the_log_has_the_reason_for_the_slot_of_a_retry(desk: Any) -> None:
    """One goes to another node; one has waited for it in vain; one has no other node."""
    cluster = Cluster(desk, 2, run_max_try=4)
    bad, other = cluster.add(0, bad=True), cluster.add(1, bad=True)
    cluster.do(bad, ends=True)
    cluster.it.tick(ELSEWHERE_S)
    cluster.do(other, ends=True)
    cluster.it.lose(other)
    cluster.do(bad, ends=True)
    cluster.do(bad, ends=True)
    reasons = logged(cluster.it)
    assert [reason.partition(": ")[2] for reason in reasons] == [
        "it had no success on node 0, and no slot of another node was free for 30 s.",
        "it had no success on node 1, and was not on this one.",
        "it had no success on node 0, and no other node has a usable slot.",
    ]
    assert reasons[0].startswith("mini-batch 0, attempt 2, goes to node 0, slot 0 of tcp://host0")


def test_what_fails_where_there_is_nothing_else_is_given_up(desk: Any) -> None:
    """A place that is left out is no excuse for ever."""
    cluster = Cluster(desk, 100, run_max_try=3)
    for number in range(2):
        cluster.add(0, number, bad=True)
    good = cluster.add(1)
    while "node 0" not in cluster.left_out:
        cluster.do_all(rounds=1)
    cluster.it.lose(good)
    cluster.do_all(rounds=500)
    assert cluster.it.finished
    assert cluster.it.given_up


def test_nothing_is_kept_of_agents_that_have_ended(desk: Any) -> None:
    """A script that kills them one after the other has had a hundred thousand in the end."""
    it = desk(200, slots=2, run_max_try=2)
    kept = set()
    while it.leases:
        for slot, lease in list(it.leases.items()):
            process = f"process of lease {lease.id}"
            (index, attempt), *others = ((one.mini_batch.index, one.attempt) for one in lease.work)
            done = Outcome(index, attempt, Status.RUN_DONE, 1, 1, 0.0, 1.0, 1.0, 1.0)
            events = ()
            if attempt == 1:
                done = done._replace(status=Status.PROCESS_DIED, succeeded=0, failure=BOOM)
                events = (AgentExited(process, -9, "killed", expected=False),)
            untouched = tuple(other for other, _ in others)
            it.give(slot, done, process=process, untouched=untouched, agent_events=events)
            kept.add(len(it.ledger._placement.quarantine._records))
    assert it.finished
    assert sorted(it.committed) == list(range(200))
    assert max(kept) <= 3
