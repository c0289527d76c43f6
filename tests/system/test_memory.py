"""The memory's control group, as files of version 1 and 2 describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._system.memory import MemoryGroup, available_bytes

if TYPE_CHECKING:
    from pathlib import Path

GB = 1 << 30


def written(folder: Path, files: dict[str, str]) -> None:
    """Write files, with their folders."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


V2 = {
    "proc": "0::/pod/job\n",
    "groups/pod/memory.max": f"{2 * GB}\n",
    "groups/pod/memory.current": f"{GB}\n",
    "groups/pod/job/memory.max": "max\n",
    "groups/pod/job/memory.current": "5\n",
    "groups/pod/job/memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n",
}
V1 = {
    "proc": "5:cpu,cpuacct:/elsewhere\n4:memory:/pod/job\n0::/\n",
    "groups/memory/pod/memory.limit_in_bytes": f"{2 * GB}\n",
    "groups/memory/pod/memory.usage_in_bytes": f"{GB}\n",
    "groups/memory/pod/job/memory.limit_in_bytes": "9223372036854771712\n",
    "groups/memory/pod/job/memory.usage_in_bytes": "5\n",
    "groups/memory/pod/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
}


@pytest.mark.parametrize("files", [V2, V1], ids=["version 2", "version 1"])
def test_the_lowest_limit_around_a_process_counts(tmp_path: Path, files: dict[str, str]) -> None:
    """With what is used under that limit, and the kills of the process's own group."""
    written(tmp_path, files)
    group = MemoryGroup(tmp_path / "proc", tmp_path / "groups")
    assert (group.limit_bytes, group.used_bytes(), group.kills()) == (2 * GB, GB, 3)


def test_a_container_that_sees_its_group_on_top(tmp_path: Path) -> None:
    """The kernel may name a path that exists on the host alone."""
    written(
        tmp_path,
        {
            "proc": "0::/kubepods/pod7\n",
            "groups/memory.max": f"{GB}\n",
            "groups/memory.current": "7\n",
            "groups/memory.events": "oom 1\noom_kill 1\n",
        },
    )
    group = MemoryGroup(tmp_path / "proc", tmp_path / "groups")
    assert (group.limit_bytes, group.used_bytes(), group.kills()) == (GB, 7, 1)


def test_without_groups_the_machine_counts(tmp_path: Path) -> None:
    """And without anything, kills are unknown."""
    written(tmp_path, {"vmstat": "pgfault 77\noom_kill 5\n"})
    nowhere = tmp_path / "nowhere"
    group = MemoryGroup(nowhere, nowhere, tmp_path / "vmstat")
    assert (group.limit_bytes, group.used_bytes(), group.kills()) == (None, 0, 5)
    assert MemoryGroup(nowhere, nowhere, nowhere).kills() is None


def test_the_memory_that_is_left(tmp_path: Path) -> None:
    """In bytes; 0 where the kernel does not say it."""
    written(tmp_path, {"meminfo": "MemTotal:  9 kB\nMemAvailable:    7 kB\nBuffers: 1 kB\n"})
    assert available_bytes(tmp_path / "meminfo") == 7 << 10
    assert available_bytes(tmp_path / "nowhere") == 0
