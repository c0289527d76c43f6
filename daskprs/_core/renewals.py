"""Renewals: a process that one mini-batch may have broken is replaced before others pay for it.

A process is sound after `init` and after each success, until a failure. The failure in a sound
process is charged. Each further one is held: the process may be broken (a CUDA context after a
device-side assert, a connection that is closed), and then every mini-batch fails in it. A success
shows that the process is whole, so that what it holds is charged after all. A process that holds
enough is renewed, and what it held runs again, uncharged.

The ledger cannot know beforehand whether a script breaks its processes or whether many of its
mini-batches are bad. The first call after a renewal tells: where it succeeds, the process was
broken, and one held failure is enough from then on. Where it fails, a process has to hold twice as
many. If five renewals help nowhere, the script fails everywhere: failures are charged at once.

Where a process makes several calls at the same time, a success shows that what had failed when it
began has not broken the process, and nothing about what failed meanwhile (`core.soundness`).

A device may report late, by a fatal error, what an earlier attempt has broken. A process that is
killed for want of memory may be full of what the script has kept of others. Only the first attempt
of a process is charged then; any other one runs again as the first of a new process.

A search blames nothing that fails in a broken process (`core.isolation`). Where one follows, and
processes have succeeded after failures, failures are charged at once, too: with a bad row in each
mini-batch, what is held would fail again in each new process, as long as any is not searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._core.actions import FailAttempt
from daskprs._core.memory_sizes import died_of_memory
from daskprs._core.outcomes import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs._core.entry import Entry
    from daskprs._core.ledger_state import AgentRecord, LedgerState, SlotRecord
    from daskprs._core.outcomes import Outcome
    from daskprs._core.stall_timer import StallTimer

BETWEEN_SUCCESSES = 5
"""Maximum number of renewals that begin between two successes anywhere in the job."""
MOST_HELD = 1024
"""Maximum number of failures that one process holds: the driver keeps each with its traceback."""
ENOUGH_WHOLE = 2
"""Number of successes after failures in one process that show that failures leave it whole."""
ENDS_OF_PROCESSES = (Status.RUN_TIMEOUT, Status.PROCESS_DIED)
MOST_IN_A_ROW = 1 << 20
"""Maximum number of failures in a row in one process of a script that fails everywhere."""


class Renewals:
    """Judges which failures are charged, and which processes are renewed."""

    def __init__(self, state: LedgerState, timer: StallTimer) -> None:
        self.count = 0
        """Number of renewals so far, also of those after fatal errors."""
        self._is_told = False
        """Whether people have seen why a process is renewed; the log has all reasons."""
        self._state = state
        self._timer = timer
        self._enough = 1
        """Number of held failures with which a process is renewed."""
        self._since_success = 0
        """Number of renewals since the last success; those without a first call do not count."""
        self.is_helpless = False
        """Whether the first calls of all these renewals failed: failures are charged although their
        processes may be broken."""
        self._whole = 0
        """Number of successes after failures in one process since one that was broken."""
        self._epoch = 0
        """Number of times that a success followed renewals."""

    @property
    def most_in_a_row(self) -> int:
        """Number of failures in a row after which an agent stops: the process is renewed."""
        if self.is_helpless:
            return self._enough
        return min(self._enough, MOST_HELD) + 1

    def is_calm(self, agent: AgentRecord) -> bool:
        """Return whether a further success of a process changes nothing."""
        return bool(agent.calls) and not agent.soundness.in_a_row and not self._since_success

    # ---- what happens in a process ----

    def succeed(
        self, agent: AgentRecord, failed_before: int | None = None
    ) -> list[tuple[Entry, Outcome]]:
        """Record a success; return the failures that the process held, and that are charged now.

        `failed_before` says how many had failed when the call began, where there are several.
        """
        if agent.calls == 0 and agent.epoch is not None:
            self._enough, self._whole = 1, 0
        self._whole += bool(agent.soundness.in_a_row)
        agent.calls += 1
        known = agent.soundness.succeed(failed_before)
        agent.short_of_memory = 0
        agent.is_worn = agent.is_worn and agent.soundness.in_a_row >= self.most_in_a_row
        if self._since_success:
            self._since_success, self.is_helpless = 0, False
            self._epoch += 1
        charged = [(entry, outcome) for entry, outcome, number in agent.held if number <= known]
        agent.held = [one for one in agent.held if one[2] > known]
        return charged

    def fail(
        self,
        agent: AgentRecord,
        entry: Entry,
        outcome: Outcome,
        *,
        is_first: bool,
        is_searched: bool = False,
    ) -> bool:
        """Record a failure that is not neutral; return whether it is charged, not held.

        That of a bisection is not held: it runs again in a new process. `is_first` says that no
        other attempt has ended in the process, `is_searched` that a bisection follows the last try.
        """
        is_new = agent.calls == 0
        is_sound = agent.soundness.fail(outcome.failed_before)
        if outcome.status is Status.RUN_TIMEOUT and outcome.failed_before is None:
            # Its process was ended for it, and for all that had taken too long by then: each of
            # them has done so by itself, whatever is settled first.
            is_sound = agent.was_sound = is_sound or agent.was_sound
        is_charged = self._is_charged(
            entry, outcome, is_first=is_first, is_sound=is_sound, is_searched=is_searched
        )
        agent.calls += 1
        if is_sound:
            agent.first_failed, agent.others_failed = (entry.mini_batch.index, outcome.failure), 0
        agent.others_failed += entry.mini_batch.index != agent.first_failed[0]
        if outcome.is_fatal:
            # An error of a device is reported late, by a call that had no part in it. Only the
            # first call of a process can be blamed, so it runs again as one.
            agent.is_worn = True
            if not is_charged and not entry.is_searched:
                agent.held.append((entry.first(), outcome, agent.soundness.failures))
            return is_charged
        if is_new and agent.epoch is not None:
            self._enough = min(2 * self._enough, MOST_IN_A_ROW)
        if not is_charged and not entry.is_searched:
            # One that has ended its process would end the next one, too, after another one that
            # fails there: only that one would be charged, and this one attempted again and again,
            # for the whole of its timeout.
            has_ended_it = outcome.status in ENDS_OF_PROCESSES and outcome.failed_before is None
            held = entry.first() if has_ended_it else entry
            agent.held.append((held, outcome, agent.soundness.failures))
        if agent.soundness.in_a_row >= self.most_in_a_row:
            agent.is_worn = True
        return is_charged

    def _is_charged(
        self,
        entry: Entry,
        outcome: Outcome,
        *,
        is_first: bool,
        is_sound: bool,
        is_searched: bool,
    ) -> bool:
        if outcome.is_fatal:
            is_alone = outcome.failed_before is None or entry.runs_first
            return is_first and is_alone
        may_be_innocent = not (is_first or entry.runs_first or entry.is_searched)
        if may_be_innocent and died_of_memory(outcome):
            return False  # what the script has kept of others may have filled the memory
        if is_sound:
            return True
        # A row that is found is blamed for good, and renewals may see no success where bad rows
        # break their processes.
        is_known = self.is_helpless or (is_searched and self._whole >= ENOUGH_WHOLE)
        return is_known and not entry.is_searched

    # ---- renewals ----

    def may_begin(self) -> bool:
        """Return whether a process may be renewed now, or waits for the first calls of others."""
        return self.is_helpless or self._since_success < BETWEEN_SUCCESSES

    def judge(self, usable: Callable[[], Iterable[SlotRecord]]) -> None:
        """Conclude that renewals do not help once the first calls after all of them failed.

        Those of agents in slots that get no work are not awaited.
        """
        if self.may_begin():
            return
        agents = [flight.agent for flight in self._state.leases.values()]
        agents += [slot.agent for slot in usable() if slot.agent is not None]
        self.is_helpless = not any(map(self.is_pending, agents))
        if self.is_helpless:
            self._enough = 1
            self._state.remark(
                "warning",
                f"{BETWEEN_SUCCESSES} processes were renewed one after the other, and nothing has "
                "succeeded in any of them. Failures count as tries again, until a mini-batch "
                "succeeds.",
            )

    def begin(self, slot: SlotRecord, agent: AgentRecord) -> int:
        """Record that a worn process is renewed; return the epoch, which its new one gets."""
        self._since_success += 1
        self.replace(slot, agent)
        return self._epoch

    def replace(self, slot: SlotRecord, agent: AgentRecord, why: str = "") -> None:
        """Record that a process is renewed, at once for a reason that needs no trial."""
        self.count += 1
        self._timer.progress()
        is_news = bool(why or agent.others_failed) and not self._is_told
        self._is_told |= is_news
        level = "warning" if is_news else "info"
        process = f"{agent.assignment.process} on node {slot.id.node}"
        self._state.remark(level, f"{process} is renewed: {why or self._why(agent)}.")

    def release(self, agent: AgentRecord) -> None:
        """Put back what a process holds, uncharged: the last one first, before all others.

        A mini-batch that has failed by itself before waits as it did after that failure.
        """
        held, agent.held = agent.held, []
        for entry, outcome, _ in held:
            self._state.errors.retry(entry.mini_batch.index, outcome.failure)
            self._state.actions.append(
                FailAttempt(entry.mini_batch, outcome, final=False, charged=False)
            )
        at_once = []
        for entry in [entry.again() for entry, *_ in reversed(held)]:
            if delay_s := self._state.delay_s(entry):
                self._state.delay(entry, delay_s)
            else:
                at_once.append(entry)
        self._state.backlog.put_back(at_once, anywhere=True)

    def retire(self, agent: AgentRecord) -> None:
        """Put back what a process holds that has ended, or that gets no more work."""
        self.release(agent)
        if self.is_pending(agent):  # a renewal without a first call says nothing
            self._since_success -= 1
        agent.epoch = None

    def is_pending(self, agent: AgentRecord) -> bool:
        """Return whether the first call of a renewed process is still to come."""
        return agent.calls == 0 and agent.epoch == self._epoch

    def _why(self, agent: AgentRecord) -> str:
        index, failure = agent.first_failed
        kind = "" if failure is None else f" ({failure.kind})"
        others = agent.others_failed
        if not others:
            times = (
                ""
                if agent.soundness.in_a_row == 1
                else f" {agent.soundness.in_a_row} times in a row"
            )
            return f"mini-batch {index} failed in it{times}{kind}"
        next_ones = "another one" if others == 1 else f"{others} others"
        again = "counted as a try" if self.is_helpless else "runs again, and this counts as no try"
        return (
            f"mini-batch {index} failed in it{kind}, and then {next_ones}. Mini-batch {index} may "
            f"have broken the process. What failed after it {again}"
        )
