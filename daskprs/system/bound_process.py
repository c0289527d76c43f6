"""Becomes another program, which is killed when the process that started it ends.

Run as ``python -m daskprs.system.bound_process PARENT PROGRAM ARGUMENT...``.
"""

from __future__ import annotations

import os
import sys

from daskprs.system.linux import die_with_parent


def arguments(program: list[str]) -> list[str]:
    """Return the command that starts a program bound to this process."""
    return [sys.executable, "-m", "daskprs.system.bound_process", str(os.getpid()), *program]


def main() -> None:
    """Become the program."""
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - it is what the user asked for


if __name__ == "__main__":
    main()
