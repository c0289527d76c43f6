"""The driver of a parallel step, in a process of its own: ``python -m daskprs.cli_task FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from daskprs.azure.parallel_step import read_task
from daskprs.cli_ends import every_end, show


def main() -> None:
    """Run the task that is told in a file, and end with the exit code of its job."""
    with every_end():
        show(read_task(Path(sys.argv[1])).run())


if __name__ == "__main__":
    main()
