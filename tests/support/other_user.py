"""Programs of another user: may this machine start them, and can they reach the interpreter."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path

USER = 61_235
"""The user has no entry and no processes on this machine."""
SHOWN = """
mount --bind "$2" /mnt
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir -p "$2"
mount --bind /mnt "$2"
shift 2
exec "$@"
"""
"""Shows a folder in another one that is closed, to this program and those that it starts."""


@cache
def why_not() -> str:
    """Return why no program of another user can be tested here; empty where it can."""
    if os.geteuid() != 0:
        return "programs of another user need root"
    if shutil.which("setpriv") is None:
        return "programs of another user need setpriv"
    words = reached(as_user(sys.executable, "-c", "import daskprs"))
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"another user cannot run {sys.executable}: {tried.stderr}" if tried.returncode else ""


def as_user(*words: str) -> list[str]:
    """Return the words of a program that runs as another user, without any capability."""
    found = str(shutil.which("setpriv"))
    return [found, f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *words]


def reached(words: list[str]) -> list[str]:
    """Return the words of a program for which the interpreter is open to every user.

    The interpreter may lie in a folder of root.
    """
    python = Path(sys.executable).resolve()
    closed = [one for one in reversed(python.parents) if not one.stat().st_mode & stat.S_IXOTH]
    if not closed:
        return words
    shown = ["sh", "-ec", SHOWN, "sh", str(closed[0]), str(Path(sys.base_prefix).resolve())]
    return [str(shutil.which("unshare") or "unshare"), "--mount", *shown, *words]
