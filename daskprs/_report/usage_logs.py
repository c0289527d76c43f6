"""The usage of the machines by processes and nodes, over time: the files below ``logs/perf``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from daskprs._core.events import AgentChanged, UsageMeasured
from daskprs._core.lease import AgentExited
from daskprs._report.humanize import MB, Stamps
from daskprs._report.log_files import LogWriter, table_text
from daskprs._system.atomic_file import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from daskprs._core.events import Event
    from daskprs._core.usage import NodeUsage, UsageSample
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.log_files import LogFiles

    Row = Sequence[Any]

TIME = "Utc Time"
NODE_COLUMNS = (
    TIME,
    "Cpu Percent",
    "Memory Total (MB)",
    "Memory Available (MB)",
    "Memory Used (MB)",
    "Memory Used Percent",
    "Disk Io Read Count",
    "Disk Io Write Count",
    "Disk Io Read (MB)",
    "Disk Io Write (MB)",
    "Network Sent (MB)",
    "Network Recv (MB)",
    "# of TCP Connections",
    "# of UDP Connections",
)
GPU_COLUMNS = ("Gpu Percent", "Gpu Memory Used (MB)", "Gpu Memory Total (MB)")
"""More columns for nodes with GPUs: the mean of all, and sums."""
DEVICE_COLUMNS = (TIME, "Gpu", *GPU_COLUMNS)
DISK_COLUMNS = (TIME, "Path", "Total (MB)", "Used (MB)", "Free (MB)", "Used Percent")
PROCESS_COLUMNS = (
    *(TIME, "Process", "Pid", "Phase", "Mini-batch Id", "Processes"),
    *("Cpu Percent", "Cpu Seconds", "Memory Rss (MB)", "Memory Pss (MB)"),
    *("Disk Read (MB)", "Disk Write (MB)", "Gpu Memory (MB)"),
)
LAST_MINUTES_COLUMNS = (
    *(TIME, "Phase", "Mini-batch Id", "Processes", "Cpu Percent", "Memory Rss (MB)"),
    *("Disk Read (MB)", "Disk Write (MB)"),
    *("Node Memory Available (MB)", "Container Memory Used (MB)"),
)


class UsageLogs(LogWriter):
    """Writes the tables of each node, and the last minutes of each process that died."""

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._folder = folder
        self._files = files
        self._stamps = Stamps("%Y-%m-%dT%H:%M:%S", "+00:00")
        self._before: dict[tuple[int, str], UsageSample] = {}
        """The last sample of each process."""

    def tell(self, event: Event) -> None:
        """Write what was measured."""
        match event:
            case UsageMeasured(node, usage, of_node):
                if of_node:
                    self._write_node(node, usage)
                rows = self._process_rows(node, usage)
                self._append(self._folder.process_usage(node), PROCESS_COLUMNS, rows)
            case AgentChanged(place, AgentExited(process, usage=samples)):
                self._before.pop((place.node, process), None)
                if samples:
                    rows = self._last_rows(samples)
                    text = table_text([LAST_MINUTES_COLUMNS, *rows])
                    _write(self._folder.last_minutes(place.node, process), text)

    def _write_node(self, node: int, usage: NodeUsage) -> None:
        folder, now = self._folder, self._stamps.at(usage.taken)
        columns = NODE_COLUMNS + GPU_COLUMNS if usage.devices else NODE_COLUMNS
        self._append(folder.node_usage(node), columns, [(now, *_node_cells(usage))])
        disks = [
            (now, path, *_megabytes(total, used, free), f"{100 * used / max(1, total):.1f}")
            for path, total, used, free in usage.disks
        ]
        self._append(folder.disk_usage(node), DISK_COLUMNS, disks)
        devices = [
            (now, one.number, *_cells(one.percent), *_megabytes(one.used_bytes, one.total_bytes))
            for one in usage.devices
        ]
        self._append(folder.device_usage(node), DEVICE_COLUMNS, devices)
        minute = datetime.fromtimestamp(usage.taken, UTC)
        _write(folder.processes_of_minute(node, minute), usage.processes)

    def _process_rows(self, node: int, usage: NodeUsage) -> Iterator[Row]:
        for process, pid, sample, pss_bytes, gpu_bytes, _ in usage.agents:
            before = self._before.get((node, process))
            self._before[node, process] = sample
            yield (
                *(self._stamps.at(sample.taken), process, pid, sample.phase),
                *(*_cells(sample.index), sample.processes),
                *(_percent(before, sample), f"{sample.cpu_s:.1f}"),
                *_megabytes(sample.rss_bytes, pss_bytes),
                *_megabytes(sample.read_bytes, sample.written_bytes, gpu_bytes),
            )

    def _last_rows(self, samples: Iterable[UsageSample]) -> Iterator[Row]:
        before = None
        for now in samples:
            yield (
                *(self._stamps.at(now.taken), now.phase, *_cells(now.index), now.processes),
                *(_percent(before, now), *_megabytes(now.rss_bytes)),
                *_megabytes(now.read_bytes, now.written_bytes),
                *_megabytes(now.available_bytes, now.group_bytes or None),
            )
            before = now

    def _append(self, path: Path, columns: Row, rows: Iterable[Row]) -> None:
        text = table_text(rows)
        if text:
            self._files.file(path, table_text([columns])).write(text)


def _node_cells(usage: NodeUsage) -> Iterator[object]:
    yield f"{usage.cpu_percent:.1f}"
    yield from _megabytes(usage.total_bytes, usage.available_bytes, usage.used_bytes)
    yield f"{100 * usage.used_bytes / max(1, usage.total_bytes):.1f}"
    yield from _cells(usage.disk_reads, usage.disk_writes)
    yield from _megabytes(usage.disk_read_bytes, usage.disk_written_bytes)
    yield from _megabytes(usage.sent_bytes, usage.received_bytes)
    yield from _cells(usage.tcp_connections, usage.udp_connections)
    if usage.devices:
        known = [one.percent for one in usage.devices if one.percent is not None]
        yield f"{sum(known) / len(known):.1f}" if known else ""
        yield from _megabytes(
            sum(one.used_bytes for one in usage.devices),
            sum(one.total_bytes for one in usage.devices),
        )


def _percent(before: UsageSample | None, now: UsageSample) -> str:
    """Return the share of one core between two samples; empty without an earlier one."""
    if before is None or now.taken <= before.taken:
        return ""
    return f"{100 * max(0.0, now.cpu_s - before.cpu_s) / (now.taken - before.taken):.1f}"


def _megabytes(*sizes: int | None) -> list[str]:
    return ["" if size is None else f"{size / MB:.1f}" for size in sizes]


def _cells(*values: int | None) -> list[object]:
    return ["" if value is None else value for value in values]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text, durable=False)
