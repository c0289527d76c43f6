"""The governor: hands out permits for requests to an endpoint, within the limits of a job.

It has no clock, and does no I/O: each call brings the time. Processes report sums that only grow,
with the permits that they have. So a report that is lost, or comes twice, changes nothing: what a
process says it has counts, and the rest goes back. What is taken back is there for others once its
process has said that it has it no more.

A process takes a permit by itself, out of those that it has. It gets one for each call that waits,
and where none waits anywhere, some ahead. What it does not need is taken back.

*Bursts.* A limit is a bucket into which permits accrue, also during a pause, up to `BURST_S`
seconds' worth. Permits that processes hold count as if they were in it. The governor stays a little
below each limit, so that the bucket of the endpoint, which may hold no more, recovers from requests
that have come in closer than they were sent.

*Pauses.* An answer that says "too many requests" pauses all processes for the time that it names.
That alone does not lower the rate: some endpoints answer so at random. The rate falls when more
than `MOST_THROTTLED` of the answers of a window say so, and rises again window by window.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from daskprs._core.rate_limit import RateLimit

Key = TypeVar("Key", bound="Hashable")
"""What tells processes apart."""
ENDLESS = 1 << 60
"""Stands for permits without a limit."""
BURST_S = 1.0
"""Seconds of a limit that may be used at the same time."""
SHARE = 0.99
"""The share of a limit that is used."""
WINDOW_S = 10.0
MOST_THROTTLED = 0.02
"""The share of the answers of a window beyond which the rate falls …"""
FEWEST_THROTTLED = 2
"""… if they are so many."""
FALL_LEAST, FALL_MOST = 0.05, 0.5
"""The rate falls by the share of such answers, but by so much at least and at most …"""
RISE = 0.05
"""… and rises by so much of the limit."""
LEAST_SHARE = 0.02
"""The rate does not fall below this share of the limit."""
IDLE_S = 2.0
"""Seconds without a permit taken after which a process holds none ahead."""
HEARD_S = 5.0
"""Seconds by which a report is late after which nobody waits for the turn of its process."""
TURN_S = 1.0
"""Seconds for which a process may have no request in flight while others have."""


class Report(NamedTuple):
    """What a process says; sums since its start, but for what waits and the pause."""

    granted: int = 0
    """Permits that it was given, those that were taken back left out."""
    tokens_granted: int = 0
    most_in_flight: int = 0
    """How many may be in flight there, as it was told last."""
    taken: int = 0
    """Permits that calls have taken."""
    tokens_taken: int = 0
    """The tokens of these calls, as they were corrected."""
    ended: int = 0
    """Permits whose requests have ended."""
    throttled: int = 0
    """Answers that said "too many requests"."""
    waiting: int = 0
    """Calls that wait for a permit."""
    tokens_wanted: int = 0
    """The tokens that they want …"""
    tokens_wanted_first: int = 0
    """… and those that the first of them wants."""
    pause_s: float = 0.0
    """Seconds for which it wants all to pause."""

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return max(0, self.taken - self.ended)


class Grant(NamedTuple):
    """What a process may do: sums as in its report."""

    granted: int
    tokens_granted: int
    most_in_flight: int
    pause_s: float
    """Seconds for which no request may begin."""


class Bucket:
    """Permits that accrue at a rate; without a limit, there are always enough."""

    def __init__(self, per_minute: float | None, first: float) -> None:
        self._per_minute = per_minute
        self.level = 0.0 if per_minute is None else min(first, self.most(1.0))

    @property
    def is_endless(self) -> bool:
        """Whether there is no limit."""
        return self._per_minute is None

    def most(self, share: float) -> float:
        """Return what it holds at most, at a share of the rate."""
        return inf if self._per_minute is None else max(1.0, self._per_s(share) * BURST_S)

    def limit(self, per_minute: float | None) -> None:
        """Change the limit."""
        self._per_minute = per_minute
        self.level = min(self.level, self.most(1.0))

    def _per_s(self, share: float) -> float:
        return (self._per_minute or 0.0) / 60 * SHARE * share

    def accrue(self, seconds: float, held: int, share: float) -> None:
        """Let time pass; `held` of the permits lie with processes."""
        if self.is_endless:
            return
        room = self.most(share) - held
        self.level = max(self.level, min(room, self.level + seconds * self._per_s(share)))

    def has(self, amount: int, share: float, kept: int = 0) -> bool:
        """Say whether it has an amount beside what is kept for another call.

        An amount that it cannot hold is lent when it is full, and kept by keeping all.
        """
        if amount <= 0 or self.is_endless:
            return True
        most = self.most(share)
        return self.level >= min(amount, most) + min(kept, most)

    def take(self, amount: int) -> None:
        """Take an amount; a negative one goes back."""
        if not self.is_endless:
            self.level = min(self.level - amount, self.most(1.0))


@dataclass(slots=True)
class _Member:
    """What the governor knows of a process."""

    report: Report
    most_in_flight: int = 0
    """How many may be in flight there, as it is told next."""
    taken_before: int = 0
    """Permits that had been taken at the report before the last one."""
    tokens_before: int = 0
    heard_s: float = inf
    """When it has last reported."""
    every_s: float = 0.0
    """Seconds between its last two reports: of many workers, each reports less often."""
    busy_s: float = -inf
    """When it has last taken any."""
    short_s: float = inf
    """Since when its next call waits, for which there were no permits; infinite if none does."""
    idle_s: float = inf
    """Since when calls wait there and none has begun; infinite where one is in flight."""

    @property
    def held(self) -> int:
        return max(0, self.report.granted - self.report.taken)

    @property
    def tokens_held(self) -> int:
        return max(0, self.report.tokens_granted - self.report.tokens_taken)

    @property
    def demand(self) -> int:
        """Requests that it has under way, or wants."""
        return self.report.in_flight + self.report.waiting

    @property
    def may_begin(self) -> int:
        """Calls that wait and may be in flight."""
        report = self.report
        return min(report.waiting, max(0, self.most_in_flight - report.in_flight))

    @property
    def reserved(self) -> int:
        """What counts of the limit of requests at the same time: also what it knows so far."""
        report = self.report
        return max(self.most_in_flight, report.most_in_flight, report.in_flight)


@dataclass(slots=True)
class _Wish:
    """What a process gets in a round, while that is found out."""

    member: _Member
    left: int
    """Calls for which nothing is found yet."""
    spare: int
    """Permits that it holds for no call."""
    tokens_spare: int
    granted: int = 0
    tokens: int = 0
    is_first: bool = True

    def needed(self) -> int:
        """Return the tokens of the next call that waits."""
        report = self.member.report
        if self.is_first:
            return report.tokens_wanted_first
        others = report.waiting - 1
        return ceil((report.tokens_wanted - report.tokens_wanted_first) / max(1, others))


@dataclass(slots=True)
class _Window:
    """The answers of some seconds."""

    begun_s: float | None = None
    answers: int = 0
    throttled: int = 0


class Governor:
    """Hands out the permits of an endpoint to the processes of one or several jobs."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._requests = Bucket(limit.requests_per_minute, 1.0)
        self._tokens = Bucket(limit.tokens_per_minute, inf)
        self._members: dict[Hashable, _Member] = {}
        self._now_s: float | None = None
        self._paused_until_s = -inf
        self._window = _Window()
        self.share = 1.0
        """The share of the limits that is used at present."""
        self._lost = self._tokens_lost = 0
        """What processes held that have ended since time was counted last."""
        self._turn = 0
        self._first: _Member | None = None
        """The process whose next call has waited longest of those that lack tokens: others get only
        what it leaves."""

    def change(self, limit: RateLimit) -> None:
        """Keep other limits from now on."""
        self._limit = limit
        self._requests.limit(limit.requests_per_minute)
        self._tokens.limit(limit.tokens_per_minute)

    # ---- what processes report ----

    def handle(self, reports: Mapping[Key, Report], now_s: float) -> dict[Key, Grant]:
        """Take reports of some processes, and return what each of them may do.

        A process that reports again has applied what it was granted, or never will.
        """
        self._pass_time(now_s)
        for key, report in reports.items():
            # One that was taken for lost has paid for what it has.
            self._hear(self._members.setdefault(key, _Member(report)), report, now_s)
        self._judge_window(now_s)
        members = {key: self._members[key] for key in reports}
        is_paused = now_s < self._paused_until_s
        wishes = {key: self._wish(member, now_s) for key, member in members.items()}
        if not is_paused:
            self._serve_waiting([*wishes.values()])
        for member, wish in zip(members.values(), wishes.values(), strict=True):
            member.short_s = min(member.short_s, now_s) if wish.left else inf
        grants, is_short = {}, self._waiting_since_s() < inf
        for key, wish in wishes.items():
            if not is_paused:
                self._keep_ahead(wish, now_s, is_short=is_short)
            grants[key] = self._granted(wish, now_s)
        return grants

    def lose(self, keys: Iterable[Hashable]) -> None:
        """Forget processes that have ended: others may have as many requests in flight.

        What they held may be used up, and counts so: a script that ends its process with each
        request keeps the limits, too.
        """
        for key in keys:
            member = self._members.pop(key, None)
            if member is not None:
                # It may have taken them at any moment until now, so no others accrued meanwhile.
                self._lost += member.held
                self._tokens_lost += member.tokens_held
            if member is self._first:
                self._first = None

    def _pass_time(self, now_s: float) -> None:
        passed_s = 0.0 if self._now_s is None else max(0.0, now_s - self._now_s)
        self._now_s = now_s
        members = self._members.values()
        held, self._lost = self._lost + sum(one.held for one in members), 0
        tokens, self._tokens_lost = self._tokens_lost + sum(one.tokens_held for one in members), 0
        self._requests.accrue(passed_s, held, self.share)
        self._tokens.accrue(passed_s, tokens, self.share)

    def _hear(self, member: _Member, report: Report, now_s: float) -> None:
        """Take a report; what it has not got, or has given back, is there for others."""
        before = member.report
        # One that was stopped for minutes is not waited for as long when it stops again.
        most_s = HEARD_S + 2 * member.every_s
        member.every_s, member.heard_s = min(most_s, max(0.0, now_s - member.heard_s)), now_s
        self._requests.take(report.granted - before.granted)
        over = max(0, report.tokens_taken - report.tokens_granted)  # corrected after the fact
        self._tokens.take(report.tokens_granted + over - before.tokens_granted)
        report = report._replace(tokens_granted=report.tokens_granted + over)
        if report.taken > before.taken:
            member.busy_s, member.idle_s = now_s, inf
        member.taken_before, member.tokens_before = before.taken, before.tokens_taken
        member.report = report
        if report.pause_s > 0:
            self._paused_until_s = max(self._paused_until_s, now_s + report.pause_s)
        self._window.answers += max(0, report.ended - before.ended)
        self._window.throttled += max(0, report.throttled - before.throttled)

    def _judge_window(self, now_s: float) -> None:
        """Lower or raise the rate at the end of a window."""
        window = self._window
        if window.begun_s is None:
            window.begun_s = now_s
        if now_s - window.begun_s < WINDOW_S:
            return
        most = MOST_THROTTLED * window.answers
        if window.throttled >= FEWEST_THROTTLED and window.throttled > most:
            fall = min(FALL_MOST, max(FALL_LEAST, window.throttled / max(1, window.answers)))
            self.share = max(LEAST_SHARE, (1 - fall) * self.share)
        else:
            self.share = min(1.0, self.share + RISE)
        self._window = _Window(now_s)

    # ---- what they get ----

    def _serve_waiting(self, wishes: list[_Wish]) -> None:
        """Grant permits to calls that wait, one for each process in turn."""
        self._turn += 1
        start = self._turn % max(1, len(wishes))
        turn = [one for one in wishes[start:] + wishes[:start] if one.left]
        first = self._first
        if first is not None and not (first.may_begin and self._is_heard(first)):
            self._first = None
        turn.sort(key=lambda one: one.member is not self._first)
        since_s = self._waiting_since_s()
        while turn:
            turn = [one for one in turn if one.left and self._serve_one(one, since_s)]

    def _serve_one(self, wish: _Wish, since_s: float) -> bool:
        """Grant what the next call of a process lacks; return False where there is not enough.

        `since_s` says since when the call waits that has waited longest.
        """
        member, needed = wish.member, wish.needed()
        more, tokens = max(0, 1 - wish.spare), max(0, needed - wish.tokens_spare)
        kept, tokens_kept = self._kept_from(member)
        has_tokens = self._tokens.has(tokens, self.share, tokens_kept)
        if not (has_tokens and self._requests.has(more, self.share, kept)):
            # Only the longest: else one could come first again and again.
            if not has_tokens and self._first is None and member.short_s <= since_s:
                self._first = member
            return False
        if self._first is member:
            self._first = None
        self._grant(wish, more, tokens)
        member.short_s = inf  # its next call begins to wait
        wish.spare -= 1
        wish.tokens_spare -= needed
        wish.left -= 1
        wish.is_first = False
        return True

    def _kept_from(self, member: _Member) -> tuple[int, int]:
        """Return the permits and the tokens that are kept for the call that comes first.

        Smaller calls of others would else keep the bucket from filling, for ever.
        """
        first = self._first
        if first is None or first is member:
            return 0, 0
        tokens = first.report.tokens_wanted_first - first.tokens_held
        return max(0, 1 - first.held), max(0, tokens)

    def _waiting_since_s(self) -> float:
        """Return since when the call waits that has waited longest; infinite if none does."""
        heard = (one.short_s for one in self._members.values() if self._is_heard(one))
        return min(heard, default=inf)

    def _is_heard(self, member: _Member) -> bool:
        """Say whether a process reports: its worker may be stopped, and keeps up nobody."""
        return (self._now_s or 0.0) - member.heard_s < HEARD_S + member.every_s

    def _grant(self, wish: _Wish, requests: int, tokens: int) -> None:
        """Grant an amount; a negative one is there for others once its process reports that."""
        self._requests.take(max(0, requests))
        self._tokens.take(max(0, tokens))
        wish.granted += requests
        wish.tokens += tokens
        wish.spare += requests
        wish.tokens_spare += tokens

    def _keep_ahead(self, wish: _Wish, now_s: float, *, is_short: bool) -> None:
        """Let a process that is at work hold permits ahead, if none waits elsewhere."""
        member = wish.member
        ahead = tokens_ahead = 0
        is_busy = now_s - member.busy_s < IDLE_S
        if is_busy and not is_short:
            taken = member.report.taken - member.taken_before
            tokens = max(0, member.report.tokens_taken - member.tokens_before)
            ahead = 1 + 2 * taken
            tokens_ahead = ceil(tokens / taken * ahead) if taken else 0
        more = self._at_most(self._requests, ahead - wish.spare)
        tokens_more = self._at_most(self._tokens, tokens_ahead - wish.tokens_spare)
        self._grant(wish, more, tokens_more)

    def _at_most(self, bucket: Bucket, amount: int) -> int:
        """Return how much of an amount a process gets: its share of what is there.

        What it holds beyond its need, a negative amount, goes back.
        """
        if bucket.is_endless or amount <= 0:
            return amount
        return min(amount, max(0, int(bucket.level)) // max(1, len(self._members)))

    def _granted(self, wish: _Wish, now_s: float) -> Grant:
        member, report = wish.member, wish.member.report
        granted = ENDLESS if self._requests.is_endless else report.granted + wish.granted
        tokens = ENDLESS if self._tokens.is_endless else report.tokens_granted + wish.tokens
        member.report = report._replace(
            granted=max(granted, report.granted), tokens_granted=max(tokens, report.tokens_granted)
        )
        pause_s = max(0.0, self._paused_until_s - now_s)
        return Grant(granted, tokens, member.most_in_flight, pause_s)

    def _most_in_flight(self, member: _Member, now_s: float) -> int:
        """Return how many requests of a process may be in flight: its share by demand."""
        limit = self._limit.in_flight
        if limit is None:
            return ENDLESS
        members = self._members.values()
        demand = sum(one.demand for one in members)
        if demand <= limit:
            wanted = member.demand + (limit - demand) // len(members)
        else:
            wanted = -(-limit * member.demand // demand)
        free = limit - sum(one.reserved for one in members if one is not member)
        before = min(member.idle_s, now_s - TURN_S)
        free -= sum(
            one.idle_s < before and not one.reserved and self._is_heard(one) for one in members
        )
        return max(0, min(free, wanted))

    def _wish(self, member: _Member, now_s: float) -> _Wish:
        """Return what a process wants: permits for calls that may begin."""
        member.most_in_flight = self._most_in_flight(member, now_s)
        # Its turn lasts until a call has begun: to get the tokens for it may take seconds.
        is_idle = member.report.waiting > 0 and not member.report.in_flight
        member.idle_s = min(member.idle_s, now_s) if is_idle else inf
        return _Wish(member, member.may_begin, member.held, member.tokens_held)
