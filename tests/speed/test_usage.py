"""What it costs to know what agents use."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from daskprs.agent.child.peak_memory import PeakMemory
from daskprs.agent.protocol.messages import ProcessSpec
from daskprs.agent.protocol.shared_page import SharedPage, new_page
from daskprs.agent.supervision.usage_ring import UsageRing
from daskprs.agent.supervision.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AGENTS, LOOKS = 8, 60
IDLE = "daskprs.agent.child.helper"


@pytest.fixture
def rings() -> Iterator[dict[UsageRing, SharedPage]]:
    """Yield the rings and pages of eight processes, which wait for work."""
    zygote = Zygote(os.environ, "fork")
    agents = [
        zygote.start_agent(
            ProcessSpec(f"process{n:03d}", 0, "/", *[os.devnull] * 3, None, {}, program=IDLE)
        )
        for n in range(AGENTS)
    ]
    yield {UsageRing(agent.pid, agent.page): agent.page for agent in agents}
    zygote.close()
    for agent in agents:
        agent.close()


def seconds_of(work: Callable[[], object]) -> float:
    """Return the time of the processor that some work takes in this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_a_minute_of_looks_takes_less_than_a_hundredth_of_a_core(
    rings: dict[UsageRing, SharedPage],
) -> None:
    """At eight agents, once a second: less than 0.6 s of the processor."""

    def look() -> None:
        for _ in range(LOOKS):
            for ring, page in rings.items():
                ring.sample(page.look(), None)

    assert seconds_of(look) < 0.01 * LOOKS
    assert all(len(ring.samples) == LOOKS for ring in rings)


def test_quick_mini_batches_are_measured_in_microseconds() -> None:
    """A mini-batch of nothing costs thirty, and the measurement few of them."""
    fd = new_page()
    page = SharedPage(fd)
    os.close(fd)
    peak, count = PeakMemory(page), 10_000

    def measure() -> None:
        for _ in range(count):
            peak.reset()
            assert peak.taken()

    assert seconds_of(measure) / count < 5e-6
    page.close()
