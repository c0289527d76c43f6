"""The governor keeps its limits, whatever is reported, lost, repeated or dies, and uses them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._core.governor import ENDLESS, SHARE, WINDOW_S, Governor, Report
from daskprs._core.rate_limit import RateLimit
from daskprs.errors import OptionError
from tests.support.api_server import OK, TOO_MANY, ApiModel
from tests.support.cases import mostly_long
from tests.support.governed_calls import GovernedJob, GovernedProcess

MINUTE = 60.0
LIMITS: dict[str, Any] = {"requests_per_minute": 600, "tokens_per_minute": 100_000}


def endpoint(seed: int) -> ApiModel:
    """The server of the issue: its bucket holds a second's worth, and some requests fail anyway."""
    return ApiModel(
        **LIMITS, burst_s=1.0, share_of_500=0.01, share_of_429=0.005, retry_after_s=1.0, seed=seed
    )


@pytest.mark.parametrize("seed", mostly_long(range(6), suite=[0]))
@pytest.mark.parametrize(
    ("tokens", "permitted"), mostly_long([(100, 600.0), (400, 250.0)], suite=[(400, 250.0)])
)
def test_ten_minutes_use_the_permitted_rate_and_are_seldom_refused(
    tokens: int, permitted: float, seed: int
) -> None:
    model = endpoint(seed)
    job = GovernedJob(RateLimit(**LIMITS), model, tokens=tokens, seed=seed).play(MINUTE)
    refused, early = model.over_the_rate, len(job.answers)
    job.play(10 * MINUTE)
    assert len(job.answers) - model.answers[TOO_MANY] >= 0.95 * 10 * permitted
    assert model.over_the_rate - refused <= 0.005 * (len(job.answers) - early)


def test_the_rate_falls_to_what_an_endpoint_bears() -> None:
    """An endpoint with half of the stated rate refuses half, at first."""
    slower = ApiModel(requests_per_minute=300, burst_s=1.0, retry_after_s=None)
    job = GovernedJob(RateLimit(requests_per_minute=600), slower).play(5 * MINUTE)
    assert job.between(4 * MINUTE, 5 * MINUTE, TOO_MANY) < job.between(0.0, MINUTE, TOO_MANY)
    assert job.between(4 * MINUTE, 5 * MINUTE, OK) >= 0.7 * 300


def test_the_rate_rises_again_after_a_fall() -> None:
    governor = Governor(RateLimit(requests_per_minute=600))
    window = Report(ended=100, throttled=10)
    governor.handle({"a": Report()}, 0.0)
    governor.handle({"a": window}, WINDOW_S)
    fallen = governor.share
    governor.handle({"a": window}, 2 * WINDOW_S)
    assert fallen < governor.share <= 1


def test_a_few_refusals_in_a_window_leave_the_rate() -> None:
    governor = Governor(RateLimit(requests_per_minute=600))
    governor.handle({"a": Report()}, 0.0)
    governor.handle({"a": Report(ended=100, throttled=2)}, WINDOW_S)
    assert governor.share == 1
    governor.handle({"a": Report(ended=101, throttled=3)}, 2 * WINDOW_S)
    assert governor.share == 1, "a single one says nothing"


# ---- what is kept whatever happens ----

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "take", "end", "sync", "lose reply", "repeat", "die", "wait"]),
        st.integers(0, 2),
        st.integers(1, 40),
    ),
    max_size=120,
)


class Played:
    """Three processes to which anything may happen, and what they have taken in all."""

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        self.governor = Governor(limit)
        self.now_s = 0.0
        self.processes = [GovernedProcess(str(number)) for number in range(3)]
        self.numbers = count(3)
        self.taken = self.tokens_taken = 0

    def step(self, what: str, number: int, amount: int) -> None:
        """Do something to a process."""
        process = self.processes[number]
        if what == "call":
            process.queue.append(amount)
        elif what == "take":
            self.take(process)
        elif what == "end":
            process.ended = min(process.taken, process.ended + amount)
        elif what == "die":
            self.die(number)
        elif what == "wait":
            self.now_s += amount / 20
        else:
            if what != "sync":
                self.sync(process, loses=True)
            if what != "lose reply":
                self.sync(process)

    def sync(self, process: GovernedProcess, *, loses: bool = False) -> None:
        """Let a process report; `loses` drops the answer."""
        report = process.report(self.now_s)
        grant = self.governor.handle({process.key: report}, self.now_s)[process.key]
        if not loses:
            process.apply(grant, self.now_s)

    def die(self, number: int) -> None:
        """End a process without a word, and begin another."""
        process = self.processes[number]
        self.governor.lose([process.key])
        self.processes[number] = GovernedProcess(str(next(self.numbers)))

    def take(self, process: GovernedProcess) -> None:
        """Let a process take what it can, and check the limits."""
        while (cost := process.take(self.now_s)) is not None:
            self.taken, self.tokens_taken = self.taken + 1, self.tokens_taken + cost
        most = self.limit.in_flight or ENDLESS
        assert sum(one.taken - one.ended for one in self.processes) <= most
        assert self.taken <= 1 + self.allowed(self.limit.requests_per_minute)
        allowed = self.allowed(self.limit.tokens_per_minute)
        assert self.tokens_taken <= allowed + 40  # one call may borrow

    def allowed(self, per_minute: float | None) -> float:
        """Return what may have been taken by now."""
        rate = (per_minute or 0) / 60
        return max(1, rate) + rate * SHARE * self.now_s

    @property
    def waits(self) -> bool:
        """Whether any call waits."""
        return any(process.queue for process in self.processes)


@given(st.integers(30, 1200), st.integers(60, 6000), st.one_of(st.none(), st.integers(1, 5)), STEPS)
def test_no_order_of_events_exceeds_a_limit_or_keeps_a_call_waiting(
    requests: int, tokens: int, most: int | None, steps: list[tuple[str, int, int]]
) -> None:
    limit = RateLimit(requests_per_minute=requests, tokens_per_minute=tokens, in_flight=most)
    played = Played(limit)
    for step in steps:
        played.step(*step)
    until_s = played.now_s + 1e4
    while played.waits and played.now_s < until_s:
        played.now_s += 0.5
        for process in played.processes:
            played.sync(process)
            played.take(process)
            process.ended = process.taken
    assert not played.waits


def test_a_call_that_wants_more_than_the_bucket_holds_comes_to_its_turn() -> None:
    governor = Governor(RateLimit(tokens_per_minute=600))
    small, big = GovernedProcess("small"), GovernedProcess("big")
    small.queue.extend([5] * 1000)
    big.queue.append(500)
    now_s = 0.0
    while big.queue:
        now_s += 0.1
        for process in (small, big):
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            process.take(now_s)
    assert now_s < MINUTE
    assert small.queue


def test_a_small_call_comes_to_its_turn_beside_many_that_want_more_than_the_bucket() -> None:
    governor = Governor(RateLimit(tokens_per_minute=60))
    small, big = GovernedProcess("small"), GovernedProcess("big")
    big.queue.extend([2] * 1000)
    taken = {"small": 0, "big": 0}
    for tenth in range(600):
        now_s = tenth / 10
        if tenth == 50:
            small.queue.extend([1] * 1000)
        for process in (big, small):
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            taken[process.key] += process.take(now_s) is not None
    # They take turns: three tokens pay for a call of each.
    assert taken["small"] >= 15
    assert taken["big"] >= 15


@pytest.mark.parametrize("others", [(100,), (100, 2000)])
def test_a_call_that_nearly_fills_the_bucket_comes_to_its_turn(others: tuple[int, ...]) -> None:
    """Whether the calls of others are small or large: else those would keep the bucket low."""
    governor = Governor(RateLimit(tokens_per_minute=60_000))
    taken = dict.fromkeys((900, *others), 0)
    processes = {tokens: GovernedProcess(str(tokens)) for tokens in taken}
    for tokens, process in processes.items():
        process.queue.extend([tokens] * 10_000)
    for tenth in range(600):
        now_s = tenth / 10
        for tokens, process in processes.items():
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            while process.take(now_s) is not None:
                taken[tokens] += 1
    assert min(taken.values()) >= 15
    assert sum(tokens * count for tokens, count in taken.items()) >= 0.9 * 60_000


def test_a_process_that_reports_seldom_keeps_its_turn() -> None:
    """With a thousand workers, each reports every five seconds."""
    governor = Governor(RateLimit(tokens_per_minute=60))
    small, big = GovernedProcess("small"), GovernedProcess("big")
    small.queue.extend([1] * 1000)
    big.queue.extend([2] * 1000)
    for tenth in range(600):
        now_s = tenth / 10
        for process in (small, big) if tenth % 60 == 0 else (small,):
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            process.take(now_s)
    assert small.taken >= 3
    assert big.taken >= 3


def test_a_worker_that_is_stopped_keeps_up_nobody_whose_requests_take_turns() -> None:
    governor = Governor(RateLimit(in_flight=1))
    stopped, busy = GovernedProcess("stopped"), GovernedProcess("busy")
    busy.queue.extend([0] * 1000)
    stopped.queue.append(0)
    for second in range(160):
        now_s = float(second)
        busy.ended = busy.taken
        # It goes on for a moment after a hundred seconds, and is stopped again.
        for process in (busy, stopped) if second in (0, 100) else (busy,):
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            process.take(now_s)
    assert not stopped.taken
    assert busy.taken > 120


def test_permits_of_a_process_that_has_ended_go_to_others() -> None:
    governor = Governor(RateLimit(in_flight=3))
    dead, living = GovernedProcess("dead"), GovernedProcess("living")
    dead.queue.extend([0] * 3)
    dead.apply(governor.handle({"dead": dead.report(0.0)}, 0.0)["dead"], 0.0)
    while dead.take(0.0) is not None:
        pass
    living.queue.append(0)
    living.apply(governor.handle({"living": living.report(1.0)}, 1.0)["living"], 1.0)
    assert living.take(1.0) is None
    governor.lose(["dead"])
    living.apply(governor.handle({"living": living.report(2.0)}, 2.0)["living"], 2.0)
    assert living.take(2.0) is not None


def test_what_a_process_held_at_its_death_may_have_been_taken_just_then() -> None:
    """What accrued before would come on top of it."""
    governor = Governor(RateLimit(tokens_per_minute=120))
    dead, next_ = GovernedProcess("dead"), GovernedProcess("next")
    dead.queue.append(1)
    assert governor.handle({dead.key: dead.report(0.0)}, 0.0)[dead.key].tokens_granted == 1
    next_.queue.append(2)
    governor.lose([dead.key])
    granted = {
        at_s: governor.handle({next_.key: next_.report(at_s)}, at_s)[next_.key].tokens_granted
        for at_s in (0.4, 0.8, 1.0)
    }
    assert granted == {0.4: 0, 0.8: 0, 1.0: 2}


def test_what_is_taken_back_goes_to_others_once_its_process_has_said_so() -> None:
    """It may take what it had, until it hears that it has it no more."""
    governor = Governor(RateLimit(requests_per_minute=600, in_flight=8))
    idle, busy = GovernedProcess("idle"), GovernedProcess("busy")
    idle.queue.extend([0] * 4)
    for now_s in (0.0, 5.0):
        idle.apply(governor.handle({"idle": idle.report(now_s)}, now_s)["idle"], now_s)
        idle.take(now_s)
    idle.queue.clear()
    idle.ended = idle.taken
    had = idle.granted - idle.taken
    assert had > 0
    busy.queue.extend([0] * 20)
    governor.handle({"busy": busy.report(5.0)}, 5.0)  # an answer that is lost
    lower = governor.handle({"idle": idle.report(5.0)}, 5.0)["idle"]
    assert lower.granted < idle.granted
    assert lower.most_in_flight < idle.most
    busy.apply(governor.handle({"busy": busy.report(5.0)}, 5.0)["busy"], 5.0)
    assert had + busy.granted <= 10
    assert idle.most + busy.most <= 8
    before = busy.granted, busy.most
    idle.apply(lower, 5.0)
    governor.handle({"idle": idle.report(5.0)}, 5.0)
    busy.apply(governor.handle({"busy": busy.report(5.0)}, 5.0)["busy"], 5.0)
    assert busy.granted > before[0]
    assert busy.most > before[1]


def test_the_rate_is_kept_by_processes_that_end_with_each_request() -> None:
    """What they had taken since their last report is not known."""
    governor, taken = Governor(RateLimit(requests_per_minute=60)), 0
    for number in range(100):
        process, now_s = GovernedProcess(str(number)), 0.1 * number
        process.queue.append(0)
        process.apply(governor.handle({number: process.report(now_s)}, now_s)[number], now_s)
        taken += process.take(now_s) is not None
        governor.lose([number])
    assert 5 <= taken <= 11


def test_more_processes_than_requests_take_turns() -> None:
    """As those of several jobs that share a limit do; nobody waits for the end of another job."""
    governor = Governor(RateLimit(in_flight=2))
    processes = [GovernedProcess(str(number)) for number in range(5)]
    for process in processes:
        process.queue.extend([0] * 1000)
    for turn in range(1000):
        now_s = 0.05 * turn
        for process in processes:
            if turn % 4 == 0:  # a request takes 0.2 s
                process.ended = process.taken
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            while process.take(now_s) is not None:
                pass
        assert sum(one.taken - one.ended for one in processes) <= 2
    taken = [one.taken for one in processes]
    assert min(taken) > max(taken) / 2
    assert sum(taken) > 400, "a turn costs little: 500 would fit"


def test_a_turn_lasts_until_a_call_has_its_tokens() -> None:
    """It takes seconds to get them, and others wait for the only request in flight meanwhile."""
    governor = Governor(RateLimit(tokens_per_minute=60_000, in_flight=1))
    processes = {tokens: GovernedProcess(str(tokens)) for tokens in (300, 4000, 2000)}
    for tokens, process in processes.items():
        process.queue.extend([tokens] * 1000)
    for tenth in range(1200):
        now_s = tenth / 10
        for tokens, process in processes.items():
            if tenth % 5 and tokens == 2000:  # another worker reports less often
                continue
            process.ended = process.taken
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            process.take(now_s)
    taken = [process.taken for process in processes.values()]
    assert min(taken) >= 10
    assert max(taken) <= 2 * min(taken)


def test_a_call_with_many_tokens_keeps_nobody_while_it_may_not_begin() -> None:
    """The limit of requests in flight has fallen meanwhile, by that of another job."""
    governor = Governor(RateLimit(tokens_per_minute=600, in_flight=8))
    small, big = GovernedProcess("small"), GovernedProcess("big")
    small.queue.extend([1] * 5)
    big.queue.extend([500] * 2)
    for turn in range(1200):
        if turn == 4:
            assert big.most
            assert len(big.queue) == 2, "it waits for its turn"
            governor.change(RateLimit(tokens_per_minute=600, in_flight=1))
        now_s = 0.1 * turn
        for process in (small, big) if turn < 4 else (big, small):
            grant = governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
            process.apply(grant, now_s)
            process.take(now_s)
            process.ended = process.taken
    assert not small.queue
    assert not big.queue


def test_a_pause_holds_all_and_permits_accrue_up_to_a_burst() -> None:
    governor = Governor(RateLimit(requests_per_minute=600))
    governor.handle({"b": Report(pause_s=5.0)}, 0.0)
    assert governor.handle({"a": Report(waiting=100)}, 1.0)["a"] == (0, ENDLESS, ENDLESS, 4.0)
    granted = governor.handle({"a": Report(0, ENDLESS, ENDLESS, waiting=100)}, 5.0)["a"].granted
    assert granted == int(10 * SHARE)


@pytest.mark.parametrize(
    ("given_limits", "told"),
    [
        ({}, "it limits nothing"),
        ({"requests_per_minute": 0}, "requests_per_minute=0 must be a number above 0"),
        ({"tokens_per_minute": True}, "tokens_per_minute=True"),
        ({"tokens_per_minute": float("inf")}, "tokens_per_minute=inf"),
        ({"in_flight": 1.5}, "in_flight=1.5 must be a whole number from 1"),
        ({"in_flight": 3, "name": ""}, "name='' must be a text"),
    ],
)
def test_limits_are_checked_when_they_are_made(given_limits: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        RateLimit(**given_limits)


def test_jobs_that_share_a_limit_keep_the_lowest_of_each_number() -> None:
    one = RateLimit(requests_per_minute=60, in_flight=8, name="account")
    other = RateLimit(requests_per_minute=90, tokens_per_minute=1000, name="account")
    lowest = RateLimit(requests_per_minute=60, tokens_per_minute=1000, in_flight=8, name="account")
    assert one.lowest(other) == lowest
