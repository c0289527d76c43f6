"""The driver of a parallel step, as a process: ``python -m daskprs.cli.step_driver FILE``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.azure.pipelines.parallel_step import read_task
from daskprs.cli.exit_codes import every_end, show
from daskprs.cli.options import flagged
from daskprs.job.frontend import accepting

if TYPE_CHECKING:
    from daskprs.errors import Option


class InPipeline:
    """The surface of a job that is a step."""

    def option(self, option: Option) -> str:
        """Return it with its dashes."""
        return flagged(option)

    def resume(self, job_dir: Path, accept: str = "") -> str:
        """Return what goes on with the whole pipeline."""
        words = ["--resume", "--job-dir", str(job_dir.parent), *accepting(accept)]
        return f"run the pipeline again with {shlex.join(words)}"


def main() -> None:
    """Run the task that is told in a file, and end with the exit code of its job."""
    with every_end():
        show(read_task(Path(sys.argv[1])).run(surface=InPipeline()))


if __name__ == "__main__":
    main()
