"""The driver of a parallel step, as a process: ``python -m daskprs.cli.step_driver FILE``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from daskprs.azure.pipelines.parallel_step import read_task
from daskprs.cli.exit_codes import every_end, show
from daskprs.cli.options import flagged
from daskprs.job.frontend import Surface, accepting


def resume_pipeline(job_dir: Path, accept: str = "") -> str:
    """Return the words that resume the pipeline of a step."""
    words = ["--resume", "--job-dir", str(job_dir.parent), *accepting(accept)]
    return f"run the pipeline again with {shlex.join(words)}"


def main() -> None:
    """Run the task that a file describes, and end with the exit code of its job."""
    with every_end():
        show(read_task(Path(sys.argv[1])).run(surface=Surface(flagged, resume_pipeline)))


if __name__ == "__main__":
    main()
