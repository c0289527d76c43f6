"""What a seed decides before anything happens: the job, and what befalls it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import accumulate

from daskprs._core.calls import Calls
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.rate_limit import RateLimit
from daskprs._core.stages import Stages
from daskprs._output.spec import OutputSpec
from tests.simulation.endpoints import Endpoint, tokens_of
from tests.simulation.items import (
    DIES,
    GOOD,
    HANGS,
    NAMED,
    NEEDS_MEMORY,
    OF_STAGES,
    POISONS,
    RAISES,
    REFUSED,
    SLOW,
    Items,
)
from tests.simulation.keys import Keyed
from tests.simulation.stages import INIT_S

SPECS = {
    "text": OutputSpec(text=True, typed=False),
    "headed": OutputSpec(text=True, typed=False, header=True),
    "jsonl": OutputSpec(text=True, typed=False, format="jsonl", single_file=True),
    "parquet": OutputSpec(text=True, typed=False, format="parquet"),
}
EARLIER = b"another output\n"
"""What has the name of the output before the job."""


@dataclass
class Scenario:
    """What a seed decides before anything happens."""

    seed: int
    count: int
    """Number of mini-batches."""
    hosts: int
    threads: int
    """Of each worker."""
    limits: Limits
    seconds: float
    """The usual length of a mini-batch."""
    latency_s: float
    bad: dict[int, list[str]]
    """What befalls the attempts at a mini-batch, one after the other; the last one for ever."""
    strikes: list[tuple[float, str]]
    """What befalls the cluster, and when."""
    on_disk: dict[tuple[str, int], str]
    """What befalls the operations of drivers on the disk, by the moment and their number in it."""
    lies: bool
    """Whether the disk of the first driver syncs nothing."""
    init_fails: set[int]
    """Starts of agents that fail, by their number."""
    form: str = "text"
    """The form of the output."""
    replaces: bool = False
    """Whether another output has the name, until the job replaces it."""
    ends_s: float | None = None
    """The deadline of the first driver, in seconds from the start."""
    far: frozenset[str] = frozenset()
    """Hosts that do not see the job folder."""
    life_s: float | None = None
    """Seconds after which each worker closes by itself, and another one takes its place."""
    items: Items | None = None
    """The items of the mini-batches, where these have several."""
    in_message_bytes: int = 8 << 20
    """Bytes of rows from which they stay on a far host until they are fetched."""
    carried_bytes: int = 4 << 20
    """Bytes of data that a lease carries to one."""
    damaged: float = 0.0
    """Share of the pieces of results that a far host reads with another byte than was written."""
    is_elsewhere: bool = False
    """Whether the driver is on another host than all workers."""
    partitions: tuple[int, ...] = ()
    """The rows of the partitions, where the input is a collection."""
    is_cut: bool = False
    """Whether each row of a partition is a mini-batch."""
    typed: str = ""
    """``beside`` the output or ``alone``: rows are kept with their types; empty: they are not."""
    part_bytes: int = 2_000
    """Bytes of rows from which a part of a data set is full."""
    small_bytes: int = 8 << 20
    """Bytes of rows below which the driver writes a part itself."""
    stages: Stages | None = None
    """The stages of `run`, where they have processes of their own."""
    init_s: float = INIT_S
    """Seconds that `init` takes in a process of `run`."""
    calls: Calls | None = None
    """Calls of `run` at a time of a process, where it makes several."""
    endpoint: Endpoint | None = None
    """The endpoint that the script calls."""
    keyed: Keyed | None = None
    """The table, where its rows are brought together by key: each key is a mini-batch."""

    @property
    def rows_of_partitions(self) -> tuple[int, ...]:
        """The rows of each partition of the collection."""
        return self.partitions if self.keyed is None else tuple(map(len, self.keyed.rows))

    @property
    def length_s(self) -> float:
        """About the seconds that the job takes."""
        return STARTS_S + self.count * self.seconds / (self.hosts * self.threads)

    @property
    def spec(self) -> OutputSpec:
        """The rows that are kept."""
        is_null = self.items is not None and self.items.on_error == "null"
        return SPECS[self.form]._replace(
            text=self.typed != "alone",
            typed=bool(self.typed),
            errors=is_null,
            file_size_bytes=self.part_bytes,
        )

    @property
    def isolates(self) -> bool:
        """Whether mini-batches that fail are searched: how many fail depends on what is found."""
        return self.items is not None and self.items.isolates

    @property
    def must_fail(self) -> bool:
        """Whether more mini-batches fail than may."""
        return 0 <= self.limits.allowed_failed_count < len(self.settled_bad)

    @property
    def settled_bad(self) -> set[int]:
        """The mini-batches that fail in each attempt, where none is searched."""
        if self.items is None:
            return {index for index, acts in self.bad.items() if acts[-1] != GOOD}
        is_independent = self.limits.independent_rows
        return {
            index
            for index in range(0 if self.isolates else self.count)
            if self.items.fails_for_ever(index, is_independent=is_independent)
        }

    @property
    def kinds(self) -> list[str]:
        """What is rare in a job, for the counts."""
        items = self.items
        rare = {
            "" if items is None else f"items, {items.on_error}": items,
            "far nodes": self.far,
            "lives of workers": self.life_s,
            "typed rows": self.typed,
            "partitions": self.partitions,
            "keys": self.keyed,
            "keys, of partitions": self.keyed is not None and self.keyed.is_collection,
            "parts by workers": self.small_bytes <= FEW_BYTES,
            "lives of processes": self.limits.agent_max_mini_batches,
            "calls at a time": self.calls,
            "endpoint": self.endpoint,
            "rate limit": self.endpoint is not None and self.endpoint.limit,
            "stages": self.stages,
            "stages, init takes long": self.stages and self.init_s > 1,
            "little memory": items is not None and items.most_rows,
        }
        return [f"job: {name}" for name, there in rare.items() if there]

    @property
    def acting(self) -> set[int]:
        """The mini-batches to which anything is done by the script."""
        items = self.items
        return {*self.bad} if items is None else {index for index, _ in items.acts}

    def is_innocent(self, index: int) -> bool:
        """Return whether no attempt at a mini-batch fails by its own fault."""
        items = self.items
        if items is None:
            return index not in self.bad
        halves = self.limits.independent_rows
        lacks_memory = items.lacks_memory(index, items.sizes[index])
        return not items.ends_calls(index) and (halves or not lacks_memory)

    def most_attempts(self, index: int) -> int:
        """Return how many attempts a mini-batch may cost where nothing befalls the cluster."""
        items, tries = self.items, self.limits.run_max_try + IN_VAIN
        if items is None:
            breaking = sum(POISONS in acts for acts in self.bad.values())
            return tries + self.limits.run_max_try * max(0, breaking - 1)
        size = items.sizes[index]
        halves = size.bit_length() + 1
        ends = len(items.acts_of(index)) + 1
        if items.most_rows is not None and items.lacks_memory(index, size):
            ends += size // items.most_rows
        return tries + EACH_HALF * ends * (halves + AT_ITS_END)

    def mended(self) -> Scenario:
        """Return the scenario with a script that never fails."""
        items = None if self.items is None else self.items.mended()
        return replace(self, bad={}, items=items)

    def plan(self) -> list[MiniBatch]:
        """Return the mini-batches of the job."""
        items = self.items
        if items is None:
            return [MiniBatch(index, index, f"part {index}", 1) for index in range(self.count)]
        firsts = accumulate(items.sizes, initial=0)
        known = [
            (items.sizes[index], first) if items.is_known else (None, None)
            for index, first in zip(range(self.count), firsts, strict=False)
        ]
        return [
            MiniBatch(index, index, f"part {index}", size, row_lower_bound=first)
            for index, (size, first) in enumerate(known)
        ]


COUNTS = (1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 12)
"""Numbers of mini-batches. Most jobs are small: a fault that a large one shows, ten small ones show
sooner."""
STARTS_S = 1.5
"""About the seconds until the first mini-batch has run."""
STRIKES = (
    *("kill worker", "kill worker", "retire worker", "stop worker", "add worker", "busy worker"),
    *("cut client", "kill scheduler", "kill host", "stop driver", "kill driver", "second driver"),
    *("locked out driver", "rot"),
)
OPENING, AT_WORK, PUBLISHING, ENDING = "opening", "at work", "publishing", "ending"
MOMENTS = {OPENING: 40, AT_WORK: 10, PUBLISHING: 25, ENDING: 6}
"""The moments of a driver, and about how many operations on the disk each has."""
IN_VAIN = 8
"""Attempts at a mini-batch that may be made in processes which one other has broken, or none; each
further one that breaks its process may do so at each of its tries."""
EACH_HALF = 2
"""Attempts at each half: after a failure it may run again as the first of a new process."""
AT_ITS_END = 3
"""Attempts for each item that is found: alone once more, and with all ranges, twice."""
HAVE_FAR_NODES = 0.15
"""Share of the seeds in which some hosts, or all, do not see the job folder."""
SHORTEST_LIFE_S = 8.0
"""Seconds in which a worker starts, and has a mini-batch that runs out of time."""
COMPARED_S = 8.0
"""Seconds more in which rows with a slow item are compared with those of their halves: three calls
more."""
PERMITTED_S = 12.0
"""Seconds more in which a call waits for a permit, at an endpoint that asks for a long pause."""
HAVE_LIVES = 0.1
"""Share of the seeds in which workers have a lifetime."""
HAVE_ITEMS = 0.15
"""Share of the seeds whose mini-batches have several items: one costs three times another seed."""
HAVE_THRESHOLD = 0.2
"""Share of these in which only so many items may fail."""
MOST_MINI_BATCHES = 4
SIZES = ((1, 3), (1, 4), (2, 5), (2, 8), (3, 10), (6, 24))
LARGE = 0.002
"""Share of these with a mini-batch in which the search ends with 32 items."""
LARGE_FROM = 100
MOST_DENSE = 12
"""Items of a job in which half of them, or all, may be bad: each costs some attempts."""
KINDS = (RAISES, RAISES, DIES, HANGS, POISONS, NEEDS_MEMORY, SLOW, NAMED)
ARE_ELSEWHERE = 0.2
"""Share of the seeds whose agents sync what they write, since the driver is on another host."""
HAVE_PARTITIONS = 0.1
"""Share of the seeds whose input is a collection, unless mini-batches have several items."""
HAVE_TYPES = 0.1
"""Share of the seeds that keep rows with their types."""
HAVE_PARTS = 0.1
"""Share of the seeds whose output is a data set, of which workers write parts."""
FEW_BYTES = 1_000
HAVE_CALLS = 0.1
"""Share of the seeds whose processes make several calls at a time."""
HAVE_ENDPOINTS = 0.08
"""Share of the seeds whose script calls an endpoint, unless mini-batches have several items."""
FORGETS_S = 150.0
"""Seconds without a settled mini-batch after which such a job ends."""
HAVE_STAGES = 0.05
"""Share of the other seeds with stages, in processes beside those of `run`."""
HAVE_KEYS = 0.04
"""Share of the other seeds whose rows are brought together by key: one costs three others."""
EXCHANGED_S = 3.0
"""About the seconds in which rows are brought together."""
HAVE_SIGNALS = 0.1
"""Share of the seeds in which SIGTERM comes."""
HAVE_STOPPED_SCHEDULERS = 0.1
"""Share of the seeds in which the scheduler stops."""
ON_DISK = ("die", "die", "die after", "torn", "full", "error", "cannot")


def drawn(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    rng = random.Random(seed)  # noqa: S311
    count = rng.choice(COUNTS)
    hosts, threads = rng.choice([1, 1, 2, 2, 3]), rng.choice([1, 1, 2, 3])
    seconds = rng.choice([0.01, 0.1, 0.4])
    limits = Limits(
        run_max_try=rng.choice([1, 2, 3]),
        allowed_failed_count=rng.choice([-1, -1, -1, 0, 1, 3]),
        run_timeout_s=rng.choice([2.0, 5.0]),
        retry_delay_s=rng.choice([0.0, 0.0, 1.0, None]),
        max_node_losses=1000,
        init_timeout_s=5.0,
        shutdown_timeout_s=5.0,
        load_timeout_s=60.0,
    )
    bad: dict[int, list[str]] = {}
    share = rng.choice([0.0, 0.0, 0.1, 0.4])
    kinds = rng.sample([RAISES, DIES, HANGS, POISONS], rng.randint(1, 4))
    for index in range(count):
        if rng.random() < share:
            acts = [rng.choice(kinds)]
            if limits.run_max_try > 1 and rng.random() < 0.5:
                acts.append(GOOD)
            bad[index] = acts
    lively = rng.random() < 0.7
    length_s = STARTS_S + count * seconds / (hosts * threads)
    strikes = sorted(
        (rng.random() * length_s, rng.choice(STRIKES))
        for _ in range(rng.choice([1, 2, 4]) if lively else 0)
    )
    on_disk = {}
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        moment = rng.choice([*MOMENTS])
        on_disk[moment, rng.randint(1, MOMENTS[moment] + (moment == AT_WORK) * count)] = rng.choice(
            ON_DISK
        )
    of_end = random.Random(f"end of {seed}")  # noqa: S311 - all else of a seed stays as it was
    ends_s = of_end.random() * (length_s + 1) if of_end.random() < 0.1 else None
    lies = rng.random() < 0.1
    init_fails = {rng.randint(0, 5)} if rng.random() < 0.1 else set()
    scenario = Scenario(
        seed,
        count,
        hosts,
        threads,
        limits,
        seconds,
        rng.choice([0.001, 0.01, 0.3]),
        bad,
        strikes,
        on_disk,
        lies,
        init_fails,
        form := rng.choice(["text"] * 14 + ["headed"] * 4 + ["jsonl", "parquet"]),
        form != "parquet" and rng.random() < 0.3,
        ends_s,
    )
    scenario = with_nodes(scenario, random.Random(f"nodes of {seed}"))  # noqa: S311
    for name, share, drawn_more in RARE:
        # Each has a generator of its own, so that a new one leaves all else of a seed as it was.
        rng = random.Random(f"{name} of {seed}")  # noqa: S311
        if rng.random() < share:
            scenario = drawn_more(scenario, rng)
    return scenario


def with_partitions(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose mini-batches are rows of partitions, or partitions as a whole."""
    if scenario.items is not None or scenario.far:
        return scenario
    if rng.random() < 0.4:
        return replace(scenario, partitions=(1,) * scenario.count)
    rows: list[int] = []
    while (left := scenario.count - sum(rows)) > 0:
        rows.append(min(left, rng.choice([1, 2, 3, 5])))
    return replace(scenario, partitions=tuple(rows), is_cut=True)


def with_nodes(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario in which hosts may not see the job folder, and workers may end."""
    if rng.random() < HAVE_FAR_NODES:
        far = {f"host{number}" for number in range(rng.randint(1, scenario.hosts))}
        scenario = replace(scenario, far=frozenset(far))
    if rng.random() < HAVE_LIVES:
        life_s = SHORTEST_LIFE_S + 6 * rng.random()
        if scenario.far:  # each mini-batch takes some messages more
            life_s += 100 * scenario.latency_s
        scenario = replace(scenario, life_s=life_s)
    return replace(
        scenario,
        in_message_bytes=rng.choice([1, 1, 20, 8 << 20]),
        carried_bytes=rng.choice([1, 30, 4 << 20]),
        is_elsewhere=rng.random() < ARE_ELSEWHERE,
        damaged=rng.choice([0.0, 0.0, 0.1]),
    )


def with_parts(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose output is a data set, of which workers write parts."""
    times = rng.choice([0, 1, 2])
    strikes = [(rng.random() * (scenario.length_s + 5), rng.choice(STRIKES)) for _ in range(times)]
    return replace(
        scenario,
        form="parquet",
        replaces=False,
        part_bytes=rng.choice([1, 1_000, 2_000]),
        small_bytes=rng.choice([1, 1, FEW_BYTES]),
        strikes=sorted(scenario.strikes + strikes),
    )


def with_types(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario that keeps rows with their types, beside the output or without any."""
    if rng.random() < 0.5:
        return replace(scenario, typed="beside")
    form = scenario.form if scenario.form == "headed" else "text"
    return replace(scenario, typed="alone", form=form, replaces=False, small_bytes=8 << 20)


def with_signals(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario in which SIGTERM comes: at a time, or at an operation on the disk."""
    if rng.random() < 0.5:
        moment = rng.choice([*MOMENTS, AT_WORK])
        most, times = MOMENTS[moment] + scenario.count, rng.choice([1, 2])
        places = [(moment, rng.randint(1, most)) for _ in range(times)]
        on_disk = {place: rng.choice(["terminate", "terminate after"]) for place in places}
        return replace(scenario, on_disk=on_disk | scenario.on_disk)
    what, at_s = rng.choice(["terminate driver", "terminate job"]), rng.random() * scenario.length_s
    strikes = [(at_s, what)]
    if rng.random() < 0.5:  # who waits no longer sends it again
        strikes.append((at_s + rng.choice([0.01, 0.5, 4.0]), what))
    return replace(scenario, strikes=sorted(scenario.strikes + strikes))


def with_stopped_schedulers(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario in which the scheduler stops for a while, once or twice."""
    times = rng.choice([1, 1, 2])
    strikes = [(rng.random() * scenario.length_s, "stop scheduler") for _ in range(times)]
    return replace(scenario, strikes=sorted(scenario.strikes + strikes))


def with_calls(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose processes make several calls at a time."""
    calls = Calls(rng.choice([2, 3, 8]), is_async=rng.random() < 0.5)
    limits = replace(scenario.limits, calls=calls.at_once)
    return replace(scenario, calls=calls, limits=limits)


def with_stages(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose stages have processes of their own, in which they fail, too."""
    if scenario.calls is not None:
        return scenario
    kinds = [*OF_STAGES]
    bad = {
        index: [rng.choice(kinds) if rng.random() < 0.5 else acts[0], *acts[1:]]
        for index, acts in scenario.bad.items()
    }
    bad |= {index: [rng.choice(kinds)] for index in range(scenario.count) if rng.random() < 0.1}
    names = rng.choice([("a", "b"), ("a", "b"), ("a", None), (None, "b")])
    starts = rng.sample(range(1, 12), rng.choice([0, 0, 1, 3]))
    return replace(
        scenario,
        bad=bad,
        stages=Stages(*names, rng.choice([None, 1, 2, 4])),
        init_s=rng.choice([INIT_S, 0.5, 3.0]),
        init_fails=scenario.init_fails | {*starts},
        limits=replace(
            scenario.limits, agent_max_mini_batches=rng.choice([None, None, None, 1, 2, 5])
        ),
    )


def with_endpoint(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose script calls an endpoint, which refuses requests."""
    if scenario.items is not None or scenario.stages is not None:
        return scenario
    limit = None
    if rng.random() < 0.7:
        limit = RateLimit(
            requests_per_minute=rng.choice([None, 30, 120, 600]),
            tokens_per_minute=rng.choice([None, 120, 1_000]),
            in_flight=rng.choice([1, 2, 4]),
            name=rng.choice([None, "account"]),
        )
    bursts = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        from_s = rng.random() * (scenario.length_s + 5)
        bursts.append((from_s, from_s + rng.choice([0.5, 3.0, 20.0])))
    total = sum(map(tokens_of, range(scenario.count)))
    some = rng.random() < 0.2
    endpoint = Endpoint(
        limit,
        rng.choice([0.0, 0.0, 0.05, 0.3]),
        rng.choice([None, None, 0.5, 2.0, 10.0]),
        tuple(bursts),
        quota=rng.randint(1, scenario.count + 2) if some else None,
        usage_limit=rng.randint(1, total) if rng.random() < 0.3 else None,
    )
    bad = dict(scenario.bad)
    if rng.random() < 0.1:
        bad[rng.randrange(scenario.count)] = [REFUSED]
    if scenario.life_s is not None:
        scenario = replace(scenario, life_s=scenario.life_s + PERMITTED_S)
    limits = replace(
        scenario.limits,
        progress_update_timeout_s=FORGETS_S,
        first_progress_timeout_s=FORGETS_S,
    )
    return replace(scenario, bad=bad, limits=limits, endpoint=endpoint)


def with_keys(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose rows are brought together by key: each key is a mini-batch."""
    if scenario.items is not None or scenario.partitions or scenario.endpoint is not None:
        return scenario
    count = scenario.count
    dealt = [*range(count), *(rng.randrange(count) for _ in range(count * rng.choice([0, 1, 3])))]
    rng.shuffle(dealt)
    numbers = {key: number for number, key in enumerate(dict.fromkeys(dealt))}
    rows: list[tuple[int, ...]] = []
    while dealt:
        size = rng.choice([0, 1, 2, 2, 3, 5, 8])
        rows.append(tuple(numbers[key] for key in dealt[:size]))
        del dealt[:size]
    parts, small = rng.choice([1, 3, 8, 100]), rng.choice([0, 8 << 20])
    keyed = Keyed(tuple(rows), rng.random() < 0.6, parts, small)
    if not scenario.far and rng.random() < 0.5:
        far = {f"host{number}" for number in range(rng.randint(1, scenario.hosts))}
        scenario = replace(scenario, far=frozenset(far))
    length_s = EXCHANGED_S + scenario.length_s
    times = rng.choice([0, 1, 1, 2])
    strikes = [(rng.random() * length_s, rng.choice(STRIKES)) for _ in range(times)]
    strikes = sorted(scenario.strikes + strikes)
    # At the end of its life a worker hands its results to others, which nobody does here.
    return replace(scenario, keyed=keyed, strikes=strikes, life_s=None)


def with_items(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose mini-batches have several items."""
    count = min(scenario.count, MOST_MINI_BATCHES)
    low, high = rng.choice(SIZES)
    is_known = rng.random() < 0.7
    sizes = [rng.randint(low, high) for _ in range(count)]
    for index in range(0 if is_known else count):
        sizes[index] *= rng.random() < 0.9
    if rng.random() < LARGE:
        sizes[rng.randrange(count)] = rng.randint(130, 200)
    places = [(index, item) for index in range(count) for item in range(sizes[index])]
    share = rng.choice([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0]) if len(places) <= MOST_DENSE else 0.0
    bad = round(share * len(places)) or rng.choice([0, 1, 1, 1, 2, 2, 4])
    kinds = rng.sample(KINDS, rng.randint(1, 4))
    acts: dict[tuple[int, int], tuple[str, ...]] = {}
    for place in rng.sample(places, min(bad, len(places))):
        what = rng.choice(kinds)
        passes_after = rng.choice([0, 0, 0, 1, 3]) if what not in (NAMED, SLOW) else 0
        acts[place] = (what,) * max(1, passes_after) + (GOOD,) * bool(passes_after)
    if max(sizes) > LARGE_FROM:
        index = sizes.index(max(sizes))
        some = rng.sample(range(sizes[index]), rng.choice([2, 20, 45]))
        acts |= {(index, item): (RAISES,) for item in some}
    _keep_one_slow(acts)
    on_error = rng.choice(["raise", *["isolate"] * 5, "null"])
    if scenario.life_s is not None:
        scenario = replace(scenario, life_s=scenario.life_s + COMPARED_S)
    limits = replace(
        scenario.limits,
        isolates=on_error != "raise",
        independent_rows=rng.random() < 0.4,
        agent_max_mini_batches=rng.choice([1, 2, 5]) if rng.random() < 0.2 else None,
        run_timeout_s=5.0,
        error_threshold=_threshold(acts, rng),
    )
    most_rows = rng.randint(1, max(1, max(sizes) // 2)) if rng.random() < 0.25 else None
    heavy = range(count) if rng.random() < 0.5 else rng.sample(range(count), min(2, count))
    ends_s = scenario.ends_s
    if ends_s is None and rng.random() < 0.1:
        ends_s = rng.random() * (STARTS_S + 4)
    # Where only single items pass, nothing shows whether they are independent.
    is_dependent = not (limits.independent_rows or most_rows) and rng.random() < 0.1
    if is_dependent:
        acts = {place: what[:1] for place, what in acts.items() if what != (SLOW,)}
    items = Items(
        on_error,
        tuple(sizes),
        is_known,
        acts,
        most_rows,
        frozenset(heavy),
        kills=rng.random() < 0.5,
        is_dependent=is_dependent,
    )
    return replace(scenario, count=count, bad={}, limits=limits, items=items, ends_s=ends_s)


def _keep_one_slow(acts: dict[tuple[int, int], tuple[str, ...]]) -> None:
    """Let at most one item of a mini-batch be slow: with two of them it would take too long."""
    seen = set()
    for place in [place for place, what in acts.items() if what == (SLOW,)]:
        if place[0] in seen:
            del acts[place]
        seen.add(place[0])


def _threshold(acts: dict[tuple[int, int], tuple[str, ...]], rng: random.Random) -> int:
    """Return how many items may fail, where each driver of a job finds the same ones."""
    has_chance = any(len(what) > 1 or what == (SLOW,) for what in acts.values())
    return rng.choice([0, 1, 3, 8]) if rng.random() < HAVE_THRESHOLD and not has_chance else -1


RARE = (
    ("parts", HAVE_PARTS, with_parts),
    ("types", HAVE_TYPES, with_types),
    ("signals", HAVE_SIGNALS, with_signals),
    ("calls", HAVE_CALLS, with_calls),
    ("stages", HAVE_STAGES, with_stages),
    ("items", HAVE_ITEMS, with_items),
    ("partitions", HAVE_PARTITIONS, with_partitions),
    ("stopped schedulers", HAVE_STOPPED_SCHEDULERS, with_stopped_schedulers),
    ("endpoints", HAVE_ENDPOINTS, with_endpoint),
    ("keys", HAVE_KEYS, with_keys),
)
"""What only a share of the seeds has, in the order in which it is drawn."""
