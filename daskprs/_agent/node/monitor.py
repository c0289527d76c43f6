"""The monitor of a node: what is used of the machine, now and then."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from daskprs._agent.node.environment import device_uuids, numbers_tell, usable_cores
from daskprs._core.usage import DeviceUsage, DiskUsage, NodeUsage
from daskprs._system.nvml import gpu_usage, gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daskprs._core.usage import ProcessUsage

FIRST_S = 5.0
SOCKETS = Path("/proc/net/sockstat"), Path("/proc/net/sockstat6")
OTHERS = 20
"""Processes of others in the table, the largest ones."""
MB = 1 << 20


def pauses_s(interval_s: float) -> Iterator[float]:
    """Yield the seconds before each look, if there is any: at 5, 10, 20, 40 s and so on."""
    pause_s = min(FIRST_S, interval_s)
    if pause_s:
        yield pause_s
    while pause_s:
        yield pause_s
        pause_s = min(2 * pause_s, interval_s)


class NodeMonitor:
    """Measures the machine.

    `agents` returns what the agents of this process use, given the memory of devices by process id.
    The job uses the disks of some folders. `devices` names those that the agents may use.
    """

    def __init__(
        self,
        agents: Callable[[dict[int, int]], Iterable[ProcessUsage]],
        folders: Iterable[Path],
        devices: tuple[str, ...] | None,
    ) -> None:
        self._agents = agents
        self._folders = tuple(folders)
        self._devices = devices
        self._cpu = psutil.cpu_times()
        self._looked_s = time.monotonic()

    def measure(self) -> NodeUsage:
        """Return the usage; this takes milliseconds, or longer with thousands of processes."""
        memory = psutil.virtual_memory()
        disk, net = psutil.disk_io_counters(), psutil.net_io_counters()
        before_s, self._looked_s = self._looked_s, time.monotonic()
        devices = gpu_usage(self._looked_s - before_s)
        own = self._own() if devices else set()
        of_devices: dict[int, int] = {}
        for device in devices:
            for pid, size in device.processes.items():
                of_devices[pid] = of_devices.get(pid, 0) + size
        cores, cpu_percent = usable_cores(), self._cpu_percent()
        return NodeUsage(
            taken=time.time(),
            cpu_percent=cpu_percent,
            total_bytes=memory.total,
            available_bytes=memory.available,
            used_bytes=memory.total - memory.available,
            disk_reads=disk and disk.read_count,
            disk_writes=disk and disk.write_count,
            disk_read_bytes=disk and disk.read_bytes,
            disk_written_bytes=disk and disk.write_bytes,
            sent_bytes=net and net.bytes_sent,
            received_bytes=net and net.bytes_recv,
            tcp_connections=_sockets("TCP"),
            udp_connections=_sockets("UDP"),
            disks=tuple(_disks(self._folders)),
            devices=tuple(
                DeviceUsage(*device[:4], device.is_mean, device.number in own) for device in devices
            ),
            agents=tuple(self._agents(of_devices)),
            processes=_table(),
            cores=cores,
            idle_cores=min(cores, (1 - cpu_percent / 100) * (psutil.cpu_count() or cores)),
        )

    def _own(self) -> set[int]:
        """Return the numbers of the devices that the agents may use; none that is not known."""
        found, names = gpus(), {*(self._devices or ())}
        uuids = {*device_uuids(self._devices)}
        by_number = numbers_tell(found) or len(names) == len(found)
        return {
            one.number
            for one in found
            if not uuids.isdisjoint((one.uuid, *one.instances))
            or (by_number and str(one.number) in names)
        }

    def _cpu_percent(self) -> float:
        before, self._cpu = self._cpu, psutil.cpu_times()
        spent = [max(0.0, now - then) for now, then in zip(self._cpu, before, strict=True)]
        of = dict(zip(self._cpu._fields, spent, strict=True))
        # The kernel counts the time of guests as time of the user, too.
        all_s = sum(spent) - of.get("guest", 0.0) - of.get("guest_nice", 0.0)
        idle_s = of["idle"] + of.get("iowait", 0.0)
        return 100 * (all_s - idle_s) / all_s if all_s else 0.0


def _sockets(kind: str) -> int | None:
    """Return the number of sockets in use, without a walk through all processes."""
    found = None
    for file in SOCKETS:
        with suppress(OSError, ValueError, IndexError):
            for line in file.read_text().splitlines():
                name, *cells = line.split()
                if name in (f"{kind}:", f"{kind}6:"):
                    found = (found or 0) + int(cells[cells.index("inuse") + 1])
    return found


def _disks(folders: Iterable[Path]) -> Iterator[DiskUsage]:
    seen = set()
    for folder in folders:
        with suppress(OSError):
            device = folder.stat().st_dev
            if device not in seen:
                seen.add(device)
                used = psutil.disk_usage(str(folder))
                yield DiskUsage(str(folder), used.total, used.used, used.free)


def _table() -> str:
    """Return a table of this process, its descendants, and the largest other processes.

    Names stand there without arguments, which may hold secrets of others.
    """
    own = psutil.Process()
    mine = {own.pid, *(child.pid for child in own.children(recursive=True))}
    names = ["pid", "ppid", "username", "name", "memory_info", "cpu_times", "create_time"]
    found = [process.info for process in psutil.process_iter(names)]
    found = [one for one in found if one["memory_info"] is not None]
    found.sort(key=lambda one: one["memory_info"].rss, reverse=True)
    others = [one for one in found if one["pid"] not in mine][:OTHERS]
    lines = [f"{'PID':>8} {'PPID':>8} {'RSS MB':>9} {'CPU S':>10}  {'STARTED':19}  USER NAME"]
    lines += [_line(one) for one in found if one["pid"] in mine]
    lines += ["The largest others:", *map(_line, others)]
    return "\n".join(lines) + "\n"


def _line(one: dict[str, Any]) -> str:
    seconds = one["cpu_times"].user + one["cpu_times"].system
    begun = datetime.fromtimestamp(one["create_time"], UTC)
    return (
        f"{one['pid']:8} {one['ppid']:8} {one['memory_info'].rss / MB:9.1f} {seconds:10.1f}  "
        f"{begun:%Y-%m-%d %H:%M:%S}  {one['username']} {one['name']}"
    )
