"""A mini-batch that fails costs the items that fail in it, whatever they do to their process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daskprs._core.actions import Commit, FailAttempt, KeepCommit, KeepRowColumns, Remark
from daskprs._core.bisection import most_failed
from daskprs._core.lease import AgentExited, AgentStarted, Death
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._core.pieces import FailedRows, PiecesEnd, Recovered

if TYPE_CHECKING:
    from daskprs._core.lease import Lease
    from daskprs._core.mini_batch import Assigned

MOST_LEASES = 20_000
RAISES, DIES, POISONS = "raises", "dies", "poisons"
"""What a bad item does; after the last, every call in its process raises."""
BOOM = Failure("ValueError", "boom", "Traceback …")


class Agents:
    """Agents in which the items of a job do what they do."""

    def __init__(self, it: Any, bad: dict[tuple[int, int], str], **job: Any) -> None:
        self.it = it
        self.bad = bad
        self.fails_everywhere = job.get("fails_everywhere", False)
        self.is_independent = job.get("is_independent", True)
        self.dies_together = job.get("dies_together", False)
        self.calls = self.starts = 0
        self.called: set[tuple[int, int]] = set()
        self.processes: dict[Any, str] = {}
        self.broken: set[str] = set()
        self.in_a_row: dict[str, int] = {}

    def work(self) -> None:
        """Let all leases come back until none is left."""
        for _ in range(MOST_LEASES):
            if not self.it.leases:
                return
            self._return(next(iter(self.it.leases)))
        pytest.fail("the job does not end")

    def _return(self, slot: Any) -> None:
        lease: Lease = self.it.leases[slot]
        events: list[Any] = []
        if lease.assignment is not None:
            self.processes[slot] = lease.assignment.process
            self.starts += 1
            events.append(AgentStarted(lease.assignment.process, 1))
        process, outcomes, death, halted = self.processes[slot], [], None, False
        left = list(lease.work)
        while left and not halted:
            one = self._attempted(process, left.pop(0))
            if one.status is Status.PROCESS_DIED:
                death = Death((one,))
                events.append(AgentExited(process, -11, "died", expected=False))
                break
            outcomes.append(one)
            in_a_row = 0 if one.failure is None else self.in_a_row.get(process, 0) + 1
            self.in_a_row[process] = in_a_row
            halted = in_a_row >= lease.most_in_a_row
        self.it.give(
            slot,
            *outcomes,
            process=process,
            untouched=tuple(one.mini_batch.index for one in left),
            agent_events=tuple(events),
            death=death,
            halted=halted,
        )

    def _attempted(self, process: str, assigned: Assigned) -> Outcome:
        """Return the outcome of an attempt, as an agent makes it."""
        mini_batch, attempt, pieces, _ = assigned
        items = mini_batch.items or 0
        done = Outcome(mini_batch.index, attempt, Status.RUN_DONE, items, items, 0.0, 0.1, 0.1, 0.1)
        if pieces is None:
            return self._failed(done, self._call(process, mini_batch.index, 0, items))
        ends = []
        for position, range_ in enumerate(pieces.ranges):
            end = self._call(process, mini_batch.index, *range_)
            ends.append(end)
            if end == DIES:
                at = PiecesEnd(position, position > 0 and not pieces.is_trial)
                return self._failed(done, DIES)._replace(pieces=at)
            if pieces.is_trial and not end:
                break
            if end and not pieces.is_trial:
                at = PiecesEnd(position, position > 0)
                return self._failed(done, end)._replace(pieces=at)
        if pieces.is_trial:
            last = pieces.ranges[len(ends) - 1]
            is_checked = pieces.checks and not ends[-1] and last[1] - last[0] > 1
            independent = self.is_independent if is_checked else None
            at = PiecesEnd(
                0, passed_after=not ends[-1] and bool(ends[0]), is_independent=independent
            )
            return self._failed(done, ends[0])._replace(pieces=at)
        failed = sum(one.stop - one.start for one in pieces.failed)
        is_checked = pieces.checks and sum(stop - start for start, stop in pieces.ranges) > 1
        if is_checked and self.dies_together:
            at = PiecesEnd(len(pieces.ranges), passed_before=True)
            return self._failed(done, DIES)._replace(pieces=at)
        return done._replace(
            succeeded=items - failed,
            pieces=PiecesEnd(is_independent=self.is_independent if is_checked else None),
            failed_rows=FailedRows(pieces.failed),
        )

    def _call(self, process: str, index: int, start: int, stop: int) -> str:
        """Call `run` for a range; return what it does, nothing if it returns."""
        self.calls += 1
        self.called |= {(index, item) for item in range(start, stop)}
        for item in range(start, stop):
            what = self.bad.get((index, item), "")
            if what == POISONS:
                self.broken.add(process)
            if what:
                return DIES if what == DIES else RAISES
        return RAISES if process in self.broken or self.fails_everywhere else ""

    def _failed(self, done: Outcome, what: str) -> Outcome:
        if not what:
            return done
        status = Status.PROCESS_DIED if what == DIES else Status.RUN_EXCEPTION
        return done._replace(status=status, failure=BOOM, succeeded=0)


def begun(desk: Any, sizes: list[int], bad: dict[tuple[int, int], str], **job: Any) -> Agents:
    """Return the agents of a job with mini-batches of these sizes."""
    plan = iter(MiniBatch(index, None, f"id-{index}", size) for index, size in enumerate(sizes))
    of_agents = {
        name: job.pop(name)
        for name in ("fails_everywhere", "is_independent", "dies_together")
        if name in job
    }
    return Agents(desk(plan, **({"isolates": True} | job)), bad, **of_agents)


def failed_items(it: Any) -> set[tuple[int, int]]:
    """Return what the committed mini-batches lack."""
    commits = [one for one in it.said if isinstance(one, Commit)]
    return {
        (outcome.index, item)
        for commit in commits
        for outcome in commit.made.outcomes
        if outcome.failed_rows is not None
        for failed in outcome.failed_rows.items
        for item in range(failed.start, failed.stop)
    }


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw mini-batches, and at most as many bad items in each as are looked for."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    whats = st.sampled_from([RAISES, DIES, POISONS])
    bad = {}
    for index, size in enumerate(sizes, 1):
        some = draw(st.sets(st.integers(0, size - 1), max_size=most_failed(size)))
        bad |= {(index, item): draw(whats) for item in some}
    return {
        "sizes": [40, *sizes],  # the first one is good: else all might be bad
        "bad": bad,
        "slots": draw(st.integers(1, 3)),
        "run_max_try": draw(st.integers(1, 2)),
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job=jobs())
def test_just_the_bad_items_are_left_out(desk: Any, job: dict[str, Any]) -> None:
    """No mini-batch fails, and no innocent item, however bad ones end or break their process."""
    agents = begun(desk, **job)
    agents.work()
    assert agents.it.finished
    assert sorted(agents.it.committed) == [*range(len(job["sizes"]))]
    assert agents.it.given_up == []
    assert failed_items(agents.it) == job["bad"].keys()
    standing = agents.it.ledger.standing()
    assert standing.items == (
        sum(job["sizes"]),
        sum(job["sizes"]) - len(job["bad"]),
        len(job["bad"]),
    )
    assert standing.not_returned == 0


def test_items_of_a_commit_that_could_not_be_written_count_nowhere(desk: Any) -> None:
    """A full disk: those that had failed by themselves are neither failed nor lost by `run`."""
    agents = begun(desk, [40, 10], {(1, 3): RAISES})
    agents.work()
    last = next(one for one in reversed(agents.it.said) if isinstance(one, Commit))
    assert [one.count for one in last.made.outcomes.column("failed_rows")] == [1]
    agents.it.ledger.take_back([last])
    standing = agents.it.ledger.standing()
    assert (standing.items.failed, standing.not_returned) == (0, 0)


def test_rows_that_raise_need_no_new_process(desk: Any) -> None:
    """A trial of the other half shows that the process is whole."""
    bad = {(index, 3 * index): RAISES for index in range(0, 30, 3)}
    agents = begun(desk, [100] * 30, bad, run_max_try=1)
    agents.work()
    assert failed_items(agents.it) == bad.keys()
    assert agents.starts == 1
    assert agents.calls <= 30 + 10 * 18


def test_rows_that_are_not_independent_are_not_searched(desk: Any) -> None:
    """It is said once; what fails counts as failed, as without the search."""
    agents = begun(desk, [8] * 4, {(1, 5): RAISES, (3, 2): DIES}, is_independent=False)
    agents.work()
    assert agents.it.committed == [0, 2]
    assert sorted(agents.it.given_up) == [1, 3]
    told = [one.message for one in agents.it.said if isinstance(one, Remark)]
    assert sum("are not independent of each other" in one for one in told) == 1


def test_a_process_that_ends_while_rows_are_compared_is_the_fault_of_none(desk: Any) -> None:
    """Of single rows that pass alone, and fill the memory together; no other attempt compares."""
    bad = {(index, 1): RAISES for index in range(3)}
    agents = begun(desk, [3] * 3, bad, dies_together=True, run_max_try=1)
    agents.work()
    assert failed_items(agents.it) == bad.keys()
    told = [one.message for one in agents.it.said if isinstance(one, Remark)]
    assert sum("could not be checked" in one for one in told) == 1
    assert agents.starts <= 3


def test_who_says_that_rows_are_independent_is_believed(desk: Any) -> None:
    """No call is made to find it out."""
    agents = begun(desk, [8] * 4, {(1, 5): RAISES}, is_independent=False, independent_rows=True)
    agents.work()
    assert failed_items(agents.it) == {(1, 5)}


@pytest.mark.parametrize("size", [2, 32])
def test_a_script_that_fails_everywhere_is_not_searched_for_ever(desk: Any, size: int) -> None:
    """After ten mini-batches without a good half, the others fail as a whole."""
    agents = begun(desk, [size] * 40, {}, fails_everywhere=True, run_max_try=1)
    agents.work()
    assert agents.it.committed == []
    assert sorted(agents.it.given_up) == [*range(40)]
    assert agents.calls < 40 + 10 * 100


@pytest.mark.parametrize("size", [1, 6])
def test_a_mini_batch_in_which_all_is_bad_waits_for_a_success(desk: Any, size: int) -> None:
    """Else it would fail as a whole, or not, by which mini-batch is done first."""
    bad = {(0, item): RAISES for item in range(size)}
    agents = begun(desk, [size, size, size], bad, run_max_try=1, allowed_failed_count=0)
    agents.work()
    assert agents.it.committed == [1, 0, 2]
    assert failed_items(agents.it) == bad.keys()
    assert agents.it.given_up == []


def test_what_an_earlier_run_has_committed_is_a_success(desk: Any) -> None:
    """Also where it is found only once nothing else is left to do."""
    done = Recovered(total=2, succeeded=2)
    bad = {(0, 0): RAISES, (0, 1): RAISES}
    recovered = {"recovered": lambda one: done if one.index else None}
    agents = begun(desk, [2, 2], bad, run_max_try=1, allowed_failed_count=0, **recovered)
    agents.work()
    assert agents.it.committed == [0]
    assert agents.it.finished


def test_what_cannot_be_loaded_is_no_bad_row(desk: Any, an_outcome: Any) -> None:
    """Its mini-batch fails as a whole."""
    it = desk(1, isolates=True, run_max_try=1)
    slot = next(iter(it.leases))
    it.give(slot, an_outcome(0, status=Status.LOAD_EXCEPTION, failure=BOOM, succeeded=0))
    assert it.given_up == [0]
    assert all(isinstance(one, FailAttempt) for one in it.failures)


@pytest.mark.parametrize("most", [1, 3])
def test_many_rows_that_raise_need_few_processes(desk: Any, most: int) -> None:
    """Where both halves of a range fail, one that has passed shows that the process is whole."""
    bad = {(1, item): RAISES for item in range(0, 128, 5)}
    agents = begun(desk, [128, 128], bad, run_max_try=most)
    agents.work()
    assert failed_items(agents.it) == bad.keys()
    assert agents.starts <= 14  # until a range has passed, which takes seven halvings at most


def test_a_bad_row_in_each_mini_batch_costs_no_attempts_beside_the_tries(desk: Any) -> None:
    """A search has shown that failures leave a process whole: nothing is held any more."""
    count, tries = 150, 3
    bad = {(index, 5): RAISES for index in range(count)}
    agents = begun(desk, [32] * count, bad, run_max_try=tries)
    agents.work()
    assert failed_items(agents.it) == bad.keys()
    assert len(agents.it.failures) <= tries * count + 50
    assert agents.starts <= 20


def test_a_mini_batch_that_only_runs_out_of_time_fails_the_job_that_wants_it(
    desk: Any, an_outcome: Any
) -> None:
    """Also where a search for the row has found nothing that can run."""
    it = desk(
        iter([MiniBatch(0, None, "0", 2)]), isolates=True, run_max_try=1, fail_on_timeout=True
    )
    slot = next(iter(it.leases))
    late = {"status": Status.RUN_TIMEOUT, "failure": BOOM, "succeeded": 0, "total": 2}
    it.give(slot, an_outcome(0, **late))
    assert it.leases[slot].work[0].pieces is not None
    loads = late | {"status": Status.LOAD_EXCEPTION}
    it.give(slot, an_outcome(0, it.leases[slot].work[0].attempt, **loads))
    assert "ran out of time in its attempt" in it.abort.reason


def has_failed(*items: int, total: int = 32) -> Recovered:
    """Return the commit of a mini-batch without some items, which run again."""
    gaps = tuple((item, item + 1) for item in items)
    done, alone = total - len(items), len(items)
    return Recovered(total, done, alone=alone, gaps=gaps, returned=done)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 31), min_size=1, max_size=8), min_size=1, max_size=12),
    st.data(),
)
def test_just_what_has_failed_runs_again(desk: Any, gaps: list[set[int]], data: Any) -> None:
    """Whatever some of it does, each mini-batch is committed once, without what fails again."""
    places = [(index, item) for index, items in enumerate(gaps) for item in sorted(items)]
    ends = st.sampled_from([RAISES, DIES, POISONS, ""])
    drawn = {place: data.draw(ends) for place in places}
    bad = {place: what for place, what in drawn.items() if what}
    recovered = {"recovered": lambda one: has_failed(*sorted(gaps[one.index]))}
    agents = begun(desk, [32] * len(gaps), bad, run_max_try=1, **recovered)
    agents.work()
    assert sorted(agents.it.committed) == [*range(len(gaps))]
    assert bad.keys() <= failed_items(agents.it) <= {*places}
    # What fails in a process that may be broken may stay listed, once new ones have not helped.
    assert POISONS in bad.values() or failed_items(agents.it) == bad.keys()
    assert agents.called <= {*places}


def test_rows_that_are_all_still_bad_need_few_processes(desk: Any) -> None:
    """Nothing that is sound may run beside them, to show that a process is whole."""
    bad = {(index, 5): RAISES for index in range(200)}
    recovered = {"recovered": lambda _: has_failed(5)}
    agents = begun(desk, [32] * 200, bad, run_max_try=1, **recovered)
    agents.work()
    assert failed_items(agents.it) == bad.keys()
    assert agents.starts <= 20


def test_what_cannot_run_again_stays_as_it_was(desk: Any, an_outcome: Any) -> None:
    """Its file cannot be read any more: its rows stay, and no budget counts the mini-batch."""
    it = desk(
        iter([MiniBatch(0, None, "0", 32)]),
        isolates=True,
        run_max_try=1,
        allowed_failed_count=0,
        recovered=lambda _: has_failed(5),
    )
    slot = next(iter(it.leases))
    late = {"status": Status.LOAD_EXCEPTION, "failure": BOOM, "succeeded": 0, "total": 32}
    it.give(slot, an_outcome(0, **late))
    assert it.finished
    assert not it.given_up
    assert [one.mini_batch.index for one in it.said if isinstance(one, KeepCommit)] == [0]
    assert it.ledger.standing().items == (32, 31, 1)


def test_the_columns_are_noted_before_the_commit_that_has_told_them(desk: Any) -> None:
    """A driver that dies between the two leaves a commit to a resume, which needs them then."""
    it = desk(3, isolates=True, independent_rows=True)
    (slot,) = it.leases
    said = [type(one) for one in it.do(slot, columns=("n", "double"))]
    assert said.index(KeepRowColumns) < said.index(Commit)
