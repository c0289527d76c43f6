"""The usage of a machine by processes and nodes: plain numbers, measured beside the agents."""

from __future__ import annotations

from typing import NamedTuple


class UsageSample(NamedTuple):
    """The usage of an agent and its sub-processes at one moment; sums count from their start."""

    taken: float
    """Wall clock, seconds since the epoch."""
    phase: str
    """The phase of the agent, as in `core.events.SlotState`."""
    index: int | None  # type: ignore[assignment]  # it hides tuple.index
    processes: int
    """Number of living processes: the agent and its sub-processes."""
    cpu_s: float
    """Seconds of the processor, those of ended sub-processes included."""
    rss_bytes: int
    """Resident memory; what several processes share counts in each of them."""
    read_bytes: int
    """Bytes that were read from disks."""
    written_bytes: int
    """Bytes that were written to disks."""
    available_bytes: int
    """Memory that the node has left."""
    group_bytes: int
    """Memory that the limited control group holds, its file cache included; 0 without one."""


class ProcessUsage(NamedTuple):
    """The usage of an agent and its sub-processes."""

    process: str
    """``process000``, …"""
    pid: int
    sample: UsageSample
    pss_bytes: int | None
    """Resident memory in which what n processes share counts 1/n in each; None: unknown."""
    gpu_bytes: int | None
    """Memory of devices; None: unknown."""
    has_gpu: bool = False
    """Whether one of them holds a device open."""


class DiskUsage(NamedTuple):
    """The size and the free space of a disk."""

    path: str
    """A folder on it that the job uses."""
    total_bytes: int
    used_bytes: int
    free_bytes: int


class DeviceUsage(NamedTuple):
    """The usage of one GPU."""

    number: int
    percent: int | None
    used_bytes: int
    total_bytes: int
    is_mean: bool = False
    """Whether `percent` is a mean since the last look, and not a value of the last moment."""
    is_ours: bool = True
    """Whether the agents of the worker may use it."""


class NodeUsage(NamedTuple):
    """The usage of a machine; counts are those since its start."""

    taken: float
    """Wall clock, seconds since the epoch."""
    cpu_percent: float
    """Share of all cores since the last look."""
    total_bytes: int
    available_bytes: int
    used_bytes: int
    disk_reads: int | None
    disk_writes: int | None
    disk_read_bytes: int | None
    disk_written_bytes: int | None
    sent_bytes: int | None
    received_bytes: int | None
    tcp_connections: int | None
    udp_connections: int | None
    disks: tuple[DiskUsage, ...]
    devices: tuple[DeviceUsage, ...]
    agents: tuple[ProcessUsage, ...]
    """The agents of one worker."""
    processes: str
    """Its processes and the largest others, as a table for people."""
    cores: int = 0
    """Cores that the agents may use; 0: unknown."""
    idle_cores: float = 0.0
    """Cores of these that nothing has used since the last look."""
