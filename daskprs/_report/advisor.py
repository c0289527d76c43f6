"""The advisor of a job: a listener that turns what was measured into advice, each kind once."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.advice import AFTER_S, Figures, GpuFigures, advice_on, advice_on_imports
from daskprs._core.events import (
    AdviceGiven,
    AgentChanged,
    JobStarted,
    MessageLogged,
    MiniBatchesDone,
    ProgressReported,
    UsageMeasured,
)
from daskprs._core.lease import AgentExited, AgentReady, AgentStarted
from daskprs.errors import worded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs._core.events import Event
    from daskprs._core.usage import DeviceUsage, NodeUsage, ProcessUsage
    from daskprs.errors import Option

LOOKS_OF_A_MOMENT = 3
"""Looks after which the load of single moments counts."""


class _Look(NamedTuple):
    """What one look at a node adds to the sums over a time in which it worked."""

    seconds: float
    idle_cores: float
    used_cores: float
    devices: dict[int, DeviceUsage]


@dataclass(slots=True)
class _Node:
    """What is known of one node."""

    begun: float = math.inf
    """Wall clock of its first attempt."""
    run_s: float = 0.0
    cpu_s: float = 0.0
    looked: float = math.inf
    """Wall clock of the last look."""
    cpu_before_s: dict[str, float] = field(default_factory=dict)
    """Seconds of the processor by process, at the last look."""
    looks: list[_Look] = field(default_factory=list)
    usage: NodeUsage | None = None
    """That of the last look that counts."""
    agents: dict[str, ProcessUsage] = field(default_factory=dict)
    """The living processes of all workers of the node, as of their last looks."""
    at_work: tuple[ProcessUsage, ...] = ()
    """Those of the last look that counts: at the end of the job they are gone."""
    devices: dict[int, DeviceUsage] = field(default_factory=dict)


class Advisor:
    """Listens to a job, and tells it advice once it has run for some time.

    A look counts only if the node worked all the time since the look before, and there is work for
    more processes: imports and `init()` say nothing about the rest, and neither does the last
    mini-batch.
    """

    def __init__(self, form: Callable[[Option], str]) -> None:
        self.tell_job: Callable[[Event], None] = lambda _: None
        """Tells all listeners of the job an event."""
        self._form = form
        self._given: set[str] = set()
        self._nodes: defaultdict[int, _Node] = defaultdict(_Node)
        self._is_new = False
        """Whether there was a look since the last advice."""
        self._told: set[str] = set()
        self._mini_batches, self._elapsed_s = 0, 0.0
        self._imports_s: list[float] = []
        self._packages: dict[str, None] = {}
        self._has_more = False
        """Whether some mini-batches are in no lease."""

    def tell(self, event: Event) -> None:
        """Add up what was measured, and give new advice when there is some."""
        match event:
            case JobStarted(options=options):
                self._given = {*options}
            case MiniBatchesDone(place, _, outcomes):
                node = self._nodes[place.node]
                node.begun = min(node.begun, *outcomes.column("started"))
                node.run_s += sum(outcomes.column("run_s"))
                node.cpu_s += sum(outcomes.column("cpu_s"))
            case AgentChanged(_, AgentStarted(apart=apart)):
                self._tell_apart(apart)
            case AgentChanged(_, AgentReady(import_s=import_s, packages=packages)):
                self._imports_s.append(import_s)
                self._packages |= dict.fromkeys(packages)
            case AgentChanged(place, AgentExited(process=process)):
                self._nodes[place.node].agents.pop(process, None)
            case UsageMeasured(number, usage, of_node):
                self._look(self._nodes[number], usage, of_node=of_node)
            case ProgressReported(standing, elapsed_s=elapsed_s):
                planned = standing.planned
                self._elapsed_s = elapsed_s
                self._mini_batches = standing.mini_batches.total if planned is None else planned
                taken = standing.settled + standing.running
                self._has_more = planned is None or taken < planned
                if self._is_new and elapsed_s >= AFTER_S:
                    self._is_new = False
                    self.tell_new()

    def close(self) -> None:
        """Do nothing."""

    def advice(self, elapsed_s: float) -> tuple[str, ...]:
        """Return the advice as of now, in the words of the job's front end."""
        self._elapsed_s = elapsed_s
        return tuple(self._found().values()) if elapsed_s >= AFTER_S else ()

    def _tell_apart(self, apart: tuple[str, ...]) -> None:
        """Tell the job, once, which packages of `preload` each process imports."""
        for package in apart:
            if package not in self._told:
                self._told.add(package)
                told = f"preload: each process imports {package}, since no fork can use it."
                self.tell_job(MessageLogged("notice", told))

    def tell_new(self) -> None:
        """Tell the job the advice that it has not been told."""
        for kind, text in self._found().items():
            if kind not in self._told:
                self._told.add(kind)
                self.tell_job(AdviceGiven(text))

    def _found(self) -> dict[str, str]:
        """Return one sentence of each kind, of the first node that has it."""
        found: dict[str, str] = {}
        for number, node in sorted(self._nodes.items()):
            figures = _figures(node)
            advice = None
            if figures is not None:
                advice = advice_on(figures, self._given, self._mini_batches)
            if advice is not None and advice.kind not in found:
                where = f"node {number}: " if len(self._nodes) > 1 else ""
                found[advice.kind] = where + worded(advice.text, self._form)
        imports = advice_on_imports(self._imports_s, self._packages, self._given, self._elapsed_s)
        if imports is not None:
            found[imports.kind] = worded(imports.text, self._form)
        return found

    def _look(self, node: _Node, usage: NodeUsage, *, of_node: bool) -> None:
        node.agents |= {one.process: one for one in usage.agents}
        node.devices |= {one.number: one for one in usage.devices if one.is_ours}
        if not of_node:
            return
        self._is_new = True
        seconds = usage.taken - node.looked
        agents = node.agents.values()
        cpu_s = {one.process: one.sample.cpu_s for one in agents}
        if agents and seconds > 0 and node.begun <= node.looked and self._has_more:
            used_s = sum(
                max(0.0, now_s - node.cpu_before_s.get(process, now_s))
                for process, now_s in cpu_s.items()
            )
            node.at_work, node.usage = tuple(agents), usage
            node.looks.append(
                _Look(seconds, usage.idle_cores, used_s / seconds, dict(node.devices))
            )
        node.looked, node.cpu_before_s = usage.taken, cpu_s


def _figures(node: _Node) -> Figures | None:
    """Return the means over the looks at a node; None without any."""
    usage, looks = node.usage, node.looks
    seconds = sum(one.seconds for one in looks)
    if usage is None or not seconds:
        return None
    return Figures(
        measured_s=seconds,
        cores=usage.cores,
        idle_cores=_mean(looks, (one.idle_cores for one in looks)),
        used_cores=_mean(looks, (one.used_cores for one in looks)),
        processes=len(node.at_work),
        on_gpu=sum(one.has_gpu for one in node.at_work),
        process_bytes=max((one.sample.rss_bytes for one in node.at_work), default=0),
        available_bytes=usage.available_bytes,
        run_s=node.run_s,
        cpu_s=node.cpu_s,
        gpus=tuple(
            GpuFigures(number, load, _highest(looks, number), last.total_bytes)
            for number, last in sorted(looks[-1].devices.items())
            if (load := _load(looks, number)) is not None
        ),
    )


def _mean(looks: list[_Look], values: Iterable[float]) -> float:
    """Return the mean of values, each of which counts for the seconds of its look."""
    total = sum(one.seconds for one in looks)
    return sum(one.seconds * value for one, value in zip(looks, values, strict=True)) / total


def _highest(looks: list[_Look], number: int) -> int:
    """Return the highest memory of a device."""
    return max(one.devices[number].used_bytes for one in looks if number in one.devices)


def _load(looks: list[_Look], number: int) -> float | None:
    """Return the share of the time for which a device worked; None while too little is known."""
    seen = [one for one in looks if number in one.devices]
    known = [one.devices[number] for one in seen]
    if not known or any(one.percent is None for one in known):
        return None
    if not all(one.is_mean for one in known) and len(known) < LOOKS_OF_A_MOMENT:
        return None
    return _mean(seen, ((one.percent or 0) / 100 for one in known))
