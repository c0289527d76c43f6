"""Several calls at a time in a process that one of them may break: the innocent do not pay."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._core.lease import AgentExited, AgentStarted, Death
from daskprs._core.outcomes import Failure, Status
from daskprs._core.soundness import Soundness

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.actions import SlotId
    from daskprs._core.lease import Lease
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome

BOOM = Failure("ValueError", "boom")
FATAL = Failure("AcceleratorError", "device-side assert", fatal=True)
AT_ONCE = 8
KINDS = "fails", "breaks", "kills", "ruins"


class Processes:
    """Processes that make several calls at a time, which end in any order."""

    def __init__(
        self, desk: Any, outcome: Callable[..., Outcome], seed: int, **limits: Any
    ) -> None:
        self.rng = random.Random(seed)  # noqa: S311
        count = self.rng.choice([5, 30, 100])
        self.slots = self.rng.choice([1, 2, 3])
        self.it = desk(count, slots=self.slots, calls=AT_ONCE, **limits)
        self.kinds = [
            self.rng.choice(KINDS) if self.rng.random() < 0.1 else "" for _ in range(count)
        ]
        self._outcome = outcome
        self._state: dict[SlotId, Any] = {}

    def run(self) -> None:
        """Work until nothing is left."""
        for _ in range(2000):
            if not self.it.leases:
                return
            self._work(self.rng.choice(list(self.it.leases)))
        pytest.fail("it does not come to its end")

    def _work(self, slot: SlotId) -> None:
        lease: Lease = self.it.leases[slot]
        events: list[Any] = []
        if lease.assignment is not None:
            self._state[slot] = SimpleNamespace(
                name=lease.assignment.process, soundness=Soundness(), broken=False, ruined=False
            )
            events.append(AgentStarted(lease.assignment.process, 1))
        process = self._state[slot]
        waiting = [*lease.work]
        running: list[tuple[Any, int]] = []
        done: list[Outcome] = []
        halted, death = False, None
        while running or (waiting and not halted):
            while waiting and not halted and len(running) < AT_ONCE:
                running.append((waiting.pop(0), process.soundness.failures))
                process.ruined |= self.kinds[running[-1][0].mini_batch.index] == "ruins"
            assigned, before = running.pop(self.rng.randrange(len(running)))
            kind = self.kinds[assigned.mini_batch.index]
            if kind == "kills":
                suspects = [assigned, *(one for one, *_ in running)]
                death = Death(tuple(self._ended(one, Status.PROCESS_DIED) for one in suspects))
                events.append(AgentExited(process.name, -11, "died", expected=False))
                break
            has_failed = bool(kind) or process.broken or process.ruined
            process.broken |= kind == "breaks"
            status = Status.RUN_EXCEPTION if has_failed else Status.RUN_DONE
            made = self._ended(assigned, status)._replace(failed_before=before)
            done.append(made._replace(failure=FATAL) if process.ruined else made)
            (process.soundness.fail if has_failed else process.soundness.succeed)(before)
            halted |= has_failed and process.soundness.in_a_row >= lease.most_in_a_row
            halted |= process.ruined
        left = tuple(one.mini_batch.index for one in waiting)
        self.it.give(
            slot,
            *done,
            process=process.name,
            untouched=left,
            death=death,
            halted=halted and death is None,
            agent_events=tuple(events),
        )

    def _ended(self, assigned: Any, status: Status) -> Outcome:
        failure = None if status is Status.RUN_DONE else BOOM
        succeeded = int(failure is None)
        index, attempt = assigned.mini_batch.index, assigned.attempt
        return self._outcome(index, attempt, status=status, failure=failure, succeeded=succeeded)


@pytest.mark.parametrize("run_max_try", [1, 3])
def test_only_what_is_bad_is_given_up(
    desk: Any, an_outcome: Callable[..., Outcome], run_max_try: int
) -> None:
    """Whatever breaks or kills its process, and whatever else runs there."""
    for seed in range(100):
        they = Processes(desk, an_outcome, seed, run_max_try=run_max_try)
        they.run()
        bad = [index for index, kind in enumerate(they.kinds) if kind]
        charged = {one.mini_batch.index for one in they.it.failures if one.charged}
        if len(bad) == len(they.kinds):
            continue
        assert sorted(they.it.given_up) == bad, seed
        assert charged <= {*bad}, seed
        assert sorted(they.it.committed) == [n for n, kind in enumerate(they.kinds) if not kind]


def test_all_calls_begin_at_once_where_the_plan_is_as_long_as_it_proves(
    desk: Any, a_mini_batch: Callable[..., MiniBatch], an_outcome: Callable[..., Outcome]
) -> None:
    """Calls that take half a minute would else be few for minutes: 1, then 4, 16 and so on."""
    it = desk(map(a_mini_batch, range(100)), slots=2, calls=AT_ONCE)
    assert [len(lease.work) for lease in it.leases.values()] == [AT_ONCE, AT_ONCE]
    slot, lease = next(iter(it.leases.items()))
    it.give(slot, *(an_outcome(one.mini_batch.index, elapsed_s=30.0) for one in lease.work))
    assert len(it.leases[slot].work) == 2 * AT_ONCE
