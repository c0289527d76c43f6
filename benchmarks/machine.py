"""What a machine is, as far as it bears on speed, and what of daskprs was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import psutil

from benchmarks.peer_list import ROOT

GB = 1 << 30


def machine_facts() -> dict[str, str]:
    """Return what the machine is, as far as it bears on speed."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / GB:.0f} GB",
        "system": f"Linux {platform.release()}",
    }


def checked_out() -> str:
    """Return the commit that is checked out, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
