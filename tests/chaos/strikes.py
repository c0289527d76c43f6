"""Who is struck and how: the blows of the table, and what an innocent may pay for each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import moments
import psutil
from caller import CANCELED, FAILED

from tests.support.cut_cluster import CutCluster

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.hand_cluster import HandCluster

PAUSE_S = 3.0
"""What is stopped and woken again sleeps so long."""
FAST = {"run_invocation_timeout": 8, "task_overhead_timeout": 8, "shutdown_timeout": 8}
BALLAST = "ballast"


@dataclass
class Scene:
    """What there is to strike."""

    cluster: HandCluster | CutCluster
    folder: Path
    disk: Path
    caller: int
    chance: random.Random
    reached: dict[str, Any] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)

    def agent(self) -> int:
        """Return the agent that came to the moment, else any."""
        agents = [int(path.name) for path in (self.folder / moments.AGENTS).iterdir()]
        if self.reached["pid"] in agents:
            return int(self.reached["pid"])
        living = sorted(filter(psutil.pid_exists, agents))
        return self.chance.choice(living or sorted(agents))

    def of_agent(self, who: str) -> Any:
        """Return the zygote, worker, nanny or host of that agent."""
        told = (self.folder / moments.AGENTS / str(self.agent())).read_text()
        return json.loads(told)[who]


@dataclass(frozen=True)
class Strike:
    """A blow: what it does, and what the job is given to stand it."""

    do: Callable[[Scene], None]
    options: dict[str, Any] = field(default_factory=lambda: {"run_max_try": 1})
    charged: int = 0
    """Attempts that may be charged: of what the struck process was at."""
    ends: tuple[int, ...] = ()
    """Exit codes with which the caller may end by it; the job is resumed then."""


def kill(whom: Callable[[Scene], int]) -> Callable[[Scene], None]:
    """Kill a process."""
    return lambda scene: os.kill(whom(scene), signal.SIGKILL)


def stop(whom: Callable[[Scene], int]) -> Callable[[Scene], None]:
    """Stop a process for good; it is killed when the cell is over."""

    def do(scene: Scene) -> None:
        pid = whom(scene)
        os.kill(pid, signal.SIGSTOP)
        scene.stopped.append(pid)

    return do


def pause(whom: Callable[[Scene], int]) -> Callable[[Scene], None]:
    """Stop a process for a while."""

    def do(scene: Scene) -> None:
        pid = whom(scene)
        os.kill(pid, signal.SIGSTOP)
        (scene.folder / moments.GO).touch()
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)

    return do


def cut_off(scene: Scene) -> None:
    """Cut the node of that agent off the network."""
    assert isinstance(scene.cluster, CutCluster)
    scene.cluster.cut(scene.of_agent("host"))


def fill_disk(scene: Scene) -> None:
    """Take the last byte of the disk that the job folder is on."""
    with (
        contextlib.suppress(OSError),
        (scene.disk / BALLAST).open("wb", buffering=0) as ballast,
    ):
        while ballast.write(bytes(4096)):
            pass


STRIKES = {
    "agent killed": Strike(kill(Scene.agent), {"run_max_try": 2}, charged=1),
    "agent stopped": Strike(stop(Scene.agent), {"run_max_try": 2, **FAST}, charged=1),
    "worker killed": Strike(kill(lambda scene: scene.of_agent("worker"))),
    "worker stopped": Strike(stop(lambda scene: scene.of_agent("worker"))),
    "nanny killed": Strike(kill(lambda scene: scene.of_agent("nanny"))),
    "scheduler killed": Strike(kill(lambda scene: scene.cluster.scheduler), ends=(FAILED,)),
    "scheduler paused": Strike(pause(lambda scene: scene.cluster.scheduler)),
    "caller killed": Strike(kill(lambda scene: scene.caller), ends=(-signal.SIGKILL,)),
    "caller interrupted": Strike(
        lambda scene: os.kill(scene.caller, signal.SIGINT), ends=(CANCELED,)
    ),
    "caller paused": Strike(pause(lambda scene: scene.caller)),
    "node cut off": Strike(cut_off),
    "disk full": Strike(fill_disk, ends=(FAILED,)),
}
"""By name: who, and what happens to it."""
MOMENTS = ("load", "run", "returned", "commit", "committed", "publish")
"""Before a load; in a run; after it and before its commit; in the commit; after it, before anybody
is told; and when the output is published."""
MOMENTS_OF_KEYS = ("deal", "gather")
"""While rows are dealt out by key, and while those of a key are gathered."""
MOMENTS_OF_SEARCHES = ("search", "commit", "committed", "publish")
"""When a job is struck in which rows are bad: in the midst of a search for them, and after it."""
MOMENTS_OF_STAGES = ("before", "run", "after", "committed", "publish")
"""When a job is struck that has functions before and after `run`: in each of the three."""
MOMENTS_OF_FAR_STAGES = ("before", "run", "after", "committed")
"""The same where the first function works on another node, too."""
MOMENTS_OF_COROUTINES = ("run", "commit", "publish")
"""When a job is struck whose processes work on several mini-batches at the same time."""
ACTIONS = ("append_row", "summary_only")
MOMENTS_OF_DATA_SETS = ("run", "committed", "publish")
"""When a job is struck whose output is a data set."""
