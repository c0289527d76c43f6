"""What a seed decides before anything happens: the job, and what befalls it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._output.spec import OutputSpec
from tests.simulation.agents import DIES, GOOD, HANGS, POISONS, RAISES

SPECS = {
    "text": OutputSpec(text=True, typed=False),
    "headed": OutputSpec(text=True, typed=False, header=True),
    "jsonl": OutputSpec(text=True, typed=False, format="jsonl", single_file=True),
    "parquet": OutputSpec(text=True, typed=False, format="parquet", file_size_bytes=2_000),
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

    @property
    def spec(self) -> OutputSpec:
        """The rows that are kept."""
        return SPECS[self.form]

    @property
    def must_fail(self) -> bool:
        """Whether more mini-batches fail than may."""
        return 0 <= self.limits.allowed_failed_count < len(self.settled_bad)

    @property
    def settled_bad(self) -> set[int]:
        """The mini-batches that fail in each attempt."""
        return {index for index, acts in self.bad.items() if acts[-1] != GOOD}


COUNTS = (1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 12, 20)
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
ON_DISK = ("die", "die", "die after", "torn", "full", "error", "cannot")


def drawn(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    rng = random.Random(seed)  # noqa: S311
    count = rng.choice(COUNTS)
    hosts, threads = rng.randint(1, 3), rng.choice([1, 1, 2, 4])
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
    return Scenario(
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


def plan(count: int) -> list[MiniBatch]:
    """Return the mini-batches of a job."""
    return [MiniBatch(index, None, f"part {index}", 1) for index in range(count)]
