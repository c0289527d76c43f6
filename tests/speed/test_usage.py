"""What it costs to know what agents use."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.child import peak_memory
from daskprs._agent.child.peak_memory import PeakMemory
from daskprs._agent.protocol.messages import ProcessSpec
from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._agent.supervision.usage_ring import UsageRing
from daskprs._agent.supervision.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AGENTS, LOOKS, READS = 8, 60, 500
STATM = Path("/proc/self/statm")
IDLE = "daskprs._agent.child.helper"


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


def cost(work: Callable[[], object]) -> float:
    """Return the processor time of some work, in units of one small file that is read from /proc.

    A processor that is slow, or that busy neighbours share, makes both slower. The smallest of
    five quotients is the one that an interruption touched least.
    """

    def read() -> None:
        for _ in range(READS):
            with STATM.open("rb", buffering=0) as file:
                file.read()

    quotients = []
    for _ in range(5):
        times = []
        for one in (read, work):
            begun = time.process_time()
            one()
            times.append(time.process_time() - begun)
        quotients.append(READS * times[1] / times[0])
    return min(quotients)


def test_a_look_at_an_agent_costs_a_few_files_of_the_kernel(
    rings: dict[UsageRing, SharedPage],
) -> None:
    """Of eight agents once a second, less than a hundredth of a core, where a file takes 20 µs."""

    def look() -> None:
        for _ in range(LOOKS):
            for ring, page in rings.items():
                ring.sample(page.look(), None)

    assert cost(look) / (LOOKS * AGENTS) < 60
    assert all(len(ring.samples) >= LOOKS for ring in rings)


def test_quick_mini_batches_are_measured_without_a_file_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mini-batch of nothing costs thirty microseconds: a measurement would be a fifth of it."""
    # On a busy machine the seconds between two measurements go by while this process waits.
    monkeypatch.setattr(peak_memory, "SHORTEST_S", 60.0)
    fd = new_page()
    page = SharedPage(fd)
    os.close(fd)
    peak, count = PeakMemory(page), 2_000

    def measure() -> None:
        for _ in range(count):
            peak.reset()
            assert peak.taken()

    try:
        assert cost(measure) / count < 0.3
    finally:
        page.close()
