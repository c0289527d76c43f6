"""Small disks of tests: mounted in a namespace of their own, where the machine allows that."""

from __future__ import annotations

import shutil
import subprocess

NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def can_mount() -> bool:
    """Say whether this machine lets its users mount in a namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    trial = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0
